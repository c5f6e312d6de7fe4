/* The space of evicted items, which is used again in blocks (store_blocks.h). */
#include "cache/store_blocks.h"

#include "base/round.h"
#include "cache/directory.h"
#include "cache/segment_inside.h"
#include "cache/store_words.h"

#include <errno.h>

/* How many blocks an item has at least on average. */
#define BLOCKS_EACH 64

/* ---- setting up ---- */

/* Returns 0 if the arena has too many blocks for their numbers, however large they are. */
static uint64_t choose_size(const struct hr__segment *s, const struct hr__books *books)
{
    uint64_t items = hr__all_items(books->items), bytes = HR__BLOCK_MIN;
    uint64_t mean = items ? books->arena_used / items : 0, arena = s->layout.arena_bytes;
    while (bytes < HR__BLOCK_MAX &&
           (bytes * 2 * BLOCKS_EACH <= mean || arena / bytes > HR__BLOCKS_MOST))
        bytes *= 2;
    return arena / bytes <= HR__BLOCKS_MOST ? bytes : 0;
}

static int take_memory(struct hr__segment *s, void *why)
{
    /* Whoever was killed may have set the size without showing it. A transaction gives the correct
     * value. */
    struct hr__books *books = hr__segment_begin(s);
    if (!books)
        return -EAGAIN;
    int is_set_up = books->block_bytes != 0;
    uint64_t bytes = choose_size(s, books);
    hr__segment_abort(s);
    if (is_set_up)
        return 0;
    if (!bytes)
        return -EOVERFLOW;
    int r = hr__segment_populate(s, s->layout.blocks_offset,
                                 s->layout.arena_bytes / bytes * sizeof(uint32_t), why);
    if (r)
        return r;
    books = hr__segment_begin(s);
    if (!books)
        return -EAGAIN;
    books->block_bytes = bytes;
    hr__segment_commit(s);
    return 0;
}

int hr__blocks_set_up(struct hr__segment *s, char why[HR__CAPACITY_WHY])
{
    *why = 0;
    /* Under the directory's lock, as all memory: see hr__ring_allocate. */
    return hr__segment_books(s).block_bytes ? 0
                                            : hr__directory_make_room(s, 0, 0, take_memory, why);
}

/* ---- taking and freeing ---- */

static uint64_t count_of(uint64_t block_bytes, uint64_t length)
{
    return (length + block_bytes - 1) / block_bytes;
}

int hr__blocks_have(const struct hr__books *books, uint64_t length)
{
    return books->block_bytes && count_of(books->block_bytes, length) <= books->free_blocks;
}

/* Returns the block after one of a list; UINT64_MAX: there is none. */
static uint64_t after(const struct hr__segment *s, uint64_t block, uint64_t blocks)
{
    uint32_t next =
        block < blocks ? atomic_load_explicit(&s->blocks[block], memory_order_relaxed) : UINT32_MAX;
    return next < blocks ? next : UINT64_MAX;
}

static void link_to(struct hr__segment *s, uint64_t block, uint64_t next)
{
    atomic_store_explicit(&s->blocks[block], (uint32_t)next, memory_order_relaxed);
}

int hr__blocks_write(struct hr__segment *s, struct hr__books *books,
                     const struct hr__store_offer *offer, uint64_t *first)
{
    uint64_t bytes = books->block_bytes, blocks = s->layout.arena_bytes / bytes;
    uint64_t block = books->free_block, left = offer->length;
    struct hr__words_from pieces = {offer->pieces, 0};
    /* Who copies from here finds these bytes only after the entry that it had looked at changed. */
    atomic_thread_fence(memory_order_release);
    *first = block * bytes;
    while (left) {
        uint64_t n = left < bytes ? left : bytes;
        if (block >= blocks || !books->free_blocks)
            return -EBADMSG;
        hr__words_write(s->arena + block * bytes, &pieces, n);
        left -= n;
        block = after(s, block, blocks);
        books->free_blocks--;
    }
    if (books->free_blocks && block >= blocks)
        return -EBADMSG;
    books->free_block = books->free_blocks ? block : 0;
    hr__segment_step(HR__STEP_BYTES);
    return 0;
}

/* Links the blocks within an item that is not in blocks to the list. */
static void free_inside(struct hr__segment *s, struct hr__books *books,
                        const struct hr__found *found)
{
    uint64_t bytes = books->block_bytes, blocks = s->layout.arena_bytes / bytes;
    uint64_t from = (found->offset + bytes - 1) / bytes;
    uint64_t to = (found->offset + hr__round_up(found->length, HR__SEGMENT_ALIGN)) / bytes;
    to = to < blocks ? to : blocks;
    for (uint64_t block = to; block-- > from;) {
        link_to(s, block, books->free_block);
        books->free_block = block;
        books->free_blocks++;
    }
}

int hr__blocks_free(struct hr__segment *s, struct hr__books *books, const struct hr__found *found)
{
    uint64_t bytes = books->block_bytes;
    if (!bytes)
        return -EBADMSG;
    uint64_t blocks = s->layout.arena_bytes / bytes, first = found->offset / bytes, last = first;
    uint64_t count = count_of(bytes, found->length);
    if (!found->word.taken) {
        free_inside(s, books, found);
        return 0;
    }
    for (uint64_t i = 1; i < count && last < blocks; i++)
        last = after(s, last, blocks);
    if (last >= blocks || books->free_blocks + count > blocks)
        return -EBADMSG;
    link_to(s, last, books->free_block);
    books->free_block = first;
    books->free_blocks += count;
    return 0;
}

/* ---- reading ---- */

int hr__blocks_copy(const struct hr__segment *s, const struct hr__found *found, void *out)
{
    struct hr__books now = hr__segment_books(s);
    uint64_t bytes = now.block_bytes, left = found->length;
    if (!found->word.taken) {
        hr__words_load(out, s->arena + found->offset, (left + 7) / 8);
        return 1;
    }
    if (bytes < HR__BLOCK_MIN || bytes > HR__BLOCK_MAX || bytes % HR__BLOCK_MIN)
        return 0;
    uint64_t blocks = s->layout.arena_bytes / bytes;
    uint8_t *to = out;
    for (uint64_t block = found->offset / bytes; left; block = after(s, block, blocks)) {
        uint64_t n = left < bytes ? left : bytes;
        if (block >= blocks || (block + 1) * bytes > now.arena_allocated)
            return 0;
        hr__words_load((uint64_t *)(void *)to, s->arena + block * bytes, (n + 7) / 8);
        to += n;
        left -= n;
    }
    return 1;
}
