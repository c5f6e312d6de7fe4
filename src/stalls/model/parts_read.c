/* Reads the parts of records and of stalls.json; see parts.h. */
#include "base/memory.h"
#include "stalls/model/parts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const hr__phase_names[HR_STALLS_PHASES + 1] = {"device", "host",  "warm",
                                                           "cold",   "alone", NULL};
const char *const hr__ended_names[] = {"precise", "limit", "script", "interrupted", NULL};
const char *const hr__loader_names[] = {"torch", "headrace", "other", NULL};

static const struct hr__json_range seconds = {0, HR__MAX_SECONDS, HR__REQUIRED};
static const struct hr__json_range seconds_or_not = {0, HR__MAX_SECONDS, NAN};
static const struct hr__json_range amount = {0, HR__MAX_AMOUNT, HR__REQUIRED};
static const struct hr__json_range amount_or_not = {0, HR__MAX_AMOUNT, NAN};
static const struct hr__json_range amount_or_0 = {0, 0x1p53, 0};

/* A zeroed array for the elements of a JSON array, NULL where there are none. */
static void *array_for(struct hr__json *reader, const json_t *array, size_t size, size_t *count)
{
    *count = 0;
    if (!array || !json_array_size(array) || reader->code)
        return NULL;
    void *block = hr__alloc(HR__TAG_STALLS, json_array_size(array), size);
    if (!block)
        hr__json_no_memory(reader);
    else
        *count = json_array_size(array);
    return block;
}

static void read_loader(struct hr__json *reader, const json_t *object, struct hr_stalls *s)
{
    json_t *o = hr__json_object(reader, object, "loader");
    size_t mark = hr__json_enter(reader, "loader", -1);
    if (!o)
        hr__json_fail(reader, -EINVAL, "", "is missing; write an object");
    s->loader = (enum hr__loader_kind)hr__json_word(reader, o, "kind", hr__loader_names);
    hr__json_text(reader, o, "class", s->loader_class, sizeof s->loader_class);
    s->workers = (int)hr__json_integer(reader, o, "workers", (struct hr__json_range){0, 65536, 0});
    s->prefetch_batches =
        (int)hr__json_integer(reader, o, "batches_ahead", (struct hr__json_range){0, 1e6, 0});
    s->batch_size =
        (int)hr__json_integer(reader, o, "batch_size", (struct hr__json_range){0, 1e9, 0});
    s->loader_cache_bytes = hr__json_number(reader, o, "cache_bytes", amount_or_not);
    hr__json_leave(reader, mark);
}

static void read_training(struct hr__json *reader, const json_t *object, struct hr_stalls *s)
{
    json_t *o = hr__json_object(reader, object, "training");
    size_t mark = hr__json_enter(reader, "training", -1);
    hr__json_name(reader, o, "device", s->training_device, sizeof s->training_device);
    s->on_cpu = !strncmp(s->training_device, "cpu", 3);
    s->training_threads =
        (int)hr__json_integer(reader, o, "threads", (struct hr__json_range){1, 65536, 1});
    s->warm_up_batches = (uint64_t)hr__json_integer(reader, o, "warm_up_batches", amount_or_0);
    hr__json_leave(reader, mark);
}

static void read_dataset(struct hr__json *reader, const json_t *object, struct hr_stalls *s)
{
    json_t *o = hr__json_object(reader, object, "dataset");
    size_t mark = hr__json_enter(reader, "dataset", -1);
    hr__json_text(reader, o, "name", s->dataset, sizeof s->dataset);
    s->samples = (uint64_t)hr__json_integer(reader, o, "samples", amount_or_0);
    s->bytes = hr__json_number(reader, o, "bytes", amount_or_not);
    s->size_count = hr__json_numbers(reader, o, "sizes", SIZE_MAX, HR__MAX_SIZES, &s->sizes);
    hr__json_text(reader, o, "filesystem", s->filesystem, sizeof s->filesystem);
    s->reads_no_files = !hr__json_bool(reader, o, "reads_files", 1);
    s->network = hr__json_bool(reader, o, "network", 0);
    hr__json_leave(reader, mark);
}

static void read_epoch(struct hr__json *reader, const json_t *object, struct hr_stalls *s)
{
    json_t *o = hr__json_object(reader, object, "epoch");
    size_t mark = hr__json_enter(reader, "epoch", -1);
    s->epoch_batches = (uint64_t)hr__json_integer(reader, o, "batches", amount_or_0);
    s->epoch_start_s = hr__json_number(reader, o, "start_s", seconds_or_not);
    s->epoch_start_each = hr__json_bool(reader, o, "each", 0);
    hr__json_leave(reader, mark);
}

