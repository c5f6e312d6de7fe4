/*
 * JPEG through libjpeg-turbo, whole or any region of it.
 *
 * A region costs the entropy decoding of the rows above it and of its own rows;
 * inverse DCT, upsampling and colour conversion are done for its columns and
 * rows alone. Columns are limited with jpeg_crop_scanline to the region and a
 * margin, because chroma upsampling looks one chroma sample to either side;
 * rows above are passed over with jpeg_skip_scanlines, which keeps the rows
 * that upsampling needs. Where these functions are not exact the whole width
 * or all rows are decoded (see plan_window): pixels are always those of a full
 * decode with the accurate integer DCT and fancy upsampling.
 *
 * Decoding stops after the region's last row, so damage behind it is not seen;
 * a region that reaches the last row of the image also checks its end. Every
 * warning of libjpeg after which pixels would be guessed is an error. Changed
 * bytes that still read as Huffman codes are found by no JPEG decoder.
 */
#include "base/error.h"
#include "base/memory.h"
#include "codec/deinterleave.h"
#include "codec/format.h"

#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

/* Rows de-interleaved at once: what libjpeg gives (1..4) is too little after
 * each other's stores, and more would leave the nearest cache. */
#define ROWS 4

/* libjpeg-turbo writes rows that are aligned to a vector past the caches, which
 * would make us read them from memory; this shift takes the alignment away.
 * A full 500x375 image went from 950 to 785 us with it. */
#define ROW_SHIFT 8

/* Columns beside the region that its pixels depend on: chroma upsampling takes
 * the neighbouring chroma sample, which covers up to two columns. */
#define MARGIN 2

/* A window narrower than this is widened where the image allows, so that no
 * upsampler sees the few samples for which it has a special case. */
#define LEAST_WINDOW 32

/* Scans that a file may have; encoders write some ten, and each costs a pass
 * over the whole image. */
#define MOST_SCANS 500

struct jpeg {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    struct hr__scratch rows; /* ROWS rows of the window, interleaved */
    hr__deinterleave_fn *deinterleave;
    jmp_buf escape;         /* where fail_out goes */
    int code;               /* what it leaves for the caller */
    struct hr_error *error; /* of the current call; may be NULL */
};

/* The columns that are decoded, and how the rows above the region are passed. */
struct window {
    JDIMENSION x, width;
    int crop; /* limit the columns with jpeg_crop_scanline */
    int skip; /* pass over rows with jpeg_skip_scanlines instead of decoding them */
};

/* The code of one of libjpeg's errors. */
static int error_code(int message)
{
    switch (message) {
    case JERR_OUT_OF_MEMORY:
        return -ENOMEM;
#if JPEG_LIB_VERSION < 70 /* Ubuntu builds with the interface of libjpeg 8, which lacks it */
    case JERR_ARITH_NOTIMPL:
#endif
    case JERR_BAD_LIB_VERSION:
    case JERR_BAD_PRECISION:
    case JERR_BAD_STRUCT_SIZE:
    case JERR_CCIR601_NOTIMPL:
    case JERR_COMPONENT_COUNT:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_IMAGE_TOO_BIG:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED:
        return -ENOTSUP;
    default:
        return -EBADMSG;
    }
}

/* Leaves libjpeg with its current message; also its error_exit. */
static void fail_out(j_common_ptr common)
{
    struct jpeg *j = common->client_data;
    char text[JMSG_LENGTH_MAX];
    common->err->format_message(common, text);
    j->code = error_code(common->err->msg_code);
    const char *kind = j->code == -ENOTSUP ? "unsupported JPEG" : "damaged JPEG";
    hr__fail(j->error, j->code, "%s: %s", j->code == -ENOMEM ? "out of memory" : kind, text);
    longjmp(j->escape, 1);
}

/* Leaves libjpeg with a message of our own about the number `n`. */
static __attribute__((noreturn, format(printf, 3, 0))) void fail_with(struct jpeg *j, int code,
                                                                      const char *format, int n)
{
    j->code = hr__fail(j->error, code, format, n);
    longjmp(j->escape, 1);
}

/* Warnings that leave every pixel as the file says it. */
static int warning_is_harmless(int message)
{
    switch (message) {
    case JWRN_ADOBE_XFORM:     /* libjpeg takes YCbCr or YCCK, as all decoders do */
    case JWRN_BOGUS_ICC:       /* profiles are not used */
    case JWRN_EXTRANEOUS_DATA: /* padding before a marker */
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL: /* parameters that sequential JPEG does not use */
        return 1;
    default:
        return 0;
    }
}

static void take_message(j_common_ptr common, int level)
{
    if (level < 0 && !warning_is_harmless(common->err->msg_code))
        fail_out(common);
}

static void ignore_output(j_common_ptr common)
{
}

/* The source is one block of memory, so asking for more is the end of it. */
static boolean source_fill(j_decompress_ptr cinfo)
{
    ERREXIT(cinfo, JERR_INPUT_EOF);
    return FALSE;
}

