/*
 * Bytes of an encoded image to pixels: one file per format behind one table.
 *
 * A decoder (struct hr__decoder) is one thread's state for all formats. It
 * decodes a region of an image into planar 8-bit RGB: three planes of equal
 * size, so that the tensor pass reads bytes of one channel side by side.
 * Pixels are exactly those of a full decode, cropped.
 */
#ifndef HR_CODEC_CODEC_H
#define HR_CODEC_CODEC_H

#include <headrace/prepare.h>

#include <stddef.h>
#include <stdint.h>

/* Bytes past the end of a row or plane that the tensor pass may read. */
#define HR__PIXEL_SLACK 64

/* Planar pixels; owned by whoever made them. */
struct hr__planar {
    uint8_t *plane[3]; /* R, G, B; 64-byte aligned */
    ptrdiff_t stride;  /* bytes between rows, a multiple of 64 */
    int width, height; /* pixels */
};

struct hr__decoder;

int hr__decoder_create(struct hr__decoder **out, struct hr_error *error);
void hr__decoder_destroy(struct hr__decoder **decoder);

/* Whether damaged images are taken from now on; forgets the last one's damage. */
void hr__decoder_accept(struct hr__decoder *decoder, enum hr_damaged damaged);

/* What was wrong with an image that was taken since then; NULL: nothing. */
const char *hr__decoder_damage(const struct hr__decoder *decoder);

/* Header only: format by content, never by name. See hr_preparer_info. */
int hr__decoder_info(struct hr__decoder *decoder, const void *bytes, size_t length,
                     struct hr_image_info *info, struct hr_error *error);

/* Longest side of an image, in pixels: positions along it are exact in double and
 * sums of a few of them, paddings too, in int. */
#define HR__MAX_IMAGE_SIDE (1 << 28)

/*
 * Refuses (-EFBIG) an image that `info` makes larger than max_pixels, before any
 * memory is taken for it. Rows take whole vectors, so a long and narrow image
 * needs up to 64 times the memory of its pixels: beyond 16 Mi pixels its shorter
 * side counts as 32, which bounds a plane at twice max_pixels bytes.
 */
int hr__check_pixels(const struct hr_image_info *info, uint64_t max_pixels, struct hr_error *error);

/*
 * Decodes `region` of the image whose header hr__decoder_info read into `info`.
 * *out points into memory of the decoder, valid until its next call; rows and
 * planes are followed by HR__PIXEL_SLACK readable bytes.
 * The caller has made sure of the size with hr__check_pixels; the region is
 * checked here (-ERANGE). A stream that is corrupt is -EBADMSG even where the
 * library would only warn, as Pillow does by default: pixels are guessed only
 * where damaged images are accepted. One that ends early is -EBADMSG always.
 */
int hr__decoder_region(struct hr__decoder *decoder, const void *bytes, size_t length,
                       const struct hr_image_info *info, const struct hr_region *region,
                       struct hr__planar *out, struct hr_error *error);

/* Bytes the decoder holds. */
size_t hr__decoder_memory(const struct hr__decoder *decoder);

#endif
