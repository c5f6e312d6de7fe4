/* The reader of traces: times, threads, categories and links as profilers write them; what it
 * refuses, and with which words. */
#include "traces.h"

#include "../test.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>

static void times_and_threads(void **state)
{
    struct trace_text t = {.length = 0};
    struct hr__trace_data trace;
    trace_add(&t, "cpu_op", "a", "-247463936", 1712195495519689.0, 63.813,
              "\"Sequence number\": 5");
    trace_add(&t, "Kernel", "k", "\"stream 7\"", 5, 1,
              "\"device\": \"0\", \"correlation\": \"12\"");
    trace_add(&t, "kernel", "k", "7", 6, 1, "\"device\": 0, \"stream\": 7, \"correlation\": 13");
    trace_add(&t, "cuda_driver", "cuLaunchKernel", "\"main\"", 6, 0, "\"correlation\": 13");
    trace_add(&t, "gpu_user_annotation", "overlay", "7", 6, 1, "");
    trace_parse(&t, &trace);
    assert_int_equal(trace.event_count, 4);
    assert_int_equal(trace.read, 5);
    assert_int_equal(trace.events[0].begin_ns, 1712195495519689000);
    assert_int_equal(trace.events[0].length_ns, 63813);
    assert_int_equal(trace.events[0].link, 5);
    assert_int_equal(trace.events[1].link, 12);
    assert_int_equal(trace.events[1].track, trace.events[2].track);
    assert_int_equal(trace.events[1].name, trace.events[2].name);
    assert_true(trace.tracks[trace.events[1].track].is_stream);
    assert_int_equal(trace.events[3].kind, HR__TRACE_RUNTIME);
    assert_int_equal(trace.tracks[trace.events[0].track].thread, -247463936);
    hr__trace_clear(&trace);
    assert_int_equal(hr__allocated(HR__TAG_REPLAY), 0);
}

static void members_in_any_order(void **state)
{
    static const char text[] =
        "[{\"args\": {\"cuda_sync_kind\": \"Event Sync\", \"wait_on_stream\": 20, "
        "\"wait_on_cuda_event_record_corr_id\": 9, \"stream\": -1, \"correlation\": 24}, \"dur\": "
        "4, "
        "\"ts\": 100, \"tid\": -1, \"pid\": 0, \"name\": \"Event Sync\", \"cat\": \"cuda_sync\", "
        "\"ph\": \"X\"}, 5, {\"ph\": \"s\", \"id\": 1, \"ts\": []}, {\"ph\": \"X\", \"cat\": "
        "\"cpu_op\", \"name\": null, \"ts\": 1}]";
    struct hr__trace_data trace;
    struct hr_error error = {0};
    assert_int_equal(hr__trace_parse(&trace, text, sizeof text - 1, "x", &error), 0);
    assert_int_equal(trace.event_count, 1);
    assert_int_equal(trace.wrong, 1);
    assert_int_equal(trace.events[0].sync, HR__SYNC_EVENT);
    assert_int_equal(trace.events[0].value, 9);
    assert_int_equal(trace.events[0].number, 20);
    hr__trace_clear(&trace);
}