void hr__read_run(struct hr__json *reader, const json_t *object, struct hr_stalls *s)
{
    hr__json_name(reader, object, "run", s->run, sizeof s->run);
    s->world_size =
        (int)hr__json_integer(reader, object, "world_size",
                              (struct hr__json_range){1, HR__STALLS_MAX_RANKS, HR__REQUIRED});
    char started[64];
    hr__json_text(reader, object, "started", started, sizeof started);
    s->started = hr__strdup(HR__TAG_STALLS, started);
    s->ended = hr__strdup(HR__TAG_STALLS,
                          hr__ended_names[hr__json_word(reader, object, "ended", hr__ended_names)]);
    if (!s->started || !s->ended)
        hr__json_no_memory(reader);
    read_loader(reader, object, s);
    read_training(reader, object, s);
    read_dataset(reader, object, s);
    read_epoch(reader, object, s);
    hr__json_text(reader, object, "cannot_tell", s->cannot_tell, sizeof s->cannot_tell);
    json_t *phases = hr__json_object(reader, object, "phases");
    size_t mark = hr__json_enter(reader, "phases", -1);
    for (int p = 0; p < HR_STALLS_PHASES; p++)
        hr__json_text(reader, phases, hr__phase_names[p], s->phase_reason[p],
                      sizeof s->phase_reason[p]);
    hr__json_leave(reader, mark);
    s->note_count = hr__json_texts(reader, object, "notes", HR__MAX_TEXTS, &s->notes);
    s->file_count =
        hr__json_texts(reader, object, "files_written", HR__MAX_TEXTS, &s->files_written);
}

static void read_varied(struct hr__json *reader, const json_t *object, struct hr__depth_record *d)
{
    double *parts;
    d->part_count =
        (int)hr__json_numbers(reader, object, "parts", SIZE_MAX, HR__STALLS_MAX_PARTS, &parts);
    for (int i = 0; i < d->part_count; i++)
        d->parts[i] = parts[i];
    hr__free(parts);
}

static void read_storage(struct hr__json *reader, const json_t *object,
                         struct hr__host_record *host)
{
    json_t *o = hr__json_object(reader, object, "storage");
    size_t mark = hr__json_enter(reader, "storage", -1);
    json_t *depths = hr__json_array(reader, o, "depths", HR__STALLS_MAX_POINTS);
    host->memory_bytes_per_s = hr__json_number(reader, o, "memory_bytes_per_s", amount_or_not);
    host->paused_bytes_per_s = hr__json_number(reader, o, "paused_bytes_per_s", amount_or_not);
    host->depths = array_for(reader, depths, sizeof *host->depths, &host->depth_count);
    for (size_t i = 0; i < host->depth_count && !reader->code; i++) {
        struct hr__depth_record *d = &host->depths[i];
        json_t *e = hr__json_element(reader, depths, "depths", i);
        size_t inner = hr__json_enter(reader, "depths", (long)i);
        d->depth = (int)hr__json_integer(reader, e, "depth",
                                         (struct hr__json_range){1, 65536, HR__REQUIRED});
        d->bytes_per_s = hr__json_number(reader, e, "bytes_per_s", amount);
        d->reads_per_s = hr__json_number(reader, e, "reads_per_s", amount);
        read_varied(reader, e, d);
        if (i && d->depth <= d[-1].depth)
            hr__json_fail(reader, -EINVAL, "depth",
                          "is %d after %d; write each depth once, in rising order", d->depth,
                          d[-1].depth);
        hr__json_leave(reader, inner);
    }
    hr__json_leave(reader, mark);
}

static void read_headrace(struct hr__json *reader, const json_t *object,
                          struct hr__host_record *host)
{
    static const char *const names[] = {"encoded", "coefficients", "planes", NULL};
    json_t *o = hr__json_object(reader, object, "headrace");
    size_t mark = hr__json_enter(reader, "headrace", -1);
    json_t *forms = hr__json_array(reader, o, "forms", 3);
    hr__json_text(reader, o, "recipe", host->recipe, sizeof host->recipe);
    hr__json_text(reader, o, "reason", host->no_forms, sizeof host->no_forms);
    /* Older records have the cost of a recipe that is not the script's. */
    if (hr__json_bool(reader, o, "assumed", 0)) {
        snprintf(host->no_forms, sizeof host->no_forms, "its transform could not be translated");
        forms = NULL;
    }
    host->forms = array_for(reader, forms, sizeof *host->forms, &host->form_count);
    for (size_t i = 0; i < host->form_count && !reader->code; i++) {
        struct hr__form_record *f = &host->forms[i];
        json_t *e = hr__json_element(reader, forms, "forms", i);
        size_t inner = hr__json_enter(reader, "forms", (long)i);
        f->form = (enum hr_form)hr__json_word(reader, e, "form", names);
        f->cpu_s = hr__json_number(reader, e, "cpu_s", seconds);
        f->bytes = hr__json_number(reader, e, "bytes", amount);
        for (size_t k = 0; k < i; k++)
            if (host->forms[k].form == f->form)
                hr__json_fail(reader, -EINVAL, "form", "is there twice; write each once");
        hr__json_leave(reader, inner);
    }
    hr__json_leave(reader, mark);
}

