/*
 * Measurements after the loop: the loader alone, with warm files at several numbers of cores and
 * with cold files; storage at several reads in flight; reading from the page cache; and the cost of
 * preparing a sample in each form.
 *
 * All this takes a fixed share of the watch's time, which is cut into equal slices. A step that a
 * signal interrupts leaves nothing behind and is repeated.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "loader/sample.h"
#include "stalls/watch/inside.h"

#include <headrace/rows.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Longest slice of time. */
#define SLICE_S 1.5

/* Bounds on a drain's batches besides those that settle it, and on its samples. */
#define DRAIN_MIN         3
#define DRAIN_MAX         512
#define DRAIN_SAMPLES_MAX 16384

/* Most files to read at one depth. */
#define STORAGE_FILES 8192

/* Fewest files to read from memory, however little time is left. */
#define MEMORY_FILES 8

/* Most samples to measure forms with, and most seconds per form. */
#define FORM_SAMPLES 64
#define FORM_S       0.4

static const int storage_depths[HR__WATCH_DEPTHS] = {1, 4, 16, 64};

/* ---- the loader alone ---- */

/* Returns the loader threads' CPU seconds per sample, according to the segments; 0: unknown. */
static double cpu_of_sample(const struct hr_stalls_watch *w)
{
    double cpu_ns = 0, samples = 0;
    for (size_t i = 0; i < w->segment_count; i++) {
        const struct hr__watch_segment *s = &w->segments[i];
        if (s->what.phase != HR_STALLS_WARM)
            continue;
        cpu_ns += (double)(s->end.worker_cpu_ns - s->begin.worker_cpu_ns);
        samples += (double)s->samples;
    }
    return samples ? cpu_ns * 1e-9 / samples : 0;
}

/* Lists the core counts to drain at: 1, 2, 4 and so on, and last all of them, several times: that
 * result matters most. */
static int core_counts(int cores[HR__WATCH_CORES + HR__WATCH_ALL_DRAINS])
{
    int all = hr_cores(), count = 0;
    for (int n = 1; n < all && count < HR__WATCH_CORES; n *= 2)
        cores[count++] = n;
    for (int i = 0; i < HR__WATCH_ALL_DRAINS; i++)
        cores[count++] = all;
    return count;
}

static double slice_s(const struct hr_stalls_watch *w)
{
    int cores[HR__WATCH_CORES + HR__WATCH_ALL_DRAINS];
    int slices = core_counts(cores) + HR__WATCH_COLD_DRAINS + HR__WATCH_DEPTHS + 2;
    /* Preparations, such as reading the files into memory, take as long again. */
    return fmin(w->after_s / (2 * slices), SLICE_S);
}

/* Returns the number of batches that take about a slice on `cores` cores. */
static uint64_t drain_batches(const struct hr_stalls_watch *w, int cores)
{
    double batch_size = w->loader->options.batch_size;
    double cpu_s = fmax(cpu_of_sample(w), 1e-6);
    int threads = w->loader->workers_wanted;
    double batches = slice_s(w) * (cores < threads ? cores : threads) / (cpu_s * batch_size);
    /* Batches that settle and those prepared ahead are read too. */
    batches = fmin(batches, (double)hr_dataset_count(w->loader->dataset) / batch_size -
                                (double)w->settle - w->loader->options.batches_ahead);
    batches = fmin(batches, DRAIN_SAMPLES_MAX / batch_size);
    return (uint64_t)fmin(fmax(batches, DRAIN_MIN), DRAIN_MAX);
}

/* Takes `count` batches as fast as they come. */
static int take(struct hr_stalls_watch *w, uint64_t count, struct hr_error *error)
{
    w->to_drain = count;
    return hr__watch_drain_batches(w, error);
}

