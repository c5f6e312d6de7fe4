/*
 * The loader: turns a dataset, an order and a recipe into batches.
 *
 * A pool of threads takes the next sample of the earliest unfinished batch,
 * fetches, decodes and transforms it straight into its place in the batch's
 * slot. Batches come out in order and do not depend on the number of threads.
 *
 * Order (pure functions of seed and epoch): global batch g of an epoch is
 * positions [g*B, (g+1)*B) of the epoch's order, B = batch_size x world_size;
 * rank r takes positions g*B + r, g*B + r + world_size, ... of it. The last one
 * is dropped (drop_last) or padded from the start of the order until each rank
 * has the same count.
 *
 * Thread safety: one consumer thread at a time calls next, start_epoch, push
 * and restore; hr_batch_ref / release and hr_loader_stats may be called from
 * any thread. Ctrl-C: next returns -EINTR when a signal handler ran in the
 * waiting thread (with SA_RESTART too), or after options.wait_ms, and may be
 * called again; nothing is lost. The library's threads block all signals.
 */
#ifndef HEADRACE_LOADER_H
#define HEADRACE_LOADER_H

#include <headrace/base.h>
#include <headrace/dataset.h>
#include <headrace/form.h>
#include <headrace/recipe.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_loader;
struct hr_batch;

/* When a loader joins a stream that others are using already. */
enum hr_join {
    HR_JOIN_EPOCH = 0, /* at its next epoch: the first batch is waited for until then */
    HR_JOIN_NOW = 1,   /* at once: the rest of the others' epoch is its first one; what it
                          missed is the first batch's position (hr_loader_get_state) */
};

/* What becomes of a loader that is more than the window behind the others of its stream. */
enum hr_lag {
    HR_LAG_ALONE = 0, /* its batches are prepared for it alone until it has caught up */
    HR_LAG_WAIT = 1,  /* the others wait for it; if any loader of the stream says so */
};

/* Which rank computes which samples of a global batch, where hosts keep items (a cache of
 * "memcached:..."). The samples of a global batch are the same either way. */
enum hr_assignment {
    HR_ASSIGNMENT_AUTO = 0,  /* local with several hosts, else exact */
    HR_ASSIGNMENT_LOCAL = 1, /* each sample at the host that keeps it, as far as equal batch
                                sizes allow */
    HR_ASSIGNMENT_EXACT = 2, /* rank r takes positions r, r + world_size, ... */
};

