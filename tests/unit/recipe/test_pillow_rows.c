/*
 * The row kernels of Pillow's filters: every version gives the bits of the plain one, for rows of
 * every length, and writes nothing past them. tests/python/test_timm.py compares with Pillow.
 */
#include "recipe_cases.h"

#include "recipe/pillow_rows.h"

#define LONGEST 200
#define MARGIN  40
#define ROWS    9

struct pillow_sample {
    uint8_t row[ROWS][LONGEST + 2 * MARGIN];
};

static void sample_make(struct pillow_sample *s, struct hr__random *r)
{
    for (int k = 0; k < ROWS; k++)
        for (int i = 0; i < LONGEST + 2 * MARGIN; i++)
            s->row[k][i] = (uint8_t)(hr__random_below(r, 5) ? hr__random_below(r, 256)
                                                            : 255 * hr__random_below(r, 2));
}

/* A map that shows most of an image of LONGEST x ROWS pixels, which lies in `s`. */
static struct hr__pillow_map map_make(const struct pillow_sample *s, struct hr__random *r)
{
    struct hr__pillow_map map = {.cubic = (int)hr__random_below(r, 2),
                                 .width = LONGEST,
                                 .height = ROWS,
                                 .stride = sizeof s->row[0],
                                 .fill = {7, 77, 177}};
    const double means[6] = {1, 0, 0, 0, 1, 0};
    for (int i = 0; i < 6; i++)
        map.m[i] = means[i] + hr__random_range(r, -0.1, 0.1) * (i % 3 == 2 ? 30 : 1);
    for (int c = 0; c < 3; c++)
        map.plane[c] = s->row[0] + c;
    return map;
}

/* Runs all kernels on rows of n pixels, one after the other. */
static void run_all(const struct hr__pillow_rows *kernels, struct pillow_sample *s, int n,
                    const struct hr__pillow_map *map)
{
    const uint8_t *rows[5];
    uint8_t *to[3];
    for (int k = 0; k < 5; k++)
        rows[k] = s->row[k] + MARGIN + k;
    for (int c = 0; c < 3; c++)
        to[c] = s->row[6 + c] + MARGIN;
    kernels->luma(rows[0], rows[1], rows[2], n, to[0]);
    kernels->blend(to[0], rows[3], n, 0.013f * (float)n);
    kernels->box(rows, 5, (const uint32_t[2]){4000000, 2388608}, n, to[1]);
    kernels->box(rows, 3, (const uint32_t[2]){1u << 23, 1u << 22}, n, to[2]);
    kernels->map(map, n % 7, n % ROWS, n, to);
}

static void versions_are_equal(void **state)
{
    static struct pillow_sample plain, fast, start, image;
    struct hr__random r;
    hr__random_init(&r, 3, 0, 0, 0);
    sample_make(&image, &r);
    for (int n = 1; n <= LONGEST; n++) {
        struct hr__pillow_map map = map_make(&image, &r);
        sample_make(&start, &r);
        plain = start;
        run_all(&hr__pillow_rows_portable, &plain, n, &map);
        for (int isa = 1; isa <= (int)hr__isa(); isa++) {
            fast = start;
            run_all(hr__pillow_rows((enum hr__isa)isa), &fast, n, &map);
            assert_memory_equal(&plain, &fast, sizeof plain);
        }
        for (int k = 0; k < ROWS; k++) {
            size_t past = sizeof plain.row[k] - MARGIN - (size_t)n;
            assert_memory_equal(plain.row[k], start.row[k], MARGIN);
            assert_memory_equal(plain.row[k] + MARGIN + n, start.row[k] + MARGIN + n, past);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_are_equal),
    };
    return cmocka_run_group_tests_name("pillow_rows", tests, NULL, NULL);
}
