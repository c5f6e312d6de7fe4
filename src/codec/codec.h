/*
 * Decodes encoded images to pixels: one file per format behind one table.
 *
 * A decoder (struct hr__decoder) is one thread's state for all formats. It decodes a region of an
 * image into planar 8-bit RGB: three planes of equal size, so that the tensor pass reads the bytes
 * of one channel contiguously. The pixels are exactly those of a full decode, cropped, or, for a
 * halved image, those of libjpeg-turbo's scaled decode.
 */
#ifndef HR_CODEC_CODEC_H
#define HR_CODEC_CODEC_H

#include <headrace/prepare.h>

#include <stddef.h>
#include <stdint.h>

/* The tensor pass may read this many bytes past the end of a row or plane. */
#define HR__PIXEL_SLACK 64

/* Planar pixels, owned by the code that created them. */
struct hr__planar {
    uint8_t *plane[3]; /* R, G, B; 64-byte aligned */
    ptrdiff_t stride;  /* bytes between rows, a multiple of 64 */
    int width, height; /* pixels */
};

struct hr__decoder;

int hr__decoder_create(struct hr__decoder **out, struct hr_error *error);
void hr__decoder_destroy(struct hr__decoder **decoder);

/* From now on JPEG is decoded with libjpeg-turbo alone: the reference for our own decoder. */
void hr__decoder_use_library(struct hr__decoder *decoder);

/* Sets whether damaged images are accepted from now on, and clears the last image's damage. */
void hr__decoder_accept(struct hr__decoder *decoder, enum hr_damaged damaged);

/* Returns non-zero if a region of an image can be decoded without the rows above it. */
int hr__format_is_seekable(enum hr_image_format format);

/* Returns how many times at most the sides of images of a format can be halved. */
int hr__format_halvings(enum hr_image_format format);

/*
 * From now on regions are decoded from images whose sides are halved `halvings` times, rounding up:
 * each pixel is made of a square of 2^halvings pixels of the image, from its top left corner on. It
 * is not exactly their mean, because libjpeg's scaled decoding takes means of luma and chroma. 0,
 * the default, is the image itself.
 */
void hr__decoder_halve(struct hr__decoder *decoder, int halvings);

/* Returns what was wrong with the last accepted image; NULL: nothing. */
const char *hr__decoder_damage(const struct hr__decoder *decoder);

/* Sets whether an item of the form `indexed` is made of each JPEG file that is decoded from now on,
 * in passing; see hr_preparer_make_items. */
void hr__decoder_make_items(struct hr__decoder *decoder, int wanted);

/* Returns the item made of the last decoded file, with its size; NULL if there is none: not wanted,
 * not a file that our own decoder takes from the first to the last byte of its scan, or no memory.
 * Valid until the decoder's next call. */
const void *hr__decoder_item(const struct hr__decoder *decoder, size_t *bytes);

/* The same with HR_ITEMS_IN_PARTS: returns HR_ITEM_PARTS parts. */
const struct hr_item_part *hr__decoder_item_parts(const struct hr__decoder *decoder);

/* Reads only the header. Recognises the format by content, never by name. See hr_preparer_info. */
int hr__decoder_info(struct hr__decoder *decoder, const void *bytes, size_t length,
                     struct hr_image_info *info, struct hr_error *error);

/* Longest side of an image, in pixels. Up to this, positions are exact in double, and sums of a few
 * of them, with padding, fit into int. */
#define HR__MAX_IMAGE_SIDE (1 << 28)

/*
 * Returns -EFBIG if the image described by `info` exceeds max_pixels. Call it before allocating
 * memory for the image. Rows occupy whole vectors, so a long and narrow image needs up to 64 times
 * the memory of its pixels. Therefore above 16 Mi pixels the shorter side counts as at least 32,
 * which limits a plane to twice max_pixels bytes.
 */
int hr__check_pixels(const struct hr_image_info *info, uint64_t max_pixels, struct hr_error *error);

/*
 * Decodes `region` of the image whose header hr__decoder_info read into `info`. *out points into
 * memory of the decoder, valid until its next call. Rows and planes are followed by HR__PIXEL_SLACK
 * readable bytes. The caller has checked the size with hr__check_pixels; the region, in pixels of
 * the halved image, and the halvings are checked here (-ERANGE). A corrupt stream fails with
 * -EBADMSG even if the library would only warn (Pillow also rejects it by default); pixels are
 * guessed only if damaged images are accepted. A truncated stream always fails with -EBADMSG.
 */
int hr__decoder_region(struct hr__decoder *decoder, const void *bytes, size_t length,
                       const struct hr_image_info *info, const struct hr_region *region,
                       struct hr__planar *out, struct hr_error *error);

/*
 * A region that several threads decode together, each with a decoder of its own. Its owner decodes
 * it from the top and claims rows as it goes; the others decode bands of rows at the bottom that
 * nobody has claimed, in any order. So an owner that nobody helps loses nothing. The pixels are
 * those of hr__decoder_region. Nothing falls back to another way of decoding here: if the owner or
 * a band fails, the whole region is for hr__decoder_region.
 */
struct hr__shared_region {
    const void *bytes; /* the item; not owned */
    size_t length;
    struct hr_image_info info;
    int halvings;
    struct hr_region region;
    struct hr__planar out; /* the room for its pixels, the owner's decoder's */
};

/* Smaller regions are not shared, in pixels: waking a thread would take a while in comparison. */
#define HR__SHARED_PIXELS (1 << 20)

/* Makes room for a region that can be shared. Returns 0 if it cannot be: it is small, the image can
 * only be read from its beginning (all but items) or its header was damaged, or
 * there is no memory. The room is the owner's until the decoder's next call, but for
 * hr__decoder_shared. */
int hr__decoder_share(struct hr__decoder *decoder, const void *bytes, size_t length,
                      const struct hr_image_info *info, const struct hr_region *region,
                      struct hr__shared_region *out);

/* How an owner claims rows. */
struct hr__row_claims {
    /* Claims the rows above `until` for the owner, but for those that others have by now. Rows
     * count from the top of the (halved) image. Returns where the rows of others begin, which is
     * never above a row that the owner has; the region's end if they have none. */
    int (*claim)(void *arg, int until);
    void *arg;
};

/* Decodes a shared region as far as the claims allow. Errors: -EBADMSG, -ENOMEM and others, without
 * a message. */
int hr__decoder_shared(struct hr__decoder *decoder, const struct hr__shared_region *shared,
                       const struct hr__row_claims *claims);

/* Bands should begin at multiples of this many rows of the region's image: whole rows of MCUs of
 * all usual samplings. Each costs up to two rows of MCUs more than its share, because chroma of the
 * rows beside it is needed. */
#define HR__BAND_ROWS 16

/* Decodes the rows [from, to) of a shared region, counted as above. Errors: as before. */
int hr__decoder_band(struct hr__decoder *decoder, const struct hr__shared_region *shared, int from,
                     int to);

/*
 * Sets whether regions have, in the first plane, the numbers that a PNG file stores: indices of its
 * palette, or greys as they are; the other planes are undefined. Off by default. With it, PNG of
 * colours, of alpha or of 16 bits fails with -ENOTSUP; other formats are decoded as without it.
 */
void hr__decoder_want_indices(struct hr__decoder *decoder, int wanted);

/* Returns the bytes the decoder holds. */
size_t hr__decoder_memory(const struct hr__decoder *decoder);

#endif
