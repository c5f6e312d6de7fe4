/* Admission to the cache and conversion of items (caching.h). */
#include "loader/caching.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "cache/directory.h"
#include "cache/evicting.h"
#include "cache/spec.h"
#include "cache/worth.h"
#include "dataset/pair.h"
#include "loader/inside.h"
#include "loader/schedule.h"
#include "recipe/recipe.h"

#include <headrace/cache.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* How many samples are read between two publications of the measured costs. */
#define PUBLISH_EVERY 256

/* What the caller told of an external order (hr_loader_expect), for a shared cache, which asks for
 * it once it begins to evict. */
struct told {
    uint32_t *indices; /* under `telling`; as far as they are known */
    size_t count;
    size_t first;      /* of this epoch */
    uint64_t position; /* of the first one in the epoch */

    /* For workers: what is 0 is not known. */
    _Atomic uint64_t stream; /* digest of what was told first, which other jobs with the same
                                sampler tell, too */
    _Atomic uint64_t length; /* of an epoch */
    atomic_int repeats;      /* a sample is used twice in an epoch, or not in each */
};

struct hr__caching {
    struct hr__cache_tiers *tiers; /* the parsed option */
    struct hr__cache_spec *spec;   /* its first tier */
    int form_asked;                /* enum hr_form or HR_FORM_AUTO */
    int is_chosen;                 /* form_asked is waveform because auto is that of sounds here */
    struct hr_dataset *whole;      /* the dataset whose samples it may hold: the loader's, or its
                                      parent */
    int of_publishers;             /* the loader is a publisher */
    int pid;                       /* process that made the cache */
    int is_expected;               /* the caller told this epoch's samples; consumer's thread */
    uint64_t subset;               /* digest of the dataset's samples in `whole`; 0: all of them */
    pthread_mutex_t telling;       /* the cache is being told an order */
    struct told told;
    atomic_int is_warned; /* of objects without versions */

    /* Guarded by the loader's lock. */
    struct hr__worth worth;
    enum hr_form form;      /* form to convert to: the one asked for, or the last one chosen */
    enum hr_form next;      /* form that was chosen for the last sample offered */
    uint64_t working_ns;    /* time of all workers: preparing, reading, converting */
    uint64_t converting_ns; /* part of it for converting; conversions in progress with the expected
                               time */
    uint64_t offers;        /* offers so far */
    int64_t total_bytes;    /* of all samples of `whole`; HR_SIZE_UNKNOWN: not known yet */
};

/* Determines the form to convert to: option cache_form applies if the cache's text names none. */
static int choose_form(const struct hr__cache_spec *spec, int option, int *out,
                       struct hr_error *error)
{
    int is_set = spec->form != HR__FORM_UNSET;
    *out = is_set ? spec->form : option;
    if (!is_set || option == HR_FORM_AUTO || option == spec->form)
        return 0;
    return hr__fail(error, -EINVAL,
                    "the cache is asked for with form=%s, and cache_form says %s: leave one of "
                    "them out",
                    spec->form == HR_FORM_AUTO ? "auto" : hr_form_name((enum hr_form)spec->form),
                    hr_form_name((enum hr_form)option));
}

int hr__caching_form(const struct hr_loader *l, int *form, struct hr_error *error)
{
    return hr__recipe_cache_form(l->recipe, form, error);
}

uint64_t hr__caching_variant(const struct hr_recipe *recipe, int form)
{
    struct hr_sound_head head;
    return hr_recipe_sound_head(recipe, &head) ? 0 : hr__waveform_digest(form, &head);
}

void hr__caching_set_variant(struct hr__cache_spec *spec, const struct hr_recipe *recipe, int form)
{
    struct hr_sound_head head;
    char text[HR__HEAD_TEXT];
    spec->variant = hr__caching_variant(recipe, form);
    if (spec->variant && !hr_recipe_sound_head(recipe, &head))
        snprintf(spec->variant_text, sizeof spec->variant_text, "%s, %s",
                 hr_form_name((enum hr_form)form), hr__sound_head_text(text, &head));
}

/* Resolves HR_FORM_AUTO for sounds: where only this run uses the cache, they become waveforms when
 * that repays. A cache that others use, too, does not know their recipes and keeps files. */
static void choose_sounds(struct hr_loader *l)
{
    struct hr__caching *c = l->caching;
    struct hr_sound_head head;
    if (c->form_asked == HR_FORM_AUTO && !hr_recipe_sound_head(l->recipe, &head)) {
        c->is_chosen = !c->spec->name[0] && !c->of_publishers;
        c->form_asked = c->is_chosen ? HR_FORM_WAVEFORM : HR_FORM_ENCODED;
    }
    hr__caching_set_variant(c->spec, l->recipe, c->form_asked);
}

/* Opens a cache that evicts, alone or in another loader's. */
static int open_evicting(struct hr_loader *l, struct hr_error *error)
{
    const struct hr_loader *beside = l->options.cache_of;
    struct hr__cache_options options = {
        .dataset = l->dataset,
        .samples = hr_dataset_count(l->dataset),
        .budget_bytes = l->caching->spec->share_bytes,
    };
    if (!beside)
        return hr__cache_create_evicting(&l->cache, &options, error);
    if (!beside->cache || beside->caching->pid != getpid())
        return hr__fail(error, -EINVAL, "cache_of is a loader without a cache of this process");
    return hr__cache_join_evicting(&l->cache, beside->cache, &options, error);
}

