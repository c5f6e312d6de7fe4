/* Makes plans and gives them as JSON; see headrace/plan.h. */
#include "replay/pipeline_plan.h"

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/versioned.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_GPUS  65536
#define MOST_ROWS  1000
#define MOST_TASKS 20000 /* written to the JSON */

static const struct hr_plan_options defaults = {
    .size = sizeof defaults,
    .state_ratio = 2,
    .gradient_ratio = 1,
    .rows = 10,
    .schedule = HR_PLAN_ANY,
    .stages = HR_PLAN_ANY,
    .replicas = HR_PLAN_ANY,
    .microbatch = HR_PLAN_ANY,
    .recompute = HR_PLAN_ANY,
    .chunks = HR_PLAN_ANY,
};

void hr_plan_options_init(struct hr_plan_options *options, size_t size)
{
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

/* ---- the options ---- */

static int check_range(const char *name, double value, double low, double high,
                       struct hr_error *error)
{
    if (value >= low && value <= high)
        return 0;
    return hr__fail(error, -EINVAL, "%s is %.15g: it must be from %.15g to %.15g", name, value, low,
                    high);
}

static int check_options(const struct hr_plan_options *o, struct hr_error *error)
{
    int r = check_range("gpus", o->gpus, 1, MOST_GPUS, error);
    r = r ? r : check_range("gpus_per_server", o->gpus_per_server, 0, MOST_GPUS, error);
    r = r ? r : check_range("batch", o->batch, 1, 1e9, error);
    r = r ? r : check_range("link_bytes_per_s", o->link_bytes_per_s, 0, 1e15, error);
    r = r ? r : check_range("network_bytes_per_s", o->network_bytes_per_s, 0, 1e15, error);
    r = r ? r : check_range("state_ratio", o->state_ratio, 0, 100, error);
    r = r ? r : check_range("gradient_ratio", o->gradient_ratio, 0, 100, error);
    r = r ? r : check_range("rows", o->rows, 1, MOST_ROWS, error);
    r = r ? r : check_range("schedule", o->schedule, HR_PLAN_ANY, HR_PLAN_SCHEDULES - 1, error);
    r = r ? r : check_range("recompute", o->recompute, HR_PLAN_ANY, 1, error);
    if (!r && o->stages != HR_PLAN_ANY)
        r = check_range("stages", o->stages, 1, o->gpus, error);
    if (!r && o->replicas != HR_PLAN_ANY)
        r = check_range("replicas", o->replicas, 1,
                        o->stages == HR_PLAN_ANY ? o->gpus : o->gpus / o->stages, error);
    if (!r && o->chunks != HR_PLAN_ANY)
        r = check_range("chunks", o->chunks, 1, HR__PROFILE_MOST_LAYERS, error);
    return r;
}

/* Checks what is given against the profile. */
static int check_given(const struct hr_plan *plan, struct hr_error *error)
{
    const struct hr_plan_options *o = &plan->options;
    const struct hr__profile *p = &plan->profile;
    char sizes[200] = "";
    if (o->stages != HR_PLAN_ANY && o->stages > p->layer_count)
        return hr__fail(error, -EINVAL, "%d stages are more than the %d layers of the profile",
                        o->stages, p->layer_count);
    for (int i = 0; i < p->size_count; i++) {
        size_t used = strlen(sizes);
        if (o->microbatch == HR_PLAN_ANY || o->microbatch == (int)p->sizes[i])
            return 0;
        snprintf(sizes + used, sizeof sizes - used, "%s%.0f", i ? ", " : "", p->sizes[i]);
    }
    return hr__fail(error, -EINVAL, "the profile has no times for microbatches of %d, only for %s",
                    o->microbatch, sizes);
}

/* ---- JSON ---- */

/* Sets a member; remembers that it failed. */
static void set(json_t *object, const char *name, json_t *value, bool *failed)
{
    *failed |= json_object_set_new(object, name, value) != 0;
}

static void append(json_t *array, json_t *value, bool *failed)
{
    *failed |= json_array_append_new(array, value) != 0;
}

static json_t *memory_json(const struct hr__choice *c, bool *failed)
{
    json_t *array = json_array();
    for (int i = 0; i < c->devices; i++) {
        const struct hr__device_bytes *b = &c->bytes[i];
        json_t *o = json_object();
        set(o, "weights_bytes", hr__json_real(round(b->weights)), failed);
        set(o, "gradients_bytes", hr__json_real(round(b->gradients)), failed);
        set(o, "state_bytes", hr__json_real(round(b->state)), failed);
        set(o, "activations_bytes", hr__json_real(round(b->activations)), failed);
        set(o, "microbatches", json_integer(b->microbatches), failed);
        append(array, o, failed);
    }
    return array;
}

static json_t *choice_json(const struct hr_plan *plan, const struct hr__choice *c, bool *failed)
{
    json_t *o = json_object(), *cuts = json_array();
    double bound = c->batch / (c->pace_s * c->microbatches);
    set(o, "schedule", json_string(hr_plan_schedule_name(c->schedule)), failed);
    set(o, "stages", json_integer(c->devices), failed);
    set(o, "chunks", json_integer(c->chunks), failed);
    set(o, "replicas", json_integer(c->replicas), failed);
    set(o, "microbatch", hr__json_real(plan->profile.sizes[c->size]), failed);
    set(o, "recompute", json_boolean(c->recompute), failed);
    set(o, "microbatches", json_integer(c->microbatches), failed);
    set(o, "batch", json_integer(c->batch), failed);
    for (int i = 0; c->cuts && i <= c->devices * c->chunks; i++)
        append(cuts, json_integer(c->cuts[i]), failed);
    set(o, "cuts", cuts, failed);
    set(o, "bound_samples_per_s", hr__json_real(bound), failed);
    set(o, "memory_bytes", hr__json_real(round(c->memory_bytes)), failed);
    set(o, "fullest_stage", json_integer(c->fullest), failed);
    if (*c->reason) {
        set(o, "reason", hr__json_string(c->reason), failed);
        return o;
    }
    set(o, "samples_per_s", hr__json_real(c->samples_per_s), failed);
    set(o, "step_s", hr__json_real(c->step_s), failed);
    set(o, "fill_s", hr__json_real(c->fill_s), failed);
    set(o, "bubble", hr__json_real(c->bubble), failed);
    set(o, "gpus", memory_json(c, failed), failed);
    return o;
}

static json_t *choices_json(const struct hr_plan *plan, const struct hr__choice *all, int count,
                            bool *failed)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        append(array, choice_json(plan, &all[i], failed), failed);
    return array;
}

