/*
 * Costs of stages, and the division of a network into stages; see pipeline_plan.h.
 *
 * The division minimises the time of the slowest stage by dynamic programming over (stage, end):
 * best[s][j] is the least maximum for layers before j in stages 0..s. A stage that does not fit
 * into its GPU's memory is left out.
 */
#include "replay/pipeline_plan.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* ---- sums ---- */

void hr__sums_clear(struct hr__sums *sums)
{
    hr__free(sums->forward_s);
    *sums = (struct hr__sums){.layers = 0};
}

int hr__sums_make(struct hr__sums *out, const struct hr__profile *profile, int size,
                  struct hr_error *error)
{
    size_t length = (size_t)profile->layer_count + 1;
    double *all = hr__alloc(HR__TAG_REPLAY, 6 * length, sizeof *all);
    if (!all)
        return hr__fail(error, -ENOMEM, "out of memory for a profile of %d layers",
                        profile->layer_count);
    *out = (struct hr__sums){profile->layer_count, all,
                             all + length,         all + 2 * length,
                             all + 3 * length,     all + 4 * length,
                             all + 5 * length};
    out->cut_bytes[0] = profile->input_bytes[size];
    for (int i = 0; i < profile->layer_count; i++) {
        const struct hr__profile_layer *layer = &profile->entries[profile->layers[i]];
        out->forward_s[i + 1] = out->forward_s[i] + layer->forward_s[size];
        out->backward_s[i + 1] = out->backward_s[i] + layer->backward_s[size];
        out->update_s[i + 1] = out->update_s[i] + layer->update_s;
        out->weight_bytes[i + 1] = out->weight_bytes[i] + layer->weight_bytes;
        out->held_bytes[i + 1] = out->held_bytes[i] + layer->held_bytes[size];
        out->cut_bytes[i + 1] = layer->output_bytes[size];
    }
    return 0;
}

/* ---- costs ---- */

static double transfer_s(double bytes, double bytes_per_s)
{
    return bytes_per_s > 0 ? bytes / bytes_per_s : 0;
}

/* Returns the bandwidth of a group of `gpus` neighbours. */
static double bandwidth(const struct hr_plan_options *o, int gpus)
{
    bool in_one = !o->gpus_per_server || gpus <= o->gpus_per_server;
    return in_one || !(o->network_bytes_per_s > 0) ? o->link_bytes_per_s : o->network_bytes_per_s;
}

struct hr__stage_cost hr__stage_cost(const struct hr_plan_options *o, const struct hr__sums *sums,
                                     const struct hr__choice *c, int first, int end)
{
    double depth = bandwidth(o, c->devices * c->replicas), width = bandwidth(o, c->replicas);
    double forward = sums->forward_s[end] - sums->forward_s[first];
    double held = sums->held_bytes[end] - sums->held_bytes[first];
    double weights = sums->weight_bytes[end] - sums->weight_bytes[first];
    bool sends = c->devices > 1;
    return (struct hr__stage_cost){
        .first = first,
        .count = end - first,
        .compute_forward_s = forward,
        .compute_backward_s =
            sums->backward_s[end] - sums->backward_s[first] + (c->recompute ? forward : 0),
        .send_forward_s = sends && end < sums->layers ? transfer_s(sums->cut_bytes[end], depth) : 0,
        .send_backward_s = sends && first ? transfer_s(sums->cut_bytes[first], depth) : 0,
        .update_s = sums->update_s[end] - sums->update_s[first],
        /* A ring sends each part of the gradients 2 (w - 1) times, in w parts. */
        .reduce_s =
            transfer_s(2.0 * (c->replicas - 1) / c->replicas * weights * o->gradient_ratio, width),
        .weight_bytes = weights,
        .held_bytes = c->recompute ? sums->cut_bytes[first] : held,
        .working_bytes = c->recompute ? held : 0,
    };
}

/* The time per microbatch of a stage that never waits. */
static double pace_s(const struct hr__choice *c, const struct hr__stage_cost *s)
{
    double passes = s->compute_forward_s + s->compute_backward_s + s->send_forward_s +
                    s->send_backward_s + s->update_s / c->microbatches;
    double reduce = s->reduce_s / c->microbatches;
    if (c->schedule == HR_PLAN_2BW)
        return passes > reduce ? passes : reduce;
    return passes + reduce;
}

struct hr__device_bytes hr__device_bytes(const struct hr_plan_options *o,
                                         const struct hr__choice *c, const struct hr__stage_cost *s,
                                         int microbatches)
{
    return (struct hr__device_bytes){
        .weights = s->weight_bytes * (c->schedule == HR_PLAN_2BW ? 2 : 1),
        .gradients = s->weight_bytes * o->gradient_ratio,
        .state = s->weight_bytes * o->state_ratio,
        .activations = s->held_bytes * microbatches + s->working_bytes,
        .microbatches = microbatches,
    };
}

double hr__device_total(const struct hr__device_bytes *bytes)
{
    return bytes->weights + bytes->gradients + bytes->state + bytes->activations;
}

