/*
 * The loader: turns a dataset, an order and a recipe into batches.
 *
 * Each worker thread takes the next sample of the earliest unfinished batch, reads,
 * decodes and transforms it, and writes the result directly to its place in the batch's
 * slot. Batches come out in order and do not depend on the number of threads.
 *
 * The order is a pure function of seed and epoch. Global batch g of an epoch is
 * positions [g*B, (g+1)*B) of the epoch's order, with B = batch_size x world_size;
 * rank r takes positions g*B + r, g*B + r + world_size, ... of it. The last global batch
 * is dropped (drop_last) or padded from the start of the order until every rank
 * has the same number of samples.
 *
 * Thread safety: one consumer thread at a time calls next, start_epoch, push
 * and restore; any thread may call hr_batch_ref, hr_batch_release and
 * hr_loader_get_stats. Ctrl-C: next returns -EINTR if a signal handler ran in the
 * waiting thread (even with SA_RESTART), or after options.wait_ms. The program may
 * then call it again; nothing is lost. The library's threads block all signals.
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

/* When a loader joins a stream that other loaders are already using. */
enum hr_join {
    HR_JOIN_EPOCH = 0, /* at the next epoch: the first batch comes when that epoch begins */
    HR_JOIN_NOW = 1,   /* at once: its first epoch is the rest of the current one. The position
                          of the first batch (hr_loader_get_state) shows how much it missed */
};

/* How to handle a loader that is more than `window` batches behind the others of its stream. */
enum hr_lag {
    HR_LAG_ALONE = 0, /* prepare its batches separately until it has caught up */
    HR_LAG_WAIT = 1,  /* make the others wait for it, if any loader of the stream asks for this */
};

/* Which rank prepares which samples of a global batch when several hosts share a cache
 * ("memcached:..."). The samples of a global batch are the same either way. */
enum hr_assignment {
    HR_ASSIGNMENT_AUTO = 0,  /* local with several hosts, else exact */
    HR_ASSIGNMENT_LOCAL = 1, /* each sample goes to the host that caches it, as far as equal
                                batch sizes allow */
    HR_ASSIGNMENT_EXACT = 2, /* rank r takes positions r, r + world_size, ... */
};

