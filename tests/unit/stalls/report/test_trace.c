/* The trace: valid JSON, slices that do not overlap, escaped names. */
#include "../../test.h"

#include "base/memory.h"
#include "fixture.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

static json_t *parse(const struct hr_stalls *stalls)
{
    json_error_t error;
    json_t *root = json_loads(fixture_written(hr_stalls_write_trace, stalls), 0, &error);
    if (!root)
        fail_msg("line %d, column %d: %s", error.line, error.column, error.text);
    return root;
}

static int is(const json_t *event, const char *member, const char *text)
{
    const char *value = json_string_value(json_object_get(event, member));
    return value && !strcmp(value, text);
}

static double number(const json_t *event, const char *member)
{
    return json_number_value(json_object_get(event, member));
}

static void test_slices(void **state)
{
    struct hr_stalls s;
    fixture_gpu(&s);
    json_t *root = parse(&s), *events = json_object_get(root, "traceEvents"), *e;
    size_t i, segments = 0, waits = 0, steps = 0;
    double end_us[2][3] = {{0}};
    json_array_foreach(events, i, e)
    {
        if (!is(e, "ph", "X"))
            continue;
        int pid = (int)number(e, "pid"), tid = (int)number(e, "tid");
        assert_in_range(pid, 0, 1);
        assert_in_range(tid, 1, 2);
        /* Slices of a track follow each other; digits beyond nanoseconds are cut off. */
        assert_true(number(e, "ts") >= end_us[pid][tid] - 0.01);
        assert_true(number(e, "dur") >= 0);
        end_us[pid][tid] = number(e, "ts") + number(e, "dur");
        segments += tid == 1;
        waits += is(e, "name", "waits");
        steps += is(e, "name", "trains");
    }
    assert_int_equal(segments, 32);
    assert_int_equal(waits, 640);
    assert_int_equal(steps, 640);
    for (int r = 0; r < 2; r++)
        assert_true(fabs(end_us[r][1] - end_us[r][2]) < 1);
    json_decref(root);
}

static void test_times(void **state)
{
    struct hr_stalls s;
    fixture_gpu(&s);
    json_t *root = parse(&s), *events = json_object_get(root, "traceEvents"), *e;
    const struct hr__segment_record *g = &s.ranks[1].segments[2];
    size_t i, at = 0;
    json_array_foreach(events, i, e)
    {
        if (!is(e, "ph", "X") || number(e, "pid") != 1 || number(e, "tid") != 1 || at++ != 2)
            continue;
        json_t *args = json_object_get(e, "args");
        assert_true(is(e, "name", "files on storage") || is(e, "name", "files in memory"));
        assert_true(fabs(number(e, "ts") - g->begin_s * 1e6) < 0.001);
        assert_true(fabs(number(e, "dur") - g->elapsed_s * 1e6) < 0.001);
        assert_true(fabs(number(args, "samples/s") - 5120 / g->elapsed_s) < 0.01);
        assert_true(json_is_true(json_object_get(args, "verified")));
    }
    assert_true(at > 2);
    json_decref(root);
}

static void test_counters(void **state)
{
    struct hr_stalls s;
    fixture_gpu(&s);
    json_t *root = parse(&s), *events = json_object_get(root, "traceEvents"), *e;
    size_t i, drains = 0, named = 0;
    json_array_foreach(events, i, e)
    {
        drains += is(e, "ph", "C") && is(e, "name", "loader alone, files on storage, 16 cores");
        named += is(e, "name", "process_name") &&
                 is(json_object_get(e, "args"), "name", "rank 1 on node-1");
    }
    assert_int_equal(drains, 4); /* beginning and end, of each rank */
    assert_int_equal(named, 1);
    assert_true(is(json_object_get(root, "otherData"), "command", s.command));
    json_decref(root);
}

static void test_hostile(void **state)
{
    struct hr_stalls s;
    fixture_hostile(&s);
    json_t *root = parse(&s);
    const char *command =
        json_string_value(json_object_get(json_object_get(root, "otherData"), "command"));
    assert_non_null(strstr(command, "</script><script>alert(1)"));
    assert_non_null(strstr(command, "\\x1B[31m\\x80\\x0A"));
    json_decref(root);
    assert_null(strchr(fixture_written(hr_stalls_write_trace, &s), '<'));
}

static void test_little(void **state)
{
    struct hr_stalls s;
    fixture_cpu(&s);
    json_t *root = parse(&s);
    assert_int_equal(json_array_size(json_object_get(root, "traceEvents")), 4);
    json_decref(root);
}

static void test_errors(void **state)
{
    struct hr_stalls s;
    struct hr_error error = {0};
    fixture_gpu(&s);
    assert_int_equal(hr_stalls_write_trace(NULL, "-", &error), -EINVAL);
    assert_int_equal(hr_stalls_write_trace(&s, "/nonexistent/trace.json", &error), -ENOENT);
    for (int n = 1; n < 20; n++) {
        hr__alloc_fail_at((uint64_t)n, 1);
        int r = hr_stalls_write_trace(&s, "/dev/null", &error);
        hr__alloc_fail_at(0, 0);
        assert_true(r == -ENOMEM || !r);
        assert_int_equal(hr__allocated(HR__TAG_REPORT), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices),   cmocka_unit_test(test_times),
        cmocka_unit_test(test_counters), cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_little),   cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
