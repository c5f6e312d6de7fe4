/*
 * Measures the data stalls of a training loop in C: internals of headrace/stalls.h.
 *
 *   watch.c     the public functions: chooses which batch the loop gets next
 *   common.c    what all of these use: marks of time, notes, batches to drain
 *   replay.c    keeps batches that the loop gets again and again
 *   end.c       ends a segment: whether it counts or runs again
 *   set.c       index sets: selects samples, evicts or preloads them, verifies the result
 *   alone.c     measures the loader and the storage without training
 *   confine.c   confines this process to fewer cores
 *   load.c      reads the load of the machine
 *   record.c    writes the measurements as a record
 *
 * A watch is a state machine that hr_stalls_watch_next drives. It warms up; for each segment that
 * hr_stalls_schedule_* chooses, it begins, runs and ends the segment; then it measures what needs
 * no training. What a segment proves, and whether it runs again, hr_stalls_judge and the schedule
 * decide. If the figures contradict each other at the end, everything is measured once more in
 * segments twice as long. A signal may interrupt any step that waits for the loader or for storage
 * (-EINTR); the next call continues or repeats that step.
 *
 * Each segment that loads data is an epoch of its own, numbered by its index set. So the cold and
 * the warm segment of a set have the same batches, random parameters included.
 */
#ifndef HR_STALLS_WATCH_INSIDE_H
#define HR_STALLS_WATCH_INSIDE_H

#include "base/clock.h"
#include "loader/inside.h"
#include "loader/schedule.h"

#include <headrace/stalls.h>
#include <headrace/storage.h>

#include <stdbool.h>

/* Number of batches kept for replay. */
#define HR__WATCH_KEPT 2

/* Upper bounds: core counts at which the loader is drained, drains on all cores, and cold drains.
 * The latter two are repeated to get a confidence interval. */
#define HR__WATCH_CORES       12
#define HR__WATCH_ALL_DRAINS  3
#define HR__WATCH_COLD_DRAINS 2
#define HR__WATCH_DRAINS      (HR__WATCH_CORES + HR__WATCH_ALL_DRAINS + HR__WATCH_COLD_DRAINS)

/* Largest number of read depths at which storage is measured. */
#define HR__WATCH_DEPTHS 4

enum hr__watch_stage {
    HR__WATCH_WARM_UP,
    HR__WATCH_BEGIN, /* of a segment */
    HR__WATCH_FILL,  /* until the loader has prepared all that it prepares ahead */
    HR__WATCH_RUN,
    HR__WATCH_END,
    HR__WATCH_AFTER, /* the loop has ended */
    HR__WATCH_OVER,
};

/* Cumulative counters; the difference of two marks describes a segment. */
struct hr__watch_mark {
    uint64_t ns;             /* watch's clock: excludes the watch's own work */
    uint64_t process_cpu_ns; /* process, without the loader's threads */
    uint64_t worker_cpu_ns;  /* loader's threads */
    uint64_t prepare_ns;     /* decode and recipe, wall clock */
    double read_bytes;       /* read from storage by the process; NaN: unknown */
};

/* One measured segment. */
struct hr__watch_segment {
    struct hr_stalls_segment what;
    struct hr__watch_mark begin, end; /* of the timed part */
    uint64_t samples;                 /* in the timed part */
    double expected_bytes;            /* of files the timed part must read; 0 in a replay */
    double queue_begin;               /* batches that were ready; NaN in a replay */
    struct hr_stalls_load load;       /* at the beginning of the timed part */
    struct hr_stalls_evidence proof;  /* complete once the segment has ended */
    double *wait_s, *batch_s;         /* what.batches values each; one allocation, wait_s first */
};

/* One measurement of the loader without training. */
struct hr__watch_drain {
    bool cold;
    int cores;
    uint64_t samples;
    double elapsed_s, cpu_s, worker_cpu_s, prepare_s, read_bytes;
};

/* An index set: `batches` batches of the loader's batch size. No sample repeats until the dataset
 * is exhausted. The set owns all its memory. */
struct hr__watch_set {
    uint64_t epoch; /* the loader's epoch of these batches */
    uint64_t batches;
    size_t count;     /* samples: batches x batch size */
    int64_t *indices; /* `count` values */
    int64_t *unique;  /* sorted, without duplicates */
    size_t unique_count;
    char **names; /* files that hold the samples, without duplicates */
    size_t name_count;
    char *text;                   /* storage of the file names; NULL for containers */
    bool containers;              /* names are of files with many samples each */
    struct hr_storage_hold *hold; /* keeps the files in memory while they should be warm */
};

