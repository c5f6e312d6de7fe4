/*
 * Runs a plan: the steps up to the last filter on bytes, the rest by the fused pass if it was
 * folded, else by the general path. If a fold ends with colours, they run on float planes from the
 * fused pass, before scale, shift and cast.
 */
#include "recipe/erase.h"
#include "recipe/fold.h"
#include "recipe/general.h"
#include "recipe/operation.h"
#include "recipe/orient.h"
#include "recipe/store.h"

#include "base/error.h"

#include <errno.h>

/* Applies the EXIF orientation to the decoded region, into the scratch's memory. */
static int orient(struct hr__scratch *scratch, const struct hr__prepare_plan *plan,
                  const struct hr__planar *pixels, struct hr__planar *out, struct hr_error *error)
{
    out->width = plan->source.width;
    out->height = plan->source.height;
    out->stride = ((ptrdiff_t)out->width + 63) & ~(ptrdiff_t)63;
    size_t plane = (size_t)out->stride * (size_t)out->height + HR__PIXEL_SLACK;
    int r = hr__buffer_reserve(&scratch->oriented, 3 * plane, error);
    if (r)
        return r;
    for (int c = 0; c < 3; c++)
        out->plane[c] = (uint8_t *)scratch->oriented.bytes + (size_t)c * plane;
    hr__orient_pixels(pixels, plan->orientation, out);
    return 0;
}

static int run_fused_tensor(const struct hr_recipe *recipe, struct hr__scratch *scratch,
                            const struct hr__fold *fold, const struct hr__window *window, void *out,
                            struct hr_error *error)
{
    struct hr__fused_job job = {
        .dtype = recipe->spec.dtype,
        .layout = recipe->spec.layout,
        .out = out,
        .pitch = recipe->spec.width,
        .lines = recipe->spec.height,
    };
    for (int c = 0; c < 3; c++) {
        job.scale[c] = recipe->scale[c];
        job.shift[c] = recipe->shift[c];
    }
    return hr__fold_run(scratch, fold, window, &job, error);
}

/* Runs the folded steps, then the colours, to float planes. */
static int run_fused_picture(struct hr__scratch *scratch, const struct hr__prepare_plan *plan,
                             const struct hr__window *window, struct hr__picture *picture,
                             struct hr_error *error)
{
    const struct hr__fold *fold = &plan->rest;
    int width = fold->x.count, height = fold->y.count;
    int r = hr__picture_reserve(scratch, 0, width, height, width, picture, error);
    if (r)
        return r;
    struct hr__fused_job job = {.scale = {1, 1, 1},
                                .dtype = HR_FLOAT32,
                                .cached = 1,
                                .layout = HR_NCHW,
                                .out = picture->plane[0]};
    r = hr__fold_run(scratch, fold, window, &job, error);
    for (int i = fold->first; i < fold->last && !r; i++) {
        if (hr__step_is_color(&plan->step[i]))
            hr__color_run(&plan->step[i], picture);
    }
    return r;
}

/* Applies scale, shift, cast and layout to a complete picture. */
static void finish(const struct hr_recipe *recipe, const struct hr__picture *picture, void *out)
{
    struct hr__sample_store store = {.out = out,
                                     .width = picture->width,
                                     .pitch = recipe->spec.width,
                                     .lines = recipe->spec.height,
                                     .dtype = recipe->spec.dtype,
                                     .layout = recipe->spec.layout};
    for (int y = 0; y < picture->height; y++) {
        const float *channel[3];
        for (int c = 0; c < 3; c++) {
            float *restrict row = picture->plane[c] + y * picture->stride;
            float scale = recipe->scale[c], shift = recipe->shift[c];
            if (scale != 1.0f || shift != 0.0f) {
                for (int x = 0; x < picture->width; x++)
                    row[x] = row[x] * scale + shift;
            }
            channel[c] = row;
        }
        hr__store_row(&store, y, channel);
    }
}

int hr__recipe_run(const struct hr_recipe *recipe, struct hr__scratch *scratch,
                   const struct hr__prepare_plan *plan, const struct hr__planar *pixels, void *out,
                   struct hr_error *error)
{
    struct hr__planar oriented;
    struct hr__picture picture;
    if (pixels->width != plan->region.width || pixels->height != plan->region.height)
        return hr__fail(error, -EINVAL, "the recipe needs %d x %d pixels and was given %d x %d",
                        plan->region.width, plan->region.height, pixels->width, pixels->height);
    if (plan->orientation != 1) {
        int r = orient(scratch, plan, pixels, &oriented, error);
        if (r)
            return r;
        pixels = &oriented;
    }
    struct hr__window window = {.plane = {pixels->plane[0], pixels->plane[1], pixels->plane[2]},
                                .stride = pixels->stride,
                                .x = plan->source.x,
                                .y = plan->source.y,
                                .width = pixels->width,
                                .height = pixels->height,
                                .image_width = plan->width,
                                .image_height = plan->height};
    const struct hr__fold *rest = &plan->rest;
    int r = plan->bytes ? hr__bytes_run(scratch, plan, &window, error) : 0;
    if (r)
        return r;
    if (rest->fused && !rest->colors) {
        r = run_fused_tensor(recipe, scratch, rest, &window, out, error);
    } else {
        r = rest->fused
                ? run_fused_picture(scratch, plan, &window, &picture, error)
                : hr__general_run(scratch, plan, rest->first, rest->last, &window, &picture, error);
        if (!r)
            finish(recipe, &picture, out);
    }
    if (!r)
        hr__erase_run(plan, &recipe->spec, out);
    return r;
}
