/*
 * The pool: its threads sleep until a run begins, then all take items from one counter. A run is
 * over when the counter has reached the end and no thread is busy.
 */
#include "bulk/pool.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* More threads than this would only wait for each other. */
#define MAX_THREADS 256

struct hr__pool {
    struct hr__executor executor;
    pthread_t *threads;
    int thread_count;     /* threads of the pool, without the caller */
    pthread_mutex_t lock; /* guards run_number, busy, stop */
    pthread_cond_t begin; /* signalled when a run begins, and at stop */
    pthread_cond_t idle;  /* signalled when busy becomes 0 */
    uint64_t run_number;  /* number of the latest run */
    int busy;             /* threads that have not finished it */
    int stop;
    /* the run: written under the lock before it begins, then constant */
    size_t items;
    void (*fn)(void *arg, size_t i);
    void *arg;
    _Atomic size_t next; /* next item to take */
};

static void take_items(struct hr__pool *p)
{
    size_t i;
    while ((i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->items)
        p->fn(p->arg, i);
}

static void *work(void *arg)
{
    struct hr__pool *p = arg;
    uint64_t seen = 0;
    pthread_setname_np(pthread_self(), "hr-pool");
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->run_number == seen && !p->stop)
            pthread_cond_wait(&p->begin, &p->lock);
        if (p->stop)
            break;
        seen = p->run_number;
        pthread_mutex_unlock(&p->lock);
        take_items(p);
        pthread_mutex_lock(&p->lock);
        if (!--p->busy)
            pthread_cond_signal(&p->idle);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void run(void *self, size_t n, void (*fn)(void *arg, size_t i), void *arg)
{
    struct hr__pool *p = self;
    pthread_mutex_lock(&p->lock);
    p->items = n;
    p->fn = fn;
    p->arg = arg;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    /* the caller does a single item itself; waking threads would only cost time */
    if (n > 1) {
        p->run_number++;
        p->busy = p->thread_count;
        pthread_cond_broadcast(&p->begin);
    }
    pthread_mutex_unlock(&p->lock);
    take_items(p);
    pthread_mutex_lock(&p->lock);
    while (p->busy)
        pthread_cond_wait(&p->idle, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void start_workers(struct hr__pool *p, int count)
{
    while (p->thread_count < count && !hr__thread_create(&p->threads[p->thread_count], work, p))
        p->thread_count++;
}

int hr__pool_create(struct hr__pool **out, int threads, struct hr_error *error)
{
    *out = NULL;
    if (threads <= 0)
        threads = hr_cores();
    if (threads > MAX_THREADS)
        threads = MAX_THREADS;
    struct hr__pool *p = hr__alloc(HR__TAG_LOADER, 1, sizeof *p);
    if (!p)
        return hr__fail(error, -ENOMEM, "out of memory for a pool of threads");
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->begin, NULL);
    pthread_cond_init(&p->idle, NULL);
    p->threads = hr__alloc(HR__TAG_LOADER, (size_t)threads, sizeof *p->threads);
    if (!p->threads) {
        hr__pool_destroy(&p);
        return hr__fail(error, -ENOMEM, "out of memory for a pool of threads");
    }
    start_workers(p, threads - 1);
    p->executor = (struct hr__executor){p->thread_count + 1, p, run};
    *out = p;
    return 0;
}

const struct hr__executor *hr__pool_executor(struct hr__pool *pool)
{
    return &pool->executor;
}

void hr__pool_destroy(struct hr__pool **pool)
{
    struct hr__pool *p = *pool;
    *pool = NULL;
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = 1;
    pthread_cond_broadcast(&p->begin);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->thread_count; i++)
        pthread_join(p->threads[i], NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->begin);
    pthread_cond_destroy(&p->idle);
    hr__free(p->threads);
    hr__free(p);
}