struct hr_loader_options {
    size_t size;    /* sizeof(struct hr_loader_options) */
    int batch_size; /* samples per batch of this rank; default 1 */
    int shuffle;    /* default 0: dataset order */
    int drop_last;
    uint64_t seed;          /* default 0 */
    int rank, world_size;   /* default 0 of 1 */
    int threads;            /* workers; 0 (default): the cores this process may use (affinity
                               and cgroup quota) divided by local_world_size, minus one, but
                               at least one */
    int local_world_size;   /* ranks that share this host; default 1 */
    int batches_ahead;      /* batches prepared ahead of the consumer; 0 (default): 2, and of a
                               dataset at URLs as many as have 512 samples, if they take at most
                               256 MiB and, with an agent, at most window - 2. The stats tell */
    uint64_t staging_bytes; /* limit on encoded bytes read ahead; 0 (default): 16 MiB, of a dataset
                               at URLs 64 MiB */
    int direct_io;          /* non-zero: use O_DIRECT if the file system supports it */
    int no_io_uring;        /* non-zero: read with pread threads even if io_uring works */
    enum hr_on_error on_error;
    double max_bad_share; /* with SKIP: stop the run if more than this share of the samples
                             seen in an epoch is bad; default 0.01. Checked from the
                             100th sample on, and at the epoch's end */
    int external_order;   /* non-zero: the caller pushes each batch's indices with
                             hr_loader_push; shuffle, rank and drop_last are ignored, and
                             world_size but for the cache that the ranks of a host share.
                             An index may repeat and an epoch may never end, so random
                             parameters are drawn for epoch number epoch + (p << 32),
                             where p counts the epoch's samples before this one (those
                             before a restored position included). With an agent, pushed
                             indices are sent to it; naming a stream is -EINVAL */
    int pinned;           /* non-zero: slots are page-locked for an accelerator and
                             reused only after all copies from them have completed;
                             create returns -ENOTSUP if that is impossible */
    int wait_ms;          /* > 0: next returns -EINTR after this many ms without a batch, so
                             that a language binding can check for signals that another
                             thread received (Python: 100). 0 (default): only a signal
                             handler that runs in the waiting thread ends the wait; a
                             handler that runs just before or after a wait may be missed */
    const char *cache;    /* where to keep samples in memory, so that later epochs read only the
                             others: a text as described in headrace/cache.h, copied by create;
                             NULL (default) or "": no cache. The private cache of a single
                             process lives as long as the loader; with world_size > 1 the ranks
                             of a host share one. Each hit first checks the sample's file, and
                             a changed file is read again */
    int cache_form;       /* form of cached samples: enum hr_form, or HR_FORM_AUTO (default): the
                             form in the `cache` text, or else the one measured to be best.
                             Batches are the same with every form */
    uint64_t epochs;      /* number of epochs of the whole run (the first one is epoch 0), so
                             that samples are converted only if that saves time; 0 (default):
                             unknown, and only idle workers convert, unless a form was asked for:
                             then busy ones do, too, in a tenth of their time */
    const char *agent;    /* who prepares batches: NULL (default) or "": this process; "auto": this
                             user's agent (headrace/agent.h), which is started if none runs and
                             ends when it is unused; otherwise the path of an agent's socket.
                             Batches are the same. The agent's own settings then replace `threads`,
                             `direct_io`, `no_io_uring` and `staging_bytes`; `cache` is used only
                             if the agent has none */
    const char *stream;   /* with an agent: loaders that name the same stream get the same
                             batches; -EINVAL if their dataset, recipe, seed, shuffle or
                             world_size differ. NULL (default) or "": a stream of its own */
    enum hr_join join;    /* when to join a stream that others are already using */
    enum hr_lag lag;      /* what to do if this loader is slower than others of its stream */
    int window;           /* batches that a stream keeps in shared memory for loaders of different
                             speed; at least batches_ahead + 2; default 8. The stream's first
                             loader decides */
    const char *agent_command; /* with "auto": the command that starts an agent, its words separated
                                  by '\x1f'; "--listener FD --idle SECONDS" is appended and it
                                  runs in "/". NULL
                                  (default): HEADRACE_AGENT_COMMAND, else "headrace\x1f" "agent" */
    /* How samples are assigned to ranks. LOCAL needs a cache on several hosts. */
    enum hr_assignment assignment;
    hr_progress_fn progress; /* called while create, start_epoch or restore waits for an agent (it
                                may have to open the dataset first): ten times a second, and after
                                a signal handler ran in the waiting thread. done and total are 0.
                                A non-zero return ends the wait with -ECANCELED. May be NULL */
    void *progress_arg;
    /* MixUp and CutMix as in torchvision v2: each sample of a batch is mixed with the one before it
     * (the first with the last) by a share drawn from Beta(alpha, alpha), once for the batch;
     * hr_batch_mix returns it. Drawn anew for each (seed, epoch, position of the batch). Not with
     * an agent; MixUp needs a float type. */
    double mixup_alpha, cutmix_alpha; /* 0 (default): off */
    double mix_share;                 /* probability that a batch is mixed; default 1 */
    double cutmix_share;              /* if both are on: probability of CutMix; default 0.5 */
    const char *metrics; /* "ADDRESS:PORT", e.g. "127.0.0.1:9100", copied: from the first epoch on
                            serve the figures of this process's loaders in Prometheus's text format
                            over HTTP (docs/metrics.md). The port is PORT plus this rank's number on
                            its machine: LOCAL_RANK, else rank % local_world_size. NULL (default):
                            HEADRACE_METRICS, which logs what it cannot have in place of failing;
                            "": none. start_epoch: -EADDRINUSE and other errors of bind; -EINVAL:
                            the process serves at another address; -ENOTSUP: built without it */
    int metrics_rank;    /* this process's rank in metrics, where `rank` is not that, because of
                            external_order; -1 (default): `rank` */
    /* The private cache keeps the samples that are used next, and evicts others for them, in place
     * of those that came first: for an external order that uses some samples several times an epoch
     * and others not at all, and for loaders that share a budget. See hr_loader_expect.
     * cache_evicts: non-zero: `cache` is such a cache. -EINVAL if it is anything but a size, with
     * several ranks or an agent. cache_of: another loader of this process with such a cache, which
     * this one shares; `cache` is then NULL. It may be destroyed before this one. In a forked child
     * a loader with cache_of does not start: -ECHILD. */
    int cache_evicts;           /* default 0 */
    struct hr_loader *cache_of; /* default NULL */
};

