/*
 * Decodes WebP with libwebp: lossy, lossless, with alpha, and the first frame of an animation. The
 * pixels are those of Pillow's convert("RGB"): alpha is dropped, not blended, and what the first
 * frame does not cover of the canvas is black.
 *
 * libwebpdemux checks the chunks of the whole file and finds the first frame and the EXIF block. So
 * a file that ends early is refused for any region. A region costs the entropy decoding of the rows
 * above it and of its own rows; rows after it are not decoded, and damage in them is not noticed.
 * Filtering, upsampling and colour conversion run only for its own columns and rows.
 *
 * libwebp's cropping treats the borders of the crop like those of the image: it has no chroma
 * beside them. The crop is therefore wider than the region by the pixels that chroma upsampling
 * reads, and it begins at even coordinates, to which libwebp would move it.
 */
#include "base/error.h"
#include "base/memory.h"
#include "codec/deinterleave.h"
#include "codec/format.h"

#include <errno.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

/* Even, and at least the one pixel beside the region whose chroma its own pixels are made of. */
#define MARGIN 2

enum { RIFF_HEADER_BYTES = 8 };

struct webp {
    struct hr__codec_scratch rows; /* the crop, interleaved */
    hr__deinterleave_fn *deinterleave;
};

/* An open file. */
struct webp_file {
    WebPDemuxer *demuxer;
    WebPIterator frame; /* the first one */
    int width, height;  /* of the canvas */
};

static void close_file(struct webp_file *file)
{
    WebPDemuxReleaseIterator(&file->frame);
    WebPDemuxDelete(file->demuxer);
}

static int open_file(struct webp_file *file, const struct hr__encoded *in, struct hr_error *error)
{
    const uint8_t *b = in->bytes;
    *file = (struct webp_file){0};
    if (in->length < RIFF_HEADER_BYTES + 4 || memcmp(b, "RIFF", 4))
        return hr__fail(error, -EBADMSG, "damaged WebP: it does not begin with RIFF");
    uint64_t rest = b[4] | (uint32_t)b[5] << 8 | (uint32_t)b[6] << 16 | (uint32_t)b[7] << 24;
    if (rest > in->length - RIFF_HEADER_BYTES)
        return hr__fail(error, -EBADMSG, "damaged WebP: the file ends after %zu of %llu bytes",
                        in->length, (unsigned long long)rest + RIFF_HEADER_BYTES);
    file->demuxer = WebPDemux(&(WebPData){b, in->length});
    if (!file->demuxer || !WebPDemuxGetFrame(file->demuxer, 1, &file->frame)) {
        WebPDemuxDelete(file->demuxer);
        return hr__fail(error, -EBADMSG, "damaged WebP: its chunks are not those of an image");
    }
    file->width = (int)WebPDemuxGetI(file->demuxer, WEBP_FF_CANVAS_WIDTH);
    file->height = (int)WebPDemuxGetI(file->demuxer, WEBP_FF_CANVAS_HEIGHT);
    return 0;
}

/* Returns the orientation of the EXIF chunk, which some writers begin as in JPEG. */
static int find_orientation(const struct webp_file *file)
{
    static const uint8_t prefix[6] = "Exif\0";
    WebPChunkIterator chunk;
    int orientation = 1;
    if (!WebPDemuxGetChunk(file->demuxer, "EXIF", 1, &chunk))
        return orientation;
    const uint8_t *tiff = chunk.chunk.bytes;
    size_t length = chunk.chunk.size;
    if (length >= sizeof prefix && !memcmp(tiff, prefix, sizeof prefix)) {
        tiff += sizeof prefix;
        length -= sizeof prefix;
    }
    orientation = hr__exif_orientation(tiff, length);
    WebPDemuxReleaseChunkIterator(&chunk);
    return orientation;
}

static int webp_info(void *state, const struct hr__encoded *in, struct hr_image_info *info,
                     struct hr_error *error)
{
    struct webp_file file;
    int r = open_file(&file, in, error);
    (void)state;
    if (r)
        return r;
    info->width = file.width;
    info->height = file.height;
    info->channels = file.frame.has_alpha ? 4 : 3;
    info->orientation = find_orientation(&file);
    close_file(&file);
    return 0;
}

static int fail_webp(VP8StatusCode status, struct hr_error *error)
{
    switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
        return hr__fail(error, -ENOMEM, "out of memory while decoding WebP");
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
        return hr__fail(error, -EBADMSG, "damaged WebP: its image data ends early");
    default:
        return hr__fail(error, -EBADMSG, "damaged WebP: its image data is invalid");
    }
}

