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

/*
 * Decodes the job's region. libjpeg has read the header into `cinfo`, and its source is at the
 * scan's first byte. Sets *done to 0 if the image is left to libjpeg-turbo; the planes may have
 * been written to then. Errors: -ENOMEM.
 */
int hr__baseline_region(struct hr__baseline *baseline, const struct jpeg_decompress_struct *cinfo,
                        const struct hr__decode_job *job, int *done, struct hr_error *error);

#endif
