/*
 * What if each step of the optimizer were fused?
 *
 * On a device one kernel, with one launch, takes as long as all the kernels of the step
 * ("Daydream", ATC'20). On a CPU the operators of a step read and write memory again and again, and
 * the fused step reads and writes each tensor once. Its time follows from operators of the step
 * that touch each parameter once, with the tensors they read or write (torch/optim/adam.py, sgd.py,
 * adagrad.py and the arguments of torch._fused_adamw_ and its like): Adam's lerp_, addcmul_ and
 * addcdiv_ touch 3 + 3 + 4, the fused step 7 (reads parameter, gradient and two moments, writes all
 * but the gradient), so it takes 7/10 of those three. Other optimizers have no fused step on a CPU.
 */
#include "replay/scenario.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <string.h>

#define STEP "Optimizer.step#"

struct fused_form {
    const char *optimizer;
    const char *with;   /* an operator that the step has; NULL: any */
    const char *ops[3]; /* those that touch each parameter once */
    double factor;      /* tensors that the fused step touches, over those of `ops` */
};

static const struct fused_form forms[] = {
    {"Adam", "aten::maximum", {"aten::lerp_", "aten::addcmul_", "aten::addcdiv_"}, 9.0 / 10},
    {"Adam", NULL, {"aten::lerp_", "aten::addcmul_", "aten::addcdiv_"}, 7.0 / 10},
    {"AdamW", "aten::maximum", {"aten::lerp_", "aten::addcmul_", "aten::addcdiv_"}, 9.0 / 10},
    {"AdamW", NULL, {"aten::lerp_", "aten::addcmul_", "aten::addcdiv_"}, 7.0 / 10},
    {"Adagrad", NULL, {"aten::addcmul_", "aten::addcdiv_"}, 5.0 / 7},
    {"SGD", "aten::mul_", {"aten::mul_", "aten::add_"}, 5.0 / 8}, /* with momentum */
    {"SGD", NULL, {"aten::add_"}, 1},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* A step of an optimizer. */
struct optimizer_step {
    uint32_t rank, event;
    uint32_t kernel;      /* the first one, which stands for all; HR__NO_TASK: it runs on the CPU */
    double device_ns;     /* of all its work on devices */
    double ops_ns;        /* of all its operators on the CPU */
    double key_ns[FORMS]; /* of those of a form */
    uint8_t has[FORMS];   /* whether it has the operator that a form is known by */
};

struct optimizer_steps {
    struct optimizer_step *all;
    size_t count, last;
    uint32_t *of; /* by task: an index of `all`; UINT32_MAX: none */
};

/* Returns the outermost step of an optimizer around a task; HR__NO_EVENT: none. */
static uint32_t step_of(const struct hr__graph *g, const struct hr__graph_task *task)
{
    const struct hr__rank_events *r = &g->ranks[task->rank];
    uint32_t event = task->event, found = HR__NO_EVENT;
    if (hr__task_is_device(task))
        event = task->launch == HR__NO_TASK ? HR__NO_EVENT : g->tasks[task->launch].event;
    if (task->phase != HR__PHASE_OPTIMIZER)
        return found;
    for (; event != HR__NO_EVENT; event = r->parent[event])
        if (!strncmp(hr__trace_name(r->trace, r->trace->events[event].name), STEP, sizeof STEP - 1))
            found = event;
    return found;
}

/* Returns the index of a step, added if it is new; SIZE_MAX: out of memory. */
static size_t index_of(struct optimizer_steps *s, uint32_t rank, uint32_t event)
{
    for (size_t i = 0, at = s->last; i < s->count; i++, at++) {
        at = at < s->count ? at : 0;
        if (s->all[at].rank == rank && s->all[at].event == event)
            return s->last = at;
    }
    if (hr__reserve(HR__TAG_REPLAY, &s->all, s->count + 1))
        return SIZE_MAX;
    s->all[s->count] = (struct optimizer_step){.rank = rank, .event = event, .kernel = HR__NO_TASK};
    return s->last = s->count++;
}

/* Adds a task to what is known of its step. */
static void add(struct optimizer_step *step, const struct hr__graph *g, uint32_t at)
{
    const struct hr__graph_task *task = &g->tasks[at];
    const char *name = hr__graph_name(g, task);
    if (hr__task_is_device(task)) {
        step->kernel = step->kernel == HR__NO_TASK ? at : step->kernel;
        step->device_ns += (double)task->length_ns;
    }
    if (task->kind != HR__TASK_OP)
        return;
    step->ops_ns += (double)task->length_ns;
    for (size_t f = 0; f < FORMS; f++) {
        step->has[f] |= forms[f].with && !strcmp(name, forms[f].with);
        for (size_t k = 0; k < 3 && forms[f].ops[k]; k++)
            if (!strcmp(name, forms[f].ops[k]))
                step->key_ns[f] += (double)task->length_ns;
    }
}

/* Finds all steps. Returns 0 or -ENOMEM. */
static int find_steps(struct optimizer_steps *s, const struct hr__graph *g)
{
    s->of = hr__alloc(HR__TAG_REPLAY, g->task_count + 1, sizeof *s->of);
    if (!s->of)
        return -ENOMEM;
    for (uint32_t i = 0; i < g->task_count; i++) {
        uint32_t event = step_of(g, &g->tasks[i]);
        s->of[i] = UINT32_MAX;
        if (event == HR__NO_EVENT)
            continue;
        size_t at = index_of(s, g->tasks[i].rank, event);
        if (at >= UINT32_MAX)
            return -ENOMEM;
        s->of[i] = (uint32_t)at;
        add(&s->all[at], g, i);
    }
    return 0;
}

static const char *name_of(const struct hr__graph *g, const struct optimizer_step *step)
{
    const struct hr__trace_data *t = g->ranks[step->rank].trace;
    return hr__trace_name(t, t->events[step->event].name);
}

/* Returns by how much the operators of a step on the CPU shrink; 0: it has no fused form, or is
 * fused already. */
static double factor_of(const struct hr__graph *g, const struct optimizer_step *step)
{
    const char *name = name_of(g, step) + sizeof STEP - 1;
    size_t length = strcspn(name, ".");
    for (size_t f = 0; f < FORMS; f++)
        if (strlen(forms[f].optimizer) == length && !strncmp(forms[f].optimizer, name, length) &&
            (!forms[f].with || step->has[f]) && step->key_ns[f] > 0)
            return forms[f].factor * step->key_ns[f] / step->ops_ns;
    return 0;
}

/* Changes a task of a step, or marks it as removed. */
static void change(struct hr__graph *g, uint32_t at, const struct optimizer_step *step,
                   uint8_t *removed)
{
    struct hr__graph_task *task = &g->tasks[at];
    if (hr__task_is_device(task)) {
        removed[at] = at != step->kernel;
        if (at == step->kernel)
            task->length_ns = (int64_t)(step->device_ns < 4e18 ? step->device_ns : 4e18);
    } else if (step->kernel != HR__NO_TASK) {
        removed[at] = task->kind != HR__TASK_RETURN;
    } else {
        double factor = factor_of(g, step);
        removed[at] = factor > 0 && task->kind == HR__TASK_UNTRACED;
        if (factor > 0 && task->kind == HR__TASK_OP)
            task->length_ns = (int64_t)((double)task->length_ns * factor + 0.5);
    }
}

/* Says why no step can be fused. */
static int refuse(const struct hr__graph *g, const struct optimizer_steps *s,
                  struct hr_error *error)
{
    if (!s->count)
        return hr__fail(error, -ENODATA,
                        "the trace has no steps of an optimizer (Optimizer.step annotations)");
    return hr__fail(error, -ENODATA,
                    "'%.100s' runs on the CPU, and is fused already or has no fused form there "
                    "that is known: these are SGD, Adam, AdamW and Adagrad",
                    name_of(g, &s->all[0]));
}

int hr__apply_optimizer(struct hr_replay_scenario *scenario, const char *pattern, double factor,
                        struct hr_error *error)
{
    struct hr__graph *g = &scenario->graph;
    struct optimizer_steps s = {.all = NULL};
    uint8_t *removed = hr__alloc(HR__TAG_REPLAY, g->task_count + 1, 1);
    size_t count = 0;
    int code =
        !removed || find_steps(&s, g) ? hr__fail(error, -ENOMEM, "out of memory for a what-if") : 0;
    for (size_t i = 0; i < s.count && !code; i++)
        count += s.all[i].kernel != HR__NO_TASK || factor_of(g, &s.all[i]) > 0;
    if (!code && !count)
        code = refuse(g, &s, error);
    if (!code) {
        for (uint32_t i = 0; i < g->task_count; i++)
            if (s.of[i] != UINT32_MAX)
                change(g, i, &s.all[s.of[i]], removed);
        for (uint32_t i = 0; i < g->task_count; i++)
            if (hr__task_is_device(&g->tasks[i]) && !removed[i] &&
                g->tasks[i].launch != HR__NO_TASK)
                removed[g->tasks[i].launch] = 0;
        hr__remove(g, removed);
    }
    hr__free(removed);
    hr__free(s.all);
    hr__free(s.of);
    return code;
}