/* Drains the loader on `cores` cores, and leaves it idle. */
static int drain_on(struct hr_stalls_watch *w, int cores, uint64_t batches,
                    struct hr__watch_drain *drain, struct hr_error *error)
{
    struct hr__watch_mark begin, end;
    struct hr__confinement *confinement = NULL;
    int r = 0;
    if (cores < hr_cores()) {
        r = hr__confine(&confinement, cores, error);
        if (r)
            return r;
    }
    r = hr__watch_set_push(w, error);
    if (!r)
        r = take(w, w->settle, error);
    if (!r) {
        hr__watch_mark(w, &begin);
        r = take(w, batches, error);
    }
    if (!r)
        hr__watch_mark(w, &end);
    hr__confine_end(&confinement);
    w->to_drain = 0;
    /* Discard the batches prepared ahead. */
    int dropped = hr_loader_start_epoch(w->loader, 0, r ? NULL : error);
    if (r || dropped)
        return r ? r : dropped;
    uint64_t worker_ns = end.worker_cpu_ns - begin.worker_cpu_ns;
    *drain = (struct hr__watch_drain){
        .cores = cores,
        .samples = batches * (uint64_t)w->loader->options.batch_size,
        .elapsed_s = (double)(end.ns - begin.ns) * 1e-9,
        .cpu_s = (double)(end.process_cpu_ns - begin.process_cpu_ns + worker_ns) * 1e-9,
        .worker_cpu_s = (double)worker_ns * 1e-9,
        .prepare_s = (double)(end.prepare_ns - begin.prepare_ns) * 1e-9,
        .read_bytes = end.read_bytes - begin.read_bytes,
    };
    return 0;
}

/* Makes a set in memory for the following steps, large enough for all cores. */
static int have_set(struct hr_stalls_watch *w, struct hr_error *error)
{
    if (w->after_has_set)
        return 0;
    uint64_t batches =
        w->settle + drain_batches(w, hr_cores()) + (uint64_t)w->loader->options.batches_ahead;
    int r = hr__watch_set_make(w, batches, 0, error);
    w->after_has_set = !r;
    return r;
}

static int drain_warm(struct hr_stalls_watch *w, int cores, struct hr_error *error)
{
    if (!(w->phases & 1 << HR_STALLS_WARM))
        return 0;
    int r = have_set(w, error);
    if (!r)
        r = hr__watch_set_preread(w, error);
    if (r)
        return r;
    uint64_t batches = drain_batches(w, cores);
    struct hr_error why = {0};
    r = drain_on(w, cores, batches, &w->drains[w->drain_count], &why);
    if (!r) {
        w->drain_count++;
    } else if (r == -EPERM || r == -EINVAL) {
        hr__watch_note(w, "the loader alone was not measured on %d cores: %.200s", cores,
                       why.message);
        r = 0;
    } else if (error) {
        *error = why;
    }
    return r;
}

static int drain_cold(struct hr_stalls_watch *w, struct hr_error *error)
{
    if (!(w->phases & 1 << HR_STALLS_COLD))
        return 0;
    int r = have_set(w, error);
    if (!r)
        r = hr__watch_set_drop(w, error);
    if (r)
        return r;
    /* A cold batch may take many times as long as a warm one, according to the segments. */
    double cold_s = 0, batches = 0;
    for (size_t i = 0; i < w->segment_count; i++) {
        const struct hr__watch_segment *s = &w->segments[i];
        if (s->what.phase == HR_STALLS_COLD) {
            cold_s += (double)(s->end.ns - s->begin.ns) * 1e-9;
            batches += (double)s->what.batches;
        }
    }
    uint64_t most = w->set.batches - w->settle - (uint64_t)w->loader->options.batches_ahead;
    uint64_t wanted =
        batches ? (uint64_t)fmax(slice_s(w) * batches / cold_s, DRAIN_MIN) : DRAIN_MIN;
    struct hr__watch_drain *drain = &w->drains[w->drain_count];
    r = drain_on(w, hr_cores(), wanted < most ? wanted : most, drain, error);
    if (r)
        return r;
    drain->cold = true;
    w->drain_count++;
    return 0;
}

/* ---- storage and memory ---- */