struct hr_loader_options {
    size_t size;    /* sizeof(struct hr_loader_options) */
    int batch_size; /* samples per batch of this rank; default 1 */
    int shuffle;    /* default 0: dataset order */
    int drop_last;
    uint64_t seed;          /* default 0 */
    int rank, world_size;   /* default 0 of 1 */
    int threads;            /* workers; 0 (default): the cores this process may use
                               (affinity and cgroup quota) over local_world_size, less
                               one, at least one */
    int local_world_size;   /* ranks that share this host; default 1 */
    int batches_ahead;      /* batches prepared ahead of the consumer; default 2 */
    uint64_t staging_bytes; /* encoded bytes fetched ahead at most; default 16 MiB */
    int direct_io;          /* non-zero: O_DIRECT, where the file system has it */
    int no_io_uring;        /* non-zero: pread threads even where io_uring works */
    enum hr_on_error on_error;
    double max_bad_share; /* with SKIP: more than this share of the samples seen in an
                             epoch being bad stops the run; default 0.01. Judged from
                             the 100th sample on, and at the epoch's end */
    int external_order;   /* non-zero: the caller pushes each batch's indices with
                             hr_loader_push; shuffle, rank and drop_last are unused.
                             An index may come several times and an epoch may never
                             end, so that its random parameters are drawn for the
                             epoch number epoch + (p << 32), p = samples of the epoch
                             before it (a restored position included). With an agent what
                             is pushed goes there; a stream is -EINVAL */
    int pinned;           /* non-zero: slots are page-locked for an accelerator and
                             reused only after the copies from them are complete;
                             -ENOTSUP from create where that cannot be had */
    int wait_ms;          /* > 0: next gives up with -EINTR after so many ms without a
                             batch, so that a language binding can look for signals
                             that another thread received (Python: 100). 0 (default):
                             only a signal handler run by the waiting thread ends it;
                             one that runs just before or after a wait may go unseen */
    const char *cache;    /* samples to keep in memory, so that later epochs read only the
                             others: a text as headrace/cache.h says, copied by create; NULL
                             (default) or "": none. A private cache of a lone process lives
                             as long as the loader; with world_size > 1 the ranks of a host
                             share one. Each hit looks at the sample's file first: one that
                             has changed is read anew */
    int cache_form;       /* of cached samples: enum hr_form, or HR_FORM_AUTO (default): what
                             the text says, or the one that is measured to be best. Batches
                             are the same with every form */
    uint64_t epochs;      /* of the whole run, numbered from 0, so that samples are
                             converted only when it repays; 0 (default): unknown,
                             then only idle workers convert */
    const char *agent;    /* who prepares: NULL (default) or "": this process; "auto": the agent
                             of this user (headrace/agent.h), which is started where there is
                             none and ends when it is unused; else the socket's path. Batches are
                             the same. `threads`, `direct_io`, `no_io_uring` and `staging_bytes`
                             are the agent's then, `cache` only where it has none */
    const char *stream;   /* with an agent: loaders that name the same stream get the same
                             batches; -EINVAL where dataset, recipe, seed, shuffle or world_size
                             differ. NULL (default) or "": a stream of this loader's own */
    enum hr_join join;    /* of a stream that others are using already */
    enum hr_lag lag;      /* of a loader that is slower than the others of its stream */
    int window;           /* batches that a stream keeps in shared memory, for those who differ in
                             speed; at least batches_ahead + 2; default 8. The first loader's
                             counts */
    const char *agent_command; /* "auto": the command that is started, words apart by one
                                  '\x1f', to which "--listener FD --idle SECONDS" is added; it
                                  runs in "/". NULL
                                  (default): HEADRACE_AGENT_COMMAND, else "headrace\x1f" "agent" */
    /* Of samples to ranks; LOCAL needs a cache of hosts. */
    enum hr_assignment assignment;
    hr_progress_fn progress; /* called while create, start_epoch or restore wait for an agent, which
                                may have to open the dataset first: ten times a second and after
                                a signal handler ran in the waiting thread, with done and total 0;
                                a non-zero return ends the call with -ECANCELED. May be NULL */
    void *progress_arg;
};

/* Fills in the defaults of a struct of `size` bytes, of whatever version: for
 * bindings of other languages. C programs call the next one. */
HR_API void hr_loader_options_init(struct hr_loader_options *options, size_t size);

static inline void hr_loader_options_default(struct hr_loader_options *options)
{
    hr_loader_options_init(options, sizeof *options);
}

/*
 * Makes a loader; takes its own references to dataset and recipe. Threads
 * start with the first epoch. On success *out is the caller's.
 * Errors: -EINVAL names the option; -ENODATA: no batch would come (an empty
 * dataset, or drop_last with fewer samples than a batch); -ENOTSUP; -ENOMEM;
 * -ECANCELED: options.progress said so.
 */
HR_API HR_NODISCARD int hr_loader_create(struct hr_loader **out, struct hr_dataset *dataset,
                                         struct hr_recipe *recipe,
                                         const struct hr_loader_options *options,
                                         struct hr_error *error);

/*
 * Stops the workers, waits for them and frees the loader. Batches that are
 * still held stay valid until released. Blocks for the samples in hand and, with
 * `pinned`, until copies from released batches are complete. Safe in a forked
 * child, where the workers do not exist. Accepts NULL.
 */
HR_API void hr_loader_destroy(struct hr_loader **loader);

