/*
 * The text equals the files beside this one and is never wider than requested. HEADRACE_REWRITE=1
 * writes those files again.
 */
#include "../../test.h"

#include "../../report/shown.h"
#include "base/memory.h"
#include "fixture.h"
#include "report/format.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static int columns;

static int write_text(const struct hr_stalls *stalls, const char *path, struct hr_error *error)
{
    return hr_stalls_write_text(stalls, path, columns, error);
}

static const char *text_of(const struct hr_stalls *stalls, int width)
{
    columns = width;
    return fixture_written(write_text, stalls);
}

static void test_exact(void **state)
{
    struct hr_stalls s;
    fixture_gpu(&s);
    shown_is_file(text_of(&s, 80), "stalls/report/gpu-80.txt");
    shown_is_file(text_of(&s, 120), "stalls/report/gpu-120.txt");
    fixture_cpu(&s);
    shown_is_file(text_of(&s, 80), "stalls/report/cpu-80.txt");
}

/* Unknown values have no figure, unverified ones are marked, and without any statement there are no
 * shares at all. */
static void test_unknown(void **state)
{
    struct hr_stalls s;
    fixture_gpu(&s);
    s.summary.share[3] = (struct hr_interval){0.193, 0, 0.43};
    s.summary.measured[HR_STALLS_COLD] = 0;
    const char *text = text_of(&s, 120);
    assert_non_null(strstr(text, "  waiting for preparation, not verified"));
    assert_non_null(
        strstr(text, "  waiting for storage, not verified      not known   0.0 to 43.0 %"));
    assert_null(strstr(text, "19.3 %"));
    fixture_gpu(&s);
    s.network = true;
    text = text_of(&s, 120);
    assert_non_null(strstr(text, "An epoch over the network"));
    assert_non_null(strstr(text, "waiting for its loader"));
    assert_non_null(strstr(text, "training, over the network"));
    fixture_gpu(&s);
    strcpy(s.cannot_tell, "figures contradict each other");
    assert_null(strstr(text_of(&s, 120), "An epoch from"));
}

/* Short epochs are slower than their steps. */
static void test_starts(void **state)
{
    struct hr_stalls s;
    char rate[HR__FORMAT_BYTES];
    fixture_gpu(&s);
    s.epoch_batches = 20;
    s.epoch_start_each = true;
    s.epoch_start_s = 20 * s.step_s[HR_STALLS_WARM].value;
    hr__format_rate(rate, s.summary.rate[HR_STALLS_WARM].value / 2);
    const char *row = strstr(text_of(&s, 120), "training, files in memory");
    assert_non_null(row);
    row = strstr(row, "with the starts of its epochs");
    assert_non_null(row);
    assert_int_equal(strspn(row + strlen("with the starts of its epochs"), " ") +
                         strlen("with the starts of its epochs"),
                     (size_t)(strstr(row, rate) - row));
    s.epoch_start_each = false;
    assert_null(strstr(text_of(&s, 120), "with the starts"));
}

static void test_width(void **state)
{
    struct hr_stalls s;
    for (int kind = 0; kind < 3; kind++)
        for (int width = 40; width <= 160; width += 7) {
            void (*const make[])(struct hr_stalls *) = {fixture_gpu, fixture_cpu, fixture_hostile};
            make[kind](&s);
            assert_in_range(shown_widest(text_of(&s, width)), 30, width);
        }
    assert_in_range(shown_widest(text_of(&s, 0)), 30, 40);
    assert_in_range(shown_widest(text_of(&s, 10000)), 100, 160);
}

static void test_many_ranks(void **state)
{
    static struct hr__rank_record ranks[100];
    static struct hr_interval waiting[100], alone[100];
    static bool straggles[100];
    struct hr_stalls s;
    fixture_gpu(&s);
    for (int i = 0; i < 100; i++) {
        ranks[i] = (struct hr__rank_record){.rank = i, .first_batch_s = NAN};
        waiting[i] = (struct hr_interval){i == 7 ? NAN : 0.001 * ((i * 37) % 100), NAN, NAN};
        alone[i] = (struct hr_interval){NAN, NAN, NAN};
    }
    straggles[50] = true; /* waits 0.05: the median, and shown all the same */
    s.ranks = ranks;
    s.rank_count = s.world_size = 100;
    s.waiting = waiting;
    s.alone_s = alone;
    s.straggles = straggles;
    const char *text = text_of(&s, 80);
    assert_non_null(strstr(text, "\n  50, straggles"));
    assert_non_null(strstr(text, "\n  ... 83 more between these\n"));
    assert_non_null(strstr(text, " 9.9 % "));
    assert_non_null(strstr(text, " 0.0 % "));
    assert_null(strstr(text, " 4.9 % "));
}

static void test_errors(void **state)
{
    struct hr_stalls s;
    struct hr_error error = {0};
    fixture_gpu(&s);
    assert_int_equal(hr_stalls_write_text(NULL, "-", 80, &error), -EINVAL);
    assert_int_equal(hr_stalls_write_text(&s, NULL, 80, &error), -EINVAL);
    assert_int_equal(hr_stalls_write_text(&s, "/nonexistent/x", 80, &error), -ENOENT);
    int failures = 0;
    for (int n = 1; n < 2000; n += n < 60 ? 1 : 13) {
        hr__alloc_fail_at((uint64_t)n, 0);
        int r = hr_stalls_write_text(&s, "/dev/null", 80, &error);
        hr__alloc_fail_at(0, 0);
        assert_true(r == -ENOMEM || !r);
        failures += r != 0;
        assert_int_equal(hr__allocated(HR__TAG_REPORT), 0);
    }
    assert_in_range(failures, 20, 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),      cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_starts),     cmocka_unit_test(test_width),
        cmocka_unit_test(test_many_ranks), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
