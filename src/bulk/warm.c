/*
 * Fills a kept cache with a dataset before its first run.
 *
 * Each thread takes the next sample in the order of the dataset, which is the order of its folders
 * or containers, reads it and caches it in its final form at once. Samples that others, such as a
 * running job, have cached or are reading are left to them.
 *
 * The cache should first of all avoid fetches. So encoded items come first, and what memory is left
 * goes to the form asked for. With `auto` that is chosen as a loader chooses (cache/worth.h), but
 * nothing is prepared here, so what a form saves is not measured: the typical proportions decide.
 */
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "bulk/ahead.h"
#include "bulk/each.h"
#include "cache/identity.h"
#include "cache/spec.h"
#include "cache/worth.h"
#include "codec/waveform.h"
#include "dataset/pair.h"
#include "loader/caching.h"
#include "loader/sample.h"

#include <headrace/cache.h>
#include <headrace/prepare.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* After so many offers in a row that did not fit, no more are made. */
#define REFUSALS_MAX 64

/* How long to wait before asking again for a sample that another process is reading. */
#define ASK_NS 500000

struct warming {
    struct hr_dataset *dataset;
    struct hr__each each;
    struct hr__cache *cache;
    struct hr__ahead *ahead;          /* NULL: samples are no objects */
    struct hr__cache_ticket *tickets; /* HR__AHEAD_SAMPLES: of sample i at i % HR__AHEAD_SAMPLES */
    int form;                         /* form to convert to: enum hr_form, or HR_FORM_AUTO */
    uint64_t samples;                 /* number of samples that the cache may hold */
    uint64_t total_bytes;             /* total size of these samples */
    _Atomic uint64_t cached, read_bytes, bad, refusals;
    /* Guarded by each.lock. */
    struct hr__worth worth; /* only growth is used */
    uint64_t granted;       /* total growth of converted items that are about to be offered */
};

/* Tools of one thread. */
struct bench {
    struct hr__sample sample, mask;
    struct hr_converter *converter;
    struct hr__cache_ticket ticket;
    uint64_t granted; /* this thread's part of warming.granted */
};

/* The cache is used forever. */
static const struct hr__worth_moment for_good = {.uses_known = 1, .uses = HR__WORTH_FOREVER};

static struct hr__worth_space space_of(const struct warming *w)
{
    struct hr__cache_counts now;
    hr__cache_get_counts(w->cache, &now);
    return (struct hr__worth_space){
        .budget_bytes = hr__cache_budget(w->cache),
        .settled_bytes = now.reserved,
        .missing_bytes = hr__caching_missing(&now, w->samples, (double)w->total_bytes),
        .asked = w->form,
        .fetch_bound = 1,
    };
}

/* Chooses the form of a sample of `length` bytes. */
static enum hr_form choose(struct warming *w, size_t length)
{
    struct hr__worth_space space = space_of(w);
    pthread_mutex_lock(&w->each.lock);
    enum hr_form form = hr__worth_choose(&w->worth, length, &space, &for_good);
    pthread_mutex_unlock(&w->each.lock);
    return form;
}

/* Returns non-zero if a converted sample, `length` bytes before conversion, leaves room for the
 * samples still missing. Then grants `b` that growth until the item is offered. Adds the growth to
 * the mean. */
static int is_affordable(struct warming *w, struct bench *b, size_t length,
                         const struct hr_item *converted)
{
    pthread_mutex_lock(&w->each.lock);
    struct hr__worth_space space = space_of(w);
    space.missing_bytes -= space.missing_bytes < length ? space.missing_bytes : length;
    hr__mean_add(&w->worth.growth[converted->form], (double)converted->length / (double)length);
    uint64_t leave = hr__worth_leave_free(&w->worth, converted->form, &space, &for_good);
    uint64_t takes = space.settled_bytes + w->granted + converted->length + HR__CACHE_PADDING;
    int is = takes + leave <= space.budget_bytes;
    b->granted = is && converted->length > length ? converted->length - length : 0;
    w->granted += b->granted;
    pthread_mutex_unlock(&w->each.lock);
    return is;
}

/* Converts a sample that was read, if that is worth it and possible. The result is in *item.
 * -EBADMSG: the sample is damaged. */
static int convert(struct warming *w, struct bench *b, struct hr_item *item, struct hr_error *why)
{
    enum hr_form form = choose(w, item->length);
    if (item->form != HR_FORM_ENCODED || form == HR_FORM_ENCODED)
        return 0;
    int r = b->converter ? 0 : hr_converter_create(&b->converter, NULL, why);
    if (r)
        return r;
    struct hr_item converted;
    r = hr_converter_run(b->converter, form, item->bytes, item->length, &converted, why);
    /* A sample that cannot have another form stays as it is. */
    if (r)
        return r == -EBADMSG || r == -ENOMEM ? r : 0;
    if (is_affordable(w, b, item->length, &converted))
        *item = converted;
    return 0;
}

