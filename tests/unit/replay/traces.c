/* Traces written by hand; see traces.h. */
#include "traces.h"

#include "../test.h"

#include <stdlib.h>
#include <unistd.h>

void trace_add(struct trace_text *t, const char *category, const char *name, const char *thread,
               double begin_us, double length_us, const char *args)
{
    int n =
        snprintf(t->text + t->length, sizeof t->text - t->length,
                 "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 1, \"tid\": %s, "
                 "\"ts\": %.3f, \"dur\": %.3f, \"args\": {%s}}",
                 t->length ? ",\n" : "{\"traceEvents\": [\n", category, name, thread, begin_us,
                 length_us, args);
    assert_true(n > 0 && (size_t)n < sizeof t->text - t->length);
    t->length += (size_t)n;
}

void trace_op(struct trace_text *t, const char *name, double begin_us, double length_us)
{
    trace_add(t, "cpu_op", name, "1", begin_us, length_us, "");
}

void trace_call(struct trace_text *t, const char *name, int correlation, double begin_us,
                double length_us)
{
    char args[64];
    snprintf(args, sizeof args, "\"correlation\": %d", correlation);
    trace_add(t, "cuda_runtime", name, "1", begin_us, length_us, args);
}

void trace_kernel(struct trace_text *t, const char *name, int correlation, double begin_us,
                  double length_us)
{
    char args[96];
    snprintf(args, sizeof args, "\"device\": 0, \"stream\": 7, \"correlation\": %d", correlation);
    trace_add(t, "kernel", name, "7", begin_us, length_us, args);
}

void trace_parse(struct trace_text *t, struct hr__trace_data *out)
{
    struct hr_error error = {0};
    t->length += (size_t)snprintf(t->text + t->length, sizeof t->text - t->length, "]}");
    if (hr__trace_parse(out, t->text, t->length, "by hand", &error))
        fail_msg("%s", error.message);
}

void trace_step(struct trace_text *t)
{
    trace_add(t, "user_annotation", "ProfilerStep#3", "1", 0, 200, "");
    trace_op(t, "aten::mm", 10, 30);
    trace_call(t, "cudaLaunchKernel", 1, 20, 10);
    trace_kernel(t, "gemm", 1, 26, 50);
    trace_op(t, "aten::relu", 50, 30);
    trace_call(t, "cudaLaunchKernel", 2, 60, 10);
    trace_kernel(t, "relu_kernel", 2, 78, 100);
    trace_call(t, "cudaDeviceSynchronize", 3, 90, 90);
}

void trace_replay(struct trace_text *t, struct hr__trace_data *trace, struct hr__graph *graph,
                  struct hr__replay_schedule *schedule)
{
    struct hr_error error = {0};
    trace_parse(t, trace);
    if (hr__graph_build(graph, trace, 1, NULL, &error) ||
        hr__graph_replay(schedule, graph, NULL, &error))
        fail_msg("%s", error.message);
}

struct hr_replay *trace_open(struct trace_text *t, double limit)
{
    char own[] = "/tmp/headrace-replay-XXXXXX";
    const char *paths[] = {own};
    struct hr_replay_options options;
    struct hr_replay *made;
    struct hr_error error = {0};
    int fd = mkstemp(own);
    assert_true(fd >= 0);
    close(fd);
    t->length += (size_t)snprintf(t->text + t->length, sizeof t->text - t->length, "]}");
    test_write(own, t->text, t->length);
    hr_replay_options_default(&options);
    options.limit = limit;
    if (hr_replay_open(&made, paths, 1, &options, &error))
        fail_msg("%s", error.message);
    unlink(own);
    free(t);
    return made;
}

double trace_predict_us(const struct hr_replay *of, const char *const *what_ifs)
{
    struct hr_replay_scenario *s;
    struct hr_replay_prediction p = {.size = sizeof p};
    struct hr_error error = {0};
    int code = hr_replay_scenario_create(&s, of, &error);
    for (; !code && *what_ifs; what_ifs++)
        code = hr_replay_apply(s, *what_ifs, &error);
    if (code || hr_replay_predict(s, &p, &error))
        fail_msg("%s", error.message);
    hr_replay_scenario_destroy(&s);
    return p.iteration_s * 1e6;
}
