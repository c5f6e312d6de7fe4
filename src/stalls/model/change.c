/*
 * Applies a change to a calibrated system: what differs, which share of the samples is then
 * missing, and what had to be assumed.
 *
 * A cache that never evicts misses 1 - x. The kernel's page cache evicts what an epoch still needs:
 * shuffled epochs are simulated (storage/page_lists.h).
 */
#include "stalls/model/inside.h"
#include "stalls/model/predict.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "storage/page_lists.h"

#include <errno.h>
#include <headrace/form.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- validation ---- */

static int refuse(struct hr_error *error, const char *what)
{
    return hr__fail(error, -EINVAL, "%s", what);
}

int hr__change_check(const struct hr_stalls_change *c, struct hr_error *error)
{
    if (isnan(c->cache_share) || c->cache_share > 1)
        return refuse(error, "a cache's share of the dataset must be from 0 to 1");
    if (c->cache_share >= 0 && c->cache_bytes)
        return refuse(error, "a cache is given by its share or by its bytes, not by both");
    if (c->cores < 0 || c->ranks < 0 || c->workers < 0 || c->cores > 65536 || c->ranks > 65536 ||
        c->workers > 65536)
        return refuse(error, "cores, ranks and workers must be from 1 to 65536");
    if (!(c->storage_bytes_per_s >= 0 && c->storage_factor >= 0 && c->device_speedup >= 0) ||
        isinf(c->storage_bytes_per_s) || isinf(c->storage_factor) || isinf(c->device_speedup))
        return refuse(error, "speeds of storage and device must be positive numbers");
    if (c->storage_bytes_per_s > 0 && c->storage_factor > 0)
        return refuse(error, "storage is given by its bytes/s or by a factor, not by both");
    if (c->loader != HR_STALLS_LOADER_SAME && c->loader != HR_STALLS_LOADER_HEADRACE)
        return refuse(error, "the loader must be the same or Headrace's");
    if (c->form < HR_FORM_AUTO || c->form >= HR_FORMS)
        return refuse(error, "there is no such form: encoded, indexed, coefficients, planes, "
                             "waveform, waveform16 or auto");
    if (c->page_cache && c->loader == HR_STALLS_LOADER_HEADRACE && c->form > HR_FORM_ENCODED)
        return refuse(error, "the page cache holds files as they are: other forms need a cache of "
                             "Headrace's, or a pack");
    return 0;
}

static void __attribute__((format(printf, 2, 3)))
assume(struct hr__changed *changed, const char *format, ...)
{
    size_t used = strlen(changed->why), room = sizeof changed->why - used;
    va_list args;
    if (used && room > 3) {
        memcpy(changed->why + used, "; ", 3);
        used += 2;
        room -= 2;
    }
    va_start(args, format);
    vsnprintf(changed->why + used, room, format, args);
    va_end(args);
}

/* ---- missing samples ---- */

/* Simulates shuffled epochs over files of one size. More files, more epochs and sizes that differ
 * change the result by less than 1 %. The bytes of all files do count: with more than a GiB of
 * them in memory the kernel lets the inactive list be the shorter one, and misses 5 % less. */
#define PAGE_FILES   1000
#define PAGE_SETTLES 4 /* epochs that do not count */
#define PAGE_EPOCHS  12
#define PAGE_BYTES   4096      /* of a file, at least */
#define PAGE_LARGEST (1 << 30) /* at most; larger ones change nothing more */
#define PAGE_SEED    1

static void shuffle(uint32_t order[PAGE_FILES], uint64_t epoch)
{
    struct hr__random random;
    hr__random_init(&random, PAGE_SEED, HR__PURPOSE_SHUFFLE, epoch, 0);
    for (uint32_t i = PAGE_FILES; i > 1; i--) {
        uint32_t j = (uint32_t)hr__random_below(&random, i), file = order[i - 1];
        order[i - 1] = order[j];
        order[j] = file;
    }
}

