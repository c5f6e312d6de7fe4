/*
 * A publisher: a loader whose batches, here called chunks, are published in memory of somebody
 * else's, in order, instead of being handed to a consumer. The agent makes one for each rank
 * of each stream.
 *
 * Chunks are numbered on and on, over epochs and restarts. Chunk n of an epoch that began
 * with number b holds places (n - b) * C .. of the rank's sequence from the start position on,
 * C = options.batch_size samples a chunk; the epoch's last one may hold fewer. With
 * external_order chunk b + n is the n'th batch that was pushed since the start, and may hold fewer
 * than C, too.
 *
 * A publisher never judges the share of bad samples and never drops a last chunk: those who
 * consume it do.
 *
 * Callbacks are made without the loader's lock, from the crew's workers and the fetchers (drop
 * also on the thread that starts or destroys the publisher); publish one at a time, in order
 * of the numbers. They may call hr__publisher_room and hr_loader_get_stats, and nothing else of the
 * publisher. start and destroy wait for acquire and publish to return: they
 * are called without a lock that a callback takes, by one thread at a time.
 */
#ifndef HR_LOADER_PUBLISHER_H
#define HR_LOADER_PUBLISHER_H

#include "loader/crew.h"

#include <headrace/loader.h>

/* Samples of an epoch whose end nobody knows, as hr__publisher_start tells them. */
#define HR__QUEUE_ENDLESS (UINT64_C(1) << 62)

/* Where a chunk lies: room for options.batch_size samples. Filled in pieces by many threads;
 * what is in it before it is published is nobody's business. */
struct hr__chunk {
    void *images;     /* 64-byte aligned */
    int64_t *labels;  /* of the samples really used when published */
    int64_t *indices; /* likewise */
};

/* A sample that was bad, or that is damaged and was taken. */
struct hr__chunk_bad {
    size_t place;
    int taken;          /* it is in the chunk; otherwise a stand-in is */
    uint64_t index;     /* in the dataset, of the one that was to be there */
    const char *path;   /* live during the call */
    const char *reason; /* likewise */
};

/* A chunk that is done. */
struct hr__chunk_done {
    uint64_t number;
    uint64_t epoch;
    size_t count;   /* samples that may be used, from place 0 on */
    size_t padding; /* of them, at the end, repeats that only fill up the rank's share */
    size_t bad_count;
    const struct hr__chunk_bad *bad; /* by place */
    /* code 0, or what ended the publisher: at place `count`. `failed`: the sample, path NULL where
     * it is not a sample's fault. Nothing is published after it until the next start. Where
     * acquire itself failed, it is about a chunk that was not acquired, with count 0. */
    struct hr_error error;
    struct hr__chunk_bad failed;
};

struct hr__publisher_ops {
    /* Room for chunk `number`: 0; or -EAGAIN: not now (hr__publisher_room when it may be); or
     * another error, which ends the publisher. Does not block. Each number is asked for until it
     * succeeds, then published or dropped, once. One at a time, in order of the numbers. */
    int (*acquire)(void *self, uint64_t number, struct hr__chunk *out);
    /* A chunk that is not going to be published: no thread writes to it any more. May come
     * after the stop or start that was the reason, until destroy has returned. */
    void (*drop)(void *self, uint64_t number);
    void (*publish)(void *self, const struct hr__chunk_done *done);
    /* Samples that are ready ahead of the consumer that is furthest ahead, in its batches:
     * what the crew goes by. 0 or less: somebody waits. Any thread, with a lock of the crew's
     * held: a few loads, no locks. */
    double (*ahead)(void *self);
};

/*
 * Makes a publisher of the crew, which outlives it: a loader that knows only the hr__publisher_*
 * functions, hr_loader_get_stats, hr_loader_destroy and, with external_order, hr_loader_push.
 * `ops` is constant and outlives it too.
 * Of the options, agent, stream, pinned, threads, wait_ms, max_bad_share and drop_last are
 * unused; batches_ahead: chunks that are open at a time, at most. All publishers of a process share
 * unnamed caches as the ranks of one run do. On success *out is the caller's. Errors as of
 * hr_loader_create.
 */
int hr__publisher_create(struct hr_loader **out, struct hr__crew *crew, struct hr_dataset *dataset,
                         struct hr_recipe *recipe, const struct hr_loader_options *options,
                         const struct hr__publisher_ops *ops, void *self, struct hr_error *error);

/*
 * Begins `epoch` at `position` (samples of the epoch's order that are behind, of all ranks),
 * with chunk `first`, which is greater than any number acquired before. What is not published is
 * dropped. *samples: what the rank's sequence holds from there on, padding included;
 * HR__QUEUE_ENDLESS with external_order. Threads start with the first call. Errors as of
 * hr_loader_restore; then the publisher is as it was.
 */
int hr__publisher_start(struct hr_loader *publisher, uint64_t epoch, uint64_t position,
                        uint64_t first, uint64_t *samples, struct hr_error *error);

/* acquire may succeed again, or what `ahead` says has changed much. Any thread. */
void hr__publisher_room(struct hr_loader *publisher);

#endif
