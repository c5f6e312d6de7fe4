/*
 * MixUp (Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR'18) and CutMix (Yun et
 * al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features",
 * ICCV'19), with the draws and the arithmetic of torchvision v2: the partner of a sample is the one
 * before it in the batch, and results are rounded to the element type after each operation.
 *
 * The batch is mixed in place, a block of elements at a time for all samples, from the last to the
 * second, so that a sample's partner is read before it is changed; the first sample's partner is a
 * copy. Each element comes from memory once.
 */
#include "loader/mix.h"

#include "base/distribution.h"
#include "base/error.h"
#include "loader/remote.h"
#include "recipe/recipe.h"
#include "recipe/store.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Elements of a block: those of two samples and the copy fit into the first-level cache. */
#define BLOCK 2048

static int check_numbers(const struct hr_loader_options *options, struct hr_error *error)
{
    const struct {
        const char *name;
        double value, most;
    } numbers[] = {{"mixup_alpha", options->mixup_alpha, 1e6},
                   {"cutmix_alpha", options->cutmix_alpha, 1e6},
                   {"mix_share", options->mix_share, 1},
                   {"cutmix_share", options->cutmix_share, 1}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (!(numbers[i].value >= 0 && numbers[i].value <= numbers[i].most))
            return hr__fail(error, -EINVAL, "%s = %g: must be from 0 to %g", numbers[i].name,
                            numbers[i].value, numbers[i].most);
    }
    return 0;
}

int hr__mix_check(const struct hr_loader *l, struct hr_error *error)
{
    const struct hr_loader_options *options = &l->options;
    size_t views = hr_recipe_views(l->recipe);
    int r = check_numbers(options, error);
    if (r || !hr__mix_is_on(options))
        return r;
    if (views > 1)
        return hr__fail(error, -EINVAL,
                        "MixUp and CutMix mix one image of a sample, and the recipe has %zu views: "
                        "leave one of them out",
                        views);
    if (options->cutmix_alpha > 0 && l->spec.dims && l->spec.dims < 3)
        return hr__fail(error, -EINVAL,
                        "CutMix cuts rectangles of images, and the samples are sounds: leave it "
                        "out, or use MixUp");
    if (options->mixup_alpha > 0 && l->spec.dtype == HR_UINT8)
        return hr__fail(error, -EINVAL,
                        "MixUp computes with floats and the batches are uint8: add a ToDtype with "
                        "scale to the recipe");
    if (hr__remote_is_wanted(options))
        return hr__fail(error, -EINVAL,
                        "an agent prepares samples for batches of any size, so it cannot mix them: "
                        "leave out MixUp and CutMix and mix the batches in training");
    if (hr__recipe_options(l->recipe)->padded)
        return hr__fail(error, -EINVAL,
                        "MixUp and CutMix need samples of one size, and the recipe is padded "
                        "(collate): leave one of them out");
    if (l->dataset->masks || l->dataset->rows)
        return hr__fail(error, -EINVAL,
                        "MixUp and CutMix mix images and labels, but the dataset has %s, which "
                        "they cannot mix: leave one of them out",
                        l->dataset->masks ? "masks" : "rows");
    return 0;
}

static int limit(int value, int low, int high)
{
    value = value < low ? low : value;
    return value > high ? high : value;
}

void hr__mix_draw(const struct hr_loader_options *options, const struct hr_tensor_spec *spec,
                  uint64_t seed, uint64_t epoch, uint64_t position, struct hr__mix *mix)
{
    struct hr__random random;
    *mix = (struct hr__mix){.own = 1};
    hr__random_init(&random, seed, HR__PURPOSE_MIX, epoch, position);
    if (hr__random_unit(&random) >= options->mix_share)
        return;
    int both = options->mixup_alpha > 0 && options->cutmix_alpha > 0;
    int chosen = hr__random_unit(&random) < options->cutmix_share;
    mix->is_cut = both ? chosen : options->cutmix_alpha > 0;
    double alpha = mix->is_cut ? options->cutmix_alpha : options->mixup_alpha;
    mix->own = hr__random_beta(&random, alpha, alpha);
    if (!mix->is_cut)
        return;
    int width = spec->width, height = spec->height;
    int x = (int)hr__random_below(&random, (uint64_t)width);
    int y = (int)hr__random_below(&random, (uint64_t)height);
    double half = 0.5 * sqrt(1 - mix->own);
    int half_width = (int)(half * width), half_height = (int)(half * height);
    mix->x1 = limit(x - half_width, 0, width);
    mix->y1 = limit(y - half_height, 0, height);
    mix->x2 = limit(x + half_width, 0, width);
    mix->y2 = limit(y + half_height, 0, height);
    double box = (double)(mix->x2 - mix->x1) * (mix->y2 - mix->y1);
    mix->own = 1 - box / ((double)width * height);
}

