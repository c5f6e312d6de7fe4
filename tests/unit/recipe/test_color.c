/*
 * Compares the colour kernels with torchvision's definitions in double precision (clamped blends,
 * HSV with six sectors): the largest difference is 0.02/255, for hue 0.1/255.
 */
#include "recipe_cases.h"

#include "recipe/color.h"
#include "recipe/color_rows.h"

#define WIDTH  61
#define HEIGHT 17
#define PIXELS (WIDTH * HEIGHT)

struct color_sample {
    float at[3][HEIGHT * 64];
    double exact[3][PIXELS]; /* 0..1 */
    struct hr__picture picture;
};

/* Makes values from 0 to 255 with fractions, including greys, primaries and both ends. */
static void sample_make(struct color_sample *s, uint64_t seed)
{
    struct hr__random r;
    hr__random_init(&r, seed, 0, 0, 0);
    for (int i = 0; i < PIXELS; i++) {
        double v[3];
        uint64_t kind = hr__random_below(&r, 8);
        for (int c = 0; c < 3; c++) {
            v[c] = 255 * hr__random_unit(&r);
            if (kind == 0)
                v[c] = hr__random_below(&r, 2) ? 255 : 0;
            if (kind == 1 && c)
                v[c] = v[0];
            if (kind == 2)
                v[c] = (double)hr__random_below(&r, 256);
            if (kind == 3) /* nearly grey, for which hue is least precise */
                v[c] = 100 + hr__random_unit(&r) * 1e-3;
            float stored = (float)v[c];
            s->at[c][i / WIDTH * 64 + i % WIDTH] = stored;
            s->exact[c][i] = (double)stored / 255;
        }
    }
    s->picture = (struct hr__picture){{s->at[0], s->at[1], s->at[2]}, 64, 0, 0, WIDTH, HEIGHT};
}

static double unit(double v)
{
    return fmin(fmax(v, 0), 1);
}

static double grey_of(const struct color_sample *s, int i)
{
    return 0.2989 * s->exact[0][i] + 0.587 * s->exact[1][i] + 0.114 * s->exact[2][i];
}

static void exact_hue(double p[3], double turn)
{
    double high = fmax(fmax(p[0], p[1]), p[2]), low = fmin(fmin(p[0], p[1]), p[2]);
    double range = high - low, divisor = range > 0 ? range : 1;
    double rc = (high - p[0]) / divisor, gc = (high - p[1]) / divisor, bc = (high - p[2]) / divisor;
    double s = range > 0 ? range / high : 0;
    double h = p[0] == high ? bc - gc : p[1] == high ? 2 + rc - bc : 4 + gc - rc;
    h = fmod(h / 6 + 1, 1) + turn;
    h -= floor(h);
    int sector = (int)floor(h * 6);
    double f = h * 6 - sector;
    double a = unit((1 - s) * high), q = unit((1 - s * f) * high);
    double t = unit((1 - s * (1 - f)) * high);
    const double table[6][3] = {{high, t, a}, {q, high, a}, {a, high, t},
                                {a, q, high}, {t, a, high}, {high, a, q}};
    memcpy(p, table[sector % 6], 3 * sizeof *p);
}

static void exact_step(struct color_sample *s, enum hr__step_kind kind, double f)
{
    double mean = 0;
    for (int i = 0; i < PIXELS; i++)
        mean += grey_of(s, i) / PIXELS;
    for (int i = 0; i < PIXELS; i++) {
        double p[3] = {s->exact[0][i], s->exact[1][i], s->exact[2][i]}, grey = grey_of(s, i);
        if (kind == HR__STEP_HUE)
            exact_hue(p, f);
        for (int c = 0; c < 3; c++) {
            switch (kind) {
            case HR__STEP_BRIGHTNESS:
                p[c] = unit(p[c] * f);
                break;
            case HR__STEP_CONTRAST:
                p[c] = unit(p[c] * f + (1 - f) * mean);
                break;
            case HR__STEP_SATURATION:
                p[c] = unit(p[c] * f + (1 - f) * grey);
                break;
            case HR__STEP_GRAYSCALE:
                p[c] = grey;
                break;
            default:
                break;
            }
            s->exact[c][i] = p[c];
        }
    }
}

static double distance(const struct color_sample *s)
{
    double most = 0;
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < PIXELS; i++)
            most = fmax(most, fabs(s->at[c][i / WIDTH * 64 + i % WIDTH] - 255 * s->exact[c][i]));
    return most;
}