int hr__page_cache_missing(double x, double dataset_bytes, double *missing)
{
    struct hr__page_lists *lists;
    uint32_t order[PAGE_FILES], bytes = PAGE_LARGEST;
    int read = 0;
    *missing = x > 0 ? 0 : 1;
    if (!(x > 0) || x >= 1)
        return 0;
    if (dataset_bytes > 0)
        bytes = (uint32_t)fmin(fmax(dataset_bytes / PAGE_FILES, PAGE_BYTES), PAGE_LARGEST);
    int r = hr__page_lists_create(&lists, PAGE_FILES, (uint64_t)(x * PAGE_FILES * bytes));
    if (r)
        return r;
    for (uint32_t i = 0; i < PAGE_FILES; i++)
        order[i] = i;
    for (uint64_t epoch = 0; epoch < PAGE_EPOCHS; epoch++) {
        shuffle(order, epoch);
        for (uint32_t i = 0; i < PAGE_FILES; i++) {
            int was_there = hr__page_lists_read(lists, order[i], bytes, NULL, NULL);
            read += epoch >= PAGE_SETTLES && !was_there;
        }
    }
    hr__page_lists_destroy(&lists);
    *missing = (double)read / (PAGE_EPOCHS - PAGE_SETTLES) / PAGE_FILES;
    return 0;
}

/* Returns the share of the dataset that fits `bytes` of cache if items are `growth` times as large
 * as files; -1: unknown. */
static double share_of(const struct hr__model *model, double bytes, double growth)
{
    if (!(bytes >= 0) || !(model->dataset_bytes > 0))
        return -1;
    return fmin(1, bytes / (model->dataset_bytes * growth));
}

/* Sets the cached and missing shares. `own`: the loader has a cache that never evicts, unless the
 * change says otherwise. */
static int set_missing(const struct hr__model *model, const struct hr_stalls_change *change,
                       bool own, double growth, struct hr__changed *changed, struct hr_error *error)
{
    double x = change->cache_share, own_bytes = model->stalls->loader_cache_bytes;
    bool asked = change->cache_share >= 0 || change->cache_bytes, evicts = change->page_cache;
    if (change->cache_bytes) {
        x = share_of(model, (double)change->cache_bytes, growth);
        if (x < 0)
            return hr__fail(error, -ENODATA,
                            "how large the dataset is was not measured, so a cache is no share of "
                            "it: give the share (--cache-share), or measure with --data DIR");
    } else if (!asked && !change->page_cache && own_bytes > 0 &&
               change->loader == HR_STALLS_LOADER_SAME) {
        x = share_of(model, own_bytes, 1);
    } else if (!asked && !own && hr__is_at_urls(model->stalls)) {
        x = 0; /* without a cache of the loader's, each epoch asks the store */
    } else if (!asked) {
        evicts = change->page_cache || !own;
        x = share_of(model, model->available_bytes, evicts ? 1 : growth);
        if (!change->page_cache && own && x >= 0)
            assume(changed, "a cache of the memory that is free, %s",
                   change->form > 0 ? hr_form_name((enum hr_form)change->form) : "encoded");
    }
    if (!asked && !model->has_storage) {
        x = 1;
        if (!model->stalls->reads_no_files && !model->stalls->network)
            assume(changed, "storage was not measured: all files are taken to be in memory");
    } else if (x < 0) {
        x = 0;
        assume(changed, "how much of the dataset fits into memory is not known: all of it is taken "
                        "to come from storage");
    }
    changed->cached = x;
    changed->system.missing = 1 - x;
    if (evicts && model->host->page_generations && x > 0 && x < 1)
        assume(changed, "the kernel's page cache has generations (MGLRU): it is taken to evict as "
                        "one without them does");
    if (evicts && hr__page_cache_missing(x, model->dataset_bytes, &changed->system.missing))
        return hr__fail(error, -ENOMEM, "out of memory while simulating the page cache");
    return 0;
}

/* Says where a prediction rests on more than was measured. */
static void doubt_storage(const struct hr__storage_curve *curve, int depth,
                          struct hr__changed *changed)
{
    int last = curve->count - 1;
    if (last < 0) {
        assume(changed, "storage is as fast as the cold epoch shows, at least");
    } else if (depth > curve->depths[last].depth && last > 0 &&
               curve->depths[last].bytes_per_s > 1.1 * curve->depths[last - 1].bytes_per_s) {
        changed->extrapolated = 1;
        assume(changed, "%d reads in flight, more than the %d that were measured", depth,
               curve->depths[last].depth);
    }
}

