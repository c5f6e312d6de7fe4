/*
 * Filters of colours on bytes. Those that treat each byte of a channel alike make a table of 256
 * bytes, from the parameters or from statistics of the whole image, and look up.
 *
 * The image's mean for contrast is a sum of whole numbers, which torch adds up in float32: beyond
 * 2^24 (65,793 white pixels) torch's sum is rounded and this one is not.
 */
#include "recipe/color_bytes.h"

#include "recipe/byte_rows.h"
#include "recipe/enhance.h"

#include <math.h>
#include <string.h>

/* Pixels whose luma is kept on the stack. */
#define CHUNK 4096

/* The rows of a window; without gaps they are taken as one. */
struct rows {
    int width, count;
};

static struct rows rows_of(const struct hr__window *w)
{
    if (w->stride == w->width && (int64_t)w->width * w->height <= INT32_MAX)
        return (struct rows){w->width * w->height, 1};
    return (struct rows){w->width, w->height};
}

static uint8_t clip(float v)
{
    return (uint8_t)fminf(fmaxf(v, 0), 255);
}

void hr__table_run(const struct hr__window *w, int c, const uint8_t table[256])
{
    const struct hr__byte_rows *kernels = hr__byte_rows(hr__isa());
    struct rows rows = rows_of(w);
    for (int y = 0; y < rows.count; y++)
        kernels->table(w->plane[c] + y * w->stride, rows.width, table);
}

static void apply_to_all(const struct hr__window *w, const uint8_t table[256])
{
    for (int c = 0; c < 3; c++)
        hr__table_run(w, c, table);
}

static int brighten(struct hr__scratch *scratch, const struct hr__step *step,
                    const struct hr__window *window, struct hr_error *error)
{
    uint8_t table[256];
    float factor = (float)step->u.filter.value[0];
    for (int v = 0; v < 256; v++)
        table[v] = clip((float)v * factor);
    apply_to_all(window, table);
    return 0;
}

static int invert(struct hr__scratch *scratch, const struct hr__step *step,
                  const struct hr__window *window, struct hr_error *error)
{
    uint8_t table[256];
    for (int v = 0; v < 256; v++)
        table[v] = (uint8_t)(255 - v);
    apply_to_all(window, table);
    return 0;
}

static int posterize(struct hr__scratch *scratch, const struct hr__step *step,
                     const struct hr__window *window, struct hr_error *error)
{
    uint8_t table[256];
    for (int v = 0; v < 256; v++)
        table[v] = (uint8_t)(v & (0xff00 >> step->u.filter.word[0]));
    apply_to_all(window, table);
    return 0;
}

static int solarize(struct hr__scratch *scratch, const struct hr__step *step,
                    const struct hr__window *window, struct hr_error *error)
{
    uint8_t table[256];
    float threshold = (float)step->u.filter.value[0];
    for (int v = 0; v < 256; v++)
        table[v] = (uint8_t)((float)v >= threshold ? 255 - v : v);
    apply_to_all(window, table);
    return 0;
}

static void count(const struct hr__window *w, int c, uint32_t histogram[256])
{
    uint32_t part[4][256] = {0}; /* neighbours are often equal: no addition waits for the last */
    for (int y = 0; y < w->height; y++) {
        const uint8_t *row = w->plane[c] + y * w->stride;
        int x = 0;
        for (; x + 4 <= w->width; x += 4)
            for (int k = 0; k < 4; k++)
                part[k][row[x + k]]++;
        for (; x < w->width; x++)
            part[0][row[x]]++;
    }
    for (int v = 0; v < 256; v++)
        histogram[v] = part[0][v] + part[1][v] + part[2][v] + part[3][v];
}

static void stretched(int low, int high, uint8_t table[256])
{
    float range = (float)(high - low) * (float)(1.0 / 255.0);
    for (int v = 0; v < 256; v++) {
        table[v] = (uint8_t)v;
        if (high > low)
            table[v] = clip((float)(v - low) / range);
    }
}

void hr__extremes(const struct hr__window *w, int c, uint8_t *low, uint8_t *high)
{
    uint8_t least = 255, most = 0;
    for (int y = 0; y < w->height; y++) {
        const uint8_t *row = w->plane[c] + y * w->stride;
        for (int x = 0; x < w->width; x++) {
            least = row[x] < least ? row[x] : least;
            most = row[x] > most ? row[x] : most;
        }
    }
    *low = least;
    *high = most;
}