struct hr_stalls_watch {
    struct hr_loader *loader;
    struct hr_stalls_watch_options options;
    struct hr__order *order; /* of all samples; sets are cut from it */
    uint64_t taken;          /* positions of `order` used so far */
    char run[33];            /* random run id, in hex */
    char started[32];        /* ISO 8601, UTC */
    uint64_t opened_ns;

    enum hr__watch_stage stage;
    bool interrupted;     /* the last call returned -EINTR */
    bool failed;          /* an error of the loader ended the watch */
    uint64_t excluded_ns; /* time of the watch's own work, which its clock excludes */
    uint64_t excluded_cpu_ns;
    double first_batch_s;

    /* Batches for replay, one reference each, and copies of their original contents. */
    struct hr_batch *kept[HR__WATCH_KEPT];
    void *original[HR__WATCH_KEPT]; /* copies of images, labels, indices */
    int kept_count, replayed;
    bool restoring; /* the loop modifies its batches in place */

    /* The current segment. */
    struct hr_stalls_schedule *schedule;
    uint64_t settle, batches; /* batches of every segment: before its timed part, and in it */
    struct hr_stalls_segment chosen;
    bool is_chosen;
    uint64_t chosen_ns;
    struct hr__watch_set set;
    int set_number;    /* number of `set`; -1: none */
    int primed_set;    /* set whose samples were offered to the loader's cache; -1: none */
    uint64_t to_drain; /* batches still to request and release unused */
    struct hr__watch_segment now, best; /* the current try; the least disturbed one before it */
    int tries;                          /* that ended */
    uint64_t fill_ns;                   /* since when the loader has been preparing ahead */
    double step_s;               /* a step with its work on the accelerator; 0: there is none */
    bool is_longer;              /* segments have been made longer */
    double max_s;                /* limit of the schedule */
    double whole_read_bytes;     /* before the segment began */
    double whole_expected_bytes; /* of files that all the segment's samples must read */
    struct hr_storage_residency residency; /* after its files were evicted */
    uint64_t given;                        /* batches of the segment, or of warm-up, handed out */
    uint64_t asked_ns;                     /* when the current batch was requested */
    bool is_asking;                        /* a signal interrupted next while it waited */
    uint64_t warm_up_ns; /* asked_ns of the batch from which warm-up steps are timed */
    uint64_t warm_up_from;

    /* Measurements. */
    struct hr__watch_segment *segments;
    size_t segment_count;
    struct hr__watch_drain drains[HR__WATCH_DRAINS];
    int drain_count;
    struct hr_storage_rate rates[HR__WATCH_DEPTHS];
    int depths[HR__WATCH_DEPTHS];
    int rate_count;
    double memory_bytes_per_s; /* NaN: not measured */
    struct hr__watch_form {
        enum hr_form form;
        double cpu_s, bytes; /* per sample */
    } forms[HR_FORMS];
    int form_count;
    int phases; /* measurable phases: bits, 1 << enum hr_stalls_phase */
    char phase_reason[HR_STALLS_PHASES][256];
    char filesystem[32];
    char **notes;
    size_t note_count;
    uint64_t cached_samples, set_samples; /* in loaded segments: cache hits; all samples */

    /* State of the part after the loop. */
    int after_step;
    double after_s;     /* time limit for all of it */
    bool after_has_set; /* `set` is the one of this part */
};

/* common.c */

/* Returns the watch's clock, in nanoseconds. */
static inline uint64_t hr__watch_now(const struct hr_stalls_watch *w)
{
    return hr__now_ns() - w->excluded_ns;
}

void hr__watch_mark(struct hr_stalls_watch *w, struct hr__watch_mark *mark);

