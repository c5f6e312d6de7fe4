/*
 * The loader inside: what its files share.
 *
 *   loader.c    the public functions, called by the consumer
 *   schedule.c  which sample is worked on next, under the loader's lock
 *   threads.c   the workers, and starting and stopping all threads
 *   fetcher.c   the fetchers
 *   caching.c   what is kept of it in memory, and in which form
 *   hosts*.c    what is kept of it in the memory of several hosts
 *   balanc*.c   what it uses of the machine, beside the machine's other ranks
 *   bad.c       samples that failed: what is told about them
 *   ring.c      slots
 *   lane.c      loaders whose batches are published in memory of somebody else's
 *   crew.c      workers of many such loaders
 *   remote.c    loaders whose batches an agent prepares: options, and who implements them
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
#include "loader/balancing.h"
#include "loader/caching.h"
#include "loader/hosts/hosts.h"
#include "loader/lane.h"
#include "loader/ring.h"
#include "loader/sample.h"
#include "order/order.h"

#include <headrace/form.h>
#include <headrace/loader.h>
#include <headrace/prepare.h>

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* Fetcher threads where io_uring is refused: each has one read in flight. */
#define HR__PREAD_FETCHERS 8
/* Reads in flight of the one fetcher with io_uring. */
#define HR__FETCH_DEPTH 64
/* Score at which fetchers take over: about three blocked reads in a row, or a
 * third of all reads blocking. */
#define HR__BLOCKED_LIMIT 12
#define HR__BLOCKED_STEP  4
/* Bad samples kept in detail. */
#define HR__BAD_KEPT 10000
/* Stand-ins tried for one bad sample. */
#define HR__MAX_ATTEMPTS 32

/* What an epoch is: immutable, shared by the loader and its open batches. */
struct hr__epoch {
    atomic_uint refs;
    uint64_t epoch;
    uint64_t seed;
    struct hr__order *order; /* NULL: external */
    struct hr__cut cut;      /* external: only start and samples */
    uint64_t batches;        /* from cut.start on; external: UINT64_MAX */
    uint64_t first_number;   /* number of the first batch, as batches are told */
    uint64_t first_chunk;    /* a lane's: number of the first chunk */
    uint64_t same_order;     /* digest of what the order of all epochs follows from */
    int shuffle;
    struct hr__deal *deal; /* with hosts: its plan, set once, under the lock; NULL: not yet */
};

/* One sample on its way: owned by the thread or list that has it. */
struct hr__job {
    struct hr__sample sample; /* its bytes, and where they come from */
    struct hr_batch *batch;
    size_t place;                   /* in the batch */
    uint64_t charged_bytes;         /* of the staging budget */
    int unread;                     /* the worker reads it */
    struct hr__cache_ticket ticket; /* of the sample that is being read */
    uint64_t ask_ns;                /* while another process reads it: when to ask again */
    uint64_t pause_ns;              /* how long was waited before that; 0: not yet */
    unsigned flight;                /* where a fetcher keeps it while a reader has it */
    enum hr__tier tier;             /* with hosts: where its bytes came from */
    int is_item;                    /* charged as an item of a host, not as a read */
    uint64_t seen;                  /* with hosts: digest of its file's stamp before it was read;
                                       0: not looked at */
    uint64_t turn;                  /* with hosts: which of all claims it was */
    uint64_t ahead, ahead_bytes;    /* without a batch: the sample that is read ahead */
    uint64_t generation;            /* likewise, the list of hosts it is read for */
    struct hr__job *next;
    struct hr__job *all_next; /* every job of the loader, for freeing */
};

/* A sample that failed, or that is damaged and was taken. */
struct hr__bad {
    struct hr__bad *next; /* in its batch */
    size_t place;
    int taken; /* it is in the batch; otherwise a stand-in is */
    uint64_t epoch, index;
    const char *reason; /* in the same block, as is the path */
    char path[];
};

/* The newest HR__BAD_KEPT of them, a circle of `capacity`. */
struct hr__bad_list {
    struct hr__bad **at;
    size_t capacity, first, kept;
    uint64_t total; /* ever */
};

