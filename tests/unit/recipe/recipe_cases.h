/*
 * Helpers for tests of recipes: short ways to write operations, synthetic images, and running a
 * recipe on the whole image instead of the region, or on the general path instead of the fused one.
 */
#ifndef HR_TEST_RECIPE_CASES_H
#define HR_TEST_RECIPE_CASES_H

#include "../test.h"

#include "base/memory.h"
#include "recipe/operation.h"
#include "recipe/orient.h"
#include "recipe/scratch.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline struct hr_operation op(enum hr_operation_kind kind)
{
    struct hr_operation o;
    hr_operation_default(&o, kind);
    return o;
}

static inline struct hr_operation sized(enum hr_operation_kind kind, int height, int width)
{
    struct hr_operation o = op(kind);
    switch (kind) {
    case HR_RANDOM_RESIZED_CROP:
        o.u.random_resized_crop.height = height;
        o.u.random_resized_crop.width = width;
        break;
    case HR_RESIZE:
        o.u.resize.height = height;
        o.u.resize.width = width;
        break;
    case HR_CENTER_CROP:
        o.u.center_crop.height = height;
        o.u.center_crop.width = width;
        break;
    default:
        o.u.random_crop.height = height;
        o.u.random_crop.width = width;
    }
    return o;
}

static inline struct hr_operation to_dtype(enum hr_dtype dtype, int scale)
{
    struct hr_operation o = op(HR_TO_DTYPE);
    o.u.to_dtype.dtype = dtype;
    o.u.to_dtype.scale = scale;
    return o;
}

static inline struct hr_recipe *recipe_of(const struct hr_operation *operations, size_t count)
{
    struct hr_error error = {0};
    struct hr_recipe *recipe;
    if (hr_recipe_create(&recipe, operations, count, NULL, &error))
        fail_msg("%s", error.message);
    return recipe;
}

/* Makes a whole image. Free it with image_free. */
static inline struct hr__planar image_of(int width, int height, uint64_t seed)
{
    struct hr__planar p = {.width = width, .height = height};
    struct hr__random r;
    p.stride = (width + 63) / 64 * 64;
    double *across = malloc((size_t)p.stride * sizeof *across);
    hr__random_init(&r, seed, 0, 0, 0);
    for (int c = 0; c < 3; c++) {
        p.plane[c] = hr__alloc_aligned(HR__TAG_CODEC, (size_t)p.stride * (size_t)height, 64);
        assert_non_null(p.plane[c]);
        for (int x = 0; x < p.stride; x++)
            across[x] = 100 * sin(x * 0.11 + c);
        for (int y = 0; y < height; y++) {
            double down = cos(y * 0.07 - c);
            for (int x = 0; x < p.stride; x++) {
                /* waves with noise: every value occurs, neighbours are alike */
                double wave = 127 + across[x] * down;
                p.plane[c][y * p.stride + x] = (uint8_t)(wave + hr__random_below(&r, 29));
            }
        }
    }
    free(across);
    return p;
}

static inline void image_free(struct hr__planar *p)
{
    for (int c = 0; c < 3; c++) {
        hr__free(p->plane[c]);
        p->plane[c] = NULL;
    }
}

/* Copies `region` alone, as a decoder returns it. */
static inline struct hr__planar image_cut(const struct hr__planar *whole,
                                          const struct hr_region *region)
{
    struct hr__planar p = {.width = region->width, .height = region->height};
    assert_true(region->x >= 0 && region->y >= 0 && region->width > 0 && region->height > 0);
    assert_true(region->x + region->width <= whole->width);
    assert_true(region->y + region->height <= whole->height);
    p.stride = (p.width + 63) / 64 * 64;
    for (int c = 0; c < 3; c++) {
        size_t bytes = (size_t)p.stride * (size_t)p.height;
        p.plane[c] = hr__alloc_aligned(HR__TAG_CODEC, bytes, 64);
        assert_non_null(p.plane[c]);
        memset(p.plane[c], 0xee, bytes + 64);
        for (int y = 0; y < p.height; y++)
            memcpy(p.plane[c] + y * p.stride,
                   whole->plane[c] + (region->y + y) * whole->stride + region->x, (size_t)p.width);
    }
    return p;
}

enum how {
    AS_PLANNED, /* the region, on the path that the plan chose */
    WHOLE,      /* the whole image, on the same path */
    GENERAL,    /* the whole image, on the general path */
};

/* Plans and runs. *fused: non-zero if the plan chose the fused path. */
static inline void run_how(const struct hr_recipe *recipe, const struct hr__planar *whole,
                           int orientation, const struct hr_draw_key *key, enum how how, void *out,
                           int *fused)
{
    struct hr_error error = {0};
    struct hr__scratch *scratch;
    const struct hr__prepare_plan *plan;
    struct hr_region region;
    struct hr_image_info info = {HR_IMAGE_JPEG, whole->width, whole->height, 3, orientation};
    assert_int_equal(hr__scratch_create(&scratch, &error), 0);
    if (hr__recipe_plan(recipe, scratch, &info, key, &plan, &region, &error))
        fail_msg("%s", error.message);
    if (fused)
        *fused = plan->rest.fused;
    if (how != AS_PLANNED) {
        scratch->plan.source = (struct hr_region){0, 0, plan->width, plan->height};
        scratch->plan.region = (struct hr_region){0, 0, whole->width, whole->height};
        scratch->plan.rest.fused &= how == WHOLE;
        scratch->plan.head.fused &= how == WHOLE;
        region = scratch->plan.region;
    }
    struct hr__planar pixels = image_cut(whole, &region);
    if (hr__recipe_run(recipe, scratch, plan, &pixels, out, &error))
        fail_msg("%s", error.message);
    image_free(&pixels);
    hr__scratch_destroy(&scratch);
}

/* Returns a copy of the plan of one draw. */
static inline struct hr__prepare_plan plan_of_key(const struct hr_recipe *recipe, int width,
                                                  int height, struct hr_draw_key key)
{
    struct hr_error error = {0};
    struct hr__scratch *scratch;
    const struct hr__prepare_plan *plan;
    struct hr_region region;
    struct hr_image_info info = {HR_IMAGE_JPEG, width, height, 3, 1};
    assert_int_equal(hr__scratch_create(&scratch, &error), 0);
    if (hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, &error))
        fail_msg("%s", error.message);
    struct hr__prepare_plan copy = *plan;
    hr__scratch_destroy(&scratch);
    return copy;
}

static inline struct hr__prepare_plan plan_of(const struct hr_recipe *recipe, int width, int height,
                                              uint64_t index)
{
    return plan_of_key(recipe, width, height,
                       (struct hr_draw_key){.seed = 11, .epoch = 3, .index = index});
}

#endif
