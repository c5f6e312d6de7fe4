/* Datasets and recipes, opened once for all jobs with equal statements, and the agent's unnamed
 * caches, which outlive their queues. See inside.h. */
#include "agent/server/inside.h"

#include "agent/statement.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/memory.h"
#include "cache/cache.h"
#include "cache/spec.h"
#include "dataset/dataset.h"
#include "loader/caching.h"

#include <headrace/cache.h>

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* Memory per list element of a text: jansson's value, its slot in the list, and our copy. */
#define ELEMENT_BYTES 64
#define TRIM_BYTES    (UINT64_C(16) << 20)

void hr__text_digest(uint64_t out[2], const char *text, size_t length)
{
    XXH128_hash_t hash = XXH3_128bits(text, length);
    out[0] = hash.low64;
    out[1] = hash.high64;
}

/* Estimates the memory needed to read a text and rows: each list element of the text is an
 * allocation of its own, and the rows are copied out of their block. */
static uint64_t reading_bytes(const struct hr__source *source)
{
    uint64_t elements = 0;
    for (size_t i = 0; i < source->length; i++)
        elements += source->text[i] == ',';
    return 2 * (source->length + source->rows_bytes) + ELEMENT_BYTES * elements;
}

/* Adds `bytes` to the memory in use for reading. Returns 0; -ENOMEM: there is not enough. */
static int reserve_reading(struct hr__source *source, uint64_t bytes)
{
    struct hr__memory_limits now;
    hr__memory_limits_read(&now, "", -1);
    uint64_t most = now.available < now.group_left ? now.available : now.group_left;
    uint64_t others = atomic_fetch_add(&source->agent->reading_bytes, bytes);
    if (others + bytes <= most)
        return 0;
    atomic_fetch_sub(&source->agent->reading_bytes, bytes);
    return hr__fail(&source->error, -ENOMEM,
                    "the agent would need %" PRIu64 " MiB of memory to read what this job says of "
                    "its dataset (%zu MiB of paths, labels or indices, %" PRIu64
                    " MiB of rows), and there are %" PRIu64
                    " MiB: name a folder, a list file or a pack in place of paths, labels and "
                    "indices",
                    bytes >> 20, source->length >> 20, source->rows_bytes >> 20, most >> 20);
}

/* Reads text and rows, and opens what they tell of. */
static int read_statement(struct hr__source *source)
{
    struct hr__statement_sent sent = {
        .text = source->text, .length = source->length, .rows_bytes = source->rows_bytes};
    char *rows = NULL;
    int r = source->rows_bytes
                ? hr__wire_text_read(source->rows_file, source->rows_bytes, &rows, &source->error)
                : 0;
    sent.rows = rows;
    if (!r)
        r = hr__statement_read(&sent, &source->dataset, &source->recipe, &source->error);
    hr__free(rows);
    return r;
}

static void open_run(struct hr__task *task)
{
    struct hr__source *source = HR__OF(struct hr__source, task, task);
    uint64_t bytes = reading_bytes(source);
    source->failed = reserve_reading(source, bytes);
    if (source->failed)
        return;
    source->failed = read_statement(source);
    atomic_fetch_sub(&source->agent->reading_bytes, bytes);
    /* Return the memory: the C library would keep so many small blocks for later. */
    if (bytes > TRIM_BYTES)
        malloc_trim(0);
    if (source->failed)
        return;
    hr_recipe_output(source->recipe, &source->spec);
    const char *root = hr_dataset_root(source->dataset);
    hr__printable(source->name, sizeof source->name, root ? root : "");
    if (source->dataset->produced)
        source->failed = hr__producers_create(
            &source->producers, source->dataset->produced->sample_bytes, &source->error);
}

static void open_done(struct hr__task *task)
{
    struct hr__source *source = HR__OF(struct hr__source, task, task);
    source->is_open = true;
    hr__free(source->text);
    source->text = NULL;
    if (source->rows_file >= 0)
        close(source->rows_file);
    source->rows_file = -1;
    /* Free it if all its jobs have gone meanwhile. */
    source->refs++;
    hr__source_unref(&source);
}

