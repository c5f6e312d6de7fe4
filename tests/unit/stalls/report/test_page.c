/*
 * The page: complete, safe with any names in it, its data is JSON, its scripts are those that its
 * policy allows. test_browser.py opens it in a browser.
 */
#include "../../test.h"

#include "base/memory.h"
#include "fixture.h"
#include "report/assets.h"
#include "stalls/report/assets.h"
#include "stalls/report/page_data.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int count(const char *text, const char *what)
{
    int found = 0;
    for (const char *p = text; (p = strstr(p, what)); p++)
        found++;
    return found;
}

static json_t *data_of(const struct hr_stalls *stalls)
{
    struct hr__page_data data;
    struct hr__draft draft = {.text = NULL};
    json_error_t error;
    hr__page_data_make(&data, stalls);
    hr__page_data_json(&data, &draft);
    assert_false(draft.failed);
    json_t *root = json_loads(draft.text, 0, &error);
    if (!root)
        fail_msg("line %d, column %d: %s", error.line, error.column, error.text);
    hr__draft_clear(&draft);
    return root;
}

static double at(json_t *array, size_t i)
{
    return json_number_value(json_array_get(array, i));
}

static void test_data(void **state)
{
    struct hr_stalls s;
    fixture_gpu(&s);
    json_t *root = data_of(&s), *cache = json_object_get(root, "cache"), *point;
    json_t *rows = json_object_get(json_object_get(root, "split"), "rows");
    assert_int_equal(json_array_size(rows), 2);
    json_t *values = json_object_get(json_array_get(rows, 0), "values");
    assert_true(fabs(at(values, 0) + at(values, 1) + at(values, 2) + at(values, 3) - 1) < 1e-4);
    json_t *curves = json_object_get(cache, "curves");
    assert_int_equal(json_array_size(curves), 2);
    for (size_t c = 0; c < 2; c++) {
        json_t *points = json_object_get(json_array_get(curves, c), "points");
        assert_int_equal(json_array_size(points), 11);
        point = json_array_get(points, 10);
        assert_true(fabs(at(point, 0) - 1) < 1e-9);
        assert_true(fabs(at(point, 1) - s.summary.rate[HR_STALLS_WARM].value) < 0.01);
        assert_true(at(point, 2) < at(point, 1) && at(point, 3) > at(point, 1));
    }
    json_t *cores = json_object_get(json_object_get(root, "cores"), "curves");
    json_t *points = json_object_get(json_array_get(cores, 0), "points");
    const double expected[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    assert_int_equal(json_array_size(points), 10);
    for (size_t i = 0; i < 10; i++) {
        assert_true(at(json_array_get(points, i), 0) == expected[i]);
        assert_true(at(json_array_get(points, i), 4) == (expected[i] > 16));
    }
    /* training, and the loader alone at three numbers of cores */
    assert_int_equal(json_array_size(json_object_get(json_object_get(root, "cores"), "measured")),
                     4);
    json_t *cold = json_object_get(root, "cold");
    assert_int_equal(json_array_size(json_object_get(cold, "wait_s")), 20);
    assert_int_equal(json_array_size(json_object_get(cold, "batch_s")), 20);
    assert_int_equal(json_array_size(json_object_get(root, "ranks")), 2);
    double needed = json_number_value(json_object_get(json_object_get(root, "storage"), "needed"));
    assert_true(fabs(needed - 5120 * 140.5e9 / 1281167) < 1);
    json_decref(root);
}

static void test_cores_of_odd_machines(void **state)
{
    struct hr_stalls s;
    for (int cores = 1; cores <= 1024; cores = cores * 3 / 2 + 1) {
        struct hr__curves curves;
        bool there = false;
        fixture_gpu(&s);
        s.summary.cores = cores;
        hr__curves_cores(&curves, &s);
        const struct hr__curve *c = &curves.curve[0];
        assert_in_range(c->count, 2, HR__CURVE_POINTS);
        for (int i = 0; i < c->count; i++) {
            assert_true(i == 0 || c->x[i] > c->x[i - 1]);
            there |= c->x[i] == cores;
        }
        assert_true(there);
    }
}

static void test_whole(void **state)
{
    struct hr_stalls s;
    fixture_gpu(&s);
    const char *page = fixture_written(hr_stalls_write_page, &s);
    assert_int_equal(strncmp(page, "<!DOCTYPE html>", 15), 0);
    assert_non_null(strstr(page, "<h1>Training waits 41 % of the time"));
    assert_non_null(strstr(page, hr__stalls_page_policy));
    assert_int_equal(count(page, "<section"), count(page, "</section>"));
    assert_int_equal(count(page, "<figure"), count(page, "</figure>"));
    assert_int_equal(count(page, "<div"), count(page, "</div>"));
    assert_int_equal(count(page, "<details"), count(page, "</details>"));
    assert_int_equal(count(page, "<table"), count(page, "</table>"));
    assert_int_equal(strcmp(page + strlen(page) - 16, "</body>\n</html>\n"), 0);
    if (*hr__page_library) {
        assert_int_equal(count(page, "<canvas"), 7);
        assert_int_equal(count(page, "</script>"), 3);
        assert_non_null(strstr(page, "Permission is hereby granted"));
    } else {
        assert_int_equal(count(page, "<canvas") + count(page, "<script"), 0);
        assert_int_equal(count(page, "<details"), 1);
    }
    /* The page requests nothing from anywhere. */
    assert_int_equal(count(page, " src="), 0);
    assert_int_equal(count(page, "href="), count(page, "href=\"data:,\""));
    assert_int_equal(count(page, "@import") + count(page, "url("), 0);
}

static void test_hostile(void **state)
{
    struct hr_stalls s;
    fixture_gpu(&s);
    const char *page = fixture_written(hr_stalls_write_page, &s);
    int tags = count(page, "<"), scripts = count(page, "<script");
    fixture_hostile(&s);
    page = fixture_written(hr_stalls_write_page, &s);
    assert_int_equal(count(page, "<script"), scripts);
    assert_int_equal(count(page, "<img"), 0);
    assert_int_equal(count(page, "<!--"), 0);
    assert_null(strchr(page, '\033'));
    assert_non_null(strstr(page, "&lt;/script&gt;&lt;script&gt;alert(1)"));
    /* External text creates no tags, except those of the rows that it fills. */
    int rows = count(page, "<tr>") * 4 + count(page, "<li>") * 4 + 60;
    assert_in_range(count(page, "<"), tags, tags + rows);
    json_t *root = data_of(&s);
    json_decref(root);
}

static void test_little(void **state)
{
    struct hr_stalls s;
    fixture_cpu(&s);
    const char *page = fixture_written(hr_stalls_write_page, &s);
    assert_non_null(strstr(page, "Nothing can be predicted: training from storage was not "
                                 "measured: &lt;/p&gt;&lt;b&gt;run it again"));
    assert_int_equal(count(page, "<canvas"), 0);
    assert_non_null(strstr(page, "12.0 MiB were read from storage"));
    json_decref(data_of(&s));
}

static void test_without_storage(void **state)
{
    struct hr_stalls s;
    fixture_warm(&s);
    const char *page = fixture_written(hr_stalls_write_page, &s);
    assert_non_null(strstr(page, "Not everything can be predicted: training from storage was not"));
    assert_non_null(strstr(page, "as it is, files in memory"));
    assert_non_null(strstr(page, "Headrace&#39;s loader, files in memory"));
    assert_null(strstr(page, "id=\"chart-cache\"")); /* one point is no curve */
    assert_null(strstr(page, "id=\"chart-cold\""));
    assert_null(strstr(page, "id=\"chart-storage\""));
    assert_null(strstr(page, "<div></div>"));
    if (*hr__page_library)
        assert_non_null(strstr(page, "id=\"chart-cores\""));
    json_decref(data_of(&s));
}

/* Unknown figures are not drawn either; unverified ones are marked, and no marks are on curves. */
static void test_unknown(void **state)
{
    struct hr_stalls s;
    fixture_gpu(&s);
    s.summary.measured[HR_STALLS_COLD] = 0;
    const char *html = fixture_written(hr_stalls_write_page, &s);
    assert_non_null(strstr(html, "waiting for storage, not verified"));
    if (strstr(html, "id=\"data\"")) {
        assert_non_null(strstr(html, "\"name\":\"epoch from storage, not verified\""));
        assert_null(strstr(html, "\"name\":\"measured, files on storage\""));
    }
    for (int i = 0; i < 4; i++)
        s.summary.share[i] = (struct hr_interval){0.25, 0, 1};
    for (int i = 0; i < 3; i++)
        s.summary.warm_share[i] = (struct hr_interval){0.3, 0, 1};
    html = fixture_written(hr_stalls_write_page, &s);
    assert_null(strstr(html, "id=\"chart-split\""));
    assert_null(strstr(html, "\"name\":\"epoch from"));
    assert_non_null(strstr(html, "not known"));
}

static void test_errors(void **state)
{
    struct hr_stalls s;
    struct hr_error error = {0};
    int failures = 0;
    fixture_gpu(&s);
    assert_int_equal(hr_stalls_write_page(NULL, "-", &error), -EINVAL);
    assert_int_equal(hr_stalls_write_page(&s, "/nonexistent/page.html", &error), -ENOENT);
    for (int n = 1; n < 8000; n += n < 40 ? 1 : 211) {
        hr__alloc_fail_at((uint64_t)n, 0);
        int r = hr_stalls_write_page(&s, "/dev/null", &error);
        hr__alloc_fail_at(0, 0);
        assert_true(r == -ENOMEM || !r);
        failures += r != 0;
        assert_int_equal(hr__allocated(HR__TAG_REPORT), 0);
    }
    assert_in_range(failures, 40, 8000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data),    cmocka_unit_test(test_cores_of_odd_machines),
        cmocka_unit_test(test_whole),   cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_little),  cmocka_unit_test(test_without_storage),
        cmocka_unit_test(test_unknown), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
