/*
 * Where a training run's time goes, and what would change it.
 *
 * Time is measured by difference, not by timers inside the loop (VLDB'21, "Analyzing and
 * Mitigating Data Stalls in DNN Training", section 3): equal segments of training on
 * batches that lie on the device already (`device`), on the host (`host`: adds the copy),
 * really prepared with their data in memory (`warm`: adds preparation) and really
 * fetched (`cold`: adds fetching). `headrace stalls -- python train.py` does that to an
 * unmodified script; hr_stalls_watch_* to a loop in C.
 *
 * What was measured is a record, one for each rank: JSON, see docs/stalls-format.md.
 * hr_stalls_analyse makes a result of the records of a run; a result tells rates, shares
 * and intervals, predicts what changes would bring, and is written as stalls.json, as
 * text, as a page and as a trace. A result never changes once it is made and may be
 * used by several threads.
 *
 * Rates are samples per second of all ranks together.
 */
#ifndef HEADRACE_STALLS_H
#define HEADRACE_STALLS_H

#include <headrace/base.h>
#include <headrace/form.h>
#include <headrace/loader.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A result. */
struct hr_stalls;

/* A figure, and the interval that holds it with 95 % confidence. Unknown: all NaN; an
 * interval that is not known: low and high NaN. */
struct hr_interval {
    double value, low, high;
};

enum hr_stalls_phase {
    HR_STALLS_DEVICE, /* batches replayed from the device's memory */
    HR_STALLS_HOST,   /* batches replayed from the host's memory */
    HR_STALLS_WARM,   /* batches really prepared, their files in memory */
    HR_STALLS_COLD,   /* batches really prepared, their files on storage only */
    HR_STALLS_ALONE,  /* as WARM on one rank, as HOST on all others */
};
#define HR_STALLS_PHASES 5

/* "device", "host", "warm", "cold", "alone": as records have them; NULL for another value. Static
 * storage. */
HR_API const char *hr_stalls_phase_name(enum hr_stalls_phase phase);

/* ---- results ---- */

/*
 * Makes a result of records, each the whole JSON text of one rank's; all of one run, in
 * any order, hosts included. On success *out is the caller's. Errors: -EINVAL, a text is
 * not a record, the records are not of one run, or a rank is there twice (the message
 * says which text, where and what); -ENOTSUP: a version this library does not know;
 * -ENODATA: too little was measured (it says what is missing and why); -ENOMEM. Asks the
 * model what would remove the stall, which may take seconds.
 */
HR_API HR_NODISCARD int hr_stalls_analyse(struct hr_stalls **out, const char *const *records,
                                          const size_t *lengths, int count, struct hr_error *error);

/* Reads what hr_stalls_write wrote. Errors: -EINVAL (the message has the place),
 * -ENOTSUP, a version this library does not know, -ENOMEM, and those of reading. */
HR_API HR_NODISCARD int hr_stalls_read(struct hr_stalls **out, const char *path,
                                       struct hr_error *error);

/* One result of the results of several hosts of one run. Errors: as hr_stalls_analyse. */
HR_API HR_NODISCARD int hr_stalls_merge(struct hr_stalls **out,
                                        const struct hr_stalls *const *parts, int count,
                                        struct hr_error *error);

/* Frees *result and sets it to NULL; accepts NULL and *result == NULL. */
HR_API void hr_stalls_destroy(struct hr_stalls **result);

/* What a result tells in figures. */
struct hr_stalls_summary {
    size_t size;                               /* sizeof, set by the caller */
    int ranks, cores;                          /* cores: of the host that ran rank 0 */
    uint64_t samples;                          /* of the dataset, 0: not known */
    uint64_t bytes;                            /* of the dataset's files, 0: not known */
    int measured[HR_STALLS_PHASES];            /* non-zero: measured, and verified */
    struct hr_interval rate[HR_STALLS_PHASES]; /* training in each phase; samples/s */
    struct hr_interval device_rate;            /* G: the device alone; samples/s */
    struct hr_interval prepare_rate;           /* P: the loader alone, data in memory; samples/s */
    struct hr_interval fetch_rate;    /* F: storage alone, at this loader's depth; samples/s */
    struct hr_interval share[4];      /* of the time of an epoch from storage: compute, copy,
                                         preparation, fetch; sum 1. NaN: not told apart from the
                                         part before or after it, which has it; all NaN: not
                                         measured at all */
    struct hr_interval warm_share[3]; /* of an epoch from memory: compute, copy, preparation */
};

