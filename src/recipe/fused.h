/*
 * The fused tensor pass: turns cropped planar bytes into a resized, flipped, normalised and cast
 * sample in one pass.
 *
 * It filters horizontally on bytes with integer weights into a ring of float rows, then vertically
 * in float with scale and shift folded into the weights, and writes with non-temporal stores. The
 * integer weights define the result, so every instruction set gives the same bits. Bilinear weights
 * have 14 bits and sum to 16256 (= 127 x 128). Bicubic weights may exceed 1; they have 13 bits and
 * sum to 8128. For VNNI, both are split into a signed high part and a low part of 7 bits. The
 * integers are the weights of resample.h, rounded to nearest and then adjusted by one, largest
 * remainder first, until the sum is right. Vertical sums multiply, then add, in tap order, never as
 * fused multiply-add.
 *
 * Where neither axis is resized, as before and after filters, it only converts rows of bytes: the
 * same bits.
 */
#ifndef HR_RECIPE_FUSED_H
#define HR_RECIPE_FUSED_H

#include "base/cpu.h"
#include "codec/codec.h"
#include "recipe/resample.h"

#include <headrace/recipe.h>

/* Most horizontal taps of this pass: enough for scales down to 1/63.5 (bilinear) or 1/31.7
 * (bicubic). With more, integer weights would be too coarse: at this limit pixels differ from the
 * exact ones by 0.02 in the mean. */
#define HR__FUSED_MAX_TAPS 128

struct hr__fused_job {
    const struct hr__planar *pixels;
    struct hr__axis x, y;
    enum hr_interpolation interpolation;
    int antialias;
    float scale[3], shift[3]; /* output = value (0..255) x scale + shift */
    enum hr_dtype dtype;      /* UINT8 requires scale 1 and shift 0; it rounds half up and clamps */
    enum hr_layout layout;
    void *out; /* one sample, count_y x count_x x 3, aligned to its elements; fastest if aligned to
                * 64 bytes */
    int pitch, lines; /* pixels between the rows of `out`, and rows between its planes; 0: those of
                       * the sample */
    int cached;       /* non-zero: write through the cache, because the sample is read soon */
};

struct hr__fused; /* one thread's tables and ring */

/* On success the caller owns *out. Errors: -ENOMEM. */
int hr__fused_create(struct hr__fused **out, struct hr_error *error);
void hr__fused_destroy(struct hr__fused **fused);

/* Returns the bytes it holds, which grow to the largest job seen. */
size_t hr__fused_memory(const struct hr__fused *fused);

/* Returns non-zero if the fused pass supports the job (its taps are within the limit). */
int hr__fused_fits(const struct hr__fused_job *job);

/*
 * Runs a job that fits. Of each plane it reads the sources of the wanted outputs (hr__axis_source),
 * and up to HR__PIXEL_SLACK bytes past a row's last pixel. Streaming stores are fenced before the
 * return, so the usual release and acquire make the result visible to other threads. Errors: only
 * -ENOMEM.
 */
int hr__fused_run(struct hr__fused *fused, const struct hr__fused_job *job, struct hr_error *error);

/* For tests: uses a lower instruction set from now on. Returns 0, or -ENOTSUP if the machine does
 * not support it. */
int hr__fused_use(struct hr__fused *fused, enum hr__isa isa);

#endif
