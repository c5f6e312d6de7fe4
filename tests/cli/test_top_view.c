/*
 * headrace top without a terminal: computes rates and lines from two statuses, and compares them
 * with golden files (tests/cli/top). With HEADRACE_GOLDEN=write it writes the golden files instead;
 * read their differences before you commit them.
 */
#include "../unit/test.h"

#include "top_rates.h"
#include "top_view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void place(char *path, size_t capacity, const char *name)
{
    snprintf(path, capacity, "%s/tests/cli/top/%s", getenv("HEADRACE_SOURCE_ROOT"), name);
}

static json_t *status(const char *name)
{
    char path[4096];
    json_error_t error;
    place(path, sizeof path, name);
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    return root;
}

/* Returns the lines as one text; titles begin with a *. */
static char *drawn(const json_t *root, size_t columns)
{
    struct top_view view;
    char *text;
    size_t length;
    assert_int_equal(top_view_make(&view, root, columns), 0);
    FILE *out = open_memstream(&text, &length);
    for (size_t i = 0; i < view.count; i++)
        fprintf(out, "%s%s\n", view.lines[i].is_title ? "*" : "", view.lines[i].text);
    fclose(out);
    top_view_clear(&view);
    return text;
}

static void compare(const json_t *root, size_t columns, const char *name)
{
    char path[4096], golden[16384];
    char *text = drawn(root, columns);
    const char *asked = getenv("HEADRACE_GOLDEN");
    int writes = asked && !strcmp(asked, "write");
    place(path, sizeof path, name);
    FILE *file = fopen(path, writes ? "w" : "r");
    if (!file)
        fail_msg("%s cannot be opened", path);
    if (writes) {
        fputs(text, file);
    } else {
        golden[fread(golden, 1, sizeof golden - 1, file)] = 0;
        assert_string_equal(text, golden);
    }
    fclose(file);
    free(text);
}

static void test_lines(void **state)
{
    json_t *before = status("before.json"), *after = status("after.json");
    assert_int_equal(top_add_rates(after, before), 0);
    compare(after, 80, "80.txt");
    compare(after, 120, "120.txt");
    compare(after, 20, "60.txt"); /* at least 60 */
    assert_int_equal(top_add_rates(before, NULL), 0);
    compare(before, 80, "first.txt");
    json_decref(before);
    json_decref(after);
}

/* Loaders without an agent: one at work, one that published nothing in the interval, one that
 * was not there before. */
static void test_loaders(void **state)
{
    json_t *before = status("loaders_before.json"), *after = status("loaders_after.json");
    assert_int_equal(top_add_rates(before, NULL), 0);
    assert_int_equal(top_add_rates(after, before), 0);
    compare(after, 80, "loaders.txt");
    const json_t *first = json_array_get(json_object_get(after, "loaders"), 0);
    assert_float_equal(top_number(first, "seconds"), 2, 1e-9);
    assert_float_equal(top_number(first, "samples_per_s"), 1280, 1e-9);
    assert_float_equal(top_number(first, "read_bytes_per_s"), 50e6, 1e-3);
    assert_float_equal(top_number(first, "hit_share"), 0.25, 1e-9);
    assert_float_equal(top_number(first, "wait_share"), 0.5, 1e-9);
    assert_float_equal(top_number(first, "busy_threads"), 3.5, 1e-9);
    /* No news: its rates stay. */
    json_t *later = json_deep_copy(after);
    assert_int_equal(top_add_rates(later, after), 0);
    first = json_array_get(json_object_get(later, "loaders"), 0);
    assert_float_equal(top_number(first, "samples_per_s"), 1280, 1e-9);
    json_decref(later);
    json_decref(before);
    json_decref(after);
    /* What is no loader is shown as unknown. */
    json_t *odd = json_loads("{\"loaders\":[3,null,[],{},{\"pid\":\"x\"}]}", 0, NULL);
    assert_int_equal(top_add_rates(odd, NULL), 0);
    free(drawn(odd, 80));
    json_decref(odd);
}

