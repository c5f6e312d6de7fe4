/*
 * Kernels by rows, written so that compilers vectorise them: no branches, only
 * selections, and `restrict` planes.
 *
 * Hue goes through HSV as Smith, "Color gamut transform pairs" (SIGGRAPH'78).
 * The way back uses the closed form v - v s max(0, min(k, 4 - k, 1)), with
 * k = (n + 6h) mod 6 and n = 5, 3, 1 for red, green, blue, which equals the
 * table of six sectors without indexing.
 */
#include "recipe/color.h"

#define LUMA_RED   0.2989f
#define LUMA_GREEN 0.587f
#define LUMA_BLUE  0.114f

static inline float clamp_255(float v)
{
    v = v < 0.0f ? 0.0f : v;
    return v > 255.0f ? 255.0f : v;
}

static inline float luma(float r, float g, float b)
{
    return r * LUMA_RED + g * LUMA_GREEN + b * LUMA_BLUE;
}

static void brightness_row(float *restrict p, int n, float factor)
{
    for (int i = 0; i < n; i++)
        p[i] = clamp_255(p[i] * factor);
}

/* p x factor + offset, clamped: a blend with a constant. */
static void blend_row(float *restrict p, int n, float factor, float offset)
{
    for (int i = 0; i < n; i++)
        p[i] = clamp_255(p[i] * factor + offset);
}

static void saturation_row(float *restrict r, float *restrict g, float *restrict b, int n,
                           float factor)
{
    float rest = 1.0f - factor;
    for (int i = 0; i < n; i++) {
        float grey = luma(r[i], g[i], b[i]) * rest;
        r[i] = clamp_255(r[i] * factor + grey);
        g[i] = clamp_255(g[i] * factor + grey);
        b[i] = clamp_255(b[i] * factor + grey);
    }
}

static void grayscale_row(float *restrict r, float *restrict g, float *restrict b, int n)
{
    for (int i = 0; i < n; i++) {
        float grey = luma(r[i], g[i], b[i]);
        r[i] = grey;
        g[i] = grey;
        b[i] = grey;
    }
}

static inline float hue_channel(float turned, float n, float value, float chroma)
{
    float k = turned + n;
    k = k >= 6.0f ? k - 6.0f : k;
    float down = 4.0f - k;
    float t = k < down ? k : down;
    t = t > 1.0f ? 1.0f : t;
    t = t < 0.0f ? 0.0f : t;
    return value - chroma * t;
}

static void hue_row(float *restrict r, float *restrict g, float *restrict b, int n, float turn)
{
    for (int i = 0; i < n; i++) {
        float red = r[i], green = g[i], blue = b[i];
        float high = red > green ? red : green;
        high = blue > high ? blue : high;
        float low = red < green ? red : green;
        low = blue < low ? blue : low;
        float chroma = high - low;
        float divisor = chroma > 0.0f ? chroma : 1.0f;
        float apart = green == high ? blue - red : red - green;
        float sector = green == high ? 2.0f : 4.0f;
        apart = red == high ? green - blue : apart;
        sector = red == high ? 0.0f : sector;
        float sixths = sector + apart / divisor;
        /* -1..5 sixths, turned by -3..3: brought to 0..6 */
        sixths = sixths + turn;
        sixths = sixths < 0.0f ? sixths + 6.0f : sixths;
        sixths = sixths >= 6.0f ? sixths - 6.0f : sixths;
        r[i] = hue_channel(sixths, 5.0f, high, chroma);
        g[i] = hue_channel(sixths, 3.0f, high, chroma);
        b[i] = hue_channel(sixths, 1.0f, high, chroma);
    }
}

#define LANES 8

/* Mean luma. Sums in double, in a fixed number of lanes, so that neither the
 * size of the image nor the width of vectors shows in the result. */
static double mean_luma(const struct hr__picture *p)
{
    double lane[LANES] = {0};
    for (int y = 0; y < p->height; y++) {
        const float *r = p->plane[0] + y * p->stride;
        const float *g = p->plane[1] + y * p->stride;
        const float *b = p->plane[2] + y * p->stride;
        int x = 0;
        for (; x + LANES <= p->width; x += LANES) {
            for (int k = 0; k < LANES; k++)
                lane[k] += (double)luma(r[x + k], g[x + k], b[x + k]);
        }
        for (; x < p->width; x++)
            lane[x % LANES] += (double)luma(r[x], g[x], b[x]);
    }
    double sum = 0;
    for (int k = 0; k < LANES; k++)
        sum += lane[k];
    return sum / ((double)p->width * p->height);
}

void hr__color_run(const struct hr__step *step, const struct hr__picture *p)
{
    float factor = step->u.factor, offset = 0;
    if (step->kind == HR__STEP_CONTRAST)
        offset = (float)((1.0 - (double)factor) * mean_luma(p));
    for (int y = 0; y < p->height; y++) {
        float *r = p->plane[0] + y * p->stride;
        float *g = p->plane[1] + y * p->stride;
        float *b = p->plane[2] + y * p->stride;
        switch (step->kind) {
        case HR__STEP_SATURATION:
            saturation_row(r, g, b, p->width, factor);
            break;
        case HR__STEP_HUE:
            hue_row(r, g, b, p->width, factor * 6.0f);
            break;
        case HR__STEP_GRAYSCALE:
            grayscale_row(r, g, b, p->width);
            break;
        default:
            for (int c = 0; c < 3; c++) {
                if (step->kind == HR__STEP_CONTRAST)
                    blend_row(p->plane[c] + y * p->stride, p->width, factor, offset);
                else
                    brightness_row(p->plane[c] + y * p->stride, p->width, factor);
            }
        }
    }
}
