/*
 * The space of evicted items, which is used again in blocks of one size.
 *
 * As long as nothing is evicted, items lie one behind the other in the arena, as long as they are.
 * The blocks that lie within an evicted item are free. An item that comes later takes as many as it
 * needs, wherever they are. So nothing has to be moved or merged, and any items may make room for
 * any other. Lost are half a block for each item, and what an item of the first kind had of the
 * blocks at its ends.
 *
 * For each block there is the number of the next one: of the same item, or of the list of free
 * blocks, whose beginning is in the books. An item takes blocks from the list's beginning, which
 * are linked already; when it is evicted, its last block is linked to the list. An item's length
 * says how many blocks it has, so what is linked to its last block does not matter, and may be
 * written before the books change. So whoever is killed leaves blocks that are free or an item's.
 *
 * Blocks have a size such that an item has 64 of them or more on average; the numbers take 0.4 per
 * cent of the arena at 100 KB an item.
 */
#ifndef HR_CACHE_STORE_BLOCKS_H
#define HR_CACHE_STORE_BLOCKS_H

#include "cache/store.h"

/* Chooses the size of blocks and allocates memory for their numbers, if this was not done yet.
 * Takes the directory's lock and runs transactions. Returns 0 or a negative errno. -ENOSPC and
 * -ENOMEM: memory is refused, with the reason in `why`, if there is one; -EOVERFLOW: the arena is
 * too large. */
int hr__blocks_set_up(struct hr__segment *segment, char why[HR__CAPACITY_WHY]);

/* Returns non-zero if free blocks have room for `length` bytes. */
int hr__blocks_have(const struct hr__books *books, uint64_t length);

/* Takes blocks for an offer and writes it there; stores the first of them in *first. Returns 0, or
 * -EBADMSG: the list is damaged. Within a transaction that has checked the room. */
int hr__blocks_write(struct hr__segment *segment, struct hr__books *books,
                     const struct hr__store_offer *offer, uint64_t *first);

/* Frees the blocks of an item. Returns 0, or -EBADMSG: they are damaged. Within a transaction,
 * which then removes the item. */
int hr__blocks_free(struct hr__segment *segment, struct hr__books *books,
                    const struct hr__found *found);

/* Copies an item out. `out` has room for a multiple of 8. Returns 1, or 0 if its blocks are damaged
 * or another item's by now. The bytes may be another item's, too. Any thread, no lock. */
int hr__blocks_copy(const struct hr__segment *segment, const struct hr__found *found, void *out);

#endif
