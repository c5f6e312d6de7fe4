/*
 * Decodes regions of the form `coefficients`.
 *
 * A region needs the block rows and columns with the samples that its pixels depend on (ycc.h).
 * Blocks vary in size. So in each row, unpacking starts at the group of 4 blocks that contains the
 * first needed one, which the index locates, and ends with the last needed one.
 */
#include "codec/coefficients.h"

#include "base/error.h"
#include "base/memory.h"
#include "codec/format.h"
#include "codec/ycc.h"

#include <errno.h>
#include <string.h>

#define GROUP_SAMPLES (8 * HR__GROUP_BLOCKS)

/* One thread's state. */
struct state {
    const struct hr__block_kernels *kernels;
    struct hr__ycc *ycc;
    struct hr__codec_scratch planes;
    struct hr__block_profiles profiles; /* of the item at hand */
};

static void state_destroy(void **state)
{
    struct state *s = *state;
    if (!s)
        return;
    hr__ycc_destroy(&s->ycc);
    hr__scratch_free(&s->planes);
    hr__free(s);
    *state = NULL;
}

int hr__coefficients_create(void **state, enum hr__isa isa, struct hr_error *error)
{
    struct state *s = hr__alloc_aligned(HR__TAG_CODEC, sizeof *s, 0); /* of the profiles */
    if (!s)
        return hr__fail(error, -ENOMEM, "out of memory for a decoder of coefficients");
    memset(s, 0, sizeof *s);
    s->kernels = hr__block_kernels(isa);
    int r = hr__ycc_create(&s->ycc, isa, error);
    *state = s;
    if (r)
        state_destroy(state);
    return r;
}

static int state_create(void **state, struct hr_error *error)
{
    return hr__coefficients_create(state, hr__isa(), error);
}

static size_t state_memory(const void *state)
{
    const struct state *s = state;
    return sizeof *s + s->planes.capacity + hr__ycc_memory(s->ycc);
}

static int coefficients_info(void *state, const struct hr__encoded *in, struct hr_image_info *info,
                             struct hr_error *error)
{
    struct hr__item_header h;
    (void)state;
    int r = hr__item_parse(&h, in->bytes, in->length, error);
    if (r)
        return r;
    info->width = (int)h.width;
    info->height = (int)h.height;
    info->channels = h.components;
    info->orientation = h.orientation;
    return 0;
}

/* The blocks of one component that a region needs, and the layout of their samples. */
struct cover {
    uint32_t x, y, columns, rows; /* in blocks; x is the start of a group */
    size_t stride, bytes;         /* of the plane with their samples */
};

static struct cover cover_window(const struct hr_region *window)
{
    struct cover c;
    uint32_t right = (uint32_t)(window->x + window->width + 7) / 8;
    uint32_t bottom = (uint32_t)(window->y + window->height + 7) / 8;
    c.x = (uint32_t)window->x / GROUP_SAMPLES * HR__GROUP_BLOCKS;
    c.y = (uint32_t)window->y / 8;
    c.columns = right - c.x;
    c.rows = bottom - c.y;
    /* room for whole groups, which vector versions write */
    c.stride = ((size_t)c.columns * 8 + GROUP_SAMPLES - 8 + 63) & ~(size_t)63;
    c.bytes = c.stride * c.rows * 8;
    return c;
}

static int unpack_component(const struct state *s, const struct hr__coefficients *c, int component,
                            const struct cover *cover, uint8_t *plane)
{
    struct hr__block_run run = {
        .profiles = c->profiles ? &s->profiles : NULL,
        .end = c->data + c->data_bytes,
        .quant = c->quant[component],
        .blocks = cover->columns,
        .stride = (ptrdiff_t)cover->stride,
    };
    for (uint32_t y = 0; y < cover->rows; y++) {
        run.data = hr__coefficients_find(c, component, cover->y + y, cover->x);
        run.out = plane + (size_t)y * 8 * cover->stride;
        if (!run.data || s->kernels->unpack(&run))
            return -EBADMSG;
    }
    return 0;
}

static int coefficients_region(void *state, const struct hr__decode_job *job,
                               struct hr_error *error)
{
    struct state *s = state;
    struct hr__coefficients c;
    struct cover cover[3];
    size_t bytes = 0;
    int r = hr__coefficients_open(&c, job->in.bytes, job->in.length, error);
    if (r)
        return r;
    if (c.header.width != (uint32_t)job->info.width ||
        c.header.height != (uint32_t)job->info.height)
        return hr__fail(error, -EINVAL, "the image info is not that of these bytes");
    struct hr__ycc_shape shape = hr__ycc_shape_of(&c.header);
    struct hr__ycc_planes planes = {.shape = &shape};
    for (int i = 0; i < c.header.components; i++) {
        hr__ycc_window(&shape, &job->region, i, &planes.window[i]);
        cover[i] = cover_window(&planes.window[i]);
        bytes += cover[i].bytes;
    }
    hr__coefficients_profiles(&c, &s->profiles);
    r = hr__scratch_reserve(&s->planes, bytes, error);
    uint8_t *plane = s->planes.bytes;
    for (int i = 0; !r && i < c.header.components; i++) {
        r = unpack_component(s, &c, i, &cover[i], plane);
        if (r)
            hr__item_damaged(error, "its index or a block leads out of it");
        planes.stride[i] = (ptrdiff_t)cover[i].stride;
        planes.at[i] = plane + ((size_t)planes.window[i].y - cover[i].y * 8) * cover[i].stride +
                       ((size_t)planes.window[i].x - cover[i].x * 8);
        plane += cover[i].bytes;
    }
    return r ? r : hr__ycc_run(s->ycc, &planes, &job->region, &job->out, error);
}

const struct hr__format hr__format_coefficients = {
    .id = HR_IMAGE_COEFFICIENTS,
    .rows = HR__ROWS_ANY,
    .create = state_create,
    .destroy = state_destroy,
    .info = coefficients_info,
    .region = coefficients_region,
    .memory = state_memory,
};
