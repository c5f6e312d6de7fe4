/* Samples that failed, and damaged ones that were taken: records, and when they are too many. */
#ifndef HR_LOADER_BAD_H
#define HR_LOADER_BAD_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

struct hr_batch;
struct hr_loader;

/* Bad samples kept in detail. */
#define HR__BAD_KEPT 10000

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

#endif
