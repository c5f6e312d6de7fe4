/*
 * The paper's model compared with numbers computed by hand, and with the shape of its one published
 * figure: AlexNet, for which a cache of half the dataset suffices.
 */
#include "stalls/model/model.h"

#include "close.h"

#include <math.h>

static void test_equations(void **state)
{
    /* D = 1,000 samples, x = 0.25: T_f = 250 / 5000 + 750 / 500 = 1.55 s. */
    struct hr__reference r = {.device_rate = 2000,
                              .prepare_rate = 900,
                              .cache_rate = 5000,
                              .storage_rate = 500,
                              .cached = 0.25};
    assert_close(hr__reference_fetch_rate(&r), 1000 / 1.55, 1e-9);
    assert_close(hr__reference_speed(&r), 1000 / 1.55, 1e-9);
    r.cached = 1;
    assert_close(hr__reference_fetch_rate(&r), 5000, 1e-9);
    assert_close(hr__reference_speed(&r), 900, 1e-9);
    r.cached = 0;
    assert_close(hr__reference_speed(&r), 500, 1e-9);
    r.device_rate = 100;
    assert_close(hr__reference_speed(&r), 100, 1e-9);
}

static void test_smallest_cache(void **state)
{
    /* Preparation at 2,000/s hides storage at 1,000/s from half the dataset on (and a
     * cache too fast to matter): 1/2000 = (1 - x) / 1000. */
    struct hr__reference r = {
        .device_rate = 6000, .prepare_rate = 2000, .cache_rate = INFINITY, .storage_rate = 1000};
    r.cached = 0.5;
    assert_close(hr__reference_speed(&r), 2000, 1e-9);
    r.cached = 0.49;
    assert_true(hr__reference_speed(&r) < 2000);
    r.cached = 0.6;
    assert_close(hr__reference_speed(&r), 2000, 1e-9);
}

static void test_unknown(void **state)
{
    struct hr__reference r = {
        .device_rate = 100, .prepare_rate = NAN, .cache_rate = NAN, .storage_rate = 300};
    assert_close(hr__reference_speed(&r), 100, 0);
    r.storage_rate = 0;
    assert_close(hr__reference_speed(&r), 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equations),
        cmocka_unit_test(test_smallest_cache),
        cmocka_unit_test(test_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
