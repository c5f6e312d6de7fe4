/*
 * Decodes binary PGM and PPM (netpbm's P5 and P6) with at most 8 bits a sample, as Pillow's
 * convert("RGB") does: samples are scaled to 255, rounded to nearest, halves to even. The rows lie
 * in the file as they are, so a region reads only its own bytes.
 */
#include "base/error.h"
#include "base/memory.h"
#include "codec/format.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { TOKEN_DIGITS = 9 };

struct netpbm {
    uint64_t width, height;
    int channels, most; /* 1 or 3; the largest sample */
    size_t data;        /* offset of the first row */
};

static int is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Reads a number and the white space behind it; comments may be anywhere, as for Pillow. Returns -1
 * if there is none. */
static int64_t read_number(const struct hr__encoded *in, size_t *at)
{
    int64_t value = 0;
    for (int digits = 0; *at < in->length;) {
        uint8_t c = in->bytes[(*at)++];
        if (c == '#') {
            while (*at < in->length && in->bytes[*at] != '\n' && in->bytes[*at] != '\r')
                ++*at;
            *at += *at < in->length;
        } else if (is_space(c)) {
            if (digits)
                return value;
        } else if (c < '0' || c > '9' || ++digits > TOKEN_DIGITS) {
            return -1;
        } else {
            value = value * 10 + (c - '0');
        }
    }
    return -1;
}

static int open_netpbm(struct netpbm *n, const struct hr__encoded *in, struct hr_error *error)
{
    size_t at = 3;
    int64_t width = -1, height = -1, most = -1;
    *n = (struct netpbm){0};
    if (in->length > 2 && is_space(in->bytes[2])) {
        width = read_number(in, &at);
        height = width > 0 ? read_number(in, &at) : -1;
        most = height > 0 ? read_number(in, &at) : -1;
    }
    if (most <= 0 || most > 65535)
        return hr__fail(error, -EBADMSG, "damaged PPM: its header is incomplete or invalid");
    if (most > 255)
        return hr__fail(error, -ENOTSUP,
                        "unsupported PPM: more than 8 bits a sample; convert it to PNG");
    n->width = (uint64_t)width;
    n->height = (uint64_t)height;
    n->channels = in->bytes[1] == '6' ? 3 : 1;
    n->most = (int)most;
    n->data = at;
    if ((in->length - at) / (n->width * (unsigned)n->channels) < n->height)
        return hr__fail(error, -EBADMSG,
                        "damaged PPM: the file ends after %zu bytes, before its pixels do",
                        in->length);
    return 0;
}

static int ppm_info(void *state, const struct hr__encoded *in, struct hr_image_info *info,
                    struct hr_error *error)
{
    struct netpbm n;
    int r = open_netpbm(&n, in, error);
    (void)state;
    if (r)
        return r;
    info->width = (int)n.width;
    info->height = (int)n.height;
    info->channels = n.channels;
    return 0;
}

static int ppm_region(void *state, const struct hr__decode_job *job, struct hr_error *error)
{
    const struct hr_region *r = &job->region;
    struct netpbm n;
    uint8_t scaled[256];
    int rc = open_netpbm(&n, &job->in, error);
    (void)state;
    if (rc)
        return rc;
    if ((int)n.width != job->info.width || (int)n.height != job->info.height ||
        n.channels != job->info.channels)
        return hr__fail(error, -EINVAL, "the image info is not that of these bytes");
    for (int v = 0; v < 256; v++)
        scaled[v] = (uint8_t)(v < n.most ? nearbyint((double)v / n.most * 255) : 255);
    size_t step = (size_t)n.channels;
    for (int y = 0; y < r->height; y++) {
        const uint8_t *row =
            job->in.bytes + n.data + ((size_t)(r->y + y) * n.width + (size_t)r->x) * step;
        for (size_t c = 0; c < 3; c++) {
            uint8_t *to = job->out.plane[c] + y * job->out.stride;
            const uint8_t *from = row + (step == 3 ? c : 0);
            for (size_t x = 0; x < (size_t)r->width; x++)
                to[x] = scaled[from[x * step]];
        }
    }
    return 0;
}

static int ppm_create(void **state, struct hr_error *error)
{
    /* There is nothing to keep; a pointer says that it was created. */
    *state = hr__alloc(HR__TAG_CODEC, 1, 1);
    return *state ? 0 : hr__fail(error, -ENOMEM, "out of memory for a PPM decoder");
}

static void ppm_destroy(void **state)
{
    hr__free(*state);
    *state = NULL;
}

static size_t ppm_memory(const void *state)
{
    (void)state;
    return 1;
}

const struct hr__format hr__format_ppm = {
    .id = HR_IMAGE_PPM,
    .create = ppm_create,
    .destroy = ppm_destroy,
    .info = ppm_info,
    .region = ppm_region,
    .memory = ppm_memory,
};