/* Offers an item, with the sample's mask if it has one. */
static int offer_one(const struct warming *w, struct bench *b, size_t index,
                     const struct hr_item *item)
{
    const struct hr__read *read = &b->sample.read, *mask = &b->mask.read;
    const struct hr__pair pair = {{item->bytes, item->length}, {mask->bytes, mask->length}};
    struct hr__cache_offer offer = {
        .index = index,
        .ticket = &b->ticket,
        .bytes = item->bytes,
        .length = item->length,
        .source_bytes = read->length + (mask->bytes ? mask->length + HR__PAIR_TAIL : 0),
        .form = item->form,
    };
    return hr__caching_offer(w->cache, &offer, &pair);
}

/* Offers a sample's bytes and ends its claim. */
static int keep(struct warming *w, struct bench *b, size_t index, struct hr_error *why)
{
    const struct hr__read *read = &b->sample.read;
    const struct hr_item file = {read->bytes, read->length, hr_form_of(read->bytes, read->length)};
    struct hr_item item = file;
    int r = convert(w, b, &item, why);
    if (r)
        return r;
    int is_news = hr__sample_learn(&b->sample, w->dataset, index);
    if (b->mask.read.bytes)
        is_news |= hr__sample_learn(&b->mask, w->dataset->masks, index);
    if (is_news)
        (void)hr__cache_claim(w->cache, index, &b->ticket);
    int kept = offer_one(w, b, index, &item);
    /* The converted item may be too large for the room left. */
    if (!kept && item.bytes != read->bytes)
        kept = offer_one(w, b, index, &file);
    pthread_mutex_lock(&w->each.lock);
    w->granted -= b->granted;
    b->granted = 0;
    pthread_mutex_unlock(&w->each.lock);
    atomic_fetch_add(&w->cached, kept != 0);
    if (kept)
        atomic_store(&w->refusals, 0);
    else
        atomic_fetch_add(&w->refusals, 1);
    return 0;
}

/* Returns non-zero if the sample is cached. */
static int is_cached(struct warming *w, size_t index)
{
    struct hr__cache_item item;
    struct hr__cache_place place;
    if (hr__cache_locate(w->cache, index, &place))
        return 1;
    if (!hr__cache_find(w->cache, index, &item))
        return 0;
    hr__cache_unpin(w->cache, &item);
    return 1;
}

/* Claims a sample. Returns 1 if this thread is to read it; 0 if it is cached by now or the run was
 * cancelled. */
static int claim(struct warming *w, struct bench *b, size_t index)
{
    enum hr__claim answer;
    while ((answer = hr__cache_claim(w->cache, index, &b->ticket)) == HR__CLAIM_BUSY) {
        if (hr__progress_cancelled(&w->each.progress))
            return 0;
        nanosleep(&(struct timespec){.tv_nsec = ASK_NS}, NULL);
    }
    atomic_fetch_add(&w->cached, answer == HR__CLAIM_FOUND);
    return answer != HR__CLAIM_FOUND;
}

/* Whether a sample is read ahead: it is claimed then. Those that others are reading are left to the
 * thread that works on them. */
static int wants(void *arg, uint64_t index)
{
    struct warming *w = arg;
    struct hr__cache_ticket *ticket = &w->tickets[index % HR__AHEAD_SAMPLES];
    if (atomic_load(&w->refusals) >= REFUSALS_MAX || is_cached(w, index))
        return 0;
    enum hr__claim answer = hr__cache_claim(w->cache, index, ticket);
    return answer == HR__CLAIM_YOURS || answer == HR__CLAIM_ALONE;
}

/* Reads a sample that is not cached. Returns 1 if there is nothing to do. */
static int read_missing(struct warming *w, struct bench *b, size_t index, struct hr_error *why)
{
    if (hr__ahead_wait(w->ahead, index)) {
        struct hr__cache_ticket *ticket = &w->tickets[index % HR__AHEAD_SAMPLES];
        b->ticket = *ticket;
        *ticket = (struct hr__cache_ticket){.is_claimed = 0};
        return hr__ahead_sample(w->ahead, &b->sample, index, why);
    }
    if (is_cached(w, index)) {
        atomic_fetch_add(&w->cached, 1);
        return 1;
    }
    if (atomic_load(&w->refusals) >= REFUSALS_MAX || !claim(w, b, index))
        return 1;
    return hr__sample_read(&b->sample, w->dataset, index, why);
}

/* Caches a sample. Returns an error that ends the run; a bad sample is counted and is no error. */
static int warm_sample(void *arg, void *tools, size_t index, struct hr_error *why)
{
    struct warming *w = arg;
    struct bench *b = tools;
    int r = read_missing(w, b, index, why);
    if (r == 1)
        return 0;
    if (!r && w->dataset->masks)
        r = hr__sample_read(&b->mask, w->dataset->masks, index, why);
    if (!r) {
        atomic_fetch_add(&w->read_bytes, b->sample.read.length + b->mask.read.length);
        r = keep(w, b, index, why);
    }
    hr__read_drop(&b->sample.read);
    hr__read_drop(&b->mask.read);
    hr__cache_unclaim(w->cache, &b->ticket);
    if (!r || !hr__is_samples_fault(r))
        return r;
    atomic_fetch_add(&w->bad, 1);
    return 0;
}

