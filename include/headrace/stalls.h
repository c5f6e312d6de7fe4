/*
 * Data stalls: measures where a training run's time goes, and predicts what would change it.
 *
 * Time is measured by difference, not by timers inside the loop (VLDB'21, "Analyzing and
 * Mitigating Data Stalls in DNN Training", section 3). Training runs in equal segments on
 * batches already on the device (`device`); on batches on the host (`host`: adds the copy);
 * on batches really prepared from files in memory (`warm`: adds preparation); and on
 * batches also read from storage (`cold`: adds fetching). `headrace stalls -- python
 * train.py` does this to an unmodified script, hr_stalls_watch_* to a loop in C.
 *
 * The measurements of one rank are a record, in JSON (docs/stalls-format.md).
 * hr_stalls_analyse computes a result from the records of a run. A result has rates, shares
 * and intervals, can predict the effect of changes, and can be written as stalls.json, as
 * text, as a page and as a trace. A result never changes once it is made, and several
 * threads may use it.
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

/* A figure and its 95 % confidence interval. Unknown: all NaN. Unknown interval: low and high
 * are NaN. */
struct hr_interval {
    double value, low, high;
};

enum hr_stalls_phase {
    HR_STALLS_DEVICE, /* batches replayed from the device's memory */
    HR_STALLS_HOST,   /* batches replayed from the host's memory */
    HR_STALLS_WARM,   /* batches really prepared, from files in memory */
    HR_STALLS_COLD,   /* batches really prepared, from files on storage only */
    HR_STALLS_ALONE,  /* like WARM on one rank, like HOST on all others */
};
#define HR_STALLS_PHASES 5

/* "device", "host", "warm", "cold", "alone", as in records; NULL for another value. Static
 * storage. */
HR_API const char *hr_stalls_phase_name(enum hr_stalls_phase phase);

/* The same for people: "batches on the device", "batches prepared", "files in memory", "files on
 * storage", "one rank loading". */
HR_API const char *hr_stalls_phase_title(enum hr_stalls_phase phase);

/* Names of the shares of time, in their order: "compute", "copy", "preparation", "fetch"; NULL for
 * another index. Static storage. */
#define HR_STALLS_SHARES 4
HR_API const char *hr_stalls_share_name(int share);

/* ---- results ---- */

/*
 * Makes a result from the records of all ranks of one run, on all hosts, in any order. Each
 * text is the whole JSON of one record. On success the caller owns *out. Errors: -EINVAL: a
 * text is not a record, the records are not of one run, or a rank occurs twice (the message
 * says which text, where and what); -ENOTSUP: a version this library does not know;
 * -ENODATA: too little was measured (the message says what is missing and why); -ENOMEM. May
 * take seconds, because it also computes what would remove the stall.
 */
HR_API HR_NODISCARD int hr_stalls_analyse(struct hr_stalls **out, const char *const *records,
                                          const size_t *lengths, int count, struct hr_error *error);

/* Reads a file that hr_stalls_write wrote. Errors: -EINVAL (the message has the place),
 * -ENOTSUP: a version this library does not know; -ENOMEM; those of reading. */
HR_API HR_NODISCARD int hr_stalls_read(struct hr_stalls **out, const char *path,
                                       struct hr_error *error);

/* Merges the results of several hosts of one run. Errors: as hr_stalls_analyse. */
HR_API HR_NODISCARD int hr_stalls_merge(struct hr_stalls **out,
                                        const struct hr_stalls *const *parts, int count,
                                        struct hr_error *error);

/* Frees *result and sets it to NULL; accepts NULL and *result == NULL. */
HR_API void hr_stalls_destroy(struct hr_stalls **result);

