/* Writes the status of an agent as JSON (docs/agent.md lists the keys). Runs in the loop, so only
 * counters change meanwhile. */
#include "agent/server/inside.h"

#include "agent/server/surroundings.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <headrace/cache.h>

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static double cpu_seconds(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* Describes a job that takes from a queue. */
static json_t *subscriber(const struct hr__agent_job *job, const struct hr__job_cursor *cursor)
{
    struct hr__place_cursor_status s;
    struct hr__places_status p;
    hr__places_cursor_status(cursor->queue->places, cursor->place, &s);
    hr__places_get_status(cursor->queue->places, &p);
    /* Samples that no job has taken yet do not count as behind. */
    uint64_t behind = s.behind_samples > p.ready_samples ? s.behind_samples - p.ready_samples : 0;
    return json_pack("{s:i, s:s, s:i, s:i, s:o, s:o, s:f, s:f, s:o, s:i, s:b, s:o}", "pid",
                     (int)job->pid, "program", job->program, "rank", (int)job->attach.rank,
                     "batch_samples", (int)job->attach.batch_size, "batches", integer(s.batches),
                     "samples", integer(s.samples), "wait_s", seconds(s.wait_ns), "step_s",
                     seconds(s.step_ns), "behind_samples", integer(behind), "held", (int)s.held,
                     "waiting", s.is_waiting, "copied", integer(s.copied));
}

static json_t *subscribers(const struct hr__queue *queue)
{
    json_t *list = json_array();
    for (const struct hr__agent_job *job = queue->stream->agent->jobs; list && job; job = job->next)
        if (job->cursor && job->cursor->queue == queue)
            json_array_append_new(list, subscriber(job, job->cursor));
    return list;
}

/* Returns whether all batches pushed by the job (external order) are ready. */
static bool has_all_pushed(const struct hr__queue *queue, const struct hr__places_status *p)
{
    uint64_t batch = queue->places->chunk_samples;
    return queue->stream->as.external_order &&
           (p->position_samples + batch - 1) / batch >= queue->pushed - queue->first;
}

/* Returns what limits a queue: room, because the jobs are slower; storage; or the workers. */
static json_t *waits_for(const struct hr__queue *queue, const struct hr__places_status *p,
                         const struct hr_loader_stats *stats)
{
    if (p->is_stopped || p->position_samples == p->span_samples)
        return json_null();
    if (has_all_pushed(queue, p))
        return json_string("sampler");
    if (p->wants_room || p->ready_samples * 2 >= queue->places->ring_samples)
        return json_string("room");
    bool is_slow = !stats->staged_bytes && stats->fetch.sum_ns > stats->prepare.sum_ns &&
                   !queue->stream->source->producers;
    return json_string(is_slow ? "fetch" : "prepare");
}

static json_t *queue_json(struct hr__queue *queue)
{
    const struct hr__stream *stream = queue->stream;
    struct hr_loader_stats s = {.size = sizeof s};
    struct hr__places_status p;
    hr_loader_get_stats(queue->loader, &s);
    hr__places_get_status(queue->places, &p);
    uint64_t ranks = (uint64_t)stream->as.world_size;
    uint64_t samples = hr_dataset_count(stream->source->dataset);
    uint64_t position = p.span_position + p.position_samples * ranks;
    bool is_own = stream->as.external_order;
    if (is_own)
        position = p.span_position + queue->pushed_samples;
    else if (position > samples)
        position = samples;
    json_t *json = json_pack("{s:o, s:i, s:i, s:o, s:o, s:o, s:o, s:b, s:b}", "queue",
                             integer(queue->number), "rank", queue->rank, "world_size", (int)ranks,
                             "epoch", integer(p.epoch), "position", integer(position),
                             "epoch_samples", is_own ? json_null() : integer(samples), "prepared",
                             integer(s.samples), "alone", !queue->is_main, "sampler", is_own);
    json_t *more = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "chunk_samples", integer(queue->places->chunk_samples), "window_samples",
        integer(queue->places->ring_samples), "ready_samples", integer(p.ready_samples),
        "staged_bytes", integer(s.staged_bytes), "bytes_read", integer(s.bytes_read), "fetch_s",
        seconds(s.fetch.sum_ns), "prepare_s", seconds(s.prepare.sum_ns), "cache_hits",
        integer(s.cache_hits), "cache_bytes", integer(s.cache_bytes), "cache_budget_bytes",
        integer(hr__stream_cache_budget(stream)), "bad_samples", integer(s.bad_samples),
        "scaled_samples", integer(s.scaled_samples), "waits_for", waits_for(queue, &p, &s),
        "memory_bytes", integer(p.memory_bytes), "leased_bytes", integer(p.leased_bytes));
    if (json && more)
        json_object_update(json, more);
    json_decref(more);
    if (json)
        json_object_set_new(json, "subscribers", subscribers(queue));
    return json;
}