static json_t *stages_json(const struct hr_plan *plan, bool *failed)
{
    const struct hr__choice *c = plan->choices;
    json_t *array = json_array();
    for (int i = 0; i < c->devices * c->chunks; i++) {
        const struct hr__stage_cost *s = &plan->stages[i];
        json_t *o = json_object();
        set(o, "gpu", json_integer(i % c->devices), failed);
        set(o, "first_layer", json_integer(s->first), failed);
        set(o, "layers", json_integer(s->count), failed);
        set(o, "forward_s", hr__json_real(s->compute_forward_s), failed);
        set(o, "backward_s", hr__json_real(s->compute_backward_s), failed);
        set(o, "send_forward_s", hr__json_real(s->send_forward_s), failed);
        set(o, "send_backward_s", hr__json_real(s->send_backward_s), failed);
        set(o, "update_s", hr__json_real(s->update_s), failed);
        set(o, "reduce_s", hr__json_real(s->reduce_s), failed);
        set(o, "weight_bytes", hr__json_real(s->weight_bytes), failed);
        append(array, o, failed);
    }
    return array;
}

/* Each task is a list: GPU, kind, stage, microbatch, version, begin, end. */
static json_t *tasks_json(const struct hr_plan *plan, bool *failed)
{
    static const char *const kinds[] = {"forward", "backward", "update"};
    json_t *array = json_array();
    size_t count = (size_t)plan->run.device_count * plan->run.device_tasks;
    for (size_t i = 0; i < count && count <= MOST_TASKS; i++) {
        const struct hr__pipeline_task *t = &plan->run.tasks[i];
        json_t *row = json_pack("[i, s, i, i, i, o, o]", (int)(i / plan->run.device_tasks),
                                kinds[t->kind], t->stage, t->microbatch, t->version,
                                hr__json_real(t->begin_s), hr__json_real(t->end_s));
        append(array, row, failed);
    }
    return array;
}

static json_t *first_json(const struct hr_plan *plan, bool *failed)
{
    json_t *o = json_object();
    set(o, "stages", stages_json(plan, failed), failed);
    set(o, "gpus", memory_json(plan->choices, failed), failed);
    set(o, "makespan_s", hr__json_real(plan->run.makespan_s), failed);
    set(o, "tasks", tasks_json(plan, failed), failed);
    return o;
}

