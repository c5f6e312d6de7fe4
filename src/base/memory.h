/*
 * Memory allocation. Each block carries a tag that says which room uses it, so memory use can be
 * reported by room. Tests can make any allocation fail.
 *
 * Products of sizes are checked for overflow. Nothing here aborts: NULL means out of memory, or a
 * failure that a test requested.
 */
#ifndef HR_BASE_MEMORY_H
#define HR_BASE_MEMORY_H

#include <headrace/base.h>

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
    HR__TAG_METRICS,
    HR__TAG_BASE, /* readers and tables that belong to no room */
    HR__TAG_REPLAY,
    HR__TAG_COUNT
};

/* Allocates count x size zeroed bytes. Returns NULL if the product overflows or the allocation
 * fails. Free the block with hr__free, which accepts NULL. */
void *hr__alloc(enum hr__tag tag, size_t count, size_t size);

/* Resizes a block. New bytes are not zeroed. On failure the old block stays valid. */
void *hr__realloc(enum hr__tag tag, void *block, size_t count, size_t size);

/*
 * Makes an array hold `count` elements at least. `array` is the address of a pointer to the first
 * element; the pointer is NULL or from hr__alloc, hr__realloc or hr__reserve. The block knows its
 * size, so nobody else needs to. It grows by half at least, so appending takes constant time on
 * average. New elements are not initialised. On failure (-ENOMEM) the array stays as it is.
 */
#define hr__reserve(tag, array, count) hr__reserve_bytes(tag, array, count, sizeof **(array))
HR_NODISCARD int hr__reserve_bytes(enum hr__tag tag, void *array, size_t count, size_t size);

/* Allocates uninitialised memory aligned to 64 bytes. The `slack` bytes past its end may be read,
 * because SIMD loads overrun, but their values are undefined. Free it with hr__free. */
void *hr__alloc_aligned(enum hr__tag tag, size_t size, size_t slack);

/* Like hr__alloc_aligned, with any power of two of at least 64 as alignment (O_DIRECT needs whole
 * pages). */
void *hr__alloc_aligned_to(enum hr__tag tag, size_t size, size_t slack, size_t alignment);

void hr__free(void *block);

/*
 * A pool for short-lived buffers: hr__free returns its blocks to the pool instead of to malloc. A
 * fresh page costs more than filling it (measured: reading files into new blocks took four times as
 * long), and malloc returns pages to the kernel as soon as the newest blocks are freed.
 */
struct hr__blocks;

/* Creates a pool of blocks aligned to `alignment` (as above). The pool keeps at most `retain_bytes`
 * of free blocks for reuse. Returns NULL if out of memory. */
struct hr__blocks *hr__blocks_create(enum hr__tag tag, size_t alignment, size_t retain_bytes);

/* Frees the kept blocks and sets *pool to NULL; accepts NULL. Blocks still in use stay valid until
 * hr__free. */
void hr__blocks_destroy(struct hr__blocks **pool);

/* Allocates `size` uninitialised bytes. The block may be up to a quarter larger; do not pass it to
 * hr__realloc. Any thread may call this. Neither this function nor hr__free of the block ever waits
 * for another thread. */
void *hr__blocks_alloc(struct hr__blocks *pool, size_t size);

char *hr__strdup(enum hr__tag tag, const char *text);

/* Returns the bytes now allocated under `tag`. */
uint64_t hr__allocated(enum hr__tag tag);

/* For tests: makes the n-th allocation from now fail (1: the next one), and with `onwards` all
 * later ones too. 0 turns this off. */
void hr__alloc_fail_at(uint64_t n, int onwards);

#endif
