/*
 * Writes the record of a watched loop: the same JSON that the probe of a Python script writes
 * (docs/stalls-format.md), so that both are analysed in the same way.
 */
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "stalls/watch/inside.h"

#include "dataset/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Most files whose sizes are recorded. */
#define SIZES_MAX 1000

/* Sets a member; if memory runs out, the member is missing. */
static int set(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value);
}

/* Returns a number, or null if it is unknown. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *whole(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* Returns a text, made printable first. */
static json_t *text(const char *bytes)
{
    char printable[4096];
    hr__printable(printable, sizeof printable, bytes);
    return json_string(printable);
}

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return ((double)to_ns - (double)from_ns) * 1e-9;
}

/* ---- the machine ---- */

static json_t *machine(const struct hr_stalls_watch *w)
{
    struct hr_machine host = {.size = sizeof host};
    hr_machine_get(&host);
    json_t *o = json_object();
    int bad = set(o, "cores", json_integer(host.cores));
    bad |= set(o, "cpu", text(host.processor));
    bad |= set(o, "memory_bytes", whole(host.memory_bytes));
    bad |= set(o, "available_bytes", whole(host.page_cache_bytes));
    bad |= set(o, "page_generations", json_boolean(host.page_generations));
    bad |= set(o, "device", w->options.synchronize ? text("accelerator") : json_null());
    return bad ? (json_decref(o), NULL) : o;
}

static json_t *command(void)
{
    char bytes[4096];
    json_t *list = json_array();
    ssize_t length = hr__read_text("/proc/self/cmdline", bytes, sizeof bytes);
    int bad = 0;
    for (const char *word = bytes; word < bytes + length && !bad; word += strlen(word) + 1)
        bad = json_array_append_new(list, text(word));
    return bad ? (json_decref(list), NULL) : list;
}

/* ---- loader and data ---- */

static json_t *loader(const struct hr_stalls_watch *w)
{
    const struct hr_loader *l = w->loader;
    json_t *o = json_object();
    int bad = set(o, "kind", json_string("headrace"));
    bad |= set(o, "class", json_string("hr_loader"));
    bad |= set(o, "workers", json_integer(l->workers_wanted));
    bad |= set(o, "batches_ahead", json_integer(l->options.batches_ahead));
    bad |= set(o, "batch_size", json_integer(l->options.batch_size));
    uint64_t cache = l->cache ? hr__cache_budget(l->cache) : 0;
    bad |= set(o, "cache_bytes", whole(cache));
    return bad ? (json_decref(o), NULL) : o;
}

static json_t *training(const struct hr_stalls_watch *w)
{
    json_t *o = json_object();
    int bad = set(o, "device", json_string(w->options.synchronize ? "accelerator" : "cpu"));
    bad |= set(o, "threads", json_integer(w->options.threads_of_training));
    bad |= set(o, "warm_up_batches", whole(w->options.warm_up));
    return bad ? (json_decref(o), NULL) : o;
}

/* Draws files at random and lists their sizes in `sizes`, their average in *mean. */
static int draw_sizes(const struct hr_stalls_watch *w, json_t *sizes, double *mean)
{
    size_t samples = hr_dataset_count(w->loader->dataset), found = 0;
    double sum = 0;
    int bad = 0;
    for (size_t i = 0; i < samples && i < SIZES_MAX && !bad; i++) {
        int64_t size = hr__watch_sample_bytes(w, hr__order_at(w->order, i));
        if (size < 0)
            continue;
        bad = json_array_append_new(sizes, json_integer(size));
        sum += (double)size;
        found++;
    }
    *mean = found ? sum / (double)found : NAN;
    return bad;
}