/* Fills the caller's struct. Errors: -EINVAL, `summary->size`. */
HR_API HR_NODISCARD int hr_stalls_get_summary(const struct hr_stalls *result,
                                              struct hr_stalls_summary *summary,
                                              struct hr_error *error);

/* One plain sentence, or a few. The text belongs to the result. */
HR_API const char *hr_stalls_sentence(const struct hr_stalls *result);

/*
 * Writers: the whole file appears at once or not at all (-errno of writing); "-" writes
 * to standard output. `text` is the sentence and the table, in at most `columns` columns.
 * `page` is one HTML file that needs no network. `trace` is Chrome's JSON, which Perfetto
 * opens.
 */
HR_API HR_NODISCARD int hr_stalls_write(const struct hr_stalls *result, const char *path,
                                        struct hr_error *error);
HR_API HR_NODISCARD int hr_stalls_write_text(const struct hr_stalls *result, const char *path,
                                             int columns, struct hr_error *error);
HR_API HR_NODISCARD int hr_stalls_write_page(const struct hr_stalls *result, const char *path,
                                             struct hr_error *error);
HR_API HR_NODISCARD int hr_stalls_write_trace(const struct hr_stalls *result, const char *path,
                                              struct hr_error *error);

/* ---- what if ---- */

enum hr_stalls_loader {
    HR_STALLS_LOADER_SAME,     /* the one that was measured */
    HR_STALLS_LOADER_HEADRACE, /* Headrace's, at its cost per sample measured on these files */
};

/* What would be different. The default changes nothing. */
struct hr_stalls_change {
    size_t size;
    double cache_share;         /* of the dataset's bytes that need no storage, 0..1; < 0: as it was
                                   (the page cache, or the loader's own cache) */
    uint64_t cache_bytes;       /* instead of cache_share: a cache of that many bytes that never
                                   evicts; 0: not given */
    int page_cache;             /* non-zero: the cache is the kernel's page cache, which evicts what
                                   an epoch still needs; its misses follow the measured curve */
    int cores;                  /* of each host; 0: as it was */
    double storage_bytes_per_s; /* of each host; 0: as it was */
    double storage_factor;      /* instead: times as fast as measured; 0: not given */
    double device_speedup;      /* 2: a step takes half the time; 0: as it was */
    int ranks;                  /* all together, each as fast as now; 0: as it was */
    int workers;                /* of each rank; 0: as it was */
    enum hr_stalls_loader loader;
    int form; /* enum hr_form, with HR_STALLS_LOADER_HEADRACE; HR_FORM_AUTO: of those that
                 were measured, the one with which training is fastest */
};

/* Fills in the defaults of a struct of `size` bytes, of whatever version; C programs call
 * the next one. */
HR_API void hr_stalls_change_init(struct hr_stalls_change *change, size_t size);
static inline void hr_stalls_change_default(struct hr_stalls_change *change)
{
    hr_stalls_change_init(change, sizeof *change);
}

/* What the model says. */
struct hr_stalls_prediction {
    size_t size;
    double rate;           /* samples/s, of an epoch in a steady state */
    double low, high;      /* as sure as what was measured and the model allow, which is 5 % at
                              best; NaN: not known */
    double share[4];       /* of the time: compute, copy, preparation, fetch; sum 1 */
    double reference_rate; /* min(F, P, G) of the paper's model */
    double device_rate, prepare_rate, fetch_rate; /* G, P, F under the change; F is
                                                     infinite where nothing is fetched */
    double core_share;                            /* of all cores that is busy, 0..1 */
    int extrapolated; /* non-zero: beyond what this machine could measure */
    char why[256];    /* what is extrapolated or assumed; "" for nothing */
    double cached;    /* share of the samples for which there is room in memory, 0..1 */
    int measured;     /* non-zero: nothing changes, and rate and shares are what was measured */
};

