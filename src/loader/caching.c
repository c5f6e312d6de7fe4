/* Admission and conversion; see caching.h. */
#include "loader/caching.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "cache/directory.h"
#include "cache/spec.h"
#include "loader/loader.h"

#include <headrace/cache.h>

#include <errno.h>

/* Samples are read between two publications of what was measured. */
#define PUBLISH_EVERY 256

/* The form to convert to: the options may say what the text leaves open. */
static int choose_form(const struct hr__cache_spec *spec, int option, int *out,
                       struct hr_error *error)
{
    int said = spec->form != HR__FORM_UNSAID;
    *out = said ? spec->form : option;
    if (!said || option == HR_FORM_AUTO || option == spec->form)
        return 0;
    return hr__fail(error, -EINVAL,
                    "the cache is asked for with form=%s, and cache_form says %s: leave one of "
                    "them out",
                    spec->form == HR_FORM_AUTO ? "auto" : hr_form_name((enum hr_form)spec->form),
                    hr_form_name((enum hr_form)option));
}

/* Ranks share, and so do runs of a name. */
static int open_cache(struct hr_loader *l, struct hr_error *error)
{
    const struct hr__cache_spec *spec = l->caching.spec;
    l->caching.pid = getpid();
    l->caching.whole = l->dataset;
    l->caching.total_bytes = HR_SIZE_UNKNOWN;
    if (!spec->name[0] && l->options.world_size == 1 && !l->lane) {
        /* It needs no segment; but memory that killed ranks left may be what it lacks. */
        hr__directory_sweep();
        struct hr__cache_options options = {
            .dataset = l->dataset,
            .samples = hr_dataset_count(l->dataset),
            .budget_bytes = spec->share_bytes,
        };
        return hr__cache_create(&l->caching.cache, &options, error);
    }
    char run[HR_CACHE_RUN];
    l->caching.whole = hr__dataset_origin(l->dataset);
    /* The lanes of a process are a run by themselves, whatever ranks they prepare for. */
    hr_cache_run(run, l->lane ? 1 : l->options.world_size);
    return hr__cache_create_shared(&l->caching.cache, l->dataset, spec, run, error);
}

int hr__caching_create(struct hr_loader *l, struct hr_error *error)
{
    struct hr__caching *c = &l->caching;
    if (!l->options.cache || !*l->options.cache)
        return 0;
    c->spec = hr__alloc(HR__TAG_LOADER, 1, sizeof *c->spec);
    if (!c->spec)
        return hr__fail(error, -ENOMEM, "out of memory for a cache's description");
    int r = hr__cache_spec_parse(c->spec, l->options.cache, error);
    if (!r)
        r = choose_form(c->spec, l->options.cache_form, &c->form_asked, error);
    if (!r && c->form_asked != HR_FORM_AUTO)
        c->form = (enum hr_form)c->form_asked;
    return r ? r : open_cache(l, error);
}

int hr__caching_enter(struct hr_loader *l, struct hr_error *error)
{
    if (!l->caching.spec || l->caching.pid == getpid())
        return 0;
    hr__cache_abandon(&l->caching.cache);
    return open_cache(l, error);
}

void hr__caching_begin_epoch(struct hr_loader *l)
{
    struct hr__caching *c = &l->caching;
    if (!c->cache || c->total_bytes != HR_SIZE_UNKNOWN)
        return;
    int64_t bytes = hr__dataset_total_bytes(c->whole);
    pthread_mutex_lock(&l->lock);
    c->total_bytes = bytes;
    pthread_mutex_unlock(&l->lock);
}

static void publish(struct hr_loader *l)
{
    struct hr__caching *c = &l->caching;
    pthread_mutex_lock(&l->lock);
    struct hr__worth worth = c->worth;
    enum hr_form form = c->form;
    pthread_mutex_unlock(&l->lock);
    hr__cache_publish(c->cache, &worth, form, c->form_asked);
}

