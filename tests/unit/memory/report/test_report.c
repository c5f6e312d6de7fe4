/*
 * Reports on memory: the texts equal the files beside this one (HEADRACE_REWRITE=1 writes these
 * again) and are never wider than requested; the page is complete, safe with any names in it, and
 * the same each time; comparisons. test_browser.py opens the pages in a browser.
 */
#include "../../test.h"

#include "../../report/shown.h"
#include "base/memory.h"
#include "memory/report/assets.h"
#include "memory_fixture.h"
#include "report/assets.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct memory_fixture host = {
    .name = "mlp.hrm", .batch = 64, .iterations = 12, .odd = 7, .with_relu_kept = 1};
static const struct memory_fixture small = {
    .name = "mlp-16.hrm", .batch = 16, .iterations = 12, .odd = -1, .with_relu_kept = 1};
static const struct memory_fixture gpu = {.name = "gpu.hrm",
                                          .batch = 256,
                                          .iterations = 8,
                                          .odd = -1,
                                          .device = 1,
                                          .refuses = 1,
                                          .with_relu_kept = 1};
static const struct memory_fixture hostile = {.name = "<b>\"&\x1b[1m.hrm",
                                              .batch = 64,
                                              .iterations = 12,
                                              .odd = 7,
                                              .is_hostile = 1,
                                              .with_relu_kept = 1};
static const struct memory_fixture lean = {
    .name = "lean.hrm", .batch = 64, .iterations = 12, .odd = -1};

static const char *text_of(struct hr_memory **memories, size_t count, int columns)
{
    char path[64];
    struct hr_error error = {0};
    shown_make_path(path);
    if (hr_memory_write_text((const struct hr_memory *const *)memories, count, path, columns,
                             &error))
        fail_msg("%s", error.message);
    return shown_read(path);
}

static const char *page_of(struct hr_memory **memories, size_t count)
{
    char path[64];
    struct hr_error error = {0};
    shown_make_path(path);
    if (hr_memory_write_page((const struct hr_memory *const *)memories, count, path, &error))
        fail_msg("%s", error.message);
    return shown_read(path);
}

/* Only the record's date differs from run to run. */
static void forget_dates(char *text)
{
    regex_t date;
    regmatch_t at;
    assert_int_equal(regcomp(&date, "20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z", REG_EXTENDED), 0);
    while (!regexec(&date, text, 1, &at, 0))
        memcpy(text + at.rm_so, "YYYY-MM-DDThh:mm:ssZ", 20);
    regfree(&date);
}

static void assert_is_file(const char *text, const char *name)
{
    static char mine[65536];
    snprintf(mine, sizeof mine, "%s", text);
    forget_dates(mine);
    shown_is_file(mine, name);
}

static int count(const char *text, const char *what)
{
    int found = 0;
    for (const char *p = text; (p = strstr(p, what)); p++)
        found++;
    return found;
}

/* ---- text ---- */

static void test_text(void **state)
{
    struct hr_memory *m[2] = {memory_fixture_open(&host), memory_fixture_open(&small)};
    struct hr_memory *g = memory_fixture_open(&gpu);
    assert_is_file(text_of(m, 1, 80), "memory/report/host-80.txt");
    assert_is_file(text_of(m, 2, 100), "memory/report/sides-100.txt");
    assert_is_file(text_of(&g, 1, 120), "memory/report/gpu-120.txt");
    hr_memory_destroy(&m[0]);
    hr_memory_destroy(&m[1]);
    hr_memory_destroy(&g);
}

static void test_width(void **state)
{
    const struct memory_fixture *const all[] = {&host, &gpu, &hostile};
    for (size_t i = 0; i < 3; i++) {
        struct hr_memory *m = memory_fixture_open(all[i]);
        for (int width = 40; width <= 160; width += 30)
            assert_in_range(shown_widest(text_of(&m, 1, width)), 30, width);
        assert_in_range(shown_widest(text_of(&m, 1, 0)), 30, 40);
        assert_in_range(shown_widest(text_of(&m, 1, 10000)), 80, 160);
        hr_memory_destroy(&m);
    }
}

