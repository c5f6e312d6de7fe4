/*
 * The interface that each image format implements: a small constant table of functions on its own
 * state. The decoder recognises the format, keeps one state per format and thread, provides the
 * planes, and checks the region in advance.
 */
#ifndef HR_CODEC_FORMAT_H
#define HR_CODEC_FORMAT_H

#include "codec/codec.h"

/* Encoded bytes; not owned. */
struct hr__encoded {
    const uint8_t *bytes;
    size_t length;
    int lenient;     /* accept damage that Pillow accepts by default; 0: -EBADMSG */
    int use_libjpeg; /* JPEG: decode with libjpeg-turbo alone */
    int indices;     /* PNG: see hr__decoder_want_indices */
    int strict;      /* `indexed`: fail where the index does not fit, with -EBADMSG */
};

/* Memory that grows to the largest use. Growing discards its contents. */
struct hr__codec_scratch {
    uint8_t *bytes;  /* 64-byte aligned, with HR__SCRATCH_SLACK readable bytes after it */
    size_t capacity; /* bytes */
};

/* An item of the form `indexed`, made while its file is decoded. */
struct hr__index_item {
    int in_parts;                    /* the file is not copied into the memory */
    struct hr__codec_scratch memory; /* in parts: what precedes the file */
    size_t bytes;                    /* 0: there is none */
    struct hr_item_part parts[HR_ITEM_PARTS];
};

/* A region to decode. */
struct hr__decode_job {
    struct hr__encoded in;
    struct hr_image_info info; /* as returned by the format's info */
    int halvings;              /* how many times the image's sides are halved, rounding up; at most
                                * the format's most_halvings */
    struct hr_region region;   /* inside the halved image, not empty */
    struct hr__planar out;     /* memory for the region; stride is a multiple of 64, so that whole
                                * vectors may be stored at a row's end */
    struct hr__index_item *item; /* to make one if it can be had in passing; NULL: not wanted */
    const struct hr__row_claims *claims; /* of a shared region; NULL: all rows are this thread's */
};

/* Which rows of an image a format can decode without those above. */
enum hr__rows {
    HR__ROWS_FROM_TOP, /* none */
    HR__ROWS_OF_MCUS,  /* any, with those beside them; `region` keeps to the claims of the job */
    HR__ROWS_ANY,      /* the same; the decoder cuts large regions into bands */
};

struct hr__format {
    enum hr_image_format id;
    int most_halvings; /* see hr__decoder_halve */
    enum hr__rows rows;

    /* On success the caller owns *state. Errors: -ENOMEM. */
    int (*create)(void **state, struct hr_error *error);
    void (*destroy)(void **state);

    /* Fills in everything except the format. Errors: -EBADMSG, -ENOTSUP, -ENOMEM. */
    int (*info)(void *state, const struct hr__encoded *in, struct hr_image_info *info,
                struct hr_error *error);

    /* Errors: as info, and -EINVAL: the bytes are not those that info read. */
    int (*region)(void *state, const struct hr__decode_job *job, struct hr_error *error);

    /* Returns the bytes of scratch memory held. */
    size_t (*memory)(const void *state);
};

extern const struct hr__format hr__format_jpeg; /* also makes items of the form `indexed` */
extern const struct hr__format hr__format_png;
extern const struct hr__format hr__format_webp;
extern const struct hr__format hr__format_bmp;
extern const struct hr__format hr__format_gif;
extern const struct hr__format hr__format_ppm;
extern const struct hr__format hr__format_coefficients;
extern const struct hr__format hr__format_planes;
extern const struct hr__format hr__format_indexed;

/* The last load of a row in the de-interleaver may begin inside the row and end this far past
 * it. */
#define HR__SCRATCH_SLACK 256

/* Errors: -ENOMEM, with the size requested in the message. */
int hr__scratch_reserve(struct hr__codec_scratch *scratch, size_t bytes, struct hr_error *error);
void hr__scratch_free(struct hr__codec_scratch *scratch);

/*
 * Returns the orientation (1..8) from an EXIF block, which is a TIFF header and its first directory
 * (Exif 2.32, section 4.6); 1 if it is missing or damaged.
 */
int hr__exif_orientation(const uint8_t *tiff, size_t length);

#endif