void hr__read_host(struct hr__json *reader, const json_t *object, struct hr__host_record *host)
{
    hr__json_name(reader, object, "host", host->name, sizeof host->name);
    json_t *o = hr__json_object(reader, object, "machine");
    size_t mark = hr__json_enter(reader, "machine", -1);
    host->cores =
        (int)hr__json_integer(reader, o, "cores", (struct hr__json_range){1, 65536, HR__REQUIRED});
    hr__json_text(reader, o, "cpu", host->cpu, sizeof host->cpu);
    host->memory_bytes = (uint64_t)hr__json_integer(reader, o, "memory_bytes", amount_or_0);
    host->available_bytes = (uint64_t)hr__json_integer(reader, o, "available_bytes", amount_or_0);
    hr__json_text(reader, o, "device", host->device, sizeof host->device);
    hr__json_leave(reader, mark);
    read_storage(reader, object, host);
    read_headrace(reader, object, host);
}

/* What disturbed it, and what the script did besides training. */
static void read_circumstances(struct hr__json *reader, const json_t *e,
                               struct hr__segment_record *g)
{
    const struct hr__json_range count = {0, HR__MAX_BATCHES, 0};
    g->network_bytes = hr__json_number(reader, e, "network_bytes", amount_or_not);
    g->others = hr__json_number(reader, e, "others", (struct hr__json_range){0, 1, NAN});
    g->run_delay_s = hr__json_number(reader, e, "run_delay_s", seconds_or_not);
    g->throttled_s = hr__json_number(reader, e, "throttled_s", seconds_or_not);
    g->disturbed = hr__json_bool(reader, e, "disturbed", 0);
    g->tries = (int)hr__json_integer(reader, e, "tries", (struct hr__json_range){1, 1000, 1});
    g->pauses = (int)hr__json_integer(reader, e, "pauses", count);
    g->paused_s =
        hr__json_number(reader, e, "paused_s", (struct hr__json_range){0, HR__MAX_SECONDS, 0});
    g->queue_begin = hr__json_number(reader, e, "queue_begin", amount_or_not);
    g->queue_end = hr__json_number(reader, e, "queue_end", amount_or_not);
}

static void read_segment(struct hr__json *reader, const json_t *e, void *out)
{
    struct hr__segment_record *g = out;
    const struct hr__json_range number = {0, HR__MAX_SEGMENTS, HR__REQUIRED};
    g->phase = (enum hr_stalls_phase)hr__json_word(reader, e, "phase", hr__phase_names);
    g->round = (int)hr__json_integer(reader, e, "round", number);
    g->set = (int)hr__json_integer(reader, e, "set", number);
    g->alone_rank = (int)hr__json_integer(
        reader, e, "alone_rank", (struct hr__json_range){-1, HR__STALLS_MAX_RANKS - 1, -1});
    if ((g->phase == HR_STALLS_ALONE) != (g->alone_rank >= 0))
        hr__json_fail(reader, -EINVAL, "alone_rank",
                      "is %d; write the rank that loaded in the phase alone, else -1",
                      g->alone_rank);
    g->batches = (uint64_t)hr__json_integer(
        reader, e, "batches", (struct hr__json_range){1, HR__MAX_BATCHES, HR__REQUIRED});
    g->samples = (uint64_t)hr__json_integer(reader, e, "samples",
                                            (struct hr__json_range){0, 0x1p53, HR__REQUIRED});
    g->begin_s =
        hr__json_number(reader, e, "begin_s", (struct hr__json_range){0, HR__MAX_SECONDS, 0});
    g->elapsed_s = hr__json_number(reader, e, "elapsed_s", seconds);
    g->process_cpu_s = hr__json_number(reader, e, "process_cpu_s", seconds_or_not);
    g->worker_cpu_s = hr__json_number(reader, e, "worker_cpu_s", seconds_or_not);
    g->next_cpu_s = hr__json_number(reader, e, "next_cpu_s", seconds_or_not);
    g->read_bytes = hr__json_number(reader, e, "read_bytes", amount_or_not);
    g->expected_bytes = hr__json_number(reader, e, "expected_bytes", amount_or_not);
    g->expected_samples = hr__json_number(reader, e, "expected_samples", amount_or_not);
    g->verified = hr__json_bool(reader, e, "verified", -1);
    hr__json_text(reader, e, "reason", g->reason, sizeof g->reason);
    read_circumstances(reader, e, g);
    hr__json_numbers(reader, e, "wait_s", g->batches, HR__MAX_BATCHES, &g->wait_s);
    hr__json_numbers(reader, e, "batch_s", g->batches, HR__MAX_BATCHES, &g->batch_s);
}

