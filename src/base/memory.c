/*
 * Memory allocation with a small header before each block: the pointer from malloc, the size, the
 * tag and the pool. The header allows 64-byte alignment without a separate table.
 */
#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

/* The least bytes of an array that grows. */
#define ARRAY_LEAST 256

struct header {
    void *base;  /* the pointer to pass to free() */
    size_t size; /* bytes the caller asked for */
    uint32_t tag;
    uint32_t size_class;     /* for blocks of a pool */
    struct hr__blocks *pool; /* hr__free returns the block to this pool; NULL: to malloc */
};

_Static_assert(sizeof(struct header) % 16 == 0, "blocks keep malloc's alignment");

static _Atomic uint64_t allocated[HR__TAG_COUNT];
static _Atomic uint64_t fail_countdown;
static _Atomic int fail_onwards;

void hr__alloc_fail_at(uint64_t n, int onwards)
{
    atomic_store(&fail_onwards, onwards);
    atomic_store(&fail_countdown, n);
}

static int must_fail(void)
{
    uint64_t n = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    while (n) {
        uint64_t next = n == 1 && atomic_load(&fail_onwards) ? 1 : n - 1;
        if (atomic_compare_exchange_weak(&fail_countdown, &n, next))
            return n == 1;
    }
    return 0;
}

static struct header *header_of(void *block)
{
    return (struct header *)block - 1;
}

static void *place(void *base, void *block, size_t size, enum hr__tag tag)
{
    struct header *h = header_of(block);
    h->base = base;
    h->size = size;
    h->tag = tag;
    h->pool = NULL;
    atomic_fetch_add_explicit(&allocated[tag], size, memory_order_relaxed);
    return block;
}

void *hr__alloc(enum hr__tag tag, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX || must_fail())
        return NULL;
    char *base = calloc(1, sizeof(struct header) + bytes);
    return base ? place(base, base + sizeof(struct header), bytes, tag) : NULL;
}

void *hr__realloc(enum hr__tag tag, void *block, size_t count, size_t size)
{
    size_t bytes;
    if (!block)
        return hr__alloc(tag, count, size);
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX || must_fail())
        return NULL;
    struct header *h = header_of(block);
    size_t old = h->size;
    char *base = realloc(h->base, sizeof *h + bytes);
    if (!base)
        return NULL;
    atomic_fetch_sub_explicit(&allocated[tag], old, memory_order_relaxed);
    return place(base, base + sizeof(struct header), bytes, tag);
}

int hr__reserve_bytes(enum hr__tag tag, void *array, size_t count, size_t size)
{
    void *block;
    size_t bytes;
    memcpy(&block, array, sizeof block);
    size_t old = block ? header_of(block)->size : 0;
    if (__builtin_mul_overflow(count, size, &bytes))
        return -ENOMEM;
    if (bytes <= old)
        return 0;
    size_t grown = old + old / 2 > ARRAY_LEAST ? old + old / 2 : ARRAY_LEAST;
    block = hr__realloc(tag, block, bytes > grown ? bytes : grown, 1);
    if (!block)
        return -ENOMEM;
    memcpy(array, &block, sizeof block);
    return 0;
}

static void *aligned_block(enum hr__tag tag, size_t size, size_t slack, size_t alignment)
{
    size_t total;
    if (__builtin_add_overflow(size, slack, &total) ||
        __builtin_add_overflow(total, alignment + sizeof(struct header), &total) ||
        total > PTRDIFF_MAX)
        return NULL;
    char *base = malloc(total);
    if (!base)
        return NULL;
    uintptr_t block =
        ((uintptr_t)base + sizeof(struct header) + alignment - 1) & ~(uintptr_t)(alignment - 1);
    return place(base, (void *)block, size, tag);
}

void *hr__alloc_aligned_to(enum hr__tag tag, size_t size, size_t slack, size_t alignment)
{
    return must_fail() ? NULL : aligned_block(tag, size, slack, alignment);
}

void *hr__alloc_aligned(enum hr__tag tag, size_t size, size_t slack)
{
    return hr__alloc_aligned_to(tag, size, slack, 64);
}

/*
 * Pools keep free blocks by size class, four classes to a power of two, from 16 KiB (malloc serves
 * smaller blocks from warm memory anyway) to 4 MiB. Allocating and freeing only try the lock and
 * fall back to malloc and free, so no thread waits, and a child forked while the lock was held does
 * not hang.
 */
#define POOL_LEAST_LOG2 14
#define POOL_MOST_LOG2  22
#define POOL_CLASSES    ((POOL_MOST_LOG2 - POOL_LEAST_LOG2) * 4)

/* Stored in the first bytes of a kept block. */
struct kept_block {
    struct kept_block *next;
};

struct hr__blocks {
    enum hr__tag tag;
    size_t alignment;
    size_t retain_bytes;       /* most bytes to keep */
    _Atomic size_t references; /* one for the creator and one for each block in use */
    pthread_mutex_t lock;      /* guards the next three members */
    size_t kept_bytes;
    int closed; /* the pool is destroyed: keep no more blocks */
    struct kept_block *kept[POOL_CLASSES];
};

