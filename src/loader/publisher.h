/*
 * A publisher: a loader that publishes its batches, here called chunks, in order, in memory of
 * another owner, instead of handing them to a consumer. The agent makes one publisher for each rank
 * of each stream.
 *
 * Chunk numbers go on over epochs and restarts. Chunk n of an epoch that began with number b holds
 * the places from (n - b) * C on of the rank's sequence, counted from the start position; C =
 * options.batch_size samples. The last chunk of an epoch may hold fewer. With external_order chunk
 * b + n is the n-th batch pushed since the start, and may also hold fewer than C.
 *
 * A publisher never judges the share of bad samples and never drops a last chunk; its consumers do.
 *
 * Callbacks run without the loader's lock, on the crew's workers and the fetchers (`drop` also on
 * the thread that starts or destroys the publisher). `publish` is called for one chunk at a time,
 * in order of the numbers. Of the publisher's functions, callbacks may call only hr__publisher_room
 * and hr_loader_get_stats. start and destroy wait for acquire and publish to return, so the caller
 * must hold no lock that a callback takes. One thread at a time calls them.
 */
#ifndef HR_LOADER_PUBLISHER_H
#define HR_LOADER_PUBLISHER_H

#include "base/numa.h"
#include "loader/crew.h"
#include "storage/reader.h"

#include <headrace/loader.h>

/* The number of samples that hr__publisher_start returns for an epoch whose end is not known. */
#define HR__QUEUE_ENDLESS (UINT64_C(1) << 62)

/* Memory of a chunk: room for options.batch_size samples. Many threads fill it in; its content is
 * undefined until it is published. */
struct hr__chunk {
    void *images;     /* 64-byte aligned */
    int64_t *labels;  /* of the samples really used, stand-ins included; valid when published */
    int64_t *indices; /* likewise: indices in the dataset */
    int64_t *extents; /* of a padded recipe, likewise: as in struct hr_batch; else unused */
    void *records;    /* of rows (base/row_layout.h), one for each sample, or of masks, height x
                         width bytes; unused without either */
};

/* A sample that was bad, or that is damaged and was used. */
struct hr__chunk_bad {
    size_t place;
    int taken;          /* non-zero: it is in the chunk; otherwise a stand-in is */
    uint64_t index;     /* dataset index of the sample that was due at this place */
    const char *path;   /* valid during the call */
    const char *reason; /* valid during the call */
};

/* A finished chunk. */
struct hr__chunk_done {
    uint64_t number;
    uint64_t epoch;
    size_t count;   /* samples that may be used, from place 0 on */
    size_t padding; /* how many of them, at the end, only repeat samples to fill up the rank's
                       share */
    size_t bad_count;
    const struct hr__chunk_bad *bad; /* sorted by place */
    /* Code 0, or the error that ended the publisher, at place `count`. `failed` is the sample; its
     * path is NULL if the error is not a sample's fault. Nothing is published after it until the
     * next start. If acquire itself failed, `number` is a chunk that was not acquired, and count is
     * 0. */
    struct hr_error error;
    struct hr__chunk_bad failed;
};

struct hr__publisher_ops {
    /* Provides memory for chunk `number`. Returns 0; -EAGAIN: no room now (call hr__publisher_room
     * when there may be); or another error, which ends the publisher. Does not block. The publisher
     * asks for each number until it succeeds, then publishes or drops it once. One call at a time,
     * in order of the numbers. */
    int (*acquire)(void *self, uint64_t number, struct hr__chunk *out);
    /* Gives back a chunk that will not be published; no thread writes to it any more. May be called
     * after the stop or start that caused it, until destroy has returned. */
    void (*drop)(void *self, uint64_t number);
    void (*publish)(void *self, const struct hr__chunk_done *done);
    /* Returns how far samples are ready ahead of the furthest consumer, in batches of that
     * consumer. The crew chooses publishers by it. 0 or less: a consumer is waiting. Any thread,
     * with a lock of the crew held: only a few loads, no locks. */
    double (*ahead)(void *self);
};

/*
 * Makes a publisher that the crew's workers serve. The crew and `ops`, which is constant, must
 * outlive it. Only the hr__publisher_* functions, hr_loader_get_stats, hr_loader_destroy and, with
 * external_order, hr_loader_push may be called for it. The options agent, stream, pinned, threads,
 * wait_ms, max_bad_share and drop_last are unused; batches_ahead is the largest number of chunks
 * open at a time. All publishers of a process share unnamed caches as the ranks of one run do. On
 * success *out is the caller's. Errors as of hr_loader_create.
 */
int hr__publisher_create(struct hr_loader **out, struct hr__crew *crew, struct hr_dataset *dataset,
                         struct hr_recipe *recipe, const struct hr_loader_options *options,
                         const struct hr__publisher_ops *ops, void *self, struct hr_error *error);

/* Sets the node where the consumer is at home (base/numa.h), before the first start: the crew's
 * workers of that node prefer the publisher. */
void hr__publisher_set_home(struct hr_loader *publisher, struct hr__home home);

/* Sets where the samples of a produced dataset come from, before the first start. `source` must
 * outlive the publisher. */
void hr__publisher_set_samples(struct hr_loader *publisher, struct hr__sample_source *source);

/*
 * Begins `epoch` at `position` (samples of the epoch's order already consumed, by all ranks) with
 * chunk `first`, which must be greater than any number acquired before. Chunks not yet published
 * are dropped. *samples is set to the length of the rank's sequence from there on, padding
 * included, or to HR__QUEUE_ENDLESS with external_order. The first call starts the threads. Errors
 * as of hr_loader_restore; on failure the publisher is unchanged.
 */
int hr__publisher_start(struct hr_loader *publisher, uint64_t epoch, uint64_t position,
                        uint64_t first, uint64_t *samples, struct hr_error *error);

/* Notifies the publisher that acquire may succeed again, or that `ahead` changed much. Any
 * thread. */
void hr__publisher_room(struct hr_loader *publisher);

#endif