/* No line is longer than the requested width. */
static void test_widths(void **state)
{
    json_t *before = status("before.json"), *after = status("after.json");
    assert_int_equal(top_add_rates(after, before), 0);
    for (size_t columns = 60; columns < 260; columns += 7) {
        char *text = drawn(after, columns), *rest = text, *line;
        while ((line = strsep(&rest, "\n"))) {
            size_t width = 0;
            for (char *p = line + (*line == '*'); *p; p++)
                width += ((unsigned char)*p & 0xC0) != 0x80;
            assert_in_range(width, 0, columns);
        }
        free(text);
    }
    json_decref(before);
    json_decref(after);
}

static double rate(const json_t *root, size_t stream, size_t queue, int subscriber, const char *key)
{
    const json_t *at = json_array_get(
        json_object_get(json_array_get(json_object_get(root, "streams"), stream), "queues"), queue);
    if (subscriber >= 0)
        at = json_array_get(json_object_get(at, "subscribers"), (size_t)subscriber);
    const json_t *value = json_object_get(at, key);
    assert_non_null(value);
    return json_is_null(value) ? (double)NAN : json_number_value(value);
}

static void near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-6 * fabs(expected)))
        fail_msg("%.9g is not %.9g", value, expected);
}

static void test_rates(void **state)
{
    json_t *before = status("before.json"), *after = status("after.json");
    assert_int_equal(top_add_rates(after, before), 0);
    near(json_number_value(json_object_get(after, "seconds")), 2);
    near(json_number_value(json_object_get(after, "cpu_cores")), 2.71);
    near(json_number_value(json_object_get(after, "samples_per_s")), 1214);
    near(json_number_value(json_object_get(after, "read_bytes_per_s")), 42.3e6);
    near(rate(after, 0, 0, -1, "samples_per_s"), 1204);
    near(rate(after, 0, 0, -1, "hit_share"), 2336.0 / 2408);
    near(rate(after, 0, 0, -1, "prepare_per_sample_s"), 2.58 / 2408);
    near(rate(after, 0, 0, -1, "busy_threads"), 1.29);
    near(rate(after, 0, 0, 0, "samples_per_s"), 602);
    near(rate(after, 0, 0, 1, "wait_share"), 0.1);
    near(rate(after, 1, 0, 0, "wait_share"), 1); /* no counter changed, and it waits */
    /* A new subscriber has no rates yet. */
    assert_true(isnan(rate(after, 0, 1, -1, "samples_per_s")));
    assert_true(isnan(rate(after, 0, 1, 0, "wait_share")));
    json_decref(after);
    /* Another agent, or restarted counters. */
    after = status("after.json");
    json_object_set_new(after, "pid", json_integer(1));
    assert_int_equal(top_add_rates(after, before), 0);
    assert_true(json_is_null(json_object_get(after, "samples_per_s")));
    assert_true(isnan(rate(after, 0, 0, -1, "samples_per_s")));
    json_object_set_new(after, "pid", json_integer(4242));
    assert_int_equal(top_add_rates(before, after), 0);
    assert_true(json_is_null(json_object_get(before, "cpu_cores")));
    json_decref(before);
    json_decref(after);
}

/* Several loaders of one process are distinguished by their order. */
static void test_one_process(void **state)
{
    static const char text[] =
        "{\"pid\":1,\"uptime_s\":%d,\"streams\":[{\"queues\":[{\"queue\":1,\"subscribers\":["
        "{\"pid\":7,\"rank\":0,\"samples\":%d},{\"pid\":7,\"rank\":0,\"samples\":%d}]}]}]}";
    char first[512], second[512];
    snprintf(first, sizeof first, text, 1, 100, 200);
    snprintf(second, sizeof second, text, 2, 110, 230);
    json_t *before = json_loads(first, 0, NULL), *after = json_loads(second, 0, NULL);
    assert_int_equal(top_add_rates(after, before), 0);
    near(rate(after, 0, 0, 0, "samples_per_s"), 10);
    near(rate(after, 0, 0, 1, "samples_per_s"), 30);
    json_decref(before);
    json_decref(after);
}