static int set_storage(const struct hr__model *model, const struct hr_stalls_change *change,
                       struct hr__changed *changed, struct hr_error *error)
{
    struct hr__system *s = &changed->system;
    const struct hr__storage_curve *curve = &model->storage;
    double factor = change->storage_factor > 0 ? change->storage_factor : 1;
    if (!(s->missing > 0))
        return 0;
    if (!model->has_storage)
        return hr__fail(error, -ENODATA, "not known: how fast storage is was not measured%s",
                        model->stalls->network ? ", and the samples come over the network"
                        : model->stalls->reads_no_files
                            ? ", and the samples read no files"
                            : ": measure again where the files can be dropped from memory (not "
                              "tmpfs), with --data DIR where the loader does not name its files");
    int depth = hr__reads_in_flight(s);
    hr__model_storage(model, depth, factor, s);
    if (change->storage_bytes_per_s > 0) {
        factor = change->storage_bytes_per_s / s->storage_bytes_per_s;
        hr__model_storage(model, depth, factor, s);
    }
    if (factor != 1 && hr__is_at_urls(model->stalls))
        assume(changed, "only the link is %.3g times as fast: the store answers as late as before",
               factor);
    doubt_storage(curve, depth, changed);
    return 0;
}

/* ---- the loader ---- */

static const struct hr__form_record *form_of(const struct hr__host_record *host, int form)
{
    for (size_t i = 0; i < host->form_count; i++)
        if ((int)host->forms[i].form == form && host->forms[i].cpu_s > 0)
            return &host->forms[i];
    return NULL;
}

static int default_threads(int cores, int ranks)
{
    return cores / ranks > 1 ? cores / ranks - 1 : 1;
}

/* Returns the CPU time of reading a file from the page cache, which a sample in the loader's own
 * cache saves; 0: unknown. */
static double read_cpu(const struct hr__model *model)
{
    double each = model->file_bytes / model->memory_bytes_per_s;
    return each > 0 && each < INFINITY ? each : 0;
}

static double mean_prepare(const struct hr__changed *changed)
{
    double sum = 0;
    size_t count = changed->system.prepare_s.count;
    for (size_t i = 0; i < count; i++)
        sum += changed->prepare_s[i];
    return count ? sum / (double)count : 0;
}

static void set_prepare(struct hr__changed *changed, double mean)
{
    double now = mean_prepare(changed);
    for (size_t i = 0; i < changed->system.prepare_s.count; i++)
        changed->prepare_s[i] = now > 0 ? changed->prepare_s[i] * mean / now : mean;
}

/* Gives Headrace's loader its own cache, which it lacked when measured. */
static void set_own_cache(const struct hr__model *model, struct hr__changed *changed)
{
    double prepare_s = mean_prepare(changed), saved = fmin(read_cpu(model), prepare_s / 2);
    set_prepare(changed, prepare_s - saved);
    changed->system.missing_cpu_s += saved;
}

/* Switches to Headrace's loader: cached items in the given form, missing ones from their files. */
static int set_headrace(const struct hr__model *model, const struct hr_stalls_change *change,
                        struct hr__changed *changed, double *growth, struct hr_error *error)
{
    struct hr__system *s = &changed->system;
    int form = change->form == HR_FORM_AUTO ? HR_FORM_ENCODED : change->form;
    const struct hr__form_record *encoded = form_of(model->host, HR_FORM_ENCODED);
    const struct hr__form_record *item = form_of(model->host, form);
    if (!encoded || !item)
        return hr__fail(error, -ENODATA,
                        model->host->no_forms[0]
                            ? "Headrace's loader cannot take the place of this one: %s%s%s"
                            : "what Headrace's loader costs on these files was not measured%s%s%s",
                        model->host->no_forms, encoded ? " as " : "",
                        encoded ? hr_form_name((enum hr_form)form) : "");
    double read_s = read_cpu(model);
    set_prepare(changed, item->cpu_s + (change->page_cache ? read_s : 0));
    *growth = encoded->bytes > 0 && item->bytes > 0 ? item->bytes / encoded->bytes : 1;
    s->loader = HR__LOADER_HEADRACE;
    s->workers = default_threads(s->cores, s->ranks);
    s->batches_ahead = HR__STALLS_AHEAD;
    s->fetches_ahead = hr__headrace_depth(model->stalls);
    s->delay_s = s->batch_cpu_s = 0;
    s->missing_cpu_s = fmax(0, encoded->cpu_s - item->cpu_s) + (change->page_cache ? 0 : read_s);
    return 0;
}

