/*
 * What-ifs, one in each line of the input: any text is refused with a message, or changes the
 * graph of a small trace, of one rank or of several, whose prediction is a time.
 *
 * Not applied are texts that may take long because they ask for it: braces, back-references and
 * nested pluses of regular expressions, which the C library expands without bounds, and networks
 * larger than the trace's. The texts are their users' own.
 */
#include "replay/scenario.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LINES_MOST 8

/* Two steps of two layers on a device, with shapes, an all-reduce, and an optimizer. */
static const char step[] =
    "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":1,"
    "\"ts\":%d,\"dur\":990},"
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::conv2d\",\"pid\":1,\"tid\":1,\"ts\":%d,"
    "\"dur\":20,\"args\":{\"Sequence number\":%d,\"Input Dims\":[[9,9]],\"Input "
    "type\":[\"float\"]}},"
    "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,"
    "\"ts\":%d,\"dur\":5,\"args\":{\"correlation\":%d}},"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"pid\":0,\"tid\":7,\"ts\":%d,\"dur\":90,"
    "\"args\":{\"device\":0,\"stream\":7,\"correlation\":%d}},";
static const char collective[] =
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"ncclDevKernel_AllReduce_Sum_f32\",\"pid\":0,"
    "\"tid\":8,\"ts\":%d,\"dur\":200,\"args\":{\"device\":0,\"stream\":8,\"In msg nelems\":2000,"
    "\"dtype\":\"Float\",\"Group size\":2}},";
static const char rest[] =
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"autograd::engine::evaluate_function: "
    "ConvolutionBackward0\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":20,\"args\":{\"Sequence "
    "number\":%d}},"
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"torch::autograd::AccumulateGrad\",\"pid\":1,"
    "\"tid\":1,\"ts\":%d,\"dur\":9,\"args\":{\"Input Dims\":[[50,40]],\"Input "
    "type\":[\"float\"]}},"
    "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"Optimizer.step#SGD.step\",\"pid\":1,"
    "\"tid\":1,\"ts\":%d,\"dur\":90},"
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::add_\",\"pid\":1,\"tid\":1,\"ts\":%d,"
    "\"dur\":50}";

/* has_collectives: the trace is of a run on several ranks. */
static struct hr_replay *make_replay(int has_collectives)
{
    static char text[16384];
    struct hr_replay *r = calloc(1, sizeof *r);
    struct hr_error error = {0};
    size_t used = (size_t)snprintf(text, sizeof text, "[");
    for (int i = 0; i < 2; i++) {
        int at = 1000 * i;
        used += (size_t)snprintf(text + used, sizeof text - used, step, i, at, at + 10, i, at + 12,
                                 i + 1, at + 20, i + 1);
        if (has_collectives)
            used += (size_t)snprintf(text + used, sizeof text - used, collective, at + 300);
        used += (size_t)snprintf(text + used, sizeof text - used, rest, at + 200, i, at + 225,
                                 at + 600, at + 610);
        used += (size_t)snprintf(text + used, sizeof text - used, i ? "]" : ",");
    }
    r->limit = 1;
    r->trace_count = 1;
    r->traces = calloc(1, sizeof *r->traces);
    if (hr__trace_parse(r->traces, text, used, "step", &error) ||
        hr__graph_build(&r->graph, r->traces, 1, NULL, &error) ||
        hr__graph_replay(&r->schedule, &r->graph, NULL, &error) ||
        hr__identity_find(&r->identity, &r->graph, &r->schedule, &error)) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
    return r;
}

static int may_take_long(const char *text)
{
    static const char *const words[] = {"{", "\\", "workers", "draws", "packet", "ranks"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(text, words[i]) && (i < 2 || !strncmp(text, "loss-tolerance", 14)))
            return 1;
    size_t pluses = 0;
    for (const char *at = text; *at; at++)
        pluses += *at == '+';
    return pluses > 4 || strlen(text) > 300;
}

/* Applies a text. Returns 0 if it was refused. */
static int apply(struct hr_replay_scenario *s, const char *text)
{
    struct hr_replay_prediction p = {.size = sizeof p};
    struct hr_error error = {0};
    if (hr_replay_is_what_if(text) != (hr__what_if_find(text, &error) != NULL))
        abort();
    hr_replay_is_argument("ddp", text);
    hr_replay_is_argument(text, "x2");
    if (may_take_long(text))
        return 0;
    int code = hr_replay_apply(s, text, &error);
    if (!code)
        code = hr_replay_predict(s, &p, &error);
    if (code) {
        if (!error.message[0])
            abort();
        return 0;
    }
    if (!(p.iteration_s >= 0) || !isfinite(p.iteration_s))
        abort();
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hr_replay *replays[2];
    struct hr_replay **replay = &replays[size % 2];
    struct hr_replay_scenario *s;
    struct hr_error error = {0};
    *replay = *replay ? *replay : make_replay(size % 2);
    char *text = malloc(size + 1), *line = text, *end;
    if (!text || hr_replay_scenario_create(&s, *replay, &error)) {
        free(text);
        return 0;
    }
    memcpy(text, data, size);
    text[size] = 0;
    for (int i = 0; i < LINES_MOST && line; i++, line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        if (end)
            *end = 0;
        if (!apply(s, line))
            break;
    }
    hr_replay_scenario_destroy(&s);
    free(text);
    return 0;
}