/* Checks the options of a cache that evicts. */
static int check_evicting(const struct hr_loader *l, struct hr_error *error)
{
    const struct hr__cache_spec *spec = l->caching->spec;
    if (l->options.cache_of && l->options.cache && *l->options.cache)
        return hr__fail(error, -EINVAL,
                        "the loader shares another's cache (cache_of) and has `cache` of its own: "
                        "leave one of them out");
    if (spec->name[0] || *l->caching->tiers->disk.path || l->options.world_size != 1 ||
        l->caching->of_publishers)
        return hr__fail(error, -EINVAL,
                        "a cache that evicts (cache_evicts, cache_of) is private to one process: "
                        "write a size alone, such as cache=64GiB, and use it with one rank and "
                        "without an agent");
    return 0;
}

static uint64_t digest_of(const int64_t *indices, size_t count)
{
    uint64_t digest = 0;
    for (size_t i = 0; i < count; i++)
        digest = ((digest ^ (uint64_t)indices[i]) + i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    return digest;
}

/* Opens the first tier. It is shared if it has a name or if there are several ranks or
 * publishers. */
static int open_first(struct hr_loader *l, struct hr_error *error)
{
    const struct hr__cache_spec *spec = l->caching->spec;
    if (!spec->name[0] && l->options.world_size == 1 && !l->caching->of_publishers) {
        /* A private cache needs no shared segment, but segments left by killed ranks may occupy the
         * memory that it needs. */
        hr__directory_sweep();
        struct hr__cache_options options = {
            .dataset = l->dataset,
            .samples = hr_dataset_count(l->dataset),
            .budget_bytes = spec->share_bytes,
        };
        return hr__cache_create(&l->cache, &options, error);
    }
    char run[HR_CACHE_RUN];
    if (l->dataset->indices)
        l->caching->subset = digest_of(l->dataset->indices, hr_dataset_count(l->dataset));
    /* Other datasets of the same images have other masks, or none, and so items of their own. */
    if (!l->dataset->masks)
        l->caching->whole = hr__dataset_origin(l->dataset);
    /* The publishers of a process count as one run, whatever ranks they prepare for. */
    hr_cache_run(run, l->caching->of_publishers ? 1 : l->options.world_size);
    return hr__cache_create_shared(&l->cache, l->dataset, spec, run, error);
}

static int open_cache(struct hr_loader *l, struct hr_error *error)
{
    const struct hr__cache_spec *second = &l->caching->tiers->disk;
    l->caching->pid = getpid();
    l->caching->whole = l->dataset;
    l->caching->total_bytes = HR_SIZE_UNKNOWN;
    if (l->options.cache_evicts || l->options.cache_of)
        return open_evicting(l, error);
    int r = open_first(l, error);
    if (r || !*second->path)
        return r;
    struct hr__cache *memory = l->cache, *disk;
    l->cache = NULL;
    r = hr__cache_create_shared(&disk, l->dataset, second, NULL, error);
    if (!r)
        return hr__cache_create_tiers(&l->cache, memory, disk, error);
    hr__cache_destroy(&memory);
    return r;
}

static int enter(struct hr_loader *l, struct hr_error *error)
{
    if (l->caching->pid == getpid())
        return 0;
    hr__cache_abandon(&l->cache);
    if (l->options.cache_of)
        return hr__fail(error, -ECHILD,
                        "this loader shares another's cache, which a forked child does not have: "
                        "make both loaders in the child");
    return open_cache(l, error);
}

/* Tells the cache which samples this rank uses from `cut` on. If memory is short, it knows fewer.
 */
static void add_order(struct hr_loader *l, const struct hr__order *order, const struct hr__cut *cut)
{
    uint64_t *positions = hr__alloc(HR__TAG_LOADER, cut->batch_size, sizeof *positions);
    int64_t *indices = hr__alloc(HR__TAG_LOADER, cut->batch_size, sizeof *indices);
    uint64_t batches = positions && indices ? hr__cut_batches(cut) : 0;
    size_t padding;
    for (uint64_t batch = 0; batch < batches; batch++) {
        size_t count = hr__cut_batch(cut, batch, positions, &padding);
        for (size_t i = 0; i < count; i++)
            indices[i] = (int64_t)hr__order_at(order, positions[i]);
        hr__cache_add_uses(l->cache, indices, count);
    }
    hr__free(positions);
    hr__free(indices);
}

/* Tells a cache some of the uses that the caller told. */
static void add_told(struct hr_loader *l, size_t from, size_t to)
{
    int64_t indices[256];
    while (from < to) {
        size_t count = 0;
        while (count < sizeof indices / sizeof *indices && from < to)
            indices[count++] = (int64_t)l->caching->told.indices[from++];
        hr__cache_add_uses(l->cache, indices, count);
    }
}

/* Tells a cache the uses that the caller told, from a position in the epoch on. Under `telling`. */
static void tell_told(struct hr_loader *l, uint64_t position)
{
    const struct told *told = &l->caching->told;
    uint64_t done = position > told->position ? position - told->position : 0;
    hr__cache_begin_uses(l->cache);
    if (!told->count)
        return;
    add_told(l, done < told->first ? done : told->first, told->first);
    hr__cache_end_uses(l->cache);
    add_told(l, told->first, told->count);
}

/* Tells a cache that evicts the samples of an epoch, from its `number`th batch on, and of the epoch
 * after it. */
static void tell_order(struct hr_loader *l, const struct hr__epoch *plan, uint64_t number)
{
    struct hr__cut whole = plan->cut, rest = plan->cut;
    struct hr__order *next;
    hr__cache_begin_uses(l->cache);
    if (!plan->order)
        return;
    rest.start = hr__cut_position(&plan->cut, number);
    add_order(l, plan->order, &rest);
    hr__cache_end_uses(l->cache);
    whole.start = 0;
    if ((l->options.epochs && plan->epoch + 1 >= l->options.epochs) ||
        hr__order_create(&next, whole.samples, plan->shuffle, plan->seed, plan->epoch + 1, NULL))
        return;
    add_order(l, next, &whole);
    hr__order_destroy(&next);
}

/* Returns non-zero if others may use the cache, which asks for the uses of an order then. */
static int is_shared(const struct hr_loader *l)
{
    const struct hr__caching *c = l->caching;
    return l->cache && !c->of_publishers && !hr__cache_is_disk(l->cache) &&
           (c->spec->name[0] || l->options.world_size > 1);
}

/* Returns non-zero if an order does not use each sample once an epoch: one is used twice in the
 * first `first` uses, or many are used only after these, where they are a whole epoch. Memory that
 * is short counts as no. */
static int repeats(const struct hr_loader *l, const int64_t *indices, size_t count, size_t first,
                   int is_whole)
{
    uint8_t *used = hr__alloc(HR__TAG_LOADER, hr_dataset_count(l->dataset), 1);
    size_t twice = 0, later = 0;
    for (size_t i = 0; used && i < count; i++) {
        uint8_t *of = &used[indices[i]];
        twice += i < first && *of;
        later += i >= first && !*of;
        *of = 1;
    }
    hr__free(used);
    /* drop_last leaves out some samples of a shuffle, others in each epoch. */
    return twice || (is_whole && later > first / 8);
}

/* Keeps what the caller told. With several ranks only an order that repeats samples counts: for one
 * that does not, the ranks together use each sample once. */
static void keep_told(struct hr_loader *l, const int64_t *indices, size_t count, size_t first)
{
    struct hr__caching *c = l->caching;
    struct told *told = &c->told;
    int does_repeat = repeats(l, indices, count, first, !l->pushed_samples);
    uint64_t stream = atomic_load(&told->stream);
    told->count = told->first = 0;
    if ((l->options.world_size > 1 && !does_repeat) || hr_dataset_count(l->dataset) > UINT32_MAX ||
        hr__reserve(HR__TAG_LOADER, &told->indices, count)) {
        atomic_store(&told->stream, 0);
        return;
    }
    for (size_t i = 0; i < count; i++)
        told->indices[i] = (uint32_t)indices[i];
    told->count = count;
    told->first = first;
    told->position = l->pushed_samples;
    atomic_store(&told->repeats, does_repeat);
    atomic_store(&told->length, told->position + first);
    if (!stream)
        atomic_store(&told->stream, (digest_of(indices, first) ^ c->subset) | 1);
}

static void expect(struct hr_loader *l, const int64_t *indices, size_t count, size_t first,
                   int pushed)
{
    if (is_shared(l)) {
        pthread_mutex_lock(&l->caching->telling);
        if (!pushed && l->caching->told.count == 0)
            keep_told(l, indices, count, first);
        if (!pushed && hr__cache_evicts(l->cache))
            tell_told(l, 0);
        pthread_mutex_unlock(&l->caching->telling);
        return;
    }
    if (!l->cache || !hr__cache_evicts(l->cache) || l->caching->is_expected)
        return;
    hr__cache_add_uses(l->cache, indices, first);
    if (pushed)
        return;
    l->caching->is_expected = 1;
    hr__cache_end_uses(l->cache);
    hr__cache_add_uses(l->cache, indices + first, count - first);
}

static void begin_epoch(struct hr_loader *l, const struct hr__epoch *plan)
{
    struct hr__caching *c = l->caching;
    c->is_expected = 0;
    pthread_mutex_lock(&c->telling);
    c->told.count = c->told.first = 0;
    pthread_mutex_unlock(&c->telling);
    if (l->cache && hr__cache_evicts(l->cache)) {
        pthread_mutex_lock(&c->telling);
        tell_order(l, plan, 0);
        pthread_mutex_unlock(&c->telling);
    }
    if (!l->cache || c->total_bytes != HR_SIZE_UNKNOWN)
        return;
    int64_t bytes = hr__dataset_total_bytes(c->whole);
    pthread_mutex_lock(&l->lock);
    c->total_bytes = bytes;
    pthread_mutex_unlock(&l->lock);
}

static void publish(struct hr_loader *l)
{
    struct hr__caching *c = l->caching;
    pthread_mutex_lock(&l->lock);
    struct hr__worth worth = c->worth;
    enum hr_form form = c->form;
    pthread_mutex_unlock(&l->lock);
    hr__cache_publish(l->cache, &worth, form, c->form_asked);
}

static void destroy(struct hr_loader *l)
{
    struct hr__caching *c = l->caching;
    if (l->cache && c->offers)
        publish(l);
    if (l->cache && hr__is_started(l))
        hr__cache_log_kept(l->cache);
    hr__cache_destroy(&l->cache);
    pthread_mutex_destroy(&c->telling);
    hr__free(c->told.indices);
    hr__free(c->tiers);
    hr__free(c);
}

static void abandon(struct hr_loader *l)
{
    hr__cache_abandon(&l->cache);
    hr__free(l->caching->told.indices);
    hr__free(l->caching->tiers);
    hr__free(l->caching);
}

/* Tells the cache where a worker is. Returns non-zero if it asks for the uses from there on. */
static int note_progress(struct hr_loader *l, const struct hr__job *job)
{
    const struct hr__epoch *plan = job->batch->plan;
    struct told *told = &l->caching->told;
    uint64_t position = job->batch->positions[job->place];
    struct hr__cache_progress at = {
        .order = (plan->same_order ^ l->caching->subset) | 1,
        .stream = (plan->stream ^ l->caching->subset) | 1,
        .samples = plan->cut.samples,
    };
    if (!plan->order) {
        /* The caller's order, as far as it was told. No other job reads ahead for it. */
        at.order = 0;
        at.stream = atomic_load_explicit(&told->stream, memory_order_relaxed);
        at.samples = atomic_load_explicit(&told->length, memory_order_relaxed);
        at.repeats = atomic_load_explicit(&told->repeats, memory_order_relaxed);
        if (!at.stream)
            return 0;
    }
    at.position = plan->epoch * at.samples + position;
    return hr__cache_note_place(l->cache, &at);
}

/* Tells the cache the order from where a worker is. Under `telling`. */
static void tell(struct hr_loader *l, const struct hr__job *job)
{
    const struct hr__epoch *plan = job->batch->plan;
    if (plan->order)
        tell_order(l, plan, job->batch->number - plan->first_number);
    else
        tell_told(l, job->batch->positions[job->place]);
}

static void note_place(struct hr_loader *l, struct hr__job *job)
{
    if (!l->cache || job->is_noted)
        return;
    job->is_noted = 1;
    if (note_progress(l, job)) {
        /* Another job has joined in the middle of this epoch. One worker tells the order. */
        pthread_mutex_lock(&l->caching->telling);
        if (note_progress(l, job))
            tell(l, job);
        pthread_mutex_unlock(&l->caching->telling);
    }
    if (hr__cache_evicts(l->cache))
        hr__cache_use(l->cache, (uint64_t)job->batch->indices[job->place]);
}

/* Returns non-zero if the caller names the form of items. */
static int is_form_asked(const struct hr__caching *c)
{
    return c->form_asked != HR_FORM_AUTO && !c->is_chosen;
}

/* Returns non-zero if it is known how long items are used. Where the number of epochs is not, but a
 * form was asked for, they count as used for ever: or busy workers would never make the form. */
static int are_uses_known(const struct hr_loader *l)
{
    return l->options.epochs > 0 || hr__cache_is_kept(l->cache) || is_form_asked(l->caching);
}

/* How many times an item will be used after this epoch. With shuffle, ranks divide the samples
 * differently in each epoch, so the ranks of this host, which share the cache, use an item in only
 * their share of the epochs. */
static uint64_t uses_locked(const struct hr_loader *l)
{
    if (hr__cache_is_kept(l->cache) || (!l->options.epochs && are_uses_known(l)))
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
        .uses_known = are_uses_known(l),
        .uses = uses_locked(l),
        .idle = idle,
        .working_ns = l->caching->working_ns,
        .converting_ns = l->caching->converting_ns,
    };
}

