/*
 * Numbers texts: each distinct byte string gets an id, 1, 2, 3, ... in order of first appearance. A
 * hash table of 128-bit digests, which are unique in practice, so the bytes are not stored. Not
 * thread-safe.
 */
#ifndef HR_BASE_IDS_H
#define HR_BASE_IDS_H

#include <stddef.h>
#include <stdint.h>

/* Initialize with zeros. */
struct hr__ids {
    struct hr__id_entry *table;
    size_t capacity; /* a power of two */
    uint32_t count;
};

/* Returns the id; 0: not found. */
uint32_t hr__ids_find(const struct hr__ids *ids, const void *bytes, size_t length);

/* Returns the id, adding the bytes if they are new; 0: out of memory. */
uint32_t hr__ids_add(struct hr__ids *ids, const void *bytes, size_t length);

void hr__ids_clear(struct hr__ids *ids);

#endif