static json_t *asked_json(const struct hr_plan_options *o, bool *failed)
{
    json_t *asked = json_object();
    set(asked, "gpus", json_integer(o->gpus), failed);
    set(asked, "gpus_per_server", json_integer(o->gpus_per_server), failed);
    set(asked, "batch", json_integer(o->batch), failed);
    set(asked, "memory_bytes", hr__json_real((double)o->memory_bytes), failed);
    set(asked, "link_bytes_per_s", hr__json_real(o->link_bytes_per_s), failed);
    set(asked, "network_bytes_per_s", hr__json_real(o->network_bytes_per_s), failed);
    set(asked, "state_ratio", hr__json_real(o->state_ratio), failed);
    set(asked, "gradient_ratio", hr__json_real(o->gradient_ratio), failed);
    return asked;
}

static int make_json(struct hr_plan *plan, struct hr_error *error)
{
    bool failed = false;
    json_t *root = json_object(), *profile = json_object(), *sizes = json_array();
    set(root, "headrace_plan", json_integer(1), &failed);
    for (int i = 0; i < plan->profile.size_count; i++)
        append(sizes, hr__json_real(plan->profile.sizes[i]), &failed);
    set(profile, "name", hr__json_string(plan->profile.name), &failed);
    set(profile, "layers", json_integer(plan->profile.layer_count), &failed);
    set(profile, "microbatches", sizes, &failed);
    set(root, "profile", profile, &failed);
    set(root, "asked", asked_json(&plan->options, &failed), &failed);
    set(root, "considered", json_integer(plan->considered), &failed);
    set(root, "fit", json_integer(plan->fit), &failed);
    set(root, "full", json_integer(plan->full), &failed);
    set(root, "alone_samples_per_s", hr__json_real(plan->alone_per_s), &failed);
    set(root, "plans", choices_json(plan, plan->choices, plan->count, &failed), &failed);
    set(root, "refused", choices_json(plan, plan->refused, plan->refused_count, &failed), &failed);
    if (plan->count)
        set(root, "first", first_json(plan, &failed), &failed);
    char *text = failed ? NULL : json_dumps(root, JSON_COMPACT);
    plan->json = text ? hr__strdup(HR__TAG_REPLAY, text) : NULL;
    free(text);
    json_decref(root);
    return plan->json ? 0 : hr__fail(error, -ENOMEM, "out of memory for the JSON of a plan");
}

/* ---- plans ---- */

static void clear_choices(struct hr__choice *all, int count)
{
    for (int i = 0; all && i < count; i++)
        hr__choice_clear(&all[i]);
    hr__free(all);
}

void hr_plan_destroy(struct hr_plan **plan)
{
    struct hr_plan *p = plan ? *plan : NULL;
    if (!p)
        return;
    clear_choices(p->choices, p->count);
    clear_choices(p->refused, p->refused_count);
    hr__pipeline_clear(&p->run);
    hr__profile_clear(&p->profile);
    hr__free(p->stages);
    hr__free(p->json);
    hr__free(p);
    *plan = NULL;
}

int hr_plan_make(struct hr_plan **out, const char *text, size_t length, const char *name,
                 const struct hr_plan_options *options, struct hr_error *error)
{
    struct hr_plan_options o = defaults;
    *out = NULL;
    if (!text || !options)
        return hr__fail(error, -EINVAL, "a profile and options are needed to plan");
    int r = hr__versioned_take(&o, sizeof o, options, "hr_plan_options", error);
    r = r ? r : check_options(&o, error);
    if (r)
        return r;
    struct hr_plan *plan = hr__alloc(HR__TAG_REPLAY, 1, sizeof *plan);
    if (!plan)
        return hr__fail(error, -ENOMEM, "out of memory for a plan");
    plan->options = o;
    r = hr__profile_read(&plan->profile, text, length, name ? name : "the profile", error);
    r = r ? r : check_given(plan, error);
    r = r ? r : hr__plan_search(plan, error);
    r = r ? r : make_json(plan, error);
    if (r)
        hr_plan_destroy(&plan);
    *out = plan;
    return r;
}

int hr_plan_count(const struct hr_plan *plan)
{
    return plan->count;
}

const char *hr_plan_json(const struct hr_plan *plan)
{
    return plan->json;
}
