/*
 * The decoder: recognises the format by the first bytes, keeps one state per format, and owns the
 * planes that a region is decoded into. It never uses file names. Errors name known formats that it
 * does not support, because users first ask what kind of file it is.
 */
#include "codec/codec.h"

#include "base/error.h"
#include "base/memory.h"
#include "codec/format.h"
#include "codec/item.h"

#include <headrace/sound.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const struct hr__format *const formats[] = {
    &hr__format_jpeg,         &hr__format_png,    &hr__format_webp,
    &hr__format_bmp,          &hr__format_gif,    &hr__format_ppm,
    &hr__format_coefficients, &hr__format_planes, &hr__format_indexed};

enum { FORMATS = sizeof formats / sizeof formats[0] };

struct hr__decoder {
    void *state[FORMATS]; /* created at the first image of the format */
    struct hr__codec_scratch planes;
    enum hr_damaged damaged;
    int use_libjpeg; /* see hr__decoder_use_library */
    int indices;     /* see hr__decoder_want_indices */
    int halvings;    /* see hr__decoder_halve */
    int makes_items; /* see hr__decoder_make_items */
    struct hr__index_item item;
    struct hr_error damage; /* of an image accepted nevertheless; code 0: none */
};

int hr__decoder_create(struct hr__decoder **out, struct hr_error *error)
{
    *out = hr__alloc(HR__TAG_CODEC, 1, sizeof **out);
    return *out ? 0 : hr__fail(error, -ENOMEM, "out of memory for a decoder");
}

void hr__decoder_destroy(struct hr__decoder **decoder)
{
    struct hr__decoder *d = *decoder;
    if (!d)
        return;
    for (int i = 0; i < FORMATS; i++)
        if (d->state[i])
            formats[i]->destroy(&d->state[i]);
    hr__scratch_free(&d->planes);
    hr__scratch_free(&d->item.memory);
    hr__free(d);
    *decoder = NULL;
}

size_t hr__decoder_memory(const struct hr__decoder *decoder)
{
    size_t bytes = sizeof *decoder + decoder->planes.capacity + decoder->item.memory.capacity;
    for (int i = 0; i < FORMATS; i++)
        if (decoder->state[i])
            bytes += formats[i]->memory(decoder->state[i]);
    return bytes;
}

void hr__decoder_use_library(struct hr__decoder *decoder)
{
    decoder->use_libjpeg = 1;
}

void hr__decoder_want_indices(struct hr__decoder *decoder, int wanted)
{
    decoder->indices = wanted;
}

void hr__decoder_accept(struct hr__decoder *decoder, enum hr_damaged damaged)
{
    decoder->damaged = damaged;
    decoder->damage.code = 0;
}

int hr__format_halvings(enum hr_image_format format)
{
    for (int i = 0; i < FORMATS; i++)
        if (formats[i]->id == format)
            return formats[i]->most_halvings;
    return 0;
}

void hr__decoder_halve(struct hr__decoder *decoder, int halvings)
{
    decoder->halvings = halvings;
}

const char *hr__decoder_damage(const struct hr__decoder *decoder)
{
    return decoder->damage.code ? decoder->damage.message : NULL;
}

void hr__decoder_make_items(struct hr__decoder *decoder, int wanted)
{
    decoder->makes_items = wanted != 0;
    decoder->item.in_parts = wanted == HR_ITEMS_IN_PARTS;
    decoder->item.bytes = 0;
}

const void *hr__decoder_item(const struct hr__decoder *decoder, size_t *bytes)
{
    *bytes = decoder->item.in_parts ? 0 : decoder->item.bytes;
    return *bytes ? decoder->item.memory.bytes : NULL;
}

const struct hr_item_part *hr__decoder_item_parts(const struct hr__decoder *decoder)
{
    return decoder->item.in_parts && decoder->item.bytes ? decoder->item.parts : NULL;
}

/* After a strict attempt failed, returns non-zero if a lenient one may follow. Only the first
 * damage of an image is reported. */
