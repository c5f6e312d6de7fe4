/*
 * Memory of a Preparer's results, kept for its next ones: to get as much from the system for each
 * image costs page faults, which take a third as long as decoding and resizing it.
 *
 * Results may end in any thread. The lock is only tried, never waited for: who does not get it
 * takes memory from malloc, or frees it. So a process that was forked while the lock was held goes
 * on.
 */
#include "core.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Most blocks that are kept, and their bytes. */
#define MAX_BLOCKS HR_RECIPE_MAX_VIEWS
#define MAX_BYTES  ((size_t)32 << 20)

struct core_pool {
    _Atomic uint32_t references; /* the Preparer, and each block in use */
    _Atomic int busy;            /* the lock of all below */
    int closed;
    int count;
    size_t bytes;
    struct {
        void *block;
        size_t bytes;
    } kept[MAX_BLOCKS];
};

struct core_pool *core_pool_new(void)
{
    struct core_pool *pool = calloc(1, sizeof *pool);
    if (pool)
        atomic_init(&pool->references, 1);
    return pool;
}

static int lock(struct core_pool *pool)
{
    return !atomic_exchange_explicit(&pool->busy, 1, memory_order_acquire);
}

static void unlock(struct core_pool *pool)
{
    atomic_store_explicit(&pool->busy, 0, memory_order_release);
}

static void free_kept(struct core_pool *pool)
{
    while (pool->count)
        free(pool->kept[--pool->count].block);
    pool->bytes = 0;
}

static void unref(struct core_pool *pool)
{
    if (atomic_fetch_sub_explicit(&pool->references, 1, memory_order_acq_rel) != 1)
        return;
    if (lock(pool)) /* else a thread had it when this process was forked: what is kept is unknown */
        free_kept(pool);
    free(pool);
}

void core_pool_close(struct core_pool *pool)
{
    if (!pool)
        return;
    if (lock(pool)) {
        pool->closed = 1;
        free_kept(pool);
        unlock(pool);
    }
    unref(pool);
}

/* Takes block i out. */
static void *take_out(struct core_pool *pool, int i)
{
    void *block = pool->kept[i].block;
    pool->bytes -= pool->kept[i].bytes;
    pool->kept[i] = pool->kept[--pool->count];
    return block;
}

void *core_pool_take(struct core_pool *pool, size_t bytes)
{
    void *block = NULL, *other = NULL;
    if (lock(pool)) {
        int i = pool->count - 1;
        while (i >= 0 && pool->kept[i].bytes != bytes)
            i--;
        if (i >= 0)
            block = take_out(pool, i);
        else if (pool->count) /* perhaps of another recipe: one goes for each that is missing */
            other = take_out(pool, 0);
        unlock(pool);
    }
    free(other);
    if (!block)
        block = aligned_alloc(64, bytes);
    if (block)
        atomic_fetch_add_explicit(&pool->references, 1, memory_order_relaxed);
    return block;
}

void core_pool_return(struct core_pool *pool, void *block, size_t bytes)
{
    if (lock(pool)) {
        if (!pool->closed && pool->count < MAX_BLOCKS && bytes <= MAX_BYTES - pool->bytes) {
            pool->kept[pool->count].block = block;
            pool->kept[pool->count++].bytes = bytes;
            pool->bytes += bytes;
            block = NULL;
        }
        unlock(pool);
    }
    free(block);
    unref(pool);
}