/*
 * Predicts training under a change. Pure: the same for the same result and change.
 * Errors: -EINVAL, a change makes no sense (the message says which and what would);
 * -ENODATA: it needs what was not measured, or is known too badly: an interval is wider than
 * half its figure either way, or the model does not explain what was measured (the message
 * says what, and how to get it).
 */
HR_API HR_NODISCARD int hr_stalls_predict(const struct hr_stalls *result,
                                          const struct hr_stalls_change *change,
                                          struct hr_stalls_prediction *prediction,
                                          struct hr_error *error);

/* The cheapest single change that leaves at most `stall` of the time to waiting, in this
 * order of cost: nothing; Headrace's loader; a cache of the memory that is there; more
 * cores or workers; a faster disk; both of two. Returns the number of suggestions, at most
 * `capacity`, each with the change and its prediction; 0: none removes it. Errors as
 * hr_stalls_predict. */
struct hr_stalls_suggestion {
    size_t size; /* sizeof, set by the caller in the first of the array */
    struct hr_stalls_change change;
    struct hr_stalls_prediction prediction;
    char text[160]; /* "12 cores per GPU", "Headrace's loader" */
};
HR_API HR_NODISCARD int hr_stalls_suggest(const struct hr_stalls *result, double stall,
                                          struct hr_stalls_suggestion *suggestions, int capacity,
                                          struct hr_error *error);

/* ---- which segment comes next: for those who run the segments themselves ---- */

/*
 * A pure state machine, the same for the probe in Python and for a watched loop in C. It
 * knows no clock: who runs the segments tells it how long they took.
 *
 * A round is one segment of each phase that can be measured. Rounds alternate in order
 * (device, host, cold, warm; warm, cold, host, device), so that a drift of the machine
 * cancels between neighbours (ABBA), and each has an index set of its own, the same for
 * its cold and its warm segment. At least four are run; it stops after an even number of
 * them once every share's interval is narrow enough, or when a limit is reached. With
 * several ranks, two ALONE segments for each rank follow (of more than 16 ranks, for 16
 * spread over all; for fewer where they would not fit). A limit never ends it before four
 * rounds, because fewer give no interval to rely on; from then on what would not fit, by what was
 * so far, is not begun.
 */
struct hr_stalls_schedule;

struct hr_stalls_schedule_options {
    size_t size;
    int phases;           /* bits: 1 << enum hr_stalls_phase; at least one of DEVICE and
                             HOST; ALONE is added by itself where ranks > 1 */
    int ranks;            /* of the run; default 1 */
    uint64_t batches;     /* of one segment, timed; default 20 */
    uint64_t settle;      /* batches before them that are not timed; default 2 */
    uint64_t max_batches; /* settling ones included; 0 (default): no limit */
    double max_s;         /* of segments and what lies between them; default 150; 0: none */
    double precision;     /* half a share's interval that is narrow enough; default 0.02 */
};
HR_API void hr_stalls_schedule_options_init(struct hr_stalls_schedule_options *options,
                                            size_t size);
static inline void hr_stalls_schedule_options_default(struct hr_stalls_schedule_options *options)
{
    hr_stalls_schedule_options_init(options, sizeof *options);
}

struct hr_stalls_segment {
    size_t size; /* set by the caller */
    enum hr_stalls_phase phase;
    int round;   /* from 0; of ALONE: 0 and 1 */
    int set;     /* index set: a round's number; of ALONE: one not used before */
    int rank;    /* of ALONE: the one that loads; otherwise -1 */
    int preread; /* non-zero: its files have to be read first (WARM before, or without, COLD
                    of its set; ALONE) */
    uint64_t settle, batches;
};

enum hr_stalls_end {
    HR_STALLS_GOES_ON,
    HR_STALLS_PRECISE, /* narrow enough */
    HR_STALLS_LIMIT,   /* batches or seconds */
};