/* The figures of a result. */
struct hr_stalls_summary {
    size_t size;                               /* sizeof, set by the caller */
    int ranks, cores;                          /* cores: of the host of rank 0 */
    uint64_t samples;                          /* in the dataset, 0: unknown */
    uint64_t bytes;                            /* of the dataset's files, 0: unknown */
    int measured[HR_STALLS_PHASES];            /* non-zero: measured, and verified */
    struct hr_interval rate[HR_STALLS_PHASES]; /* training in each phase; samples/s */
    struct hr_interval device_rate;            /* G: the device alone; samples/s */
    struct hr_interval prepare_rate;           /* P: the loader alone, data in memory; samples/s */
    struct hr_interval fetch_rate;    /* F: storage alone, at this loader's depth; samples/s */
    struct hr_interval share[4];      /* of the time of an epoch from storage: compute, copy,
                                         preparation, fetch; sum 1. NaN: could not be separated
                                         from the part before or after it, which includes it; all
                                         NaN: not measured at all */
    struct hr_interval warm_share[3]; /* of an epoch from memory: compute, copy, preparation */
    int contradicts;                  /* non-zero: a phase whose files were where they should be
                                         does not count, because figures contradict each other */
};

/* Fills in *summary. Errors: -EINVAL: `summary->size`. */
HR_API HR_NODISCARD int hr_stalls_get_summary(const struct hr_stalls *result,
                                              struct hr_stalls_summary *summary,
                                              struct hr_error *error);

/* The main finding in one or a few plain sentences. The result owns the text. */
HR_API const char *hr_stalls_sentence(const struct hr_stalls *result);

/*
 * Writers. Each writes a whole file or none (a negative errno if writing fails); "-" is
 * standard output. `text` is the sentence and the table, at most `columns` wide.
 * `page` is one HTML file that needs no network. `trace` is Chrome's JSON format, which
 * Perfetto opens.
 */
HR_API HR_NODISCARD int hr_stalls_write(const struct hr_stalls *result, const char *path,
                                        struct hr_error *error);
HR_API HR_NODISCARD int hr_stalls_write_text(const struct hr_stalls *result, const char *path,
                                             int columns, struct hr_error *error);
HR_API HR_NODISCARD int hr_stalls_write_page(const struct hr_stalls *result, const char *path,
                                             struct hr_error *error);
HR_API HR_NODISCARD int hr_stalls_write_trace(const struct hr_stalls *result, const char *path,
                                              struct hr_error *error);

/* ---- predictions ---- */

enum hr_stalls_loader {
    HR_STALLS_LOADER_SAME,     /* the one that was measured */
    HR_STALLS_LOADER_HEADRACE, /* Headrace's, with its cost per sample measured on these files */
};

/* A change to predict. The default changes nothing. */
struct hr_stalls_change {
    size_t size;
    double cache_share;         /* share of the dataset's bytes that need no storage, 0..1; < 0: as
                                   measured (the page cache, or the loader's own cache) */
    uint64_t cache_bytes;       /* instead of cache_share: a cache of this size that never
                                   evicts; 0: not set */
    int page_cache;             /* non-zero: the cache is the kernel's page cache, which evicts what
                                   an epoch still needs; its misses follow the measured curve */
    int cores;                  /* of each host; 0: as measured */
    double storage_bytes_per_s; /* of each host; 0: as measured */
    double storage_factor;      /* instead: speed relative to the measured one; 0: not set */
    double device_speedup;      /* 2: a step takes half the time; 0: as measured */
    int ranks;                  /* in all, each as fast as measured; 0: as measured */
    int workers;                /* of each rank; 0: as measured */
    enum hr_stalls_loader loader;
    int form; /* enum hr_form, with HR_STALLS_LOADER_HEADRACE; HR_FORM_AUTO: the measured form
                 with which training is fastest */
};

/* Sets the defaults of a struct of `size` bytes, of any version. C programs call
 * the next function. */
HR_API void hr_stalls_change_init(struct hr_stalls_change *change, size_t size);
static inline void hr_stalls_change_default(struct hr_stalls_change *change)
{
    hr_stalls_change_init(change, sizeof *change);
}

/* The model's prediction. */
struct hr_stalls_prediction {
    size_t size;
    double rate;           /* samples/s, of an epoch in a steady state */
    double low, high;      /* interval from the uncertainty of measurement and model, at least
                              5 %; NaN: unknown */
    double share[4];       /* of the time: compute, copy, preparation, fetch; sum 1 */
    double reference_rate; /* min(F, P, G) of the paper's model */
    double device_rate, prepare_rate, fetch_rate; /* G, P, F under the change; F is
                                                     infinite if nothing is fetched */
    double core_share;                            /* share of all cores that is busy, 0..1 */
    int extrapolated; /* non-zero: beyond what could be measured on this machine */
    char why[256];    /* what is extrapolated or assumed; "" for nothing */
    double cached;    /* share of the samples that fit in memory, 0..1 */
    int measured;     /* non-zero: nothing changes; rate and shares are the measured ones */
};

