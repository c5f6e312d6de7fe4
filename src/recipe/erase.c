/*
 * Sets rectangles of the finished tensor. A value is given in the units of its operation's place in
 * the recipe; what Normalize and ToDtype after that place do to values, is done to it, too.
 */
#include "recipe/erase.h"

#include "recipe/byte_rows.h"
#include "recipe/store.h"

#include <assert.h>

void hr__plan_erase(struct hr__prepare_plan *plan, const struct hr__bound *bound,
                    const struct hr_region *rectangle, uint64_t seed)
{
    assert(plan->erasings < HR__PLAN_MAX_ERASINGS);
    struct hr__erasing *e = &plan->erasing[plan->erasings++];
    e->rectangle = *rectangle;
    e->bound = bound;
    e->seed = seed;
}

void hr__erasing_finish(struct hr__bound *bound, const struct hr__state *last)
{
    for (int c = 0; c < 3; c++) {
        bound->scale[c] = last->scale[c] / bound->scale[c];
        bound->shift[c] = last->shift[c] - bound->shift[c] * bound->scale[c];
    }
}

/* The tensor's value for v at the operation's place, where torchvision may have a byte. */
static float value_of(const struct hr__bound *bound, int c, float v)
{
    double here = bound->bytes ? (double)(uint8_t)(int32_t)v : (double)v;
    return (float)(here * bound->scale[c] + bound->shift[c]);
}

static void store(const struct hr_tensor_spec *spec, void *out, size_t at, float v)
{
    switch (spec->dtype) {
    case HR_UINT8:
        ((uint8_t *)out)[at] = hr__store_uint8(v);
        break;
    case HR_FLOAT16:
        ((uint16_t *)out)[at] = hr__store_float16(v);
        break;
    case HR_BFLOAT16:
        ((uint16_t *)out)[at] = hr__store_bfloat16(v);
        break;
    case HR_FLOAT32:
        ((float *)out)[at] = v;
        break;
    default:
        break;
    }
}

/* Sets row y of the rectangle in channel c. */
static void erase_row(const struct hr__erasing *e, const struct hr_tensor_spec *spec, int c, int y,
                      void *out)
{
    const struct hr__byte_rows *kernels = hr__byte_rows(hr__isa());
    const struct hr_region *box = &e->rectangle;
    enum hr_erasing_value mode = e->bound->operation.u.random_erasing.mode;
    uint32_t channel_row[2] = {(uint32_t)c, mode == HR_ERASE_NOISE ? (uint32_t)y : 0};
    float normal[HR__NORMAL_BLOCK], v = (float)e->bound->operation.u.random_erasing.value[c];
    size_t width = (size_t)spec->width, row = (size_t)y;
    if (mode == HR_ERASE_RANDOM) {
        kernels->normal(e->seed, channel_row, 0, 1, normal);
        v = normal[0];
    }
    v = value_of(e->bound, c, v);
    for (int x = box->x; x < box->x + box->width; x++) {
        int k = x % HR__NORMAL_BLOCK;
        if (mode == HR_ERASE_NOISE && (x == box->x || !k))
            kernels->normal(e->seed, channel_row, (uint32_t)(x - k), 1, normal);
        size_t at = spec->layout == HR_NCHW
                        ? ((size_t)c * (size_t)spec->height + row) * width + (size_t)x
                        : (row * width + (size_t)x) * 3 + (size_t)c;
        store(spec, out, at, mode == HR_ERASE_NOISE ? value_of(e->bound, c, normal[k]) : v);
    }
}

void hr__erase_run(const struct hr__prepare_plan *plan, const struct hr_tensor_spec *spec,
                   void *out)
{
    for (int i = 0; i < plan->erasings; i++) {
        const struct hr_region *box = &plan->erasing[i].rectangle;
        for (int c = 0; c < 3; c++)
            for (int y = box->y; y < box->y + box->height; y++)
                erase_row(&plan->erasing[i], spec, c, y, out);
    }
}
