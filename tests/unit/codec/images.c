/* Makes test images and decodes them with libjpeg; see images.h. */
#include "images.h"

#include <limits.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <spng.h>

uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

int random_between(uint64_t *state, int low, int high)
{
    return low + (int)(next_random(state) % (uint64_t)(high - low + 1));
}

/* A region with sides of at most `most` pixels. */
static struct hr_region region_up_to(uint64_t *state, int most, int width, int height)
{
    struct hr_region r;
    r.width = random_between(state, 1, most < width ? most : width);
    r.height = random_between(state, 1, most < height ? most : height);
    r.x = random_between(state, 0, width - r.width);
    r.y = random_between(state, 0, height - r.height);
    return r;
}

struct hr_region random_region(uint64_t *state, int width, int height)
{
    return region_up_to(state, INT_MAX, width, height);
}

struct hr_region random_region_often_small(uint64_t *state, int width, int height)
{
    return region_up_to(state, next_random(state) % 4 ? INT_MAX : 5, width, height);
}

uint8_t *make_picture(int width, int height, int channels, uint64_t seed)
{
    uint8_t *picture = malloc((size_t)width * (size_t)height * (size_t)channels);
    uint64_t state = seed;
    int period = random_between(&state, 5, 40), noise = random_between(&state, 1, 60);
    uint8_t *p = picture;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++) {
                int v = (x * (c + 1) + y * (3 - c)) % 256;
                if ((x / period + y / period) % 2)
                    v = 255 - v * (c + 1) / 4;
                v += random_between(&state, -noise, noise);
                *p++ = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
            }
    return picture;
}

uint8_t *make_noise(int width, int height, int channels, int binary, uint64_t seed)
{
    size_t count = (size_t)width * (size_t)height * (size_t)channels;
    uint8_t *noise = malloc(count);
    for (size_t i = 0; i < count; i++) {
        uint64_t v = next_random(&seed);
        noise[i] = binary ? (v & 1 ? 255 : 0) : (uint8_t)v;
    }
    return noise;
}

static const jpeg_scan_info separate_scans[4] = {
    {1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}, {1, {3}, 0, 63, 0, 0}};

/* Incomplete: DC lacks its last bit, and most AC coefficients are missing. */
static const jpeg_scan_info incomplete_scans[3] = {
    {3, {0, 1, 2}, 0, 0, 0, 1}, {1, {0}, 1, 5, 0, 2}, {1, {1}, 1, 20, 0, 1}};

/* Three components in full precision; each scan has one of them. */
static const jpeg_scan_info scans_alone[9] = {
    {1, {0}, 0, 0, 0, 1},  {1, {1}, 0, 0, 0, 0},  {1, {2}, 0, 0, 0, 0},
    {1, {0}, 0, 0, 1, 0},  {1, {0}, 1, 63, 0, 1}, {1, {0}, 1, 63, 1, 0},
    {1, {1}, 1, 63, 0, 0}, {1, {2}, 1, 9, 0, 0},  {1, {2}, 10, 63, 0, 0}};

static void choose_scans(struct jpeg_compress_struct *cinfo, const struct jpeg_spec *spec)
{
    switch (spec->scans) {
    case SCANS_BASELINE:
        break;
    case SCANS_PROGRESSIVE:
        jpeg_simple_progression(cinfo);
        break;
    case SCANS_SEPARATE:
        cinfo->scan_info = separate_scans;
        cinfo->num_scans = spec->components;
        break;
    case SCANS_INCOMPLETE:
        cinfo->scan_info = incomplete_scans;
        cinfo->num_scans = 3;
        break;
    case SCANS_ALONE:
        cinfo->scan_info = scans_alone;
        cinfo->num_scans = 9;
        break;
    case SCANS_ARITHMETIC:
        cinfo->arith_code = TRUE;
        break;
    }
}

static uint8_t *make_content(const struct jpeg_spec *spec)
{
    if (spec->content == CONTENT_PICTURE)
        return make_picture(spec->width, spec->height, spec->components, spec->seed);
    return make_noise(spec->width, spec->height, spec->components, spec->content == CONTENT_BINARY,
                      spec->seed);
}