static void warm_many(void *arg, size_t i)
{
    struct warming *w = arg;
    struct bench b = {.sample = {.uncached = 1}, .mask = {.uncached = 1}};
    struct hr_error why = {0};
    hr__each_take(&w->each, &b, 0, &why);
    hr_converter_destroy(&b.converter);
    hr__sample_clear(&b.sample);
    hr__sample_clear(&b.mask);
}

static void report_on(const struct warming *w, struct hr_cache_warm_report *out)
{
    struct hr__cache_counts now;
    hr__cache_get_counts(w->cache, &now);
    struct hr_cache_warm_report report = {
        .samples = hr_dataset_count(w->dataset),
        .cached = w->cached,
        .read_bytes = w->read_bytes,
        .used_bytes = now.bytes,
        .bad = w->bad,
    };
    memcpy(report.items, now.items, sizeof report.items);
    memcpy(report.items_of_form, now.items, sizeof report.items_of_form);
    if (out)
        hr__versioned_give(out, &report, sizeof report);
}

static int open_cache(struct warming *w, const char *text, struct hr_error *error)
{
    struct hr__cache_spec spec;
    int r = hr__cache_spec_parse(&spec, text, error);
    if (r)
        return r;
    if (!spec.name[0])
        return hr__fail(error, -EINVAL,
                        "\"%.200s\" is a private cache, which would go with this process: name "
                        "it, as in shm:NAME?size=64GiB",
                        text);
    if (spec.form >= 0 && hr__form_is_waveform((enum hr_form)spec.form))
        return hr__fail(error, -EINVAL,
                        "\"%.200s\": a waveform is made for a recipe, which a loader has: warm the "
                        "cache without form=waveform, or write a pack of waveforms",
                        text);
    w->form = spec.form < 0 ? HR_FORM_AUTO : spec.form;
    /* Larger items would have to be read from the disk in every epoch. */
    if (w->form == HR_FORM_AUTO && *spec.path)
        w->form = HR_FORM_ENCODED;
    /* Only proportions of preparation times matter here, and the typical ones are used. */
    hr__mean_add(&w->worth.prepare_ns[HR_FORM_ENCODED], 1e6);
    return hr__cache_create_shared(&w->cache, w->dataset, &spec, NULL, error);
}

/* Gets the number and total size of the samples to cache. */
static int measure(struct warming *w, struct hr_error *error)
{
    struct hr_dataset *whole = w->dataset->masks ? w->dataset : hr__dataset_origin(w->dataset);
    int r = hr_dataset_wait_sizes(whole);
    if (r)
        return hr__fail(error, r, "the sizes of the samples were not found out: %s",
                        hr__errno_text(r));
    int64_t bytes = hr__dataset_total_bytes(whole);
    w->samples = hr_dataset_count(whole);
    w->total_bytes = bytes > 0 ? (uint64_t)bytes : 0;
    return 0;
}

/* Begins to read ahead, if the samples are objects. */
static int begin_ahead(struct warming *w, struct hr_error *error)
{
    w->tickets = hr__alloc(HR__TAG_LOADER, HR__AHEAD_SAMPLES, sizeof *w->tickets);
    if (!w->tickets)
        return hr__fail(error, -ENOMEM, "out of memory for reading ahead");
    return hr__ahead_create(
        &w->ahead, &(struct hr__ahead_options){.dataset = w->dataset, .wants = wants, .arg = w},
        error);
}

/* Ends reading ahead, and the claims of samples that no thread took. */
static void end_ahead(struct warming *w)
{
    hr__ahead_destroy(&w->ahead);
    for (size_t i = 0; w->tickets && i < HR__AHEAD_SAMPLES; i++)
        hr__cache_unclaim(w->cache, &w->tickets[i]);
    hr__free(w->tickets);
}

int hr_cache_warm(struct hr_dataset *dataset, const char *spec, int threads,
                  hr_progress_fn progress, void *progress_arg, struct hr_cache_warm_report *report,
                  struct hr_error *error)
{
    struct hr__pool *pool = NULL;
    struct warming w = {.dataset = dataset};
    w.each = (struct hr__each){.count = hr_dataset_count(dataset),
                               .stage = "caching",
                               .what = "filling the cache",
                               .left = "; what is in it stays",
                               .thread = warm_many,
                               .work = warm_sample,
                               .arg = &w};
    int r = open_cache(&w, spec, error);
    if (!r)
        r = measure(&w, error);
    if (!r)
        r = hr__pool_create(&pool, threads, error);
    if (r) {
        hr__cache_destroy(&w.cache);
        return r;
    }
    /* Files written just now would not be cached: wait until they are no longer fresh. */
    nanosleep(&(struct timespec){.tv_nsec = HR__STAMP_FRESH_NS}, NULL);
    r = begin_ahead(&w, error);
    if (r)
        hr__pool_destroy(&pool);
    else
        r = hr__each_run(&w.each, &pool, progress, progress_arg, error);
    end_ahead(&w);
    report_on(&w, report);
    hr__cache_destroy(&w.cache);
    return r;
}
