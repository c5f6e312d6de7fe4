/*
 * Between JPEG files and items: libjpeg-turbo reads and writes the entropy-coded
 * coefficients, or gives the planes, and nothing is decoded further or coded anew.
 */
#ifndef HR_CODEC_JPEG_TRANSCODE_H
#define HR_CODEC_JPEG_TRANSCODE_H

#include "codec/coefficients.h"
#include "codec/format.h"
#include "codec/planes.h"

struct hr__transcoder; /* one thread's state */

/* On success *out is the caller's. Errors: -ENOMEM. */
int hr__transcoder_create(struct hr__transcoder **out, struct hr_error *error);
void hr__transcoder_destroy(struct hr__transcoder **transcoder);
size_t hr__transcoder_memory(const struct hr__transcoder *transcoder);

/* What the functions below give: in memory of the transcoder until its next call,
 * 64-byte aligned. */
struct hr__transcoded {
    const uint8_t *bytes;
    size_t length;
};

/*
 * The header of an item of this JPEG (form and bytes are 0), from its header.
 * Errors: -ENOTSUP says why it cannot be one: not YCbCr or grey, arithmetic
 * coding, a sampling other than chroma of 1 or 1/2 on either axis; -EBADMSG.
 */
int hr__transcode_shape(struct hr__transcoder *transcoder, const struct hr__encoded *in,
                        struct hr__item_header *shape, struct hr_error *error);

/* A JPEG to an item; `limit` as of hr__packer_begin. Errors: as above; -ENOTSUP
 * also for coefficients beyond those of 8-bit pixels, and for an incomplete
 * progressive file, which decoders smooth; -ENOSPC; -ENOMEM. */
int hr__transcode_coefficients(struct hr__transcoder *transcoder, const struct hr__encoded *in,
                               size_t limit, struct hr__transcoded *out, struct hr_error *error);
int hr__transcode_planes(struct hr__transcoder *transcoder, const struct hr__encoded *in,
                         size_t limit, struct hr__transcoded *out, struct hr_error *error);

/* A JPEG with the coefficients of an item: the same pixels in every decoder.
 * Errors: -EBADMSG, -ENOMEM. */
int hr__transcode_jpeg(struct hr__transcoder *transcoder, const struct hr__coefficients *item,
                       struct hr__transcoded *out, struct hr_error *error);

#endif