/* Sets the defaults of a struct of `size` bytes, of any version. Meant for bindings
 * of other languages; C programs call the next function. */
HR_API void hr_loader_options_init(struct hr_loader_options *options, size_t size);

static inline void hr_loader_options_default(struct hr_loader_options *options)
{
    hr_loader_options_init(options, sizeof *options);
}

/*
 * Makes a loader. It takes its own references to dataset and recipe. Its threads
 * start with the first epoch. On success the caller owns *out.
 * Errors: -EINVAL names the option; -ENODATA: there would be no batch (an empty
 * dataset, or drop_last with fewer samples than a batch); -ENOTSUP; -ENOMEM;
 * -ECANCELED: options.progress returned non-zero.
 */
HR_API HR_NODISCARD int hr_loader_create(struct hr_loader **out, struct hr_dataset *dataset,
                                         struct hr_recipe *recipe,
                                         const struct hr_loader_options *options,
                                         struct hr_error *error);

/*
 * Stops the workers, waits for them and frees the loader. Batches that the caller
 * still holds stay valid until released. Blocks until samples in preparation are done
 * and, with `pinned`, until copies from released batches have completed. Safe in a
 * forked child, where the workers do not exist. Accepts NULL.
 */
HR_API void hr_loader_destroy(struct hr_loader **loader);

/*
 * Starts `epoch` from its beginning and drops all batches in preparation.
 * Errors: -ECHILD: the process forked after the workers started: make a new
 * loader in the child; -EAGAIN: a thread could not be created.
 */
HR_API HR_NODISCARD int hr_loader_start_epoch(struct hr_loader *loader, uint64_t epoch,
                                              struct hr_error *error);

/*
 * Waits for the next batch of the epoch. Returns 1 and a reference in *out; 0
 * and NULL at the end of the epoch; or an error: -EINTR; -ECHILD (see above);
 * -EAGAIN: external order, and no batch was pushed; -EINVAL: no epoch was
 * started; the error of a sample (-EBADMSG, -ENOENT, -EIO, ...), whose message
 * names path, reason and index; -EOVERFLOW: too many bad samples; -ENOMEM or
 * -EMFILE. A sample's error ends the epoch: next returns 0 from then on.
 */
HR_API HR_NODISCARD int hr_loader_next(struct hr_loader *loader, struct hr_batch **out,
                                       struct hr_error *error);

/* Number of batches of a whole epoch for this rank (a restored epoch has fewer);
 * 0 for an external order, whose length only the caller knows. */
HR_API uint64_t hr_loader_batches(const struct hr_loader *loader);

/* External order: appends one batch of `count` (1..batch_size) sample indices to the
 * current epoch; copies them. start_epoch and restore drop batches that were pushed but
 * not delivered. With an agent, `window` batches are sent to it at a time, the others as
 * batches are taken. Errors: -ERANGE names the index; -EINVAL: no epoch was started, or
 * push_end was called; -ECHILD; -ENOMEM. Does not block. */
HR_API HR_NODISCARD int hr_loader_push(struct hr_loader *loader, const int64_t *indices,
                                       size_t count, struct hr_error *error);

/* External order: declares that this epoch has no more batches. */
HR_API HR_NODISCARD int hr_loader_push_end(struct hr_loader *loader, struct hr_error *error);

/*
 * External order: tells a loader whose cache evicts (cache_evicts, cache_of), or may do so because
 * others share it (shm:, ranks of a host), the `count` samples that will be pushed, in order, as
 * far as they are known: the first `first` in this epoch, the others in later ones. Call it after
 * start_epoch or restore, before the first push; without it, batches are known from their push on.
 * Nothing but the choice of what the cache keeps depends on it. Does nothing with any other cache.
 * Errors: -ERANGE: an index is outside the dataset; -EINVAL: no external_order, no epoch was
 * started, or more in this epoch than in all; -ECHILD.
 */
HR_API HR_NODISCARD int hr_loader_expect(struct hr_loader *loader, const int64_t *indices,
                                         size_t count, size_t first, struct hr_error *error);

/*
 * The consumer's position: after the batches that next has returned. Small,
 * versioned, and independent of ranks and batch size. It is valid for one dataset's order: keep
 * hr_dataset_names_digest beside it, because restore compares only the number of samples.
 */
