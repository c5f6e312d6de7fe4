/* Space for items of different sizes in one range of memory (space.h). */
#include "cache/space.h"

#include "base/round.h"

/* How many blocks of a list are compared. */
#define COMPARED 16

/* What remains of a block is a block of its own from this size on. */
#define LEAST_BLOCK (2 * HR__SPACE_UNIT)

/* Returns the list of free blocks of this size: the exponent and three bits of the number of
 * units. */
static uint32_t bin_of(uint64_t bytes)
{
    uint64_t units = bytes / HR__SPACE_UNIT;
    uint32_t log = 63u - (uint32_t)__builtin_clzll(units);
    uint32_t next = (uint32_t)(log >= 3 ? units >> (log - 3) : units << (3 - log)) & 7;
    return log << 3 | next;
}

static void link_free(struct hr__space *space, struct hr__space_block *block)
{
    struct hr__space_block **bin = &space->bins[bin_of(block->bytes)];
    block->is_free = 1;
    block->next = *bin;
    block->place = bin;
    if (block->next)
        block->next->place = &block->next;
    *bin = block;
}

static void unlink_free(struct hr__space_block *block)
{
    *block->place = block->next;
    if (block->next)
        block->next->place = block->place;
    block->is_free = 0;
}

static struct hr__space_block *after(const struct hr__space *space, struct hr__space_block *block)
{
    uint8_t *end = (uint8_t *)block + block->bytes;
    return end < space->base + space->size ? (struct hr__space_block *)(void *)end : NULL;
}

static struct hr__space_block *before(struct hr__space_block *block)
{
    uint8_t *start = (uint8_t *)block - block->before;
    return block->before ? (struct hr__space_block *)(void *)start : NULL;
}

/* Sets the size of a block, and what the next one, or the space, knows of it. */
static void resize(struct hr__space *space, struct hr__space_block *block, uint64_t bytes)
{
    block->bytes = bytes;
    struct hr__space_block *next = after(space, block);
    *(next ? &next->before : &space->last) = bytes;
}

/* Makes a block free, with its free neighbours. */
static void merge(struct hr__space *space, struct hr__space_block *block)
{
    struct hr__space_block *next = after(space, block), *previous = before(block);
    if (next && next->is_free) {
        unlink_free(next);
        resize(space, block, block->bytes + next->bytes);
    }
    if (previous && previous->is_free) {
        unlink_free(previous);
        resize(space, previous, previous->bytes + block->bytes);
        block = previous;
    }
    link_free(space, block);
}

void hr__space_extend(struct hr__space *space, uint64_t bytes)
{
    if (!bytes)
        return;
    struct hr__space_block *block = (void *)(space->base + space->size);
    block->before = space->last;
    space->size += bytes;
    resize(space, block, bytes);
    merge(space, block);
}

/* Returns the smallest block that fits among the first ones of a list. */
static struct hr__space_block *best_of(struct hr__space_block *block, uint64_t bytes)
{
    struct hr__space_block *best = NULL;
    for (int i = 0; block && i < COMPARED; i++, block = block->next)
        if (block->bytes >= bytes && (!best || block->bytes < best->bytes))
            best = block;
    return best;
}

struct hr__space_block *hr__space_take(struct hr__space *space, uint64_t bytes)
{
    if (bytes > space->size)
        return NULL;
    uint64_t needed = hr__round_up(bytes, HR__SPACE_UNIT) + HR__SPACE_UNIT;
    struct hr__space_block *block = NULL;
    for (uint32_t bin = bin_of(needed); !block && bin < HR__SPACE_BINS; bin++)
        block = best_of(space->bins[bin], needed);
    if (!block)
        return NULL;
    unlink_free(block);
    uint64_t left = block->bytes - needed;
    if (left >= LEAST_BLOCK) {
        struct hr__space_block *rest = (void *)((uint8_t *)block + needed);
        rest->before = needed;
        resize(space, rest, left);
        block->bytes = needed;
        link_free(space, rest);
    }
    space->used += block->bytes;
    return block;
}

void hr__space_give_back(struct hr__space *space, struct hr__space_block *block)
{
    space->used -= block->bytes;
    merge(space, block);
}
