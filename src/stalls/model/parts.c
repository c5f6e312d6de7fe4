/* The field tables of the parts; see parts.h. */
#include "stalls/model/parts.h"

#include "base/form.h"
#include "base/memory.h"
#include "stalls/model/predict.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *const hr__phase_names[HR_STALLS_PHASES + 1] = {"device", "host",  "warm",
                                                           "cold",   "alone", NULL};
const char *const hr__ended_names[] = {"precise", "limit", "script", "interrupted", NULL};
static const char *const loader_names[] = {"torch", "headrace", "other", NULL};
static const char *const loader_changes[] = {"same", "headrace", NULL};
static const char *const temperatures[] = {"warm", "cold", NULL};

const char *hr_stalls_phase_name(enum hr_stalls_phase phase)
{
    return (unsigned)phase < HR_STALLS_PHASES ? hr__phase_names[phase] : NULL;
}

const char *hr_stalls_phase_title(enum hr_stalls_phase phase)
{
    static const char *const titles[HR_STALLS_PHASES] = {"batches on the device",
                                                         "batches prepared", "files in memory",
                                                         "files on storage", "one rank loading"};
    return (unsigned)phase < HR_STALLS_PHASES ? titles[phase] : NULL;
}

const char *hr_stalls_share_name(int share)
{
    static const char *const names[HR_STALLS_SHARES] = {"compute", "copy", "preparation", "fetch"};
    return (unsigned)share < HR_STALLS_SHARES ? names[share] : NULL;
}

#define MEMBER(type, member)                                                                       \
    .offset = offsetof(struct type, member), .size = sizeof(((struct type *)0)->member)
#define RANGE(from, to, otherwise) .low = (from), .high = (to), .absent = (otherwise)
#define SECONDS                    RANGE(0, HR__MAX_SECONDS, HR__REQUIRED)
#define SECONDS_OR_NOT             RANGE(0, HR__MAX_SECONDS, NAN)
#define AMOUNT                     RANGE(0, HR__MAX_AMOUNT, HR__REQUIRED)
#define AMOUNT_OR_NOT              RANGE(0, HR__MAX_AMOUNT, NAN)
#define COUNT_OR_0                 RANGE(0, 0x1p53, 0)
#define LIST(type, member, counter, most_of, table)                                                \
    .kind = HR__FIELD_LIST, .offset = offsetof(struct type, member),                               \
    .size = sizeof *((struct type *)0)->member, .count = offsetof(struct type, counter),           \
    .most = (most_of), .fields = (table)
#define VALUES(type, member, counter, most_of)                                                     \
    .offset = offsetof(struct type, member), .count = offsetof(struct type, counter),              \
    .most = (most_of)
#define OBJECT(table) .kind = HR__FIELD_OBJECT, .fields = (table)

/* ---- the run ---- */

#define RUN(member) MEMBER(hr_stalls, member)

static void check_training(struct hr__json *reader, const json_t *object, void *out, size_t index)
{
    struct hr_stalls *s = out;
    s->on_cpu = !strncmp(s->training_device, "cpu", 3);
}

static const struct hr__field loader_fields[] = {
    {"kind", HR__FIELD_WORD, RUN(loader), .words = loader_names},
    {"class", HR__FIELD_TEXT, RUN(loader_class)},
    {"workers", HR__FIELD_INT, RUN(workers), RANGE(0, 65536, 0)},
    {"batches_ahead", HR__FIELD_INT, RUN(prefetch_batches), RANGE(0, 1e6, 0)},
    {"batch_size", HR__FIELD_INT, RUN(batch_size), RANGE(0, 1e9, 0)},
    {"cache_bytes", HR__FIELD_REAL, RUN(loader_cache_bytes), AMOUNT_OR_NOT},
    {.name = NULL},
};

static const struct hr__field training_fields[] = {
    {"device", HR__FIELD_NAME, RUN(training_device)},
    {"threads", HR__FIELD_INT, RUN(training_threads), RANGE(1, 65536, 1)},
    {"warm_up_batches", HR__FIELD_COUNT, RUN(warm_up_batches), COUNT_OR_0},
    {.name = NULL},
};

