/*
 * Space for items of different sizes in one range of memory: blocks that are taken and given back
 * in any order.
 *
 * Each block begins with a header of 64 bytes, so neighbours that are free become one block at
 * once. Free blocks are in lists by size, eight to each doubling. A block is taken from the
 * smallest of a few that fit (W. C. Masmano et al., "TLSF: a new dynamic memory allocator for
 * real-time systems", ECRTS 2004, with the search for a better fit added). All of it takes constant
 * time.
 *
 * If no free block is large enough, but all of them together are, hr__space_gather moves a few
 * taken blocks together. Without that 2 to 9 % of a full cache are gaps.
 *
 * No locks: the caller serialises the calls.
 */
#ifndef HR_CACHE_SPACE_H
#define HR_CACHE_SPACE_H

#include <stddef.h>
#include <stdint.h>

#define HR__SPACE_UNIT 64u /* sizes and addresses are multiples of it */
#define HR__SPACE_BINS 480u

struct hr__space_block {
    uint64_t bytes;                 /* with this header */
    uint64_t before;                /* bytes of the block before it; 0: it is the first */
    struct hr__space_block *next;   /* of a free block: in its list; else the owner's */
    struct hr__space_block **place; /* of a free block: what points to it */
    uint32_t is_free;
    uint32_t may_move; /* set by the owner */
    uint32_t unused[2];
    void *owner_entry; /* the owner's, as is the next member */
    uint64_t owner_bytes;
};

_Static_assert(sizeof(struct hr__space_block) == HR__SPACE_UNIT, "a header is one unit");

/* Zeroed but for `base`: no space. */
struct hr__space {
    uint8_t *base; /* aligned to the unit */
    uint64_t size; /* bytes from there that blocks cover */
    uint64_t used; /* bytes of the blocks that are taken */
    uint64_t last; /* bytes of the last block; 0: there is none */
    struct hr__space_block *bins[HR__SPACE_BINS];
};

/* Adds `bytes` of accessible memory behind those that are there; a multiple of the unit. */
void hr__space_extend(struct hr__space *space, uint64_t bytes);

/* Returns a block with at least `bytes` behind its header, or NULL. */
struct hr__space_block *hr__space_take(struct hr__space *space, uint64_t bytes);

void hr__space_give_back(struct hr__space *space, struct hr__space_block *block);

/* The owner's part in moving a block that may move. */
struct hr__space_mover {
    /* Returns non-zero if nobody uses the block now; nobody does so until `moved` is called. */
    int (*hold)(void *context, struct hr__space_block *block);
    void (*moved)(void *context, struct hr__space_block *block);
    void *context;
};

/* Moves blocks together so that `bytes` can be taken. Copies at most eight times as many. Returns
 * non-zero if they can be taken now. */
int hr__space_gather(struct hr__space *space, uint64_t bytes, const struct hr__space_mover *mover);

static inline uint8_t *hr__space_bytes(struct hr__space_block *block)
{
    return (uint8_t *)(block + 1);
}

static inline struct hr__space_block *hr__space_block_of(const uint8_t *bytes)
{
    return (struct hr__space_block *)(uintptr_t)bytes - 1;
}

#endif
