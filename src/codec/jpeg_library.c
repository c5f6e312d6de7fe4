/*
 * Sets up libjpeg-turbo: a memory source that ends where the bytes end, errors that leave through
 * longjmp with a message for the caller, and warnings that count as errors if pixels would be
 * guessed after them, unless the caller is lenient.
 */
#include "codec/jpeg_library.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>

#include <jerror.h>

/* Most scans in a file. Encoders write some ten, and each costs a pass over the whole image. */
#define MOST_SCANS 500

/* Returns our code for a libjpeg error. */
static int error_code(int message)
{
    switch (message) {
    case JERR_OUT_OF_MEMORY:
        return -ENOMEM;
#if JPEG_LIB_VERSION < 70 /* missing in the libjpeg 8 interface, which Ubuntu uses */
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

/* Leaves libjpeg with its current message; also used as its error_exit. */
static void fail_out(j_common_ptr common)
{
    struct hr__jpeg *j = common->client_data;
    char text[JMSG_LENGTH_MAX];
    common->err->format_message(common, text);
    j->code = error_code(common->err->msg_code);
    const char *kind = j->code == -ENOTSUP ? "unsupported JPEG" : "damaged JPEG";
    hr__fail(j->error, j->code, "%s: %s", j->code == -ENOMEM ? "out of memory" : kind, text);
    longjmp(j->escape, 1);
}

/* Leaves libjpeg with a message of our own that formats the number `n`. */
void hr__jpeg_fail(struct hr__jpeg *j, int code, const char *format, int n)
{
    j->code = hr__fail(j->error, code, format, n);
    longjmp(j->escape, 1);
}

/* Returns non-zero for warnings that do not affect pixels. */
static int warning_is_harmless(int message)
{
    switch (message) {
    case JWRN_ADOBE_XFORM:     /* libjpeg assumes YCbCr or YCCK, like all decoders */
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
    const struct hr__jpeg *j = common->client_data;
    if (level < 0 && !j->lenient && !warning_is_harmless(common->err->msg_code))
        fail_out(common);
}

static void ignore_output(j_common_ptr common)
{
}

/* The source is one block of memory, so a request for more means its end. Only the end marker may
 * be missing, and only if damaged files are accepted. */
static boolean source_fill(j_decompress_ptr cinfo)
{
    static const JOCTET end[] = {0xFF, JPEG_EOI};
    const struct hr__jpeg *j = cinfo->client_data;
    if (j->lenient && j->finishing) {
        cinfo->src->next_input_byte = end;
        cinfo->src->bytes_in_buffer = sizeof end;
        return TRUE;
    }
    ERREXIT(cinfo, JERR_INPUT_EOF);
    return FALSE;
}

static void source_skip(j_decompress_ptr cinfo, long count)
{
    struct jpeg_source_mgr *source = cinfo->src;
    if (count <= 0)
        return;
    if ((size_t)count > source->bytes_in_buffer) {
        source_fill(cinfo);
        return;
    }
    source->next_input_byte += count;
    source->bytes_in_buffer -= (size_t)count;
}

static void source_nothing(j_decompress_ptr cinfo)
{
}

/* Missing or wrong restart markers mean lost rows: resynchronise only if those may be guessed. */
static boolean source_resync(j_decompress_ptr cinfo, int desired)
{
    const struct hr__jpeg *j = cinfo->client_data;
    if (j->lenient)
        return jpeg_resync_to_restart(cinfo, desired);
    WARNMS2(cinfo, JWRN_MUST_RESYNC, cinfo->unread_marker, desired);
    return FALSE;
}

static void watch_scans(j_common_ptr common)
{
    struct hr__jpeg *j = common->client_data;
    if (j->cinfo.input_scan_number > MOST_SCANS)
        hr__jpeg_fail(j, -EBADMSG, "damaged JPEG: more than %d scans", MOST_SCANS);
}

void hr__jpeg_init(struct hr__jpeg *j)
{
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
}

/* Finds what libjpeg does not report about the header: the orientation, and a frame type that it
 * may not support. Stops at the first scan. */
void hr__jpeg_walk_markers(const struct hr__encoded *in, int *orientation, int *lossless)
{
    const uint8_t *p = in->bytes + 2, *end = in->bytes + in->length;
    int seen_exif = 0;
    *lossless = 0;
    while (end - p >= 4) {
        if (p[0] != 0xFF || p[1] == 0xFF || p[1] == 0) {
            p++; /* fill or extraneous bytes, which libjpeg skips too */
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
 * Creates cinfo and reads the header into it; leaves with longjmp on errors. A libjpeg object keeps
 * its tables from image to image, so a damaged file that lacks a table would be decoded with that
 * of the previous file. Therefore each image gets its own object, which costs a microsecond.
 */
void hr__jpeg_read_header(struct hr__jpeg *j, const struct hr__encoded *in)
{
    jpeg_create_decompress(&j->cinfo);
    j->lenient = in->lenient;
    j->finishing = 0;
    j->cinfo.src = &j->source;
    j->cinfo.progress = &j->progress;
    j->source.next_input_byte = in->bytes;
    j->source.bytes_in_buffer = in->length;
    if (j->keep_metadata) {
        jpeg_save_markers(&j->cinfo, JPEG_COM, 0xFFFF);
        for (int n = 0; n < 16; n++)
            jpeg_save_markers(&j->cinfo, JPEG_APP0 + n, 0xFFFF);
    }
    jpeg_read_header(&j->cinfo, TRUE);
    if (j->cinfo.data_precision != 8)
        ERREXIT1(&j->cinfo, JERR_BAD_PRECISION, j->cinfo.data_precision);
    int n = j->cinfo.num_components;
    if (n != 1 && n != 3 && n != 4)
        hr__jpeg_fail(j, -ENOTSUP, "unsupported JPEG: %d colour components", n);
}

/* If the scans of a progressive file do not give every coefficient in full, libjpeg smooths across
 * blocks, and cropping changes the input of the smoothing. */
int hr__jpeg_is_smoothed(const struct jpeg_decompress_struct *cinfo)
{
    if (!cinfo->progressive_mode || !cinfo->coef_bits)
        return 0;
    for (int c = 0; c < cinfo->num_components; c++)
        for (int k = 0; k < 10; k++)
            if (cinfo->coef_bits[c][k])
                return 1;
    return 0;
}
