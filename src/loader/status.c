/* Publishes a loader's status; see status.h. docs/metrics.md lists the keys. */
#include "loader/status.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "loader/inside.h"
#include "metrics/meter.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL_NS UINT64_C(500000000)

/* ---- the text ---- */

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* An agent prepares the batches: only then is the text kept. */
static int is_remote(const struct hr_loader *l)
{
    return l->options.agent != NULL;
}

static int rank_of(const struct hr_loader *l)
{
    return l->options.metrics_rank >= 0 ? l->options.metrics_rank : l->options.rank;
}

/* Returns whether all pushed batches (external order) are ready. */
static int has_all_pushed(struct hr_loader *l)
{
    pthread_mutex_lock(&l->lock);
    int has = !l->pushed && !l->push_ended && (uint64_t)l->window_count == l->complete;
    pthread_mutex_unlock(&l->lock);
    return l->options.external_order && has;
}

/* Returns what limits the loader: room, because training is slower; storage; or the workers. */
static json_t *waits_for(struct hr_loader *l, const struct hr_loader_stats *s)
{
    const struct hr__publication *p = &l->publication;
    if (!p->is_running || is_remote(l))
        return json_null();
    if (s->ready_batches * 2 >= (uint64_t)l->options.batches_ahead)
        return json_string("room");
    if (has_all_pushed(l))
        return json_string("sampler");
    uint64_t fetch_ns = s->fetch.sum_ns - p->fetch_ns;
    uint64_t prepare_ns = s->prepare.sum_ns - p->prepare_ns;
    return json_string(!s->staged_bytes && fetch_ns > prepare_ns ? "fetch" : "prepare");
}

static json_t *who(const struct hr_loader *l, uint64_t now_ns)
{
    char program[128], dataset[256];
    const char *root = hr_dataset_root(l->dataset);
    hr__program_text(program, sizeof program);
    hr__printable(dataset, sizeof dataset, root ? root : "");
    return json_pack(
        "{s:i, s:i, s:s, s:i, s:i, s:s, s:o, s:s, s:i, s:i, s:i, s:f, s:f, s:f}", "version", 1,
        "pid", (int)getpid(), "program", program, "loader", hr_meter_number(l->publication.meter),
        "rank", rank_of(l), "dataset", dataset, "samples", integer(hr_dataset_count(l->dataset)),
        "prepared_by", is_remote(l) ? "agent" : "threads", "threads",
        is_remote(l) ? 0 : l->workers_wanted, "batch_samples", l->options.batch_size,
        "ahead_batches", l->options.batches_ahead, "begun_s", seconds(l->publication.begun_ns),
        "uptime_s", seconds(now_ns - l->publication.begun_ns), "published_s", seconds(now_ns));
}

static json_t *place(const struct hr_loader *l, const struct hr_loader_stats *s, uint64_t now_ns)
{
    const struct hr__publication *p = &l->publication;
    struct hr_loader_state at = {0};
    uint64_t samples = hr_dataset_count(l->dataset);
    int is_own = l->options.external_order;
    /* It fails if the agent is gone; the place is then unknown. */
    int has_place = !l->attachment->get_state(l, &at, NULL);
    uint64_t position = is_own || at.position < samples ? at.position : samples;
    uint64_t wait_ns = s->wait_ns + (p->wait_since_ns ? now_ns - p->wait_since_ns : 0);
    return json_pack("{s:b, s:b, s:o, s:o, s:o, s:f, s:f}", "running", p->is_running, "waiting",
                     p->wait_since_ns != 0 || p->is_interrupted, "epoch",
                     has_place ? integer(at.epoch) : json_null(), "position",
                     has_place ? integer(position) : json_null(), "epoch_samples",
                     is_own ? json_null() : integer(samples), "wait_s", seconds(wait_ns), "step_s",
                     seconds(s->step_ns));
}

