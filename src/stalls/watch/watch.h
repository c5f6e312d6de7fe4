/*
 * The watch inside: measuring a training loop in C (headrace/stalls.h).
 *
 *   watch.c           the public functions: which batch comes next
 *   watch_replay.c    the batches that are handed out again and again
 *   watch_set.c       index sets: which samples, out of memory or into it, and the proof
 *   watch_alone.c     the loader and the storage without training
 *   watch_confine.c   this process on fewer cores
 *   watch_record.c    what was measured, as a record
 *
 * A watch is a state machine that hr_stalls_watch_next drives: warm-up; then, for each
 * segment of hr_stalls_schedule_*, begin, run, end; then what is measured without
 * training. Each step that waits for the loader or for storage may be interrupted by a
 * signal (-EINTR) and is gone on with, or repeated, by the following call.
 *
 * Each segment that loads is an epoch of its own, numbered by its index set: the cold and
 * the warm segment of a set have the same batches, random parameters included.
 */
#ifndef HR_STALLS_WATCH_WATCH_H
#define HR_STALLS_WATCH_WATCH_H

#include "base/clock.h"
#include "loader/loader.h"

#include <headrace/stalls.h>
#include <headrace/storage.h>

#include <stdbool.h>

/* Batches that are replayed. */
#define HR__WATCH_KEPT 2

/* Core counts that the loader is drained at, at most; drains on all cores, and cold ones:
 * several, for an interval. */
#define HR__WATCH_CORES       12
#define HR__WATCH_ALL_DRAINS  3
#define HR__WATCH_COLD_DRAINS 2
#define HR__WATCH_DRAINS      (HR__WATCH_CORES + HR__WATCH_ALL_DRAINS + HR__WATCH_COLD_DRAINS)

/* Depths that storage is read at, at most. */
#define HR__WATCH_DEPTHS 4

enum hr__watch_stage {
    HR__WATCH_WARM_UP,
    HR__WATCH_BEGIN, /* of a segment */
    HR__WATCH_RUN,
    HR__WATCH_END,
    HR__WATCH_AFTER, /* the loop has ended */
    HR__WATCH_OVER,
};

/* What a segment is told by: cumulative, so that two of them make a difference. */
struct hr__watch_mark {
    uint64_t ns;             /* the watch's clock: what it took itself is left out */
    uint64_t process_cpu_ns; /* of the process without the loader's threads */
    uint64_t worker_cpu_ns;  /* of the loader's threads */
    uint64_t prepare_ns;     /* decode and recipe, on the clock of the wall */
    double read_bytes;       /* that the process had storage read; NaN: the kernel does not say */
};

/* One measured segment. */
struct hr__watch_segment {
    struct hr_stalls_segment what;
    struct hr__watch_mark begin, end; /* of its timed part */
    uint64_t samples;                 /* of that part */
    double expected_bytes;    /* likewise: of the files that have to be read; 0 in a replay */
    int verified;             /* 1, 0, or -1 where there is nothing to verify */
    char reason[200];         /* of 0 */
    double *wait_s, *batch_s; /* what.batches values; one block, wait_s first */
};

/* The loader alone. */
struct hr__watch_drain {
    bool cold;
    int cores;
    uint64_t samples;
    double elapsed_s, cpu_s, worker_cpu_s, prepare_s, read_bytes;
};

/* An index set: `batches` of the loader's batch size, each sample once while the dataset
 * lasts. All memory is the set's. */
struct hr__watch_set {
    uint64_t epoch; /* of the loader, that its batches belong to */
    uint64_t batches;
    size_t count;     /* samples: batches x batch size */
    int64_t *indices; /* count */
    int64_t *unique;  /* without repeats, ascending */
    size_t unique_count;
    char **names; /* the files that the samples are in, without repeats */
    size_t name_count;
    char *text;                   /* what names of files point into; NULL for containers */
    bool containers;              /* the names are of files with many samples */
    struct hr_storage_hold *hold; /* of its files, while they are to be in memory */
};

struct hr_stalls_watch {
    struct hr_loader *loader;
    struct hr_stalls_watch_options options;
    struct hr__order *order; /* of all samples: sets are cut from it */
    uint64_t taken;          /* positions of it that are used up */
    char run[33];            /* random, in hex */
    char started[32];        /* ISO 8601, UTC */
    uint64_t opened_ns;

    enum hr__watch_stage stage;
    bool interrupted;     /* the last call gave -EINTR */
    bool failed;          /* the loader's error ended it */
    uint64_t excluded_ns; /* that the watch took for itself, for its clock */
    uint64_t excluded_cpu_ns;
    double first_batch_s;

    /* Replayed batches, one reference each, and what they held when they came. */
    struct hr_batch *kept[HR__WATCH_KEPT];
    void *original[HR__WATCH_KEPT]; /* images, labels, indices */
    int kept_count, replayed;
    bool restoring; /* the loop writes into its batches */

    /* The segment in hand. */
    struct hr_stalls_schedule *schedule;
    uint64_t settle, batches; /* of every segment */
    struct hr_stalls_segment chosen;
    bool is_chosen;
    uint64_t chosen_ns;
    struct hr__watch_set set;
    int set_number;    /* that `set` is; -1: none */
    int primed_set;    /* whose samples the loader's cache has been offered; -1: none */
    uint64_t to_drain; /* batches that are asked for only to be released */
    struct hr__watch_segment now;
    double whole_read_bytes;     /* before it began */
    double whole_expected_bytes; /* of the files of all its samples that have to be read */
    struct hr_storage_residency residency; /* after its files were dropped */
    uint64_t given;      /* batches of the segment, or of the warm-up, handed out */
    uint64_t asked_ns;   /* when the batch in hand was asked for */
    bool is_asking;      /* next was interrupted while it waited for it */
    uint64_t warm_up_ns; /* asked_ns of the batch from which warm-up steps are timed */
    uint64_t warm_up_from;

