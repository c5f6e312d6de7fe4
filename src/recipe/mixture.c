/* Mixtures of chains; see mixture.h. The scratch keeps the image, and the sum or the blend so far.
 */
#include "recipe/mixture.h"

#include "base/distribution.h"
#include "recipe/byte_rows.h"
#include "recipe/filter.h"
#include "recipe/pillow_rows.h"

#include <math.h>
#include <string.h>

static size_t pixels_of(const struct hr__window *w)
{
    return 3 * (size_t)w->width * (size_t)w->height;
}

static int sum_begin(struct hr__scratch *scratch, const struct hr__step *step,
                     const struct hr__window *w, struct hr_error *error)
{
    size_t width = (size_t)w->width;
    int r = hr__buffer_reserve(&scratch->kept[0], pixels_of(w), error);
    if (!r)
        r = hr__buffer_reserve(&scratch->kept[1], pixels_of(w) * sizeof(float), error);
    if (r)
        return r;
    uint8_t *image = scratch->kept[0].bytes;
    float *sum = scratch->kept[1].bytes;
    memset(sum, 0, pixels_of(w) * sizeof *sum);
    for (int c = 0; c < 3; c++) {
        for (int y = 0; y < w->height; y++, image += width, sum += width) {
            const uint8_t *row = w->plane[c] + y * w->stride;
            memcpy(image, row, width);
            hr__byte_rows(hr__isa())->mix(sum, row, w->width, (float)step->u.filter.value[0]);
        }
    }
    return 0;
}

static void finish_row(uint8_t *row, const float *sum, const uint8_t *image, int n, float share)
{
    for (int x = 0; x < n; x++) {
        float v = sum[x] > 255.0f ? 255.0f : sum[x];
        row[x] = (uint8_t)(int32_t)v;
    }
    if (share != 1)
        hr__pillow_rows(hr__isa())->blend(row, image, n, share);
}

static int sum_add(struct hr__scratch *scratch, const struct hr__step *step,
                   const struct hr__window *w, struct hr_error *error)
{
    size_t width = (size_t)w->width;
    const uint8_t *image = scratch->kept[0].bytes;
    float *sum = scratch->kept[1].bytes;
    int last = step->u.filter.word[0];
    for (int c = 0; c < 3; c++) {
        for (int y = 0; y < w->height; y++, image += width, sum += width) {
            uint8_t *row = w->plane[c] + y * w->stride;
            hr__byte_rows(hr__isa())->mix(sum, row, w->width, (float)step->u.filter.value[0]);
            if (last)
                finish_row(row, sum, image, w->width, (float)step->u.filter.value[1]);
            else
                memcpy(row, image, width);
        }
    }
    return 0;
}

static int blends_begin(struct hr__scratch *scratch, const struct hr__step *step,
                        const struct hr__window *w, struct hr_error *error)
{
    size_t width = (size_t)w->width;
    for (int i = 0; i < 2; i++) {
        int r = hr__buffer_reserve(&scratch->kept[i], pixels_of(w), error);
        if (r)
            return r;
        uint8_t *to = scratch->kept[i].bytes;
        for (int c = 0; c < 3; c++)
            for (int y = 0; y < w->height; y++, to += width)
                memcpy(to, w->plane[c] + y * w->stride, width);
    }
    return 0;
}

static int blends_add(struct hr__scratch *scratch, const struct hr__step *step,
                      const struct hr__window *w, struct hr_error *error)
{
    size_t width = (size_t)w->width;
    const uint8_t *image = scratch->kept[0].bytes;
    uint8_t *blend = scratch->kept[1].bytes;
    for (int c = 0; c < 3; c++) {
        for (int y = 0; y < w->height; y++, image += width, blend += width) {
            uint8_t *row = w->plane[c] + y * w->stride;
            hr__pillow_rows(hr__isa())->blend(row, blend, w->width, (float)step->u.filter.value[0]);
            if (!step->u.filter.word[0]) {
                memcpy(blend, row, width);
                memcpy(row, image, width);
            }
        }
    }
    return 0;
}

static void plan_mixture(struct hr__prepare_plan *plan, const struct hr__filter *filter,
                         const double weight_share[2], int last)
{
    struct hr__step *step =
        hr__plan_filter(plan, filter, hr__plan_width(plan), hr__plan_height(plan));
    step->u.filter.value[0] = weight_share[0];
    step->u.filter.value[1] = weight_share[1];
    step->u.filter.word[0] = last;
}

static const struct hr__filter sum_filter = {
    .name = "sum_add", .source = hr__whole_source, .change = sum_add};

void hr__plan_sum_begin(struct hr__prepare_plan *plan, double weight)
{
    static const struct hr__filter filter = {
        .name = "sum_begin", .source = hr__whole_source, .change = sum_begin};
    plan_mixture(plan, &filter, (const double[2]){weight, 0}, 0);
}

void hr__plan_sum_add(struct hr__prepare_plan *plan, double weight)
{
    plan_mixture(plan, &sum_filter, (const double[2]){weight, 0}, 0);
}

void hr__plan_sum_end(struct hr__prepare_plan *plan, double weight, double share)
{
    plan_mixture(plan, &sum_filter, (const double[2]){weight, share}, 1);
}

void hr__plan_blends_begin(struct hr__prepare_plan *plan)
{
    static const struct hr__filter filter = {
        .name = "blends_begin", .source = hr__whole_source, .change = blends_begin};
    plan_mixture(plan, &filter, (const double[2]){0, 0}, 0);
}

void hr__plan_blends_add(struct hr__prepare_plan *plan, double share, int last)
{
    static const struct hr__filter filter = {
        .name = "blends_add", .source = hr__whole_source, .change = blends_add};
    plan_mixture(plan, &filter, (const double[2]){share, 0}, last);
}

void hr__draw_dirichlet(struct hr__random *random, double alpha, double *weight, int n)
{
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        weight[i] = hr__random_log_gamma(random, alpha);
        most = fmax(most, weight[i]);
    }
    for (int i = 0; i < n; i++)
        sum += weight[i] = exp(weight[i] - most);
    for (int i = 0; i < n; i++)
        weight[i] /= sum;
}
