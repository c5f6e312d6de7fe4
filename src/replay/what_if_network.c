/*
 * What if the transport tolerated the loss of packets (DLCP, MLT)?
 *
 * Each collective is simulated on two networks (network.h): the one of the record, with a lossless
 * transport, and the one that is asked for. Its length changes by the ratio of the two times, which
 * are means over several draws. So what the model does not know, such as the work of a library,
 * stays in proportion, and equal networks change nothing. A size that the trace does not tell
 * follows from the length, and a rate that nobody gives from lengths and sizes.
 */
#include "replay/network.h"
#include "replay/scenario.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define DRAWS      20
#define DRAWS_MOST 10000

enum {
    ARG_P,
    ARG_LOSS,
    ARG_RECORDED,
    ARG_LINK,
    ARG_LATENCY,
    ARG_WORKERS,
    ARG_TOPOLOGY,
    ARG_PATHS,
    ARG_BALANCE,
    ARG_SMALL,
    ARG_PACKET,
    ARG_QUEUE,
    ARG_MARK,
    ARG_TIMEOUT,
    ARG_DRAWS,
    ARG_SEED,
    ARGS
};

/* A size that was simulated. */
struct network_size {
    double bytes, ratio;
};

struct network_change {
    struct hr_replay_scenario *scenario;
    struct hr__network before, after;
    uint32_t draws;
    double packets; /* simulated so far */
    struct network_size *sizes;
    size_t size_count;
};

/* ---- arguments ---- */

static int one_of(const char *key, const char *text, const char *first, const char *second,
                  struct hr_error *error)
{
    if (!strcmp(text, first))
        return 0;
    if (!strcmp(text, second))
        return 1;
    return hr__fail(error, -EINVAL, "loss-tolerance: %s is '%.60s': it must be %s or %s", key, text,
                    first, second);
}