/* Adds a note for the person who reads the result. The same text is added only once. */
void hr__watch_note(struct hr_stalls_watch *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns the bytes read from storage by this process since it started; NaN: unknown. */
double hr__watch_read_bytes(void);

/* Gets the loader's next batch: returns 1, or an error. */
int hr__watch_take(struct hr_stalls_watch *w, struct hr_batch **batch, struct hr_error *error);

/* Requests `to_drain` batches and releases them. Errors: the loader's. After -EINTR, call again to
 * continue. */
int hr__watch_drain_batches(struct hr_stalls_watch *w, struct hr_error *error);

/* Returns whether a segment's batches come from the loader. */
static inline bool hr__watch_loads(const struct hr_stalls_segment *segment)
{
    return segment->phase == HR_STALLS_WARM || segment->phase == HR_STALLS_COLD;
}

/* end.c */

/* Ends the segment that ran; the next stage begins another one, or the same one again. Errors: the
 * loader's; -ENOMEM. */
int hr__watch_end(struct hr_stalls_watch *w, struct hr_error *error);

/* replay.c */

/* Keeps a reference to a batch and a copy of its contents; replaces an older batch once there are
 * HR__WATCH_KEPT. Errors: -ENOMEM. */
int hr__watch_keep(struct hr_stalls_watch *w, struct hr_batch *batch, struct hr_error *error);

/* Returns the next batch to replay; the caller owns the reference. Restores its original contents
 * first if `restoring`. */
struct hr_batch *hr__watch_replay(struct hr_stalls_watch *w);

/* Checks whether the loop has modified its batches, and restores them. */
void hr__watch_inspect(struct hr_stalls_watch *w);

void hr__watch_keep_none(struct hr_stalls_watch *w);

/* set.c */

/* Cuts the next set from the order. Errors: -ENOMEM, those of opening a container. */
int hr__watch_set_make(struct hr_stalls_watch *w, uint64_t batches, uint64_t epoch,
                       struct hr_error *error);
void hr__watch_set_clear(struct hr__watch_set *set);

/* Begins the set's epoch in the loader and pushes all its batches. */
int hr__watch_set_push(struct hr_stalls_watch *w, struct hr_error *error);

/* Evicts the set's files from the page cache; w->residency reports what remained. Errors: -EINTR,
 * -ENOSYS, -ENOMEM. */
int hr__watch_set_drop(struct hr_stalls_watch *w, struct hr_error *error);

/* Reads the set's samples into memory. Files are held there until this set is dropped or another
 * one is preloaded. Errors: -EINTR, -ENOMEM. */
int hr__watch_set_preread(struct hr_stalls_watch *w, struct hr_error *error);

/* Returns the bytes of a sample's file or piece; < 0: unknown. May stat the file. */
int64_t hr__watch_sample_bytes(const struct hr_stalls_watch *w, uint64_t index);

/* Returns the bytes of files that the loader must read for batches [from, from + count) of the set;
 * samples in its cache cost nothing. NaN: unknown. Counts the cached ones in w->cached_samples. */
double hr__watch_set_bytes(struct hr_stalls_watch *w, uint64_t from, uint64_t count);

/* Completes the evidence of the current segment once all its batches have arrived, with where
 * their bytes came from. */
void hr__watch_prove(struct hr_stalls_watch *w);

/* Finds where the dataset is stored and excludes phases that cannot be measured there. Errors:
 * -ENOMEM, -EINTR. */
int hr__watch_look_at_storage(struct hr_stalls_watch *w, struct hr_error *error);

/* Notes why a phase is left out or not verified, unless there is a reason already. */
void hr__watch_give_reason(struct hr_stalls_watch *w, enum hr_stalls_phase phase,
                           const char *format, ...) __attribute__((format(printf, 3, 4)));

/* alone.c */

/* Measures what needs no training, step by step. Returns 0 when all is done. Errors: -EINTR, after
 * which the next call repeats the step; -ENOMEM; the loader's. */
int hr__watch_after(struct hr_stalls_watch *w, struct hr_error *error);

/* confine.c */

/* The saved CPU affinity of all threads. */
struct hr__confinement;

/* Confines all threads of this process to the first `cores` of the cores they may use. The caller
 * must pass *out to hr__confine_end in any case. Errors: -ENOMEM, those of the kernel; nothing is
 * confined then. */
int hr__confine(struct hr__confinement **out, int cores, struct hr_error *error);

/* Restores each thread's affinity; threads created meanwhile get the calling thread's. Sets
 * *confinement to NULL; accepts NULL. */
void hr__confine_end(struct hr__confinement **confinement);

/* record.c */

/* Returns the record's text, to be freed with free(). NULL: out of memory. */
char *hr__watch_record(const struct hr_stalls_watch *w);

#endif
