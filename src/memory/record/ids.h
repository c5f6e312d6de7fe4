/*
 * Texts and their numbers: each distinct run of bytes has an id, 1, 2, 3, ... in the order in
 * which they came. A hash table of digests: 128 bits tell them apart, so the bytes themselves
 * are not kept. Not for several threads at once.
 */
#ifndef HR_MEMORY_RECORD_IDS_H
#define HR_MEMORY_RECORD_IDS_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed: empty. */
struct hr__ids {
    struct hr__id_entry *table;
    size_t capacity; /* a power of two */
    uint32_t count;
};

/* The id; 0: it was not added. */
uint32_t hr__ids_find(const struct hr__ids *ids, const void *bytes, size_t length);

/* Adds what find does not find; the id, or 0: out of memory. */
uint32_t hr__ids_add(struct hr__ids *ids, const void *bytes, size_t length);

void hr__ids_clear(struct hr__ids *ids);

#endif