void hr__caching_destroy(struct hr_loader *l)
{
    if (l->caching.cache && l->caching.offers)
        publish(l);
    if (l->caching.cache && hr__is_started(l))
        hr__cache_tell_kept(l->caching.cache);
    hr__cache_destroy(&l->caching.cache);
    hr__free(l->caching.spec);
    l->caching.spec = NULL;
}

void hr__caching_abandon(struct hr_loader *l)
{
    hr__cache_abandon(&l->caching.cache);
    hr__free(l->caching.spec);
    l->caching.spec = NULL;
}

void hr__caching_note_place(struct hr_loader *l, const struct hr__job *job)
{
    const struct hr__epoch *plan = job->batch->plan;
    /* An order of the caller's own is nobody else's. */
    if (l->caching.cache && plan->order)
        hr__cache_note_place(l->caching.cache, plan->same_order,
                             plan->epoch * plan->cut.samples + job->batch->positions[job->place]);
}

enum hr__claim hr__caching_claim(struct hr_loader *l, uint64_t index,
                                 struct hr__cache_ticket *ticket)
{
    if (!l->caching.cache)
        return HR__CLAIM_ALONE;
    return ticket->is_claimed ? HR__CLAIM_YOURS : hr__cache_claim(l->caching.cache, index, ticket);
}

void hr__caching_unclaim(struct hr_loader *l, struct hr__cache_ticket *ticket)
{
    if (ticket->is_claimed)
        hr__cache_unclaim(l->caching.cache, ticket);
}

/* How often an item will be used after this epoch: ranks deal anew in each epoch, and
 * those of this host, which share the cache, get their part of the samples. */
static uint64_t uses_locked(const struct hr_loader *l)
{
    if (hr__cache_is_kept(l->caching.cache))
        return HR__WORTH_FOREVER;
    if (!l->plan || l->plan->epoch + 1 >= l->options.epochs)
        return 0;
    uint64_t epochs = l->options.epochs - 1 - l->plan->epoch;
    uint64_t world = (uint64_t)l->options.world_size, here = (uint64_t)l->options.local_world_size;
    return l->shuffle && here < world ? epochs * here / world : epochs;
}

static struct hr__worth_moment moment_locked(const struct hr_loader *l, int idle)
{
    return (struct hr__worth_moment){
        .uses_known = l->options.epochs > 0 || hr__cache_is_kept(l->caching.cache),
        .uses = uses_locked(l),
        .idle = idle,
        .working_ns = l->caching.working_ns,
        .converting_ns = l->caching.converting_ns,
    };
}

uint64_t hr__caching_missing(const struct hr__cache_counts *now, uint64_t samples, double bytes)
{
    /* A kept cache may have items of files that changed since. */
    uint64_t cached = now->items[0] + now->items[1] + now->items[2];
    double missing = bytes - (double)now->source_bytes;
    if (cached >= samples || missing <= 0)
        return 0;
    return (uint64_t)missing + (samples - cached) * HR__CACHE_PADDING;
}

/* What the samples take that are not cached: all known, or by their mean. */
static uint64_t missing_locked(const struct hr_loader *l, const struct hr__cache_counts *now)
{
    const struct hr__caching *c = &l->caching;
    uint64_t samples = hr_dataset_count(c->whole);
    if (c->total_bytes != HR_SIZE_UNKNOWN)
        return hr__caching_missing(now, samples, (double)c->total_bytes);
    uint64_t cached = now->items[0] + now->items[1] + now->items[2];
    double missing = samples > cached ? (double)(samples - cached) : 0;
    return hr__caching_missing(now, samples,
                               (double)now->source_bytes + missing * c->worth.read_bytes.value);
}

/* `staged`: those that wait for a conversion may be decided anew; otherwise they get what
 * was kept for them. */
