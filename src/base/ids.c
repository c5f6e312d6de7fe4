/* Numbers texts; see ids.h. Open addressing, at most half full. */
#include "base/ids.h"

#include "base/memory.h"

#include <string.h>
#include <xxhash.h>

struct hr__id_entry {
    XXH128_hash_t digest;
    uint32_t id; /* 0: empty */
};

#define CAPACITY_FIRST 256u

static struct hr__id_entry *place(struct hr__id_entry *table, size_t capacity, XXH128_hash_t digest)
{
    size_t at = (size_t)digest.low64 & (capacity - 1);
    while (table[at].id && !XXH128_isEqual(table[at].digest, digest))
        at = (at + 1) & (capacity - 1);
    return &table[at];
}

uint32_t hr__ids_find(const struct hr__ids *ids, const void *bytes, size_t length)
{
    if (!ids->capacity)
        return 0;
    return place(ids->table, ids->capacity, XXH3_128bits(bytes, length))->id;
}

static int grow(struct hr__ids *ids)
{
    size_t capacity = ids->capacity ? 2 * ids->capacity : CAPACITY_FIRST;
    struct hr__id_entry *table = hr__alloc(HR__TAG_BASE, capacity, sizeof *table);
    if (!table)
        return 0;
    for (size_t i = 0; i < ids->capacity; i++)
        if (ids->table[i].id)
            *place(table, capacity, ids->table[i].digest) = ids->table[i];
    hr__free(ids->table);
    ids->table = table;
    ids->capacity = capacity;
    return 1;
}

uint32_t hr__ids_add(struct hr__ids *ids, const void *bytes, size_t length)
{
    if (2 * ((size_t)ids->count + 1) > ids->capacity && !grow(ids))
        return 0;
    XXH128_hash_t digest = XXH3_128bits(bytes, length);
    *place(ids->table, ids->capacity, digest) =
        (struct hr__id_entry){.digest = digest, .id = ++ids->count};
    return ids->count;
}

void hr__ids_clear(struct hr__ids *ids)
{
    hr__free(ids->table);
    *ids = (struct hr__ids){.table = NULL};
}

uint32_t hr__ids_name(struct hr__ids *ids, char ***names, enum hr__tag tag, const char *text)
{
    size_t length = strlen(text);
    uint32_t id = hr__ids_find(ids, text, length);
    if (id)
        return id;
    if (hr__reserve(tag, names, (size_t)ids->count + 1))
        return 0;
    char *copy = hr__strdup(tag, text);
    id = copy ? hr__ids_add(ids, text, length) : 0;
    if (id)
        (*names)[id - 1] = copy;
    else
        hr__free(copy);
    return id;
}
