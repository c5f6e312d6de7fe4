/*
 * The tensor pass: cropped planar bytes to a resized, flipped, normalised, cast
 * sample in one go.
 *
 * Horizontally on bytes with integer weights into a ring of float rows;
 * vertically in float with scale and shift folded in; written with
 * non-temporal stores. The integer weights are the definition, so that every
 * instruction set gives the same bits: 14 bits that sum to 16256 (= 127 x 128)
 * for bilinear, 13 bits that sum to 8128 for bicubic, whose weights may exceed 1;
 * both split into a signed high part and a low one of 7 bits, for VNNI. They are
 * the weights of resample.h rounded to nearest, then moved by one, those of
 * largest remainder first, until the sum is right. Vertical sums are
 * multiply, then add, in tap order, never fused.
 */
#ifndef HR_RECIPE_FUSED_H
#define HR_RECIPE_FUSED_H

#include "base/cpu.h"
#include "codec/codec.h"
#include "recipe/resample.h"

#include <headrace/recipe.h>

/* Horizontal taps that the pass can do: bilinear down to 1/15.5, bicubic 1/7.5. */
#define HR__FUSED_MAX_TAPS 32

struct hr__fused_job {
    const struct hr__planar *pixels;
    struct hr__axis x, y;
    enum hr_interpolation interpolation;
    int antialias;
    float scale[3], shift[3]; /* output = value (0..255) x scale + shift */
    enum hr_dtype dtype;      /* UINT8: scale, shift are 1, 0; rounded half up, clamped */
    enum hr_layout layout;
    void *out;  /* one sample, count_y x count_x x 3, aligned to its elements; fastest
                   where aligned to 64 bytes */
    int cached; /* non-zero: the sample is read again soon, so it goes through the cache */
};

struct hr__fused; /* one thread's tables and ring */

/* On success *out is the caller's. Errors: -ENOMEM. */
int hr__fused_create(struct hr__fused **out, struct hr_error *error);
void hr__fused_destroy(struct hr__fused **fused);

/* Bytes it holds: they grow to the largest job seen. */
size_t hr__fused_memory(const struct hr__fused *fused);

/* Non-zero where the fused pass can do the job (taps within its limit). */
int hr__fused_fits(const struct hr__fused_job *job);

/*
 * Runs a job that fits. Reads of each plane the sources of the wanted outputs
 * (hr__axis_source), and up to HR__PIXEL_SLACK bytes past a row's last pixel.
 * The result is visible to other threads through the usual release and acquire:
 * streaming stores are fenced before the return. Errors: -ENOMEM only.
 */
int hr__fused_run(struct hr__fused *fused, const struct hr__fused_job *job, struct hr_error *error);

/* Tests: runs on a lower instruction set from now on. Returns 0, or -ENOTSUP
 * where the machine does not have it. */
int hr__fused_use(struct hr__fused *fused, enum hr__isa isa);

#endif