struct bytes make_jpeg(const struct jpeg_spec *spec)
{
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *data = NULL;
    unsigned long length = 0;
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &data, &length);
    cinfo.image_width = (JDIMENSION)spec->width;
    cinfo.image_height = (JDIMENSION)spec->height;
    cinfo.input_components = spec->components;
    cinfo.in_color_space = spec->components == 1   ? JCS_GRAYSCALE
                           : spec->components == 3 ? JCS_RGB
                                                   : JCS_CMYK;
    jpeg_set_defaults(&cinfo);
    if (spec->rgb)
        jpeg_set_colorspace(&cinfo, JCS_RGB);
    if (spec->ycck)
        jpeg_set_colorspace(&cinfo, JCS_YCCK);
    jpeg_set_quality(&cinfo, spec->quality, TRUE);
    for (int i = 0; i < 2 && spec->quant; i++)
        jpeg_add_quant_table(&cinfo, i, spec->quant[i], 100, TRUE);
    for (int c = 0; c < spec->components; c++) {
        cinfo.comp_info[c].h_samp_factor = spec->h[c] ? spec->h[c] : 1;
        cinfo.comp_info[c].v_samp_factor = spec->v[c] ? spec->v[c] : 1;
    }
    cinfo.restart_interval = (unsigned)spec->restart;
    cinfo.optimize_coding = spec->optimised && spec->scans != SCANS_ARITHMETIC;
    choose_scans(&cinfo, spec);
    uint8_t *made = spec->picture ? NULL : make_content(spec);
    const uint8_t *picture = made ? made : spec->picture;
    size_t row_bytes = (size_t)spec->width * (size_t)spec->components;
    jpeg_start_compress(&cinfo, TRUE);
    while (cinfo.next_scanline < cinfo.image_height) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(picture + cinfo.next_scanline * row_bytes);
        jpeg_write_scanlines(&cinfo, &row, 1);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    free(made);
    return (struct bytes){data, length};
}

struct plain {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    jmp_buf escape;
    uint8_t *out, *row;
};

static void plain_exit(j_common_ptr common)
{
    struct plain *p = common->client_data;
    longjmp(p->escape, 1);
}

static void plain_message(j_common_ptr common, int level)
{
    if (level < 0)
        plain_exit(common);
}

/* Pillow's arithmetic, independent of the code under test. */
static void cmyk_to_rgb(const uint8_t *cmyk, uint8_t *rgb)
{
    int white = cmyk[3];
    for (int c = 0; c < 3; c++) {
        int ink = 255 - cmyk[c];
        int t = ink * white + 128;
        int v = white - ((t + (t >> 8)) >> 8);
        rgb[c] = (uint8_t)(v < 0 ? 0 : v);
    }
}

uint8_t *decode_plainly(const struct bytes *file, int *width, int *height)
{
    return decode_halved(file, 0, width, height);
}

uint8_t *decode_halved(const struct bytes *file, int halvings, int *width, int *height)
{
    struct plain *p = calloc(1, sizeof *p);
    p->cinfo.err = jpeg_std_error(&p->errors);
    p->errors.error_exit = plain_exit;
    p->errors.emit_message = plain_message;
    p->cinfo.client_data = p;
    jpeg_create_decompress(&p->cinfo);
    if (setjmp(p->escape)) {
        free(p->out);
        p->out = NULL;
        goto end;
    }
    jpeg_mem_src(&p->cinfo, file->data, file->length);
    jpeg_read_header(&p->cinfo, TRUE);
    if (p->cinfo.num_components == 3)
        p->cinfo.out_color_space = JCS_RGB;
    p->cinfo.scale_denom = p->cinfo.scale_num << halvings;
    jpeg_start_decompress(&p->cinfo);
    size_t w = p->cinfo.output_width;
    int n = p->cinfo.output_components;
    p->out = malloc(w * p->cinfo.output_height * 3);
    p->row = malloc(w * (size_t)n);
    while (p->cinfo.output_scanline < p->cinfo.output_height) {
        uint8_t *to = p->out + w * 3 * p->cinfo.output_scanline;
        jpeg_read_scanlines(&p->cinfo, &p->row, 1);
        for (size_t x = 0; x < w; x++)
            if (n == 3)
                memcpy(to + 3 * x, p->row + 3 * x, 3);
            else if (n == 4)
                cmyk_to_rgb(p->row + 4 * x, to + 3 * x);
            else
                memset(to + 3 * x, p->row[x], 3);
    }
    jpeg_finish_decompress(&p->cinfo);
    *width = (int)w;
    *height = (int)p->cinfo.output_height;
end:;
    uint8_t *out = p->out;
    jpeg_destroy_decompress(&p->cinfo);
    free(p->row);
    free(p);
    return out;
}

void insert_segment(struct bytes *file, const void *segment, size_t length)
{
    uint8_t *data = malloc(file->length + length);
    memcpy(data, file->data, 2);
    memcpy(data + 2, segment, length);
    memcpy(data + 2 + length, file->data + 2, file->length - 2);
    free(file->data);
    file->data = data;
    file->length += length;
}

