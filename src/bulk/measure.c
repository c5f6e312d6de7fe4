/*
 * Measures how fast a store delivers the samples of a dataset: the reads are those of a loader,
 * whole objects or ranges of containers.
 */
#include "storage/measure.h"
#include "base/error.h"
#include "base/memory.h"
#include "loader/sample.h"

#include <errno.h>
#include <inttypes.h>

struct measured_samples {
    const struct hr_dataset *dataset;
    const int64_t *indices;
    struct hr__sample *slots;
};

static struct hr__read *aim(void *arg, unsigned slot, size_t number)
{
    struct measured_samples *m = arg;
    struct hr__sample *s = &m->slots[slot];
    int r = hr__sample_aim(s, m->dataset, (uint64_t)m->indices[number], 0, NULL);
    if (!r && !s->read.http) /* a list may name files as well */
        r = -ENOTSUP;
    s->read.result = r;
    return &s->read;
}

static int check(const struct hr_dataset *dataset, const int64_t *indices, size_t count,
                 struct hr_error *error)
{
    const struct hr_dataset *origin = dataset->parent ? dataset->parent : dataset;
    if (!origin->http)
        return hr__fail(error, -ENOTSUP,
                        "the samples of this dataset are not at URLs: measure their files");
    if (!count)
        return hr__fail(error, -EINVAL, "no samples are given to be measured");
    for (size_t i = 0; i < count; i++)
        if (indices[i] < 0 || (uint64_t)indices[i] >= dataset->count)
            return hr__fail(error, -ERANGE,
                            "index %" PRId64 " at position %zu: the dataset has %zu samples",
                            indices[i], i, dataset->count);
    return 0;
}

int hr_storage_measure_samples(const struct hr_dataset *dataset, const int64_t *indices,
                               size_t count, int depth, double seconds,
                               struct hr_storage_rate *rate, struct hr_error *error)
{
    struct measured_samples m = {.dataset = dataset, .indices = indices};
    const struct hr__measured_reads reads = {.count = count, .aim = aim, .arg = &m};
    int r = check(dataset, indices, count, error);
    if (r)
        return r;
    m.slots = hr__alloc(HR__TAG_STORAGE, HR__MEASURE_DEPTH, sizeof *m.slots);
    if (!m.slots)
        return hr__fail(error, -ENOMEM, "out of memory for reads");
    r = hr__measure_reads(&reads, depth, seconds, rate, error);
    for (unsigned i = 0; i < HR__MEASURE_DEPTH; i++)
        hr__sample_clear(&m.slots[i]);
    hr__free(m.slots);
    return r;
}
