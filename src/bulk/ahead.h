/*
 * Reads the samples of a dataset at URLs ahead of the threads that work on them, in their order, so
 * that the link is full although each of these threads waits for one sample at a time.
 *
 * A thread of its own keeps as many requests in flight as the client of the objects finds useful.
 * Samples that were read and not yet taken wait in a ring, which bounds how far ahead is read.
 */
#ifndef HR_BULK_AHEAD_H
#define HR_BULK_AHEAD_H

#include "loader/sample.h"

/* How many samples may be in flight or wait to be taken. */
#define HR__AHEAD_SAMPLES 512

struct hr__ahead;

struct hr__ahead_options {
    struct hr_dataset *dataset; /* borrowed */
    uint64_t first;             /* the first sample that is taken */
    /* Returns non-zero if a sample is to be read; NULL: all are. On the thread that reads ahead, in
     * the order of the samples. Of two samples that are HR__AHEAD_SAMPLES apart, the first was
     * taken before the second is asked about. */
    int (*wants)(void *arg, uint64_t index);
    void *arg;
};

/* Begins to read. *out is NULL if the samples are not at URLs, or there is no thread or reader for
 * it: then hr__ahead_wait returns zero. Errors: -ENOMEM. */
int hr__ahead_create(struct hr__ahead **out, const struct hr__ahead_options *options,
                     struct hr_error *error);

/* Stops reading and frees what nobody took. No thread may be in hr__ahead_wait. Accepts NULL. */
void hr__ahead_destroy(struct hr__ahead **ahead);

/* Waits until a sample was read or passed over. Returns non-zero if it was read: then
 * hr__ahead_take or hr__ahead_sample has to take it. Each sample is waited for once, and the
 * threads together wait for all of them in order. With NULL returns zero. */
int hr__ahead_wait(struct hr__ahead *ahead, uint64_t index);

/* Moves the result of a sample's read into one that was aimed at the same sample. */
void hr__ahead_take(struct hr__ahead *ahead, uint64_t index, struct hr__read *read);

/* Takes a sample as hr__sample_read reads it. */
int hr__ahead_sample(struct hr__ahead *ahead, struct hr__sample *sample, uint64_t index,
                     struct hr_error *error);

#endif