struct hr_loader_state {
    uint32_t version; /* 1 */
    uint32_t shuffle;
    uint64_t seed;
    uint64_t epoch;
    uint64_t position; /* samples of the epoch's order consumed so far, by all ranks */
    uint64_t samples;  /* of the dataset */
};

HR_API HR_NODISCARD int hr_loader_get_state(const struct hr_loader *loader,
                                            struct hr_loader_state *state, struct hr_error *error);

/*
 * Continues at `state`: next returns the batch that would have come next. With
 * another batch size or number of ranks, the remaining positions are cut into new batches.
 * The state's seed and shuffle replace the loader's. External order: the
 * caller pushes the batches that come after `position` samples.
 * Errors: -EINVAL: another version, or a dataset of another length; -ECHILD;
 * -EAGAIN; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_loader_restore(struct hr_loader *loader,
                                          const struct hr_loader_state *state,
                                          struct hr_error *error);

/* The memory of a batch. The pointers are valid until the last release. */
struct hr_batch_view {
    void *images; /* `count` samples in the format `spec`, without gaps; 64-byte aligned */
    struct hr_tensor_spec spec;
    int64_t *labels;  /* count */
    int64_t *indices; /* count: the samples really used, replacements included */
    size_t count;
    uint64_t epoch;
    uint64_t number; /* of the batch in its epoch, from 0 */
    size_t padding;  /* samples at the end that only pad this rank's share */
    size_t replaced; /* samples that replace bad ones */
};

HR_API void hr_batch_get(const struct hr_batch *batch, struct hr_batch_view *view);

/* Gets the images of one view of the recipe (hr_recipe_create_views), as hr_batch_get does those of
 * the first. Errors: -ERANGE: the recipe has no such view. */
HR_API HR_NODISCARD int hr_batch_images(const struct hr_batch *batch, size_t view, void **images,
                                        struct hr_tensor_spec *spec);

/* One field of a batch: an array. */
struct hr_field {
    const char *name; /* owned by the batch */
    enum hr_dtype dtype;
    int dims;
    int64_t
        shape[5]; /* the first `dims` are used; the first is the number of samples, or of rows */
    void *data;   /* elements without gaps */
    const int64_t *extents; /* NULL: each sample fills its place. Otherwise (the recipe's option
                               `padded`) how much of it is used: dims - 1 numbers for each sample;
                               the rest is zero, 255 in masks, and of sounds what padding becomes
                               (features of silence). Change no more of the places than the largest
                               sample takes */
    const int64_t *offsets; /* NULL: one value for each sample. Otherwise sample i has the rows
                               offsets[i] to offsets[i + 1] - 1 */
};

/*
 * Describes field `i` of a batch, from 0: "images" (further views: "images_1", ...), "masks" of a
 * dataset that has them (headrace/masks.h), "labels", "indices", then the columns of the dataset's
 * rows (headrace/rows.h), one of which may take the place of "labels". The pointers are valid until
 * the last release. Errors: -ERANGE: there are fewer fields.
 */
HR_API HR_NODISCARD int hr_batch_field(const struct hr_batch *batch, size_t i,
                                       struct hr_field *field);

HR_API struct hr_batch *hr_batch_ref(struct hr_batch *batch);

/* Returns the share of a sample's own label after MixUp or CutMix, 0 to 1; the rest is that of the
 * label before it in the batch (the first sample: of the last). 1: the batch is not mixed. */
HR_API double hr_batch_mix(const struct hr_batch *batch);

/*
 * Drops a reference and sets *batch to NULL. Accepts NULL. Dropping the last reference
 * returns the slot to its loader's ring, or frees it if the loader is gone.
 * Any thread. With `pinned`, the memory is not reused before all copies have completed
 * that were enqueued before the last release on any stream of a device's primary
 * context. Do not release a batch while a CUDA graph is being captured (the driver
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

/* Counters since the loader was made. Each is read separately, so sums may
 * differ by a few samples while workers run. */