static void refused(void **state)
{
    static const struct {
        const char *text;
        int code;
        const char *words;
    } cases[] = {
        {"", -EBADMSG, "is empty: the run ended before the profiler wrote it; record again"},
        {" ", -EBADMSG, "ends"},
        {"dear reader", -EBADMSG, "byte 0"},
        {"{}", -EBADMSG, "no traceEvents"},
        {"{\"images\": [1, 2]}", -EBADMSG, "no traceEvents"},
        {"{\"traceEvents\": []}", -ENODATA,
         "none of its 0 events is an operator, a CUDA call or a kernel: record a training step"},
        {"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"other\", \"ts\": 1, \"dur\": 1}]}",
         -ENODATA, "none of its 1 events"},
        {"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cpu_op\", \"na", -EBADMSG, "ends"},
        {"{\"traceEvents\": 5}", -EBADMSG, "array"},
        {"{\"traceEvents\": []} x", -EBADMSG, "follows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__trace_data trace;
        struct hr_error error = {0};
        assert_int_equal(
            hr__trace_parse(&trace, cases[i].text, strlen(cases[i].text), "x.json", &error),
            cases[i].code);
        assert_non_null(strstr(error.message, cases[i].words));
        assert_non_null(strstr(error.message, "x.json"));
        hr__trace_clear(&trace);
    }
    char deep[400] = "{\"traceEvents\": [{\"args\": {\"x\": ";
    size_t used = strlen(deep);
    memset(deep + used, '[', 200);
    struct hr__trace_data trace;
    struct hr_error error = {0};
    assert_int_equal(hr__trace_parse(&trace, deep, used + 200, "x", &error), -EFBIG);
    hr__trace_clear(&trace);
    assert_int_equal(hr__trace_read(&trace, "/nowhere/trace.json", &error), -ENOENT);
    hr__trace_clear(&trace);
}

/* A file of 40 MB that is mostly texts and numbers that no replay needs: memory does not grow with
 * it, and nothing of it is lost behind them. */
static void huge(void **state)
{
    static const char begin[] = "{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": "
                                "\"aten::mm\", \"pid\": 1, "
                                "\"tid\": 1, \"ts\": 1, \"dur\": 5, \"args\": {\"Call stack\": \"";
    static const char middle[] = "\", \"Concrete Inputs\": [";
    static const char end[] = "0]}}, {\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": "
                              "\"aten::relu\", \"pid\": 1, \"tid\": 1, "
                              "\"ts\": 8, \"dur\": 2}]}";
    const size_t half = 20u << 20, all = 2 * half + sizeof begin + sizeof middle + sizeof end;
    char *text = malloc(all), *at = text;
    struct hr__trace_data trace;
    struct hr_error error = {0};
    assert_non_null(text);
    at = mempcpy(at, begin, sizeof begin - 1);
    at = (char *)memset(at, 'x', half) + half;
    at = mempcpy(at, middle, sizeof middle - 1);
    for (size_t i = 0; i < half / 4; i++)
        at = mempcpy(at, "123,", 4);
    at = mempcpy(at, end, sizeof end - 1);
    if (hr__trace_parse(&trace, text, (size_t)(at - text), "huge", &error))
        fail_msg("%s", error.message);
    assert_int_equal(trace.event_count, 2);
    assert_int_equal(trace.bytes, at - text);
    assert_in_range(hr__allocated(HR__TAG_REPLAY), 1, 65536);
    hr__trace_clear(&trace);
    assert_int_equal(hr__trace_parse(&trace, text, (size_t)(at - text) - 1, "huge", &error),
                     -EBADMSG);
    hr__trace_clear(&trace);
    free(text);
}

static void out_of_memory(void **state)
{
    struct trace_text t = {.length = 0};
    trace_step(&t);
    t.length += (size_t)snprintf(t.text + t.length, sizeof t.text - t.length, "]}");
    for (uint64_t n = 1;; n++) {
        struct hr__trace_data trace;
        struct hr__graph graph = {.ranks = NULL};
        struct hr__replay_schedule schedule = {.begin_ns = NULL};
        struct hr_error error = {0};
        hr__alloc_fail_at(n, 1);
        int code = hr__trace_parse(&trace, t.text, t.length, "x", &error);
        if (!code)
            code = hr__graph_build(&graph, &trace, 1, NULL, &error);
        if (!code)
            code = hr__graph_replay(&schedule, &graph, NULL, &error);
        hr__alloc_fail_at(0, 0);
        hr__schedule_clear(&schedule);
        hr__graph_clear(&graph);
        hr__trace_clear(&trace);
        assert_int_equal(hr__allocated(HR__TAG_REPLAY), 0);
        if (!code)
            break;
        assert_int_equal(code, -ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_and_threads), cmocka_unit_test(members_in_any_order),
        cmocka_unit_test(refused),           cmocka_unit_test(huge),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