static int autocontrast(struct hr__scratch *scratch, const struct hr__step *step,
                        const struct hr__window *w, struct hr_error *error)
{
    for (int c = 0; c < 3; c++) {
        uint8_t low, high, table[256];
        hr__extremes(w, c, &low, &high);
        stretched(low, high, table);
        if (low < high)
            hr__table_run(w, c, table);
    }
    return 0;
}

static int equalize(struct hr__scratch *scratch, const struct hr__step *step,
                    const struct hr__window *w, struct hr_error *error)
{
    for (int c = 0; c < 3; c++) {
        uint32_t histogram[256];
        uint8_t table[256];
        count(w, c, histogram);
        int last = 255;
        while (!histogram[last])
            last--;
        uint64_t all = (uint64_t)w->width * (uint64_t)w->height, sum;
        uint64_t unit = (all - histogram[last]) / 255;
        if (!unit)
            continue;
        sum = unit / 2;
        for (int v = 0; v < 256; v++) {
            table[v] = sum / unit > 255 ? 255 : (uint8_t)(sum / unit);
            sum += histogram[v];
        }
        hr__table_run(w, c, table);
    }
    return 0;
}

/* The sum of luma over the window. */
static uint64_t sum_of_grey(const struct hr__window *w)
{
    const struct hr__byte_rows *kernels = hr__byte_rows(hr__isa());
    struct rows rows = rows_of(w);
    uint8_t grey[CHUNK];
    uint64_t sum = 0;
    for (int y = 0; y < rows.count; y++) {
        ptrdiff_t at = y * w->stride;
        for (int x = 0; x < rows.width; x += CHUNK) {
            int n = rows.width - x < CHUNK ? rows.width - x : CHUNK;
            kernels->grey(w->plane[0] + at + x, w->plane[1] + at + x, w->plane[2] + at + x, n,
                          grey);
            uint32_t part = 0;
            for (int i = 0; i < n; i++)
                part += grey[i];
            sum += part;
        }
    }
    return sum;
}

static int contrast(struct hr__scratch *scratch, const struct hr__step *step,
                    const struct hr__window *w, struct hr_error *error)
{
    uint8_t table[256];
    double factor = step->u.filter.value[0], pixels = (double)w->width * w->height;
    uint64_t sum = sum_of_grey(w);
    float mean = (float)sum / (float)pixels, rest = (float)(1.0 - factor);
    for (int v = 0; v < 256; v++)
        table[v] = clip(fmaf(mean, rest, (float)v * (float)factor));
    apply_to_all(w, table);
    return 0;
}

static int saturate(struct hr__scratch *scratch, const struct hr__step *step,
                    const struct hr__window *w, struct hr_error *error)
{
    const struct hr__byte_rows *kernels = hr__byte_rows(hr__isa());
    struct rows rows = rows_of(w);
    uint8_t grey[CHUNK];
    double factor = step->u.filter.value[0];
    for (int y = 0; y < rows.count; y++) {
        for (int x = 0; x < rows.width; x += CHUNK) {
            int n = rows.width - x < CHUNK ? rows.width - x : CHUNK;
            uint8_t *p[3];
            for (int c = 0; c < 3; c++)
                p[c] = w->plane[c] + y * w->stride + x;
            kernels->grey(p[0], p[1], p[2], n, grey);
            for (int c = 0; c < 3; c++)
                kernels->blend_grey(p[c], grey, n, (float)factor, (float)(1.0 - factor));
        }
    }
    return 0;
}

static int grayscale(struct hr__scratch *scratch, const struct hr__step *step,
                     const struct hr__window *w, struct hr_error *error)
{
    const struct hr__byte_rows *kernels = hr__byte_rows(hr__isa());
    struct rows rows = rows_of(w);
    uint8_t grey[CHUNK];
    for (int y = 0; y < rows.count; y++) {
        for (int x = 0; x < rows.width; x += CHUNK) {
            size_t n = (size_t)(rows.width - x < CHUNK ? rows.width - x : CHUNK);
            uint8_t *p[3];
            for (int c = 0; c < 3; c++)
                p[c] = w->plane[c] + y * w->stride + x;
            kernels->grey(p[0], p[1], p[2], (int)n, grey);
            for (int c = 0; c < 3; c++)
                memcpy(p[c], grey, n);
        }
    }
    return 0;
}

