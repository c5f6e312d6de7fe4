/*
 * Converts between JPEG files and items. libjpeg-turbo reads and writes the entropy-coded
 * coefficients, or returns the planes; nothing is decoded further or encoded anew.
 */
#ifndef HR_CODEC_JPEG_TRANSCODE_H
#define HR_CODEC_JPEG_TRANSCODE_H

#include "codec/coefficients.h"
#include "codec/format.h"
#include "codec/indexed.h"
#include "codec/planes.h"

struct hr__transcoder; /* one thread's state */

/* On success the caller owns *out. Errors: -ENOMEM. */
int hr__transcoder_create(struct hr__transcoder **out, struct hr_error *error);
void hr__transcoder_destroy(struct hr__transcoder **transcoder);
size_t hr__transcoder_memory(const struct hr__transcoder *transcoder);

/* The result of the functions below: in memory of the transcoder until its next call, 64-byte
 * aligned. */
struct hr__transcoded {
    const uint8_t *bytes;
    size_t length;
};

/*
 * Fills in the header of an item of this JPEG (form and bytes are 0), from the file's header.
 * Errors: -ENOTSUP, with the reason why it cannot become an item: not YCbCr or grey, arithmetic
 * coding, or a sampling that items do not have (hr__item_may_sample); -EBADMSG.
 */
int hr__transcode_shape(struct hr__transcoder *transcoder, const struct hr__encoded *in,
                        struct hr__item_header *shape, struct hr_error *error);

/* Converts a JPEG to an item; `limit` as in hr__packer_begin. Errors: as above; -ENOTSUP also for
 * coefficients beyond those of 8-bit pixels, and for an incomplete progressive file, which decoders
 * smooth; -ENOSPC; -ENOMEM. */
int hr__transcode_coefficients(struct hr__transcoder *transcoder, const struct hr__encoded *in,
                               size_t limit, struct hr__transcoded *out, struct hr_error *error);
int hr__transcode_planes(struct hr__transcoder *transcoder, const struct hr__encoded *in,
                         size_t limit, struct hr__transcoded *out, struct hr_error *error);

/* Adds an index to a file, a progressive one after hr__jpeg_to_baseline. Errors: as above; -ENOTSUP
 * for every file that our own decoder does not take then, which is all but sequential Huffman
 * coding in one scan without damage. */
int hr__transcode_indexed(struct hr__transcoder *transcoder, const struct hr__encoded *in,
                          size_t limit, struct hr__transcoded *out, struct hr_error *error);

/* Finds the size of an indexed file from the file's header: exactly, for progressive files about.
 * Errors: -ENOTSUP: its colours, coding or sampling are unusual; -EBADMSG; -ENOMEM. */
int hr__transcode_indexed_size(struct hr__transcoder *transcoder, const struct hr__encoded *in,
                               uint64_t *bytes, struct hr_error *error);

/*
 * Rewrites a progressive JPEG as a baseline one with exactly the same coefficients, quantisation
 * tables, sampling, and APPn and COM segments, with optimised Huffman tables and without restart
 * markers; so every decoder gives the same pixels. What follows the end of the image is dropped.
 * Any other file is returned as it is: *out is `in`. `limit`: the most bytes, 0: any.
 *
 * Errors: -ENOTSUP: it was not saved whole, so that decoders smooth it, or its coefficients or its
 * sampling do not fit into a baseline file; -ENOSPC; -EBADMSG; -ENOMEM.
 */
int hr__jpeg_to_baseline(struct hr__transcoder *transcoder, const struct hr__encoded *in,
                         size_t limit, struct hr__transcoded *out, struct hr_error *error);

/* Writes a JPEG with the coefficients of an item; every decoder gives the same pixels. Errors:
 * -EBADMSG, -ENOMEM. */
int hr__transcode_jpeg(struct hr__transcoder *transcoder, const struct hr__coefficients *item,
                       struct hr__transcoded *out, struct hr_error *error);

#endif