static const struct hr__field dataset_fields[] = {
    {"name", HR__FIELD_KNOWN_TEXT, RUN(dataset)},
    {"samples", HR__FIELD_KNOWN, RUN(samples), COUNT_OR_0},
    {"bytes", HR__FIELD_REAL, RUN(bytes), AMOUNT_OR_NOT},
    {"sizes", HR__FIELD_NUMBERS, VALUES(hr_stalls, sizes, size_count, HR__MAX_SIZES)},
    {"filesystem", HR__FIELD_KNOWN_TEXT, RUN(filesystem)},
    {"reads_files", HR__FIELD_NOT, RUN(reads_no_files)},
    {"network", HR__FIELD_BOOL, RUN(network)},
    {.name = NULL},
};

static const struct hr__field epoch_fields[] = {
    {"batches", HR__FIELD_COUNT, RUN(epoch_batches), COUNT_OR_0},
    {"start_s", HR__FIELD_REAL, RUN(epoch_start_s), SECONDS_OR_NOT},
    {"each", HR__FIELD_BOOL, RUN(epoch_start_each)},
    {.name = NULL},
};

static const struct hr__field name_fields[] = {
    {"run", HR__FIELD_NAME, RUN(run)},
    {"world_size", HR__FIELD_INT, RUN(world_size), RANGE(1, HR__STALLS_MAX_RANKS, HR__REQUIRED)},
    {.name = NULL},
};

static const struct hr__field setup_fields[] = {
    {"cannot_tell", HR__FIELD_KNOWN_TEXT, RUN(cannot_tell)},
    {"loader", OBJECT(loader_fields), .absent = HR__REQUIRED},
    {"training", OBJECT(training_fields), .check = check_training},
    {"dataset", OBJECT(dataset_fields)},
    {"epoch", OBJECT(epoch_fields)},
    {.name = NULL},
};

static const struct hr__field text_fields[] = {
    {"notes", HR__FIELD_TEXTS, VALUES(hr_stalls, notes, note_count, HR__MAX_TEXTS)},
    {"files_written", HR__FIELD_TEXTS, VALUES(hr_stalls, files_written, file_count, HR__MAX_TEXTS)},
    {.name = NULL},
};

void hr__read_run(struct hr__json *reader, const json_t *object, struct hr_stalls *s)
{
    char started[64];
    hr__fields_read(reader, object, name_fields, s);
    hr__json_text(reader, object, "started", started, sizeof started);
    s->started = hr__strdup(HR__TAG_STALLS, started);
    s->ended = hr__strdup(HR__TAG_STALLS,
                          hr__ended_names[hr__json_word(reader, object, "ended", hr__ended_names)]);
    if (!s->started || !s->ended)
        hr__json_no_memory(reader);
    hr__fields_read(reader, object, setup_fields, s);
    json_t *phases = hr__json_object(reader, object, "phases");
    size_t mark = hr__json_enter(reader, "phases", -1);
    for (int p = 0; p < HR_STALLS_PHASES; p++)
        hr__json_text(reader, phases, hr__phase_names[p], s->phase_reason[p],
                      sizeof s->phase_reason[p]);
    hr__json_leave(reader, mark);
    hr__fields_read(reader, object, text_fields, s);
}

bool hr__write_run(json_t *object, const struct hr_stalls *s)
{
    json_t *phases = json_object();
    bool ok = hr__fields_write(object, name_fields, s) &&
              hr__json_set(object, "started", hr__json_string(s->started)) &&
              hr__json_set(object, "ended", hr__json_string(s->ended)) &&
              hr__fields_write(object, setup_fields, s);
    for (int p = 0; ok && p < HR_STALLS_PHASES; p++)
        if (*s->phase_reason[p])
            ok = hr__json_set(phases, hr__phase_names[p], hr__json_string(s->phase_reason[p]));
    /* json_object_set_new takes its value even if it fails. */
    ok &= hr__json_set(object, "phases", phases);
    return ok && hr__fields_write(object, text_fields, s);
}

bool hr__own_run(struct hr_stalls *s)
{
    bool ok = hr__fields_own(setup_fields, s);
    return hr__fields_own(text_fields, s) && ok;
}

void hr__clear_run(struct hr_stalls *s)
{
    hr__fields_clear(setup_fields, s);
    hr__fields_clear(text_fields, s);
}

/* ---- suggestions ---- */

