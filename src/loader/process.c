/* A worker's turn with one sample: obtain, prepare, keep; and stand-ins for samples that fail. */
#include "loader/process.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "dataset/pair.h"
#include "loader/batch_rows.h"
#include "loader/inside.h"
#include "loader/schedule.h"
#include "recipe/mask.h"
#include "recipe/recipe.h"
#include "recipe/rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* The most stand-ins tried for one bad sample. */
#define MAX_ATTEMPTS 32

/* How often a worker looks in the cache for a sample that the cache says it has, before it reads
 * the sample itself. */
#define LOOKS 3

/* Reads on this thread. The read's result is in the job; fails only if there is nothing to read
 * from. */
static int read_now(struct hr_loader *l, struct hr__job *job, uint64_t index,
                    struct hr_error *error)
{
    struct hr__read *read = &job->sample.read;
    uint64_t start = hr__now_ns();
    int r = hr__job_aim(l, job, index, 0, error);
    if (r)
        return r;
    read->result = l->samples ? l->samples->read(l->samples, read) : hr__read_file(read, 0);
    hr__account_read(l, read, job->tier, hr__now_ns() - start);
    return 0;
}

/* Reads, and finds out whether this thread had to wait for storage. The kernel's count of voluntary
 * context switches shows that; time would not, because the machine may just be busy. */
static int read_and_watch(struct hr_loader *l, struct hr__job *job, uint64_t index, int *blocked,
                          struct hr_error *error)
{
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    int r = read_now(l, job, index, error);
    getrusage(RUSAGE_THREAD, &after);
    *blocked = after.ru_nvcsw != before.ru_nvcsw;
    return r;
}

/* The clock for struct hr__cost. */
static uint64_t cost_clock(const struct hr_loader *l)
{
    return l->keeper->note_locked ? hr__thread_cpu_ns() : 0;
}

/* The bytes of a sample on a worker. */
struct input {
    uint64_t index;
    int is_here; /* a fetcher or host thread read it: the job has its bytes */
    int is_stand_in;
    int looks;     /* how many more times to look for it in the cache */
    int is_cached; /* it is in the cache, at `hit` */
    struct hr__cache_item hit;
    struct hr_item item;
    struct hr_item_part mask; /* bytes: NULL: the sample has none */
    size_t kept_bytes;        /* of what is kept for the sample: item and mask */
};

/* Returns non-zero if an item is a conversion that must not stand for its sample. A recipe with
 * scaled decoding scales files, while items are decoded exactly, and pixels must not depend on what
 * other jobs keep; a recipe of sounds needs waveforms of its own head. Items that the dataset
 * itself has in the form are no conversions. */
static int is_foreign(const struct hr_loader *l, uint64_t index, const struct hr_item *item)
{
    struct hr__range range;
    if (hr__recipe_options(l->recipe)->inexact
            ? hr__form_is_scalable(item->form)
            : !hr__recipe_refuses_waveform(l->recipe, item->bytes, item->length))
        return 0;
    return hr__dataset_range(l->dataset, index, 0, &range, NULL) != 1 || range.form != item->form;
}

static int find(struct hr_loader *l, struct input *in)
{
    in->is_cached = in->looks-- > 0 && l->cache && hr__cache_find(l->cache, in->index, &in->hit);
    if (in->is_cached)
        in->item = (struct hr_item){in->hit.bytes, in->hit.length, in->hit.form};
    if (in->is_cached && is_foreign(l, in->index, &in->item)) {
        hr__cache_unpin(l->cache, &in->hit);
        in->is_cached = 0;
    }
    return in->is_cached;
}

/* Returns non-zero if the sample was found in the cache or this worker is to read it; zero if
 * another process is reading it. */
static int find_or_claim(struct hr_loader *l, struct hr__job *job, struct input *in)
{
    /* If the cache says it has the sample but find() does not get it, the item is just being
     * removed, or is damaged. */
    while (!find(l, in)) {
        enum hr__claim claim = hr__sample_claim(l, in->index, &job->ticket);
        /* Stand-ins are rare: if another process is reading one, it is simply read twice. */
        if (claim == HR__CLAIM_BUSY && !in->is_stand_in)
            return 0;
        if (claim != HR__CLAIM_FOUND || in->looks <= 0)
            break;
    }
    return 1;
}