static void check_step(enum hr__step_kind kind, double factor, double limit)
{
    static struct color_sample s;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct hr__step step = {.kind = kind, .u.factor = (float)factor};
        sample_make(&s, seed);
        exact_step(&s, kind, (double)(float)factor);
        hr__color_run(&step, &s.picture);
        double d = distance(&s);
        if (!(d <= limit))
            fail_msg("step %d, factor %g: %g/255 off", (int)kind, factor, d);
    }
}

static void blends(void **state)
{
    static const double factors[] = {0, 0.3, 1, 1.7, 4};
    for (int i = 0; i < 5; i++) {
        check_step(HR__STEP_BRIGHTNESS, factors[i], 0.001);
        check_step(HR__STEP_CONTRAST, factors[i], 0.001);
        check_step(HR__STEP_SATURATION, factors[i], 0.001);
    }
    check_step(HR__STEP_GRAYSCALE, 0, 0.001);
}

static void hues(void **state)
{
    for (int i = -20; i <= 20; i++)
        check_step(HR__STEP_HUE, i / 40.0, 0.01);
}

static void sequences_do_not_round(void **state)
{
    static struct color_sample s;
    static const struct {
        enum hr__step_kind kind;
        double factor;
    } steps[] = {{HR__STEP_CONTRAST, 0.7},
                 {HR__STEP_HUE, 0.2},
                 {HR__STEP_BRIGHTNESS, 1.2},
                 {HR__STEP_SATURATION, 0.5},
                 {HR__STEP_GRAYSCALE, 0}};
    sample_make(&s, 77);
    for (int i = 0; i < 5; i++) {
        struct hr__step step = {.kind = steps[i].kind, .u.factor = (float)steps[i].factor};
        exact_step(&s, steps[i].kind, (double)(float)steps[i].factor);
        hr__color_run(&step, &s.picture);
    }
    assert_true(distance(&s) < 0.002);
}

/* Memory between the rows is not changed. */
static void stays_in_the_window(void **state)
{
    static struct color_sample s;
    sample_make(&s, 5);
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < HEIGHT; y++)
            for (int x = WIDTH; x < 64; x++)
                s.at[c][y * 64 + x] = -7;
    for (int kind = HR__STEP_BRIGHTNESS; kind <= HR__STEP_GRAYSCALE; kind++) {
        struct hr__step step = {.kind = (enum hr__step_kind)kind, .u.factor = 0.4f};
        hr__color_run(&step, &s.picture);
    }
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < HEIGHT; y++)
            for (int x = WIDTH; x < 64; x++)
                assert_true(s.at[c][y * 64 + x] == -7);
}

/* Compares every kernel with the plain version, on rows of every length. */
static void versions_are_equal(void **state)
{
    const struct hr__color_rows *plain = &hr__color_rows_portable,
                                *fast = hr__color_rows(hr__isa());
    static struct color_sample a, b;
    for (int n = 1; n <= WIDTH; n++) {
        float factor = 0.1f * (float)(n % 25), turn = 3.0f - 0.1f * (float)n;
        double lane_a[HR__LUMA_LANES] = {0}, lane_b[HR__LUMA_LANES] = {0};
        sample_make(&a, (uint64_t)n);
        b = a;
        plain->luma(a.at[0], a.at[1], a.at[2], n, lane_a);
        fast->luma(b.at[0], b.at[1], b.at[2], n, lane_b);
        assert_memory_equal(lane_a, lane_b, sizeof lane_a);
        for (int y = 0; y < HEIGHT; y++) {
            float *p[3], *q[3];
            for (int c = 0; c < 3; c++) {
                p[c] = a.at[c] + (ptrdiff_t)64 * y;
                q[c] = b.at[c] + (ptrdiff_t)64 * y;
            }
            plain->hue(p[0], p[1], p[2], n, turn);
            fast->hue(q[0], q[1], q[2], n, turn);
            plain->saturation(p[0], p[1], p[2], n, factor);
            fast->saturation(q[0], q[1], q[2], n, factor);
            plain->brightness(p[0], n, factor);
            fast->brightness(q[0], n, factor);
            plain->blend(p[1], n, factor, 20 - factor);
            fast->blend(q[1], n, factor, 20 - factor);
            assert_memory_equal(a.at, b.at, sizeof a.at);
            plain->grayscale(p[0], p[1], p[2], n);
            fast->grayscale(q[0], q[1], q[2], n);
            assert_memory_equal(a.at, b.at, sizeof a.at);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_are_equal),
        cmocka_unit_test(blends),
        cmocka_unit_test(hues),
        cmocka_unit_test(sequences_do_not_round),
        cmocka_unit_test(stays_in_the_window),
    };
    return cmocka_run_group_tests_name("color", tests, NULL, NULL);
}
