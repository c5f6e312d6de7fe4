/*
 * The form `planes`: the decoded samples of each component, at its own resolution.
 *
 * An item is struct hr__item_header, then the planes of Y, Cb and Cr (grey: Y
 * alone) one after the other, rows tightly packed at the component's true width
 * (hr__item_samples), then HR__ITEM_PAD zero bytes. Its size follows from the
 * header. Pixels come out of it by ycc.h alone.
 */
#ifndef HR_CODEC_PLANES_H
#define HR_CODEC_PLANES_H

#include "codec/item.h"

/* Where an item's planes are, after hr__planes_open. */
struct hr__planes {
    struct hr__item_header header;
    uint32_t width[3], height[3]; /* samples; 0 for components that are not there */
    const uint8_t *at[3];         /* inside the item; rows of `width` bytes */
};

/* Bytes of an item of planes of this shape (its components, sides and sampling), at
 * most some 13 GB: no overflow. */
uint64_t hr__planes_bytes(const struct hr__item_header *shape);

/* Checks the header, and that the item is as large as it says. Keeps pointers into
 * `bytes`. Errors: -EBADMSG: damaged, or an item of another form; -ENOTSUP. */
int hr__planes_open(struct hr__planes *out, const void *bytes, size_t length,
                    struct hr_error *error);

#endif