struct bytes make_png(const struct png_spec *spec, uint8_t **samples)
{
    static const int channels_of[7] = {1, 0, 3, 1, 2, 0, 4};
    size_t row = ((size_t)(spec->width * spec->depth * channels_of[spec->type]) + 7) / 8;
    size_t total = row * (size_t)spec->height;
    uint64_t state = spec->seed;
    struct spng_plte palette = {.n_entries = (uint32_t)spec->palette};
    uint8_t *raw = malloc(total);
    for (size_t i = 0; i < total; i++)
        raw[i] = (uint8_t)next_random(&state);
    if (spec->type == 3) {
        /* Limit each sample to the entries of the palette. */
        unsigned mask = (1u << spec->depth) - 1;
        for (size_t i = 0; i < total; i++) {
            unsigned byte = 0;
            for (int bit = 0; bit < 8; bit += spec->depth)
                byte |= (raw[i] >> bit & mask) % (unsigned)spec->palette << bit;
            raw[i] = (uint8_t)byte;
        }
        for (int i = 0; i < spec->palette; i++) {
            uint64_t v = next_random(&state);
            palette.entries[i] =
                (struct spng_plte_entry){(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), 255};
        }
    }
    spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
    struct spng_ihdr header = {.width = (uint32_t)spec->width,
                               .height = (uint32_t)spec->height,
                               .bit_depth = (uint8_t)spec->depth,
                               .color_type = (uint8_t)spec->type,
                               .interlace_method = (uint8_t)spec->interlaced};
    spng_set_option(ctx, SPNG_ENCODE_TO_BUFFER, 1);
    spng_set_ihdr(ctx, &header);
    if (spec->type == 3)
        spng_set_plte(ctx, &palette);
    int rc = spng_encode_image(ctx, raw, total, SPNG_FMT_RAW, SPNG_ENCODE_FINALIZE);
    struct bytes file = {0};
    file.data = spng_get_png_buffer(ctx, &file.length, &rc);
    spng_ctx_free(ctx);
    if (!file.data) {
        fprintf(stderr, "make_png: %s\n", spng_strerror(rc));
        abort();
    }
    if (spec->chunk) { /* after the signature and IHDR, 8 + 25 bytes */
        uint8_t *data = malloc(file.length + spec->chunk_bytes);
        memcpy(data, file.data, 33);
        memcpy(data + 33, spec->chunk, spec->chunk_bytes);
        memcpy(data + 33 + spec->chunk_bytes, file.data + 33, file.length - 33);
        free(file.data);
        file.data = data;
        file.length += spec->chunk_bytes;
    }
    if (samples) {
        /* Tests compare colours, so return those of the palette. */
        if (spec->type == 3) {
            size_t pixels = (size_t)spec->width * (size_t)spec->height;
            uint8_t *rgb = malloc(pixels * 3);
            for (size_t i = 0; i < pixels; i++) {
                size_t x = i % (size_t)spec->width, bit = x * (size_t)spec->depth;
                unsigned v = raw[i / (size_t)spec->width * row + bit / 8];
                v = v >> (8 - (size_t)spec->depth - bit % 8) & ((1u << spec->depth) - 1);
                rgb[3 * i] = palette.entries[v].red;
                rgb[3 * i + 1] = palette.entries[v].green;
                rgb[3 * i + 2] = palette.entries[v].blue;
            }
            free(raw);
            raw = rgb;
        }
        *samples = raw;
    } else {
        free(raw);
    }
    return file;
}

static uint32_t crc32_of(const uint8_t *p, size_t n)
{
    uint32_t crc = ~0u;
    while (n--) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

static void put_be32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

struct bytes make_chunk(const char *type, const void *data, size_t length)
{
    struct bytes chunk = {malloc(length + 12), length + 12};
    put_be32(chunk.data, (uint32_t)length);
    memcpy(chunk.data + 4, type, 4);
    if (length)
        memcpy(chunk.data + 8, data, length);
    put_be32(chunk.data + 8 + length, crc32_of(chunk.data + 4, length + 4));
    return chunk;
}

struct bytes make_exif(int orientation, int big_endian)
{
    /* Header, two entries (width first), no next directory. */
    static const uint8_t little[] = {'I', 'I', 42, 0, 8, 0, 0, 0, 2, 0,    0x00, 1, 4,
                                     0,   1,   0,  0, 0, 9, 0, 0, 0, 0x12, 1,    3, 0,
                                     1,   0,   0,  0, 0, 0, 0, 0, 0, 0,    0,    0};
    static const uint8_t big[] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 2, 1,    0x00, 0,
                                  4,   0,   0, 0,  1, 0, 0, 0, 9, 1, 0x12, 0,    3,
                                  0,   0,   0, 1,  0, 0, 0, 0, 0, 0, 0,    0};
    struct bytes exif = {malloc(sizeof little), sizeof little};
    memcpy(exif.data, big_endian ? big : little, sizeof little);
    exif.data[big_endian ? 31 : 30] = (uint8_t)orientation;
    return exif;
}

int planar_equals(const struct hr__planar *planar, const uint8_t *reference, int reference_width,
                  const struct hr_region *region)
{
    for (int y = 0; y < region->height; y++) {
        const uint8_t *want =
            reference + 3 * ((size_t)(region->y + y) * (size_t)reference_width + (size_t)region->x);
        for (int x = 0; x < region->width; x++)
            for (int c = 0; c < 3; c++)
                if (planar->plane[c][y * planar->stride + x] != want[3 * x + c])
                    return 0;
    }
    return 1;
}
