/*
 * Copies bytes of a segment as atomic words, because readers take no lock and may copy what is
 * being overwritten: they find out afterwards.
 */
#ifndef HR_CACHE_STORE_WORDS_H
#define HR_CACHE_STORE_WORDS_H

#include "cache/store.h"

#include <stddef.h>
#include <stdint.h>

/* Copy words into a segment, and out of it. */
void hr__words_store(uint8_t *to, const uint64_t *words, size_t count);
void hr__words_load(uint64_t *words, const uint8_t *from, size_t count);

/* A place in concatenated pieces. */
struct hr__words_from {
    const struct hr__store_piece *piece;
    size_t used; /* bytes of it */
};

/* Copies the next `length` bytes into a segment; fills the last word up with zeros. */
void hr__words_write(uint8_t *to, struct hr__words_from *from, size_t length);

#endif
