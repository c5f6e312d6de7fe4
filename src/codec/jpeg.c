/*
 * Decodes JPEG, and the form `indexed`: the whole image or any region of it.
 *
 * Files of the usual kind are decoded by our own decoder (baseline.h), all others and damaged ones
 * by libjpeg-turbo, as are all with HEADRACE_JPEG=libjpeg-turbo. The rest of this file is about
 * libjpeg-turbo.
 *
 * A region costs the entropy decoding of the rows above it and of its own rows. Inverse DCT,
 * upsampling and colour conversion run only for its own columns and rows. jpeg_crop_scanline limits
 * the columns to the region and a margin, because chroma upsampling uses one chroma sample on
 * either side. jpeg_skip_scanlines skips the rows above, but keeps those that upsampling needs.
 * Where these functions are not exact, the whole width or all rows are decoded (see plan_window).
 * So pixels are always those of a full decode with the accurate integer DCT and fancy upsampling.
 * The scaled decodes of halved images read all rows and columns.
 *
 * Decoding stops after the region's last row, so damage after it is not noticed. A region that
 * reaches the image's last row also checks its end. Every libjpeg warning after which pixels would
 * be guessed is an error, unless the caller is lenient: then the whole image is decoded, so that
 * guesses do not depend on the region. No JPEG decoder can detect changed bytes that are still
 * valid Huffman codes.
 */
#include "base/error.h"
#include "base/memory.h"
#include "codec/baseline.h"
#include "codec/deinterleave.h"
#include "codec/format.h"
#include "codec/indexed.h"
#include "codec/jpeg_library.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Rows to de-interleave at once. The 1..4 that libjpeg returns are too few, because loads would
 * follow the stores too closely; more would not fit in the nearest cache. */
#define ROWS 4

/* libjpeg-turbo writes vector-aligned rows past the caches, so we would read them from memory. This
 * offset makes rows unaligned. It reduced a full 500x375 image from 950 to 785 us. */
#define ROW_SHIFT 8

/* Columns beside the region that its pixels depend on: chroma upsampling uses the neighbouring
 * chroma sample, which covers up to two columns. */
#define MARGIN 2

/* Narrower windows are widened if the image allows, because upsamplers treat rows of very few
 * samples differently. */
#define LEAST_WINDOW 32

struct jpeg {
    struct hr__jpeg library;
    struct hr__baseline *baseline; /* NULL: not wanted */
    struct hr__codec_scratch rows; /* ROWS rows of the window, interleaved */
    hr__deinterleave_fn *deinterleave;
};

/* The columns to decode, and how to skip the rows above the region. */
struct jpeg_window {
    JDIMENSION x, width;
    int crop; /* limit the columns with jpeg_crop_scanline */
    int skip; /* skip rows with jpeg_skip_scanlines instead of decoding them */
};

static void jpeg_state_destroy(void **state)
{
    struct jpeg *j = *state;
    if (!j)
        return;
    hr__baseline_destroy(&j->baseline);
    hr__scratch_free(&j->rows);
    hr__free(j);
    *state = NULL;
}

static int baseline_is_wanted(void)
{
    const char *wish = getenv("HEADRACE_JPEG");
    return !wish || strcmp(wish, "libjpeg-turbo") != 0;
}

static int jpeg_state_create(void **state, struct hr_error *error)
{
    struct jpeg *j = hr__alloc(HR__TAG_CODEC, 1, sizeof *j);
    if (!j)
        return hr__fail(error, -ENOMEM, "out of memory for a JPEG decoder");
    hr__jpeg_init(&j->library);
    j->deinterleave = hr__deinterleave(hr__isa());
    *state = j;
    int r = baseline_is_wanted() ? hr__baseline_create(&j->baseline, error) : 0;
    if (r)
        jpeg_state_destroy(state);
    return r;
}

static size_t jpeg_state_memory(const void *state)
{
    const struct jpeg *j = state;
    return sizeof *j + j->rows.capacity + (j->baseline ? hr__baseline_memory(j->baseline) : 0);
}

