/*
 * What a format's file gives the decoder: a small constant table of functions
 * over its own state. The decoder recognises the bytes, keeps one state per
 * format and thread, provides the planes, and checks the region beforehand.
 */
#ifndef HR_CODEC_FORMAT_H
#define HR_CODEC_FORMAT_H

#include "codec/codec.h"

/* Encoded bytes; not owned. */
struct hr__encoded {
    const uint8_t *bytes;
    size_t length;
    int lenient; /* take damage that Pillow takes by default; 0: it is -EBADMSG */
};

/* One region to decode. */
struct hr__decode_job {
    struct hr__encoded in;
    struct hr_image_info info; /* what the format's own info said */
    struct hr_region region;   /* inside the image, not empty */
    struct hr__planar out;     /* memory for the region: stride a multiple of 64, so
                                  that whole vectors may be stored at a row's end */
};

struct hr__format {
    enum hr_image_format id;

    /* On success *state is the caller's. Errors: -ENOMEM. */
    int (*create)(void **state, struct hr_error *error);
    void (*destroy)(void **state);

    /* Fills in everything but the format. Errors: -EBADMSG, -ENOTSUP, -ENOMEM. */
    int (*info)(void *state, const struct hr__encoded *in, struct hr_image_info *info,
                struct hr_error *error);

    /* Errors: the same, and -EINVAL: the bytes are not those that info read. */
    int (*region)(void *state, const struct hr__decode_job *job, struct hr_error *error);

    /* Bytes of scratch memory held. */
    size_t (*memory)(const void *state);
};

extern const struct hr__format hr__format_jpeg;
extern const struct hr__format hr__format_png;
extern const struct hr__format hr__format_coefficients;
extern const struct hr__format hr__format_planes;

/* Memory that grows to the largest use and keeps nothing when it grows. */
struct hr__codec_scratch {
    uint8_t *bytes;  /* 64-byte aligned, with HR__SCRATCH_SLACK readable bytes after it */
    size_t capacity; /* bytes */
};

/* The de-interleaver's last load of a row may begin inside it and end this far
 * behind it. */
#define HR__SCRATCH_SLACK 256

/* Errors: -ENOMEM says how much was asked for. */
int hr__scratch_reserve(struct hr__codec_scratch *scratch, size_t bytes, struct hr_error *error);
void hr__scratch_free(struct hr__codec_scratch *scratch);

/*
 * Orientation (1..8) of an EXIF block, which is a TIFF header and its first
 * directory (Exif 2.32, section 4.6); 1 where there is none or it is damaged.
 */
int hr__exif_orientation(const uint8_t *tiff, size_t length);

#endif