uint64_t hr__caching_missing(const struct hr__cache_counts *now, uint64_t samples, double bytes)
{
    /* A cache that outlives the run may have items of files that changed since. */
    uint64_t cached = hr__all_items(now->items);
    double missing = bytes - (double)now->source_bytes;
    if (cached >= samples || missing <= 0)
        return 0;
    return (uint64_t)missing + (samples - cached) * HR__CACHE_PADDING;
}

/* Bytes that the samples not yet cached need: from the known sizes, or from the mean size. */
static uint64_t missing_locked(const struct hr_loader *l, const struct hr__cache_counts *now)
{
    const struct hr__caching *c = l->caching;
    uint64_t samples = hr_dataset_count(c->whole);
    if (c->total_bytes != HR_SIZE_UNKNOWN)
        return hr__caching_missing(now, samples, (double)c->total_bytes);
    uint64_t cached = hr__all_items(now->items);
    double missing = samples > cached ? (double)(samples - cached) : 0;
    return hr__caching_missing(now, samples,
                               (double)now->source_bytes + missing * c->worth.read_bytes.value);
}

/* Describes the cache's space. `staged`: the form of items that wait for a conversion may be
 * decided again; otherwise they keep the space reserved for them. */
static struct hr__worth_space space_locked(const struct hr_loader *l, int staged,
                                           const struct hr__cache_counts *now)
{
    return (struct hr__worth_space){
        .budget_bytes = hr__cache_budget(l->cache),
        .settled_bytes = staged ? now->bytes - now->staged_bytes : now->reserved,
        .staged_bytes = staged ? now->staged_bytes : 0,
        .missing_bytes = missing_locked(l, now),
        .converted =
            hr__all_items(now->items) - now->items[HR_FORM_ENCODED] - now->items[HR_FORM_INDEXED],
        .staged = now->staged,
        .asked = l->caching->form_asked,
        .fetch_bound = !l->workers_read,
    };
}

