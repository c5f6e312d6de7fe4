/*
 * What the sounds of a dataset are: reads every file and states its format, rate, channels and
 * length. Nothing is decoded, so damage in the middle of a file is not found.
 */
#include "base/error.h"
#include "base/memory.h"
#include "bulk/each.h"
#include "loader/sample.h"

#include <headrace/dataset.h>
#include <headrace/sound.h>

/* Tools of one thread. */
struct sounds_bench {
    struct hr_preparer *preparer;
    struct hr__sample sample;
};

struct sounds_survey {
    struct hr_dataset *dataset;
    struct hr__each each;
    struct hr_sound_info *out; /* each thread writes those of its samples */
};

static int survey_sample(void *arg, void *tools, size_t index, struct hr_error *why)
{
    struct sounds_survey *s = arg;
    struct sounds_bench *b = tools;
    struct hr_sound_info info = {0};
    s->out[index] = info;
    int r = hr__sample_read(&b->sample, s->dataset, index, why);
    if (r)
        return hr__is_samples_fault(r) ? 0 : r;
    r = hr_preparer_sound_info(b->preparer, b->sample.read.bytes, b->sample.read.length, &info,
                               why);
    hr__free(b->sample.read.bytes);
    b->sample.read.bytes = NULL;
    if (!r)
        s->out[index] = info;
    return r && !hr__is_samples_fault(r) ? r : 0;
}

static void survey_many(void *arg, size_t i)
{
    struct sounds_survey *s = arg;
    struct sounds_bench b = {0};
    struct hr_error why = {0};
    int r = hr_preparer_create(&b.preparer, &why);
    hr__each_take(&s->each, &b, r, &why);
    hr_preparer_destroy(&b.preparer);
    hr__sample_clear(&b.sample);
}

int hr_dataset_sounds(struct hr_dataset *dataset, int threads, hr_progress_fn progress,
                      void *progress_arg, struct hr_sound_info *out, struct hr_error *error)
{
    struct hr__pool *pool = NULL;
    struct sounds_survey s = {.dataset = dataset, .out = out};
    s.each = (struct hr__each){.count = hr_dataset_count(dataset),
                               .stage = "reading",
                               .what = "reading the sounds",
                               .left = "",
                               .thread = survey_many,
                               .work = survey_sample,
                               .arg = &s};
    int r = hr__pool_create(&pool, threads, error);
    return r ? r : hr__each_run(&s.each, &pool, progress, progress_arg, error);
}
