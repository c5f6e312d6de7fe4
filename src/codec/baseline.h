/*
 * Our own decoder of sequential Huffman-coded JPEG, for files of the usual structure: 8 bits, one
 * scan, grey, YCbCr or RGB, of every sampling that libjpeg-turbo takes.
 *
 * It gives exactly libjpeg-turbo's pixels in about half of its time. Blocks outside the region are
 * skipped: only the lengths of their symbols and their DC differences are decoded. Those inside are
 * transformed (inverse_dct.h) a few at a time, upsampled and converted (ycc.h).
 *
 * It reads at least what libjpeg-turbo would read for the same region, and takes nothing that
 * libjpeg-turbo would object to. Where anything is unusual or damaged it gives up, and
 * libjpeg-turbo decodes the image or refuses it.
 */
#ifndef HR_CODEC_BASELINE_H
#define HR_CODEC_BASELINE_H

#include "codec/format.h"

#include <stdio.h>

#include <jpeglib.h>

/* One thread's state. */
struct hr__baseline;

/* Errors: -ENOMEM. */
int hr__baseline_create(struct hr__baseline **out, struct hr_error *error);
void hr__baseline_destroy(struct hr__baseline **baseline);
size_t hr__baseline_memory(const struct hr__baseline *baseline);

/* Sets the bytes of a strip's samples (strips.h), about; for tests. */
void hr__baseline_set_strip(struct hr__baseline *baseline, size_t bytes);

/* Sets the least bytes that are skipped as two streams (mcu_skip.h); for tests. */
void hr__baseline_set_guess(struct hr__baseline *baseline, size_t bytes);

/*
 * Decodes the job's region. libjpeg has read the header into `cinfo`, and its source is at the
 * scan's first byte. Sets *done to 0 if the image is left to libjpeg-turbo; the planes may have
 * been written to then. Errors: -ENOMEM.
 */
int hr__baseline_region(struct hr__baseline *baseline, const struct jpeg_decompress_struct *cinfo,
                        const struct hr__decode_job *job, int *done, struct hr_error *error);

/*
 * An index of a scan: points at which decoding can begin, at the first MCU of each row of MCUs and
 * every HR__POINT_PIXELS pixels in it, and one more at the end of the last MCU. A point has 64
 * bits, little-endian:
 *
 *   bits 0..2    the bit, from the highest one, of
 *   bits 3..30   the byte, from the scan's first one; never a stuffed zero, nor a marker's byte
 *   bits 31..63  three times 11 bits: the last DC coefficient of each component + 1024 (1024 for
 *                missing components)
 *
 * Where a restart marker precedes the MCU, the point is behind it.
 */
#define HR__POINT_PIXELS     128
#define HR__POINT_BYTES      8
#define HR__POINT_BYTE_BITS  28
#define HR__POINT_LEVEL_BITS 11
#define HR__POINT_LEVEL_BIAS 1024

struct hr__scan_grid {
    uint32_t spacing; /* MCUs between points of a row */
    uint32_t per_row; /* points */
    uint64_t points;
};

struct hr__scan_index {
    const uint8_t *points; /* any alignment */
    uint64_t count;
};

/* Finds where the points of a file lie once it is coded in the usual way. Returns 0 if its colours
 * or its sampling are unusual. */
int hr__baseline_grid(struct hr__baseline *baseline, const struct jpeg_decompress_struct *cinfo,
                      struct hr__scan_grid *grid);

/* Makes the points of a file, as many as its grid has. Returns 0 if the scan is damaged, or a point
 * cannot hold a value. */
int hr__baseline_points(struct hr__baseline *baseline, const struct jpeg_decompress_struct *cinfo,
                        uint8_t *points);

/* As hr__baseline_region, but by an index, which may be of untrusted origin. Sets *done to 0 if the
 * index is not one of this file, or the file is not valid where it was read. */
int hr__baseline_indexed(struct hr__baseline *baseline, const struct jpeg_decompress_struct *cinfo,
                         const struct hr__decode_job *job, const struct hr__scan_index *index,
                         int *done, struct hr_error *error);

#endif