#define CHANGE(member) MEMBER(hr_stalls_suggestion, change.member)

/* Sets what a suggestion never changes, and refuses what the model would. */
static void check_suggestion(struct hr__json *reader, const json_t *object, void *out, size_t index)
{
    struct hr_stalls_suggestion *one = out;
    struct hr_error why;
    one->size = sizeof *one;
    one->change.size = sizeof one->change;
    one->change.cache_share = -1;
    one->change.form = HR_FORM_AUTO;
    one->change.page_cache = one->change.page_cache > 0;
    if (!reader->code && hr__change_check(&one->change, &why))
        hr__json_fail(reader, -EINVAL, "change", "is impossible: %s", why.message);
}

static const struct hr__field change_fields[] = {
    {"loader", HR__FIELD_WORD, CHANGE(loader), .words = loader_changes},
    {"page_cache", HR__FIELD_MAYBE, CHANGE(page_cache)},
    {"cache_bytes", HR__FIELD_COUNT, CHANGE(cache_bytes), COUNT_OR_0},
    {"cores", HR__FIELD_INT, CHANGE(cores), RANGE(0, 65536, 0)},
    {"workers", HR__FIELD_INT, CHANGE(workers), RANGE(0, 65536, 0)},
    {"storage_factor", HR__FIELD_REAL, CHANGE(storage_factor), RANGE(0, 1e6, 0)},
    {.name = NULL},
};

static const struct hr__field suggestion_fields[] = {
    {"text", HR__FIELD_NAME, MEMBER(hr_stalls_suggestion, text)},
    {"change", OBJECT(change_fields), .absent = HR__REQUIRED},
    {.name = NULL},
};

const struct hr__field hr__suggestions_fields[] = {
    {"suggestions",
     LIST(hr_stalls, suggestions, suggestion_count, HR__SUGGESTIONS, suggestion_fields),
     .check = check_suggestion},
    {.name = NULL},
};

/* ---- a host ---- */

#define HOST(member) MEMBER(hr__host_record, member)

static void check_depth(struct hr__json *reader, const json_t *object, void *out, size_t index)
{
    const struct hr__depth_record *d = out;
    if (index && d->depth <= d[-1].depth)
        hr__json_fail(reader, -EINVAL, "depth",
                      "is %d after %d; write each depth once, in rising order", d->depth,
                      d[-1].depth);
}

static void check_form(struct hr__json *reader, const json_t *object, void *out, size_t index)
{
    const struct hr__form_record *f = out;
    for (size_t k = 1; k <= index; k++)
        if (f[-(ptrdiff_t)k].form == f->form)
            hr__json_fail(reader, -EINVAL, "form", "is there twice; write each once");
}

/* Older records contain the cost of a recipe other than the script's. */
static void check_headrace(struct hr__json *reader, const json_t *object, void *out, size_t index)
{
    struct hr__host_record *host = out;
    if (!hr__json_bool(reader, object, "assumed", 0))
        return;
    snprintf(host->no_forms, sizeof host->no_forms, "its transform could not be translated");
    hr__free(host->forms);
    host->forms = NULL;
    host->form_count = 0;
}

static const struct hr__field depth_fields[] = {
    {"depth", HR__FIELD_INT, MEMBER(hr__depth_record, depth), RANGE(1, 65536, HR__REQUIRED)},
    {"bytes_per_s", HR__FIELD_REAL, MEMBER(hr__depth_record, bytes_per_s), AMOUNT},
    {"reads_per_s", HR__FIELD_REAL, MEMBER(hr__depth_record, reads_per_s), AMOUNT},
    {"parts", HR__FIELD_ARRAY, VALUES(hr__depth_record, parts, part_count, HR__STALLS_MAX_PARTS)},
    {.name = NULL},
};

static const struct hr__field form_fields[] = {
    {"form", HR__FIELD_WORD, MEMBER(hr__form_record, form), .words = hr__form_names},
    {"cpu_s", HR__FIELD_REAL, MEMBER(hr__form_record, cpu_s), SECONDS},
    {"bytes", HR__FIELD_REAL, MEMBER(hr__form_record, bytes), AMOUNT},
    {.name = NULL},
};

