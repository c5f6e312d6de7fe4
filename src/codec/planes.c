/*
 * The form `planes` as a format of the decoder: upsamples and converts a region directly from the
 * item's bytes. All sample values are valid, so only sizes need checks.
 */
#include "codec/planes.h"

#include "base/error.h"
#include "base/memory.h"
#include "codec/format.h"
#include "codec/ycc.h"

#include <errno.h>
#include <string.h>

struct planes_state {
    struct hr__ycc *ycc;
};

uint64_t hr__planes_bytes(const struct hr__item_header *shape)
{
    uint64_t bytes = sizeof *shape + HR__ITEM_PAD;
    for (int c = 0; c < shape->components; c++)
        bytes += (uint64_t)hr__item_samples(shape->width, shape->h, c) *
                 hr__item_samples(shape->height, shape->v, c);
    return bytes;
}

int hr__planes_shape(struct hr__item_header *out, const struct hr_image_info *info,
                     struct hr_error *error)
{
    int rgb = info->channels >= 3;
    if (info->width > HR__ITEM_SIDE_MOST || info->height > HR__ITEM_SIDE_MOST)
        return hr__fail(error, -ENOTSUP, "it has %d x %d pixels, and items at most %d on a side",
                        info->width, info->height, HR__ITEM_SIDE_MOST);
    *out = (struct hr__item_header){
        .magic = HR__ITEM_MAGIC,
        .version = rgb ? HR__PLANES_VERSION : HR__PLANES_YCC_VERSION,
        .form = HR_FORM_PLANES,
        .components = rgb ? 3 : 1,
        .orientation = (uint8_t)info->orientation,
        .width = (uint32_t)info->width,
        .height = (uint32_t)info->height,
        .h = 1,
        .v = 1,
        .flags = rgb ? HR__ITEM_RGB : 0,
    };
    out->bytes = hr__planes_bytes(out);
    return 0;
}

void hr__planes_write(uint8_t *item, const struct hr__item_header *shape,
                      const struct hr__planar *pixels)
{
    uint8_t *at = item + sizeof *shape;
    memcpy(item, shape, sizeof *shape);
    for (int c = 0; c < shape->components; c++)
        for (uint32_t y = 0; y < shape->height; y++, at += shape->width)
            memcpy(at, pixels->plane[c] + (ptrdiff_t)y * pixels->stride, shape->width);
    memset(at, 0, HR__ITEM_PAD);
}

int hr__planes_open(struct hr__planes *out, const void *bytes, size_t length,
                    struct hr_error *error)
{
    struct hr__planes planes = {0};
    int r = hr__item_parse(&planes.header, bytes, length, error);
    if (r)
        return r;
    const struct hr__item_header *h = &planes.header;
    if (h->form != HR_FORM_PLANES)
        return hr__item_damaged(error, "it is of form %d, not planes", h->form);
    if (h->flags & HR__ITEM_WIDE)
        return hr__item_damaged(error, "planes with the flags %d of another form", h->flags);
    if (hr__planes_bytes(h) != length)
        return hr__item_damaged(error, "planes of %u x %u pixels take %llu bytes and it has %zu",
                                h->width, h->height, (unsigned long long)hr__planes_bytes(h),
                                length);
    const uint8_t *at = (const uint8_t *)bytes + sizeof *h;
    for (int c = 0; c < h->components; c++) {
        planes.width[c] = hr__item_samples(h->width, h->h, c);
        planes.height[c] = hr__item_samples(h->height, h->v, c);
        planes.at[c] = at;
        at += (size_t)planes.width[c] * planes.height[c];
    }
    *out = planes;
    return 0;
}

static void planes_destroy(void **state)
{
    struct planes_state *s = *state;
    if (!s)
        return;
    hr__ycc_destroy(&s->ycc);
    hr__free(s);
    *state = NULL;
}

static int planes_create(void **state, struct hr_error *error)
{
    struct planes_state *s = hr__alloc(HR__TAG_CODEC, 1, sizeof *s);
    if (!s)
        return hr__fail(error, -ENOMEM, "out of memory for a decoder of planes");
    void *made = s;
    int r = hr__ycc_create(&s->ycc, hr__isa(), error);
    if (r)
        planes_destroy(&made);
    else
        *state = made;
    return r;
}

static size_t planes_memory(const void *state)
{
    const struct planes_state *s = state;
    return sizeof *s + hr__ycc_memory(s->ycc);
}

static int planes_info(void *state, const struct hr__encoded *in, struct hr_image_info *info,
                       struct hr_error *error)
{
    struct hr__planes planes = {0};
    int r = hr__planes_open(&planes, in->bytes, in->length, error);
    if (r)
        return r;
    info->width = (int)planes.header.width;
    info->height = (int)planes.header.height;
    info->channels = planes.header.components;
    info->orientation = planes.header.orientation;
    return 0;
}

static int planes_region(void *state, const struct hr__decode_job *job, struct hr_error *error)
{
    struct planes_state *s = state;
    struct hr__planes planes;
    int r = hr__planes_open(&planes, job->in.bytes, job->in.length, error);
    if (r)
        return r;
    if (planes.header.width != (uint32_t)job->info.width ||
        planes.header.height != (uint32_t)job->info.height)
        return hr__fail(error, -EINVAL, "the image info is not that of these bytes");
    struct hr__ycc_shape shape = hr__ycc_shape_of(&planes.header);
    struct hr__ycc_planes whole = {.shape = &shape};
    for (int c = 0; c < planes.header.components; c++) {
        whole.at[c] = planes.at[c];
        whole.stride[c] = (ptrdiff_t)planes.width[c];
        whole.window[c] = (struct hr_region){0, 0, (int)planes.width[c], (int)planes.height[c]};
    }
    return hr__ycc_run(s->ycc, &whole, &job->region, &job->out, error);
}

const struct hr__format hr__format_planes = {
    .id = HR_IMAGE_PLANES,
    .rows = HR__ROWS_ANY,
    .create = planes_create,
    .destroy = planes_destroy,
    .info = planes_info,
    .region = planes_region,
    .memory = planes_memory,
};