struct hr_loader_stats {
    size_t size;      /* sizeof, set by the caller */
    uint64_t samples; /* prepared */
    uint64_t batches; /* handed out */
    uint64_t bad_samples;
    uint64_t padded_samples; /* handed out only to pad */
    uint64_t bytes_read;     /* from files */
    uint64_t wait_ns;        /* time that the consumer was blocked in next */
    uint64_t grown_slots;    /* slots added to the planned ring */
    uint64_t slots;          /* in the ring now */
    uint64_t slot_bytes;     /* of one slot */
    uint64_t staged_bytes;   /* encoded bytes read and not yet prepared, now */
    uint64_t ready_batches;  /* complete and not yet handed out, now */
    int threads;
    int io_uring;                /* non-zero: in use */
    struct hr_histogram fetch;   /* one sample: from the request to its last byte */
    struct hr_histogram prepare; /* one sample: decode and recipe */
    struct hr_histogram wait;    /* one call of next */
    uint64_t cache_hits;         /* samples whose bytes came from the cache */
    uint64_t cache_bytes;        /* size of the cached items, now */
    uint64_t cache_source_bytes; /* size of the files that need not be read any more, now */
    uint64_t cache_encoded, cache_coefficients, cache_planes; /* items by form, now;
                                                                 cache_indexed is below */
    uint64_t cache_waiting; /* items that wait for their conversion */
    uint64_t converted;     /* items */
    uint64_t conversion_ns; /* CPU time of all workers spent on conversions */
    uint64_t missed;        /* with an agent: samples of the stream's epoch before this loader's
                               first batch */
    uint64_t alone;         /* with an agent: batches that were prepared for this loader alone */
    uint64_t reattached;    /* with "auto": number of times that it moved to a new agent */
    /* With a cache on several hosts. cache_hits includes these hits. */
    uint64_t own_hits, own_bytes;   /* samples that came from this host's server */
    uint64_t peer_hits, peer_bytes; /* samples that came from other hosts' servers */
    uint64_t stored, stored_bytes;  /* items that this rank stored on servers */
    uint64_t refused;               /* items that servers refused or that were not sent in time */
    uint64_t read_ahead;            /* samples that were read for later batches */
    uint64_t balanced;              /* always 0 */
    int workers_now;                /* workers of this process, as set by `options.threads` */
    uint64_t damaged_samples;       /* accepted because of the recipe's `damaged` */
    uint64_t cache_indexed;         /* items of the form `indexed`, now */
    uint64_t scaled_samples;        /* decoded at a smaller scale, as the recipe's `inexact` allows;
                                       with an agent, see its metrics */
    uint64_t step_ns;               /* time between two calls of next in the same epoch: training */
    uint64_t cache_waveforms;       /* items of the forms `waveform` and `waveform16`, now */
    /* With a cache on disk. cache_hits includes these hits; bytes_read does not include these
     * bytes. The members cache_... above are of the first tier. */
    uint64_t disk_hits, disk_bytes;       /* samples and bytes that were read from it */
    uint64_t disk_items, disk_used_bytes; /* in it, now */
    /* Of a dataset at URLs since it was opened, over all its loaders in this process. */
    uint64_t object_requests; /* all, with the next three */
    uint64_t object_lists;    /* pages of listings */
    uint64_t object_retries;  /* repeated after a failure */
    uint64_t object_hedges;   /* repeated because an answer was late */
    uint64_t object_refusals; /* answers that asked for fewer requests */
    uint64_t object_bytes;    /* received */
    double object_cost_usd; /* an estimate, with HEADRACE_OBJECT_PRICES (docs/object-storage.md) */
    int batches_ahead;      /* in use */
};

HR_API void hr_loader_get_stats(const struct hr_loader *loader, struct hr_loader_stats *stats);

/*
 * Gets the status of the loaders of this user's processes on this machine, {"loaders": [...]}
 * (docs/metrics.md lists the keys), as each last published it: those that have begun an epoch, and
 * whose processes live. On success the caller owns *json and frees it with hr_text_free
 * (headrace/agent.h). Errors: -ENOMEM. Any thread.
 */
HR_API HR_NODISCARD int hr_loaders_status(char **json, struct hr_error *error);

/*
 * Several hosts: a cache of "memcached:..." (headrace/cache.h).
 *
 * Before the first batch, all ranks compare the inputs of their plan, through the servers. If they
 * differ, next returns -EINVAL, and the message names the input and the ranks; if ranks are
 * missing, it returns -ETIMEDOUT. If a server fails later, its items are misses, never errors.
 *
 * struct hr_loader_rates: recent speed of this rank by source, for hr_loader_set_rates. Plain
 * numbers, so ranks may send it to each other as bytes. 0: not measured.
 */