/*
 * Starts (or starts again) at the beginning of `epoch`, dropping whatever was
 * in preparation. Errors: -ECHILD: the process forked after the workers were
 * started: make a new loader in the child; -EAGAIN: no thread could be made.
 */
HR_API HR_NODISCARD int hr_loader_start_epoch(struct hr_loader *loader, uint64_t epoch,
                                              struct hr_error *error);

/*
 * Waits for the next batch of the epoch. Returns 1 and a reference in *out; 0
 * and NULL at the end of the epoch; or an error: -EINTR; -ECHILD (see above);
 * -EAGAIN: external order and no batch was pushed; -EINVAL: no epoch was
 * started; the error of a sample (-EBADMSG, -ENOENT, -EIO, ...), whose message
 * names path, reason and index; -EOVERFLOW: too many bad samples; -ENOMEM or
 * -EMFILE. From a sample's error on the epoch is over: next returns 0.
 */
HR_API HR_NODISCARD int hr_loader_next(struct hr_loader *loader, struct hr_batch **out,
                                       struct hr_error *error);

/* Batches of a whole epoch for this rank (not of the rest of a restored one);
 * 0 for an external order, which only its owner knows. */
HR_API uint64_t hr_loader_batches(const struct hr_loader *loader);

/* External order: appends one batch of `count` (1..batch_size) sample indices,
 * copied, to the epoch that was started last; start_epoch and restore drop what
 * was pushed and not delivered. An agent gets as many batches as `window` at a time, the
 * others as they are taken. Errors: -ERANGE names the index; -EINVAL: no
 * epoch, or after push_end; -ECHILD; -ENOMEM. Does not block. */
HR_API HR_NODISCARD int hr_loader_push(struct hr_loader *loader, const int64_t *indices,
                                       size_t count, struct hr_error *error);

/* External order: no more batches come in this epoch. */
HR_API HR_NODISCARD int hr_loader_push_end(struct hr_loader *loader, struct hr_error *error);

/*
 * Where the consumer stands: after the batches that next has returned. Small,
 * versioned, independent of ranks and batch size. It is a place in one dataset's order: keep
 * hr_dataset_names_digest beside it, for restore compares the number of samples only.
 */
struct hr_loader_state {
    uint32_t version; /* 1 */
    uint32_t shuffle;
    uint64_t seed;
    uint64_t epoch;
    uint64_t position; /* samples of the epoch's order that are behind us, all ranks */
    uint64_t samples;  /* of the dataset */
};

HR_API HR_NODISCARD int hr_loader_get_state(const struct hr_loader *loader,
                                            struct hr_loader_state *state, struct hr_error *error);

/*
 * Continues at `state`: the next batch is the one that would have come. With
 * another batch size or number of ranks the remaining positions are cut anew.
 * The state's seed and shuffle replace the loader's. External order: the
 * caller pushes the batches that come after `position` samples.
 * Errors: -EINVAL: another version, or a dataset of another length; -ECHILD;
 * -EAGAIN; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_loader_restore(struct hr_loader *loader,
                                          const struct hr_loader_state *state,
                                          struct hr_error *error);

/* A batch's memory. Pointers live until the last release. */
struct hr_batch_view {
    void *images; /* count samples as `spec` says, without gaps; 64-byte aligned */
    struct hr_tensor_spec spec;
    int64_t *labels;  /* count */
    int64_t *indices; /* count: the samples really used (replacements too) */
    size_t count;
    uint64_t epoch;
    uint64_t number; /* of the batch in its epoch, from 0 */
    size_t padding;  /* samples at the end that only pad this rank's share */
    size_t replaced; /* samples that stand in for bad ones */
};

HR_API void hr_batch_get(const struct hr_batch *batch, struct hr_batch_view *view);
HR_API struct hr_batch *hr_batch_ref(struct hr_batch *batch);

