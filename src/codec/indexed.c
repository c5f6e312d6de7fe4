/* Opens and writes items of the form `indexed`; jpeg.c decodes them. */
#include "codec/indexed.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>

#define POINTS_AT (sizeof(struct hr__item_header) + sizeof(struct hr__indexed_header))

uint64_t hr__indexed_head_bytes(uint64_t points)
{
    return POINTS_AT + points * HR__POINT_BYTES;
}

uint64_t hr__indexed_bytes(uint64_t points, uint64_t file_bytes)
{
    return hr__indexed_head_bytes(points) + file_bytes + HR__ITEM_PAD;
}

int hr__indexed_open(struct hr__indexed *out, const void *bytes, size_t length,
                     struct hr_error *error)
{
    struct hr__indexed item = {.header = {.form = 0}};
    struct hr__indexed_header h;
    *out = item;
    int r = hr__item_parse(&item.header, bytes, length, error);
    if (r)
        return r;
    if (item.header.form != HR_FORM_INDEXED || item.header.flags & ~HR__ITEM_PROGRESSIVE)
        return hr__item_damaged(error, "it is not an indexed file");
    if (length < POINTS_AT + HR__ITEM_PAD)
        return hr__item_damaged(error, "it is shorter than its headers");
    const uint8_t *at = bytes;
    memcpy(&h, at + sizeof item.header, sizeof h);
    if (h.pixels != HR__POINT_PIXELS)
        return hr__fail(error, -ENOTSUP,
                        "the item has a point every %u pixels and this Headrace knows %d; convert "
                        "the file again or use the Headrace that made the item",
                        h.pixels, HR__POINT_PIXELS);
    /* a point is 64 bits, so the sum cannot overflow unless file_bytes does it */
    if (h.file_bytes > length || hr__indexed_bytes(h.points, h.file_bytes) != length)
        return hr__item_damaged(error, "its parts do not fill it");
    item.index = (struct hr__scan_index){at + POINTS_AT, h.points};
    item.file = (struct hr__encoded){.bytes = at + POINTS_AT + (size_t)h.points * HR__POINT_BYTES,
                                     .length = h.file_bytes};
    *out = item;
    return 0;
}

uint8_t *hr__indexed_points(uint8_t *item)
{
    return item + POINTS_AT;
}

size_t hr__indexed_fill_parts(uint8_t *head, const struct hr__item_header *shape, uint64_t points,
                              const struct hr__encoded *file,
                              struct hr_item_part parts[HR_ITEM_PARTS])
{
    static const uint8_t pad[HR__ITEM_PAD];
    struct hr__item_header header = *shape;
    const struct hr__indexed_header more = {file->length, (uint32_t)points, HR__POINT_PIXELS};
    memcpy(header.magic, HR__ITEM_MAGIC, sizeof header.magic);
    header.version = HR__INDEXED_VERSION;
    header.form = HR_FORM_INDEXED;
    header.h = header.v = 1;
    header.bytes = hr__indexed_bytes(points, file->length);
    memcpy(head, &header, sizeof header);
    memcpy(head + sizeof header, &more, sizeof more);
    parts[0] = (struct hr_item_part){head, hr__indexed_head_bytes(points)};
    parts[1] = (struct hr_item_part){file->bytes, file->length};
    parts[2] = (struct hr_item_part){pad, sizeof pad};
    return header.bytes;
}

size_t hr__indexed_fill(uint8_t *item, const struct hr__item_header *shape, uint64_t points,
                        const struct hr__encoded *file)
{
    struct hr_item_part parts[HR_ITEM_PARTS];
    size_t bytes = hr__indexed_fill_parts(item, shape, points, file, parts), at = parts[0].length;
    for (int i = 1; i < HR_ITEM_PARTS; at += parts[i++].length)
        memcpy(item + at, parts[i].bytes, parts[i].length);
    return bytes;
}