static void read_drain(struct hr__json *reader, const json_t *e, void *out)
{
    struct hr__drain_record *d = out;
    static const char *const names[] = {"warm", "cold", NULL};
    d->cold = hr__json_word(reader, e, "phase", names) == 1;
    d->cores =
        (int)hr__json_integer(reader, e, "cores", (struct hr__json_range){1, 65536, HR__REQUIRED});
    d->samples = (uint64_t)hr__json_integer(reader, e, "samples",
                                            (struct hr__json_range){0, 0x1p53, HR__REQUIRED});
    d->elapsed_s = hr__json_number(reader, e, "elapsed_s", seconds);
    d->cpu_s = hr__json_number(reader, e, "cpu_s", seconds_or_not);
    d->read_bytes = hr__json_number(reader, e, "read_bytes", amount_or_not);
}

static void read_prepare(struct hr__json *reader, const json_t *e, void *out)
{
    struct hr__prepare_record *p = out;
    static const char *const names[] = {"warm", "cold", NULL};
    p->cold = hr__json_word(reader, e, "phase", names) == 1;
    p->samples = (uint32_t)hr__json_integer(reader, e, "samples",
                                            (struct hr__json_range){0, 1e9, HR__REQUIRED});
    p->cpu_s = hr__json_number(reader, e, "cpu_s", seconds_or_not);
    p->wall_s = hr__json_number(reader, e, "wall_s", seconds);
    p->read_bytes = hr__json_number(reader, e, "read_bytes", amount_or_not);
}

/* A kind of part that a rank has many of. */
struct parts {
    const char *name;
    size_t most; /* of them in a record */
    size_t size; /* of a part */
    void (*read)(struct hr__json *reader, const json_t *e, void *out);
};

/* All of a kind; what was read of them on failure too. */
static void *read_parts(struct hr__json *reader, const json_t *object, const struct parts *kind,
                        size_t *count)
{
    json_t *a = hr__json_array(reader, object, kind->name, kind->most);
    char *parts = array_for(reader, a, kind->size, count);
    for (size_t i = 0; i < *count && !reader->code; i++) {
        json_t *e = hr__json_element(reader, a, kind->name, i);
        size_t mark = hr__json_enter(reader, kind->name, (long)i);
        kind->read(reader, e, parts + i * kind->size);
        hr__json_leave(reader, mark);
    }
    return parts;
}

void hr__read_rank(struct hr__json *reader, const json_t *object, struct hr__rank_record *rank)
{
    const struct hr__json_range number = {0, HR__STALLS_MAX_RANKS - 1, HR__REQUIRED};
    rank->rank = (int)hr__json_integer(reader, object, "rank", number);
    rank->local_rank = (int)hr__json_integer(
        reader, object, "local_rank", (struct hr__json_range){0, HR__STALLS_MAX_RANKS - 1, 0});
    hr__json_name(reader, object, "host", rank->host, sizeof rank->host);
    rank->first_batch_s = hr__json_number(reader, object, "first_batch_s", seconds_or_not);

    static const struct parts segments = {"segments", HR__MAX_SEGMENTS, sizeof *rank->segments,
                                          read_segment};
    static const struct parts drains = {"drains", HR__STALLS_MAX_POINTS, sizeof *rank->drains,
                                        read_drain};
    static const struct parts prepares = {"preparation", HR__MAX_PREPARES, sizeof *rank->prepares,
                                          read_prepare};
    rank->segments = read_parts(reader, object, &segments, &rank->segment_count);
    rank->drains = read_parts(reader, object, &drains, &rank->drain_count);
    rank->prepares = read_parts(reader, object, &prepares, &rank->prepare_count);
}
