/* Progress: an atomic count, a callback at most ten times a second, and a cancel flag. */
#include "dataset/progress.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

#define INTERVAL_NS 100000000u

void hr__progress_init(struct hr__progress *progress, hr_progress_fn fn, void *arg)
{
    memset(progress, 0, sizeof *progress);
    progress->fn = fn;
    progress->arg = arg;
    progress->owner = pthread_self();
    progress->stage = "";
    progress->last_ns = hr__now_ns();
}

void hr__progress_stage(struct hr__progress *progress, const char *stage, uint64_t total)
{
    progress->stage = stage;
    progress->total = total;
    atomic_store_explicit(&progress->done, 0, memory_order_relaxed);
}

static void call(struct hr__progress *progress)
{
    uint64_t done = atomic_load_explicit(&progress->done, memory_order_relaxed);
    if (progress->fn(progress->arg, done, progress->total, progress->stage))
        hr__progress_cancel(progress);
}

void hr__progress_add(struct hr__progress *progress, uint64_t count)
{
    atomic_fetch_add_explicit(&progress->done, count, memory_order_relaxed);
    if (!progress->fn || !pthread_equal(progress->owner, pthread_self()))
        return;
    uint64_t now = hr__now_ns();
    if (now - progress->last_ns < INTERVAL_NS)
        return;
    progress->last_ns = now;
    call(progress);
}

int hr__progress_end(struct hr__progress *progress)
{
    if (progress->fn && !hr__progress_cancelled(progress))
        call(progress);
    return hr__progress_cancelled(progress) ? -ECANCELED : 0;
}

void hr__progress_cancel(struct hr__progress *progress)
{
    /* relaxed: the flag publishes no data; threads that see it only stop */
    atomic_store_explicit(&progress->cancelled, 1, memory_order_relaxed);
}

int hr__progress_cancelled(struct hr__progress *progress)
{
    return atomic_load_explicit(&progress->cancelled, memory_order_relaxed);
}