int hr__in_flight(const struct hr__choice *c, int device)
{
    int ahead = c->devices - device;
    return c->schedule == HR_PLAN_GPIPE || ahead > c->microbatches ? c->microbatches : ahead;
}

/* ---- the division ---- */

struct division {
    struct hr__choice *choice;
    const struct hr_plan_options *options;
    const struct hr__sums *sums;
    int stages;
    double memory; /* INFINITY: no limit */
    double *best;  /* [stage][end] */
    int *from;     /* first layer of that stage */
};

/* Tries layers first..end - 1 as the last of `stage` + 1 stages. */
static void try_stage(struct division *s, int stage, int first, int end)
{
    size_t row = (size_t)(s->sums->layers + 1), at = (size_t)stage * row + (size_t)end;
    double before = stage ? s->best[(size_t)(stage - 1) * row + (size_t)first] : 0;
    struct hr__choice *c = s->choice;
    if (before >= s->best[at])
        return;
    struct hr__stage_cost cost = hr__stage_cost(s->options, s->sums, c, first, end);
    double pace = pace_s(c, &cost);
    /* Chunks share a device; their memory is known after a run. */
    if (c->chunks == 1 && isfinite(s->memory)) {
        struct hr__device_bytes bytes =
            hr__device_bytes(s->options, c, &cost, hr__in_flight(c, stage));
        if (hr__device_total(&bytes) > s->memory)
            return;
    }
    pace = before > pace ? before : pace;
    if (pace < s->best[at]) {
        s->best[at] = pace;
        s->from[at] = first;
    }
}

/* Finds best[stage][end]. Begins where the stage of one layer less began, which is often best or
 * nearly so, and spares most others. Ever longer last stages only compute longer, so it stops when
 * their computing alone is slower than the best. */
static void try_ends(struct division *s, int stage, int end)
{
    size_t at = (size_t)stage * (size_t)(s->sums->layers + 1) + (size_t)end;
    const struct hr__sums *sums = s->sums;
    double all = sums->forward_s[end] + sums->backward_s[end];
    s->best[at] = INFINITY;
    if (!stage) {
        try_stage(s, stage, 0, end);
        return;
    }
    if (end - 1 > stage && isfinite(s->best[at - 1]))
        try_stage(s, stage, s->from[at - 1], end);
    for (int first = end - 1; first >= stage; first--) {
        if (all - sums->forward_s[first] - sums->backward_s[first] >= s->best[at])
            break;
        try_stage(s, stage, first, end);
    }
}

/* Returns whether a division exists. */
static bool divide(struct division *s, double memory)
{
    int layers = s->sums->layers, row = layers + 1, last = s->stages - 1;
    s->memory = memory;
    for (int stage = 0; stage < s->stages; stage++)
        for (int end = 0; end <= layers; end++)
            if (end > stage)
                try_ends(s, stage, end);
            else
                s->best[stage * row + end] = INFINITY;
    s->choice->pace_s = s->best[last * row + layers];
    if (!isfinite(s->choice->pace_s))
        return false;
    s->choice->cuts[s->stages] = layers;
    for (int stage = last, end = layers; stage >= 0; stage--)
        end = s->choice->cuts[stage] = s->from[stage * row + end];
    return true;
}

/* Returns the pace of the slowest device: that of its stages together. */
static double slowest_s(const struct division *s)
{
    const struct hr__choice *c = s->choice;
    double slowest = 0;
    for (int i = 0; i < c->devices; i++) {
        double sum = 0;
        for (int k = i; k < s->stages; k += c->devices) {
            struct hr__stage_cost cost =
                hr__stage_cost(s->options, s->sums, c, c->cuts[k], c->cuts[k + 1]);
            sum += pace_s(c, &cost);
        }
        slowest = sum > slowest ? sum : slowest;
    }
    return slowest;
}

int hr__partition(struct hr__choice *choice, const struct hr_plan_options *options,
                  const struct hr__sums *sums, struct hr_error *error)
{
    struct division s = {choice,   options, sums, choice->devices * choice->chunks,
                         INFINITY, NULL,    NULL};
    size_t cells = (size_t)s.stages * (size_t)(sums->layers + 1);
    double limit = options->memory_bytes ? (double)options->memory_bytes : INFINITY;
    int r = 0;
    s.best = hr__alloc(HR__TAG_REPLAY, cells, sizeof *s.best);
    s.from = hr__alloc(HR__TAG_REPLAY, cells, sizeof *s.from);
    choice->cuts = hr__alloc(HR__TAG_REPLAY, (size_t)s.stages + 1, sizeof *choice->cuts);
    if (!s.best || !s.from || !choice->cuts) {
        r = hr__fail(error, -ENOMEM, "out of memory for the division of %d layers", sums->layers);
    } else if (!divide(&s, limit)) {
        divide(&s, INFINITY);
        r = 1;
    }
    if (r >= 0)
        choice->pace_s = slowest_s(&s);
    hr__free(s.best);
    hr__free(s.from);
    return r;
}