/* Chooses the form to convert an item of `length` bytes to. */
static enum hr_form choose_locked(struct hr_loader *l, size_t length,
                                  const struct hr__worth_space *space,
                                  const struct hr__worth_moment *moment)
{
    l->caching->form = hr__worth_choose(&l->caching->worth, length, space, moment);
    return l->caching->form;
}

static void note_locked(struct hr_loader *l, const struct hr__cost *cost)
{
    l->caching->working_ns += cost->working_ns;
    if (cost->prepare_ns && !cost->read_bytes)
        hr__mean_add(&l->caching->worth.prepare_ns[cost->form], (double)cost->prepare_ns);
}

/* Adds the costs of a miss to the means, before any decision uses them. */
static void note_miss_locked(struct hr_loader *l, const struct hr__cost *cost)
{
    struct hr__worth *worth = &l->caching->worth;
    if (!cost->had_index)
        hr__mean_add(&worth->prepare_ns[cost->form], (double)cost->prepare_ns);
    hr__mean_add(&worth->read_bytes, (double)cost->read_bytes);
    if (cost->read_ns)
        hr__mean_add(&worth->read_ns, (double)cost->read_ns);
}

/* Items that wait for another form are also used sooner with an index. Some files are prepared
 * without, so that the cost of that stays known. */
