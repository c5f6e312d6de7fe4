/*
 * The inside of the loader.
 *
 *   inside.h    struct hr_loader
 *   loader.c    the public functions, called by the consumer
 *   schedule.h  chooses the sample to work on next, under the loader's lock
 *   threads.h   the workers, and starting and stopping all threads
 *   process.h   a worker's turn: obtains, prepares and keeps one sample
 *   bands.h     several workers on one large image
 *   fetcher.h   the fetchers
 *   stats.c     the statistics
 *   status.h    what the loader publishes about itself while it runs
 *   epoch.h, job.h, bad.h, counters.h, ring.h   the data that these work on
 *   part.h      the interfaces for optional parts. One table of functions is implemented by
 *     hosts/           a cache in the memory of several hosts
 *     publisher.h      loaders whose batches go into memory of another owner
 *     crew.h           the shared workers of many such loaders
 *   and another by
 *     caching.h   the cache on this host: what it keeps, and in which form
 *   attach.h    loaders whose batches an agent prepares; remote.h: their options
 *   create.h    makes and destroys loaders; knows all of the above
 *
 * Calls go one way: the core calls parts only through part.h, parts call the core, create.c calls
 * both.
 *
 * The window is the list of open batches, in order: batches that are being prepared or are
 * complete, but not yet handed out. The thread that first needs a sample of a batch opens it: it
 * takes a slot and determines the batch's samples.
 *
 * Who reads: a worker reads its own sample as long as reads do not block. The bytes are then warm
 * in its core's cache, and no thread waits for another. When reads block, the fetchers take over
 * and keep many reads in flight, within staging_bytes. After a while workers try again.
 *
 * If another process is already reading a sample into a shared cache, no thread waits for it while
 * there is other work: workers put the sample aside (delayed), fetchers keep a list of such
 * samples, and both ask again after 0.1 to 1 ms. A thread that waits for another's claim holds no
 * claim of its own, except for reads that are in progress anyway, so there is no deadlock.
 *
 * Lock order: the loader's lock, then the ring's; no lock is taken under the cache's. No I/O, no
 * page-locking and no log callback under the loader's or the ring's.
 */
#ifndef HR_LOADER_INSIDE_H
#define HR_LOADER_INSIDE_H

#include "loader/attach.h"
#include "loader/bad.h"
#include "loader/counters.h"
#include "loader/epoch.h"
#include "loader/fetcher.h"
#include "loader/job.h"
#include "loader/part.h"
#include "loader/ring.h"
#include "loader/status.h"
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
    struct hr__home home; /* of the consumer */
    struct hr__ring *ring;
    struct hr__cache *cache;                 /* NULL: none. Constant while threads run */
    const struct hr__part *part;             /* never NULL */
    const struct hr__keeper *keeper;         /* never NULL */
    const struct hr__attachment *attachment; /* never NULL; hr__attachment_none without an agent */
    int uncached;                            /* reads leave no pages in the page cache */
    int always_fetched;                      /* workers never read while there are fetchers */
    struct hr__sample_source *samples;       /* NULL: samples are read from files */
    int borrows_workers;                     /* has no workers of its own (crew.h) */

    /* Each is used by its part alone. */
    struct hr__caching *caching;
    struct hr__hosting *hosting;
    struct hr__publisher *publisher;
    void *attached; /* used by the attachment alone */
    char *texts[4]; /* owned copies of text options, with an attachment */
    char *metrics;  /* likewise, of options.metrics; NULL if that is */

    /* Used only by the consumer's thread and destroy. */
    atomic_int pid;             /* process in which the threads run; 0: not started */
    struct hr__thread *workers; /* array of workers_wanted */
    int worker_count;
    struct hr__thread fetchers[HR__PREAD_FETCHERS];
    int fetcher_count;

    struct hr__publication publication;

    struct hr__counters counters[HR__COUNTER_SETS];

    /* A futex, incremented at each event that the consumer may wait for. */
    atomic_uint ready_word;

    pthread_mutex_t lock;  /* guards everything below */
    pthread_cond_t work;   /* workers wait here for a sample to take */
    pthread_cond_t fetch;  /* fetchers wait here for a sample to read and room for it */
    pthread_cond_t room;   /* openers wait here for a free slot; start, for the first reader */
    pthread_cond_t helped; /* workers wait here for others that help with their image */

    struct hr__epoch *plan;  /* NULL before the first epoch */
    uint64_t seed;           /* options.seed, or a restored state's */
    int shuffle;             /* likewise */
    uint64_t opened;         /* batches of the plan opened, with the one being opened */
    int opening;             /* a thread is opening a batch, without the lock */
    int no_more;             /* open no further batch: one failed, or the epoch is over */
    struct hr_error broken;  /* why the next batch could not be opened; code 0: no error */
    struct hr_batch *window; /* open batches, the next one to hand out first */
    struct hr_batch *window_last;
    int window_count;
    struct hr_batch *cursor; /* the first batch with unclaimed samples, or NULL */
    uint64_t fetched;        /* jobs in the batches' fetched lists */
    struct hr__job *delayed; /* workers' jobs whose samples other processes are reading */
    struct hr__job *delayed_last;
    uint64_t delayed_count;
    int delayed_watched; /* an idle worker will wake up when the first is due */
    int stale;           /* batches of dropped epochs with samples still in threads' hands */
    uint64_t complete;   /* complete batches in the window */

    struct hr__push *pushed; /* batches pushed (external order) and not yet opened */
    struct hr__push *pushed_last;
    uint64_t pushed_samples; /* position after the last pushed sample */
    int push_ended;

    int stop;
    int idle_workers;
    int idle_fetchers;
    int live_fetchers; /* fetchers whose reader works */
    int consumer_waits;
    int workers_read;         /* non-zero: workers read their own samples */
    int blocked_score;        /* rises when a worker's read blocks */
    uint64_t fetcher_samples; /* samples that fetchers still read before workers try again */
    uint64_t fetcher_span;    /* value of fetcher_samples at the last switch */
    uint64_t reserved_bytes;  /* bytes in flight and staged, charged to the staging budget */
    uint64_t reserved_items;  /* the part of reserved_bytes that is for items of hosts */
    int reader_state;         /* first one's: 0 being made, 1 io_uring, 2 pread, < 0 error */

    struct hr__job *free_jobs;
    struct hr__job *all_jobs;
    struct hr__bands *bands; /* large regions that workers decode, the first one first */

    uint64_t delivered;         /* batches of the plan handed out */
    uint64_t delivered_samples; /* samples of the plan handed out */
    uint64_t epoch_seen;        /* samples handed out in this epoch, since its start or restore */
    uint64_t epoch_bad;         /* how many of them are bad */
    int over;                   /* the epoch has no more batches to hand out */

    struct hr__bad_list bad;     /* bad samples that stand-ins replaced */
    struct hr__bad_list damaged; /* damaged samples that were used */
    struct hr__bad *failed;      /* the sample that ended the epoch */
};