/*
 * Predicts training under a change. Pure: the same result and change give the same prediction.
 * Errors: -EINVAL: the change makes no sense (the message says why and what would);
 * -ENODATA: it needs figures that were not measured or are too uncertain: an interval is wider than
 * half its figure either way, or the model does not explain the measurements (the message
 * says which, and how to get them).
 */
HR_API HR_NODISCARD int hr_stalls_predict(const struct hr_stalls *result,
                                          const struct hr_stalls_change *change,
                                          struct hr_stalls_prediction *prediction,
                                          struct hr_error *error);

/* Finds the cheapest single change that leaves at most `stall` of the time to waiting. Tries,
 * in order of cost: nothing; Headrace's loader; a cache in the present memory; more
 * cores or workers; a faster disk; two of these together. With the stall 0.02 gives those that
 * the result already has: only their predictions are computed. Otherwise searches, which may take
 * seconds. Where only two
 * changes together suffice, the first suggestion is Headrace's loader alone if it removes at least
 * three quarters of the waiting; its prediction says what remains. Returns the number of
 * suggestions, at most `capacity`, each with the change and its prediction; 0: no change suffices.
 * Errors: as hr_stalls_predict. */
struct hr_stalls_suggestion {
    size_t size; /* sizeof, set by the caller in the first of the array */
    struct hr_stalls_change change;
    struct hr_stalls_prediction prediction;
    char text[160]; /* "12 cores per GPU", "Headrace's loader" */
};
HR_API HR_NODISCARD int hr_stalls_suggest(const struct hr_stalls *result, double stall,
                                          struct hr_stalls_suggestion *suggestions, int capacity,
                                          struct hr_error *error);

/* ---- which segment comes next: for programs that run the segments themselves ---- */

/*
 * A pure state machine, used by the Python probe and by a watched loop in C. It
 * has no clock: the caller reports how long each segment took.
 *
 * A round is one segment of each phase that can be measured. Successive rounds reverse the order
 * (device, host, cold, warm; warm, cold, host, device), so that a drift of the machine
 * cancels between neighbours (ABBA). Each round has its own index set, which its cold and
 * its warm segment share. At least four rounds run. The schedule ends after an even number of
 * rounds once every share's interval is narrow enough, or when a limit is reached. With
 * several ranks, two ALONE segments for each rank follow (with more than 16 ranks, for 16
 * spread over all; for fewer if they would not fit). A limit never ends the schedule before four
 * rounds, because fewer give no reliable interval. After that, a segment is not begun if it would
 * exceed a limit, judging by the times so far.
 */
struct hr_stalls_schedule;

struct hr_stalls_schedule_options {
    size_t size;
    int phases;           /* bits: 1 << enum hr_stalls_phase; at least one of DEVICE and
                             HOST; ALONE is added automatically if ranks > 1 */
    int ranks;            /* of the run; default 1 */
    uint64_t batches;     /* timed batches of one segment; default 20 */
    uint64_t settle;      /* untimed batches before them; default 2 */
    uint64_t max_batches; /* settling ones included; 0 (default): no limit */
    double max_s;         /* of segments and the time between them; default 150; 0: no limit */
    double precision;     /* half-width of a share's interval to reach; default 0.02 */
};
HR_API void hr_stalls_schedule_options_init(struct hr_stalls_schedule_options *options,
                                            size_t size);
static inline void hr_stalls_schedule_options_default(struct hr_stalls_schedule_options *options)
{
    hr_stalls_schedule_options_init(options, sizeof *options);
}