static int wants_index(struct hr_loader *l)
{
    struct hr__caching *c = l->caching;
    pthread_mutex_lock(&l->lock);
    int wants = c->offers % HR__WORTH_ENOUGH &&
                c->worth.prepare_ns[HR_FORM_ENCODED].count >= HR__WORTH_ENOUGH;
    if (wants && c->next != HR_FORM_INDEXED) {
        struct hr__worth_moment moment = moment_locked(l, 0);
        wants = c->next != HR_FORM_ENCODED && c->form_asked == HR_FORM_AUTO &&
                hr__worth_index_repays(&c->worth, &moment);
    }
    pthread_mutex_unlock(&l->lock);
    return wants;
}

/* Returns non-zero if items can be cached first and converted later. */
static int stages(const struct hr_loader *l)
{
    return !hr__cache_is_disk(l->cache) && !hr__cache_evicts(l->cache);
}

/* Chooses the form of a sample that was prepared, and describes its admission: an indexed item was
 * made in passing; items of other forms are converted later if the cache stages. */
static void plan_offer_locked(struct hr_loader *l, const struct hr__cost *cost,
                              const struct hr__cache_counts *now, int is_staged,
                              struct hr__cache_offer *offer)
{
    struct hr__caching *c = l->caching;
    struct hr__worth_space space = space_locked(l, 0, now);
    struct hr__worth_moment moment = moment_locked(l, 0);
    int is_file =
        cost->form == HR_FORM_ENCODED || (offer->is_on_disk && cost->form == HR_FORM_INDEXED);
    moment.in_passing = 1;
    c->next = choose_locked(l, offer->length, &space, &moment);
    if (!is_file || c->next == HR_FORM_ENCODED || (moment.uses_known && !moment.uses))
        return;
    if (cost->made_bytes && (c->next == HR_FORM_INDEXED || c->form_asked == HR_FORM_AUTO)) {
        hr__mean_add(&c->worth.growth[HR_FORM_INDEXED],
                     (double)cost->made_bytes / (double)offer->length);
        offer->parts = cost->made;
        offer->length = cost->made_bytes;
        offer->form = HR_FORM_INDEXED;
    }
    /* Where nothing is staged, items are converted at once, so only if that was asked for. A disk
     * behind the memory, which gets what that refuses, keeps files. */
    int is_asked = is_form_asked(c) && !*c->tiers->disk.path;
    if (c->next == offer->form || (!is_staged && !is_asked))
        return;
    offer->convert = 1;
    offer->reserve = hr__worth_reserve(&c->worth, c->next, offer->length, &space, &moment);
}

/* Converts the image that a cache without staging is offered, on this thread. It stays as it is if
 * it has no such form. */
static void convert_offer(struct hr__thread *self, enum hr_form form, struct hr__cache_offer *offer,
                          struct hr_item_part *image)
{
    struct hr_loader *l = self->loader;
    const struct hr_item file = {image->bytes, image->length, HR_FORM_ENCODED};
    const size_t before = offer->length;
    struct hr_item item;
    uint64_t start_ns = hr__thread_cpu_ns();
    /* A conversion would forget the damage that is still to be reported. */
    int r = hr_preparer_damage(self->preparer) ? -EBADMSG : hr__convert(self, form, &file, &item);
    uint64_t ns = hr__thread_cpu_ns() - start_ns;
    offer->convert = 0;
    hr__count(&hr__counters_here(l)->conversion_ns, ns);
    if (r)
        return;
    *image = (struct hr_item_part){item.bytes, item.length};
    offer->bytes = item.bytes;
    offer->length = before - file.length + item.length;
    offer->form = item.form;
    pthread_mutex_lock(&l->lock);
    hr__mean_add(&l->caching->worth.convert_ns[form], (double)ns);
    hr__mean_add(&l->caching->worth.growth[form], (double)offer->length / (double)before);
    pthread_mutex_unlock(&l->lock);
}

