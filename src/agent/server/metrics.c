/*
 * Converts the status to Prometheus text, with a table of metric families. Each family names a
 * key of the status and its scope: the agent, a queue, or a subscriber of a queue. All samples of
 * a family are written together, as the format requires.
 */
#include "agent/server/metrics.h"

#include "base/draft.h"
#include "metrics/text.h"

#include <errno.h>
#include <jansson.h>

enum scope { AGENT, QUEUE, SUBSCRIBER };

struct family {
    const char *name, *help;
    enum scope scope;
    const char *key; /* in the object of the scope: a number or a boolean */
};

/* Families whose names end in _total are counters, the others gauges. */
static const struct family families[] = {
    {"headrace_agent_uptime_seconds", "Since the agent was started.", AGENT, "uptime_s"},
    {"headrace_agent_threads", "Threads that prepare samples.", AGENT, "threads"},
    {"headrace_agent_cpu_seconds_total", "CPU time of the agent, user and system.", AGENT, "cpu_s"},
    {"headrace_agent_jobs", "Jobs that are connected.", AGENT, "jobs"},
    {"headrace_agent_expelled_total",
     "Times that a loader was more than the window behind and was left to prepare alone.", AGENT,
     "expelled"},
    {"headrace_agent_refused_total", "Connections and requests that were refused.", AGENT,
     "refused"},

    {"headrace_queue_epoch", "Epoch that the queue is in.", QUEUE, "epoch"},
    {"headrace_queue_position_samples", "Samples of the epoch's order that are behind, all ranks.",
     QUEUE, "position"},
    {"headrace_queue_epoch_samples", "Samples of an epoch's order, all ranks.", QUEUE,
     "epoch_samples"},
    {"headrace_queue_prepared_samples_total", "Samples that were prepared.", QUEUE, "prepared"},
    {"headrace_queue_alone", "1: the queue of a loader that is elsewhere than the others.", QUEUE,
     "alone"},
    {"headrace_queue_window_samples", "Samples that the queue of the queue holds at most.", QUEUE,
     "window_samples"},
    {"headrace_queue_ready_samples", "Samples that are ready ahead of the furthest subscriber.",
     QUEUE, "ready_samples"},
    {"headrace_queue_staged_bytes", "Encoded bytes that are fetched and not yet prepared.", QUEUE,
     "staged_bytes"},
    {"headrace_queue_read_bytes_total", "Bytes that were read from storage.", QUEUE, "bytes_read"},
    {"headrace_queue_fetch_seconds_total",
     "Time from asking for a sample to having its bytes, summed over samples.", QUEUE, "fetch_s"},
    {"headrace_queue_prepare_seconds_total",
     "Time that threads decoded and transformed, summed over samples.", QUEUE, "prepare_s"},
    {"headrace_queue_cache_hits_total", "Samples whose bytes came from the cache.", QUEUE,
     "cache_hits"},
    {"headrace_queue_cache_bytes", "Bytes of the cached items.", QUEUE, "cache_bytes"},
    {"headrace_queue_cache_budget_bytes", "Bytes that the cached items may take.", QUEUE,
     "cache_budget_bytes"},
    {"headrace_queue_bad_samples_total", "Samples that could not be read or decoded.", QUEUE,
     "bad_samples"},
    {"headrace_queue_scaled_samples_total",
     "Samples that were decoded at 1/2, 1/4 or 1/8 of their size (exact=False).", QUEUE,
     "scaled_samples"},
    {"headrace_queue_memory_bytes", "Shared memory of the queue.", QUEUE, "memory_bytes"},
    {"headrace_queue_leased_bytes",
     "Of it, what was left to subscribers that held batches for longer than the window.", QUEUE,
     "leased_bytes"},

    {"headrace_subscriber_batch_samples", "Samples that it takes at a time.", SUBSCRIBER,
     "batch_samples"},
    {"headrace_subscriber_batches_total", "Batches that it took.", SUBSCRIBER, "batches"},
    {"headrace_subscriber_samples_total", "Samples that it took.", SUBSCRIBER, "samples"},
    {"headrace_subscriber_wait_seconds_total", "Time that its training waited for a batch.",
     SUBSCRIBER, "wait_s"},
    {"headrace_subscriber_step_seconds_total",
     "Time that its training did something else than wait for a batch.", SUBSCRIBER, "step_s"},
    {"headrace_subscriber_behind_samples", "Samples that it is behind the furthest of its queue.",
     SUBSCRIBER, "behind_samples"},
    {"headrace_subscriber_held_batches", "Batches in its hands.", SUBSCRIBER, "held"},
    {"headrace_subscriber_waiting", "1: its training waits for a batch now.", SUBSCRIBER,
     "waiting"},
    {"headrace_subscriber_copied_batches_total",
     "Batches that had to be copied, for pinned memory or because they lay in pieces.", SUBSCRIBER,
     "copied"},
};

/* A family that carries texts in its labels; its value is 1. */
struct info {
    struct family family;
    const char *labels[5]; /* label and key, alternating; NULL at the end */
};

