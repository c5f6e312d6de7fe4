/* Writes a predicted run as a trace that Perfetto opens. */
#include "replay/scenario.h"

#include "report/events.h"

static void add_task(struct hr__events *events, const struct hr_replay_scenario *s,
                     const struct hr__replay_schedule *schedule, uint32_t i)
{
    static const char *const kinds[HR__TASK_KINDS] = {"operator", "call",          "untraced",
                                                      "return",   "kernel",        "copy",
                                                      "set",      "communication", "inserted"};
    const struct hr__graph_task *task = &s->graph.tasks[i];
    const char *name = hr__graph_name(&s->graph, task);
    if (task->length_ns <= 0 || task->kind == HR__TASK_UNTRACED)
        return;
    hr__event_begin(events, "X", task->rank, task->lane);
    hr__event_text(events, "name", *name ? name : kinds[task->kind]);
    hr__event_text(events, "cat", kinds[task->kind]);
    hr__event_time_ns(events, "ts", (uint64_t)(schedule->begin_ns[i] - schedule->first_ns));
    hr__event_time_ns(events, "dur", (uint64_t)task->length_ns);
    hr__draft_put(&events->draft, "}");
}

int hr_replay_write_trace(struct hr_replay_scenario *s, const char *path, struct hr_error *error)
{
    struct hr__replay_schedule schedule;
    struct hr__events events = {.begun = false};
    char name[160];
    int code = hr__scenario_simulate(&schedule, s, error);
    if (!code) {
        hr__draft_put(&events.draft, "{\"traceEvents\": [\n");
        for (uint32_t i = 0; i < s->graph.lane_count; i++) {
            hr__scenario_lane_name(s, i, name, sizeof name);
            hr__event_name(&events, "thread_name", (int)s->graph.lanes[i].rank, i, name);
        }
        for (uint32_t i = 0; i < s->graph.task_count; i++)
            add_task(&events, s, &schedule, i);
        hr__draft_put(&events.draft, "\n]}\n");
        code = hr__draft_write(&events.draft, path, error);
    }
    hr__draft_clear(&events.draft);
    hr__schedule_clear(&schedule);
    return code;
}