static void source_skip(j_decompress_ptr cinfo, long count)
{
    struct jpeg_source_mgr *source = cinfo->src;
    if (count <= 0)
        return;
    if ((size_t)count > source->bytes_in_buffer)
        source_fill(cinfo);
    source->next_input_byte += count;
    source->bytes_in_buffer -= (size_t)count;
}

static void source_nothing(j_decompress_ptr cinfo)
{
}

/* Missing or wrong restart markers mean lost rows, never resynchronised. */
static boolean source_resync(j_decompress_ptr cinfo, int desired)
{
    WARNMS2(cinfo, JWRN_MUST_RESYNC, cinfo->unread_marker, desired);
    return FALSE;
}

static void watch_scans(j_common_ptr common)
{
    struct jpeg *j = common->client_data;
    if (j->cinfo.input_scan_number > MOST_SCANS)
        fail_with(j, -EBADMSG, "damaged JPEG: more than %d scans", MOST_SCANS);
}

static void jpeg_state_destroy(void **state)
{
    struct jpeg *j = *state;
    if (!j)
        return;
    hr__scratch_free(&j->rows);
    hr__free(j);
    *state = NULL;
}

static int jpeg_state_create(void **state, struct hr_error *error)
{
    struct jpeg *j = hr__alloc(HR__TAG_CODEC, 1, sizeof *j);
    if (!j)
        return hr__fail(error, -ENOMEM, "out of memory for a JPEG decoder");
    j->cinfo.err = jpeg_std_error(&j->errors);
    j->errors.error_exit = fail_out;
    j->errors.emit_message = take_message;
    j->errors.output_message = ignore_output;
    j->cinfo.client_data = j;
    j->source.init_source = source_nothing;
    j->source.fill_input_buffer = source_fill;
    j->source.skip_input_data = source_skip;
    j->source.resync_to_restart = source_resync;
    j->source.term_source = source_nothing;
    j->progress.progress_monitor = watch_scans;
    j->deinterleave = hr__deinterleave(hr__isa());
    *state = j;
    return 0;
}

static size_t jpeg_state_memory(const void *state)
{
    const struct jpeg *j = state;
    return sizeof *j + j->rows.capacity;
}

/* What libjpeg does not tell about the header: the orientation, and a frame
 * type that it may or may not know. Stops at the first scan. */
static void walk_markers(const struct hr__encoded *in, int *orientation, int *lossless)
{
    const uint8_t *p = in->bytes + 2, *end = in->bytes + in->length;
    int seen_exif = 0;
    *lossless = 0;
    while (end - p >= 4) {
        if (p[0] != 0xFF || p[1] == 0xFF || p[1] == 0) {
            p++; /* fill or extraneous bytes, which libjpeg passes over too */
            continue;
        }
        int marker = p[1];
        if (marker == 0xDA || marker == 0xD9)
            return;
        if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7)) {
            p += 2;
            continue;
        }
        size_t length = (size_t)p[2] << 8 | p[3];
        if (length < 2 || length > (size_t)(end - p) - 2)
            return;
        if (marker == 0xC3 || marker == 0xC5 || marker == 0xC6 || marker == 0xC7 ||
            (marker >= 0xCB && marker <= 0xCF && marker != 0xCC))
            *lossless = marker;
        if (marker == 0xE1 && !seen_exif && length >= 8 && !memcmp(p + 4, "Exif\0\0", 6)) {
            seen_exif = 1;
            *orientation = hr__exif_orientation(p + 10, length - 8);
        }
        p += 2 + length;
    }
}

/*
 * Makes cinfo and reads the header into it; leaves with longjmp on errors. A
 * libjpeg object keeps its tables from image to image, and a damaged file that
 * lacks one would be decoded with that of the file before. So each image gets
 * its own, which costs a microsecond.
 */
static void read_header(struct jpeg *j, const struct hr__encoded *in)
{
    jpeg_create_decompress(&j->cinfo);
    j->cinfo.src = &j->source;
    j->cinfo.progress = &j->progress;
    j->source.next_input_byte = in->bytes;
    j->source.bytes_in_buffer = in->length;
    jpeg_read_header(&j->cinfo, TRUE);
    if (j->cinfo.data_precision != 8)
        ERREXIT1(&j->cinfo, JERR_BAD_PRECISION, j->cinfo.data_precision);
    int n = j->cinfo.num_components;
    if (n != 1 && n != 3 && n != 4)
        fail_with(j, -ENOTSUP, "unsupported JPEG: %d colour components", n);
}

static int jpeg_info(void *state, const struct hr__encoded *in, struct hr_image_info *info,
                     struct hr_error *error)
{
    struct jpeg *j = state;
    int unsupported;
    walk_markers(in, &info->orientation, &unsupported);
    if (unsupported)
        return hr__fail(error, -ENOTSUP,
                        "unsupported JPEG: lossless or hierarchical coding (SOF%d); convert it to "
                        "baseline JPEG or PNG",
                        unsupported - 0xC0);
    j->error = error;
    if (setjmp(j->escape)) {
        jpeg_destroy_decompress(&j->cinfo);
        return j->code;
    }
    read_header(j, in);
    info->width = (int)j->cinfo.image_width;
    info->height = (int)j->cinfo.image_height;
    info->channels = j->cinfo.num_components;
    jpeg_destroy_decompress(&j->cinfo);
    return 0;
}

