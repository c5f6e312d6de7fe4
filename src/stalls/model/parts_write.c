/* Writes the parts of stalls.json; see parts.h. */
#include "stalls/model/parts.h"

#include <math.h>

bool hr__json_set(json_t *object, const char *name, json_t *value)
{
    return !json_object_set_new(object, name, value);
}

static bool set_real(json_t *object, const char *name, double value)
{
    return hr__json_set(object, name, hr__json_real(value));
}

static bool set_count(json_t *object, const char *name, uint64_t value)
{
    return hr__json_set(object, name, json_integer((json_int_t)value));
}

static bool set_text(json_t *object, const char *name, const char *text)
{
    return hr__json_set(object, name, hr__json_string(text));
}

/* What is "" where it is not known. */
static bool set_text_or_null(json_t *object, const char *name, const char *text)
{
    return hr__json_set(object, name, *text ? hr__json_string(text) : json_null());
}

static json_t *numbers(const double *values, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++)
        if (json_array_append_new(array, hr__json_real(values[i]))) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

static json_t *texts(char *const *values, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++)
        if (json_array_append_new(array, hr__json_string(values[i]))) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

/* Appends an object that was filled; takes it. */
static bool append(json_t *array, json_t *object, bool filled)
{
    if (filled)
        return !json_array_append_new(array, object);
    json_decref(object);
    return false;
}

bool hr__write_run(json_t *object, const struct hr_stalls *s)
{
    json_t *loader = json_object(), *training = json_object(), *dataset = json_object();
    json_t *phases = json_object(), *epoch = json_object();
    bool ok = set_text(object, "run", s->run) &&
              set_count(object, "world_size", (uint64_t)s->world_size) &&
              set_text(object, "started", s->started) && set_text(object, "ended", s->ended);
    ok = ok && set_text(loader, "kind", hr__loader_names[s->loader]) &&
         set_text(loader, "class", s->loader_class) &&
         set_count(loader, "workers", (uint64_t)s->workers) &&
         set_count(loader, "batches_ahead", (uint64_t)s->prefetch_batches) &&
         set_count(loader, "batch_size", (uint64_t)s->batch_size) &&
         set_real(loader, "cache_bytes", s->loader_cache_bytes);
    ok = ok && set_text(training, "device", s->training_device) &&
         set_count(training, "threads", (uint64_t)s->training_threads) &&
         set_count(training, "warm_up_batches", s->warm_up_batches);
    ok = ok && set_text_or_null(dataset, "name", s->dataset) &&
         hr__json_set(dataset, "samples",
                      s->samples ? json_integer((json_int_t)s->samples) : json_null()) &&
         set_real(dataset, "bytes", s->bytes) &&
         hr__json_set(dataset, "sizes", numbers(s->sizes, s->size_count)) &&
         set_text_or_null(dataset, "filesystem", s->filesystem) &&
         hr__json_set(dataset, "reads_files", json_boolean(!s->reads_no_files)) &&
         hr__json_set(dataset, "network", json_boolean(s->network));
    ok = ok && set_count(epoch, "batches", s->epoch_batches) &&
         set_real(epoch, "start_s", s->epoch_start_s) &&
         hr__json_set(epoch, "each", json_boolean(s->epoch_start_each)) &&
         set_text_or_null(object, "cannot_tell", s->cannot_tell);
    for (int p = 0; ok && p < HR_STALLS_PHASES; p++)
        if (*s->phase_reason[p])
            ok = set_text(phases, hr__phase_names[p], s->phase_reason[p]);
    /* json_object_set_new takes its value whether it succeeds or not. */
    ok &= hr__json_set(object, "loader", loader);
    ok &= hr__json_set(object, "training", training);
    ok &= hr__json_set(object, "dataset", dataset);
    ok &= hr__json_set(object, "epoch", epoch);
    ok &= hr__json_set(object, "phases", phases);
    return ok && hr__json_set(object, "notes", texts(s->notes, s->note_count)) &&
           hr__json_set(object, "files_written", texts(s->files_written, s->file_count));
}

static json_t *depths_of(const struct hr__host_record *host)
{
    json_t *array = json_array();
    bool ok = array;
    for (size_t i = 0; ok && i < host->depth_count; i++) {
        const struct hr__depth_record *d = &host->depths[i];
        json_t *o = json_object();
        ok = append(array, o,
                    set_count(o, "depth", (uint64_t)d->depth) &&
                        set_real(o, "bytes_per_s", d->bytes_per_s) &&
                        set_real(o, "reads_per_s", d->reads_per_s) &&
                        hr__json_set(o, "parts", numbers(d->parts, (size_t)d->part_count)));
    }
    if (!ok) {
        json_decref(array);
        return NULL;
    }
    return array;
}

static json_t *forms_of(const struct hr__host_record *host)
{
    json_t *array = json_array();
    bool ok = array;
    for (size_t i = 0; ok && i < host->form_count; i++) {
        static const char *const names[] = {"encoded", "coefficients", "planes"};
        const struct hr__form_record *f = &host->forms[i];
        json_t *o = json_object();
        ok = append(array, o,
                    set_text(o, "form", names[f->form]) && set_real(o, "cpu_s", f->cpu_s) &&
                        set_real(o, "bytes", f->bytes));
    }
    if (!ok) {
        json_decref(array);
        return NULL;
    }
    return array;
}