/* Records with the same batch size are distinguished by the ends of their files' names. */
static void test_labels(void **state)
{
    static const struct memory_fixture ranks[] = {
        {.name = "an-experiment-with-a-long-name.rank0.hrm",
         .batch = 64,
         .iterations = 4,
         .odd = -1},
        {.name = "\xC3\xA4\xC3\xB6\xC3\xBC\xC3\xA4\xC3\xB6\xC3\xBC\xC3\xA4\xC3\xB6\xC3\xBC\xC3\xA4"
                 "\xC3\xB6\xC3\xBC\xC3\xA4\xC3\xB6\xC3\xBC.rank1.hrm",
         .batch = 64,
         .iterations = 4,
         .odd = -1}};
    struct hr_memory *m[2] = {memory_fixture_open(&ranks[0]), memory_fixture_open(&ranks[1])};
    const char *text = text_of(m, 2, 80);
    assert_non_null(strstr(text, "  ...long-name.rank0.hrm  "));
    assert_non_null(strstr(text, "  ...\xC3\xA4\xC3\xB6\xC3\xBC\xC3\xA4"));
    assert_in_range(shown_widest(text), 60, 80);
    hr_memory_destroy(&m[0]);
    hr_memory_destroy(&m[1]);
}

/* Damage, and the recorder's own messages, are reported. */
static void test_damaged(void **state)
{
    struct hr_memory *m = memory_fixture_open(&hostile);
    const char *text = text_of(&m, 1, 100);
    assert_non_null(strstr(text, "What cannot be seen\n"));
    assert_non_null(strstr(text, "<svg onload=alert(1)> was compiled"));
    hr_memory_destroy(&m);
    FILE *f = fopen(memory_fixture_path(&hostile), "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, 4096 + 64 + 100, SEEK_SET), 0);
    assert_int_equal(fputc('x', f), 'x');
    fclose(f);
    struct hr_error error = {0};
    int code = hr_memory_open(&m, memory_fixture_path(&hostile), NULL, &error);
    if (!code) {
        assert_non_null(strstr(text_of(&m, 1, 100), "The file is damaged from byte"));
        hr_memory_destroy(&m);
    } else {
        assert_int_equal(code, -ENODATA);
    }
}

/* ---- the page ---- */

static json_t *data_of(const char *page)
{
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    const char *data = strstr(page, begin), *end = data ? strstr(data, "</script>") : NULL;
    json_error_t error;
    if (!end)
        return NULL;
    data += sizeof begin - 1;
    json_t *root = json_loadb(data, (size_t)(end - data), 0, &error);
    if (!root)
        fail_msg("line %d, column %d: %s", error.line, error.column, error.text);
    return root;
}

static void test_page(void **state)
{
    struct hr_memory *m[2] = {memory_fixture_open(&host), memory_fixture_open(&small)};
    const char *page = page_of(m, 2);
    assert_int_equal(strncmp(page, "<!DOCTYPE html>", 15), 0);
    assert_non_null(strstr(page, hr__memory_page_policy));
    assert_int_equal(count(page, "<section"), count(page, "</section>"));
    assert_int_equal(count(page, "<figure"), count(page, "</figure>"));
    assert_int_equal(count(page, "<details"), count(page, "</details>"));
    assert_int_equal(count(page, "<table"), count(page, "</table>"));
    assert_int_equal(strcmp(page + strlen(page) - 16, "</body>\n</html>\n"), 0);
    assert_non_null(strstr(page, "mlp/train.py:21 forward"));
    if (*hr__page_library) {
        assert_int_equal(count(page, "<canvas"), 10);
        assert_int_equal(count(page, "</script>"), 3);
    } else {
        assert_int_equal(count(page, "<canvas") + count(page, "<script"), 0);
    }
    /* The page requests nothing from anywhere. */
    assert_int_equal(count(page, "href="), count(page, "href=\"data:,\""));
    assert_int_equal(count(page, "@import") + count(page, "url("), 0);
    hr_memory_destroy(&m[0]);
    hr_memory_destroy(&m[1]);
}

static void test_page_data(void **state)
{
    struct hr_memory *m = memory_fixture_open(&host);
    json_t *root = data_of(page_of(&m, 1)), *lives = json_object_get(root, "lives");
    if (root) {
        json_t *names = json_object_get(lives, "names"), *row;
        json_t *accesses = json_object_get(lives, "accesses");
        size_t blocks = json_array_size(json_object_get(lives, "blocks")), i;
        assert_true(blocks > 10);
        assert_int_equal(json_array_size(accesses) % 4, 0);
        for (i = 0; i < json_array_size(accesses); i += 4) {
            assert_in_range(json_integer_value(json_array_get(accesses, i)), 0, blocks - 1);
            assert_in_range(json_integer_value(json_array_get(accesses, i + 3)), 0,
                            json_array_size(names) - 1);
        }
        json_array_foreach(json_object_get(lives, "blocks"), i, row)
        {
            assert_int_equal(json_array_size(row), 10);
            assert_true(json_is_null(json_array_get(row, 2)) ||
                        json_number_value(json_array_get(row, 2)) >=
                            json_number_value(json_array_get(row, 1)));
        }
        assert_int_equal(json_array_size(json_object_get(root, "iterations")), 12);
        assert_int_equal(json_array_size(json_object_get(root, "sides")), 1);
        json_decref(root);
    }
    hr_memory_destroy(&m);
}

static void test_page_same(void **state)
{
    static char first[8 << 20];
    struct hr_memory *m = memory_fixture_open(&gpu);
    strcpy(first, page_of(&m, 1));
    assert_string_equal(first, page_of(&m, 1));
    hr_memory_destroy(&m);
}

static void test_hostile(void **state)
{
    struct hr_memory *m = memory_fixture_open(&host);
    const char *page = page_of(&m, 1);
    int tags = count(page, "<"), scripts = count(page, "<script");
    hr_memory_destroy(&m);
    m = memory_fixture_open(&hostile);
    page = page_of(&m, 1);
    assert_int_equal(count(page, "<script"), scripts);
    assert_int_equal(count(page, "<img") + count(page, "<svg") + count(page, "<!--"), 0);
    assert_null(strchr(page, '\033'));
    assert_non_null(strstr(page, "&lt;/script&gt;&lt;script&gt;alert(1)"));
    /* External text creates no tags, except those of the rows that it fills. */
    assert_in_range(count(page, "<"), tags - 200, tags + 200);
    json_decref(data_of(page));
    hr_memory_destroy(&m);
}

/* ---- comparisons ---- */

static const char *difference_of(const struct hr_memory_comparison *c, int columns)
{
    char path[64];
    struct hr_error error = {0};
    shown_make_path(path);
    if (hr_memory_write_comparison_text(c, path, columns, &error))
        fail_msg("%s", error.message);
    return shown_read(path);
}

static void test_compare(void **state)
{
    struct hr_memory *before = memory_fixture_open(&host), *after = memory_fixture_open(&lean);
    struct hr_memory_comparison *c;
    json_error_t problem;
    assert_int_equal(hr_memory_compare(&c, before, after, NULL), 0);
    assert_is_file(difference_of(c, 80), "memory/report/diff-80.txt");
    json_t *root = json_loads(hr_memory_comparison_json(c), 0, &problem);
    assert_non_null(root);
    json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    json_t *groups = json_object_get(device, "groups"), *peak = json_object_get(device, "peak");
    /* Only the kept activation of 2 MiB is gone. */
    assert_int_equal(json_array_size(groups), 1);
    json_t *bytes = json_object_get(json_array_get(groups, 0), "bytes");
    assert_int_equal(json_integer_value(json_array_get(bytes, 0)), 2 << 20);
    assert_int_equal(json_integer_value(json_array_get(bytes, 1)), 0);
    json_t *same = json_object_get(peak, "parameter");
    assert_int_equal(json_integer_value(json_array_get(same, 0)), 3 << 20);
    assert_true(json_equal(json_array_get(same, 0), json_array_get(same, 1)));
    json_t *peaks = json_object_get(device, "peak_bytes");
    double was = json_number_value(json_array_get(peaks, 0));
    assert_true(was - json_number_value(json_array_get(peaks, 1)) == 2 << 20);
    assert_true(fabs(hr_memory_comparison_growth(c) + (2 << 20) / was) < 1e-12);
    json_decref(root);
    hr_memory_comparison_destroy(&c);
    assert_null(c);

    assert_int_equal(hr_memory_compare(&c, before, before, NULL), 0);
    assert_true(hr_memory_comparison_growth(c) == 0);
    assert_non_null(strstr(hr_memory_comparison_json(c), "\"groups\":[]"));
    assert_non_null(strstr(difference_of(c, 80), "is the same"));
    hr_memory_comparison_destroy(&c);
    hr_memory_destroy(&before);
    hr_memory_destroy(&after);
}

/* An edit above them moves the lines: their blocks count as the same. */
static void test_compare_moved(void **state)
{
    static const struct memory_fixture moved = {.name = "moved.hrm",
                                                .batch = 64,
                                                .iterations = 12,
                                                .odd = -1,
                                                .with_relu_kept = 1,
                                                .first_line = 100};
    struct hr_memory *before = memory_fixture_open(&host), *after = memory_fixture_open(&moved);
    struct hr_memory_comparison *c;
    assert_int_equal(hr_memory_compare(&c, before, after, NULL), 0);
    assert_non_null(strstr(hr_memory_comparison_json(c), "\"groups\":[],\"more_groups\":0"));
    assert_true(hr_memory_comparison_growth(c) == 0);
    hr_memory_comparison_destroy(&c);
    hr_memory_destroy(&before);
    hr_memory_destroy(&after);
}

/* Names cannot send codes to a terminal; blocks that appeared or disappeared are reported. */
static void test_compare_hostile(void **state)
{
    struct hr_memory *before = memory_fixture_open(&host), *after = memory_fixture_open(&hostile);
    struct hr_memory_comparison *c;
    assert_int_equal(hr_memory_compare(&c, before, after, NULL), 0);
    for (int width = 40; width <= 160; width += 30)
        assert_in_range(shown_widest(difference_of(c, width)), 38, width);
    const char *text = difference_of(c, 120);
    assert_non_null(strstr(text, "  went\n"));
    assert_non_null(strstr(text, "  came\n"));
    assert_non_null(strstr(text, "is the same, 9.75 MiB"));
    json_decref(json_loads(hr_memory_comparison_json(c), 0, NULL));
    hr_memory_comparison_destroy(&c);
    hr_memory_destroy(&before);
    hr_memory_destroy(&after);
}

/* The growth of a device that was not there before is infinite. */
static void test_compare_devices(void **state)
{
    struct hr_memory *before = memory_fixture_open(&host), *after = memory_fixture_open(&gpu);
    struct hr_memory_comparison *c;
    assert_int_equal(hr_memory_compare(&c, before, after, NULL), 0);
    assert_true(isinf(hr_memory_comparison_growth(c)) && hr_memory_comparison_growth(c) > 0);
    const char *text = difference_of(c, 60);
    assert_in_range(shown_widest(text), 40, 60);
    assert_non_null(strstr(text, "nothing was held there"));
    hr_memory_comparison_destroy(&c);
    assert_null(c);
    hr_memory_comparison_destroy(&c);
    hr_memory_destroy(&before);
    hr_memory_destroy(&after);
}

/* ---- errors ---- */

static void test_errors(void **state)
{
    struct hr_memory *m = memory_fixture_open(&host);
    const struct hr_memory *const one[] = {m};
    struct hr_memory_comparison *c;
    struct hr_error error = {0};
    int failures = 0;
    assert_int_equal(hr_memory_write_text(one, 0, "-", 80, &error), -EINVAL);
    assert_int_equal(hr_memory_write_page(NULL, 1, "-", &error), -EINVAL);
    assert_int_equal(hr_memory_write_text(one, 1, "/nonexistent/x", 80, &error), -ENOENT);
    assert_int_equal(hr_memory_write_page(one, 1, "/nonexistent/x", &error), -ENOENT);
    uint64_t before = hr__allocated(HR__TAG_MEMORY);
    for (int n = 1; n < 6000; n += n < 40 ? 1 : 211) {
        int r[4];
        hr__alloc_fail_at((uint64_t)n, 0);
        r[0] = hr_memory_write_page(one, 1, "/dev/null", &error);
        hr__alloc_fail_at((uint64_t)n, 0);
        r[1] = hr_memory_write_text(one, 1, "/dev/null", 80, &error);
        hr__alloc_fail_at((uint64_t)n, 0);
        r[2] = hr_memory_compare(&c, m, m, &error);
        hr__alloc_fail_at((uint64_t)n, 0);
        r[3] = c ? hr_memory_write_comparison_text(c, "/dev/null", 80, &error) : 0;
        hr__alloc_fail_at(0, 0);
        hr_memory_comparison_destroy(&c);
        for (int i = 0; i < 4; i++) {
            assert_true(r[i] == -ENOMEM || !r[i]);
            failures += r[i] != 0;
        }
        assert_int_equal(hr__allocated(HR__TAG_REPORT), 0);
        assert_int_equal(hr__allocated(HR__TAG_MEMORY), before);
    }
    assert_in_range(failures, 80, 6000);
    hr_memory_destroy(&m);
    assert_int_equal(hr__allocated(HR__TAG_MEMORY), 0);
}

static int clean(void **state)
{
    memory_fixture_clean();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_width),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_page_data),
        cmocka_unit_test(test_page_same),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_compare_moved),
        cmocka_unit_test(test_compare_hostile),
        cmocka_unit_test(test_compare_devices),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
