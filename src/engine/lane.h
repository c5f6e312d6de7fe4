/*
 * A lane: a loader whose batches, here called chunks, are published in memory of somebody
 * else's, in order, instead of being handed to a consumer. The agent makes one for each rank
 * of each stream.
 *
 * Chunks are numbered on and on, over epochs and restarts. Chunk n of an epoch that began
 * with number b holds places (n - b) * C .. of the rank's sequence from the start position on,
 * C = options.batch_size samples a chunk; the epoch's last one may hold fewer.
 *
 * A lane never judges the share of bad samples and never drops a last chunk: those who
 * consume it do.
 *
 * Callbacks are made without the loader's lock, from the crew's workers and the fetchers;
 * publish one at a time, in order of the numbers.
 */
#ifndef HR_ENGINE_LANE_H
#define HR_ENGINE_LANE_H

#include "engine/crew.h"

#include <headrace/loader.h>

/* Where a chunk lies: room for options.batch_size samples. */
struct hr__chunk {
    void *images;
    int64_t *labels;
    int64_t *indices;
};

/* A sample that was bad. */
struct hr__chunk_bad {
    size_t place;
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
    const struct hr__chunk_bad *bad; /* replaced by stand-ins, by place */
    /* code 0, or what ended the lane: at place `count`. `failed`: the sample, path NULL where
     * it is not a sample's fault. Nothing is published after it until the next start. */
    struct hr_error error;
    struct hr__chunk_bad failed;
};

struct hr__lane_ops {
    /* Room for chunk `number`: 0; or -EAGAIN: not now (hr__lane_room when it may be); or
     * another error, which ends the lane. Does not block. Each number is asked for until it
     * succeeds, then published or dropped, once. */
    int (*acquire)(void *self, uint64_t number, struct hr__chunk *out);
    /* A chunk that is not going to be published: no thread writes to it any more. */
    void (*drop)(void *self, uint64_t number);
    void (*publish)(void *self, const struct hr__chunk_done *done);
    /* Samples that are ready ahead of the consumer that is furthest ahead, in its batches:
     * what the crew goes by. 0 or less: somebody waits. Any thread; a few loads. */
    double (*ahead)(void *self);
};

/*
 * Makes a lane of the crew: a loader that knows only the hr__lane_* functions,
 * hr_loader_get_stats and hr_loader_destroy. Of the options, agent, stream, pinned, threads,
 * max_bad_share and drop_last are unused; batches_ahead: chunks that are open at a time, at
 * most. Errors as of hr_loader_create.
 */
int hr__lane_create(struct hr_loader **out, struct hr__crew *crew, struct hr_dataset *dataset,
                    struct hr_recipe *recipe, const struct hr_loader_options *options,
                    const struct hr__lane_ops *ops, void *self, struct hr_error *error);

/*
 * Begins `epoch` at `position` (samples of the epoch's order that are behind, of all ranks),
 * with chunk `first`, which is no smaller than any number acquired before. What is not
 * published is dropped. *samples: what the rank's sequence holds from there on. Errors as of
 * hr_loader_restore.
 */
int hr__lane_start(struct hr_loader *lane, uint64_t epoch, uint64_t position, uint64_t first,
                   uint64_t *samples, struct hr_error *error);

/* Opens no chunk from `number` on, in this epoch. UINT64_MAX: to its end, as after start. */
void hr__lane_end_at(struct hr_loader *lane, uint64_t number);

/* acquire may succeed again, or what `ahead` says has changed much. Any thread. */
void hr__lane_room(struct hr_loader *lane);

#endif