static int may_accept(struct hr__decoder *decoder, struct hr__encoded *in, int code,
                      const struct hr_error *error)
{
    if (code != -EBADMSG || decoder->damaged != HR_DAMAGED_ACCEPT || in->lenient)
        return 0;
    if (!decoder->damage.code)
        decoder->damage = *error;
    in->lenient = 1;
    return 1;
}

struct signature {
    const char *name;
    unsigned char offset, length;
    const char *bytes;
};

/* File formats decoded here; hr__item_recognise recognises items. */
static const struct {
    enum hr_image_format id;
    struct signature signature;
} decoded_files[] = {
    {HR_IMAGE_JPEG, {"JPEG", 0, 2, "\xFF\xD8"}}, {HR_IMAGE_PNG, {"PNG", 0, 8, "\x89PNG\r\n\x1A\n"}},
    {HR_IMAGE_WEBP, {"WebP", 8, 4, "WEBP"}},     {HR_IMAGE_GIF, {"GIF", 0, 6, "GIF87a"}},
    {HR_IMAGE_GIF, {"GIF", 0, 6, "GIF89a"}},     {HR_IMAGE_BMP, {"BMP", 0, 2, "BM"}},
    {HR_IMAGE_PPM, {"PPM", 0, 2, "P5"}},         {HR_IMAGE_PPM, {"PPM", 0, 2, "P6"}},
};

enum { DECODED_FILES = sizeof decoded_files / sizeof decoded_files[0] };

/* Other formats common in image folders; longer signatures first. */
static const struct signature other_formats[] = {
    {"AVIF", 4, 8, "ftypavif"},
    {"AVIF", 4, 8, "ftypavis"},
    {"HEIF", 4, 8, "ftypheic"},
    {"HEIF", 4, 8, "ftypheix"},
    {"HEIF", 4, 8, "ftypmif1"},
    {"JPEG XL", 0, 12, "\0\0\0\x0CJXL \r\n\x87\n"},
    {"JPEG XL", 0, 2, "\xFF\x0A"},
    {"JPEG 2000", 0, 12, "\0\0\0\x0CjP  \r\n\x87\n"},
    {"JPEG 2000", 0, 4, "\xFF\x4F\xFF\x51"},
    {"TIFF", 0, 4, "II*\0"},
    {"TIFF", 0, 4, "MM\0*"},
    {"BigTIFF", 0, 4, "II+\0"},
    {"BigTIFF", 0, 4, "MM\0+"},
    {"Photoshop (PSD)", 0, 4, "8BPS"},
    {"OpenEXR", 0, 4, "\x76\x2F\x31\x01"},
    {"Windows icon", 0, 4, "\0\0\1\0"},
    {"PDF", 0, 4, "%PDF"},
    {"ZIP archive", 0, 4, "PK\3\4"},
    {"gzip", 0, 2, "\x1F\x8B"},
    {"PBM", 0, 3, "P4\n"},
    {"plain PBM", 0, 3, "P1\n"},
    {"plain PGM", 0, 3, "P2\n"},
    {"plain PPM", 0, 3, "P3\n"},
};

const char *hr_image_format_name(enum hr_image_format format)
{
    for (int i = 0; i < DECODED_FILES; i++)
        if (decoded_files[i].id == format)
            return decoded_files[i].signature.name;
    switch (format) {
    case HR_IMAGE_COEFFICIENTS:
        return hr_form_name(HR_FORM_COEFFICIENTS);
    case HR_IMAGE_PLANES:
        return hr_form_name(HR_FORM_PLANES);
    case HR_IMAGE_INDEXED:
        return hr_form_name(HR_FORM_INDEXED);
    default:
        return NULL;
    }
}

static int matches(const struct signature *s, const uint8_t *bytes, size_t length)
{
    return length >= (size_t)s->offset + s->length &&
           !memcmp(bytes + s->offset, s->bytes, s->length);
}

static int looks_like_text(const uint8_t *bytes, size_t length)
{
    size_t n = length < 64 ? length : 64;
    for (size_t i = 0; i < n; i++)
        if ((bytes[i] < 0x20 && bytes[i] != '\n' && bytes[i] != '\r' && bytes[i] != '\t') ||
            bytes[i] == 0x7F)
            return 0;
    return 1;
}