struct hr_loader_rates {
    size_t size;                /* sizeof, set by the caller */
    int host;                   /* the rank's host, by its index in the list; -1: not in it */
    double own_bytes_per_s;     /* items from its own host's server */
    double peer_bytes_per_s;    /* items from other hosts' servers */
    double storage_bytes_per_s; /* files, with the present number of reads in flight */
    double prepare_bytes_per_s; /* encoded bytes, all its threads together */
    double wait_s;              /* time that the consumer waited in the last epoch */
    double ready_s;             /* mean time from opening a batch until it was ready */
};

/* Errors: -EINVAL without hosts. Any thread. */
HR_API HR_NODISCARD int hr_loader_get_rates(const struct hr_loader *loader,
                                            struct hr_loader_rates *rates, struct hr_error *error);

/*
 * Sets the rates of all ranks, in rank order (copied), that the plan is computed from. Takes
 * effect at the next start or restore of `epoch` or a later one; every rank must pass the same
 * rates before it starts that epoch. Without this call all hosts count as equal. Errors:
 * -EINVAL: no hosts, or a wrong count; -ENOMEM. Consumer's thread.
 */
HR_API HR_NODISCARD int hr_loader_set_rates(struct hr_loader *loader, uint64_t epoch,
                                            const struct hr_loader_rates *ranks, int count,
                                            struct hr_error *error);

/*
 * Changes the hosts that keep the items to those of another "memcached:..." text. Takes effect at
 * the next start or restore of `epoch` or a later one; every rank must pass the same text for the
 * same epoch, and the ranks compare it before the first batch. Errors: -EINVAL: no hosts, or a bad
 * text; -EEXIST; -ENOTSUP; -EACCES; -ENOMEM. Blocks for name lookups. Consumer's thread.
 */
HR_API HR_NODISCARD int hr_loader_set_hosts(struct hr_loader *loader, uint64_t epoch,
                                            const char *cache, struct hr_error *error);

/* One host of the list, as this rank sees it. */
struct hr_loader_host {
    size_t size; /* sizeof, set by the caller */
    char name[256];
    int is_self, is_up;
    int ranks;                                        /* on it; 0 before the first batch */
    uint64_t budget_bytes;                            /* C: limit on its items */
    uint64_t planned_items, planned_bytes;            /* items that the plan assigns to it */
    uint64_t limit_bytes, used_bytes;                 /* as memcached reported them last, at the
                                                         start of an epoch; 0: never asked */
    uint64_t fetched, fetched_bytes, missed;          /* by this rank */
    uint64_t stored, stored_bytes, refused, failures; /* likewise */
    char problem[160];                                /* the last failure; "": none */
};

/* Number of hosts; 0: none. This and the next function may be called from any thread. */
HR_API int hr_loader_host_count(const struct hr_loader *loader);

/* Copies the state of host i; returns 0, or -ERANGE. */
HR_API HR_NODISCARD int hr_loader_host_get(const struct hr_loader *loader, int i,
                                           struct hr_loader_host *out);

/* One replaced sample (on_error = SKIP), or the one that ended an epoch (RAISE). */
struct hr_skipped_sample {
    uint64_t epoch;
    uint64_t index; /* in the dataset */
    char path[1024];
    char reason[256];
};

/* Number of samples skipped so far (details are kept of the newest 10,000). */
HR_API uint64_t hr_loader_skipped_count(const struct hr_loader *loader);

/* Copies the i-th of the kept ones; returns 0, or -ERANGE. */
HR_API HR_NODISCARD int hr_loader_skipped_get(const struct hr_loader *loader, uint64_t i,
                                              struct hr_skipped_sample *out);

/* The same for damaged samples that were accepted (hr_recipe_options.damaged). */
HR_API uint64_t hr_loader_damaged_count(const struct hr_loader *loader);
HR_API HR_NODISCARD int hr_loader_damaged_get(const struct hr_loader *loader, uint64_t i,
                                              struct hr_skipped_sample *out);

/* Copies the path and reason of the sample whose failure ended the epoch (on_error = RAISE).
 * Returns 0 after hr_loader_next failed with a sample's error, otherwise -ENOENT.
 * Consumer's thread. Does not block. */
HR_API HR_NODISCARD int hr_loader_failed_get(const struct hr_loader *loader,
                                             struct hr_skipped_sample *out);

#ifdef __cplusplus
}
#endif

#endif