    /* What was measured. */
    struct hr__watch_segment *segments;
    size_t segment_count, segment_capacity;
    struct hr__watch_drain drains[HR__WATCH_DRAINS];
    int drain_count;
    struct hr_storage_rate rates[HR__WATCH_DEPTHS];
    int depths[HR__WATCH_DEPTHS];
    int rate_count;
    double memory_bytes_per_s; /* NaN: not measured */
    struct hr__watch_form {
        enum hr_form form;
        double cpu_s, bytes; /* of one sample */
    } forms[3];
    int form_count;
    int phases; /* that can be measured: bits, 1 << enum hr_stalls_phase */
    char phase_reason[HR_STALLS_PHASES][256];
    char filesystem[32];
    char **notes;
    size_t note_count;
    uint64_t cached_samples, set_samples; /* of the loaded segments: found in its cache; all */

    /* After the loop. */
    int after_step;
    double after_s;     /* for all of it */
    bool after_has_set; /* the set is the one of this part */
};

/* watch.c */

/* The watch's clock. */
static inline uint64_t hr__watch_now(const struct hr_stalls_watch *w)
{
    return hr__now_ns() - w->excluded_ns;
}

void hr__watch_mark(struct hr_stalls_watch *w, struct hr__watch_mark *mark);

/* Says something to the person who reads the result; the same text only once. */
void hr__watch_note(struct hr_stalls_watch *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Asks for `to_drain` batches and releases them. Errors: the loader's; after -EINTR it
 * goes on where it was. */
int hr__watch_drain_batches(struct hr_stalls_watch *w, struct hr_error *error);

/* watch_replay.c */

/* Keeps a reference to a batch and a copy of what it holds, in place of an older one where
 * there are enough. Errors: -ENOMEM. */
int hr__watch_keep(struct hr_stalls_watch *w, struct hr_batch *batch, struct hr_error *error);

/* The next one to replay: a reference for the caller. As it came where `restoring`. */
struct hr_batch *hr__watch_replay(struct hr_stalls_watch *w);

/* Finds out whether the loop has written into its batches, and undoes that. */
void hr__watch_inspect(struct hr_stalls_watch *w);

void hr__watch_keep_none(struct hr_stalls_watch *w);

/* watch_set.c */

/* Cuts a set from the order. Errors: -ENOMEM, those of opening a container. */
int hr__watch_set_make(struct hr_stalls_watch *w, uint64_t batches, uint64_t epoch,
                       struct hr_error *error);
void hr__watch_set_clear(struct hr__watch_set *set);

/* Begins the set's epoch in the loader and pushes all its batches. */
int hr__watch_set_push(struct hr_stalls_watch *w, struct hr_error *error);

/* Drops the set's files from memory; what is left of them is in w->residency. Errors:
 * -EINTR, -ENOSYS, -ENOMEM. */
int hr__watch_set_drop(struct hr_stalls_watch *w, struct hr_error *error);

/* Reads the set's samples into memory; files are held there until the set is dropped or another.
 * Errors: -EINTR, -ENOMEM. */
int hr__watch_set_preread(struct hr_stalls_watch *w, struct hr_error *error);

/* Bytes of a sample's file or piece; < 0: it cannot be told. May look at the file. */
int64_t hr__watch_sample_bytes(const struct hr_stalls_watch *w, uint64_t index);

/* Bytes of files that the loader has to read for batches [from, from + count) of the set:
 * what it has cached costs nothing. NaN: not known. Counts them in w->cached_samples. */
double hr__watch_set_bytes(struct hr_stalls_watch *w, uint64_t from, uint64_t count);

/* Judges the segment in hand, all of whose batches have come: was what was to be read
 * really read, and nothing else? */
void hr__watch_verify(struct hr_stalls_watch *w);

/* Where the dataset lies; leaves out phases that cannot be measured there. Errors:
 * -ENOMEM, -EINTR. */
int hr__watch_look_at_storage(struct hr_stalls_watch *w, struct hr_error *error);

/* What storage was read for this process since it began, in bytes; NaN: not told. */
double hr__watch_read_bytes(void);

/* watch_alone.c */

/* What is measured without training, a step at a time. Errors: -EINTR, then the step is
 * repeated; -ENOMEM; those of the loader. 0: all is done. */
int hr__watch_after(struct hr_stalls_watch *w, struct hr_error *error);

/* watch_confine.c */

/* Cores of all threads' affinity together. */
struct hr__confinement;

/* Confines all threads of this process to the first `cores` of those that it may use.
 * *out is to be ended in any case. Errors: -ENOMEM, those of the kernel; then nothing is
 * confined. */
int hr__confine(struct hr__confinement **out, int cores, struct hr_error *error);

/* Gives each thread back what it had; those made meanwhile get what this one had. Sets
 * *confinement to NULL; accepts NULL. */
void hr__confine_end(struct hr__confinement **confinement);

/* watch_record.c */

/* The record's text, freed with free(). NULL: out of memory. */
char *hr__watch_record(const struct hr_stalls_watch *w);

#endif