/* Reads a sample on this thread and measures the cost. */
static int read_one(struct hr_loader *l, struct hr__job *job, const struct input *in,
                    struct hr__outcome *outcome, struct hr_error *error)
{
    if (in->is_stand_in)
        return read_now(l, job, in->index, error);
    outcome->was_read = 1;
    uint64_t start_ns = hr__now_ns(), start_cpu = cost_clock(l);
    int r = read_and_watch(l, job, in->index, &outcome->blocked, error);
    outcome->fetch_ns = hr__now_ns() - start_ns;
    outcome->cost.read_ns = outcome->blocked ? outcome->fetch_ns : cost_clock(l) - start_cpu;
    return r;
}

/* Checks an item that was read from a disk of the cache. Returns zero if the sample has to be read
 * from its source, and frees the bytes then. */
static int is_right_item(struct hr_loader *l, struct hr__job *job, const struct input *in)
{
    struct hr__read *read = &job->sample.read;
    int r = hr__sample_check(&job->sample, NULL);
    if (r && !hr__is_samples_fault(r))
        return 1; /* this process failed, not the disk: it is reported */
    if (hr__cache_verify(l->cache, &job->located, r ? NULL : read->bytes, read->length) &&
        !is_foreign(l, in->index, &(struct hr_item){read->bytes, read->length, job->located.form}))
        return 1;
    hr__drop_bytes(l, read);
    return 0;
}

/* First step of a turn: gets the bytes from the cache, from the thread that read them, or by
 * reading now. Sets outcome->busy if another process is reading them. */
static int obtain(struct hr__thread *self, struct hr__job *job, struct input *in,
                  struct hr__outcome *outcome, struct hr_error *error)
{
    struct hr_loader *l = self->loader;
    struct hr__read *read = &job->sample.read;
    int r = 0;
    in->is_cached = 0;
    if (in->is_here && job->tier != HR__TIER_STORAGE && job->tier != HR__TIER_DISK && read->bytes &&
        is_foreign(
            l, in->index,
            &(struct hr_item){read->bytes, read->length, hr_form_of(read->bytes, read->length)})) {
        hr__drop_bytes(l, read);
        hr__drop_mask(l, job); /* it was in these bytes */
        job->tier = HR__TIER_STORAGE;
        r = read_one(l, job, in, outcome, error);
    } else if (!in->is_here) {
        outcome->busy = !find_or_claim(l, job, in);
        if (outcome->busy || in->is_cached)
            return 0;
        r = read_one(l, job, in, outcome, error);
    }
    if (!r && job->tier == HR__TIER_DISK && !is_right_item(l, job, in)) {
        job->from_source = 1;
        r = read_one(l, job, in, outcome, error);
    }
    if (!r)
        r = hr__sample_check(&job->sample, error);
    if (!r)
        in->item =
            (struct hr_item){read->bytes, read->length, hr_form_of(read->bytes, read->length)};
    return r;
}

/* Separates an item that was kept into image and mask. */
static int separate(const struct hr_loader *l, struct input *in, struct hr_error *error)
{
    struct hr__pair pair;
    int r = hr__pair_split(&pair, l->dataset, in->item.bytes, in->item.length);
    if (r)
        return hr__fail(error, r, "what was kept of it has no mask");
    in->item.length = pair.image.length;
    in->mask = pair.mask;
    return 0;
}

/* Reads the sample's mask, unless a fetcher did. */
static int read_mask(struct hr_loader *l, struct hr__job *job, const struct input *in,
                     struct hr__outcome *outcome, struct hr_error *error)
{
    struct rusage before, after;
    struct hr_error why;
    char path[512] = "?";
    int r;
    if (job->mask_read == HR__MASK_READ) {
        r = hr__sample_check(&job->mask, &why);
    } else {
        uint64_t start_ns = hr__now_ns();
        getrusage(RUSAGE_THREAD, &before);
        r = hr__sample_read(&job->mask, l->dataset->masks, in->index, &why);
        getrusage(RUSAGE_THREAD, &after);
        uint64_t took_ns = hr__now_ns() - start_ns;
        if (!in->is_stand_in) {
            outcome->was_read = 1;
            outcome->blocked |= after.ru_nvcsw != before.ru_nvcsw;
            outcome->fetch_ns += took_ns;
        }
        if (!r)
            hr__account_read(l, &job->mask.read, HR__TIER_STORAGE, took_ns);
        job->mask_read = r ? HR__MASK_UNREAD : HR__MASK_READ;
    }
    if (!r)
        return 0;
    if (job->mask.read.path)
        hr__printable(path, sizeof path, job->mask.read.path);
    return hr__fail(error, r, "its mask (%.400s): %.400s", path, why.message);
}