/* What is known before the first segment. */
struct hr_stalls_pace {
    size_t size;
    double step_s;          /* a step on a replayed batch */
    double load_s;          /* a batch of the loader, with its step */
    double segment_s;       /* length of a segment to reach, and its batches, if more; default 3 */
    uint64_t batches;       /* default 8 */
    uint64_t ahead;         /* most batches that the loader prepares ahead */
    uint64_t unit;          /* a segment has a multiple of so many batches; default 1 */
    uint64_t epoch_batches; /* of the shortest epoch of a rank: a segment repeats no file; 0: not
                               known */
};
HR_API void hr_stalls_pace_init(struct hr_stalls_pace *pace, size_t size);
static inline void hr_stalls_pace_default(struct hr_stalls_pace *pace)
{
    hr_stalls_pace_init(pace, sizeof *pace);
}

/*
 * Sets `batches` and `settle` of the options, whose phases and limits are set. Settling batches are
 * as many as the loader has ahead, at least 2. Six rounds are to fit into max_s, and a segment is
 * at least three times as long as the loader's batches ahead; fewer if not even four rounds would
 * fit. With max_batches, four rounds fit. Errors: -EINVAL names the member.
 */
HR_API HR_NODISCARD int hr_stalls_schedule_fit(struct hr_stalls_schedule_options *options,
                                               const struct hr_stalls_pace *pace,
                                               struct hr_error *error);

struct hr_stalls_segment {
    size_t size; /* set by the caller */
    enum hr_stalls_phase phase;
    int round;   /* from 0; of ALONE: 0 and 1 */
    int set;     /* index set: a round's number; of ALONE: one not used before */
    int rank;    /* of ALONE: the rank that loads; otherwise -1 */
    int preread; /* non-zero: read its files into memory first (WARM before, or without, COLD
                    of its set; ALONE) */
    uint64_t settle, batches;
    int full; /* non-zero: begin once the loader's queue is full */
};

enum hr_stalls_end {
    HR_STALLS_GOES_ON,
    HR_STALLS_PRECISE, /* the intervals are narrow enough */
    HR_STALLS_LIMIT,   /* the limit of batches or seconds is reached */
};

/* Errors: -EINVAL names the option; -ENOMEM. Only one thread at a time. */
HR_API HR_NODISCARD int hr_stalls_schedule_create(struct hr_stalls_schedule **out,
                                                  const struct hr_stalls_schedule_options *options,
                                                  struct hr_error *error);
HR_API void hr_stalls_schedule_destroy(struct hr_stalls_schedule **schedule);

/* Gets the next segment: returns 1 and *segment, or 0 at the end. Until the segment is
 * reported, further calls return the same one. */
HR_API int hr_stalls_schedule_next(struct hr_stalls_schedule *schedule,
                                   struct hr_stalls_segment *segment);

/* Reports the segment last returned. timed_s: seconds of its timed part; all_s: seconds of all of
 * it, with its settling batches and the preparations before it. */
HR_API void hr_stalls_schedule_report(struct hr_stalls_schedule *schedule, double timed_s,
                                      double all_s);

/* What the caller must do with the segment last returned, once it has run; see
 * hr_stalls_schedule_again. */
enum hr_stalls_again {
    HR_STALLS_COUNTS,       /* report it */
    HR_STALLS_DISTURBED,    /* run it again; report the least disturbed try in the end */
    HR_STALLS_UNSETTLED,    /* run it again; no try so far counts */
    HR_STALLS_NONE_SETTLED, /* the same, and earlier segments of its phase do not count either */
};
struct hr_stalls_evidence;

/*
 * Decides whether the segment last returned is run again, before it is reported. Uses these members
 * of the evidence: disturbed, all_s, waited_s, elapsed_s, queue_ahead, queue_end.
 *
 * A disturbed segment is run up to three times, as long as this takes at most 0.3 of max_s.
 * Segments that load must begin with the queue that the loader has in the middle of an epoch: full
 * if training hardly waits (less than 0.08 of the time), otherwise empty, because the batches of a
 * full queue were prepared before the segment. The first segment of a phase begins with an empty
 * queue and decides this. If a later one begins with a full queue and ends with less than half of
 * it, segments begin with an empty one from then on.
 */
HR_API enum hr_stalls_again hr_stalls_schedule_again(struct hr_stalls_schedule *schedule,
                                                     const struct hr_stalls_evidence *evidence);

/* Declares that a phase cannot be measured (COLD if nothing can be evicted). The schedule leaves it
 * out from now on, including a segment of it that was returned but not yet reported. */
