/*
 * The loader inside.
 *
 *   loader.h    the loader itself
 *   loader.c    the public functions, called by the consumer
 *   schedule.h  which sample is worked on next, under the loader's lock
 *   threads.h   the workers, and starting and stopping all threads
 *   process.h   a worker's turn: obtains, prepares and keeps one sample
 *   fetcher.h   the fetchers
 *   epoch.h, job.h, bad.h, counters.h, ring.h   what these work on
 *   part.h      what may hang on all that: one table of functions for
 *     hosts/      what is kept of it in the memory of several hosts
 *     publisher.h      loaders whose batches are published in memory of somebody else
 *     crew.h      workers of many such loaders
 *   and one for
 *     caching.h   what is kept of it in memory, and in which form
 *   attach.h    loaders whose batches an agent prepares; remote.h: their options
 *   create.h    making and destroying loaders: knows all of them
 *
 * Calls go one way: the core calls parts through part.h alone, parts call the core, create.c
 * calls both.
 *
 * The window is the list of open batches, in order: those being prepared or
 * complete, not yet handed out. A batch is opened (a slot taken, its samples
 * determined) by whichever thread first needs a sample of it.
 *
 * Who reads: a worker reads its own sample as long as reads do not block (the
 * bytes are then warm in its core's cache and no thread waits for another).
 * When they block, the fetchers take over and keep many reads in flight, within
 * staging_bytes; after a while workers try again.
 *
 * Samples that another process reads into a shared cache are not waited for while there
 * is other work: workers put them aside (delayed), fetchers keep a list of them, and both
 * ask again after 0.1 to 1 ms. No thread keeps a claim of its own while it waits for
 * another's, but in reads that go on, so nothing can wait in a circle.
 *
 * Locks: the loader's lock, then the ring's; the cache's is a leaf. No I/O, no page-locking, no log
 * callback under either.
 */
#ifndef HR_LOADER_LOADER_H
#define HR_LOADER_LOADER_H

#include "loader/attach.h"
#include "loader/bad.h"
#include "loader/counters.h"
#include "loader/epoch.h"
#include "loader/fetcher.h"
#include "loader/job.h"
#include "loader/part.h"
#include "loader/ring.h"
#include "loader/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

struct hr_loader {
    /* Constant from create on. */
    struct hr_loader_options options;
    struct hr_dataset *dataset;
    struct hr_recipe *recipe;
    struct hr_tensor_spec spec;
    int workers_wanted;
    struct hr__ring *ring;
    struct hr__cache *cache;                 /* NULL: none. Constant while threads run */
    const struct hr__part *part;             /* never NULL */
    const struct hr__keeper *keeper;         /* never NULL */
    const struct hr__attachment *attachment; /* never NULL; hr__attachment_none: no agent's */
    int uncached;                            /* reads leave nothing in the page cache */
    int always_fetched;                      /* workers do not read while there are fetchers */
    int borrows_workers;                     /* it has none of its own */

    /* The parts' own. */
    struct hr__caching *caching;
    struct hr__hosting *hosting;
    struct hr__publisher *publisher;
    void *attached; /* the attachment's own */
    char *texts[4]; /* copies of options, with an attachment */

    /* The consumer's thread alone, and destroy. */
    atomic_int pid;             /* of the process that the threads live in; 0: not started */
    struct hr__thread *workers; /* workers_wanted */
    int worker_count;
    struct hr__thread fetchers[HR__PREAD_FETCHERS];
    int fetcher_count;

    struct hr__counters counters;

    /* Number of times something happened that the consumer may wait for: a futex. */
    atomic_uint ready_word;

    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t work;  /* workers: a sample to take */
    pthread_cond_t fetch; /* fetchers: a sample to read, and room for it */
    pthread_cond_t room;  /* who opens a batch: a slot came back; start: a reader was made */