static struct hr__worth_space space_locked(const struct hr_loader *l, int staged,
                                           const struct hr__cache_counts *now)
{
    return (struct hr__worth_space){
        .budget_bytes = hr__cache_budget(l->caching.cache),
        .settled_bytes = staged ? now->bytes - now->staged_bytes : now->reserved,
        .staged_bytes = staged ? now->staged_bytes : 0,
        .missing_bytes = missing_locked(l, now),
        .converted = now->items[HR_FORM_COEFFICIENTS] + now->items[HR_FORM_PLANES],
        .staged = now->staged,
        .asked = l->caching.form_asked,
        .fetch_bound = !l->workers_read,
    };
}

/* The form to convert an item of so many bytes to. */
static enum hr_form choose_locked(struct hr_loader *l, size_t length,
                                  const struct hr__worth_space *space,
                                  const struct hr__worth_moment *moment)
{
    l->caching.form = hr__worth_choose(&l->caching.worth, length, space, moment);
    return l->caching.form;
}

void hr__caching_note_locked(struct hr_loader *l, const struct hr__cost *cost)
{
    l->caching.working_ns += cost->working_ns;
    if (cost->prepare_ns && !cost->read_bytes)
        hr__mean_add(&l->caching.worth.prepare_ns[cost->form], (double)cost->prepare_ns);
}

/* Costs of a miss go into the means before anything is decided by them. */
static void note_miss_locked(struct hr_loader *l, const struct hr__cost *cost)
{
    struct hr__worth *worth = &l->caching.worth;
    hr__mean_add(&worth->prepare_ns[cost->form], (double)cost->prepare_ns);
    hr__mean_add(&worth->read_bytes, (double)cost->read_bytes);
    if (cost->read_ns)
        hr__mean_add(&worth->read_ns, (double)cost->read_ns);
}

void hr__caching_offer(struct hr_loader *l, uint64_t index, const void *bytes,
                       const struct hr__cost *cost, struct hr__cache_ticket *ticket)
{
    struct hr__cache_counts now;
    struct hr__cache_offer offer = {.index = index,
                                    .ticket = ticket,
                                    .bytes = bytes,
                                    .length = cost->read_bytes,
                                    .form = cost->form};
    hr__cache_get_counts(l->caching.cache, &now);
    pthread_mutex_lock(&l->lock);
    note_miss_locked(l, cost);
    struct hr__worth_space space = space_locked(l, 0, &now);
    struct hr__worth_moment moment = moment_locked(l, 0);
    enum hr_form form = choose_locked(l, offer.length, &space, &moment);
    if (cost->form == HR_FORM_ENCODED && form != HR_FORM_ENCODED &&
        (!moment.uses_known || moment.uses)) {
        offer.convert = 1;
        offer.reserve = hr__worth_reserve(&l->caching.worth, form, offer.length, &space, &moment);
    }
    int tell = l->caching.offers++ % PUBLISH_EVERY == PUBLISH_EVERY - 1;
    pthread_mutex_unlock(&l->lock);
    if (tell)
        publish(l);
    if (!hr__cache_offer(l->caching.cache, &offer) || !offer.convert)
        return;
    pthread_mutex_lock(&l->lock);
    hr__wake_worker_locked(l);
    pthread_mutex_unlock(&l->lock);
}

int hr__caching_may_convert_locked(struct hr_loader *l, int idle)
{
    if (!l->caching.cache || l->stop || !hr__cache_waiting(l->caching.cache))
        return 0;
    struct hr__worth_moment moment = moment_locked(l, idle);
    struct hr__cache_counts now;
    hr__cache_get_counts(l->caching.cache, &now);
    struct hr__worth_space space = space_locked(l, 1, &now);
    enum hr_form form = choose_locked(l, 0, &space, &moment);
    return hr__worth_convert(&l->caching.worth, form, &moment);
}

/* Every sample of the batch that the consumer gets next is in some worker's hands,
 * or done: a conversion that begins now cannot hold it up. */