/* What became of a job: the worker's, handed to hr__finish_locked. */
struct hr__outcome {
    struct hr__bad *skipped; /* the bad sample that was replaced, or the damaged one */
    struct hr__bad *failed;  /* the bad sample that was not */
    struct hr_error error;   /* with code 0 where all is well */
    int was_read;            /* the worker read it */
    int blocked;             /* its read had to wait for storage */
    int busy;                /* nothing became of it: another process reads it */
    uint64_t fetch_ns;       /* how long the worker's read took, by the clock */
    struct hr__cost cost;    /* of the last sample tried */
};

/* A batch that an external order pushed. */
struct hr__push {
    struct hr__push *next;
    uint64_t position; /* of its first sample */
    size_t count;
    int64_t indices[];
};

struct hr__histogram {
    _Atomic uint64_t count, sum_ns;
    _Atomic uint64_t buckets[HR_HISTOGRAM_BUCKETS];
};

/* Counters since the loader was made; relaxed, because nothing is inferred from
 * one about another. */
struct hr__counters {
    _Atomic uint64_t samples, batches, bad_samples, padded_samples, bytes_read, wait_ns;
    _Atomic uint64_t cache_hits, converted, conversion_ns;
    _Atomic uint64_t staged_bytes;
    _Atomic uint64_t damaged_samples;
    _Atomic uint64_t own_hits, own_bytes, peer_hits, peer_bytes;
    _Atomic uint64_t stored, stored_bytes, refused, read_ahead;
    struct hr__histogram fetch, prepare, wait;
};

struct hr__thread {
    struct hr_loader *loader;
    pthread_t id;
    int number;
    struct hr_preparer *preparer;   /* workers */
    struct hr_converter *converter; /* workers, from their first conversion on */
    int converting;                 /* the worker spends the time it may on conversions */
};

/* What makes a loader a lane (lane.h). */
struct hr__lane {
    struct hr_loader *loader;
    struct hr__crew *crew;
    const struct hr__lane_ops *ops;
    void *self;                /* of ops */
    struct hr__chunk_bad *bad; /* batch_size: of the chunk that is being published */

    /* What the crew's workers go by, without the loader's lock. */
    atomic_int has_work;     /* there may be a sample to take, or a turn */
    atomic_int may_convert;  /* an item may wait for a conversion by somebody idle */
    _Atomic uint64_t ask_ns; /* when the first delayed job is due; UINT64_MAX: none */

    /* Guarded by the loader's lock. */
    uint64_t end_at;        /* no chunk is opened from this number on */
    uint64_t room_asked;    /* times that there may have come room */
    int no_room;            /* acquire had none since */
    int turn;               /* the first of the window may be publishable */
    int publishing;         /* a thread is in the callback; it goes on with what follows */
    int starting;           /* somebody waits for that to end */
    pthread_cond_t quiet;   /* nobody publishes */
    struct hr_batch *spare; /* chunks' descriptions that are not in use */
};

struct hr_loader {
    /* Constant from create on. */
    struct hr_loader_options options;
    struct hr_dataset *dataset;
    struct hr_recipe *recipe;
    struct hr_tensor_spec spec;
    int workers_wanted;
    struct hr__ring *ring;
    struct hr__caching caching;
    struct hr__hosting *hosting; /* NULL: its cache is not one of hosts */
    struct hr__balancing
        *balancing; /* NULL: no other ranks. Set before workers start, under the lock */
    const struct hr__attachment *attachment; /* NULL: this process prepares */
    void *attached;                          /* the attachment's own */
    struct hr__lane *lane;                   /* NULL: it is none */
    char *texts[4];                          /* copies of options, with an attachment */

