/*
 * Allocation, tagged by purpose, so that memory can be told by room and so
 * that tests can make any allocation fail.
 *
 * Sizes are products checked for overflow. Nothing here aborts: NULL means out
 * of memory (or a failure that a test asked for).
 */
#ifndef HR_BASE_MEMORY_H
#define HR_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

enum hr__tag {
    HR__TAG_DATASET,
    HR__TAG_STORAGE,
    HR__TAG_ORDER,
    HR__TAG_CODEC,
    HR__TAG_CACHE,
    HR__TAG_RECIPE,
    HR__TAG_STALLS,
    HR__TAG_REPORT,
    HR__TAG_LOADER,
    HR__TAG_SLOT, /* batch memory */
    HR__TAG_AGENT,
    HR__TAG_MEMORY,
    HR__TAG_COUNT
};

/* Zeroed memory for count x size bytes; NULL when it overflows or is refused.
 * Freed with hr__free, which accepts NULL. */
void *hr__alloc(enum hr__tag tag, size_t count, size_t size);

/* Grows or shrinks; new bytes are not zeroed; on failure the old block stays. */
void *hr__realloc(enum hr__tag tag, void *block, size_t count, size_t size);

/* Uninitialised memory aligned to 64 bytes, with `slack` more bytes that may be
 * read (not relied upon) past its end: SIMD loads overrun. hr__free frees it. */
void *hr__alloc_aligned(enum hr__tag tag, size_t size, size_t slack);

/* The same at any alignment, a power of two of at least 64 (pages, for O_DIRECT). */
void *hr__alloc_aligned_to(enum hr__tag tag, size_t size, size_t slack, size_t alignment);

void hr__free(void *block);

/*
 * A pool: blocks that hr__free gives back to it instead of to malloc, for
 * buffers that come and go quickly. A fresh page costs more than filling it
 * (measured: files read into new blocks took four times as long), and malloc
 * gives pages back to the kernel as soon as the newest blocks are freed.
 */
struct hr__blocks;

/* Blocks at `alignment` (as above), at most `retain_bytes` of them kept for
 * reuse. NULL: out of memory. */
struct hr__blocks *hr__blocks_create(enum hr__tag tag, size_t alignment, size_t retain_bytes);

/* Frees what is kept and sets *pool to NULL; accepts NULL. Blocks still in use
 * stay valid until hr__free. */
void hr__blocks_destroy(struct hr__blocks **pool);

/* Uninitialised memory of `size` bytes, of a block that may be larger by a
 * quarter; not for hr__realloc. Any thread; neither this nor hr__free of the
 * block ever waits for another thread. */
void *hr__blocks_alloc(struct hr__blocks *pool, size_t size);

char *hr__strdup(enum hr__tag tag, const char *text);

/* Bytes allocated now under `tag`. */
uint64_t hr__allocated(enum hr__tag tag);

/* Tests: the n-th allocation from now fails (1 = the next), and with `onwards`
 * all after it too; 0 turns it off. */
void hr__alloc_fail_at(uint64_t n, int onwards);

#endif