/* Notes the version of an object of a list. Returns non-zero if it was not known. Logs the first
 * object that has no ETag. */
static int learn_one(struct hr_loader *l, const struct hr__sample *sample,
                     struct hr_dataset *dataset, uint64_t index)
{
    const struct hr__read *read = &sample->read;
    char name[256];
    if (!read->http || read->is_range || hr__dataset_change(dataset, index))
        return 0;
    if (hr__sample_learn(sample, dataset, index))
        return 1;
    if (!read->version && !atomic_exchange(&l->caching->is_warned, 1)) {
        hr__printable(name, sizeof name, read->path);
        hr__log(HR_LOG_WARNING,
                "%s is not cached, nor are others like it, and each epoch asks for them again: its "
                "server sends no strong ETag, so nothing tells whether an object has changed. Use "
                "a bucket, a pack, or a server that sends ETags",
                name);
    }
    return 0;
}

/* An object whose size and ETag no listing told can be cached from its first read on. */
static void learn(struct hr_loader *l, struct hr__job *job, uint64_t index)
{
    int is_news = learn_one(l, &job->sample, l->dataset, index);
    if (job->mask_read == HR__MASK_READ)
        is_news |= learn_one(l, &job->mask, l->dataset->masks, index);
    if (is_news)
        (void)hr__cache_claim(l->cache, index, &job->ticket);
}

/* Gets the image, as it was read, and the mask of a job. */
static int pair_of(const struct hr_loader *l, const struct hr__job *job, struct hr__pair *pair)
{
    const struct hr__read *read = &job->sample.read, *mask = &job->mask.read;
    if (job->mask_read != HR__MASK_READ)
        return hr__pair_split(pair, l->dataset, read->bytes, read->length);
    *pair = (struct hr__pair){{read->bytes, read->length}, {mask->bytes, mask->length}};
    return 0;
}

int hr__caching_offer(struct hr__cache *cache, struct hr__cache_offer *offer,
                      const struct hr__pair *pair)
{
    if (!pair->mask.bytes)
        return hr__cache_offer(cache, offer);
    void *bytes = hr__pair_join(offer->parts ? offer->parts : &pair->image,
                                offer->parts ? HR_ITEM_PARTS : 1, &pair->mask, &offer->length);
    offer->bytes = bytes;
    offer->parts = NULL;
    int r = bytes ? hr__cache_offer(cache, offer) : 0;
    hr__free(bytes);
    return r;
}

/* Offers what was read; what was read with its mask, and did not change, is one item already. */
static int offer_pair(struct hr_loader *l, const struct hr__job *job, const struct hr__pair *pair,
                      struct hr__cache_offer *offer)
{
    int is_whole =
        job->mask_read != HR__MASK_READ && !offer->parts && offer->bytes == job->sample.read.bytes;
    return is_whole ? hr__cache_offer(l->cache, offer) : hr__caching_offer(l->cache, offer, pair);
}

static void offer(struct hr__thread *self, struct hr__job *job, uint64_t index,
                  const struct hr__cost *cost)
{
    struct hr_loader *l = self->loader;
    struct hr__cache_counts now;
    int is_on_disk = job->tier == HR__TIER_DISK, is_disk = hr__cache_is_disk(l->cache);
    struct hr__cache_offer wish = {.index = index,
                                   .ticket = &job->ticket,
                                   .bytes = job->sample.read.bytes,
                                   .length = cost->read_bytes,
                                   .source_bytes =
                                       is_on_disk ? job->located.source_bytes : cost->read_bytes,
                                   .form = cost->form,
                                   .is_on_disk = is_on_disk};
    struct hr__pair pair;
    if (pair_of(l, job, &pair))
        return;
    learn(l, job, index);
    hr__cache_get_counts(l->cache, &now);
    /* Asked once: a shared cache may begin to evict at any moment. */
    int is_staged = stages(l);
    pthread_mutex_lock(&l->lock);
    if (is_on_disk)
        hr__mean_add(&l->caching->worth.prepare_ns[cost->form], (double)cost->prepare_ns);
    else
        note_miss_locked(l, cost);
    plan_offer_locked(l, cost, &now, is_staged, &wish);
    enum hr_form next = l->caching->next;
    int is_due = l->caching->offers++ % PUBLISH_EVERY == PUBLISH_EVERY - 1;
    pthread_mutex_unlock(&l->lock);
    if (is_due)
        publish(l);
    if (is_on_disk && is_disk)
        return;
    if (wish.convert && !is_staged)
        convert_offer(self, next, &wish, &pair.image);
    if (!offer_pair(l, job, &pair, &wish))
        return;
    if (!wish.convert) {
        hr__count(&hr__counters_here(l)->converted, wish.form != cost->form);
        return;
    }
    pthread_mutex_lock(&l->lock);
    hr__wake_worker_locked(l);
    pthread_mutex_unlock(&l->lock);
}

