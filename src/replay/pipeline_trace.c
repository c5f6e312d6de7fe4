/* Writes the run of a plan's first choice as a trace in Chrome's JSON, which Perfetto opens: a
 * thread for each GPU of one replica, a slice for each pass. */
#include "replay/pipeline_plan.h"

#include "base/error.h"
#include "report/events.h"

#include <errno.h>
#include <stdio.h>

static void add_task(struct hr__events *events, int device, const struct hr__pipeline_task *t)
{
    static const char *const kinds[] = {"forward", "backward", "update"};
    char name[64];
    snprintf(name, sizeof name, "%s %d", kinds[t->kind], t->microbatch + 1);
    hr__event_begin(events, "X", 1, device + 1);
    hr__event_text(events, "name", name);
    hr__event_number(events, "ts", t->begin_s * 1e6, 3);
    hr__event_number(events, "dur", (t->end_s - t->begin_s) * 1e6, 3);
    hr__draft_print(&events->draft, ",\"args\":{\"stage\":%d,\"version of the weights\":%d}}",
                    t->stage + 1, t->version);
}

int hr_plan_write_trace(const struct hr_plan *plan, const char *path, struct hr_error *error)
{
    struct hr__events events = {.begun = false};
    if (!plan || !path)
        return hr__fail(error, -EINVAL, "a plan and a path are needed to write it as a trace");
    if (!plan->count)
        return hr__fail(error, -ENODATA, "there is no plan to write as a trace: nothing fits");
    hr__draft_put(&events.draft, "{\"displayTimeUnit\":\"ms\",\n\"traceEvents\":[\n");
    hr__event_name(&events, "process_name", 1, 0, hr_plan_schedule_name(plan->choices->schedule));
    for (int i = 0; i < plan->run.device_count; i++) {
        char name[64];
        snprintf(name, sizeof name, "GPU of stage %d", i + 1);
        hr__event_name(&events, "thread_name", 1, i + 1, name);
        for (size_t k = 0; k < plan->run.device_tasks; k++)
            add_task(&events, i, &plan->run.tasks[(size_t)i * plan->run.device_tasks + k]);
    }
    hr__draft_put(&events.draft, "\n]}\n");
    int r = hr__draft_write(&events.draft, path, error);
    hr__draft_clear(&events.draft);
    return r;
}
