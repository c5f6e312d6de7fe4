/*
 * Filters of colours and sharpness on bytes with Pillow's rounding (ImageEnhance, ImageOps).
 *
 * ImageEnhance blends the image with a degenerate one, in float32, and rounds down: black, the mean
 * luma, the luma, or the image smoothed.
 */
#include "recipe/pillow.h"

#include "recipe/color_bytes.h"
#include "recipe/neighbours.h"
#include "recipe/pillow_rows.h"

#include <string.h>

/* Pixels whose luma is kept on the stack. */
#define CHUNK 4096

/* Blends all values with one. */
static void blend_with(const struct hr__window *w, uint8_t value, float factor)
{
    uint8_t table[256], from[256];
    memset(from, value, sizeof from);
    for (int v = 0; v < 256; v++)
        table[v] = (uint8_t)v;
    hr__pillow_rows(hr__isa())->blend(table, from, 256, factor);
    for (int c = 0; c < 3; c++)
        hr__table_run(w, c, table);
}

static int brighten(struct hr__scratch *scratch, const struct hr__step *step,
                    const struct hr__window *w, struct hr_error *error)
{
    blend_with(w, 0, (float)step->u.filter.value[0]);
    return 0;
}

/* The luma of `n` pixels of a row, from x on. */
static void luma_of(const struct hr__window *w, int x, int y, int n, uint8_t *out)
{
    ptrdiff_t at = y * w->stride + x;
    hr__pillow_rows(hr__isa())->luma(w->plane[0] + at, w->plane[1] + at, w->plane[2] + at, n, out);
}

static int contrast(struct hr__scratch *scratch, const struct hr__step *step,
                    const struct hr__window *w, struct hr_error *error)
{
    uint8_t grey[CHUNK];
    uint64_t sum = 0;
    for (int y = 0; y < w->height; y++) {
        for (int x = 0; x < w->width; x += CHUNK) {
            int n = w->width - x < CHUNK ? w->width - x : CHUNK;
            uint32_t part = 0;
            luma_of(w, x, y, n, grey);
            for (int i = 0; i < n; i++)
                part += grey[i];
            sum += part;
        }
    }
    double mean = (double)sum / ((double)w->width * w->height);
    blend_with(w, (uint8_t)(mean + 0.5), (float)step->u.filter.value[0]);
    return 0;
}

static int saturate(struct hr__scratch *scratch, const struct hr__step *step,
                    const struct hr__window *w, struct hr_error *error)
{
    uint8_t grey[CHUNK];
    for (int y = 0; y < w->height; y++) {
        for (int x = 0; x < w->width; x += CHUNK) {
            int n = w->width - x < CHUNK ? w->width - x : CHUNK;
            luma_of(w, x, y, n, grey);
            for (int c = 0; c < 3; c++)
                hr__pillow_rows(hr__isa())->blend(w->plane[c] + y * w->stride + x, grey, n,
                                                  (float)step->u.filter.value[0]);
        }
    }
    return 0;
}

static int autocontrast(struct hr__scratch *scratch, const struct hr__step *step,
                        const struct hr__window *w, struct hr_error *error)
{
    for (int c = 0; c < 3; c++) {
        uint8_t low, high, table[256];
        hr__extremes(w, c, &low, &high);
        if (high <= low)
            continue;
        double scale = 255.0 / (high - low), offset = -low * scale;
        for (int v = 0; v < 256; v++) {
            double stretched = v * scale + offset;
            table[v] = stretched < 0 ? 0 : stretched > 255 ? 255 : (uint8_t)stretched;
        }
        hr__table_run(w, c, table);
    }
    return 0;
}

static int solarize_add(struct hr__scratch *scratch, const struct hr__step *step,
                        const struct hr__window *w, struct hr_error *error)
{
    uint8_t table[256];
    for (int v = 0; v < 256; v++)
        table[v] = (uint8_t)(v < 128 ? v + step->u.filter.word[0] : v);
    for (int c = 0; c < 3; c++)
        hr__table_run(w, c, table);
    return 0;
}

static void sharpen_part(const uint8_t *row, const uint8_t *smooth, int n, double factor,
                         uint8_t *out)
{
    memcpy(out, row, (size_t)n);
    hr__pillow_rows(hr__isa())->blend(out, smooth, n, (float)factor);
}

static int sharpen(struct hr__scratch *scratch, const struct hr__step *step,
                   const struct hr__window *in, const struct hr__window *out,
                   struct hr_error *error)
{
    hr__sharpen_run(step->u.filter.value[0], sharpen_part, in, out);
    return 0;
}

static void plan_factor(struct hr__prepare_plan *plan, const struct hr__filter *filter,
                        double factor)
{
    if ((float)factor == 1)
        return;
    hr__plan_filter(plan, filter, hr__plan_width(plan), hr__plan_height(plan))->u.filter.value[0] =
        factor;
}

void hr__plan_pillow_brightness(struct hr__prepare_plan *plan, double factor)
{
    static const struct hr__filter filter = {.name = "pillow_brightness", .change = brighten};
    plan_factor(plan, &filter, factor);
}

void hr__plan_pillow_contrast(struct hr__prepare_plan *plan, double factor)
{
    static const struct hr__filter filter = {
        .name = "pillow_contrast", .source = hr__whole_source, .change = contrast};
    plan_factor(plan, &filter, factor);
}

void hr__plan_pillow_color(struct hr__prepare_plan *plan, double factor)
{
    static const struct hr__filter filter = {.name = "pillow_color", .change = saturate};
    plan_factor(plan, &filter, factor);
}

void hr__plan_pillow_sharpness(struct hr__prepare_plan *plan, double factor)
{
    static const struct hr__filter filter = {
        .name = "pillow_sharpness", .source = hr__sharpen_source, .run = sharpen};
    plan_factor(plan, &filter, factor);
}

void hr__plan_pillow_autocontrast(struct hr__prepare_plan *plan)
{
    static const struct hr__filter filter = {
        .name = "pillow_autocontrast", .source = hr__whole_source, .change = autocontrast};
    plan_factor(plan, &filter, 0);
}

void hr__plan_solarize_add(struct hr__prepare_plan *plan, int add)
{
    static const struct hr__filter filter = {.name = "solarize_add", .change = solarize_add};
    if (add)
        hr__plan_filter(plan, &filter, hr__plan_width(plan), hr__plan_height(plan))
            ->u.filter.word[0] = add;
}
