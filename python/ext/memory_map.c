/*
 * Hash table from addresses to indices, for headrace._core.MemoryRecorder. It uses open
 * addressing with linear probing and is at most half full. Removal shifts later entries back
 * instead of leaving tombstones.
 */
#include "memory_inside.h"

struct memory_pair {
    uint64_t key; /* 0: empty */
    uint32_t value;
};

static size_t home_of(const struct memory_map *map, uint64_t key)
{
    /* Multiply and take high bits: the low bits of addresses are zero (multiples of 16 or 64). */
    return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 24) & (map->capacity - 1);
}

/* Returns the slot of a key, or the empty slot where it would go. */
static struct memory_pair *look(const struct memory_map *map, uint64_t key)
{
    size_t at = home_of(map, key);
    while (map->pairs[at].key && map->pairs[at].key != key)
        at = (at + 1) & (map->capacity - 1);
    return &map->pairs[at];
}

uint32_t memory_map_get(const struct memory_map *map, uint64_t key)
{
    if (!map->capacity)
        return MEMORY_NONE;
    const struct memory_pair *pair = look(map, key);
    return pair->key ? pair->value : MEMORY_NONE;
}

static int grow(struct memory_map *map)
{
    struct memory_map grown = {.capacity = map->capacity ? 2 * map->capacity : 256,
                               .count = map->count};
    grown.pairs = PyMem_Calloc(grown.capacity, sizeof *grown.pairs);
    if (!grown.pairs) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < map->capacity; i++)
        if (map->pairs[i].key)
            *look(&grown, map->pairs[i].key) = map->pairs[i];
    PyMem_Free(map->pairs);
    *map = grown;
    return 0;
}

int memory_map_put(struct memory_map *map, uint64_t key, uint32_t value)
{
    if (2 * (map->count + 1) > map->capacity && grow(map) < 0)
        return -1;
    struct memory_pair *pair = look(map, key);
    map->count += !pair->key;
    *pair = (struct memory_pair){.key = key, .value = value};
    return 0;
}

void memory_map_remove(struct memory_map *map, uint64_t key)
{
    if (!map->capacity)
        return;
    size_t hole = (size_t)(look(map, key) - map->pairs), at = hole;
    if (!map->pairs[hole].key)
        return;
    for (;;) {
        at = (at + 1) & (map->capacity - 1);
        if (!map->pairs[at].key)
            break;
        size_t home = home_of(map, map->pairs[at].key);
        /* Move the entry into the hole unless its home slot lies after the hole. */
        if (((at - home) & (map->capacity - 1)) >= ((at - hole) & (map->capacity - 1))) {
            map->pairs[hole] = map->pairs[at];
            hole = at;
        }
    }
    map->pairs[hole].key = 0;
    map->count--;
}

void memory_map_clear(struct memory_map *map)
{
    PyMem_Free(map->pairs);
    *map = (struct memory_map){.pairs = NULL};
}
