/* Traces: any bytes are refused with a message, or become a graph whose replay can be changed. */
#include "replay/scenario.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void replay(const struct hr__trace_data *trace)
{
    struct hr__graph graph;
    struct hr__replay_schedule schedule = {.begin_ns = NULL};
    struct hr__replay_identity identity;
    struct hr_error error = {0};
    if (hr__graph_build(&graph, trace, 1, NULL, &error)) {
        if (!error.message[0])
            abort();
    } else if (!hr__graph_replay(&schedule, &graph, NULL, &error)) {
        if (hr__identity_find(&identity, &graph, &schedule, &error) || schedule.length_ns < 0)
            abort();
        for (size_t i = 0; i < graph.edge_count; i++) {
            const struct hr__edge *e = &graph.edges[i];
            int64_t from = schedule.begin_ns[e->from];
            from += e->from_begin ? 0 : graph.tasks[e->from].length_ns;
            if (schedule.begin_ns[e->to] < from + e->lag_ns)
                abort();
        }
    }
    hr__schedule_clear(&schedule);
    hr__graph_clear(&graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__trace_data trace;
    struct hr_error error = {0};
    /* an exact copy: the parser must not read past the end */
    char *text = malloc(size ? size : 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    if (!hr__trace_parse(&trace, text, size, "fuzz", &error))
        replay(&trace);
    else if (!error.message[0])
        abort();
    hr__trace_clear(&trace);
    free(text);
    return 0;
}