/*
 * Gives a reference back; sets *batch to NULL; accepts NULL. The last one
 * returns the slot to its loader's ring, or frees it when the loader is gone.
 * Any thread. With `pinned`, copies enqueued on any stream of a device's primary
 * context before the last release are waited for before the memory is used
 * again; release no batch while a CUDA graph is being captured (the driver
 * would invalidate the capture).
 */
HR_API void hr_batch_release(struct hr_batch **batch);

/* A histogram of durations: bucket i counts values in [2^i, 2^(i+1)) ns. */
#define HR_HISTOGRAM_BUCKETS 48
struct hr_histogram {
    uint64_t count;
    uint64_t sum_ns;
    uint64_t buckets[HR_HISTOGRAM_BUCKETS];
};

/* Counters since the loader was made; each is read by itself, so that sums may
 * be a few samples apart while workers run. */
struct hr_loader_stats {
    size_t size;      /* sizeof, set by the caller */
    uint64_t samples; /* prepared */
    uint64_t batches; /* handed out */
    uint64_t bad_samples;
    uint64_t padded_samples; /* handed out only to pad */
    uint64_t bytes_read;     /* from files */
    uint64_t wait_ns;        /* the consumer was blocked in next */
    uint64_t grown_slots;    /* slots beyond the planned ring */
    uint64_t slots;          /* in the ring now */
    uint64_t slot_bytes;     /* of one slot */
    uint64_t staged_bytes;   /* encoded bytes fetched and not yet prepared, now */
    uint64_t ready_batches;  /* complete and not yet handed out, now */
    int threads;
    int io_uring;                /* non-zero: in use */
    struct hr_histogram fetch;   /* one sample: from asking to all its bytes */
    struct hr_histogram prepare; /* one sample: decode and recipe */
    struct hr_histogram wait;    /* one call of next */
    uint64_t cache_hits;         /* samples whose bytes came from the cache */
    uint64_t cache_bytes;        /* that its items take, now */
    uint64_t cache_source_bytes; /* of the files that need not be read any more, now */
    uint64_t cache_encoded, cache_coefficients, cache_planes; /* items by form, now */
    uint64_t cache_waiting; /* of the encoded ones, those that wait for a conversion */
    uint64_t converted;     /* items */
    uint64_t conversion_ns; /* CPU time of all workers for it */
    uint64_t missed;        /* with an agent: samples of the stream's epoch that were over when
                               this loader joined it */
    uint64_t alone;         /* with an agent: batches that were prepared for it alone */
    uint64_t reattached;    /* with "auto": times that a new agent took over */
    /* With a cache of hosts; hits are in cache_hits, too. */
    uint64_t own_hits, own_bytes;   /* samples that came from this host's server */
    uint64_t peer_hits, peer_bytes; /* from other hosts' */
    uint64_t stored, stored_bytes;  /* items that this rank stored on servers */
    uint64_t refused;               /* that servers refused, or that could not be sent in time */
    uint64_t read_ahead;            /* samples that were read for later batches */
    uint64_t balanced;              /* always 0 */
    int workers_now;                /* workers of this process: as `options.threads` asks for */
    uint64_t damaged_samples;       /* that were taken as the recipe's `damaged` says */
};

HR_API void hr_loader_get_stats(const struct hr_loader *loader, struct hr_loader_stats *stats);

/*
 * Several hosts: a cache of "memcached:..." (headrace/cache.h).
 *
 * Before the first batch all ranks compare, through the servers, what the plan follows from:
 * next returns -EINVAL where they differ, and names what and where; -ETIMEDOUT where some
 * do not come. Servers that fail later are misses, never errors.
 *
 * How fast this rank has been of late, by tier; for hr_loader_set_rates. Plain numbers, so that
 * they may be sent between ranks as bytes. 0: not measured.
 */
struct hr_loader_rates {
    size_t size;                /* sizeof, set by the caller */
    int host;                   /* of the rank, in the list; -1: in none */
    double own_bytes_per_s;     /* items of its own host's server */
    double peer_bytes_per_s;    /* of other hosts' servers */
    double storage_bytes_per_s; /* files, with as many reads in flight as there are */
    double prepare_bytes_per_s; /* encoded bytes, all its threads together */
    double wait_s;              /* the consumer waited in the last epoch */
    double ready_s;             /* mean time from a batch being opened until it was ready */
};