static int jpeg_info(void *state, const struct hr__encoded *in, struct hr_image_info *info,
                     struct hr_error *error)
{
    struct jpeg *j = state;
    int unsupported;
    hr__jpeg_walk_markers(in, &info->orientation, &unsupported);
    if (unsupported)
        return hr__fail(error, -ENOTSUP,
                        "unsupported JPEG: lossless or hierarchical coding (SOF%d); convert it to "
                        "baseline JPEG or PNG",
                        unsupported - 0xC0);
    struct hr__jpeg *library = &j->library;
    library->error = error;
    if (setjmp(library->escape)) {
        jpeg_destroy_decompress(&library->cinfo);
        return library->code;
    }
    hr__jpeg_read_header(library, in);
    info->width = (int)library->cinfo.image_width;
    info->height = (int)library->cinfo.image_height;
    info->channels = library->cinfo.num_components;
    jpeg_destroy_decompress(&library->cinfo);
    return 0;
}

static struct jpeg_window plan_window(const struct jpeg_decompress_struct *cinfo,
                                      const struct hr__decode_job *job)
{
    const struct hr__jpeg *library = cinfo->client_data;
    const struct hr_region *region = &job->region;
    struct jpeg_window w = {0, cinfo->output_width, 0, 0};
    if (library->lenient || job->halvings || hr__jpeg_is_smoothed(cinfo))
        return w;
    JDIMENSION left = (JDIMENSION)region->x, right = left + (JDIMENSION)region->width;
    left = left > MARGIN ? left - MARGIN : 0;
    right = right + MARGIN < w.width ? right + MARGIN : w.width;
    if (right - left < LEAST_WINDOW) {
        right = left + LEAST_WINDOW < w.width ? left + LEAST_WINDOW : w.width;
        left =
            right > LEAST_WINDOW ? (right - LEAST_WINDOW < left ? right - LEAST_WINDOW : left) : 0;
    }
    w.crop = left > 0 || right < w.width;
    w.skip = 1;
    w.x = left;
    w.width = right - left;
    return w;
}

/*
 * Converts inverted ("Adobe") CMYK to RGB like Pillow: with c = 255 - C and so on, R = nk - c * nk
 * / 255, rounded, nk = 255 - k. libjpeg has already converted YCCK to CMYK.
 */
static void store_cmyk(const uint8_t *cmyk, uint8_t *const plane[3], size_t pixels)
{
    for (size_t i = 0; i < pixels; i++, cmyk += 4) {
        unsigned white = cmyk[3];
        for (int c = 0; c < 3; c++) {
            unsigned t = (255u - cmyk[c]) * white + 128;
            plane[c][i] = (uint8_t)(white - (((t >> 8) + t) >> 8));
        }
    }
}

/* Stores `count` rows of the window in the region's planes, from row `at` on. */
static void store_rows(const struct jpeg *j, const struct hr__decode_job *job, JSAMPARRAY rows,
                       int at, int count, size_t column)
{
    size_t pixels = (size_t)job->region.width;
    int components = j->library.cinfo.output_components;
    for (int i = 0; i < count; i++) {
        const uint8_t *row = rows[i] + column * (size_t)components;
        uint8_t *plane[3];
        for (int c = 0; c < 3; c++)
            plane[c] = job->out.plane[c] + (ptrdiff_t)(at + i) * job->out.stride;
        if (components == 3) {
            j->deinterleave(row, plane, pixels);
        } else if (components == 4) {
            store_cmyk(row, plane, pixels);
        } else {
            for (int c = 0; c < 3; c++)
                memcpy(plane[c], row, pixels);
        }
    }
}

static void choose_output(struct jpeg_decompress_struct *cinfo, int halvings)
{
    cinfo->scale_num = 1;
    cinfo->scale_denom = 1u << halvings;
    cinfo->dct_method = JDCT_ISLOW;
    cinfo->do_fancy_upsampling = TRUE;
    cinfo->do_block_smoothing = TRUE;
    cinfo->out_color_space = cinfo->num_components == 1   ? JCS_GRAYSCALE
                             : cinfo->num_components == 3 ? JCS_EXT_RGB
                                                          : JCS_CMYK;
}

