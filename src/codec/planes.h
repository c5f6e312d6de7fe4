/*
 * The form `planes`: the decoded samples of each component, at its own resolution.
 *
 * An item is struct hr__item_header, then the planes of Y, Cb and Cr (grey: only Y; of a PNG: R, G
 * and B) one after the other, with rows tightly packed at the component's true width
 * (hr__item_samples), then HR__ITEM_PAD zero bytes. The header determines its size. ycc.h converts
 * the planes to pixels.
 */
#ifndef HR_CODEC_PLANES_H
#define HR_CODEC_PLANES_H

#include "codec/codec.h"
#include "codec/item.h"

/* The planes of an item, set by hr__planes_open. */
struct hr__planes {
    struct hr__item_header header;
    uint32_t width[3], height[3]; /* in samples; 0 for missing components */
    const uint8_t *at[3];         /* pointers into the item; rows of `width` bytes */
};

/* Returns the size of an item of planes of this shape (components, sides and sampling); at most
 * some 13 GB, so it cannot overflow. */
uint64_t hr__planes_bytes(const struct hr__item_header *shape);

/* Fills in the header of an item of the pixels of an image that is no JPEG. Errors: -ENOTSUP: its
 * sides are too long. */
int hr__planes_shape(struct hr__item_header *out, const struct hr_image_info *info,
                     struct hr_error *error);

/* Writes the item of that header, of the whole image `pixels`, to `item`, which has shape->bytes
 * bytes. */
void hr__planes_write(uint8_t *item, const struct hr__item_header *shape,
                      const struct hr__planar *pixels);

/* Checks the header, and that the item has the size it implies. Keeps pointers into `bytes`.
 * Errors: -EBADMSG: damaged, or an item of another form; -ENOTSUP. */
int hr__planes_open(struct hr__planes *out, const void *bytes, size_t length,
                    struct hr_error *error);

#endif