static void set_workers(const struct hr__model *model, int workers, struct hr__changed *changed)
{
    struct hr__system *s = &changed->system;
    if (s->loader == HR__LOADER_TORCH) {
        int each = s->workers > 0 ? s->batches_ahead / s->workers : 2;
        s->batches_ahead = workers * (each > 0 ? each : 1);
    } else {
        s->batches_ahead = s->batches_ahead > 0 ? s->batches_ahead : HR__STALLS_AHEAD;
        s->fetches_ahead = hr__headrace_depth(model->stalls);
    }
    s->workers = workers;
    if (model->stalls->loader == HR__LOADER_OTHER)
        assume(changed, "the loader is taken to have workers as torch's has");
}

/* ---- the machine and the training ---- */

/* Spreads a step's work over fewer threads: each does more, and a single thread waits for
 * no other. */
static void set_step_threads(struct hr__changed *changed, int threads)
{
    struct hr__system *s = &changed->system;
    double mean = 0, more_s = s->step_cpu_s / threads - s->step_cpu_s / s->step_threads;
    for (size_t i = 0; i < s->step_s.count; i++)
        mean += changed->step_s[i] / (double)s->step_s.count;
    for (size_t i = 0; i < s->step_s.count && more_s > 0 && mean > 0; i++)
        changed->step_s[i] *= 1 + more_s / mean;
    s->step_threads = threads;
    s->sharing = threads > 1 ? s->sharing : 0;
}

static void set_machine(const struct hr__model *model, const struct hr_stalls_change *change,
                        struct hr__changed *changed)
{
    struct hr__system *s = &changed->system;
    int measured = model->system.cores, threads = s->workers, ranks = s->ranks;
    if (change->ranks) {
        int hosts = changed->hosts < change->ranks ? changed->hosts : change->ranks;
        changed->hosts = hosts;
        s->ranks = (change->ranks + hosts - 1) / hosts;
        changed->ranks = change->ranks;
        if (change->ranks > model->ranks) {
            changed->extrapolated = 1;
            assume(changed,
                   "%d ranks, where %d were measured: each as fast as now, whatever "
                   "they exchange",
                   change->ranks, model->ranks);
        }
    }
    if (change->cores) {
        s->cores = change->cores;
        if (change->cores > measured) {
            changed->extrapolated = 1;
            assume(changed, "%d cores, where the machine has %d", change->cores, measured);
        }
        /* torch uses as many threads as there are cores unless told otherwise. */
        if (model->stalls->on_cpu && model->stalls->training_threads == measured &&
            s->step_threads == measured)
            set_step_threads(changed, change->cores);
    }
    /* So does Headrace's loader. */
    if (s->loader == HR__LOADER_HEADRACE && threads == default_threads(measured, ranks))
        s->workers = default_threads(s->cores, s->ranks);
}

static void set_device(const struct hr_stalls_change *change, struct hr__changed *changed)
{
    struct hr__system *s = &changed->system;
    double mean = 0, speedup = change->device_speedup;
    if (!(speedup > 0))
        return;
    for (size_t i = 0; i < s->step_s.count; i++)
        mean += changed->step_s[i] / (double)s->step_s.count;
    double copied = mean > 0 ? fmin(1, s->copy_s / mean) : 0;
    for (size_t i = 0; i < s->step_s.count; i++)
        changed->step_s[i] *= copied + (1 - copied) / speedup;
    /* A faster device speeds up a CPU's threads, but not a loop that feeds a device. */
    if (s->step_cpu_s / (s->step_threads > 0 ? s->step_threads : 1) > 0.5 * mean)
        s->step_cpu_s /= speedup;
}

/* ---- reliability ---- */

#define WIDEST      0.5  /* half an interval over its value: beyond, predict nothing */
#define MISFIT_MOST 0.2  /* largest error of the model in a measured phase */
#define MISFIT_SAID 0.05 /* smallest error to mention */
#define SETTLES_IT  "measure for longer (--time), or on a quieter machine"

/* Fails if the change needs the loader's speed and that is unknown. */
static int need_prepare(const struct hr__model *model, const struct hr_stalls_change *change,
                        struct hr_error *error)
{
    bool asked = change->cores || change->workers || change->ranks || change->device_speedup > 0;
    if (model->has_prepare || !asked || change->loader == HR_STALLS_LOADER_HEADRACE)
        return 0;
    return hr__fail(error, -ENODATA,
                    "not known: how fast the loader prepares was not measured (P), because it was "
                    "not run by itself; what other cores, workers or devices would change depends "
                    "on it");
}