bool hr__write_host(json_t *object, const struct hr__host_record *host)
{
    json_t *machine = json_object(), *storage = json_object(), *headrace = json_object();
    bool ok = set_text(object, "host", host->name) &&
              set_count(machine, "cores", (uint64_t)host->cores) &&
              set_text_or_null(machine, "cpu", host->cpu) &&
              set_count(machine, "memory_bytes", host->memory_bytes) &&
              set_count(machine, "available_bytes", host->available_bytes) &&
              set_text_or_null(machine, "device", host->device) &&
              hr__json_set(storage, "depths", depths_of(host)) &&
              set_real(storage, "memory_bytes_per_s", host->memory_bytes_per_s) &&
              set_real(storage, "paused_bytes_per_s", host->paused_bytes_per_s) &&
              set_text_or_null(headrace, "recipe", host->recipe) &&
              set_text_or_null(headrace, "reason", host->no_forms) &&
              hr__json_set(headrace, "forms", forms_of(host));
    ok &= hr__json_set(object, "machine", machine);
    ok &= hr__json_set(object, "storage", storage);
    ok &= hr__json_set(object, "headrace", headrace);
    return ok;
}

static bool write_circumstances(json_t *o, const struct hr__segment_record *g)
{
    return set_real(o, "network_bytes", g->network_bytes) && set_real(o, "others", g->others) &&
           set_real(o, "run_delay_s", g->run_delay_s) &&
           set_real(o, "throttled_s", g->throttled_s) &&
           hr__json_set(o, "disturbed", json_boolean(g->disturbed)) &&
           hr__json_set(o, "tries", json_integer(g->tries)) &&
           hr__json_set(o, "pauses", json_integer(g->pauses)) &&
           set_real(o, "paused_s", g->paused_s) && set_real(o, "queue_begin", g->queue_begin) &&
           set_real(o, "queue_end", g->queue_end);
}

static bool write_segment(json_t *array, const struct hr__segment_record *g)
{
    json_t *o = json_object();
    return append(
        array, o,
        set_text(o, "phase", hr__phase_names[g->phase]) &&
            set_count(o, "round", (uint64_t)g->round) && set_count(o, "set", (uint64_t)g->set) &&
            hr__json_set(o, "alone_rank", json_integer(g->alone_rank)) &&
            set_count(o, "batches", g->batches) && set_count(o, "samples", g->samples) &&
            set_real(o, "begin_s", g->begin_s) && set_real(o, "elapsed_s", g->elapsed_s) &&
            set_real(o, "process_cpu_s", g->process_cpu_s) &&
            set_real(o, "worker_cpu_s", g->worker_cpu_s) &&
            set_real(o, "next_cpu_s", g->next_cpu_s) && set_real(o, "read_bytes", g->read_bytes) &&
            set_real(o, "expected_bytes", g->expected_bytes) &&
            set_real(o, "expected_samples", g->expected_samples) &&
            hr__json_set(o, "verified",
                         g->verified < 0 ? json_null() : json_boolean(g->verified)) &&
            set_text(o, "reason", g->reason) && write_circumstances(o, g) &&
            hr__json_set(o, "wait_s", numbers(g->wait_s, g->batches)) &&
            hr__json_set(o, "batch_s", numbers(g->batch_s, g->batches)));
}

bool hr__write_rank(json_t *object, const struct hr__rank_record *rank)
{
    json_t *segments = json_array(), *drains = json_array(), *prepares = json_array();
    bool ok = set_count(object, "rank", (uint64_t)rank->rank) &&
              set_count(object, "local_rank", (uint64_t)rank->local_rank) &&
              set_text(object, "host", rank->host) &&
              set_real(object, "first_batch_s", rank->first_batch_s);
    for (size_t i = 0; ok && i < rank->segment_count; i++)
        ok = write_segment(segments, &rank->segments[i]);
    for (size_t i = 0; ok && i < rank->drain_count; i++) {
        const struct hr__drain_record *d = &rank->drains[i];
        json_t *o = json_object();
        ok = append(drains, o,
                    set_text(o, "phase", d->cold ? "cold" : "warm") &&
                        set_count(o, "cores", (uint64_t)d->cores) &&
                        set_count(o, "samples", d->samples) &&
                        set_real(o, "elapsed_s", d->elapsed_s) && set_real(o, "cpu_s", d->cpu_s) &&
                        set_real(o, "read_bytes", d->read_bytes));
    }
    for (size_t i = 0; ok && i < rank->prepare_count; i++) {
        const struct hr__prepare_record *p = &rank->prepares[i];
        json_t *o = json_object();
        ok = append(prepares, o,
                    set_text(o, "phase", p->cold ? "cold" : "warm") &&
                        set_count(o, "samples", p->samples) && set_real(o, "cpu_s", p->cpu_s) &&
                        set_real(o, "wall_s", p->wall_s) &&
                        set_real(o, "read_bytes", p->read_bytes));
    }
    ok &= hr__json_set(object, "segments", segments);
    ok &= hr__json_set(object, "drains", drains);
    ok &= hr__json_set(object, "preparation", prepares);
    return ok;
}
