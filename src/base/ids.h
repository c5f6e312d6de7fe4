/*
 * Numbers texts: each distinct byte string gets an id, 1, 2, 3, ... in order of first appearance. A
 * hash table of 128-bit digests, which are unique in practice, so the bytes are not stored. Not
 * thread-safe.
 */
#ifndef HR_BASE_IDS_H
#define HR_BASE_IDS_H

#include "base/memory.h"

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

/* Returns the id of a text, which it enters if it is new, with a copy at (*names)[id - 1]; 0: out
 * of memory. `names` is the caller's, from hr__alloc, and grows; the copies are the caller's, too.
 */
uint32_t hr__ids_name(struct hr__ids *ids, char ***names, enum hr__tag tag, const char *text);

#endif