static const struct info infos[] = {
    {{"headrace_agent_info", "The agent: where it listens, and its cache.", AGENT, NULL},
     {"socket", "socket", "cache", "cache"}},
    {{"headrace_queue_info", "A rank of a stream: its dataset, and of how many ranks it is one.",
      QUEUE, NULL},
     {"dataset", "dataset", "world_size", "world_size"}},
    {{"headrace_subscriber_info", "A loader of a job: the program that it runs in.", SUBSCRIBER,
      NULL},
     {"program", "program"}},
};

/* The objects whose labels a sample gets. */
struct metrics_place {
    const json_t *stream, *queue, *subscriber; /* NULL: none */
    int loader;                                /* 0, 1, ... of a process's loaders on one queue */
};

/* Writes the labels of the scope. Returns the character to put before the next label. */
static char put_place(struct hr__draft *o, const struct metrics_place *at)
{
    if (!at->queue)
        return '{';
    hr__metrics_label(o, '{', "stream", json_object_get(at->stream, "name"));
    hr__metrics_label(o, ',', "queue", json_object_get(at->queue, "queue"));
    hr__metrics_label(o, ',', "rank", json_object_get(at->queue, "rank"));
    if (at->subscriber) {
        hr__metrics_label(o, ',', "pid", json_object_get(at->subscriber, "pid"));
        hr__draft_print(o, ",loader=\"%d\"", at->loader);
    }
    return ',';
}

/* Finds the value of a label in the object itself, else in the stream. */
static const json_t *find(const json_t *object, const struct metrics_place *at, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value ? value : json_object_get(at->stream, key);
}

static void put_sample(struct hr__draft *o, const struct family *f, const json_t *object,
                       const struct metrics_place *at)
{
    const json_t *value = json_object_get(object, f->key);
    if (!hr__metrics_is_value(value))
        return;
    hr__draft_put(o, f->name);
    hr__draft_put(o, put_place(o, at) == ',' ? "} " : " ");
    hr__metrics_value(o, value);
    hr__draft_put(o, "\n");
}

static void put_info(struct hr__draft *o, const struct family *f, const json_t *object,
                     const struct metrics_place *at)
{
    const struct info *info = (const struct info *)f; /* its first member */
    hr__draft_put(o, f->name);
    char before = put_place(o, at);
    for (int i = 0; info->labels[i]; i += 2, before = ',')
        hr__metrics_label(o, before, info->labels[i], find(object, at, info->labels[i + 1]));
    hr__draft_put(o, "} 1\n");
}

/* Returns how many earlier subscribers of the queue belong to the same process. */
static int loader_of(const json_t *subscribers, size_t i)
{
    const json_t *pid = json_object_get(json_array_get(subscribers, i), "pid");
    int count = 0;
    for (size_t k = 0; k < i; k++)
        count += json_equal(pid, json_object_get(json_array_get(subscribers, k), "pid"));
    return count;
}

typedef void (*put_fn)(struct hr__draft *o, const struct family *f, const json_t *object,
                       const struct metrics_place *at);

/* Calls `put` for each object of the family's scope. */
static void each(struct hr__draft *o, const struct family *f, const json_t *status, put_fn put)
{
    size_t s, l, i;
    json_t *stream, *queue, *subscriber;
    json_array_foreach(json_object_get(status, "streams"), s, stream)
    {
        json_array_foreach(json_object_get(stream, "queues"), l, queue)
        {
            struct metrics_place at = {.stream = stream, .queue = queue};
            const json_t *subscribers = json_object_get(queue, "subscribers");
            if (f->scope == QUEUE)
                put(o, f, queue, &at);
            json_array_foreach(f->scope == SUBSCRIBER ? subscribers : NULL, i, subscriber)
            {
                at.subscriber = subscriber;
                at.loader = loader_of(subscribers, i);
                put(o, f, subscriber, &at);
            }
        }
    }
}

static void put_family(struct hr__draft *o, const struct family *f, const json_t *status,
                       put_fn put)
{
    hr__metrics_family(o, f->name, f->help);
    if (f->scope == AGENT)
        put(o, f, status, &(struct metrics_place){.queue = NULL});
    else
        each(o, f, status, put);
}

static void put_labels(struct hr__draft *o, const void *at)
{
    put_place(o, at);
}

static void put_waits(struct hr__draft *o, const struct family *f, const json_t *queue,
                      const struct metrics_place *at)
{
    hr__metrics_waits(o, f->name, json_object_get(queue, f->key), put_labels, at);
}

int hr__metrics_text(char **text, const char *status, struct hr_error *error)
{
    static const struct family waits = {
        "headrace_queue_waits_for",
        "1 for what the queue waits for: room (its subscribers are slower), fetch (storage), "
        "prepare (threads), sampler (the subscriber's has given no more indices).",
        QUEUE, "waits_for"};
    struct hr__draft o = {.text = NULL};
    json_t *root = hr__metrics_status(status, "the agent's status", error);
    if (!root)
        return -EPROTO;
    for (size_t i = 0; i < sizeof infos / sizeof *infos; i++)
        put_family(&o, &infos[i].family, root, put_info);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        put_family(&o, &families[i], root, put_sample);
    put_family(&o, &waits, root, put_waits);
    json_decref(root);
    return hr__draft_finish(&o, text, error);
}
