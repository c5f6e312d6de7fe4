/*
 * The rate of storage that delivers in bursts, as a throttled disk does: it is found within one per
 * cent for any phase of the bursts, while bytes over time is off by one burst.
 */
#include "../test.h"
#include "storage/steady.h"

#include <math.h>
#include <string.h>

enum { BINS = 1024 };
#define SECONDS 1.5
#define LUMP_S  0.1
#define LUMP    2700000 /* bytes */

static uint64_t bins[BINS];

static void put(double at_s, uint64_t bytes)
{
    if (at_s >= 0 && at_s < SECONDS)
        bins[(int)(at_s / SECONDS * BINS)] += bytes;
}

static double bytes_over_time(void)
{
    double sum = 0;
    for (int i = 0; i < BINS; i++)
        sum += (double)bins[i];
    return sum / SECONDS;
}

static void test_lumps(void **state)
{
    double worst = 0, plain = 0, rate = LUMP / LUMP_S;
    for (int phase = 0; phase < 40; phase++) {
        memset(bins, 0, sizeof bins);
        for (int k = -1; k < 16; k++)
            put((k + phase / 40.0) * LUMP_S, LUMP);
        /* First, the burst that was saved up while the disk was idle. */
        put(0.001, LUMP);
        double found = hr__steady_rate(bins, BINS, SECONDS / BINS);
        worst = fmax(worst, fabs(found / rate - 1));
        plain = fmax(plain, fabs(bytes_over_time() / rate - 1));
    }
    print_message("off by %.4f, bytes over time by %.4f\n", worst, plain);
    assert_true(worst < 0.01);
    assert_true(plain > 0.05);
}

static void test_even(void **state)
{
    for (int i = 0; i < BINS; i++)
        bins[i] = 90000;
    double found = hr__steady_rate(bins, BINS, SECONDS / BINS);
    assert_true(fabs(found * SECONDS / BINS / 90000 - 1) < 1e-9);
}

static void test_too_little(void **state)
{
    memset(bins, 0, sizeof bins);
    assert_true(hr__steady_rate(bins, BINS, 0.001) == 0);
    bins[1] = 5;
    assert_true(hr__steady_rate(bins, 20, 0.001) == 0);
    assert_true(hr__steady_rate(bins, 0, 0.001) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lumps),
        cmocka_unit_test(test_even),
        cmocka_unit_test(test_too_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