/* Reports the error for bytes of an unsupported format. */
static int refuse(const uint8_t *bytes, size_t length, struct hr_error *error)
{
    if (!length)
        return hr__fail(error, -EBADMSG, "the file is empty (0 bytes); restore or remove it");
    for (size_t i = 0; i < sizeof other_formats / sizeof other_formats[0]; i++)
        if (matches(&other_formats[i], bytes, length))
            return hr__fail(error, -ENOTSUP, "this is %s; convert it to JPEG or PNG",
                            other_formats[i].name);
    size_t zeros = 0;
    while (zeros < length && zeros < 64 && !bytes[zeros])
        zeros++;
    if (zeros == length || zeros == 64)
        return hr__fail(error, -EBADMSG,
                        "the file begins with zero bytes, as after an interrupted copy; "
                        "restore or remove it");
    for (int i = 0; i < DECODED_FILES; i++) {
        const struct signature *s = &decoded_files[i].signature;
        if (!s->offset && length < s->length && !memcmp(bytes, s->bytes, length))
            return hr__fail(error, -EBADMSG, "the %s ends after %zu bytes; restore or remove it",
                            s->name, length);
    }
    if (length >= HR__ITEM_MAGIC_BYTES && length < sizeof(struct hr__item_header) &&
        !memcmp(bytes, HR__ITEM_MAGIC, HR__ITEM_MAGIC_BYTES))
        return hr__item_damaged(error, "it ends after %zu bytes", length);
    if (looks_like_text(bytes, length))
        return hr__fail(error, -ENOTSUP,
                        "this is text, not an image (a web page saved in its place?); "
                        "fetch it again or remove it");
    if (hr_sound_recognise(bytes, length))
        return hr__fail(
            error, -ENOTSUP,
            "this is a sound or video, not an image: sounds need a recipe that begins with an "
            "operation on sounds, such as RandomWindow or Mono");
    char start[3 * 8 + 1] = "";
    for (size_t i = 0; i < length && i < 8; i++) {
        static const char digit[] = "0123456789abcdef";
        start[3 * i] = digit[bytes[i] >> 4];
        start[3 * i + 1] = digit[bytes[i] & 15];
        start[3 * i + 2] = i + 1 < length && i < 7 ? ' ' : 0;
    }
    return hr__fail(error, -ENOTSUP,
                    "not an image format known here (it begins with %s); JPEG, PNG, WebP, BMP, "
                    "GIF and PPM are decoded",
                    start);
}

static enum hr_image_format recognise(const struct hr__encoded *in)
{
    for (int i = 0; i < DECODED_FILES; i++)
        if (matches(&decoded_files[i].signature, in->bytes, in->length))
            return decoded_files[i].id;
    if (!hr__item_recognise(in->bytes, in->length))
        return HR_IMAGE_UNKNOWN;
    switch (hr_form_of(in->bytes, in->length)) {
    case HR_FORM_PLANES:
        return HR_IMAGE_PLANES;
    case HR_FORM_INDEXED:
        return HR_IMAGE_INDEXED;
    default:
        return HR_IMAGE_COEFFICIENTS;
    }
}

/* Finds the format of the bytes and its state. */
static int find_format(struct hr__decoder *decoder, const struct hr__encoded *in, int *which,
                       struct hr_error *error)
{
    enum hr_image_format id = recognise(in);
    for (int i = 0; i < FORMATS; i++) {
        if (formats[i]->id != id)
            continue;
        *which = i;
        return decoder->state[i] ? 0 : formats[i]->create(&decoder->state[i], error);
    }
    return refuse(in->bytes, in->length, error);
}

int hr__decoder_info(struct hr__decoder *decoder, const void *bytes, size_t length,
                     struct hr_image_info *info, struct hr_error *error)
{
    struct hr__encoded in = {.bytes = bytes, .length = length};
    struct hr_error why = {0};
    struct hr_image_info found;
    int which;
    int rc = find_format(decoder, &in, &which, error);
    if (rc)
        return rc;
    do {
        found = (struct hr_image_info){.format = formats[which]->id, .orientation = 1};
        rc = formats[which]->info(decoder->state[which], &in, &found, &why);
    } while (may_accept(decoder, &in, rc, &why));
    if (rc && error)
        *error = why;
    if (!rc)
        *info = found;
    return rc;
}

