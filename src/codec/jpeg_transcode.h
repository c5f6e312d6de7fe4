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
 * coding, or a chroma sampling other than 1 or 1/2 on each axis; -EBADMSG.
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

/* Adds an index to a file. Errors: as above; -ENOTSUP for every file that our own decoder does not
 * take, which is all but sequential Huffman coding in one scan without damage. */
int hr__transcode_indexed(struct hr__transcoder *transcoder, const struct hr__encoded *in,
                          size_t limit, struct hr__transcoded *out, struct hr_error *error);

/* Writes a JPEG with the coefficients of an item; every decoder gives the same pixels. Errors:
 * -EBADMSG, -ENOMEM. */
int hr__transcode_jpeg(struct hr__transcoder *transcoder, const struct hr__coefficients *item,
                       struct hr__transcoded *out, struct hr_error *error);

#endif
