/* Space for items of different sizes in one range of memory (space.h). */
#include "cache/space.h"

#include "base/round.h"

#include <string.h>

/* How many blocks of a list are compared. */
#define COMPARED 16

/* How many free blocks are tried as the beginning of a gap, how many blocks it may have, and how
 * many bytes are moved at most for each byte that is needed. */
#define GAPS_TRIED 32
#define GAP_BLOCKS 64
#define MOVED_MOST 8

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

static uint64_t needed_for(uint64_t bytes)
{
    return hr__round_up(bytes, HR__SPACE_UNIT) + HR__SPACE_UNIT;
}

static struct hr__space_block *find(const struct hr__space *space, uint64_t needed)
{
    struct hr__space_block *block = NULL;
    for (uint32_t bin = bin_of(needed); !block && bin < HR__SPACE_BINS; bin++)
        block = best_of(space->bins[bin], needed);
    return block;
}

struct hr__space_block *hr__space_take(struct hr__space *space, uint64_t bytes)
{
    if (bytes > space->size)
        return NULL;
    uint64_t needed = needed_for(bytes);
    struct hr__space_block *block = find(space, needed);
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
    block->may_move = 0;
    space->used += block->bytes;
    return block;
}

void hr__space_give_back(struct hr__space *space, struct hr__space_block *block)
{
    space->used -= block->bytes;
    merge(space, block);
}

/* ---- gathering ---- */

/* Blocks that follow each other. */
struct gap {
    struct hr__space_block *first, *end; /* end: the block after the last one; NULL: none */
    uint64_t moved;                      /* bytes of those that are taken */
};

/* Looks how far a gap goes that begins with this free block. Returns 0 if it would move `most`
 * bytes or more. */
static int measure(const struct hr__space *space, struct hr__space_block *first, uint64_t needed,
                   uint64_t most, struct gap *gap)
{
    struct hr__space_block *block = first;
    uint64_t free = 0, moved = 0;
    for (int i = 0; block && free < needed; i++, block = after(space, block)) {
        free += block->is_free ? block->bytes : 0;
        moved += block->is_free ? 0 : block->bytes;
        if (moved >= most || i == GAP_BLOCKS || (!block->is_free && !block->may_move))
            return 0;
    }
    if (free < needed)
        return 0;
    *gap = (struct gap){.first = first, .end = block, .moved = moved};
    return 1;
}

/* Moves the taken blocks of a gap to its beginning, as far as nobody uses them. */
static void close_gap(struct hr__space *space, const struct gap *gap,
                      const struct hr__space_mover *mover)
{
    struct hr__space_block *block = gap->first, *next;
    uint8_t *to = (uint8_t *)block;
    uint64_t before_bytes = block->before, free = 0;
    for (; block != gap->end; block = next) {
        next = after(space, block);
        if (block->is_free) {
            unlink_free(block);
            free += block->bytes;
            continue;
        }
        if (!mover->hold(mover->context, block))
            break;
        struct hr__space_block *moved = (void *)to;
        uint64_t bytes = block->bytes;
        memmove(to, block, bytes);
        moved->before = before_bytes;
        before_bytes = bytes;
        to += bytes;
        mover->moved(mover->context, moved);
    }
    struct hr__space_block *rest = (void *)to;
    rest->before = before_bytes;
    resize(space, rest, free);
    merge(space, rest);
}

int hr__space_gather(struct hr__space *space, uint64_t bytes, const struct hr__space_mover *mover)
{
    if (bytes > space->size)
        return 0;
    uint64_t needed = needed_for(bytes);
    struct gap best = {.first = NULL, .moved = MOVED_MOST * needed};
    int tried = 0;
    if (space->size - space->used < needed)
        return 0;
    for (uint32_t bin = bin_of(needed) + 1; bin-- && tried < GAPS_TRIED;)
        for (struct hr__space_block *block = space->bins[bin]; block && tried < GAPS_TRIED;
             block = block->next, tried++)
            measure(space, block, needed, best.moved, &best);
    if (!best.first)
        return 0;
    close_gap(space, &best, mover);
    return find(space, needed) != NULL;
}