/* For the limit on pixels, sides count as at least this; see hr__check_pixels. */
#define LEAST_SIDE   32
#define SMALL_ANYWAY (UINT64_C(1) << 24)

int hr__check_pixels(const struct hr_image_info *info, uint64_t max_pixels, struct hr_error *error)
{
    uint64_t width = (uint64_t)info->width, height = (uint64_t)info->height;
    uint64_t held =
        (width > LEAST_SIDE ? width : LEAST_SIDE) * (height > LEAST_SIDE ? height : LEAST_SIDE);
    if (info->width < 1 || info->height < 1)
        return hr__fail(error, -EBADMSG, "the image declares %d x %d pixels; restore or remove it",
                        info->width, info->height);
    if (width * height > max_pixels)
        return hr__fail(error, -EFBIG,
                        "the image declares %d x %d pixels, more than max_pixels of %" PRIu64
                        "; remove it, make it smaller or raise the limit",
                        info->width, info->height, max_pixels);
    if (width > HR__MAX_IMAGE_SIDE || height > HR__MAX_IMAGE_SIDE ||
        (held > max_pixels && held > SMALL_ANYWAY))
        return hr__fail(error, -EFBIG,
                        "the image declares %d x %d pixels, too long and narrow for max_pixels of "
                        "%" PRIu64 "; remove it or cut it into pieces",
                        info->width, info->height, max_pixels);
    return 0;
}

static int check_region(const struct hr__decode_job *job, struct hr_error *error)
{
    const struct hr_region *r = &job->region;
    int n = job->halvings, width, height;
    if (n < 0 || n > hr__format_halvings(job->info.format))
        return hr__fail(error, -ERANGE, "images of this format cannot be halved %d times", n);
    width = ((job->info.width - 1) >> n) + 1;
    height = ((job->info.height - 1) >> n) + 1;
    if (r->x >= 0 && r->y >= 0 && r->width > 0 && r->height > 0 && r->width <= width &&
        r->height <= height && r->x <= width - r->width && r->y <= height - r->height)
        return 0;
    return hr__fail(error, -ERANGE, "region %d,%d %dx%d is not inside the image of %dx%d", r->x,
                    r->y, r->width, r->height, width, height);
}

/* Makes room for the region's pixels, which are undefined at first. */
static int make_room(struct hr__decoder *decoder, const struct hr_region *region,
                     struct hr__planar *out, struct hr_error *error)
{
    /* Sides are at most 2^28, so the products fit in 64 bits. */
    size_t stride = ((size_t)region->width + 63) & ~(size_t)63;
    size_t plane_bytes = stride * (size_t)region->height;
    int rc = hr__scratch_reserve(&decoder->planes, 3 * plane_bytes, error);
    if (rc)
        return rc;
    for (int c = 0; c < 3; c++)
        out->plane[c] = decoder->planes.bytes + (size_t)c * plane_bytes;
    out->stride = (ptrdiff_t)stride;
    out->width = region->width;
    out->height = region->height;
    return 0;
}

/* Checks the job and finds the state to do it with. */
static int begin_job(struct hr__decoder *decoder, const struct hr__decode_job *job, int *which,
                     struct hr_error *error)
{
    decoder->item.bytes = 0;
    int rc = check_region(job, error);
    if (!rc)
        rc = find_format(decoder, &job->in, which, error);
    if (!rc && job->info.format != formats[*which]->id)
        rc = hr__fail(error, -EINVAL, "the image info is not that of these bytes");
    return rc;
}

/* Limits a job, whose room is for `whole`, to the rows [from, to). */
static void narrow(struct hr__decode_job *job, const struct hr_region *whole, int from, int to)
{
    for (int c = 0; c < 3; c++)
        job->out.plane[c] += (from - whole->y) * job->out.stride;
    job->out.height = job->region.height = to - from;
    job->region.y = from;
}

/* Pixels of a band, about. */
#define BAND_PIXELS (1 << 19)