/* Cuts [*from, *from + *size) to [0, limit). */
static void cut(int *from, int *size, int limit)
{
    int end = *from + *size < limit ? *from + *size : limit;
    *from = *from > 0 ? *from : 0;
    *size = end - *from;
}

/* Adds the margin on both sides, inside [0, limit). */
static void widen(int *from, int *size, int limit)
{
    int even = *from & ~1;
    *size += *from - even + 2 * MARGIN;
    *from = even - MARGIN;
    cut(from, size, limit);
}

/* Decodes `crop` of the frame into the state's rows. */
static int decode_crop(struct webp *webp, const WebPIterator *frame, const struct hr_region *crop,
                       struct hr_error *error)
{
    WebPDecoderConfig config;
    size_t pitch = (size_t)crop->width * 3;
    if (!WebPInitDecoderConfig(&config))
        return hr__fail(error, -ENOTSUP, "libwebp is not the version that this was built for");
    int r = hr__scratch_reserve(&webp->rows, pitch * (size_t)crop->height, error);
    if (r)
        return r;
    config.options.use_cropping = 1;
    config.options.crop_left = crop->x;
    config.options.crop_top = crop->y;
    config.options.crop_width = crop->width;
    config.options.crop_height = crop->height;
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = webp->rows.bytes;
    config.output.u.RGBA.stride = (int)pitch;
    config.output.u.RGBA.size = pitch * (size_t)crop->height;
    VP8StatusCode status = WebPDecode(frame->fragment.bytes, frame->fragment.size, &config);
    WebPFreeDecBuffer(&config.output);
    return status == VP8_STATUS_OK ? 0 : fail_webp(status, error);
}

/* Decodes the part of the region that the first frame covers. */
static int decode_region(struct webp *webp, const struct webp_file *file,
                         const struct hr__decode_job *job, struct hr_error *error)
{
    const WebPIterator *frame = &file->frame;
    struct hr_region part = job->region; /* in the frame */
    part.x -= frame->x_offset;
    part.y -= frame->y_offset;
    cut(&part.x, &part.width, frame->width);
    cut(&part.y, &part.height, frame->height);
    int covered = part.width > 0 && part.height > 0;
    if (!covered || part.width < job->region.width || part.height < job->region.height)
        for (int c = 0; c < 3; c++)
            memset(job->out.plane[c], 0, (size_t)job->out.stride * (size_t)job->region.height);
    if (!covered)
        return 0;
    struct hr_region crop = part;
    widen(&crop.x, &crop.width, frame->width);
    widen(&crop.y, &crop.height, frame->height);
    int r = decode_crop(webp, frame, &crop, error);
    int x = part.x + frame->x_offset - job->region.x, y = part.y + frame->y_offset - job->region.y;
    for (int row = 0; !r && row < part.height; row++) {
        const uint8_t *from =
            webp->rows.bytes +
            ((size_t)(part.y - crop.y + row) * (size_t)crop.width + (size_t)(part.x - crop.x)) * 3;
        uint8_t *plane[3];
        for (int c = 0; c < 3; c++)
            plane[c] = job->out.plane[c] + (y + row) * job->out.stride + x;
        if (part.width == job->region.width) {
            webp->deinterleave(from, plane, (size_t)part.width);
            continue;
        }
        /* The vector versions write past the end of the row, over what is black. */
        for (int i = 0; i < 3 * part.width; i++)
            plane[i % 3][i / 3] = from[i];
    }
    return r;
}

static int webp_region(void *state, const struct hr__decode_job *job, struct hr_error *error)
{
    struct webp_file file;
    int r = open_file(&file, &job->in, error);
    if (r)
        return r;
    if (file.width != job->info.width || file.height != job->info.height)
        r = hr__fail(error, -EINVAL, "the image info is not that of these bytes");
    else
        r = decode_region(state, &file, job, error);
    close_file(&file);
    return r;
}

static int webp_create(void **state, struct hr_error *error)
{
    struct webp *webp = hr__alloc(HR__TAG_CODEC, 1, sizeof *webp);
    if (!webp)
        return hr__fail(error, -ENOMEM, "out of memory for a WebP decoder");
    webp->deinterleave = hr__deinterleave(hr__isa());
    *state = webp;
    return 0;
}

static void webp_destroy(void **state)
{
    struct webp *webp = *state;
    hr__scratch_free(&webp->rows);
    hr__free(webp);
    *state = NULL;
}

static size_t webp_memory(const void *state)
{
    const struct webp *webp = state;
    return sizeof *webp + webp->rows.capacity;
}

const struct hr__format hr__format_webp = {
    .id = HR_IMAGE_WEBP,
    .create = webp_create,
    .destroy = webp_destroy,
    .info = webp_info,
    .region = webp_region,
    .memory = webp_memory,
};