/* Second half of the first step: gets the sample's mask, if it has one. */
static int obtain_mask(struct hr_loader *l, struct hr__job *job, struct input *in,
                       struct hr__outcome *outcome, struct hr_error *error)
{
    in->mask = (struct hr_item_part){NULL, 0};
    in->kept_bytes = in->item.length;
    if (!job->batch->masks)
        return 0;
    if (in->is_cached || job->tier != HR__TIER_STORAGE || job->mask_read == HR__MASK_WITHIN)
        return separate(l, in, error);
    int r = read_mask(l, job, in, outcome, error);
    if (r)
        return r;
    in->mask = (struct hr_item_part){job->mask.read.bytes, job->mask.read.length};
    in->kept_bytes += in->mask.length + HR__PAIR_TAIL;
    return 0;
}

/* Runs the recipe on a sample, and on its mask, if it has one. */
static int run_recipe(struct hr__thread *self, const struct hr__job *job, const struct input *in,
                      const struct hr_draw_key *key, struct hr_error *error)
{
    const struct hr_loader *l = self->loader;
    const struct hr_batch *batch = job->batch;
    struct hr__sample_rows rows;
    void *outs[HR_RECIPE_MAX_VIEWS];
    outs[0] = (char *)batch->images + job->place * l->spec.bytes;
    for (size_t v = 1; v < hr_recipe_views(l->recipe); v++)
        outs[v] = hr__batch_place(batch, v, job->place);
    struct hr__prepared prepared = {.outs = outs};
    if (batch->rows) {
        hr__dataset_sample_rows(l->dataset, key->index, &rows);
        prepared.in = &rows;
        prepared.record = hr__batch_record(batch->rows, job->place);
    }
    if (batch->extents)
        prepared.extents = batch->extents + job->place * l->spec.dims;
    struct hr__mask mask = {.bytes = in->mask.bytes, .length = in->mask.length};
    if (batch->masks) {
        mask.out = batch->masks + job->place * (size_t)l->spec.height * (size_t)l->spec.width;
        mask.extents = batch->mask_extents ? batch->mask_extents + 2 * job->place : NULL;
        prepared.mask = &mask;
    }
    return hr__preparer_run_item(self->preparer, l->recipe, &in->item, key, &prepared, error);
}

/* Notes the item that was made in passing, if any. */
static void take_made(const struct hr__thread *self, const struct input *in, struct hr__cost *cost)
{
    cost->made_bytes = 0;
    if (hr_preparer_item_parts(self->preparer, cost->made))
        return;
    cost->made_bytes = in->kept_bytes - in->item.length;
    for (int i = 0; i < HR_ITEM_PARTS; i++)
        cost->made_bytes += cost->made[i].length;
}

/* Second step: runs the recipe on the bytes, into the sample's place in the batch. */
static int prepare(struct hr__thread *self, struct hr__job *job, const struct input *in,
                   struct hr__outcome *outcome, struct hr_error *error)
{
    struct hr_loader *l = self->loader;
    const struct hr__epoch *plan = job->batch->plan;
    struct hr_draw_key key = {.seed = plan->seed, .epoch = plan->epoch, .index = in->index};
    /* With an external order, repeats of a sample must be augmented differently. */
    if (!plan->order)
        key.epoch += job->batch->positions[job->place] << 32;
    error->message[0] = 0;
    int wants_index = !in->is_cached && in->item.form == HR_FORM_ENCODED &&
                      l->keeper->wants_index && l->keeper->wants_index(l);
    hr_preparer_make_items(self->preparer, wants_index ? HR_ITEMS_IN_PARTS : 0);
    self->bands.helped_ns = 0;
    uint64_t start = hr__now_ns(), start_cpu = cost_clock(l);
    int r = run_recipe(self, job, in, &key, error);
    uint64_t took_ns = hr__now_ns() - start;
    if (l->samples)
        job->batch->labels[job->place] = job->sample.read.label;
    hr__histogram_add(&hr__counters_here(l)->prepare, took_ns);
    if (l->keeper->prepared)
        l->keeper->prepared(l, in->index, took_ns);
    outcome->cost.had_index = wants_index;
    take_made(self, in, &outcome->cost);
    outcome->cost.form = in->item.form;
    outcome->cost.read_bytes = in->is_cached ? 0 : in->kept_bytes;
    outcome->cost.prepare_ns = r ? 0 : cost_clock(l) - start_cpu;
    if (outcome->cost.prepare_ns)
        outcome->cost.prepare_ns += self->bands.helped_ns;
    if (r && !error->message[0])
        hr__fail(error, r, "%s", hr__errno_text(r));
    return r;
}