static int may_convert_locked(struct hr_loader *l, int idle)
{
    if (!l->cache || l->stop || !hr__cache_waiting(l->cache))
        return 0;
    struct hr__worth_moment moment = moment_locked(l, idle);
    struct hr__cache_counts now;
    hr__cache_get_counts(l->cache, &now);
    struct hr__worth_space space = space_locked(l, 1, &now);
    enum hr_form form = choose_locked(l, 0, &space, &moment);
    return hr__worth_convert(&l->caching->worth, form, &moment);
}

/* Returns non-zero if every sample of the batch that the consumer gets next is done or in a
 * worker's hands: then a conversion that begins now cannot delay that batch. */
static int next_batch_is_in_hand_locked(const struct hr_loader *l)
{
    const struct hr_batch *batch = l->window;
    return !batch || (batch->claimed == batch->count && !batch->fetched);
}

static int should_convert_locked(struct hr__thread *self)
{
    struct hr_loader *l = self->loader;
    /* Conversions are done in one go: one per batch would be far less than a tenth of the time. */
    self->converting =
        (self->converting || next_batch_is_in_hand_locked(l)) && may_convert_locked(l, 0);
    return self->converting;
}

/* How to convert one staged item. */
struct task {
    struct hr__cache_staged *staged;
    struct hr__cache_item item; /* encoded, or indexed */
    struct hr_item file;        /* the image's file in it */
    size_t mask_bytes;          /* of the rest of it: the mask; 0: there is none */
    enum hr_form form;
    double growth;       /* expected growth of the item, as a factor */
    uint64_t leave_free; /* bytes of the budget to leave free */
};

static void plan_task(struct hr_loader *l, struct task *task)
{
    struct hr__cache_counts now;
    hr__cache_get_counts(l->cache, &now);
    pthread_mutex_lock(&l->lock);
    struct hr__worth_space space = space_locked(l, 1, &now);
    struct hr__worth_moment moment = moment_locked(l, 1);
    task->form = choose_locked(l, task->file.length + task->mask_bytes, &space, &moment);
    task->growth = hr__worth_growth(&l->caching->worth, task->form);
    task->leave_free = hr__worth_leave_free(&l->caching->worth, task->form, &space, &moment);
    pthread_mutex_unlock(&l->lock);
}

/* Chooses planes for a PNG, which has no other form, instead of a form for JPEG files. */
static void adapt(struct hr__thread *self, struct task *task)
{
    static const char png[] = "\x89PNG";
    struct hr_form_estimate estimate = {.size = sizeof estimate};
    if (self->loader->caching->form_asked != HR_FORM_AUTO || task->form == HR_FORM_ENCODED ||
        task->file.length < sizeof png || memcmp(task->file.bytes, png, sizeof png - 1))
        return;
    if (hr_converter_estimate(self->converter, HR_FORM_PLANES, task->file.bytes, task->file.length,
                              &estimate, NULL) ||
        !estimate.possible)
        return;
    task->form = HR_FORM_PLANES;
    task->growth = (double)estimate.bytes / (double)task->file.length;
}

int hr__convert(struct hr__thread *self, enum hr_form form, const struct hr_item *file,
                struct hr_item *out)
{
    struct hr_sound_head head;
    int r = 0;
    if (hr_recipe_sound_head(self->loader->recipe, &head)) {
        if (!self->converter)
            r = hr_converter_create(&self->converter, NULL, NULL);
        return r ? r
                 : hr_converter_run(self->converter, form, file->bytes, file->length, out, NULL);
    }
    if (!self->preparer)
        r = hr_preparer_create(&self->preparer, NULL);
    return r ? r
             : hr_preparer_waveform(self->preparer, form, &head, file->bytes, file->length, out,
                                    NULL);
}

/* Converts an item. Returns non-zero with the new item in *out; on zero the item stays as it is,
 * which is always correct. */
static int convert(struct hr__thread *self, const struct task *task, struct hr_item *out)
{
    struct hr__cache *cache = self->loader->cache;
    double expected = (double)(task->file.length + task->mask_bytes) * task->growth;
    if (task->form == HR_FORM_ENCODED || task->form == task->item.form ||
        expected > (double)hr__cache_room(cache, task->staged, task->leave_free))
        return 0;
    return !hr__convert(self, task->form, &task->file, out);
}

/* Finds the image's file and the mask in the item. Returns 0 if it cannot be converted. */
static int find_file(struct hr__thread *self, struct task *task, struct hr__pair *pair)
{
    const struct hr__cache_item *item = &task->item;
    task->file = (struct hr_item){item->bytes, item->length, item->form};
    if (hr__pair_split(pair, self->loader->dataset, item->bytes, item->length) ||
        (!self->converter && hr_converter_create(&self->converter, NULL, NULL)))
        return 0;
    task->mask_bytes = item->length - pair->image.length;
    return !hr_converter_restore(self->converter, pair->image.bytes, pair->image.length,
                                 &task->file, NULL);
}

/* Converts the item that has waited longest. Returns its form now; HR_FORM_ENCODED if it was not
 * converted. *growth is the factor it grew by, 0 if it was not converted. */
