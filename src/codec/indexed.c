/*
 * The form `indexed` as a format of the decoder; see indexed.h. libjpeg reads the header of the
 * file inside; our own decoder does the rest. An item that it does not take is damaged.
 */
#include "codec/indexed.h"

#include "base/error.h"
#include "base/memory.h"
#include "codec/jpeg_library.h"

#include <errno.h>
#include <string.h>

#define POINTS_AT (sizeof(struct hr__item_header) + sizeof(struct hr__indexed_header))

struct indexed_state {
    struct hr__jpeg library;
    struct hr__baseline *baseline;
};

static int damaged(struct hr_error *error, const char *what)
{
    return hr__fail(error, -EBADMSG, "damaged item: %s; make it anew", what);
}

uint64_t hr__indexed_bytes(uint64_t points, uint64_t file_bytes)
{
    return POINTS_AT + points * HR__POINT_BYTES + file_bytes + HR__ITEM_PAD;
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
        return damaged(error, "it is not an indexed file");
    if (length < POINTS_AT + HR__ITEM_PAD)
        return damaged(error, "it is shorter than its headers");
    const uint8_t *at = bytes;
    memcpy(&h, at + sizeof item.header, sizeof h);
    if (h.pixels != HR__POINT_PIXELS)
        return hr__fail(error, -ENOTSUP,
                        "the item has a point every %u pixels and this Headrace knows %d; make it "
                        "anew or use the Headrace that made it",
                        h.pixels, HR__POINT_PIXELS);
    /* a point is 64 bits, so the sum cannot overflow unless file_bytes does it */
    if (h.file_bytes > length || hr__indexed_bytes(h.points, h.file_bytes) != length)
        return damaged(error, "its parts do not fill it");
    item.index = (struct hr__scan_index){at + POINTS_AT, h.points};
    item.file = (struct hr__encoded){.bytes = at + POINTS_AT + (size_t)h.points * HR__POINT_BYTES,
                                     .length = h.file_bytes};
    *out = item;
    return 0;
}

uint8_t *hr__indexed_fill(uint8_t *item, const struct hr__item_header *shape, uint64_t points,
                          const struct hr__encoded *file)
{
    struct hr__item_header header = *shape;
    const struct hr__indexed_header more = {file->length, (uint32_t)points, HR__POINT_PIXELS};
    uint8_t *at = item + POINTS_AT + points * HR__POINT_BYTES;
    header.form = HR_FORM_INDEXED;
    header.bytes = hr__indexed_bytes(points, file->length);
    memcpy(item, &header, sizeof header);
    memcpy(item + sizeof header, &more, sizeof more);
    memcpy(at, file->bytes, file->length);
    memset(at + file->length, 0, HR__ITEM_PAD);
    return item + POINTS_AT;
}

static void indexed_destroy(void **state)
{
    struct indexed_state *s = *state;
    if (!s)
        return;
    hr__baseline_destroy(&s->baseline);
    hr__free(s);
    *state = NULL;
}

static int indexed_create(void **state, struct hr_error *error)
{
    struct indexed_state *s = hr__alloc(HR__TAG_CODEC, 1, sizeof *s);
    if (!s)
        return hr__fail(error, -ENOMEM, "out of memory for a decoder of indexed files");
    void *made = s;
    hr__jpeg_init(&s->library);
    int r = hr__baseline_create(&s->baseline, error);
    if (r)
        indexed_destroy(&made);
    else
        *state = made;
    return r;
}

static size_t indexed_memory(const void *state)
{
    const struct indexed_state *s = state;
    return sizeof *s + hr__baseline_memory(s->baseline);
}

static int indexed_info(void *state, const struct hr__encoded *in, struct hr_image_info *info,
                        struct hr_error *error)
{
    struct hr__indexed item;
    int r = hr__indexed_open(&item, in->bytes, in->length, error);
    (void)state;
    if (r)
        return r;
    info->width = (int)item.header.width;
    info->height = (int)item.header.height;
    info->channels = item.header.components;
    info->orientation = item.header.orientation;
    return 0;
}

static int indexed_region(void *state, const struct hr__decode_job *job, struct hr_error *error)
{
    struct indexed_state *s = state;
    const struct jpeg_decompress_struct *cinfo = &s->library.cinfo;
    struct hr__indexed item;
    int done = 0, r = hr__indexed_open(&item, job->in.bytes, job->in.length, error);
    if (r)
        return r;
    if (item.header.width != (uint32_t)job->info.width ||
        item.header.height != (uint32_t)job->info.height)
        return hr__fail(error, -EINVAL, "the image info is not that of these bytes");
    s->library.error = error;
    if (setjmp(s->library.escape)) {
        jpeg_destroy_decompress(&s->library.cinfo);
        return s->library.code == -ENOMEM ? -ENOMEM
                                          : damaged(error, "the header of its file is wrong");
    }
    hr__jpeg_read_header(&s->library, &item.file);
    if (cinfo->image_width == item.header.width && cinfo->image_height == item.header.height &&
        cinfo->num_components == item.header.components)
        r = hr__baseline_indexed(s->baseline, cinfo, job, &item.index, &done, error);
    if (!r && !done)
        r = damaged(error, "its index and its file do not agree");
    jpeg_destroy_decompress(&s->library.cinfo);
    return r;
}

const struct hr__format hr__format_indexed = {
    .id = HR_IMAGE_INDEXED,
    .create = indexed_create,
    .destroy = indexed_destroy,
    .info = indexed_info,
    .region = indexed_region,
    .memory = indexed_memory,
};