    /* The consumer's thread alone, and destroy. */
    atomic_int pid;             /* of the process that the threads live in; 0: not started */
    struct hr__thread *workers; /* hr__balancing_most */
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

static inline void hr__count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline void hr__uncount(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_sub_explicit(counter, n, memory_order_relaxed);
}

static inline void hr__histogram_add(struct hr__histogram *h, uint64_t ns)
{
    int bucket = ns ? 63 - __builtin_clzll(ns) : 0;
    if (bucket >= HR_HISTOGRAM_BUCKETS)
        bucket = HR_HISTOGRAM_BUCKETS - 1;
    hr__count(&h->count, 1);
    hr__count(&h->sum_ns, ns);
    hr__count(&h->buckets[bucket], 1);
}

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

/* schedule.c: `_locked` means with the loader's lock held by the caller. */

struct hr__epoch *hr__epoch_ref(struct hr__epoch *plan);
void hr__epoch_unref(struct hr__epoch **plan);

/* A job that is nobody's, or NULL: out of memory; and its end. */
struct hr__job *hr__take_job_locked(struct hr_loader *l);
void hr__free_job_locked(struct hr_loader *l, struct hr__job *job);

/* The next sample to read, in order, or NULL. Opens a batch when need be; the
 * lock is released and taken again then. `may_wait`: for a slot that others give back;
 * not for a caller on whose jobs they may depend. */
struct hr__job *hr__claim_locked(struct hr_loader *l, int may_wait);

/* Non-zero where a claim may succeed now. */
int hr__can_claim_locked(const struct hr_loader *l);

/* Bytes that a sample's file is expected to have. */
uint64_t hr__size_of(const struct hr_loader *l, const struct hr_batch *batch, size_t place);

/* The same for what the next claim will give. */
uint64_t hr__next_size_locked(const struct hr_loader *l);

/* A job with its bytes read (or `unread`) becomes a worker's. */
void hr__stage_locked(struct hr_loader *l, struct hr__job *job);

/* The oldest staged job of the earliest batch, or NULL. */
struct hr__job *hr__take_staged_locked(struct hr_loader *l);

/* A job whose sample another process reads waits until it is to be asked for again.
 * A job of a dropped epoch is not for this. */
void hr__delay_locked(struct hr_loader *l, struct hr__job *job);

/* The first of those that wait, if it is due, or NULL. */
struct hr__job *hr__take_delayed_locked(struct hr_loader *l);

/* Sets when a job is to be asked for again; `waiting` others are, too. */
void hr__job_wait(struct hr__job *job, uint64_t waiting);

/* The job is done: its outcome goes to its batch, the job to the free ones.
 * Returns a slot that the caller gives back to the ring, unlocked, or NULL. */
struct hr_batch *hr__finish_locked(struct hr_loader *l, struct hr__job *job,
                                   struct hr__outcome *outcome);

/* Drops the window. Returns slots, linked by next, that the caller gives back to
 * the ring, unlocked. */
struct hr_batch *hr__cancel_locked(struct hr_loader *l);

/* Takes the first batch out of the window. */
struct hr_batch *hr__window_pop_locked(struct hr_loader *l);

/* Counts a read that has come back, and its bytes as staged. Any thread. */
void hr__account_read(struct hr_loader *l, const struct hr__read *read, uint64_t ns);

/* Frees what a read brought, if it is still there. Any thread. */
void hr__drop_bytes(struct hr_loader *l, struct hr__read *read);

/* Lets workers read their own samples, on trial. */
void hr__let_workers_read_locked(struct hr_loader *l);

/* Wakes who can go on when samples have become claimable. */
void hr__wake_claimers_locked(struct hr_loader *l);

/* Wakes a worker that is idle, or as many as are; of a lane, tells the crew's of work too. */
void hr__wake_worker_locked(struct hr_loader *l);
void hr__wake_workers_locked(struct hr_loader *l);

/* The first batch of the window may be complete, or nothing may come of it. */
void hr__wake_consumer_locked(struct hr_loader *l);

/* Gives back a list of slots. */
void hr__return_slots(struct hr_batch *list);

/* Forgets what a batch's samples left behind. */
void hr__batch_reset(struct hr_batch *batch);

/* loader.c */

/* Options of the caller's version, checked. */
int hr__options_take(struct hr_loader_options *out, const struct hr_loader_options *options,
                     struct hr_error *error);

/* A loader of checked options, without ring, cache and threads. Errors: -ENODATA; -ENOMEM. */
int hr__loader_make(struct hr_loader **out, struct hr_dataset *dataset, struct hr_recipe *recipe,
                    const struct hr_loader_options *options, struct hr_error *error);

/* Drops what is in preparation and begins anew at `from`, a lane with chunk `first_chunk`;
 * starts the threads where that was not done. */
int hr__loader_start_at(struct hr_loader *l, const struct hr_loader_state *from,
                        uint64_t first_chunk, struct hr_error *error);

/* 0, or -EINVAL: the state is not of this loader's dataset. */
int hr__state_check(const struct hr_loader *l, const struct hr_loader_state *state,
                    struct hr_error *error);

/* lane.c */

/* A description of chunk `number`, with room for it: 0, -EAGAIN, or what acquire said. */
int hr__lane_open(struct hr__lane *lane, uint64_t number, struct hr_batch **out,
                  struct hr_error *error);

/* Drops a chunk that is not going to be published. Without the loader's lock. */
void hr__lane_drop(struct hr_batch *batch);

/* Publishes what is complete at the window's front, unless another thread is at it. Releases
 * the lock meanwhile. */
void hr__lane_turn_locked(struct hr__lane *lane);

/* Waits until nobody publishes, and keeps it so until hr__lane_begin_locked. */
void hr__lane_hush_locked(struct hr__lane *lane);

/* A new plan begins. */
void hr__lane_begin_locked(struct hr__lane *lane);

void hr__lane_free(struct hr__lane **lane);

/* fetcher.c: what a fetcher's thread runs; `arg`: its struct hr__thread. */
void *hr__fetch_main(void *arg);

/* A job that came back goes to the workers, or away when its epoch was dropped. Returns a slot
 * to be given back, or NULL. */
struct hr_batch *hr__deliver_locked(struct hr_loader *l, struct hr__job *job);

/* threads.c */

/* Starts a thread with all signals blocked; `run` gets `thread`. Errors: -EAGAIN. */
int hr__thread_start(struct hr__thread *thread, void *(*run)(void *), const char *name,
                     struct hr_error *error);

/* A worker's steps. Which sample next, or NULL; looking may release the lock. */
struct hr__job *hr__next_job_locked(struct hr_loader *l);
int hr__has_work_locked(const struct hr_loader *l);

/* Prepares a sample, without the lock. */
void hr__process(struct hr__thread *self, struct hr__job *job, struct hr__outcome *outcome);

/* What became of a job goes to its batch, or the job aside. The lock is released
 * meanwhile where there is something to free. */
void hr__finish_job_locked(struct hr_loader *l, struct hr__job *job, struct hr__outcome *outcome);

/* Starts the threads, or joins the crew. Errors: -EAGAIN, -ENOMEM; then none is left running. */
int hr__threads_start(struct hr_loader *l, struct hr_error *error);

/* Stops them and waits. Bytes of unfinished jobs are freed. */
void hr__threads_stop(struct hr_loader *l);

/* bad.c */

/* A record of a failed sample, `index` of the dataset, for `place` of the batch; NULL: out of
 * memory. hr__free frees it. */
struct hr__bad *hr__bad_make(const struct hr_loader *l, const struct hr_batch *batch, size_t place,
                             uint64_t index, const char *reason);
void hr__bad_free_list(struct hr__bad *list);

/* Puts a record into a batch's list, in order of place, so that lists do not depend on who was
 * first. */
void hr__bad_insert(struct hr__bad **list, struct hr__bad *bad);

/* Adds a batch's bad samples to the kept ones, taking them. */
void hr__bad_keep_locked(struct hr_loader *l, struct hr_batch *batch);

/* 0, or -EOVERFLOW with a message where too many samples of `epoch`, the one that epoch_seen
 * and epoch_bad count, are bad. */
int hr__bad_judge_locked(const struct hr_loader *l, uint64_t epoch, int at_end,
                         struct hr_error *error);

void hr__bad_destroy(struct hr_loader *l);

/* remote.c */

/* Of taken options: whether those about an agent go together. Errors: -EINVAL. */
int hr__remote_check(const struct hr_loader_options *options, struct hr_error *error);

/* Non-zero where an agent is to prepare; says so once where it is asked for and cannot. */
int hr__remote_is_wanted(const struct hr_loader_options *options);

/* Attaches a loader that is made but for its threads and cache. Errors: -ENOTSUP: built
 * without agents; -ENOMEM; the attachment's. */
int hr__remote_create(struct hr_loader *l, struct hr_error *error);

/* start_epoch and restore. */
int hr__remote_start(struct hr_loader *l, const struct hr_loader_state *from, int is_restored,
                     struct hr_error *error);

/* Frees the copies of options. */
void hr__remote_free_texts(struct hr_loader *l);

#endif