/* Decodes a region band by band. */
static int run_bands(struct hr__decoder *decoder, const struct hr__decode_job *job, int which,
                     struct hr_error *error)
{
    const struct hr_region *r = &job->region;
    int rows = BAND_PIXELS / r->width / HR__BAND_ROWS * HR__BAND_ROWS + HR__BAND_ROWS;
    int y = r->y, end = r->y + r->height, rc = 0;
    while (!rc && y < end) {
        struct hr__decode_job band = *job;
        int next = end - y > rows ? y / HR__BAND_ROWS * HR__BAND_ROWS + rows : end;
        if (job->claims)
            end = job->claims->claim(job->claims->arg, next);
        next = next < end ? next : end;
        narrow(&band, r, y, next);
        y = next;
        rc = band.region.height ? formats[which]->region(decoder->state[which], &band, error) : 0;
    }
    return rc;
}

static int run_once(struct hr__decoder *decoder, const struct hr__decode_job *job, int which,
                    struct hr_error *error)
{
    if (formats[which]->rows == HR__ROWS_ANY)
        return run_bands(decoder, job, which, error);
    return formats[which]->region(decoder->state[which], job, error);
}

int hr__decoder_region(struct hr__decoder *decoder, const void *bytes, size_t length,
                       const struct hr_image_info *info, const struct hr_region *region,
                       struct hr__planar *out, struct hr_error *error)
{
    struct hr__decode_job job = {
        .in = {.bytes = bytes,
               .length = length,
               .use_libjpeg = decoder->use_libjpeg,
               .indices = decoder->indices},
        .info = *info,
        .halvings = decoder->halvings,
        .region = *region,
        .item = decoder->makes_items ? &decoder->item : NULL,
    };
    struct hr_error why = {0};
    int which, rc = begin_job(decoder, &job, &which, error);
    if (!rc)
        rc = make_room(decoder, region, &job.out, error);
    if (rc)
        return rc;
    /* The header may have been found damaged already. */
    job.in.lenient = decoder->damage.code != 0;
    do
        rc = run_once(decoder, &job, which, &why);
    while (may_accept(decoder, &job.in, rc, &why));
    if (rc && error)
        *error = why;
    if (!rc)
        *out = job.out;
    return rc;
}

int hr__format_is_seekable(enum hr_image_format format)
{
    for (int i = 0; i < FORMATS; i++)
        if (formats[i]->id == format)
            return formats[i]->rows != HR__ROWS_FROM_TOP;
    return 0;
}

int hr__decoder_share(struct hr__decoder *decoder, const void *bytes, size_t length,
                      const struct hr_image_info *info, const struct hr_region *region,
                      struct hr__shared_region *out)
{
    if ((int64_t)region->width * region->height < HR__SHARED_PIXELS ||
        !hr__format_is_seekable(info->format) || decoder->use_libjpeg || decoder->damage.code)
        return 0;
    *out = (struct hr__shared_region){.bytes = bytes,
                                      .length = length,
                                      .info = *info,
                                      .halvings = decoder->halvings,
                                      .region = *region};
    return !make_room(decoder, region, &out->out, NULL);
}

static struct hr__decode_job job_of(const struct hr__shared_region *shared)
{
    return (struct hr__decode_job){
        .in = {.bytes = shared->bytes, .length = shared->length, .strict = 1},
        .info = shared->info,
        .halvings = shared->halvings,
        .region = shared->region,
        .out = shared->out,
    };
}

int hr__decoder_shared(struct hr__decoder *decoder, const struct hr__shared_region *shared,
                       const struct hr__row_claims *claims)
{
    struct hr__decode_job job = job_of(shared);
    job.claims = claims;
    int which, rc = begin_job(decoder, &job, &which, NULL);
    return rc ? rc : run_once(decoder, &job, which, NULL);
}

int hr__decoder_band(struct hr__decoder *decoder, const struct hr__shared_region *shared, int from,
                     int to)
{
    struct hr__decode_job job = job_of(shared);
    int which, rc = begin_job(decoder, &job, &which, NULL);
    if (!rc)
        narrow(&job, &shared->region, from, to);
    return rc ? rc : run_once(decoder, &job, which, NULL);
}