/* Errors: -EINVAL without hosts. Any thread. */
HR_API HR_NODISCARD int hr_loader_get_rates(const struct hr_loader *loader,
                                            struct hr_loader_rates *rates, struct hr_error *error);

/*
 * From the next start or restore of an epoch that is not before `epoch` the plan goes by these
 * rates of all ranks, in their order (copied); every rank has to be given the same before it
 * starts that epoch. Without it all hosts are taken to be alike. Errors: -EINVAL: without hosts,
 * or another count; -ENOMEM. Consumer's thread.
 */
HR_API HR_NODISCARD int hr_loader_set_rates(struct hr_loader *loader, uint64_t epoch,
                                            const struct hr_loader_rates *ranks, int count,
                                            struct hr_error *error);

/*
 * From the next start or restore of an epoch that is not before `epoch` these hosts keep the items:
 * another text "memcached:..."; every rank has to be given the same for the same epoch, and they
 * compare before its first batch. Errors: -EINVAL: without hosts, or the text; -EEXIST; -ENOTSUP;
 * -EACCES; -ENOMEM. Blocks for name lookups. Consumer's thread.
 */
HR_API HR_NODISCARD int hr_loader_set_hosts(struct hr_loader *loader, uint64_t epoch,
                                            const char *cache, struct hr_error *error);

/* One host of the list, as this rank sees it. */
struct hr_loader_host {
    size_t size; /* sizeof, set by the caller */
    char name[256];
    int is_self, is_up;
    int ranks;                                        /* on it; 0 before the first batch */
    uint64_t budget_bytes;                            /* C */
    uint64_t planned_items, planned_bytes;            /* that it owns by the plan */
    uint64_t limit_bytes, used_bytes;                 /* memcached's own, when it was asked last,
                                                         at an epoch's beginning; 0: it was not */
    uint64_t fetched, fetched_bytes, missed;          /* by this rank */
    uint64_t stored, stored_bytes, refused, failures; /* likewise */
    char problem[160];                                /* the last failure; "": none */
};

/* 0: no hosts. Any thread, as the next one. */
HR_API int hr_loader_host_count(const struct hr_loader *loader);

/* Copies what is known of host i; returns 0, or -ERANGE. */
HR_API HR_NODISCARD int hr_loader_host_get(const struct hr_loader *loader, int i,
                                           struct hr_loader_host *out);

/* One replaced sample (on_error = SKIP), or the one that ended an epoch (RAISE). */
struct hr_skipped_sample {
    uint64_t epoch;
    uint64_t index; /* in the dataset */
    char path[1024];
    char reason[256];
};

/* Samples skipped so far (the newest 10,000 are kept in detail). */
HR_API uint64_t hr_loader_skipped_count(const struct hr_loader *loader);

/* Copies the i-th kept one; returns 0, or -ERANGE. */
HR_API HR_NODISCARD int hr_loader_skipped_get(const struct hr_loader *loader, uint64_t i,
                                              struct hr_skipped_sample *out);

/* The same of damaged samples that were taken (hr_recipe_options.damaged). */
HR_API uint64_t hr_loader_damaged_count(const struct hr_loader *loader);
HR_API HR_NODISCARD int hr_loader_damaged_get(const struct hr_loader *loader, uint64_t i,
                                              struct hr_skipped_sample *out);

/* The sample whose failure ended the epoch (on_error = RAISE), for callers that
 * want its path and reason apart: returns 0 after hr_loader_next failed with a
 * sample's error, -ENOENT otherwise. Consumer's thread. Does not block. */
HR_API HR_NODISCARD int hr_loader_failed_get(const struct hr_loader *loader,
                                             struct hr_skipped_sample *out);

#ifdef __cplusplus
}
#endif

#endif