static inline float load_float16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    uint32_t bits = sign | (magnitude + (magnitude >= 0x7c00 ? 224u << 10 : 112u << 10)) << 13;
    float value;
    if (magnitude < 0x400) /* subnormal */
        return (sign ? -1.0f : 1.0f) * (float)magnitude * 0x1p-24f;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float load_bfloat16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* own: share of `to`; other: of `from`. */
static void blend_float32(float *restrict to, const float *restrict from, size_t n, float own,
                          float other)
{
    for (size_t i = 0; i < n; i++) {
        float partner = from[i] * other, self = to[i] * own;
        to[i] = partner + self;
    }
}

#define BLEND_HALF(name, load, store)                                                              \
    static void name(uint16_t *restrict to, const uint16_t *restrict from, size_t n, float own,    \
                     float other)                                                                  \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            float partner = load(store(load(from[i]) * other));                                    \
            float self = load(store(load(to[i]) * own));                                           \
            to[i] = store(partner + self);                                                         \
        }                                                                                          \
    }
BLEND_HALF(blend_float16, load_float16, hr__store_float16)
BLEND_HALF(blend_bfloat16, load_bfloat16, hr__store_bfloat16)

/* Mixes or replaces `bytes` bytes of one sample with those of its partner. */
static void combine(const struct hr__mix *mix, enum hr_dtype dtype, void *to, const void *from,
                    size_t bytes)
{
    float own = (float)mix->own, other = (float)(1.0 - mix->own);
    if (mix->is_cut)
        memcpy(to, from, bytes);
    else if (dtype == HR_FLOAT16)
        blend_float16(to, from, bytes / 2, own, other);
    else if (dtype == HR_BFLOAT16)
        blend_bfloat16(to, from, bytes / 2, own, other);
    else
        blend_float32(to, from, bytes / 4, own, other);
}

/* Combines the same bytes of all samples with those of the sample before. */
static void combine_all(const struct hr__mix *mix, const struct hr_tensor_spec *spec, char *at,
                        size_t count, size_t bytes)
{
    _Alignas(64) char last[BLOCK * sizeof(float)];
    memcpy(last, at + (count - 1) * spec->bytes, bytes);
    for (size_t i = count - 1; i > 0; i--)
        combine(mix, spec->dtype, at + i * spec->bytes, at + (i - 1) * spec->bytes, bytes);
    combine(mix, spec->dtype, at, last, bytes);
}

static void combine_range(const struct hr__mix *mix, const struct hr_tensor_spec *spec, char *at,
                          size_t count, size_t bytes)
{
    const size_t most = BLOCK * sizeof(float);
    for (size_t done = 0; done < bytes; done += most) {
        size_t part = bytes - done < most ? bytes - done : most;
        combine_all(mix, spec, at + done, count, part);
    }
}

void hr__mix_images(const struct hr__mix *mix, const struct hr_tensor_spec *spec, void *images,
                    size_t count)
{
    if (mix->own == 1 || count < 2)
        return;
    if (!mix->is_cut) {
        combine_range(mix, spec, images, count, spec->bytes);
        return;
    }
    size_t element = hr_dtype_bytes(spec->dtype);
    int planes = spec->layout == HR_NCHW ? spec->channels : 1;
    size_t pixel = element * (size_t)(spec->layout == HR_NCHW ? 1 : spec->channels);
    size_t row = pixel * (size_t)spec->width;
    for (int p = 0; p < planes; p++) {
        for (int y = mix->y1; y < mix->y2; y++) {
            size_t rows = (size_t)p * (size_t)spec->height + (size_t)y;
            combine_range(mix, spec, (char *)images + rows * row + (size_t)mix->x1 * pixel, count,
                          (size_t)(mix->x2 - mix->x1) * pixel);
        }
    }
}

void hr__mix_batch(const struct hr_loader *l, struct hr_batch *batch)
{
    const struct hr__epoch *plan = batch->plan;
    struct hr__mix mix;
    hr__mix_draw(&l->options, &l->spec, plan->seed, plan->epoch, batch->positions[0], &mix);
    hr__mix_images(&mix, &l->spec, batch->images, batch->count);
    batch->own = mix.own;
    batch->is_mixed = 1;
}

double hr_batch_mix(const struct hr_batch *batch)
{
    return batch->is_mixed ? batch->own : 1;
}