/* Reads the window's rows and stores those of the region. */
static int read_rows(struct jpeg *j, const struct hr__decode_job *job, struct jpeg_window window)
{
    struct jpeg_decompress_struct *cinfo = &j->library.cinfo;
    const struct hr_region *region = &job->region;
    JSAMPROW rows[ROWS];
    if (window.crop)
        jpeg_crop_scanline(cinfo, &window.x, &window.width);
    size_t row_bytes = (size_t)cinfo->output_width * (size_t)cinfo->output_components;
    size_t pitch = (row_bytes + ROW_SHIFT + 63) & ~(size_t)63;
    int rc = hr__scratch_reserve(&j->rows, pitch * ROWS, j->library.error);
    if (rc)
        return rc;
    for (int i = 0; i < ROWS; i++)
        rows[i] = j->rows.bytes + (size_t)i * pitch + ROW_SHIFT;
    JDIMENSION first = (JDIMENSION)region->y;
    JDIMENSION end = first + (JDIMENSION)region->height;
    /* In lenient mode decode to the end, so that accepting a damaged file does not depend on the
     * region. */
    JDIMENSION last = j->library.lenient ? cinfo->output_height : end;
    if (window.skip && first)
        jpeg_skip_scanlines(cinfo, first);
    while (cinfo->output_scanline < last) {
        JDIMENSION at = cinfo->output_scanline;
        JDIMENSION limit = at < first ? first : at < end ? end : last;
        JDIMENSION want = limit - at < ROWS ? limit - at : ROWS;
        JDIMENSION got = 0;
        while (got < want)
            got += jpeg_read_scanlines(cinfo, rows + got, want - got);
        if (at >= first && at < end)
            store_rows(j, job, rows, (int)(at - first), (int)got, (size_t)region->x - window.x);
    }
    return 0;
}

/* Decodes the region with libjpeg-turbo, which has read the header. */
static int read_region(struct jpeg *j, const struct hr__decode_job *job)
{
    struct jpeg_decompress_struct *cinfo = &j->library.cinfo;
    choose_output(cinfo, job->halvings);
    jpeg_start_decompress(cinfo);
    int rc = read_rows(j, job, plan_window(cinfo, job));
    if (!rc && cinfo->output_scanline == cinfo->output_height) {
        j->library.finishing = 1;
        jpeg_finish_decompress(cinfo);
    }
    return rc;
}

/* Decodes a file, by its index if there is one. */
static int decode_file(struct jpeg *j, const struct hr__decode_job *job,
                       const struct hr__scan_index *index, struct hr_error *error)
{
    struct jpeg_decompress_struct *cinfo = &j->library.cinfo;
    int own = j->baseline && !job->in.lenient && !job->in.use_libjpeg;
    j->library.error = error;
    if (setjmp(j->library.escape)) {
        jpeg_destroy_decompress(cinfo);
        return j->library.code;
    }
    hr__jpeg_read_header(&j->library, &job->in);
    int rc = 0, done = 0;
    if (cinfo->image_width != (JDIMENSION)job->info.width ||
        cinfo->image_height != (JDIMENSION)job->info.height ||
        cinfo->num_components != job->info.channels)
        rc = index ? hr__item_damaged(error, "its header is not that of its file")
                   : hr__fail(error, -EINVAL, "the image info is not that of these bytes");
    if (!rc && own && index)
        rc = hr__baseline_indexed(j->baseline, cinfo, job, index, &done, error);
    if (!rc && !done && job->in.strict)
        rc = -EBADMSG;
    if (!rc && own && !done)
        rc = hr__baseline_region(j->baseline, cinfo, job, &done, error);
    if (!rc && !done)
        rc = read_region(j, job);
    jpeg_destroy_decompress(cinfo);
    return rc;
}

static int jpeg_region(void *state, const struct hr__decode_job *job, struct hr_error *error)
{
    return decode_file(state, job, NULL, error);
}

/* The form `indexed`. What its index does not fit is decoded as the file alone would be. */

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
    struct hr__decode_job of_file = *job;
    struct hr__indexed item;
    int r = hr__indexed_open(&item, job->in.bytes, job->in.length, error);
    if (r)
        return r;
    of_file.in.bytes = item.file.bytes;
    of_file.in.length = item.file.length;
    of_file.item = NULL; /* it is there already */
    return decode_file(state, &of_file, &item.index, error);
}

const struct hr__format hr__format_jpeg = {
    .id = HR_IMAGE_JPEG,
    .most_halvings = 3,
    .create = jpeg_state_create,
    .destroy = jpeg_state_destroy,
    .info = jpeg_info,
    .region = jpeg_region,
    .memory = jpeg_state_memory,
};

const struct hr__format hr__format_indexed = {
    .id = HR_IMAGE_INDEXED,
    .most_halvings = 3,
    .rows = HR__ROWS_OF_MCUS,
    .create = jpeg_state_create,
    .destroy = jpeg_state_destroy,
    .info = indexed_info,
    .region = indexed_region,
    .memory = jpeg_state_memory,
};
