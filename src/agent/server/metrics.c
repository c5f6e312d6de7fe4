/*
 * Converts the status to Prometheus text, with a table of metric families. Each family names a
 * key of the status and its scope: the agent, a queue, or a subscriber of a queue. All samples of
 * a family are written together, as the format requires. Also parses the endpoint's address and
 * answers its requests.
 */
#include "agent/server/metrics.h"

#include "agent/server/http.h"
#include "base/draft.h"
#include "base/error.h"
#include "base/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the text ---- */

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

/* Writes a number of any size with at most nine decimals, without trailing zeros; "0" for NaN and
 * numbers beyond 9e18. */
static void put_number(struct hr__draft *o, double value)
{
    double whole, part = modf(fabs(value), &whole);
    int decimals = 9;
    if (!(whole < 9e18)) { /* NaN too */
        hr__draft_put(o, "0");
        return;
    }
    /* The whole part separately, so that nine decimals of a large number do not overflow. */
    uint64_t number = (uint64_t)whole, rest = (uint64_t)llround(part * 1e9);
    number += rest / 1000000000;
    rest %= 1000000000;
    for (; rest && rest % 10 == 0; decimals--)
        rest /= 10;
    hr__draft_print(o, "%s%" PRIu64, value < 0 && (number || rest) ? "-" : "", number);
    if (rest)
        hr__draft_print(o, ".%0*" PRIu64, decimals, rest);
}