/* A progressive file whose scans do not give every coefficient in full is
 * smoothed across blocks, and cropping changes what the smoothing sees. */
static int is_smoothed(const struct jpeg_decompress_struct *cinfo)
{
    if (!cinfo->progressive_mode || !cinfo->coef_bits)
        return 0;
    for (int c = 0; c < cinfo->num_components; c++)
        for (int k = 0; k < 10; k++)
            if (cinfo->coef_bits[c][k])
                return 1;
    return 0;
}

static struct window plan_window(const struct jpeg_decompress_struct *cinfo,
                                 const struct hr_region *region)
{
    struct window w = {0, cinfo->output_width, 0, 0};
    if (is_smoothed(cinfo))
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
 * Inverted ("Adobe") CMYK to RGB as Pillow converts it: with c = 255 - C and so
 * on, R = nk - c * nk / 255, rounded, nk = 255 - k. libjpeg has turned YCCK
 * into CMYK before.
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

/* Stores `count` rows of the window as rows `at`... of the region's planes. */
static void store_rows(const struct jpeg *j, const struct hr__decode_job *job, JSAMPARRAY rows,
                       int at, int count, size_t column)
{
    size_t pixels = (size_t)job->region.width;
    int components = j->cinfo.output_components;
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

static void choose_output(struct jpeg_decompress_struct *cinfo)
{
    cinfo->dct_method = JDCT_ISLOW;
    cinfo->do_fancy_upsampling = TRUE;
    cinfo->do_block_smoothing = TRUE;
    cinfo->out_color_space = cinfo->num_components == 1   ? JCS_GRAYSCALE
                             : cinfo->num_components == 3 ? JCS_EXT_RGB
                                                          : JCS_CMYK;
}

/* Reads the window's rows and stores those of the region. */
static int read_rows(struct jpeg *j, const struct hr__decode_job *job, struct window window)
{
    struct jpeg_decompress_struct *cinfo = &j->cinfo;
    const struct hr_region *region = &job->region;
    JSAMPROW rows[ROWS];
    if (window.crop)
        jpeg_crop_scanline(cinfo, &window.x, &window.width);
    size_t row_bytes = (size_t)cinfo->output_width * (size_t)cinfo->output_components;
    size_t pitch = (row_bytes + ROW_SHIFT + 63) & ~(size_t)63;
    int rc = hr__scratch_reserve(&j->rows, pitch * ROWS, j->error);
    if (rc)
        return rc;
    for (int i = 0; i < ROWS; i++)
        rows[i] = j->rows.bytes + (size_t)i * pitch + ROW_SHIFT;
    JDIMENSION first = (JDIMENSION)region->y;
    JDIMENSION end = first + (JDIMENSION)region->height;
    if (window.skip && first)
        jpeg_skip_scanlines(cinfo, first);
    while (cinfo->output_scanline < end) {
        JDIMENSION at = cinfo->output_scanline;
        JDIMENSION limit = at < first ? first : end;
        JDIMENSION want = limit - at < ROWS ? limit - at : ROWS;
        JDIMENSION got = 0;
        while (got < want)
            got += jpeg_read_scanlines(cinfo, rows + got, want - got);
        if (at >= first)
            store_rows(j, job, rows, (int)(at - first), (int)got, (size_t)region->x - window.x);
    }
    return 0;
}

static int jpeg_region(void *state, const struct hr__decode_job *job, struct hr_error *error)
{
    struct jpeg *j = state;
    struct jpeg_decompress_struct *cinfo = &j->cinfo;
    j->error = error;
    if (setjmp(j->escape)) {
        jpeg_destroy_decompress(cinfo);
        return j->code;
    }
    read_header(j, &job->in);
    int rc = 0;
    if (cinfo->image_width != (JDIMENSION)job->info.width ||
        cinfo->image_height != (JDIMENSION)job->info.height) {
        rc = hr__fail(error, -EINVAL, "the image info is not that of these bytes");
    } else {
        choose_output(cinfo);
        jpeg_start_decompress(cinfo);
        rc = read_rows(j, job, plan_window(cinfo, &job->region));
    }
    if (!rc && cinfo->output_scanline == cinfo->output_height)
        jpeg_finish_decompress(cinfo);
    jpeg_destroy_decompress(cinfo);
    return rc;
}

const struct hr__format hr__format_jpeg = {
    .id = HR_IMAGE_JPEG,
    .create = jpeg_state_create,
    .destroy = jpeg_state_destroy,
    .info = jpeg_info,
    .region = jpeg_region,
    .memory = jpeg_state_memory,
};