static const struct hr__field machine_fields[] = {
    {"cores", HR__FIELD_INT, HOST(cores), RANGE(1, 65536, HR__REQUIRED)},
    {"cpu", HR__FIELD_KNOWN_TEXT, HOST(cpu)},
    {"memory_bytes", HR__FIELD_COUNT, HOST(memory_bytes), COUNT_OR_0},
    {"available_bytes", HR__FIELD_COUNT, HOST(available_bytes), COUNT_OR_0},
    {"page_generations", HR__FIELD_BOOL, HOST(page_generations)},
    {"device", HR__FIELD_KNOWN_TEXT, HOST(device)},
    {.name = NULL},
};

static const struct hr__field storage_fields[] = {
    {"depths", LIST(hr__host_record, depths, depth_count, HR__STALLS_MAX_POINTS, depth_fields),
     .check = check_depth},
    {"memory_bytes_per_s", HR__FIELD_REAL, HOST(memory_bytes_per_s), AMOUNT_OR_NOT},
    {"paused_bytes_per_s", HR__FIELD_REAL, HOST(paused_bytes_per_s), AMOUNT_OR_NOT},
    {"saved_bytes", HR__FIELD_REAL, HOST(saved_bytes), AMOUNT_OR_NOT},
    {.name = NULL},
};

static const struct hr__field headrace_fields[] = {
    {"recipe", HR__FIELD_KNOWN_TEXT, HOST(recipe)},
    {"reason", HR__FIELD_KNOWN_TEXT, HOST(no_forms)},
    {"forms", LIST(hr__host_record, forms, form_count, HR_FORMS, form_fields), .check = check_form},
    {.name = NULL},
};

const struct hr__field hr__host_fields[] = {
    {"host", HR__FIELD_NAME, HOST(name)},
    {"machine", OBJECT(machine_fields)},
    {"storage", OBJECT(storage_fields)},
    {"headrace", OBJECT(headrace_fields), .check = check_headrace},
    {.name = NULL},
};

/* ---- a rank ---- */

#define SEGMENT(member) MEMBER(hr__segment_record, member)
#define DRAIN(member)   MEMBER(hr__drain_record, member)
#define PREPARE(member) MEMBER(hr__prepare_record, member)
#define RANK(member)    MEMBER(hr__rank_record, member)
#define BATCHES(member) VALUES(hr__segment_record, member, batches, HR__MAX_BATCHES)

static void check_segment(struct hr__json *reader, const json_t *object, void *out, size_t index)
{
    const struct hr__segment_record *g = out;
    if ((g->phase == HR_STALLS_ALONE) != (g->alone_rank >= 0))
        hr__json_fail(reader, -EINVAL, "alone_rank",
                      "is %d; write the rank that loaded in the phase alone, else -1",
                      g->alone_rank);
}