struct hr__source *hr__source_get(struct hr_agent *agent, struct hr__agent_job *job)
{
    struct hr__source *source = agent->sources;
    size_t length = strlen(job->text);
    /* Try one that has failed again: its files may be there now. */
    while (source && ((source->is_open && source->failed) || source->length != length ||
                      memcmp(source->digest, job->digest, sizeof source->digest)))
        source = source->next;
    if (source) {
        hr__free(job->text);
        job->text = NULL;
        source->refs++;
        return source;
    }
    source = hr__alloc(HR__TAG_AGENT, 1, sizeof *source);
    if (!source)
        return NULL;
    source->agent = agent;
    source->refs = 1;
    source->length = length;
    source->text = job->text;
    job->text = NULL;
    source->rows_file = job->rows_file;
    source->rows_bytes = job->attach.rows_bytes;
    job->rows_file = -1;
    memcpy(source->digest, job->digest, sizeof source->digest);
    source->next = agent->sources;
    agent->sources = source;
    source->task.run = open_run;
    source->task.done = open_done;
    hr__task_start(&agent->tasks, &source->task);
    return source;
}

void hr__source_unref(struct hr__source **out)
{
    struct hr__source *source = *out;
    *out = NULL;
    /* A source that is being opened is freed once that is done. */
    if (!source || --source->refs > 0 || !source->is_open)
        return;
    struct hr__source **link = &source->agent->sources;
    while (*link != source)
        link = &(*link)->next;
    *link = source->next;
    hr__producers_destroy(&source->producers);
    hr_dataset_unref(&source->dataset);
    hr_recipe_unref(&source->recipe);
    hr__free(source->text);
    hr__free(source);
}

const char *hr__stream_cache(const struct hr__stream *stream)
{
    if (stream->source->producers)
        return ""; /* what they made is not a file, whose change could be seen */
    return stream->agent->cache ? stream->agent->cache : stream->as.cache;
}

uint64_t hr__stream_cache_budget(const struct hr__stream *stream)
{
    const char *text = hr__stream_cache(stream);
    struct hr__cache_tiers tiers;
    return *text && !hr__cache_tiers_parse(&tiers, text, NULL) ? tiers.first.share_bytes : 0;
}

int hr__kept_open(struct hr__kept **out, const struct hr__stream *stream, struct hr_error *error)
{
    const char *text = hr__stream_cache(stream);
    struct hr__cache_tiers tiers;
    struct hr__cache_spec *spec = &tiers.first;
    *out = NULL;
    if (!*text)
        return 0;
    int r = hr__cache_tiers_parse(&tiers, text, error);
    if (r || spec->name[0])
        return r;
    if (spec->form == HR__FORM_UNSET)
        spec->form = stream->agent->cache ? HR_FORM_AUTO : stream->as.cache_form;
    hr__caching_set_variant(spec, stream->source->recipe, spec->form);
    struct hr__kept *kept = hr__alloc(HR__TAG_AGENT, 1, sizeof *kept);
    if (!kept)
        return hr__fail(error, -ENOMEM, "out of memory for a cache's description");
    memcpy(kept->digest, stream->source->digest, sizeof kept->digest);
    kept->digest[0] ^= spec->variant;
    char run[HR_CACHE_RUN];
    hr_cache_run(run, 1);
    r = hr__cache_create_shared(&kept->cache, stream->source->dataset, spec, run, error);
    if (r) {
        hr__free(kept);
        return r;
    }
    *out = kept;
    return 0;
}

void hr__kept_add(struct hr_agent *agent, struct hr__kept **out)
{
    struct hr__kept *kept = *out;
    *out = NULL;
    if (!kept)
        return;
    for (const struct hr__kept *k = agent->kept; k; k = k->next)
        if (!memcmp(k->digest, kept->digest, sizeof kept->digest)) {
            hr__kept_free(&kept);
            return;
        }
    kept->next = agent->kept;
    agent->kept = kept;
}

void hr__kept_free(struct hr__kept **out)
{
    while (*out) {
        struct hr__kept *kept = *out;
        *out = kept->next;
        hr__cache_destroy(&kept->cache);
        hr__free(kept);
    }
}