/* Third step: offers the bytes read to the keeper if the sample `is_good`, frees the bytes, and
 * ends the claim. Returns zero if cached bytes were removed while they were prepared. */
static int keep(struct hr__thread *self, struct hr__job *job, const struct input *in,
                const struct hr__outcome *outcome, int is_good)
{
    struct hr_loader *l = self->loader;
    if (in->is_cached) {
        if (!hr__cache_unpin(l->cache, &in->hit))
            return 0;
        hr__count(&hr__counters_here(l)->cache_hits, 1);
    } else if (is_good && l->keeper->offer) {
        if (job->tier == HR__TIER_DISK) {
            hr__count(&hr__counters_here(l)->cache_hits, 1);
            hr__count(&hr__counters_here(l)->disk_hits, 1);
        }
        l->keeper->offer(self, job, in->index, &outcome->cost);
    }
    hr__sample_unclaim(l, &job->ticket);
    hr__drop_bytes(l, &job->sample.read);
    hr__drop_mask(l, job);
    return 1;
}

/* A worker's turn with one sample. Returns 0, also if outcome->busy is set, or the error. */
static int take_turn(struct hr__thread *self, struct hr__job *job, struct input *in,
                     struct hr__outcome *outcome, struct hr_error *error)
{
    for (;;) {
        int r = obtain(self, job, in, outcome, error);
        if (outcome->busy)
            return 0;
        if (!r)
            r = obtain_mask(self->loader, job, in, outcome, error);
        if (!r)
            r = prepare(self, job, in, outcome, error);
        if (keep(self, job, in, outcome, !r))
            return r;
    }
}

/* Dataset index of stand-in number `attempt` for the sample at `position`. */
static uint64_t stand_in(const struct hr__epoch *plan, uint64_t position, uint32_t attempt)
{
    uint64_t samples = plan->cut.samples;
    uint64_t other =
        hr_order_replacement(samples, plan->seed, plan->epoch, position % samples, attempt);
    return plan->order ? hr__order_at(plan->order, other) : other;
}

/* Puts a stand-in where a bad sample was. Returns 0, or the last error. */
static int replace(struct hr__thread *self, struct hr__job *job, struct hr__outcome *outcome,
                   struct hr_error *error)
{
    struct hr_loader *l = self->loader;
    struct hr_batch *batch = job->batch;
    const struct hr__epoch *plan = batch->plan;
    uint64_t others = plan->cut.samples - 1;
    uint32_t attempts = others < MAX_ATTEMPTS ? (uint32_t)others : MAX_ATTEMPTS;
    int r = -EBADMSG;
    for (uint32_t attempt = 0; attempt < attempts && r && hr__is_samples_fault(r); attempt++) {
        uint64_t index = stand_in(plan, batch->positions[job->place], attempt);
        struct input in = {.index = index, .is_stand_in = 1, .looks = 1};
        outcome->cost.read_ns = 0;
        r = take_turn(self, job, &in, outcome, error);
        /* A damaged stand-in is not used: a place can record the problem of only one sample. */
        if (!r && hr_preparer_damage(self->preparer))
            r = hr__fail(error, -EBADMSG, "%s", hr_preparer_damage(self->preparer));
        if (!r) {
            batch->indices[job->place] = (int64_t)index;
            if (!l->samples)
                batch->labels[job->place] = hr_dataset_label(l->dataset, index);
        }
    }
    return r;
}

