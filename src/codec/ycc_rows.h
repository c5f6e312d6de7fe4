/*
 * The interface between ycc.c, which handles windows, edges and rows, and the row kernels for each
 * instruction set. All versions give the same pixels.
 *
 * Vertically, a chroma row is mixed three to one from the row that covers the pixel row and the
 * nearest other row. Horizontally, each sample gives an even pixel, mixed with its left neighbour,
 * and an odd pixel, mixed with its right one. The mean is taken only once, after both, with
 * different rounding for even and odd pixels: this is libjpeg-turbo's h2v2. With one row mixed with
 * itself it is h2v1.
 */
#ifndef HR_CODEC_YCC_ROWS_H
#define HR_CODEC_YCC_ROWS_H

#include "base/cpu.h"

#include <stdint.h>

/* Pixels processed at once: every input must be readable and every output writable for its count
 * rounded up to this. */
#define HR__YCC_PIXELS 64

/* JFIF's factors (T.871) in units of 2^-16, rounded, as libjpeg has them. */
#define HR__YCC_CR_RED   91881
#define HR__YCC_CB_BLUE  116130
#define HR__YCC_CR_GREEN 46802
#define HR__YCC_CB_GREEN 22554

/* A row of output pixels. */
struct hr__ycc_row {
    const uint8_t *luma;
    uint8_t *rgb[3];
    int pixels;
};

/* Chroma at half the pixels' width, after `mix`. */
struct hr__ycc_mixed {
    const uint16_t *chroma[2]; /* Cb, Cr: the sample that covers the first pixel; its left neighbour
                                * and the last sample's right one are readable */
    int odd;                   /* the first pixel is odd: the second pixel of its sample */
    int rounding[2];           /* in sixteenths, for even and odd pixels */
};

struct hr__ycc_kernels {
    /* out[i] = 3 near[i] + far[i] */
    void (*mix)(const uint8_t *near, const uint8_t *far, uint16_t *out, int samples);
    /* out[i] = (3 near[i] + far[i] + rounding) / 4 */
    void (*between)(const uint8_t *near, const uint8_t *far, uint8_t *out, int samples,
                    int rounding);
    /* Converts colour; chroma (Cb, Cr) has the pixels' width. */
    void (*same)(const struct hr__ycc_row *row, const uint8_t *const chroma[2]);
    /* Upsamples and converts colour; chroma has half the pixels' width. Reads each chroma row from
     * one sample before to one after what whole vectors of pixels use. */
    void (*doubled)(const struct hr__ycc_row *row, const struct hr__ycc_mixed *mixed);
};

#endif