HR_API void hr_stalls_schedule_drop(struct hr_stalls_schedule *schedule,
                                    enum hr_stalls_phase phase);

/* The progress, for a progress bar: 0..1, never falling; and whether and why the schedule ended. */
HR_API double hr_stalls_schedule_progress(const struct hr_stalls_schedule *schedule);
HR_API enum hr_stalls_end hr_stalls_schedule_end(const struct hr_stalls_schedule *schedule);

/* ---- what a segment proves: for programs that run the segments themselves ---- */

/* Time on the cores that this process may use, counted from an arbitrary moment: only differences
 * are meaningful. NaN: the kernel does not report it. */
struct hr_stalls_load {
    size_t size;        /* set by the caller */
    int cores;          /* that this process may use */
    double at_s;        /* clock */
    double busy_s;      /* CPU time of all processes on these cores */
    double steal_s;     /* time that the hypervisor took from them */
    double run_s;       /* CPU time of the run: of a process and all below it */
    double run_delay_s; /* time that ready threads of the run waited for a core */
    double throttled_s; /* time that a CPU quota held this process's control group back */
};

/* Reads the load. `root` is the run's topmost process: this one or one above it. Blocks for a few
 * reads of /proc for each thread of the run. */
HR_API void hr_stalls_load_read(struct hr_stalls_load *load, int root);

/* What is known about the bytes that a segment has to read. */
enum hr_stalls_reads {
    HR_STALLS_READS_KNOWN,     /* file by file */
    HR_STALLS_READS_ESTIMATED, /* from the files of the whole dataset */
    HR_STALLS_READS_UNKNOWN,   /* which files hold the samples is not known */
    HR_STALLS_READS_NOTHING,   /* the samples are in memory */
};

/*
 * Measurements of a segment, and the conclusions from them. NaN: not known. Bytes are those of the
 * whole segment, with the batches that settle or are read ahead; times are those of its timed part.
 */
struct hr_stalls_evidence {
    size_t size;
    enum hr_stalls_phase phase; /* COLD and WARM must be verified; ALONE loads warm files */
    /* Where the bytes came from. */
    int reads;             /* enum hr_stalls_reads */
    double read_bytes;     /* from storage, by all processes of the run */
    double expected_bytes; /* of the files: to read (COLD), in memory (WARM) */
    double cold_bytes;     /* if expected_bytes is NaN: the most that a cold segment read */
    double bytes;          /* of the files that were evicted before the segment */
    double resident_bytes; /* part of them that stayed in memory */
    int in_memory;         /* the file system has no storage */
    int network;           /* the file system, or the samples, are perhaps on another machine */
    char filesystem[32];   /* its name; "": not known */
    /* Load; differences of hr_stalls_load. If load_s is 0, `others` and `disturbed` stay as given.
     */
    int cores;
    double load_s, busy_s, steal_s, run_s, run_delay_s, throttled_s;
    /* Time, and the loader's queue. */
    double elapsed_s, all_s; /* timed part, without pauses; with all that comes before it */
    double waited_s;         /* blocked in next() */
    double queue_ahead;      /* most batches that the loader prepares ahead */
    double queue_end;        /* batches that were ready at the end */
    int unsettled;           /* HR_STALLS_NONE_SETTLED was returned later */
    int tries, pauses;
    double paused_s;
    /* Conclusions. */
    int verified;     /* 1: cold was cold, or warm was warm; 0: not; -1: nothing to prove */
    char reason[200]; /* if verified is 0 */
    double others;    /* share of the cores' time used by other processes and the hypervisor; NaN:
                         not known, or the time is too short for the kernel's clock */
    int disturbed;    /* non-zero: too much, and it delayed the run */
};
HR_API void hr_stalls_evidence_init(struct hr_stalls_evidence *evidence, size_t size);
static inline void hr_stalls_evidence_default(struct hr_stalls_evidence *evidence)
{
    hr_stalls_evidence_init(evidence, sizeof *evidence);
}

/*
 * Fills in the conclusions. A cold segment is verified if it reads nearly all of its files' bytes
 * from storage (0.9; 0.5 if they are estimated) and hardly any of these files stayed in memory. A
 * warm one is verified if it reads at most 0.05 of them, or 1 MiB. A segment is disturbed if others
 * take more than 0.1 of the cores' time and threads of the run wait for a core for more than 0.05
 * of the time, or if the hypervisor alone takes 0.1. Errors: -EINVAL: `size`.
 */