/* Turns a failure at `index` into the error that the consumer gets. */
static void fail_job(struct hr_loader *l, struct hr__job *job, uint64_t index,
                     const struct hr_error *cause, struct hr__outcome *outcome)
{
    outcome->failed = hr__bad_make(l, job->batch, job->place, index, cause->message);
    char path[512] = "?";
    if (outcome->failed)
        hr__printable(path, sizeof path, outcome->failed->path);
    hr__fail(&outcome->error, cause->code, "sample %" PRIu64 " (%s): %.480s", index, path,
             cause->message);
    /* A failure of this process does not make the sample bad. */
    if (!hr__is_samples_fault(cause->code)) {
        hr__free(outcome->failed);
        outcome->failed = NULL;
    }
}

static void handle_failure(struct hr__thread *self, struct hr__job *job, struct hr_error *cause,
                           struct hr__outcome *outcome)
{
    struct hr_loader *l = self->loader;
    uint64_t index = (uint64_t)job->batch->indices[job->place];
    if (l->options.on_error != HR_ON_ERROR_SKIP || !hr__is_samples_fault(cause->code)) {
        fail_job(l, job, index, cause, outcome);
        return;
    }
    outcome->skipped = hr__bad_make(l, job->batch, job->place, index, cause->message);
    if (!outcome->skipped) {
        hr__fail(&outcome->error, -ENOMEM, "out of memory for the record of a bad sample");
        return;
    }
    struct hr_error last = {.code = cause->code};
    int r = replace(self, job, outcome, &last);
    if (!r)
        return;
    if (hr__is_samples_fault(r))
        snprintf(last.message, sizeof last.message,
                 "%.300s; no stand-in could be read either (up to %d were tried)",
                 outcome->skipped->reason, MAX_ATTEMPTS);
    last.code = r;
    fail_job(l, job, index, &last, outcome);
}

/* Records the damage of a sample that is used. Out of memory counts as a failure of this
 * process. */
static void note_damage(struct hr__thread *self, const struct hr__job *job, uint64_t index,
                        struct hr__outcome *outcome)
{
    const char *damage = hr_preparer_damage(self->preparer);
    if (!damage)
        return;
    outcome->skipped = hr__bad_make(self->loader, job->batch, job->place, index, damage);
    if (outcome->skipped)
        outcome->skipped->taken = 1;
    else
        hr__fail(&outcome->error, -ENOMEM, "out of memory for the record of a damaged sample");
}

void hr__process(struct hr__thread *self, struct hr__job *job, struct hr__outcome *outcome)
{
    struct hr_loader *l = self->loader;
    uint64_t index = (uint64_t)job->batch->indices[job->place];
    struct hr_error error;
    memset(outcome, 0, offsetof(struct hr__outcome, error));
    outcome->error.code = 0;
    outcome->was_read = outcome->blocked = outcome->busy = 0;
    outcome->fetch_ns = 0;
    outcome->cost = (struct hr__cost){.form = HR_FORM_ENCODED};
    uint64_t start_cpu = cost_clock(l);
    if (l->keeper->note_place)
        l->keeper->note_place(l, job);
    struct input in = {.index = index, .is_here = !job->unread, .looks = LOOKS};
    int r = take_turn(self, job, &in, outcome, &error);
    if (r && job->tier != HR__TIER_STORAGE && hr__is_samples_fault(r)) {
        /* The item of a host or a disk could not be prepared; try the sample's file. */
        job->tier = HR__TIER_STORAGE;
        job->from_source = 1;
        if (l->keeper->forget)
            l->keeper->forget(l, job, index);
        in = (struct input){.index = index};
        r = take_turn(self, job, &in, outcome, &error);
    }
    outcome->cost.working_ns = cost_clock(l) - start_cpu;
    if (outcome->busy)
        return;
    if (r) {
        error.code = r;
        handle_failure(self, job, &error, outcome);
        outcome->cost.working_ns = cost_clock(l) - start_cpu;
    } else {
        note_damage(self, job, index, outcome);
    }
    if (outcome->error.code)
        return;
    hr__count(&hr__counters_here(l)->samples, 1);
    if (hr_preparer_scale(self->preparer) > 1)
        hr__count(&hr__counters_here(l)->scaled_samples, 1);
}