static void put_label(struct hr__draft *o, char before, const char *name, const json_t *value)
{
    hr__draft_print(o, "%c%s=\"", before, name);
    if (json_is_integer(value))
        hr__draft_print(o, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    for (const char *p = json_is_string(value) ? json_string_value(value) : ""; *p; p++)
        if (*p == '\n')
            hr__draft_put(o, "\\n");
        else
            hr__draft_print(o, "%s%c", *p == '"' || *p == '\\' ? "\\" : "", *p);
    hr__draft_put(o, "\"");
}

/* Writes the labels of the scope. Returns the character to put before the next label. */
static char put_place(struct hr__draft *o, const struct metrics_place *at)
{
    if (!at->queue)
        return '{';
    put_label(o, '{', "stream", json_object_get(at->stream, "name"));
    put_label(o, ',', "queue", json_object_get(at->queue, "queue"));
    put_label(o, ',', "rank", json_object_get(at->queue, "rank"));
    if (at->subscriber) {
        put_label(o, ',', "pid", json_object_get(at->subscriber, "pid"));
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
    if (!json_is_number(value) && !json_is_boolean(value))
        return;
    hr__draft_put(o, f->name);
    hr__draft_put(o, put_place(o, at) == ',' ? "} " : " ");
    if (json_is_real(value))
        put_number(o, json_real_value(value));
    else if (json_is_integer(value))
        hr__draft_print(o, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        hr__draft_put(o, json_is_true(value) ? "1" : "0");
    hr__draft_put(o, "\n");
}

static void put_info(struct hr__draft *o, const struct family *f, const json_t *object,
                     const struct metrics_place *at)
{
    const struct info *info = (const struct info *)f; /* its first member */
    hr__draft_put(o, f->name);
    char before = put_place(o, at);
    for (int i = 0; info->labels[i]; i += 2, before = ',')
        put_label(o, before, info->labels[i], find(object, at, info->labels[i + 1]));
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
    size_t length = strlen(f->name);
    const char *type = length > 6 && !strcmp(f->name + length - 6, "_total") ? "counter" : "gauge";
    hr__draft_print(o, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name, type);
    if (f->scope == AGENT)
        put(o, f, status, &(struct metrics_place){.queue = NULL});
    else
        each(o, f, status, put);
}

/* Writes what a queue waits for: one sample for each possible answer. */
static void put_waits(struct hr__draft *o, const struct family *f, const json_t *queue,
                      const struct metrics_place *at)
{
    static const char *const reasons[] = {"room", "fetch", "prepare", "sampler"};
    const json_t *now = json_object_get(queue, f->key);
    for (size_t i = 0; now && i < sizeof reasons / sizeof *reasons; i++) {
        hr__draft_put(o, f->name);
        put_place(o, at);
        hr__draft_print(o, ",reason=\"%s\"} %d\n", reasons[i],
                        json_is_string(now) && !strcmp(json_string_value(now), reasons[i]));
    }
}

int hr__metrics_text(char **text, const char *status, struct hr_error *error)
{
    static const struct family waits = {
        "headrace_queue_waits_for",
        "1 for what the queue waits for: room (its subscribers are slower), fetch (storage), "
        "prepare (threads), sampler (the subscriber's has given no more indices).",
        QUEUE, "waits_for"};
    struct hr__draft o = {.text = NULL};
    json_error_t where;
    json_t *root = json_loads(status, 0, &where);
    if (!json_is_object(root)) {
        const char *problem = root ? "another value" : where.text;
        json_decref(root);
        return hr__fail(error, -EPROTO, "the agent's status is no JSON object: line %d: %s",
                        where.line, problem);
    }
    for (size_t i = 0; i < sizeof infos / sizeof *infos; i++)
        put_family(&o, &infos[i].family, root, put_info);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        put_family(&o, &families[i], root, put_sample);
    put_family(&o, &waits, root, put_waits);
    json_decref(root);
    return hr__draft_finish(&o, text, error);
}

/* ---- the endpoint ---- */

struct hr__metrics {
    void *server; /* of hr__http */
    hr__metrics_status_fn status;
    void *arg;
};

static void answer(void *arg, const char *path, struct hr__http_reply *reply)
{
    struct hr__metrics *m = arg;
    struct hr_error error = {0};
    char *json = NULL;
    if (strcmp(path, "/metrics") != 0) {
        reply->status = 404;
        reply->body = hr__strdup(HR__TAG_AGENT, "the figures are at /metrics\n");
        return;
    }
    int r = m->status(m->arg, &json, &error);
    if (!r)
        r = hr__metrics_text(&reply->body, json, &error);
    hr__free(json);
    if (r) {
        reply->status = 503;
        reply->body = hr__strdup(HR__TAG_AGENT, error.message);
    } else {
        reply->type = "text/plain; version=0.0.4; charset=utf-8";
    }
}

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static int not_an_address(const char *address, struct hr_error *error)
{
    return hr__fail(error, -EINVAL,
                    "metrics \"%s\": it must be ADDRESS:PORT in numbers, e.g. 127.0.0.1:9400 "
                    "(this machine only) or 0.0.0.0:9400 (everybody)",
                    address);
}

/* Splits the address at the last colon and parses both parts. Does not look up names. */
static int parse_address(union address *out, const char *address, struct hr_error *error)
{
    char host[64] = "127.0.0.1";
    const char *colon = strrchr(address, ':'), *digits = colon ? colon + 1 : address;
    char *end;
    long port = strtol(digits, &end, 10);
    if (*digits < '0' || *digits > '9' || *end || port > 65535)
        return not_an_address(address, error);
    size_t length = colon ? (size_t)(colon - address) : 0;
    if (length >= sizeof host)
        return not_an_address(address, error);
    if (length) {
        memcpy(host, address, length);
        host[length] = 0;
    }
    if (!strcmp(host, "localhost"))
        strcpy(host, "127.0.0.1");
    memset(out, 0, sizeof *out);
    if (host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = 0;
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons((uint16_t)port);
        if (inet_pton(AF_INET6, host + 1, &out->v6.sin6_addr) == 1)
            return 0;
    }
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, host, &out->v4.sin_addr) == 1 ? 0 : not_an_address(address, error);
}

static int listen_at(int *out, const char *address, struct hr_error *error)
{
    union address at;
    int on = 1, r = parse_address(&at, address, error);
    if (r)
        return r;
    socklen_t length = at.any.sa_family == AF_INET6 ? sizeof at.v6 : sizeof at.v4;
    int fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* SO_REUSEADDR: old connections may linger after a restart. A second listener still fails. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(fd, &at.any, length) || listen(fd, 16)) {
        int code = -errno;
        if (fd >= 0)
            close(fd);
        return hr__fail(error, code, "metrics \"%s\": %s%s", address, hr__errno_text(code),
                        code == -EADDRINUSE ? "; give the agent another port" : "");
    }
    *out = fd;
    return 0;
}

int hr__metrics_start(struct hr__metrics **out, const char *address, hr__metrics_status_fn status,
                      void *arg, struct hr_error *error)
{
    int listener = -1;
    struct hr__metrics *m = hr__alloc(HR__TAG_AGENT, 1, sizeof *m);
    if (!m)
        return hr__fail(error, -ENOMEM, "out of memory for the metrics endpoint");
    m->status = status;
    m->arg = arg;
    int r = listen_at(&listener, address, error);
    if (!r)
        r = hr__http.start(&m->server, listener, answer, m, error);
    if (r)
        goto fail;
    *out = m;
    return 0;
fail:
    if (listener >= 0)
        close(listener);
    hr__free(m);
    return r;
}

void hr__metrics_stop(struct hr__metrics **metrics)
{
    if (!*metrics)
        return;
    hr__http.stop((*metrics)->server);
    hr__free(*metrics);
    *metrics = NULL;
}