/* The set of counters for what this thread counts now. */
static inline struct hr__counters *hr__counters_here(struct hr_loader *l)
{
    return &l->counters[hr__counter_set()];
}

/* The sum of a counter over all sets. */
#define HR__COUNTED(loader, member)                                                                \
    hr__counters_sum((loader)->counters, offsetof(struct hr__counters, member))

static inline int hr__is_started(const struct hr_loader *l)
{
    return atomic_load_explicit(&l->pid, memory_order_relaxed) != 0;
}

/* Returns non-zero in a forked child of the process in which the threads run. Its locks may be held
 * for ever, by threads that do not exist here. */
static inline int hr__in_child(const struct hr_loader *l)
{
    int pid = atomic_load_explicit(&l->pid, memory_order_relaxed);
    return pid && pid != getpid();
}

/* Claims the right to read a sample for the cache (hr__cache_claim). Returns ALONE if there is no
 * cache, and YOURS if the ticket already holds a claim. */
static inline enum hr__claim hr__sample_claim(struct hr_loader *l, uint64_t index,
                                              struct hr__cache_ticket *ticket)
{
    if (!l->cache)
        return HR__CLAIM_ALONE;
    return ticket->is_claimed ? HR__CLAIM_YOURS : hr__cache_claim(l->cache, index, ticket);
}

/* Points a job of the window at sample `index`, as hr__sample_aim, or at its item on a disk of the
 * cache. */
static inline int hr__job_aim(const struct hr_loader *l, struct hr__job *job, uint64_t index,
                              int direct, struct hr_error *error)
{
    if (l->cache) {
        int is_there = !job->from_source && hr__cache_locate(l->cache, index, &job->located);
        job->tier = is_there ? HR__TIER_DISK : HR__TIER_STORAGE;
        if (is_there) {
            hr__sample_aim_at(&job->sample, &job->located);
            return 0;
        }
    }
    int r = hr__sample_aim(&job->sample, l->dataset, index, direct, error);
    if (!r && l->samples) {
        job->sample.read.sample.index = index;
        job->sample.read.sample.epoch = job->batch->plan->epoch;
        job->sample.read.sample.seed = job->batch->plan->seed;
    }
    return r;
}

/* Ends a claim without offering the sample. Does nothing if there is no claim. */
static inline void hr__sample_unclaim(struct hr_loader *l, struct hr__cache_ticket *ticket)
{
    if (ticket->is_claimed)
        hr__cache_unclaim(l->cache, ticket);
}

/* Drops the batches in preparation and starts again at `from` (a publisher: with chunk
 * `first_chunk`). Starts the threads if they do not run yet. */
int hr__loader_start_at(struct hr_loader *l, const struct hr_loader_state *from,
                        uint64_t first_chunk, struct hr_error *error);

/* Returns 0, or -EINVAL if the state is not of this loader's dataset. */
int hr__state_check(const struct hr_loader *l, const struct hr_loader_state *state,
                    struct hr_error *error);

/* How the loader's dataset is cut into batches of ranks, from the first sample on. */
struct hr__cut hr__loader_cut(const struct hr_loader *l);

/* The core's own: batches are prepared in this process. */
extern const struct hr__attachment hr__attachment_none;

#endif