/* The sentence about the slow side follows the measurements. */
static void test_slow_side(void **state)
{
    static const struct {
        const char *waits_for, *says;
        double ready, waited, prepare_s; /* of 100 samples; share of the interval; of 4 threads in 2
                                            s */
    } cases[] = {
        {"room", "the queue is full", 83, 0, 1},
        {"room", "waits for the jobs that are behind", 19, 0, 1},
        {"prepare", "preparation is the slow side", 0, 0.5, 6},
        {"prepare", "the threads are not busy", 0, 0.5, 1.6},
        {"prepare", NULL, 0, 0.01, 6},
        {"fetch", "storage is the slow side", 0, 0.5, 1},
        {"fetch", NULL, 0, 0.01, 1},
    };
    static const char *const sides[] = {"slow side", "waits for the jobs", "not busy"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *at[2];
        for (int k = 0; k < 2; k++) {
            at[k] = json_pack(
                "{s:i,s:i,s:i,s:[{s:[{s:i,s:s,s:f,s:i,s:f,s:i,s:f,s:[{s:i,s:i,s:f,s:f,s:i}]}]}]}",
                "pid", 1, "uptime_s", 2 * k, "threads", 4, "streams", "queues", "queue", 1,
                "waits_for", cases[i].waits_for, "ready_samples", cases[i].ready, "window_samples",
                100, "prepare_s", k * cases[i].prepare_s, "prepared", k * 100, "fetch_s", 0.0,
                "subscribers", "pid", 7, "rank", 0, "wait_s", 2 * k * cases[i].waited, "step_s",
                2 * k * (1 - cases[i].waited), "samples", k * 100);
            assert_non_null(at[k]);
        }
        assert_int_equal(top_add_rates(at[1], at[0]), 0);
        char *text = drawn(at[1], 80);
        for (size_t s = 0; s < sizeof sides / sizeof *sides; s++)
            if (!cases[i].says && strstr(text, sides[s]))
                fail_msg("case %zu: %s", i, text);
        if (cases[i].says && !strstr(text, cases[i].says))
            fail_msg("case %zu: %s", i, text);
        free(text);
        json_decref(at[0]);
        json_decref(at[1]);
    }
}

/* Missing or invalid values are displayed harmlessly. */
static void test_odd(void **state)
{
    static const char *const odd[] = {
        "{}",
        "{\"streams\":[{\"queues\":[{}]}]}",
        "{\"streams\":[{\"name\":\"\\u001b[2J\\n\",\"queues\":[{\"subscribers\":[{},{}]}]}]}",
        "{\"pid\":-1e300,\"uptime_s\":1e300,\"threads\":-5,\"streams\":[{\"queues\":[{\"queue\":1,"
        "\"ready_samples\":1e300,\"window_samples\":-1,\"position\":1e300,\"rank\":1e300,"
        "\"epoch_samples\":0,\"subscribers\":[{\"pid\":1e300,\"batch_samples\":-1}]}]}]}",
        "{\"streams\":7,\"cache\":[]}",
        "{\"streams\":[[],null,{\"queues\":3},{\"queues\":[null,[]]}]}",
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        json_t *root = json_loads(odd[i], 0, NULL), *again = json_deep_copy(root);
        assert_non_null(root);
        top_add_rates(root, NULL);
        top_add_rates(again, root);
        char *text = drawn(again, 80);
        for (char *p = text; *p; p++)
            assert_true((unsigned char)*p >= 0x20 || *p == '\n');
        free(text);
        json_decref(root);
        json_decref(again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),       cmocka_unit_test(test_loaders),
        cmocka_unit_test(test_widths),      cmocka_unit_test(test_rates),
        cmocka_unit_test(test_one_process), cmocka_unit_test(test_slow_side),
        cmocka_unit_test(test_odd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