#if defined(__SANITIZE_ADDRESS__)
/* Poisons a kept block for AddressSanitizer, like a freed one. */
static void forbid(void *block, size_t size)
{
    __asan_poison_memory_region(block, size);
}
static void permit(void *block, size_t size)
{
    __asan_unpoison_memory_region(block, size);
}
#else
static void forbid(void *block, size_t size)
{
    (void)block, (void)size;
}
static void permit(void *block, size_t size)
{
    (void)block, (void)size;
}
#endif

static size_t class_bytes(unsigned size_class)
{
    size_t octave = (size_t)1 << (POOL_LEAST_LOG2 + size_class / 4);
    return octave + octave / 4 * (size_class % 4 + 1);
}

/* Returns the smallest class that holds `size`, or POOL_CLASSES if the pool does not keep blocks of
 * that size. */
static unsigned class_of(size_t size)
{
    if (size <= (size_t)1 << POOL_LEAST_LOG2 || size > (size_t)1 << POOL_MOST_LOG2)
        return POOL_CLASSES;
    unsigned log2 = 63 - (unsigned)__builtin_clzll(size - 1);
    size_t quarter = (size_t)1 << (log2 - 2);
    return (log2 - POOL_LEAST_LOG2) * 4 + (unsigned)((size - 1 - ((size_t)1 << log2)) / quarter);
}

struct hr__blocks *hr__blocks_create(enum hr__tag tag, size_t alignment, size_t retain_bytes)
{
    struct hr__blocks *pool = hr__alloc(tag, 1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->tag = tag;
    pool->alignment = alignment;
    pool->retain_bytes = retain_bytes;
    atomic_init(&pool->references, 1);
    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

static void release_pool(struct hr__blocks *pool)
{
    /* Acquire and release: the last owner must see all writes of the others. */
    if (atomic_fetch_sub_explicit(&pool->references, 1, memory_order_acq_rel) > 1)
        return;
    pthread_mutex_destroy(&pool->lock);
    hr__free(pool);
}

/* Frees a block of a pool; the caller owns it. */
static void free_block(enum hr__tag tag, void *block)
{
    struct header *h = header_of(block);
    atomic_fetch_sub_explicit(&allocated[tag], h->size, memory_order_relaxed);
    free(h->base);
}

void hr__blocks_destroy(struct hr__blocks **pool)
{
    struct hr__blocks *p = *pool;
    if (!p)
        return;
    *pool = NULL;
    /* Waiting is safe because threads hold the lock only briefly. In a forked child the holder may
     * not exist; then the kept blocks leak until the child exits. */
    struct timespec patience;
    clock_gettime(CLOCK_REALTIME, &patience);
    patience.tv_sec += 1;
    if (!pthread_mutex_timedlock(&p->lock, &patience)) {
        p->closed = 1;
        for (unsigned c = 0; c < POOL_CLASSES; c++)
            for (struct kept_block *k; (k = p->kept[c]);) {
                permit(k, class_bytes(c));
                p->kept[c] = k->next;
                free_block(p->tag, k);
            }
        pthread_mutex_unlock(&p->lock);
    }
    release_pool(p);
}

/* Takes a kept block of the class. Returns NULL if there is none or the lock is busy. */
static void *take_kept(struct hr__blocks *pool, unsigned size_class)
{
    if (pthread_mutex_trylock(&pool->lock))
        return NULL;
    struct kept_block *k = pool->kept[size_class];
    if (k) {
        permit(k, class_bytes(size_class));
        pool->kept[size_class] = k->next;
        pool->kept_bytes -= class_bytes(size_class);
    }
    pthread_mutex_unlock(&pool->lock);
    return k;
}

void *hr__blocks_alloc(struct hr__blocks *pool, size_t size)
{
    unsigned size_class = class_of(size);
    if (size_class == POOL_CLASSES)
        return hr__alloc_aligned_to(pool->tag, size, 0, pool->alignment);
    if (must_fail())
        return NULL;
    void *block = take_kept(pool, size_class);
    if (!block)
        block = aligned_block(pool->tag, class_bytes(size_class), 0, pool->alignment);
    if (!block)
        return NULL;
    header_of(block)->pool = pool;
    header_of(block)->size_class = size_class;
    atomic_fetch_add_explicit(&pool->references, 1, memory_order_relaxed);
    return block;
}

static void give_back(struct hr__blocks *pool, void *block)
{
    unsigned size_class = header_of(block)->size_class;
    size_t bytes = class_bytes(size_class);
    int keep = 0;
    if (!pthread_mutex_trylock(&pool->lock)) {
        keep = !pool->closed && pool->kept_bytes + bytes <= pool->retain_bytes;
        if (keep) {
            struct kept_block *k = block;
            k->next = pool->kept[size_class];
            pool->kept[size_class] = k;
            pool->kept_bytes += bytes;
            forbid(block, bytes);
        }
        pthread_mutex_unlock(&pool->lock);
    }
    if (!keep)
        free_block(pool->tag, block);
    release_pool(pool);
}

void hr__free(void *block)
{
    if (!block)
        return;
    struct header *h = header_of(block);
    if (h->pool) {
        give_back(h->pool, block);
        return;
    }
    atomic_fetch_sub_explicit(&allocated[h->tag], h->size, memory_order_relaxed);
    free(h->base);
}

char *hr__strdup(enum hr__tag tag, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = hr__alloc(tag, n, 1);
    return copy ? memcpy(copy, text, n) : NULL;
}

uint64_t hr__allocated(enum hr__tag tag)
{
    return atomic_load_explicit(&allocated[tag], memory_order_relaxed);
}