/* Estimates the dataset's size from the drawn ones unless all sizes are known. */
static json_t *dataset(const struct hr_stalls_watch *w)
{
    const struct hr_dataset *d = w->loader->dataset;
    size_t samples = hr_dataset_count(d);
    int64_t bytes = hr__dataset_total_bytes(d);
    double mean = 0;
    json_t *o = json_object(), *sizes = json_array();
    int bad = draw_sizes(w, sizes, &mean);
    if (bytes < 0 && isfinite(mean))
        bytes = (int64_t)(mean * (double)samples);
    bad |= set(o, "sizes", sizes);
    bad |= set(o, "name", text(hr_dataset_root(d)));
    bad |= set(o, "samples", whole(samples));
    bad |= set(o, "bytes", bytes >= 0 ? json_integer(bytes) : json_null());
    bad |= set(o, "filesystem", text(w->filesystem));
    return bad ? (json_decref(o), NULL) : o;
}

static json_t *phases(const struct hr_stalls_watch *w)
{
    json_t *o = json_object();
    int bad = 0;
    for (int i = 0; i < HR_STALLS_PHASES; i++)
        if (w->phase_reason[i][0])
            bad |= set(o, hr_stalls_phase_name((enum hr_stalls_phase)i), text(w->phase_reason[i]));
    return bad ? (json_decref(o), NULL) : o;
}

/* ---- measurements ---- */

static json_t *numbers(const double *values, uint64_t count)
{
    json_t *list = json_array();
    int bad = !list;
    for (uint64_t i = 0; i < count && !bad; i++)
        bad = json_array_append_new(list, number(values[i]));
    return bad ? (json_decref(list), NULL) : list;
}

static json_t *segment(const struct hr_stalls_watch *w, const struct hr__watch_segment *s)
{
    const struct hr_stalls_evidence *e = &s->proof;
    json_t *o = json_object();
    int bad = set(o, "phase", json_string(hr_stalls_phase_name(s->what.phase)));
    bad |= set(o, "round", json_integer(s->what.round));
    bad |= set(o, "set", json_integer(s->what.set));
    bad |= set(o, "alone_rank", json_integer(-1));
    bad |= set(o, "batches", whole(s->what.batches));
    bad |= set(o, "samples", whole(s->samples));
    bad |= set(o, "begin_s", number(seconds(w->segments[0].begin.ns, s->begin.ns)));
    bad |= set(o, "elapsed_s", number(e->elapsed_s));
    bad |= set(o, "process_cpu_s",
               number(fmax(0, seconds(s->begin.process_cpu_ns, s->end.process_cpu_ns))));
    bad |= set(o, "worker_cpu_s", number(seconds(s->begin.worker_cpu_ns, s->end.worker_cpu_ns)));
    bad |= set(o, "read_bytes", number(s->end.read_bytes - s->begin.read_bytes));
    bad |= set(o, "expected_bytes", number(s->expected_bytes));
    bad |= set(o, "expected_samples", isnan(s->expected_bytes) ? json_null() : whole(s->samples));
    bad |= set(o, "verified", e->verified < 0 ? json_null() : json_boolean(e->verified));
    bad |= set(o, "reason", text(e->reason));
    bad |= set(o, "others", number(e->others));
    bad |= set(o, "disturbed", json_boolean(e->disturbed));
    bad |= set(o, "tries", json_integer(e->tries));
    bad |= set(o, "run_delay_s", number(e->run_delay_s));
    bad |= set(o, "throttled_s", number(e->throttled_s));
    bad |= set(o, "pauses", json_integer(e->pauses));
    bad |= set(o, "paused_s", number(e->paused_s));
    bad |= set(o, "queue_begin", number(s->queue_begin));
    bad |= set(o, "queue_end", e->queue_ahead > 0 ? number(e->queue_end) : json_null());
    bad |= set(o, "wait_s", numbers(s->wait_s, s->what.batches));
    bad |= set(o, "batch_s", numbers(s->batch_s, s->what.batches));
    return bad ? (json_decref(o), NULL) : o;
}

static json_t *segments(const struct hr_stalls_watch *w)
{
    json_t *list = json_array();
    int bad = !list;
    for (size_t i = 0; i < w->segment_count && !bad; i++)
        bad = json_array_append_new(list, segment(w, &w->segments[i]));
    return bad ? (json_decref(list), NULL) : list;
}

