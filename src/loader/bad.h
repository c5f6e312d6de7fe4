/* Records of failed samples and of damaged ones that were used, and the limit on bad samples. */
#ifndef HR_LOADER_BAD_H
#define HR_LOADER_BAD_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

struct hr_batch;
struct hr_loader;

/* How many bad samples are kept in detail. */
#define HR__BAD_KEPT 10000

/* A sample that failed, or that is damaged and was used. */
struct hr__bad {
    struct hr__bad *next; /* next in its batch */
    size_t place;
    int taken; /* non-zero: the sample is in the batch; otherwise a stand-in is */
    uint64_t epoch, index;
    const char *reason; /* in the same allocation, as is the path */
    char path[];
};

/* The newest HR__BAD_KEPT records. The buffer grows up to that number; then it is circular. */
struct hr__bad_list {
    struct hr__bad **at;
    size_t first, kept;
    uint64_t total; /* ever added */
};

/* Makes a record of failed sample `index` of the dataset, at `place` of the batch; NULL: out of
 * memory. Free it with hr__free. */
struct hr__bad *hr__bad_make(const struct hr_loader *l, const struct hr_batch *batch, size_t place,
                             uint64_t index, const char *reason);
void hr__bad_free_list(struct hr__bad *list);

/* Inserts a record into a batch's list, sorted by place, so that lists do not depend on which
 * sample failed first. */
void hr__bad_insert(struct hr__bad **list, struct hr__bad *bad);

/* Moves a batch's records to the loader's lists. */
void hr__bad_keep_locked(struct hr_loader *l, struct hr_batch *batch);

/* Returns 0, or -EOVERFLOW with a message if too many samples of `epoch` are bad. epoch_seen and
 * epoch_bad must be the counts of that epoch. */
int hr__bad_judge_locked(const struct hr_loader *l, uint64_t epoch, int at_end,
                         struct hr_error *error);

void hr__bad_destroy(struct hr_loader *l);

#endif
