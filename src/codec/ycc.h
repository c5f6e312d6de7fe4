/*
 * Converts component planes to RGB, for any region: fancy chroma upsampling and colour conversion,
 * with exactly the pixels of libjpeg-turbo (do_fancy_upsampling, JCS_RGB). The forms `coefficients`
 * and `planes` share this code.
 *
 * Upsampling (h and v: luma samples per chroma sample, 1 or 2 each) uses the usual triangle filter
 * as libjpeg-turbo defines it for h2v1, h1v2 and h2v2, including its rounding. It replicates
 * samples where libjpeg-turbo does (h2 with a component of at most 2 samples across). Neighbours
 * are clamped to the component's true size, not its padded one. Colour is JFIF's YCbCr (T.871,
 * section 7) in libjpeg's 16-bit fixed point.
 */
#ifndef HR_CODEC_YCC_H
#define HR_CODEC_YCC_H

#include "base/cpu.h"
#include "codec/codec.h"
#include "codec/item.h"

/* A window of each component. Vector loads may read up to 64 bytes past the last used sample of a
 * window's row. */
struct hr__ycc_planes {
    const struct hr__item_header *shape; /* provides width, height, components, h, v */
    const uint8_t *at[3];                /* the window's first sample */
    ptrdiff_t stride[3];
    struct hr_region window[3]; /* in samples of the component */
};

/* Finds the samples of component c that the pixels of `region` depend on. */
void hr__ycc_window(const struct hr__item_header *shape, const struct hr_region *region, int c,
                    struct hr_region *window);

struct hr__ycc_kernels;
extern const struct hr__ycc_kernels hr__ycc_kernels_portable;
extern const struct hr__ycc_kernels hr__ycc_kernels_avx2;
extern const struct hr__ycc_kernels hr__ycc_kernels_avx512;
extern const struct hr__ycc_kernels hr__ycc_kernels_neon;
const struct hr__ycc_kernels *hr__ycc_kernels(enum hr__isa isa);

/* One thread's intermediate rows between upsampling and colour conversion. */
struct hr__ycc;
int hr__ycc_create(struct hr__ycc **out, enum hr__isa isa, struct hr_error *error);
void hr__ycc_destroy(struct hr__ycc **ycc);
size_t hr__ycc_memory(const struct hr__ycc *ycc);

/* Converts `region` (inside the image; the planes must hold its windows) into `out`, which has the
 * region's size. Errors: -ENOMEM. */
int hr__ycc_run(struct hr__ycc *ycc, const struct hr__ycc_planes *planes,
                const struct hr_region *region, const struct hr__planar *out,
                struct hr_error *error);

#endif