static json_t *drains(const struct hr_stalls_watch *w)
{
    json_t *list = json_array();
    int bad = !list;
    for (int i = 0; i < w->drain_count && !bad; i++) {
        const struct hr__watch_drain *d = &w->drains[i];
        json_t *o = json_object();
        bad = set(o, "phase", json_string(d->cold ? "cold" : "warm"));
        bad |= set(o, "cores", json_integer(d->cores));
        bad |= set(o, "samples", whole(d->samples));
        bad |= set(o, "elapsed_s", number(d->elapsed_s));
        bad |= set(o, "cpu_s", number(fmax(0, d->cpu_s)));
        bad |= set(o, "read_bytes", number(d->read_bytes));
        bad |= json_array_append_new(list, o);
    }
    return bad ? (json_decref(list), NULL) : list;
}

/* Returns the cost of one batch, given the sums over `batches` batches. */
static json_t *one_batch(const struct hr_stalls_watch *w, bool cold, double batches,
                         const double sums[3])
{
    json_t *o = json_object();
    int bad = set(o, "phase", json_string(cold ? "cold" : "warm"));
    bad |= set(o, "samples", json_integer(w->loader->options.batch_size));
    bad |= set(o, "cpu_s", number(sums[0] / batches));
    bad |= set(o, "wall_s", number(sums[1] / batches));
    bad |= set(o, "read_bytes", number(sums[2] / batches));
    return bad ? (json_decref(o), NULL) : o;
}

/* The workers share their batches: the cost of one is a mean over each segment and drain. */
static json_t *preparation(const struct hr_stalls_watch *w)
{
    json_t *list = json_array();
    int bad = !list;
    for (size_t i = 0; i < w->segment_count && !bad; i++) {
        const struct hr__watch_segment *s = &w->segments[i];
        if (s->what.phase != HR_STALLS_WARM && s->what.phase != HR_STALLS_COLD)
            continue;
        const double sums[] = {seconds(s->begin.worker_cpu_ns, s->end.worker_cpu_ns),
                               seconds(s->begin.prepare_ns, s->end.prepare_ns),
                               s->end.read_bytes - s->begin.read_bytes};
        bad = json_array_append_new(
            list, one_batch(w, s->what.phase == HR_STALLS_COLD, (double)s->what.batches, sums));
    }
    for (int i = 0; i < w->drain_count && !bad; i++) {
        const struct hr__watch_drain *d = &w->drains[i];
        const double sums[] = {d->worker_cpu_s, d->prepare_s, d->read_bytes};
        double batches = (double)d->samples / w->loader->options.batch_size;
        bad = json_array_append_new(list, one_batch(w, d->cold, batches, sums));
    }
    return bad ? (json_decref(list), NULL) : list;
}

static json_t *storage(const struct hr_stalls_watch *w)
{
    json_t *o = json_object(), *depths = json_array();
    int bad = !depths;
    for (int i = 0; i < w->rate_count && !bad; i++) {
        json_t *depth = json_object();
        const struct hr_storage_rate *rate = &w->rates[i];
        double steady = rate->steady_bytes_per_s;
        bad = set(depth, "depth", json_integer(w->depths[i]));
        bad |= set(depth, "bytes_per_s", number(steady));
        bad |= set(depth, "reads_per_s", number(rate->reads_per_s * steady / rate->bytes_per_s));
        bad |= set(depth, "parts", numbers(w->rates[i].parts, (uint64_t)w->rates[i].part_count));
        bad |= json_array_append_new(depths, depth);
    }
    bad |= set(o, "depths", depths);
    bad |= set(o, "memory_bytes_per_s", number(w->memory_bytes_per_s));
    return bad ? (json_decref(o), NULL) : o;
}