HR_API HR_NODISCARD int hr_stalls_judge(struct hr_stalls_evidence *evidence,
                                        struct hr_error *error);

/*
 * Finds pauses: work of the loop now and then between two steps (evaluation, logging, a
 * checkpoint). For each of `count` batches, wait_s has the seconds blocked in next(), and batch_s
 * the seconds from one next() to the following one. step_s is the time of a step with its work on
 * the device: a step that waits until an accelerator has finished earlier ones is not a pause.
 * Writes the seconds to subtract from each batch to pause_s, and returns the number of pauses; 0 if
 * more than a quarter of the batches would have one.
 */
HR_API size_t hr_stalls_pauses(const double *wait_s, const double *batch_s, size_t count,
                               double step_s, double *pause_s);

/* Writes notes about a run's judged segments, for the person who reads the result, and returns
 * their number. `unheld`: text to add to the note on warm segments that read from storage, or "".
 */
#define HR_STALLS_NOTES 4
HR_API int hr_stalls_segment_notes(const struct hr_stalls_evidence *segments, size_t count,
                                   const char *unheld, char notes[HR_STALLS_NOTES][400]);

/* ---- measuring a loop in C ---- */

/* Measures a training loop in segments. */
struct hr_stalls_watch;

struct hr_stalls_watch_options {
    size_t size;
    uint64_t warm_up;        /* batches before the measurement; default 5 */
    uint64_t batches;        /* limit on measured batches; 0 (default): none, only time_s */
    double time_s;           /* approximate limit; default 150; 0: until precise. If the figures
                                contradict each other, everything is measured once more */
    double precision;        /* half-width of a share's interval to reach; default 0.02 */
    int threads_of_training; /* cores that the training step keeps busy; default 1 */
    /* NULL: the step ends when the caller asks for the next batch. Otherwise called at
     * the end of each segment, to wait for pending work of an accelerator. */
    void (*synchronize)(void *arg);
    void *arg;
};

HR_API void hr_stalls_watch_options_init(struct hr_stalls_watch_options *options, size_t size);
static inline void hr_stalls_watch_options_default(struct hr_stalls_watch_options *options)
{
    hr_stalls_watch_options_init(options, sizeof *options);
}

/*
 * Starts measuring with `loader`, which must have external order
 * (hr_loader_options.external_order) and must outlive the watch. The loop calls
 * hr_stalls_watch_next in place of hr_loader_next and otherwise works as usual. The watch
 * chooses the samples; discard what a measuring run trains. Until the watch is closed, nothing
 * else may use the loader; after that the loader is as before, at the start of an epoch. Errors:
 * -EINVAL names the option, or says that the order is not external; -ENOTSUP: a loader of several
 * ranks, of an agent, or of a dataset with masks; -EINTR: a signal; -ECHILD; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_stalls_watch_open(struct hr_stalls_watch **out, struct hr_loader *loader,
                                             const struct hr_stalls_watch_options *options,
                                             struct hr_error *error);

/* Gets the next batch. Returns 1 and *batch; release it with hr_batch_release as usual, even after
 * the watch and the loader are gone. Returns 0 and NULL when enough has been measured. Blocks for
 * the loader and, between segments, for files. Errors: those of hr_loader_next, which end the
 * measurement but keep what was measured before; -EINTR: a signal, call again. Only one thread at
 * a time. */
HR_API HR_NODISCARD int hr_stalls_watch_next(struct hr_stalls_watch *watch, struct hr_batch **batch,
                                             struct hr_error *error);

/* Makes a result from the measurements so far. Errors: as hr_stalls_analyse. */
HR_API HR_NODISCARD int hr_stalls_watch_result(struct hr_stalls_watch *watch,
                                               struct hr_stalls **out, struct hr_error *error);

/* Ends the measurement and sets *watch to NULL. Accepts *watch == NULL. */
HR_API void hr_stalls_watch_close(struct hr_stalls_watch **watch);

#ifdef __cplusplus
}
#endif

#endif