/* Errors: -EINVAL names the option; -ENOMEM. One thread at a time. */
HR_API HR_NODISCARD int hr_stalls_schedule_create(struct hr_stalls_schedule **out,
                                                  const struct hr_stalls_schedule_options *options,
                                                  struct hr_error *error);
HR_API void hr_stalls_schedule_destroy(struct hr_stalls_schedule **schedule);

/* The next segment: 1 and *segment, or 0 at the end. Asked again without a report in
 * between, it gives the same. */
HR_API int hr_stalls_schedule_next(struct hr_stalls_schedule *schedule,
                                   struct hr_stalls_segment *segment);

/* Reports the segment last given: seconds of its timed part; all seconds it took, settling
 * and what came before it included. */
HR_API void hr_stalls_schedule_report(struct hr_stalls_schedule *schedule, double timed_s,
                                      double all_s);

/* A phase turned out not to be measurable (COLD where nothing can be dropped): it is left
 * out from now on, the segment given but not yet reported included. */
HR_API void hr_stalls_schedule_drop(struct hr_stalls_schedule *schedule,
                                    enum hr_stalls_phase phase);

/* How far it is, for a progress bar: 0..1, never falling; and whether and why it ended. */
HR_API double hr_stalls_schedule_progress(const struct hr_stalls_schedule *schedule);
HR_API enum hr_stalls_end hr_stalls_schedule_end(const struct hr_stalls_schedule *schedule);

/* ---- measuring a loop in C ---- */

/* Replays a training loop in segments. */
struct hr_stalls_watch;

struct hr_stalls_watch_options {
    size_t size;
    uint64_t warm_up;        /* batches before anything is measured; default 5 */
    uint64_t batches;        /* at most, measured ones; 0 (default): until time_s */
    double time_s;           /* about so long at most; default 150; 0: until precise */
    double precision;        /* narrow enough: half a share's interval; default 0.02 */
    int threads_of_training; /* cores that the training step keeps busy; default 1 */
    /* NULL: the step ends when the caller asks for the next batch. Otherwise called at
     * the ends of segments, to wait for what an accelerator still does. */
    void (*synchronize)(void *arg);
    void *arg;
};

HR_API void hr_stalls_watch_options_init(struct hr_stalls_watch_options *options, size_t size);
static inline void hr_stalls_watch_options_default(struct hr_stalls_watch_options *options)
{
    hr_stalls_watch_options_init(options, sizeof *options);
}

/*
 * Measures with `loader`, which must have been made with external order
 * (hr_loader_options.external_order) and outlives the watch; the loop calls hr_stalls_watch_next
 * in place of hr_loader_next and otherwise does what it always does. Which samples come
 * is the watch's choice: a measuring run is thrown away. Until the watch is closed nothing
 * else uses the loader; afterwards it is as before, but for a new epoch. Errors: -EINVAL
 * names the option, or tells that the order is not external; -ENOTSUP: a loader of several
 * ranks, or of an agent; -EINTR: a signal; -ECHILD; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_stalls_watch_open(struct hr_stalls_watch **out, struct hr_loader *loader,
                                             const struct hr_stalls_watch_options *options,
                                             struct hr_error *error);

/* The next batch: 1 and *batch, released with hr_batch_release as ever, also after the
 * watch and the loader are gone; 0 and NULL when enough is known. Blocks for the loader,
 * and between segments for files. Errors: those of hr_loader_next, after which it is over
 * and what was measured before counts; -EINTR: a signal, call again. One thread at a time. */
HR_API HR_NODISCARD int hr_stalls_watch_next(struct hr_stalls_watch *watch, struct hr_batch **batch,
                                             struct hr_error *error);

/* The result of what was measured so far. Errors: as hr_stalls_analyse. */
HR_API HR_NODISCARD int hr_stalls_watch_result(struct hr_stalls_watch *watch,
                                               struct hr_stalls **out, struct hr_error *error);

/* Accepts NULL and *watch == NULL. */
HR_API void hr_stalls_watch_close(struct hr_stalls_watch **watch);

#ifdef __cplusplus
}
#endif

#endif