/* Reads other files at each depth, so that the device's own cache does not hold them already. */
static int measure_storage(struct hr_stalls_watch *w, int i, struct hr_error *error)
{
    if (!(w->phases & 1 << HR_STALLS_COLD))
        return 0;
    if (w->set.containers) {
        hr__watch_note(w, "storage alone was not measured: the samples lie in containers, of "
                          "which only pieces are read");
        return 0;
    }
    uint64_t batch_size = (uint64_t)w->loader->options.batch_size;
    uint64_t files = hr_dataset_count(w->loader->dataset) / HR__WATCH_DEPTHS;
    files = files < STORAGE_FILES ? files : STORAGE_FILES;
    uint64_t batches = files / batch_size;
    int r = hr__watch_set_make(w, batches ? batches : 1, 0, error);
    w->after_has_set = false;
    if (r)
        return r;
    struct hr_error why = {0};
    struct hr_storage_rate *rate = &w->rates[w->rate_count];
    *rate = (struct hr_storage_rate){.size = sizeof *rate};
    r = hr_storage_measure((const char *const *)w->set.names, w->set.name_count, storage_depths[i],
                           slice_s(w), rate, &why);
    if (r == -EINTR || r == -ENOMEM) {
        if (error)
            *error = why;
        return r;
    }
    if (r)
        hr__watch_note(w, "storage alone was not measured at %d reads in flight: %.200s",
                       storage_depths[i], why.message);
    else
        w->depths[w->rate_count++] = storage_depths[i];
    return 0;
}

/* Reads files that are in memory, on this thread. */
static int measure_memory(struct hr_stalls_watch *w, struct hr_error *error)
{
    int r = have_set(w, error);
    if (!r)
        r = hr__watch_set_preread(w, error);
    if (r)
        return r;
    struct hr__sample sample = {.path_capacity = 0};
    double bytes = 0;
    uint64_t begin_ns = hr__now_ns(), until_ns = begin_ns + (uint64_t)(slice_s(w) * 0.5e9);
    for (size_t i = 0; i < w->set.unique_count; i++) {
        if (i >= MEMORY_FILES && hr__now_ns() >= until_ns)
            break;
        if (hr__sample_read(&sample, w->loader->dataset, (uint64_t)w->set.unique[i], NULL))
            continue;
        bytes += (double)sample.read.length;
        hr__free(sample.read.bytes);
    }
    double elapsed_s = (double)(hr__now_ns() - begin_ns) * 1e-9;
    hr__sample_clear(&sample);
    if (bytes > 0)
        w->memory_bytes_per_s = bytes / elapsed_s;
    return 0;
}

/* ---- forms ---- */

/* Resources for measuring forms. */
struct tools {
    struct hr_preparer *preparer;
    struct hr_converter *converter;
    void *out[HR_RECIPE_MAX_VIEWS]; /* tensor of one sample, for each view */
    void *columns[HR_COLUMNS_MAX];  /* its rows */
    void *bytes[FORM_SAMPLES];
    size_t lengths[FORM_SAMPLES];
    int64_t indices[FORM_SAMPLES];
    int count;
};

/* Makes room for the rows of a sample. */
static int make_columns(struct tools *t, const struct hr_dataset *dataset, struct hr_error *error)
{
    for (size_t c = 0; c < hr_dataset_column_count(dataset); c++) {
        struct hr_column column;
        hr_dataset_column(dataset, c, &column);
        size_t bytes = hr_dtype_bytes(column.dtype), most = hr_dataset_most_rows(dataset);
        for (int i = 0; i < column.dims; i++)
            bytes *= (size_t)column.shape[i];
        t->columns[c] = hr__alloc(HR__TAG_LOADER, most + 1, bytes);
        if (!t->columns[c])
            return hr__fail(error, -ENOMEM, "out of memory for the rows of a sample");
    }
    return 0;
}

static int open_tools(struct hr_stalls_watch *w, struct tools *t, struct hr_error *error)
{
    struct hr_converter_options options;
    hr_converter_options_default(&options);
    options.trust = 1;
    int r = hr_preparer_create(&t->preparer, error);
    if (!r)
        r = hr_converter_create(&t->converter, &options, error);
    if (!r)
        r = make_columns(t, w->loader->dataset, error);
    for (size_t v = 0; !r && v < hr_recipe_views(w->loader->recipe); v++) {
        struct hr_tensor_spec spec;
        hr_recipe_view_output(w->loader->recipe, v, &spec);
        t->out[v] = hr__alloc_aligned(HR__TAG_LOADER, spec.bytes, 64);
        if (!t->out[v])
            r = hr__fail(error, -ENOMEM, "out of memory for a sample");
    }
    for (size_t i = 0; !r && i < w->set.unique_count && t->count < FORM_SAMPLES; i++) {
        size_t at = i * (w->set.unique_count / FORM_SAMPLES + 1) % w->set.unique_count;
        if (hr_dataset_read(w->loader->dataset, (size_t)w->set.unique[at], &t->bytes[t->count],
                            &t->lengths[t->count], NULL))
            continue;
        t->indices[t->count++] = w->set.unique[at];
    }
    return r;
}