static const struct hr__field segment_fields[] = {
    {"phase", HR__FIELD_WORD, SEGMENT(phase), .words = hr__phase_names},
    {"round", HR__FIELD_INT, SEGMENT(round), RANGE(0, HR__MAX_SEGMENTS, HR__REQUIRED)},
    {"set", HR__FIELD_INT, SEGMENT(set), RANGE(0, HR__MAX_SEGMENTS, HR__REQUIRED)},
    {"alone_rank", HR__FIELD_INT, SEGMENT(alone_rank), RANGE(-1, HR__STALLS_MAX_RANKS - 1, -1)},
    {"batches", HR__FIELD_COUNT, SEGMENT(batches), RANGE(1, HR__MAX_BATCHES, HR__REQUIRED)},
    {"samples", HR__FIELD_COUNT, SEGMENT(samples), RANGE(0, 0x1p53, HR__REQUIRED)},
    {"begin_s", HR__FIELD_REAL, SEGMENT(begin_s), RANGE(0, HR__MAX_SECONDS, 0)},
    {"elapsed_s", HR__FIELD_REAL, SEGMENT(elapsed_s), SECONDS},
    {"process_cpu_s", HR__FIELD_REAL, SEGMENT(process_cpu_s), SECONDS_OR_NOT},
    {"worker_cpu_s", HR__FIELD_REAL, SEGMENT(worker_cpu_s), SECONDS_OR_NOT},
    {"next_cpu_s", HR__FIELD_REAL, SEGMENT(next_cpu_s), SECONDS_OR_NOT},
    {"read_bytes", HR__FIELD_REAL, SEGMENT(read_bytes), AMOUNT_OR_NOT},
    {"expected_bytes", HR__FIELD_REAL, SEGMENT(expected_bytes), AMOUNT_OR_NOT},
    {"expected_samples", HR__FIELD_REAL, SEGMENT(expected_samples), AMOUNT_OR_NOT},
    {"verified", HR__FIELD_MAYBE, SEGMENT(verified)},
    {"reason", HR__FIELD_TEXT, SEGMENT(reason)},
    {"network_bytes", HR__FIELD_REAL, SEGMENT(network_bytes), AMOUNT_OR_NOT},
    {"others", HR__FIELD_REAL, SEGMENT(others), RANGE(0, 1, NAN)},
    {"run_delay_s", HR__FIELD_REAL, SEGMENT(run_delay_s), SECONDS_OR_NOT},
    {"throttled_s", HR__FIELD_REAL, SEGMENT(throttled_s), SECONDS_OR_NOT},
    {"disturbed", HR__FIELD_BOOL, SEGMENT(disturbed)},
    {"tries", HR__FIELD_INT, SEGMENT(tries), RANGE(1, 1000, 1)},
    {"pauses", HR__FIELD_INT, SEGMENT(pauses), RANGE(0, HR__MAX_BATCHES, 0)},
    {"paused_s", HR__FIELD_REAL, SEGMENT(paused_s), RANGE(0, HR__MAX_SECONDS, 0)},
    {"queue_begin", HR__FIELD_REAL, SEGMENT(queue_begin), AMOUNT_OR_NOT},
    {"queue_end", HR__FIELD_REAL, SEGMENT(queue_end), AMOUNT_OR_NOT},
    {"wait_s", HR__FIELD_SERIES, BATCHES(wait_s)},
    {"batch_s", HR__FIELD_SERIES, BATCHES(batch_s)},
    {.name = NULL},
};

static const struct hr__field drain_fields[] = {
    {"phase", HR__FIELD_WORD, DRAIN(cold), .words = temperatures},
    {"cores", HR__FIELD_INT, DRAIN(cores), RANGE(1, 65536, HR__REQUIRED)},
    {"samples", HR__FIELD_COUNT, DRAIN(samples), RANGE(0, 0x1p53, HR__REQUIRED)},
    {"elapsed_s", HR__FIELD_REAL, DRAIN(elapsed_s), SECONDS},
    {"cpu_s", HR__FIELD_REAL, DRAIN(cpu_s), SECONDS_OR_NOT},
    {"read_bytes", HR__FIELD_REAL, DRAIN(read_bytes), AMOUNT_OR_NOT},
    {.name = NULL},
};

static const struct hr__field prepare_fields[] = {
    {"phase", HR__FIELD_WORD, PREPARE(cold), .words = temperatures},
    {"samples", HR__FIELD_COUNT_32, PREPARE(samples), RANGE(0, 1e9, HR__REQUIRED)},
    {"cpu_s", HR__FIELD_REAL, PREPARE(cpu_s), SECONDS_OR_NOT},
    {"wall_s", HR__FIELD_REAL, PREPARE(wall_s), SECONDS},
    {"read_bytes", HR__FIELD_REAL, PREPARE(read_bytes), AMOUNT_OR_NOT},
    {.name = NULL},
};

const struct hr__field hr__rank_fields[] = {
    {"rank", HR__FIELD_INT, RANK(rank), RANGE(0, HR__STALLS_MAX_RANKS - 1, HR__REQUIRED)},
    {"local_rank", HR__FIELD_INT, RANK(local_rank), RANGE(0, HR__STALLS_MAX_RANKS - 1, 0)},
    {"host", HR__FIELD_NAME, RANK(host)},
    {"first_batch_s", HR__FIELD_REAL, RANK(first_batch_s), SECONDS_OR_NOT},
    {"segments", LIST(hr__rank_record, segments, segment_count, HR__MAX_SEGMENTS, segment_fields),
     .check = check_segment},
    {"drains", LIST(hr__rank_record, drains, drain_count, HR__STALLS_MAX_POINTS, drain_fields)},
    {"preparation",
     LIST(hr__rank_record, prepares, prepare_count, HR__MAX_PREPARES, prepare_fields)},
    {.name = NULL},
};