static enum hr_form convert_one(struct hr__thread *self, double *growth)
{
    struct hr_loader *l = self->loader;
    struct task task = {.mask_bytes = 0};
    struct hr__pair pair;
    struct hr_item item;
    void *joined = NULL;
    *growth = 0;
    task.staged = hr__cache_take(l->cache, &task.item);
    if (!task.staged)
        return HR_FORM_ENCODED;
    int is_file = find_file(self, &task, &pair);
    plan_task(l, &task);
    if (is_file)
        adapt(self, &task);
    struct hr__cache_final final = {.leave_free = task.leave_free};
    double length = (double)(task.file.length + task.mask_bytes);
    if (is_file && convert(self, &task, &item)) {
        final.bytes = item.bytes;
        final.length = item.length;
        final.form = item.form;
        if (pair.mask.bytes) {
            pair.image = (struct hr_item_part){item.bytes, item.length};
            final.bytes = joined = hr__pair_join(&pair.image, 1, &pair.mask, &final.length);
        }
    }
    if (final.bytes)
        *growth = (double) final.length / length;
    if (hr__cache_settle(l->cache, task.staged, &final))
        hr__count(&hr__counters_here(l)->converted, 1);
    hr__free(joined);
    return *growth > 0 ? final.form : HR_FORM_ENCODED;
}

static void convert_unlocking(struct hr__thread *self)
{
    struct hr_loader *l = self->loader;
    struct hr__caching *c = l->caching;
    /* So that other workers count this conversion when they decide. */
    uint64_t expected_ns = (uint64_t)hr__worth_convert_ns(&c->worth, c->form);
    c->converting_ns += expected_ns;
    pthread_mutex_unlock(&l->lock);
    uint64_t start_ns = hr__thread_cpu_ns();
    double growth;
    enum hr_form form = convert_one(self, &growth);
    uint64_t ns = hr__thread_cpu_ns() - start_ns;
    hr__count(&hr__counters_here(l)->conversion_ns, ns);
    pthread_mutex_lock(&l->lock);
    c->converting_ns += ns - expected_ns;
    c->working_ns += ns;
    if (form == HR_FORM_ENCODED)
        return;
    hr__mean_add(&c->worth.convert_ns[form], (double)ns);
    hr__mean_add(&c->worth.growth[form], growth);
}

static const struct hr__keeper keeper = {
    .enter = enter,
    .begin_epoch = begin_epoch,
    .expect = expect,
    .destroy = destroy,
    .abandon = abandon,
    .note_place = note_place,
    .wants_index = wants_index,
    .offer = offer,
    .note_locked = note_locked,
    .should_convert_locked = should_convert_locked,
    .may_convert_locked = may_convert_locked,
    .convert_unlocking = convert_unlocking,
};

/* Attaches an empty description of a cache. */
static int attach(struct hr_loader *l, struct hr_error *error)
{
    struct hr__caching *c = hr__alloc(HR__TAG_LOADER, 1, sizeof *c);
    if (!c)
        return hr__fail(error, -ENOMEM, "out of memory for a cache's description");
    l->caching = c;
    l->keeper = &keeper;
    l->uncached = 1;
    pthread_mutex_init(&c->telling, NULL);
    c->tiers = hr__alloc(HR__TAG_LOADER, 1, sizeof *c->tiers);
    if (!c->tiers)
        return hr__fail(error, -ENOMEM, "out of memory for a cache's description");
    c->spec = &c->tiers->first;
    c->spec->form = HR__FORM_UNSET;
    return 0;
}

/* Chooses the form of the cache that is described, and opens it. */
static int open_described(struct hr_loader *l, struct hr_error *error)
{
    struct hr__caching *c = l->caching;
    int r = choose_form(c->spec, l->options.cache_form, &c->form_asked, error);
    if (!r)
        r = hr__caching_form(l, &c->form_asked, error);
    if (!r)
        choose_sounds(l);
    if (!r && c->form_asked != HR_FORM_AUTO)
        c->form = (enum hr_form)c->form_asked;
    return r ? r : open_cache(l, error);
}

int hr__caching_create(struct hr_loader *l, int of_publishers, struct hr_error *error)
{
    int has_text = l->options.cache && *l->options.cache;
    if (!l->options.cache_of && !has_text)
        return 0;
    int r = attach(l, error);
    if (r)
        return r;
    l->caching->of_publishers = of_publishers;
    if (has_text)
        r = hr__cache_tiers_parse(l->caching->tiers, l->options.cache, error);
    if (!r && (l->options.cache_evicts || l->options.cache_of))
        r = check_evicting(l, error);
    return r ? r : open_described(l, error);
}

int hr__caching_create_disk(struct hr_loader *l, const char *text, struct hr_error *error)
{
    struct hr__cache_spec disk;
    int r = hr__hosts_disk_parse(&disk, text, error);
    if (r || !*disk.path)
        return r;
    r = attach(l, error);
    if (r)
        return r;
    *l->caching->spec = disk;
    return open_described(l, error);
}

uint64_t hr__caching_disk_bytes(const struct hr_loader *l)
{
    return l->caching ? l->caching->spec->share_bytes : 0;
}
