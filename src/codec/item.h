/*
 * Items: the memory layout common to all forms but `encoded`.
 *
 * An item is one block of bytes without pointers, little-endian, that begins with struct
 * hr__item_header. `encoded` items are the image file itself and have no header. Items come from
 * shared memory and files that others may have written. hr__item_parse checks the header once; code
 * that follows an offset has to check it. A checksum of the whole item is kept by its container
 * (pack, cache).
 *
 * Every item ends with HR__ITEM_PAD zero bytes, so that vectors can be loaded at the end of its
 * data; they count in `bytes`.
 */
#ifndef HR_CODEC_ITEM_H
#define HR_CODEC_ITEM_H

#include <headrace/form.h>

#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "items are little-endian, and so are the machines that Headrace knows"
#endif

/* No image format begins like this. */
#define HR__ITEM_MAGIC       "\x8AHRI"
#define HR__ITEM_MAGIC_BYTES 4
#define HR__ITEM_PAD         64
#define HR__ITEM_SIDE_MOST   65535

/* Versions of the forms' layouts. New items are of the latest one; all are read. */
#define HR__PLANES_VERSION       2 /* of R, G and B; those of Y, Cb and Cr, and grey, are of 1 */
#define HR__PLANES_YCC_VERSION   1
#define HR__COEFFICIENTS_VERSION 2
#define HR__INDEXED_VERSION      1

#define HR__PROFILES_MOST 16 /* width profiles of an item of coefficients */

enum hr__item_flags {
    HR__ITEM_WIDE = 1,        /* coefficients: the group index has 4 bytes per entry, not 2 */
    HR__ITEM_PROGRESSIVE = 2, /* the JPEG was progressive */
    HR__ITEM_RGB = 4,         /* planes, version 2: the components are R, G and B */
};

struct hr__item_header {
    uint8_t magic[4];
    uint8_t version;
    uint8_t form;           /* enum hr_form, not encoded */
    uint8_t components;     /* 1: grey; 3: Y, Cb, Cr; or R, G, B (HR__ITEM_RGB) */
    uint8_t orientation;    /* EXIF, 1..8 */
    uint32_t width, height; /* of the image in pixels; 1..65535 */
    uint8_t h, v;        /* luma samples per chroma sample (hr__item_may_sample); 1 x 1 for grey */
    uint8_t flags;       /* enum hr__item_flags */
    uint8_t profiles;    /* coefficients, version 2: number of width profiles, 1..16; else 0 */
    uint8_t reserved[4]; /* 0 */
    uint64_t bytes;      /* size of the whole item */
};

/*
 * Returns non-zero if items may have h x v luma samples per chroma sample: 1 to 4 on each axis, and
 * at most 8 in all, because T.81 gives an MCU 10 blocks, and an item must become a file again. So
 * items hold 4:4:4, 4:2:2, 4:2:0, 4:4:0, 4:1:1, 4:1:0 and their like.
 */
static inline int hr__item_may_sample(int h, int v)
{
    return h >= 1 && h <= 4 && v >= 1 && v <= 4 && h * v <= 8;
}

/* Returns the number of samples of component c on one axis of the image: `extent` pixels, `per` (h
 * or v) luma samples per chroma sample. */
static inline uint32_t hr__item_samples(uint32_t extent, uint8_t per, int c)
{
    return c ? (extent + per - 1u) / per : extent;
}

/*
 * Copies the header of the item at `bytes` (any alignment) and checks it against the length and
 * itself: magic, version, form, components, sides, sampling, orientation, bytes == length. Errors:
 * -EBADMSG: damaged; -ENOTSUP: a version unknown to this build.
 */
int hr__item_parse(struct hr__item_header *out, const void *bytes, size_t length,
                   struct hr_error *error);

/* Fails with -EBADMSG: "damaged item: WHAT; convert the file again". */
int hr__item_damaged(struct hr_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns non-zero if the bytes are an indexed file that was rewritten (indexed.h). */
int hr__item_is_rewritten(const void *bytes, size_t length);

/* Returns non-zero if the bytes begin like an item. */
int hr__item_recognise(const void *bytes, size_t length);

#endif
