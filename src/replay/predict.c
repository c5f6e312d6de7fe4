/* Predictions of scenarios, and where the time of a critical path goes. */
#include "replay/scenario.h"

#include "base/error.h"
#include "base/versioned.h"

/* Returns the task before one on the critical path. */
static uint32_t before(const struct hr__graph *g, const struct hr__replay_schedule *s,
                       uint32_t task)
{
    if (s->holder[task] != HR__NO_TASK)
        return s->holder[task];
    return s->cause[task] == UINT32_MAX ? HR__NO_TASK : g->edges[s->cause[task]].from;
}

/* Adds a part of a task's time to its kind. */
static void add(struct hr__shares *out, const struct hr__graph_task *task, int64_t ns)
{
    out->kind[task->kind] += (double)ns;
    if (task->phase == HR__PHASE_DATA && !hr__task_is_device(task))
        out->data += (double)ns;
}

void hr__path_shares(struct hr__shares *out, const struct hr__graph *g,
                     const struct hr__replay_schedule *s)
{
    double all = 0;
    int64_t until = s->begin_ns[s->last] + g->tasks[s->last].length_ns;
    *out = (struct hr__shares){.latency = 0};
    for (uint32_t i = s->last, next = HR__NO_TASK; i != HR__NO_TASK; i = before(g, s, i)) {
        const struct hr__graph_task *task = &g->tasks[i];
        int64_t span = until - s->begin_ns[i], own = task->length_ns;
        /* a launch's kernel begins during or after the call: what lies between is latency */
        if (next != HR__NO_TASK && s->holder[next] == HR__NO_TASK &&
            g->edges[s->cause[next]].from_begin)
            own = 0;
        if (own > span)
            own = span > 0 ? span : 0;
        if (span > 0) {
            add(out, task, own);
            out->latency += (double)(span - own);
            all += (double)span;
        }
        until = s->begin_ns[i];
        next = i;
    }
    for (int k = 0; k < HR__TASK_KINDS && all > 0; k++)
        out->kind[k] /= all;
    out->data /= all > 0 ? all : 1;
    out->latency /= all > 0 ? all : 1;
}

int hr_replay_predict(struct hr_replay_scenario *s, struct hr_replay_prediction *out,
                      struct hr_error *error)
{
    struct hr__replay_schedule schedule;
    struct hr__shares shares;
    int code = hr__scenario_simulate(&schedule, s, error);
    if (!code) {
        struct hr_replay_prediction result = {
            .iteration_s = (double)schedule.length_ns / 1e9 / s->graph.iterations,
            .recorded_s = (double)s->graph.recorded_ns / 1e9 / s->graph.iterations};
        hr__path_shares(&shares, &s->graph, &schedule);
        for (int k = 0; k < HR_REPLAY_KINDS; k++)
            result.kind[k] = shares.kind[k];
        result.latency = shares.latency;
        hr__versioned_give(out, &result, sizeof result);
    }
    hr__schedule_clear(&schedule);
    return code;
}