static int next_batch_is_in_hand_locked(const struct hr_loader *l)
{
    const struct hr_batch *batch = l->window;
    return !batch || (batch->claimed == batch->count && !batch->fetched);
}

int hr__caching_should_convert_locked(struct hr__thread *self)
{
    struct hr_loader *l = self->loader;
    /* In one go: a conversion a batch would be far less than a tenth. */
    self->converting = (self->converting || next_batch_is_in_hand_locked(l)) &&
                       hr__caching_may_convert_locked(l, 0);
    return self->converting;
}

/* What is to be done with one staged item. */
struct task {
    struct hr__cache_staged *staged;
    struct hr__cache_item item;
    enum hr_form form;
    double growth;       /* as expected */
    uint64_t leave_free; /* of the budget */
};

static void plan_task(struct hr_loader *l, struct task *task)
{
    struct hr__cache_counts now;
    hr__cache_get_counts(l->caching.cache, &now);
    pthread_mutex_lock(&l->lock);
    struct hr__worth_space space = space_locked(l, 1, &now);
    struct hr__worth_moment moment = moment_locked(l, 1);
    task->form = choose_locked(l, task->item.length, &space, &moment);
    task->growth = hr__worth_growth(&l->caching.worth, task->form);
    task->leave_free = hr__worth_leave_free(&l->caching.worth, task->form, &space, &moment);
    pthread_mutex_unlock(&l->lock);
}

/* Non-zero, and the item in *out, where it could be converted. Whatever the reason
 * why not: the item stays encoded, which is always right. */
static int convert(struct hr__thread *self, const struct task *task, struct hr_item *out)
{
    struct hr__cache *cache = self->loader->caching.cache;
    double expected = (double)task->item.length * task->growth;
    if (task->form == HR_FORM_ENCODED ||
        expected > (double)hr__cache_room(cache, task->staged, task->leave_free))
        return 0;
    if (!self->converter && hr_converter_create(&self->converter, NULL, NULL))
        return 0;
    return !hr_converter_run(self->converter, task->form, task->item.bytes, task->item.length, out,
                             NULL);
}

/* Converts the item that has waited longest: its form now, or encoded; its growth
 * in *growth, 0 where it was not converted. */
static enum hr_form convert_one(struct hr__thread *self, double *growth)
{
    struct hr_loader *l = self->loader;
    struct task task;
    struct hr_item item;
    *growth = 0;
    task.staged = hr__cache_take(l->caching.cache, &task.item);
    if (!task.staged)
        return HR_FORM_ENCODED;
    plan_task(l, &task);
    struct hr__cache_final final = {.leave_free = task.leave_free};
    double length = (double)task.item.length;
    if (convert(self, &task, &item)) {
        final.bytes = item.bytes;
        final.length = item.length;
        final.form = item.form;
        *growth = (double)item.length / length;
    }
    if (hr__cache_settle(l->caching.cache, task.staged, &final))
        hr__count(&l->counters.converted, 1);
    return *growth > 0 ? final.form : HR_FORM_ENCODED;
}

void hr__caching_convert_locked(struct hr__thread *self)
{
    struct hr_loader *l = self->loader;
    struct hr__caching *c = &l->caching;
    /* Other workers count this one while they decide. */
    uint64_t expected_ns = (uint64_t)hr__worth_convert_ns(&c->worth, c->form);
    c->converting_ns += expected_ns;
    pthread_mutex_unlock(&l->lock);
    uint64_t start_ns = hr__thread_cpu_ns();
    double growth;
    enum hr_form form = convert_one(self, &growth);
    uint64_t ns = hr__thread_cpu_ns() - start_ns;
    hr__count(&l->counters.conversion_ns, ns);
    pthread_mutex_lock(&l->lock);
    c->converting_ns += ns - expected_ns;
    c->working_ns += ns;
    if (form == HR_FORM_ENCODED)
        return;
    hr__mean_add(&c->worth.convert_ns[form], (double)ns);
    hr__mean_add(&c->worth.growth[form], growth);
}