static json_t *headrace(const struct hr_stalls_watch *w)
{
    if (!w->form_count)
        return json_null();
    const struct hr_tensor_spec *spec = &w->loader->spec;
    char recipe[128];
    snprintf(recipe, sizeof recipe, "the loop's own recipe, to %d x %d x %d", spec->channels,
             spec->height, spec->width);
    json_t *o = json_object(), *forms = json_array();
    int bad = !forms;
    for (int i = 0; i < w->form_count && !bad; i++) {
        json_t *form = json_object();
        bad = set(form, "form", json_string(hr_form_name(w->forms[i].form)));
        bad |= set(form, "cpu_s", number(w->forms[i].cpu_s));
        bad |= set(form, "bytes", number(w->forms[i].bytes));
        bad |= json_array_append_new(forms, form);
    }
    bad |= set(o, "recipe", json_string(recipe));
    bad |= set(o, "assumed", json_false());
    bad |= set(o, "forms", forms);
    return bad ? (json_decref(o), NULL) : o;
}

/* Appends the notes about all segments. */
static int add_segment_notes(const struct hr_stalls_watch *w, json_t *list)
{
    char texts[HR_STALLS_NOTES][400];
    struct hr_stalls_evidence *all = hr__alloc(HR__TAG_LOADER, w->segment_count + 1, sizeof *all);
    for (size_t i = 0; all && i < w->segment_count; i++)
        all[i] = w->segments[i].proof;
    int bad = !all, count = all ? hr_stalls_segment_notes(all, w->segment_count, "", texts) : 0;
    for (int i = 0; i < count && !bad; i++)
        bad = json_array_append_new(list, text(texts[i]));
    hr__free(all);
    return bad;
}

static json_t *notes(const struct hr_stalls_watch *w)
{
    json_t *list = json_array();
    int bad = !list || add_segment_notes(w, list);
    for (size_t i = 0; i < w->note_count && !bad; i++)
        bad = json_array_append_new(list, text(w->notes[i]));
    if (w->loader->cache && w->set_samples) {
        char words[300];
        snprintf(words, sizeof words,
                 "the loader has a cache: %.0f %% of the measured samples were in it and were not "
                 "fetched; each set was offered to it before it was measured, so this share is "
                 "not that of a whole epoch",
                 100.0 * (double)w->cached_samples / (double)w->set_samples);
        bad |= json_array_append_new(list, text(words));
    }
    return bad ? (json_decref(list), NULL) : list;
}

static const char *ended(const struct hr_stalls_watch *w)
{
    if (w->interrupted)
        return "interrupted";
    if (w->failed || !w->schedule)
        return "script";
    switch (hr_stalls_schedule_end(w->schedule)) {
    case HR_STALLS_PRECISE:
        return "precise";
    case HR_STALLS_LIMIT:
        return "limit";
    default:
        return "script";
    }
}

static int add_head(json_t *o, const struct hr_stalls_watch *w)
{
    char host[64] = "";
    if ((gethostname(host, sizeof host - 1) && errno != ENAMETOOLONG) || !host[0])
        snprintf(host, sizeof host, "localhost");
    int bad = set(o, "headrace_stalls_record", json_integer(1));
    bad |= set(o, "run", json_string(w->run));
    bad |= set(o, "rank", json_integer(0));
    bad |= set(o, "world_size", json_integer(1));
    bad |= set(o, "local_rank", json_integer(0));
    bad |= set(o, "local_world_size", json_integer(1));
    bad |= set(o, "host", text(host));
    bad |= set(o, "command", command());
    bad |= set(o, "started", json_string(w->started));
    bad |= set(o, "ended", json_string(ended(w)));
    return bad;
}

char *hr__watch_record(const struct hr_stalls_watch *w)
{
    json_t *o = json_object();
    int bad = add_head(o, w);
    bad |= set(o, "machine", machine(w));
    bad |= set(o, "loader", loader(w));
    bad |= set(o, "training", training(w));
    bad |= set(o, "dataset", dataset(w));
    bad |= set(o, "phases", phases(w));
    bad |= set(o, "segments", segments(w));
    bad |= set(o, "drains", drains(w));
    bad |= set(o, "preparation", preparation(w));
    bad |= set(o, "storage", storage(w));
    bad |= set(o, "headrace", headrace(w));
    bad |= set(o, "first_batch_s", number(w->first_batch_s));
    bad |= set(o, "notes", notes(w));
    bad |= set(o, "files_written", json_array());
    char *record = bad ? NULL : json_dumps(o, JSON_COMPACT);
    json_decref(o);
    return record;
}