static uint32_t to_count(double value)
{
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

/* Fills the two networks: ddp's, unless others are given. A rate and workers of 0 are not known
 * yet. */
static int fill(struct network_change *c, const char *words, struct hr_error *error)
{
    const struct hr__exchange *x = &c->scenario->exchange;
    struct hr__network n;
    hr__network_default(&n);
    struct hr__argument a[ARGS] = {
        [ARG_P] = {.key = "p", .kind = HR__ARGUMENT_REAL, .is_needed = 1},
        [ARG_LOSS] = {.key = "loss", .kind = HR__ARGUMENT_REAL},
        [ARG_RECORDED] = {.key = "recorded-loss", .kind = HR__ARGUMENT_REAL},
        [ARG_LINK] = {.key = "link", .kind = HR__ARGUMENT_SPEED, .value = x->link_bytes_per_s},
        [ARG_LATENCY] = {.key = "latency", .kind = HR__ARGUMENT_TIME, .value = x->latency_s},
        [ARG_WORKERS] = {.key = "workers", .kind = HR__ARGUMENT_COUNT, .value = x->ranks},
        [ARG_TOPOLOGY] = {.key = "topology", .kind = HR__ARGUMENT_TEXT, .text = "ring"},
        [ARG_PATHS] = {.key = "paths", .kind = HR__ARGUMENT_COUNT},
        [ARG_BALANCE] = {.key = "balance", .kind = HR__ARGUMENT_TEXT, .text = "hash"},
        [ARG_SMALL] = {.key = "small", .kind = HR__ARGUMENT_REAL},
        [ARG_PACKET] = {.key = "packet", .kind = HR__ARGUMENT_BYTES, .value = n.packet},
        [ARG_QUEUE] = {.key = "queue", .kind = HR__ARGUMENT_COUNT, .value = n.queue},
        [ARG_MARK] = {.key = "mark", .kind = HR__ARGUMENT_COUNT, .value = n.mark},
        [ARG_TIMEOUT] = {.key = "timeout", .kind = HR__ARGUMENT_TIME, .value = n.timeout_s},
        [ARG_DRAWS] = {.key = "draws", .kind = HR__ARGUMENT_COUNT, .value = DRAWS},
        [ARG_SEED] = {.key = "seed", .kind = HR__ARGUMENT_COUNT, .value = (double)n.seed}};
    int code = hr__arguments_take(a, ARGS, words, error);
    if (code)
        return code;
    if (a[ARG_DRAWS].value < 1 || a[ARG_DRAWS].value > DRAWS_MOST)
        return hr__fail(error, -EINVAL, "loss-tolerance: draws must be from 1 to %d", DRAWS_MOST);
    int topology = one_of("topology", a[ARG_TOPOLOGY].text, "ring", "ps", error);
    int is_sprayed =
        topology < 0 ? 0 : one_of("balance", a[ARG_BALANCE].text, "hash", "spray", error);
    if (topology < 0 || is_sprayed < 0)
        return -EINVAL;
    if (is_sprayed && !a[ARG_PATHS].value)
        return hr__fail(error, -EINVAL, "loss-tolerance: balance=spray needs paths=");
    n.topology = topology ? HR__NETWORK_SERVER : HR__NETWORK_RING;
    n.bytes_per_s = a[ARG_LINK].value;
    n.latency_s = a[ARG_LATENCY].value;
    n.workers = to_count(a[ARG_WORKERS].value);
    n.packet = to_count(a[ARG_PACKET].value);
    n.queue = to_count(a[ARG_QUEUE].value);
    n.mark = to_count(a[ARG_MARK].value);
    n.mark = !a[ARG_MARK].is_given && n.mark > n.queue ? n.queue : n.mark;
    n.paths = to_count(a[ARG_PATHS].value);
    n.timeout_s = a[ARG_TIMEOUT].value;
    n.seed = (uint64_t)a[ARG_SEED].value;
    n.loss = a[ARG_RECORDED].value;
    c->before = n;
    c->after = n;
    c->after.loss = a[ARG_LOSS].is_given ? a[ARG_LOSS].value : n.loss;
    c->after.tolerance = a[ARG_P].value;
    c->after.small = a[ARG_SMALL].value;
    c->after.is_sprayed = is_sprayed;
    c->draws = to_count(a[ARG_DRAWS].value);
    return 0;
}

/* ---- what the trace tells ---- */

static int is_communication(const struct hr__graph_task *task)
{
    return task->kind == HR__TASK_COLLECTIVE && task->length_ns > 0;
}

/* Returns the bytes of a collective; 0: unknown. */
static double bytes_of(const struct hr__graph *g, const struct hr__graph_task *task)
{
    int64_t bytes = task->event == HR__NO_EVENT ? 0 : hr__graph_event(g, task)->value;
    return bytes > 0 ? (double)bytes : 0;
}

/* Returns how many workers a collective has; 0: unknown. */
static uint32_t workers_of(const struct hr__graph *g, const struct hr__graph_task *task)
{
    int64_t workers = g->ranks[task->rank].trace->ranks;
    if (task->event == HR__NO_EVENT) /* of a what-if: not the trace's */
        return 0;
    if (hr__graph_event(g, task)->number > 0)
        workers = hr__graph_event(g, task)->number;
    return workers > 0 && workers < UINT32_MAX ? (uint32_t)workers : (uint32_t)g->rank_count;
}

/* Finds what the arguments leave open. */
static int complete(struct network_change *c, struct hr_error *error)
{
    const struct hr__graph *g = &c->scenario->graph;
    double seconds = 0, moved = 0, rate = c->before.bytes_per_s;
    uint32_t count = 0, workers = c->before.workers;
    for (size_t i = 0; i < g->task_count; i++) {
        if (!is_communication(&g->tasks[i]))
            continue;
        count++;
        workers = workers ? workers : workers_of(g, &g->tasks[i]);
    }
    if (!count)
        return hr__fail(error, -ENODATA,
                        "the trace has no communication (kernels of NCCL, collectives of gloo): "
                        "give one of a run on several ranks, or name ddp before loss-tolerance");
    if (workers < 2)
        return hr__fail(error, -EINVAL,
                        "loss-tolerance: the trace does not say how many workers communicate: "
                        "give workers=, at least 2");
    c->before.workers = c->after.workers = workers;
    c->before.bytes_per_s = 1;
    for (size_t i = 0; i < g->task_count && !(rate > 0); i++) {
        double bytes = bytes_of(g, &g->tasks[i]);
        if (!is_communication(&g->tasks[i]) || !(bytes > 0))
            continue;
        moved += hr__network_ideal_s(&c->before, bytes) - hr__network_ideal_s(&c->before, 0);
        seconds += (double)g->tasks[i].length_ns / 1e9 - hr__network_ideal_s(&c->before, 0);
    }
    if (!(rate > 0) && seconds > 0)
        rate = moved / seconds;
    if (!(rate > 0))
        return hr__fail(error, -EINVAL,
                        "loss-tolerance: the trace does not say how fast the network is (bytes of "
                        "collectives, and times longer than their latency): give link=");
    c->before.bytes_per_s = c->after.bytes_per_s = rate;
    return 0;
}

/* ---- simulation ---- */

static int is_random(const struct hr__network *n)
{
    return n->loss > 0 || n->small > 0 || n->paths;
}

/* Checks the work of simulating a collective before any of it is done. */
static int check(struct network_change *c, double bytes, struct hr_error *error)
{
    const struct hr__network *both[] = {&c->before, &c->after};
    for (int i = 0; i < 2; i++) {
        int code = hr__network_check(both[i], bytes, error);
        if (code)
            return code;
        c->packets += (is_random(both[i]) ? c->draws : 1) * hr__network_packets(both[i], bytes);
    }
    if (c->packets > c->scenario->packets_most)
        return hr__fail(error, -E2BIG,
                        "loss-tolerance would simulate more than %.3g packets: give larger ones "
                        "(packet=9000), fewer draws=, or fewer workers=",
                        c->scenario->packets_most);
    return 0;
}

/* Finds the mean time of a collective. */
static int mean(double *seconds, const struct network_change *c, const struct hr__network *network,
                double bytes, struct hr_error *error)
{
    struct hr__network n = *network;
    struct hr__network_result result;
    uint32_t draws = is_random(network) ? c->draws : 1;
    int code = 0;
    *seconds = 0;
    for (uint32_t i = 0; i < draws && !code; i++) {
        n.seed = network->seed + i;
        code = hr__network_all_reduce(&result, &n, bytes, error);
        *seconds += result.seconds / draws;
    }
    return code;
}

/* Finds the ratio of the times of a collective. */
static int find_ratio(double *ratio, struct network_change *c, double bytes, struct hr_error *error)
{
    double before, after;
    for (size_t i = 0; i < c->size_count; i++)
        if (c->sizes[i].bytes == bytes) {
            *ratio = c->sizes[i].ratio;
            return 0;
        }
    int code = check(c, bytes, error);
    if (!code)
        code = mean(&before, c, &c->before, bytes, error);
    if (!code)
        code = mean(&after, c, &c->after, bytes, error);
    if (!code && hr__reserve(HR__TAG_REPLAY, &c->sizes, c->size_count + 1))
        code = hr__fail(error, -ENOMEM, "out of memory for a what-if");
    if (code)
        return code;
    *ratio = before > 0 ? after / before : 1;
    c->sizes[c->size_count++] = (struct network_size){bytes, *ratio};
    return 0;
}

/* Finds the new length of a collective. Sizes that follow from lengths are rounded to a 16th of an
 * octave, so that few are simulated. */
static int change(struct network_change *c, struct hr__graph_task *task, struct hr_error *error)
{
    double seconds = (double)task->length_ns / 1e9, ratio;
    double bytes = bytes_of(&c->scenario->graph, task);
    if (!(bytes > 0)) {
        bytes = hr__network_ideal_bytes(&c->before, seconds);
        bytes = bytes > 1 ? floor(exp2(round(16 * log2(bytes)) / 16)) : 1;
    }
    int code = find_ratio(&ratio, c, bytes, error);
    if (!code)
        task->length_ns = (int64_t)fmin(seconds * ratio * 1e9 + 0.5, 4e18);
    return code;
}

int hr__apply_network(struct hr_replay_scenario *s, const char *words, double factor,
                      struct hr_error *error)
{
    struct network_change c = {.scenario = s};
    int code = fill(&c, words, error);
    if (!code)
        code = complete(&c, error);
    for (size_t i = 0; i < s->graph.task_count && !code; i++)
        if (is_communication(&s->graph.tasks[i]))
            code = change(&c, &s->graph.tasks[i], error);
    hr__free(c.sizes);
    s->is_on_network |= !code;
    return code;
}