static int turn_hue(struct hr__scratch *scratch, const struct hr__step *step,
                    const struct hr__window *w, struct hr_error *error)
{
    struct rows rows = rows_of(w);
    for (int y = 0; y < rows.count; y++) {
        ptrdiff_t at = y * w->stride;
        hr__byte_rows(hr__isa())->hue(w->plane[0] + at, w->plane[1] + at, w->plane[2] + at,
                                      rows.width, (float)step->u.filter.value[0]);
    }
    return 0;
}

static int permute(struct hr__scratch *scratch, const struct hr__step *step,
                   const struct hr__window *w, struct hr_error *error)
{
    struct rows rows = rows_of(w);
    uint8_t part[3][CHUNK];
    for (int y = 0; y < rows.count; y++) {
        for (int x = 0; x < rows.width; x += CHUNK) {
            size_t n = (size_t)(rows.width - x < CHUNK ? rows.width - x : CHUNK);
            ptrdiff_t at = y * w->stride + x;
            for (int c = 0; c < 3; c++)
                memcpy(part[c], w->plane[c] + at, n);
            for (int c = 0; c < 3; c++)
                memcpy(w->plane[c] + at, part[step->u.filter.word[c]], n);
        }
    }
    return 0;
}

static struct hr__step *plan_color(struct hr__prepare_plan *plan, const struct hr__filter *filter,
                                   double value, int word)
{
    struct hr__step *step =
        hr__plan_filter(plan, filter, hr__plan_width(plan), hr__plan_height(plan));
    step->u.filter.value[0] = value;
    step->u.filter.word[0] = word;
    return step;
}

void hr__plan_brightness(struct hr__prepare_plan *plan, double factor)
{
    static const struct hr__filter filter = {.name = "brightness", .change = brighten};
    if ((float)factor != 1)
        plan_color(plan, &filter, factor, 0);
}

void hr__plan_contrast(struct hr__prepare_plan *plan, double factor)
{
    static const struct hr__filter filter = {
        .name = "contrast", .source = hr__whole_source, .change = contrast};
    if (factor != 1)
        plan_color(plan, &filter, factor, 0);
}

void hr__plan_saturation(struct hr__prepare_plan *plan, double factor)
{
    static const struct hr__filter filter = {.name = "saturation", .change = saturate};
    if (factor != 1)
        plan_color(plan, &filter, factor, 0);
}

void hr__plan_hue(struct hr__prepare_plan *plan, double turn)
{
    static const struct hr__filter filter = {.name = "hue", .change = turn_hue};
    plan_color(plan, &filter, turn, 0);
}

void hr__plan_grayscale(struct hr__prepare_plan *plan)
{
    static const struct hr__filter filter = {.name = "grayscale", .change = grayscale};
    plan_color(plan, &filter, 0, 0);
}

void hr__plan_invert(struct hr__prepare_plan *plan)
{
    static const struct hr__filter filter = {.name = "invert", .change = invert};
    plan_color(plan, &filter, 0, 0);
}

void hr__plan_posterize(struct hr__prepare_plan *plan, int bits)
{
    static const struct hr__filter filter = {.name = "posterize", .change = posterize};
    if (bits < 8)
        plan_color(plan, &filter, 0, bits);
}

void hr__plan_solarize(struct hr__prepare_plan *plan, double threshold)
{
    static const struct hr__filter filter = {.name = "solarize", .change = solarize};
    if (threshold <= 255)
        plan_color(plan, &filter, threshold, 0);
}

void hr__plan_autocontrast(struct hr__prepare_plan *plan)
{
    static const struct hr__filter filter = {
        .name = "autocontrast", .source = hr__whole_source, .change = autocontrast};
    plan_color(plan, &filter, 0, 0);
}

void hr__plan_equalize(struct hr__prepare_plan *plan)
{
    static const struct hr__filter filter = {
        .name = "equalize", .source = hr__whole_source, .change = equalize};
    plan_color(plan, &filter, 0, 0);
}

void hr__plan_permute(struct hr__prepare_plan *plan, const int order[3])
{
    static const struct hr__filter filter = {.name = "permute", .change = permute};
    if (order[0] == 0 && order[1] == 1)
        return;
    struct hr__step *step = plan_color(plan, &filter, 0, 0);
    for (int c = 0; c < 3; c++)
        step->u.filter.word[c] = order[c];
}
