/*
 * Between ycc.c, which knows windows, edges and rows, and its kernels for one
 * instruction set each. All versions give the same pixels.
 *
 * Vertically, a chroma row is mixed out of the row that covers the pixel row and
 * the nearest other one, three to one; horizontally each sample gives an even
 * pixel, mixed with its left neighbour, and an odd one, mixed with its right.
 * With a mean taken only once, after both, and different roundings for even and
 * odd, that is libjpeg-turbo's h2v2; of one row mixed with itself it is h2v1.
 */
#ifndef HR_CODEC_YCC_ROWS_H
#define HR_CODEC_YCC_ROWS_H

#include "base/cpu.h"

#include <stdint.h>

/* What is processed at once: every input is readable, and every output writable,
 * for its count rounded up to this. */
#define HR__YCC_PIXELS 64

/* JFIF's factors (T.871) in units of 2^-16, rounded, as libjpeg has them. */
#define HR__YCC_CR_RED   91881
#define HR__YCC_CB_BLUE  116130
#define HR__YCC_CR_GREEN 46802
#define HR__YCC_CB_GREEN 22554

/* A row of pixels to be made. */
struct hr__ycc_row {
    const uint8_t *luma;
    uint8_t *rgb[3];
    int pixels;
};

/* Chroma of half the pixels' width, after `mix`. */
struct hr__ycc_mixed {
    const uint16_t *chroma[2]; /* Cb, Cr: the sample that covers the first pixel; its left
                                  neighbour, and the right one of the last, are there */
    int odd;                   /* the first pixel is an odd one: the second of its sample */
    int rounding[2];           /* in sixteenths, of even and odd pixels */
};

struct hr__ycc_kernels {
    /* out[i] = 3 near[i] + far[i] */
    void (*mix)(const uint8_t *near, const uint8_t *far, uint16_t *out, int samples);
    /* out[i] = (3 near[i] + far[i] + rounding) / 4 */
    void (*between)(const uint8_t *near, const uint8_t *far, uint8_t *out, int samples,
                    int rounding);
    /* Colour, with chroma of the pixels' width: Cb, Cr */
    void (*same)(const struct hr__ycc_row *row, const uint8_t *const chroma[2]);
    /* Upsampling and colour, with chroma of half of it. Reads the row of chroma from one
     * sample before to one behind what whole vectors of pixels take. */
    void (*doubled)(const struct hr__ycc_row *row, const struct hr__ycc_mixed *mixed);
};

#endif
