/*
 * Measures reads that a caller aims, as hr_storage_measure does files: those of samples at URLs.
 */
#ifndef HR_STORAGE_MEASURE_H
#define HR_STORAGE_MEASURE_H

#include "storage/reader.h"

#include <headrace/storage.h>

struct hr__measured_reads {
    size_t count; /* at least 1; after the last one the first comes again */
    /* Returns the read of `slot`, aimed at number `number`, which stays the caller's. Its result is
     * 0, or a negative errno: then it is not read. A slot has one read at a time. */
    struct hr__read *(*aim)(void *arg, unsigned slot, size_t number);
    void *arg;
};

/* The most slots, and reads in flight. */
#define HR__MEASURE_DEPTH 1024

/* Reads with `depth` reads in flight, for about `seconds`. Errors: as hr_storage_measure. */
int hr__measure_reads(const struct hr__measured_reads *reads, int depth, double seconds,
                      struct hr_storage_rate *rate, struct hr_error *error);

#endif
