/*
 * Converts component planes to RGB, for any region: fancy upsampling and colour conversion, with
 * exactly the pixels of libjpeg-turbo (do_fancy_upsampling, JCS_RGB). Our own JPEG decoder and the
 * forms `coefficients` and `planes` share this code.
 *
 * Upsampling uses the usual triangle filter as libjpeg-turbo defines it for samples of 2x1, 1x2 and
 * 2x2 pixels, including its rounding. It replicates samples where libjpeg-turbo does: samples of
 * other sizes, and samples two pixels wide of a component that is at most 2 samples across.
 * Neighbours are clamped to the component's true size, not its padded one. Colour is JFIF's YCbCr
 * (T.871, section 7) in libjpeg's 16-bit fixed point.
 */
#ifndef HR_CODEC_YCC_H
#define HR_CODEC_YCC_H

#include "base/cpu.h"
#include "codec/codec.h"
#include "codec/item.h"

/* What the conversion needs to know of an image. */
struct hr__ycc_shape {
    uint32_t width, height;     /* pixels */
    uint8_t components;         /* 1: grey; 3 */
    uint8_t rgb;                /* the components are red, green and blue, not Y, Cb and Cr */
    uint8_t across[3], down[3]; /* pixels of one sample of each component; 1..4 */
};

/* Returns the shape of an item's image. */
struct hr__ycc_shape hr__ycc_shape_of(const struct hr__item_header *item);

/* Returns non-zero if the filter mixes samples of rows one above the other, so that a row of pixels
 * may need samples of the row of MCUs below. */
int hr__ycc_mixes_rows(const struct hr__ycc_shape *shape);

/* A window of each component. Vector loads may read up to 64 bytes past the last used sample of a
 * window's row. */
struct hr__ycc_planes {
    const struct hr__ycc_shape *shape;
    const uint8_t *at[3]; /* the window's first sample */
    ptrdiff_t stride[3];
    struct hr_region window[3]; /* in samples of the component */
};

/* Finds the samples of component c that the pixels of `region` depend on. */
void hr__ycc_window(const struct hr__ycc_shape *shape, const struct hr_region *region, int c,
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