static json_t *counted(const struct hr_loader_stats *s)
{
    const struct {
        const char *key;
        uint64_t value;
    } all[] = {
        {"batches", s->batches},
        {"prepared", s->samples},
        {"padded_samples", s->padded_samples},
        {"bad_samples", s->bad_samples},
        {"damaged_samples", s->damaged_samples},
        {"scaled_samples", s->scaled_samples},
        {"bytes_read", s->bytes_read},
        {"cache_hits", s->cache_hits},
        {"own_hits", s->own_hits},
        {"own_bytes", s->own_bytes},
        {"peer_hits", s->peer_hits},
        {"peer_bytes", s->peer_bytes},
        {"stored_bytes", s->stored_bytes},
        {"disk_hits", s->disk_hits},
        {"disk_bytes", s->disk_bytes},
        {"cache_bytes", s->cache_bytes},
        {"staged_bytes", s->staged_bytes},
        {"memory_bytes", s->slots * s->slot_bytes},
        {"ready_batches", s->ready_batches},
        {"object_requests", s->object_requests},
        {"object_bytes", s->object_bytes},
        {"reattached", s->reattached},
    };
    json_t *json = json_pack("{s:f, s:f, s:f}", "fetch_s", seconds(s->fetch.sum_ns), "prepare_s",
                             seconds(s->prepare.sum_ns), "object_cost_usd", s->object_cost_usd);
    for (size_t i = 0; json && i < sizeof all / sizeof *all; i++)
        json_object_set_new(json, all[i].key, integer(all[i].value));
    return json;
}

/* Returns the status, which the caller frees; NULL: out of memory. */
static char *status_text(struct hr_loader *l, const struct hr_loader_stats *s, uint64_t now_ns)
{
    json_t *json = who(l, now_ns), *at = place(l, s, now_ns), *counts = counted(s);
    char *text = NULL;
    if (json && at && counts && !json_object_update(json, at) &&
        !json_object_update(json, counts) &&
        !json_object_set_new(json, "waits_for", waits_for(l, s)))
        text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(12));
    json_decref(json);
    json_decref(at);
    json_decref(counts);
    return text;
}

/* ---- when ---- */

static void publish(struct hr_loader *l, uint64_t now_ns)
{
    struct hr_loader_stats s = {.size = sizeof s};
    hr_loader_get_stats(l, &s);
    char *text = status_text(l, &s, now_ns);
    if (text)
        hr_meter_publish(l->publication.meter, text);
    free(text);
    l->publication.fetch_ns = s.fetch.sum_ns;
    l->publication.prepare_ns = s.prepare.sum_ns;
    l->publication.due_ns = now_ns + INTERVAL_NS;
}

int hr__status_begin(struct hr_loader *l, struct hr_error *error)
{
    if (l->publication.meter)
        return 0;
    l->publication.begun_ns = hr__now_ns();
    return hr_meter_begin(&l->publication.meter, l->metrics, rank_of(l),
                          l->options.local_world_size, error);
}

void hr__status_start(struct hr_loader *l)
{
    l->publication.is_running = 1;
    l->publication.is_interrupted = 0;
    l->publication.left_ns = 0;
    publish(l, hr__now_ns());
}

void hr__status_enter(struct hr_loader *l, uint64_t now_ns)
{
    l->publication.wait_since_ns = now_ns;
    if (l->publication.left_ns)
        hr__count(&hr__counters_here(l)->step_ns, now_ns - l->publication.left_ns);
}

void hr__status_leave(struct hr_loader *l, uint64_t now_ns, int result)
{
    struct hr__publication *p = &l->publication;
    int was_running = p->is_running;
    p->wait_since_ns = 0;
    p->is_interrupted = result == -EINTR;
    p->is_running = was_running && (result > 0 || result == -EINTR || result == -EAGAIN);
    p->left_ns = p->is_running ? now_ns : 0;
    if (p->meter && (now_ns >= p->due_ns || was_running != p->is_running))
        publish(l, now_ns);
}

uint64_t hr__status_tick(struct hr_loader *l)
{
    uint64_t now_ns = hr__now_ns();
    if (l->publication.meter && now_ns >= l->publication.due_ns)
        publish(l, now_ns);
    return l->publication.meter ? l->publication.due_ns : now_ns + INTERVAL_NS;
}