static json_t *stream_json(const struct hr__stream *stream)
{
    json_t *queues = json_array();
    for (struct hr__queue *queue = stream->queues; queues && queue; queue = queue->next)
        if ((queue->state == HR__QUEUE_READY || queue->state == HR__QUEUE_STARTING) &&
            queue->loader)
            json_array_insert_new(queues, 0, queue_json(queue));
    const struct hr__source *source = stream->source;
    json_t *producers =
        source->producers ? json_integer(hr__producers_count(source->producers)) : json_null();
    return json_pack("{s:s?, s:s, s:o, s:o, s:o}", "name",
                     stream->has_name ? stream->as.stream : NULL, "dataset", source->name,
                     "samples", integer(hr_dataset_count(source->dataset)), "producers", producers,
                     "queues", queues);
}

static json_t *surroundings(void)
{
    struct hr__surroundings s;
    hr__surroundings_read(&s, 0);
    bool is_limited = s.memory_limit != UINT64_MAX;
    return json_pack("{s:i, s:i, s:i, s:o, s:s?}", "nice", s.nice, "cores", s.cores,
                     "seccomp_filters", s.filters, "memory_limit_bytes",
                     is_limited ? integer(s.memory_limit) : json_null(), "memory_limit_file",
                     is_limited ? s.memory_file : NULL);
}

/* Returns what an idle job waits for; NULL: it does not wait. */
static const char *awaited_by(const struct hr__agent_job *job)
{
    if (job->state == HR__JOB_OPENING)
        return "dataset";
    if (!job->is_seeking)
        return NULL;
    return job->was_notified ? "epoch" : "start";
}

/* Lists the jobs without a queue: their dataset is being opened, or they have asked for a place. */
static json_t *waiting_jobs(const struct hr_agent *agent)
{
    json_t *list = json_array();
    uint64_t now = hr__now_ns();
    for (const struct hr__agent_job *job = agent->jobs; list && job; job = job->next) {
        const char *what = awaited_by(job);
        if (!what || job->is_producer)
            continue;
        const char *stream = job->attach.stream[0] ? job->attach.stream : NULL;
        json_array_insert_new(list, 0,
                              json_pack("{s:i, s:s, s:i, s:s?, s:s, s:f}", "pid", (int)job->pid,
                                        "program", job->program, "rank", (int)job->attach.rank,
                                        "stream", stream, "waits_for", what, "wait_s",
                                        seconds(now - job->asked_ns)));
    }
    return list;
}

int hr__status_write(struct hr_agent *agent, char **out, struct hr_error *error)
{
    json_t *streams = json_array();
    int jobs = 0;
    for (const struct hr__agent_job *job = agent->jobs; job; job = job->next)
        jobs += !job->is_viewer && !job->is_producer;
    for (const struct hr__stream *s = agent->streams; streams && s; s = s->next)
        json_array_insert_new(streams, 0, stream_json(s));
    json_t *json = json_pack(
        "{s:i, s:i, s:s, s:f, s:i, s:f, s:i, s:s?, s:i, s:o, s:o, s:o, s:o, s:o}", "version", 1,
        "pid", (int)getpid(), "socket", agent->socket_path, "uptime_s",
        seconds(hr__now_ns() - agent->started_ns), "threads", agent->threads, "cpu_s",
        cpu_seconds(), "idle_ms", agent->options.idle_ms, "cache", agent->cache, "jobs", jobs,
        "streams", streams, "waiting", waiting_jobs(agent), "runs_under", surroundings(),
        "expelled", integer(agent->expelled), "refused", integer(agent->refused));
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    *out = text ? hr__strdup(HR__TAG_AGENT, text) : NULL;
    free(text);
    json_decref(json);
    return *out ? 0 : hr__fail(error, -ENOMEM, "out of memory for a status");
}