static int need_spreads(const struct hr__model *model, const struct hr__changed *changed,
                        struct hr_error *error)
{
    const struct {
        const char *what;
        double spread;
        bool counts;
    } inputs[] = {
        {"how long a step takes", model->step_spread, true},
        {"how fast the loader is", model->prepare_spread, changed->rests_on_loader},
        {"how fast storage is", model->storage_spread, changed->system.missing > 0},
    };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i].counts && inputs[i].spread > WIDEST)
            return hr__fail(error, -ENODATA,
                            "not known: %s was measured to no better than +-%.0f %%: " SETTLES_IT,
                            inputs[i].what, 100 * fmin(inputs[i].spread, 10));
    return 0;
}

/* Fails if the model does not reproduce the measurements. */
static int need_met(const struct hr__model *model, struct hr__changed *changed,
                    struct hr_error *error)
{
    static const char *const where[] = {"in memory", "on storage"};
    double samples = (double)model->system.batch_size * model->ranks;
    const struct hr__met *warm = &model->met[HR__MET_WARM];
    if (model->has_prepare && model->unexplained_s > MISFIT_MOST * warm->measured_s)
        return hr__fail(error, -ENODATA,
                        "not known: with files in memory a batch took %.3g s, of which the step, "
                        "the loader and the cores that they share explain %.3g s: something else "
                        "slowed it. Please " SETTLES_IT,
                        warm->measured_s, warm->measured_s - model->unexplained_s);
    for (int i = 0; i < 2; i++) {
        const struct hr__met *met = &model->met[i];
        double off = fabs(met->measured_s / met->found_s - 1);
        if (!(off > MISFIT_SAID) || (i == HR__MET_COLD && !(changed->system.missing > 0)))
            continue;
        if (off > MISFIT_MOST)
            return hr__fail(error, -ENODATA,
                            "not known: with files %s the model gives %.4g samples/s where %.4g "
                            "were measured: " SETTLES_IT,
                            where[i], samples / met->found_s, samples / met->measured_s);
        assume(changed, "with files %s the model gives %.4g samples/s where %.4g were measured",
               where[i], samples / met->found_s, samples / met->measured_s);
    }
    return 0;
}

/* ---- the whole ---- */

static double *copy_values(struct hr__values *values)
{
    double *copy = hr__alloc(HR__TAG_STALLS, values->count + 1, sizeof *copy);
    if (copy && values->count)
        memcpy(copy, values->values, values->count * sizeof *copy);
    if (copy)
        values->values = copy;
    return copy;
}

void hr__changed_clear(struct hr__changed *changed)
{
    hr__free(changed->step_s);
    hr__free(changed->prepare_s);
    *changed = (struct hr__changed){.hosts = 0};
}

int hr__model_change(const struct hr__model *model, const struct hr_stalls_change *change,
                     struct hr__changed *changed, struct hr_error *error)
{
    bool headrace = change->loader == HR_STALLS_LOADER_HEADRACE;
    double growth = 1;
    *changed =
        (struct hr__changed){.system = model->system, .hosts = model->hosts, .ranks = model->ranks};
    changed->step_s = copy_values(&changed->system.step_s);
    changed->prepare_s = copy_values(&changed->system.prepare_s);
    changed->rests_on_loader = !headrace;
    int r = hr__change_check(change, error);
    if (!r)
        r = need_prepare(model, change, error);
    if (!r && (!changed->step_s || !changed->prepare_s))
        r = hr__fail(error, -ENOMEM, "out of memory while predicting");
    if (!r) {
        set_machine(model, change, changed);
        set_device(change, changed);
    }
    if (!r && headrace)
        r = set_headrace(model, change, changed, &growth, error);
    bool cache = change->cache_share >= 0 || change->cache_bytes;
    if (!r && !headrace && changed->system.loader == HR__LOADER_HEADRACE && cache &&
        !change->page_cache && !(model->stalls->loader_cache_bytes > 0))
        set_own_cache(model, changed);
    if (!r && change->workers)
        set_workers(model, change->workers, changed);
    if (!r)
        r = set_missing(model, change, headrace, growth, changed, error);
    if (!r)
        r = set_storage(model, change, changed, error);
    if (!r)
        r = need_spreads(model, changed, error);
    if (!r)
        r = need_met(model, changed, error);
    if (r)
        hr__changed_clear(changed);
    return r;
}
