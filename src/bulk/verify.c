/*
 * Verifying a dataset: reads and decodes every sample whole, and lists the failures by index.
 *
 * Each thread has its own checker, which reuses its memory from image to image.
 */
#include "base/error.h"
#include "base/memory.h"
#include "bulk/ahead.h"
#include "bulk/check.h"
#include "bulk/each.h"
#include "loader/sample.h"

#include <headrace/dataset.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct bad {
    uint64_t index;
    char *path, *reason; /* owned */
};

struct hr_verify_report {
    struct bad *bad; /* sorted by index */
    size_t count;
};

/* Tools of one thread. */
struct verify_bench {
    struct hr__checker *checker;
    struct hr__sample sample, mask;
};

struct verification {
    struct hr_dataset *dataset;
    struct hr__ahead *ahead; /* NULL: samples are no objects */
    struct hr__each each;
    struct hr_verify_report *report; /* guarded by each.lock */
};

static int add_bad(struct verification *v, size_t index, const char *reason)
{
    struct hr_verify_report *report = v->report;
    size_t length = hr_dataset_path(v->dataset, index, NULL, 0);
    struct bad bad = {index, hr__alloc(HR__TAG_LOADER, length + 1, 1),
                      hr__strdup(HR__TAG_LOADER, reason)};
    int r = bad.path && bad.reason ? 0 : -ENOMEM;
    if (!r)
        hr_dataset_path(v->dataset, index, bad.path, length + 1);
    pthread_mutex_lock(&v->each.lock);
    if (!r)
        r = hr__reserve(HR__TAG_LOADER, &report->bad, report->count + 1);
    if (!r)
        report->bad[report->count++] = bad;
    pthread_mutex_unlock(&v->each.lock);
    if (r) {
        hr__free(bad.path);
        hr__free(bad.reason);
    }
    return r;
}

/* Verifies the mask of an image that was decoded. */
static int verify_mask(const struct verification *v, struct verify_bench *b, size_t index,
                       struct hr_error *error)
{
    char path[512] = "?";
    struct hr_image_info info;
    struct hr_error why = {0};
    int r = hr__checker_info(b->checker, b->sample.read.bytes, b->sample.read.length, &info, error);
    if (r)
        return r;
    r = hr__sample_read(&b->mask, v->dataset->masks, index, &why);
    if (!r) {
        r = hr__checker_mask(b->checker, b->mask.read.bytes, b->mask.read.length, &info, &why);
        hr__free(b->mask.read.bytes);
    }
    if (!r)
        return 0;
    if (b->mask.read.path)
        hr__printable(path, sizeof path, b->mask.read.path);
    return hr__fail(error, r, "its mask (%.400s): %.400s", path, why.message);
}

/* Verifies a sample. Returns an error that ends the run; a bad sample is recorded and is no
 * error. */
static int verify_sample(void *arg, void *tools, size_t index, struct hr_error *why)
{
    struct verification *v = arg;
    struct verify_bench *b = tools;
    int r = hr__ahead_wait(v->ahead, index) ? hr__ahead_sample(v->ahead, &b->sample, index, why)
                                            : hr__sample_read(&b->sample, v->dataset, index, why);
    if (!r) {
        hr__checker_expect(b->checker, v->dataset, index, b->sample.read.bytes,
                           b->sample.read.length);
        r = hr__checker_decode(b->checker, b->sample.read.bytes, b->sample.read.length, why);
        if (!r && v->dataset->masks)
            r = verify_mask(v, b, index, why);
        hr__free(b->sample.read.bytes);
    }
    if (!r || !hr__is_samples_fault(r))
        return r;
    return add_bad(v, index, why->message)
               ? hr__fail(why, -ENOMEM, "out of memory for the record of a bad sample")
               : 0;
}

static void verify_many(void *arg, size_t i)
{
    struct verification *v = arg;
    struct verify_bench b = {0};
    struct hr_error why = {0};
    int r = hr__checker_create(&b.checker, &why);
    hr__each_take(&v->each, &b, r, &why);
    hr__checker_destroy(&b.checker);
    hr__sample_clear(&b.sample);
    hr__sample_clear(&b.mask);
}

static int compare_bad(const void *a, const void *b)
{
    const struct bad *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index;
}

int hr_dataset_verify(struct hr_dataset *dataset, int threads, hr_progress_fn progress,
                      void *progress_arg, struct hr_verify_report **out, struct hr_error *error)
{
    struct hr__pool *pool = NULL;
    struct verification v = {.dataset = dataset};
    v.each = (struct hr__each){.count = hr_dataset_count(dataset),
                               .stage = "verifying",
                               .what = "verifying",
                               .left = "",
                               .thread = verify_many,
                               .work = verify_sample,
                               .arg = &v};
    *out = NULL;
    int r = hr__pool_create(&pool, threads, error);
    if (r)
        return r;
    v.report = hr__alloc(HR__TAG_LOADER, 1, sizeof *v.report);
    if (!v.report) {
        hr__pool_destroy(&pool);
        return hr__fail(error, -ENOMEM, "out of memory for a report");
    }
    r = hr__ahead_create(&v.ahead, &(struct hr__ahead_options){.dataset = dataset}, error);
    if (r)
        hr__pool_destroy(&pool);
    else
        r = hr__each_run(&v.each, &pool, progress, progress_arg, error);
    hr__ahead_destroy(&v.ahead);
    if (r) {
        hr_verify_report_destroy(&v.report);
        return r;
    }
    if (v.report->count)
        qsort(v.report->bad, v.report->count, sizeof *v.report->bad, compare_bad);
    *out = v.report;
    return 0;
}

size_t hr_verify_report_count(const struct hr_verify_report *report)
{
    return report->count;
}

void hr_verify_report_get(const struct hr_verify_report *report, size_t i,
                          struct hr_bad_sample *sample)
{
    const struct bad *b = &report->bad[i];
    *sample = (struct hr_bad_sample){b->index, b->path, b->reason};
}

void hr_verify_report_destroy(struct hr_verify_report **report)
{
    struct hr_verify_report *r = *report;
    *report = NULL;
    if (!r)
        return;
    for (size_t i = 0; i < r->count; i++) {
        hr__free(r->bad[i].path);
        hr__free(r->bad[i].reason);
    }
    hr__free(r->bad);
    hr__free(r);
}