static void close_tools(struct tools *t)
{
    for (int i = 0; i < t->count; i++)
        hr_bytes_free(t->bytes[i]);
    hr_converter_destroy(&t->converter);
    hr_preparer_destroy(&t->preparer);
    for (size_t v = 0; v < HR_RECIPE_MAX_VIEWS; v++)
        hr__free(t->out[v]);
    for (size_t c = 0; c < HR_COLUMNS_MAX; c++)
        hr__free(t->columns[c]);
}

/* Measures the CPU time of preparing the samples in a form, and their bytes; uses samples that have
 * this form or can be converted to it. */
static void measure_form(struct hr_stalls_watch *w, struct tools *t, enum hr_form form)
{
    double cpu_ns = 0, bytes = 0;
    int measured = 0;
    uint64_t until_ns = hr__now_ns() + (uint64_t)(fmin(slice_s(w), FORM_S) * 1e9);
    for (int i = 0; i < t->count && (i < 2 || hr__now_ns() < until_ns); i++) {
        struct hr_item item = {t->bytes[i], t->lengths[i], hr_form_of(t->bytes[i], t->lengths[i])};
        if (item.form != form &&
            (item.form != HR_FORM_ENCODED ||
             hr_converter_run(t->converter, form, t->bytes[i], t->lengths[i], &item, NULL)))
            continue;
        struct hr_draw_key key = {.seed = w->loader->seed, .index = (uint64_t)t->indices[i]};
        const struct hr_sample sample = {.dataset = w->loader->dataset,
                                         .index = (size_t)t->indices[i],
                                         .bytes = item.bytes,
                                         .length = item.length};
        size_t rows;
        const struct hr_sample_room room = {.outs = t->out, .columns = t->columns, .rows = &rows};
        uint64_t start_ns = hr__thread_cpu_ns();
        if (hr_preparer_run_sample(t->preparer, w->loader->recipe, &sample, &key, &room, NULL))
            continue;
        /* Skip the first sample: code and scratch memory are still cold. */
        if (!i)
            continue;
        cpu_ns += (double)(hr__thread_cpu_ns() - start_ns);
        bytes += (double)item.length;
        measured++;
    }
    if (measured)
        w->forms[w->form_count++] = (struct hr__watch_form){
            .form = form, .cpu_s = cpu_ns * 1e-9 / measured, .bytes = bytes / measured};
}

/* For the form that the samples have, the loader's own threads give a better figure, which includes
 * reading and scheduling. */
static int measure_forms(struct hr_stalls_watch *w, struct hr_error *error)
{
    struct tools t = {.count = 0};
    int r = have_set(w, error);
    if (!r)
        r = open_tools(w, &t, error);
    for (int form = 0; !r && form < HR_FORMS; form++)
        measure_form(w, &t, (enum hr_form)form);
    enum hr_form own = t.count ? hr_form_of(t.bytes[0], t.lengths[0]) : HR_FORM_ENCODED;
    double cpu_s = w->loader->cache ? 0 : cpu_of_sample(w);
    for (int i = 0; i < w->form_count && cpu_s > 0; i++)
        if (w->forms[i].form == own)
            w->forms[i].cpu_s = cpu_s;
    close_tools(&t);
    return r;
}

int hr__watch_after(struct hr_stalls_watch *w, struct hr_error *error)
{
    int cores[HR__WATCH_CORES + HR__WATCH_ALL_DRAINS];
    int cold = core_counts(cores), memory = cold + HR__WATCH_COLD_DRAINS, forms = memory + 1;
    int depths = forms + 1, r = 0;
    for (; !r && w->after_step < depths + HR__WATCH_DEPTHS; w->after_step += !r) {
        int step = w->after_step;
        if (step < cold)
            r = drain_warm(w, cores[step], error);
        else if (step < memory)
            r = drain_cold(w, error);
        else if (step == memory)
            r = measure_memory(w, error);
        else if (step == forms)
            r = measure_forms(w, error);
        else
            r = measure_storage(w, step - depths, error);
    }
    return r;
}