    struct hr__epoch *plan;  /* NULL before the first epoch */
    uint64_t seed;           /* options.seed, or a restored state's */
    int shuffle;             /* likewise */
    uint64_t opened;         /* batches of the plan opened or being opened */
    int opening;             /* a thread is opening one; the lock is free meanwhile */
    int no_more;             /* open no more: a batch failed, or the epoch is over */
    struct hr_error broken;  /* why the next batch could not be opened; code 0: it could */
    struct hr_batch *window; /* open batches, the next to hand out first */
    struct hr_batch *window_last;
    int window_count;
    struct hr_batch *cursor; /* the first with unclaimed samples, or NULL */
    uint64_t fetched;        /* jobs in the batches' fetched lists */
    struct hr__job *delayed; /* workers' jobs whose samples other processes read */
    struct hr__job *delayed_last;
    uint64_t delayed_count;
    int delayed_watched; /* an idle worker wakes up when the first is due */
    int stale;           /* batches of dropped epochs with samples still in hand */
    uint64_t complete;   /* batches of the window that are */

    struct hr__push *pushed; /* external order: not yet opened */
    struct hr__push *pushed_last;
    uint64_t pushed_samples; /* position behind the last push */
    int push_ended;

    int stop;
    int idle_workers;
    int idle_fetchers;
    int live_fetchers; /* with a working reader */
    int consumer_waits;
    int workers_read;         /* workers read their own samples */
    int blocked_score;        /* rises when a worker's read blocks */
    uint64_t fetcher_samples; /* how many more the fetchers read before workers try again */
    uint64_t fetcher_span;    /* how many that was at the last switch */
    uint64_t reserved_bytes;  /* staging: in flight and staged */
    uint64_t reserved_items;  /* of them, items of hosts */
    int reader_state;         /* of the first fetcher: 0 being made, 1 io_uring, 2 pread, < 0 */

    struct hr__job *free_jobs;
    struct hr__job *all_jobs;

    uint64_t delivered;         /* batches of the plan handed out */
    uint64_t delivered_samples; /* of the plan */
    uint64_t epoch_seen;        /* samples handed out in this epoch, since its start or restore */
    uint64_t epoch_bad;         /* of them, bad */
    int over;                   /* nothing more comes in this epoch */

    struct hr__bad_list bad;     /* replaced */
    struct hr__bad_list damaged; /* taken */
    struct hr__bad *failed;      /* what ended the epoch */
};

static inline int hr__is_started(const struct hr_loader *l)
{
    return atomic_load_explicit(&l->pid, memory_order_relaxed) != 0;
}

/* A forked child of the process that the threads live in: its locks may be held
 * for ever by threads that do not exist here. */
static inline int hr__in_child(const struct hr_loader *l)
{
    int pid = atomic_load_explicit(&l->pid, memory_order_relaxed);
    return pid && pid != getpid();
}

/* Claims the right to read a sample for the cache: see hr__cache_claim; without a cache ALONE.
 * What is claimed already is YOURS. */
static inline enum hr__claim hr__sample_claim(struct hr_loader *l, uint64_t index,
                                              struct hr__cache_ticket *ticket)
{
    if (!l->cache)
        return HR__CLAIM_ALONE;
    return ticket->is_claimed ? HR__CLAIM_YOURS : hr__cache_claim(l->cache, index, ticket);
}

/* Ends a claim without an offer; nothing where there is none. */
static inline void hr__sample_unclaim(struct hr_loader *l, struct hr__cache_ticket *ticket)
{
    if (ticket->is_claimed)
        hr__cache_unclaim(l->cache, ticket);
}

/* Drops what is in preparation and begins anew at `from`, a publisher with chunk `first_chunk`;
 * starts the threads where that was not done. */
int hr__loader_start_at(struct hr_loader *l, const struct hr_loader_state *from,
                        uint64_t first_chunk, struct hr_error *error);

/* 0, or -EINVAL: the state is not of this loader's dataset. */
int hr__state_check(const struct hr_loader *l, const struct hr_loader_state *state,
                    struct hr_error *error);

/* How the loader's dataset is cut, from the first sample on. */
struct hr__cut hr__loader_cut(const struct hr_loader *l);

/* The core's own: prepares batches in this process. */
extern const struct hr__attachment hr__attachment_none;

#endif
