/*
 * The row kernels of the filters on bytes: every version gives the bits of the plain one, for rows
 * of every length, and writes nothing past them. Also the moments of the normal numbers.
 */
#include "recipe_cases.h"

#include "recipe/byte_rows.h"

#define LONGEST 200
#define MARGIN  40

struct byte_sample {
    uint8_t plane[3][LONGEST + 2 * MARGIN];
    float line[9][LONGEST + 2 * MARGIN];
};

static void sample_make(struct byte_sample *s, uint64_t seed)
{
    struct hr__random r;
    hr__random_init(&r, seed, 0, 0, 0);
    for (int i = 0; i < LONGEST + 2 * MARGIN; i++) {
        uint64_t kind = hr__random_below(&r, 6);
        for (int c = 0; c < 3; c++) {
            s->plane[c][i] = (uint8_t)hr__random_below(&r, 256);
            if (kind == 0)
                s->plane[c][i] = hr__random_below(&r, 2) ? 255 : 0;
            if (kind == 1)
                s->plane[c][i] = s->plane[0][i];
        }
        for (int k = 0; k < 9; k++)
            s->line[k][i] = (float)hr__random_range(&r, 0, 255);
    }
}

/* Runs all kernels on a row of n pixels, one after the other. */
static void run_all(const struct hr__byte_rows *rows, struct byte_sample *s, int n, int round)
{
    uint8_t *r = s->plane[0] + MARGIN, *g = s->plane[1] + MARGIN, *b = s->plane[2] + MARGIN;
    uint8_t table[256], grey[LONGEST] = {0}, smooth[LONGEST] = {0};
    float factor = 0.11f * (float)(round % 21), weight[5] = {0.3f, 0.2f, 0.1f, 0.04f, 0.01f};
    const float *lines[9], mean_sigma[2] = {3.3f, 40};
    for (int v = 0; v < 256; v++)
        table[v] = (uint8_t)(v * 7 + round);
    for (int k = 0; k < 9; k++)
        lines[k] = s->line[k] + MARGIN;
    rows->hue(r, g, b, n, (float)(round % 11 - 5) * 0.1f);
    rows->grey(r, g, b, n, grey);
    rows->blend_grey(r, grey, n, factor, 1 - factor);
    rows->blend_grey(g, grey, n, factor, 1 - factor);
    rows->smooth(r, g, b, n, smooth);
    rows->sharpen(g, smooth, n, 1 - factor, b);
    rows->table(r, n, table);
    rows->reverse(r, n, smooth);
    memcpy(r, smooth, (size_t)n);
    rows->floats(g, n, s->line[5] + MARGIN);
    rows->blur_along(s->line[0] + MARGIN, n, weight, 4, s->line[1] + MARGIN);
    rows->blur_across(lines, n, weight, 4, g);
    rows->mix(s->line[2] + MARGIN, b, n, 0.37f);
    rows->noise(b, s->line[3] + MARGIN, n, mean_sigma, round & 1);
    rows->normal(17 + (uint64_t)round, (const uint32_t[2]){1, (uint32_t)round}, 64, 2, s->line[4]);
}

static void versions_are_equal(void **state)
{
    static struct byte_sample plain, fast, start;
    for (int n = 1; n <= LONGEST; n++) {
        sample_make(&start, (uint64_t)n);
        plain = start;
        run_all(&hr__byte_rows_portable, &plain, n, n);
        for (int isa = 1; isa <= (int)hr__isa(); isa++) {
            fast = start;
            run_all(hr__byte_rows((enum hr__isa)isa), &fast, n, n);
            assert_memory_equal(&plain, &fast, sizeof plain);
        }
        for (int c = 0; c < 3; c++) {
            assert_memory_equal(plain.plane[c], start.plane[c], MARGIN);
            assert_memory_equal(plain.plane[c] + MARGIN + n, start.plane[c] + MARGIN + n,
                                sizeof plain.plane[c] - MARGIN - (size_t)n);
        }
    }
}

/* Division by 13, rounded, for every sum that bytes have. */
static void smoothing_is_exact(void **state)
{
    uint8_t rows[3][3], out;
    for (int sum = 0; sum <= 13 * 255; sum++) {
        int centre = sum / 13, rest = sum - 5 * centre;
        for (int i = 0; i < 9; i++) {
            if (i == 4)
                continue;
            int part = rest < 255 ? rest : 255;
            rows[i / 3][i % 3] = (uint8_t)part;
            rest -= part;
        }
        rows[1][1] = (uint8_t)centre;
        if (rest)
            continue;
        hr__byte_rows_portable.smooth(rows[0] + 1, rows[1] + 1, rows[2] + 1, 1, &out);
        assert_int_equal(out, (int)floor(sum / 13.0 + 0.5));
    }
}

/* Mean, variance, skewness and kurtosis, and the shares beyond 1 to 4 deviations. */
static void normal_numbers(void **state)
{
    enum { BLOCKS = 64, ROWS = 1000, N = BLOCKS * HR__NORMAL_BLOCK };
    static float z[N];
    double sum[5] = {0}, beyond[5] = {0}, n = (double)ROWS * N;
    for (uint32_t y = 0; y < ROWS; y++) {
        hr__byte_rows(hr__isa())->normal(99, (const uint32_t[2]){2, y}, 0, BLOCKS, z);
        for (int i = 0; i < N; i++) {
            double v = z[i], power = 1;
            assert_true(fabs(v) < 6);
            for (int k = 1; k < 5; k++) {
                power *= v;
                sum[k] += power / n;
                beyond[k] += fabs(v) > k;
            }
        }
    }
    assert_true(fabs(sum[1]) < 5 / sqrt(n) && fabs(sum[2] - 1) < 5 * sqrt(2 / n));
    assert_true(fabs(sum[3]) < 5 * sqrt(15 / n) && fabs(sum[4] - 3) < 5 * sqrt(96 / n));
    for (int k = 1; k < 5; k++) {
        double share = erfc(k / sqrt(2));
        assert_true(fabs(beyond[k] - n * share) < 5 * sqrt(n * share));
    }
}

/* A row's numbers do not depend on where the first block begins. */
static void numbers_belong_to_places(void **state)
{
    const uint32_t channel_row[2] = {1, 7};
    float all[4 * HR__NORMAL_BLOCK], part[HR__NORMAL_BLOCK];
    hr__byte_rows(hr__isa())->normal(5, channel_row, 0, 4, all);
    for (uint32_t k = 0; k < 4; k++) {
        hr__byte_rows(hr__isa())->normal(5, channel_row, k * HR__NORMAL_BLOCK, 1, part);
        assert_memory_equal(part, all + (size_t)k * HR__NORMAL_BLOCK, sizeof part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_are_equal),
        cmocka_unit_test(smoothing_is_exact),
        cmocka_unit_test(normal_numbers),
        cmocka_unit_test(numbers_belong_to_places),
    };
    return cmocka_run_group_tests_name("byte_rows", tests, NULL, NULL);
}
