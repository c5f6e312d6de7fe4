/*
 * Reads coefficients and planes from JPEG files, and writes files again; see jpeg_transcode.h. Only
 * check_kind decides which files can become items.
 */
#include "codec/jpeg_transcode.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/round.h"
#include "codec/jpeg_library.h"

#include <errno.h>
#include <string.h>

#include <jerror.h>

/* Initial size of the buffer for a file being written. */
#define FIRST_BYTES ((size_t)64 << 10)

/* Most lines that libjpeg returns at once: 4 block rows, for unusual grey files. */
#define LINES_MOST 32

/* Bytes of a progressive photograph as a baseline one. */
#define EXPECTED_BASELINE 1.05

/* Coefficients of 8-bit pixels are smaller in magnitude; only DC may also be exactly -1024. */
#define COEFFICIENT_LIMIT 1024

struct hr__transcoder {
    struct hr__jpeg library;
    struct hr__packer *packer;
    struct hr__baseline *baseline;   /* created on first use */
    struct hr__codec_scratch planes; /* an item of planes, or an indexed file */
    struct hr__codec_scratch lines;  /* what libjpeg writes for one row of MCUs */
    struct jpeg_compress_struct writer;
    struct jpeg_error_mgr writer_errors;
    struct jpeg_destination_mgr destination;
    int unwritable; /* code of what the writer cannot write */
    uint8_t *file;  /* the file being written */
    size_t file_bytes, capacity;
};

int hr__transcoder_create(struct hr__transcoder **out, struct hr_error *error)
{
    struct hr__transcoder *t = hr__alloc(HR__TAG_CODEC, 1, sizeof *t);
    *out = t;
    if (!t)
        return hr__fail(error, -ENOMEM, "out of memory for a transcoder");
    hr__jpeg_init(&t->library);
    int r = hr__packer_create(&t->packer, error);
    if (r)
        hr__transcoder_destroy(out);
    return r;
}

void hr__transcoder_destroy(struct hr__transcoder **transcoder)
{
    struct hr__transcoder *t = *transcoder;
    *transcoder = NULL;
    if (!t)
        return;
    hr__packer_destroy(&t->packer);
    hr__baseline_destroy(&t->baseline);
    hr__scratch_free(&t->planes);
    hr__scratch_free(&t->lines);
    hr__free(t->file);
    hr__free(t);
}

size_t hr__transcoder_memory(const struct hr__transcoder *t)
{
    return sizeof *t + hr__packer_memory(t->packer) + t->planes.capacity + t->lines.capacity +
           t->capacity + (t->baseline ? hr__baseline_memory(t->baseline) : 0);
}

/* Returns 0 and the luma samples per chroma sample, or -ENOTSUP with the reason why the file cannot
 * become an item. */
static int check_kind(const struct jpeg_decompress_struct *cinfo, struct hr__item_header *shape,
                      struct hr_error *error)
{
    const jpeg_component_info *c = cinfo->comp_info;
    if (cinfo->arith_code)
        return hr__fail(error, -ENOTSUP, "it is coded arithmetically, which no item is made of");
    if (cinfo->jpeg_color_space == JCS_GRAYSCALE && cinfo->num_components == 1)
        return 0;
    if (cinfo->jpeg_color_space != JCS_YCbCr || cinfo->num_components != 3)
        return hr__fail(error, -ENOTSUP, "its colours are %s; items are made of YCbCr and grey",
                        cinfo->num_components == 4           ? "CMYK"
                        : cinfo->jpeg_color_space == JCS_RGB ? "RGB"
                                                             : "unusual");
    shape->h = (uint8_t)(c[0].h_samp_factor / c[1].h_samp_factor);
    shape->v = (uint8_t)(c[0].v_samp_factor / c[1].v_samp_factor);
    if (c[1].h_samp_factor == c[2].h_samp_factor && c[1].v_samp_factor == c[2].v_samp_factor &&
        shape->h * c[1].h_samp_factor == c[0].h_samp_factor &&
        shape->v * c[1].v_samp_factor == c[0].v_samp_factor &&
        hr__item_may_sample(shape->h, shape->v))
        return 0;
    return hr__fail(error, -ENOTSUP,
                    "its sampling is %dx%d,%dx%d,%dx%d; items are made of files with whole luma "
                    "samples per chroma sample, at most 4 on an axis and 8 in all",
                    c[0].h_samp_factor, c[0].v_samp_factor, c[1].h_samp_factor, c[1].v_samp_factor,
                    c[2].h_samp_factor, c[2].v_samp_factor);
}

/* Reads the header and the part of it that every item's header needs. Leaves with longjmp on
 * errors. */
static void read_header(struct hr__transcoder *t, const struct hr__encoded *in,
                        struct hr__item_header *shape)
{
    struct jpeg_decompress_struct *cinfo = &t->library.cinfo;
    int orientation = 1, lossless;
    hr__jpeg_walk_markers(in, &orientation, &lossless);
    hr__jpeg_read_header(&t->library, in);
    *shape = (struct hr__item_header){
        .magic = HR__ITEM_MAGIC,
        .version = HR__PLANES_YCC_VERSION,
        .components = (uint8_t)cinfo->num_components,
        .orientation = (uint8_t)orientation,
        .width = cinfo->image_width,
        .height = cinfo->image_height,
        .h = 1,
        .v = 1,
        .flags = cinfo->progressive_mode ? HR__ITEM_PROGRESSIVE : 0,
    };
}

/* The same, and what items of coefficients and planes need. */
static void read_shape(struct hr__transcoder *t, const struct hr__encoded *in,
                       struct hr__item_header *shape)
{
    read_header(t, in, shape);
    t->library.code = check_kind(&t->library.cinfo, shape, t->library.error);
    if (t->library.code)
        longjmp(t->library.escape, 1);
}

int hr__transcode_shape(struct hr__transcoder *t, const struct hr__encoded *in,
                        struct hr__item_header *shape, struct hr_error *error)
{
    t->library.error = error;
    if (setjmp(t->library.escape)) {
        jpeg_destroy_decompress(&t->library.cinfo);
        return t->library.code;
    }
    read_shape(t, in, shape);
    jpeg_destroy_decompress(&t->library.cinfo);
    return 0;
}

static int begin_item(struct hr__transcoder *t, const struct hr__item_header *shape, size_t limit)
{
    const struct jpeg_decompress_struct *cinfo = &t->library.cinfo;
    uint16_t quant[3][64];
    struct hr__packer_image image = {
        .width = shape->width,
        .height = shape->height,
        .components = shape->components,
        .h = shape->h,
        .v = shape->v,
        .orientation = shape->orientation,
        .progressive = shape->flags & HR__ITEM_PROGRESSIVE,
    };
    for (int c = 0; c < shape->components; c++) {
        const JQUANT_TBL *table = cinfo->comp_info[c].quant_table;
        if (!table)
            return hr__fail(t->library.error, -EBADMSG,
                            "damaged JPEG: component %d has no quantisation table", c);
        for (int i = 0; i < 64; i++)
            quant[c][i] = table->quantval[i];
        image.quant[c] = quant[c];
    }
    return hr__packer_begin(t->packer, &image, limit, t->library.error);
}

/*
 * Returns whether libjpeg can write these blocks again. T.81 gives coefficients of 8-bit pixels 10
 * bits and a sign (F.1.2), and differences of DC one bit more. Decoders accept larger ones, but an
 * item with them could not be written as a file again.
 */
static int are_writable(const int16_t (*blocks)[64], size_t count)
{
    int least = 0, most = 0;
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < 64; k++) {
            least = blocks[i][k] < least ? blocks[i][k] : least;
            most = blocks[i][k] > most ? blocks[i][k] : most;
        }
    if (least > -COEFFICIENT_LIMIT && most < COEFFICIENT_LIMIT)
        return 1;
    if (least < -COEFFICIENT_LIMIT || most >= COEFFICIENT_LIMIT)
        return 0;
    for (size_t i = 0; i < count; i++) /* black at quality 100: only a DC may be -1024 */
        for (int k = 1; k < 64; k++)
            if (blocks[i][k] == -COEFFICIENT_LIMIT)
                return 0;
    return 1;
}

static int pack_rows(struct hr__transcoder *t, const struct hr__item_header *shape,
                     jvirt_barray_ptr *arrays)
{
    j_common_ptr common = (j_common_ptr)&t->library.cinfo;
    for (int c = 0; c < shape->components; c++) {
        uint32_t columns = (hr__item_samples(shape->width, shape->h, c) + 7) / 8;
        uint32_t rows = (hr__item_samples(shape->height, shape->v, c) + 7) / 8;
        for (uint32_t y = 0; y < rows; y++) {
            JBLOCKARRAY row = common->mem->access_virt_barray(common, arrays[c], y, 1, FALSE);
            const int16_t(*blocks)[64] = (const int16_t(*)[64])row[0];
            int r = are_writable(blocks, columns)
                        ? hr__packer_row(t->packer, blocks, t->library.error)
                        : hr__fail(t->library.error, -ENOTSUP,
                                   "its coefficients are larger than those of 8-bit pixels, in "
                                   "component %d, block row %u",
                                   c, y);
            if (r)
                return r;
        }
    }
    return 0;
}

int hr__transcode_coefficients(struct hr__transcoder *t, const struct hr__encoded *in, size_t limit,
                               struct hr__transcoded *out, struct hr_error *error)
{
    struct jpeg_decompress_struct *cinfo = &t->library.cinfo;
    struct hr__item_header shape;
    t->library.error = error;
    if (setjmp(t->library.escape)) {
        jpeg_destroy_decompress(cinfo);
        return t->library.code;
    }
    read_shape(t, in, &shape);
    jvirt_barray_ptr *arrays = jpeg_read_coefficients(cinfo);
    int r = 0;
    if (hr__jpeg_is_smoothed(cinfo))
        r = hr__fail(error, -ENOTSUP,
                     "it is a progressive JPEG that was not saved whole, which decoders smooth");
    if (!r)
        r = begin_item(t, &shape, limit);
    if (!r)
        r = pack_rows(t, &shape, arrays);
    if (!r)
        r = hr__packer_end(t->packer, &out->bytes, &out->length, error);
    jpeg_destroy_decompress(cinfo);
    return r;
}

/* The lines of one component in a row of MCUs, and its plane in the item. */
struct plane {
    uint8_t *at;            /* next line of the item */
    uint32_t width, height; /* in samples; lines still to come */
    int lines;              /* lines in a row of MCUs */
    JSAMPROW line[LINES_MOST];
};

/* Sets up the item's planes and libjpeg's lines, which are as wide as whole MCUs. */
static int begin_planes(struct hr__transcoder *t, const struct hr__item_header *shape,
                        struct plane plane[3])
{
    const struct jpeg_decompress_struct *cinfo = &t->library.cinfo;
    size_t mcu = (size_t)cinfo->max_h_samp_factor * DCTSIZE;
    size_t pitch = hr__round_up(cinfo->image_width, mcu);
    uint64_t bytes = hr__planes_bytes(shape);
    int r = hr__scratch_reserve(&t->planes, bytes, t->library.error);
    if (!r)
        r = hr__scratch_reserve(&t->lines, 3 * LINES_MOST * pitch, t->library.error);
    if (r)
        return r;
    uint8_t *at = t->planes.bytes + sizeof *shape, *line = t->lines.bytes;
    for (int c = 0; c < shape->components; c++) {
        struct plane *p = &plane[c];
        p->at = at;
        p->width = hr__item_samples(shape->width, shape->h, c);
        p->height = hr__item_samples(shape->height, shape->v, c);
        p->lines = cinfo->comp_info[c].v_samp_factor * DCTSIZE;
        for (int i = 0; i < p->lines; i++, line += pitch)
            p->line[i] = line;
        at += (size_t)p->width * p->height;
    }
    memset(at, 0, HR__ITEM_PAD);
    return 0;
}

static void read_planes(struct jpeg_decompress_struct *cinfo, struct plane plane[3])
{
    JSAMPARRAY lines[3] = {plane[0].line, plane[1].line, plane[2].line};
    JDIMENSION rows = (JDIMENSION)cinfo->max_v_samp_factor * DCTSIZE;
    while (cinfo->output_scanline < cinfo->output_height) {
        if (jpeg_read_raw_data(cinfo, lines, rows) != rows)
            ERREXIT(cinfo, JERR_INPUT_EOF);
        for (int c = 0; c < cinfo->num_components; c++) {
            struct plane *p = &plane[c];
            for (int i = 0; i < p->lines && p->height; i++, p->height--, p->at += p->width)
                memcpy(p->at, p->line[i], p->width);
        }
    }
}

int hr__transcode_planes(struct hr__transcoder *t, const struct hr__encoded *in, size_t limit,
                         struct hr__transcoded *out, struct hr_error *error)
{
    struct jpeg_decompress_struct *cinfo = &t->library.cinfo;
    struct hr__item_header shape;
    struct plane plane[3] = {{0}};
    t->library.error = error;
    if (setjmp(t->library.escape)) {
        jpeg_destroy_decompress(cinfo);
        return t->library.code;
    }
    read_shape(t, in, &shape);
    shape.form = HR_FORM_PLANES;
    shape.bytes = hr__planes_bytes(&shape);
    if (limit && shape.bytes > limit)
        t->library.code = hr__fail(error, -ENOSPC, "planes take %llu bytes, more than %zu",
                                   (unsigned long long)shape.bytes, limit);
    else
        t->library.code = begin_planes(t, &shape, plane);
    if (!t->library.code) {
        cinfo->raw_data_out = TRUE;
        cinfo->dct_method = JDCT_ISLOW;
        cinfo->do_block_smoothing = TRUE;
        jpeg_start_decompress(cinfo);
        read_planes(cinfo, plane);
        jpeg_finish_decompress(cinfo);
        memcpy(t->planes.bytes, &shape, sizeof shape);
        *out = (struct hr__transcoded){t->planes.bytes, shape.bytes};
    }
    jpeg_destroy_decompress(cinfo);
    return t->library.code;
}

/* Makes the item of a file whose header has been read. */
static int add_index(struct hr__transcoder *t, const struct hr__encoded *in,
                     const struct hr__item_header *shape, size_t limit, struct hr__transcoded *out)
{
    const struct jpeg_decompress_struct *cinfo = &t->library.cinfo;
    struct hr_error *error = t->library.error;
    struct hr__scan_grid grid;
    if (!hr__baseline_grid(t->baseline, cinfo, &grid))
        return hr__fail(error, -ENOTSUP,
                        "its colours or its sampling are unusual, and such files cannot be "
                        "indexed");
    uint64_t bytes = hr__indexed_bytes(grid.points, in->length);
    if (limit && bytes > limit)
        return hr__fail(error, -ENOSPC, "with its index it takes %llu bytes, more than %zu",
                        (unsigned long long)bytes, limit);
    int r = hr__scratch_reserve(&t->planes, bytes, error);
    if (r)
        return r;
    if (!hr__baseline_points(t->baseline, cinfo, hr__indexed_points(t->planes.bytes)))
        return hr__fail(error, -ENOTSUP,
                        "it is damaged or not a sequential JPEG of one scan, and such files "
                        "cannot be indexed");
    *out = (struct hr__transcoded){t->planes.bytes,
                                   hr__indexed_fill(t->planes.bytes, shape, grid.points, in)};
    return 0;
}

int hr__transcode_indexed(struct hr__transcoder *t, const struct hr__encoded *in, size_t limit,
                          struct hr__transcoded *out, struct hr_error *error)
{
    struct hr__item_header shape;
    struct hr__transcoded made;
    int r = t->baseline ? 0 : hr__baseline_create(&t->baseline, error);
    if (!r)
        r = hr__jpeg_to_baseline(t, in, limit, &made, error);
    if (r)
        return r;
    const struct hr__encoded file = {.bytes = made.bytes, .length = made.length};
    t->library.error = error;
    if (setjmp(t->library.escape)) {
        jpeg_destroy_decompress(&t->library.cinfo);
        return t->library.code;
    }
    read_header(t, &file, &shape);
    shape.flags = made.bytes == in->bytes ? 0 : HR__ITEM_PROGRESSIVE;
    t->library.code = add_index(t, &file, &shape, limit, out);
    jpeg_destroy_decompress(&t->library.cinfo);
    return t->library.code;
}

int hr__transcode_indexed_size(struct hr__transcoder *t, const struct hr__encoded *in,
                               uint64_t *bytes, struct hr_error *error)
{
    struct hr__item_header shape;
    struct hr__scan_grid grid;
    int r = t->baseline ? 0 : hr__baseline_create(&t->baseline, error);
    if (r)
        return r;
    t->library.error = error;
    if (setjmp(t->library.escape)) {
        jpeg_destroy_decompress(&t->library.cinfo);
        return t->library.code;
    }
    const struct jpeg_decompress_struct *cinfo = &t->library.cinfo;
    read_header(t, in, &shape);
    double length = (double)in->length * (cinfo->progressive_mode ? EXPECTED_BASELINE : 1);
    int possible = hr__baseline_grid(t->baseline, cinfo, &grid) &&
                   (cinfo->progressive_mode ||
                    (!cinfo->arith_code && cinfo->comps_in_scan == cinfo->num_components));
    jpeg_destroy_decompress(&t->library.cinfo);
    if (!possible)
        return hr__fail(error, -ENOTSUP,
                        "its colours, its coding or its sampling are unusual, and such files "
                        "cannot be indexed");
    *bytes = hr__indexed_bytes(grid.points, (uint64_t)length);
    return 0;
}

/* Writing */

static void destination_begin(j_compress_ptr writer)
{
    struct hr__transcoder *t = writer->client_data;
    writer->dest->next_output_byte = t->file;
    writer->dest->free_in_buffer = t->capacity;
}

/* The buffer is full: doubles it. */
static boolean destination_grow(j_compress_ptr writer)
{
    struct hr__transcoder *t = writer->client_data;
    size_t used = t->capacity, capacity = used * 2;
    uint8_t *file = hr__realloc(HR__TAG_CODEC, t->file, capacity, 1);
    if (!file)
        hr__jpeg_fail(&t->library, -ENOMEM, "out of memory for a file of more than %d KiB",
                      (int)(used >> 10));
    t->file = file;
    t->capacity = capacity;
    writer->dest->next_output_byte = file + used;
    writer->dest->free_in_buffer = capacity - used;
    return TRUE;
}

static void destination_end(j_compress_ptr writer)
{
    struct hr__transcoder *t = writer->client_data;
    t->file_bytes = t->capacity - writer->dest->free_in_buffer;
}

/* libjpeg passes its errors with the object that failed; this passes the writer's on like the
 * reader's. */
static void writer_failed(j_common_ptr common)
{
    struct hr__transcoder *t = common->client_data;
    char text[JMSG_LENGTH_MAX];
    common->err->format_message(common, text);
    int code = common->err->msg_code == JERR_OUT_OF_MEMORY ? -ENOMEM : t->unwritable;
    t->library.code = hr__fail(t->library.error, code, "the JPEG cannot be written: %s", text);
    longjmp(t->library.escape, 1);
}

static void writer_warned(j_common_ptr common, int level)
{
    if (level < 0)
        writer_failed(common);
}

/* Sets the writer's tables and components from the item. */
static void describe(j_compress_ptr writer, const struct hr__coefficients *item)
{
    const struct hr__item_header *h = &item->header;
    writer->image_width = h->width;
    writer->image_height = h->height;
    writer->input_components = h->components;
    writer->in_color_space = h->components == 1 ? JCS_GRAYSCALE : JCS_YCbCr;
    jpeg_set_defaults(writer);
    jpeg_set_colorspace(writer, writer->in_color_space);
    writer->optimize_coding = TRUE;
    int shared = h->components == 3 && !memcmp(item->quant[1], item->quant[2], sizeof *item->quant);
    for (int c = 0; c < h->components; c++) {
        jpeg_component_info *component = &writer->comp_info[c];
        int slot = c == 2 && shared ? 1 : c;
        component->h_samp_factor = c ? 1 : h->h;
        component->v_samp_factor = c ? 1 : h->v;
        component->quant_tbl_no = slot;
        if (!writer->quant_tbl_ptrs[slot])
            writer->quant_tbl_ptrs[slot] = jpeg_alloc_quant_table((j_common_ptr)writer);
        for (int i = 0; i < 64; i++)
            writer->quant_tbl_ptrs[slot]->quantval[i] = item->quant[c][i];
        writer->quant_tbl_ptrs[slot]->sent_table = FALSE;
    }
    if (h->flags & HR__ITEM_PROGRESSIVE)
        jpeg_simple_progression(writer);
}

/* Writes an EXIF block with only the orientation (Exif 2.32, section 4.6). */
static void write_orientation(j_compress_ptr writer, uint8_t orientation)
{
    uint8_t exif[32] = {'E',  'x',  'i', 'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0, 0, /* header */
                        1,    0,                                                 /* one entry: */
                        0x12, 0x01, 3,   0,   1, 0, 0,   0,   1,  0, 0, 0};      /* tag, short, 1 */
    exif[24] = orientation;
    if (orientation != 1)
        jpeg_write_marker(writer, JPEG_APP0 + 1, exif, sizeof exif);
}

static JDIMENSION round_up(uint32_t n, int to)
{
    return (JDIMENSION)hr__round_up(n, (uint64_t)to);
}

static void request_arrays(j_compress_ptr writer, const struct hr__coefficients *item,
                           jvirt_barray_ptr arrays[3])
{
    for (int c = 0; c < item->header.components; c++) {
        const jpeg_component_info *component = &writer->comp_info[c];
        int h = component->h_samp_factor, v = component->v_samp_factor;
        arrays[c] = writer->mem->request_virt_barray((j_common_ptr)writer, JPOOL_IMAGE, TRUE,
                                                     round_up(item->blocks_x[c], h),
                                                     round_up(item->blocks_y[c], v), (JDIMENSION)v);
    }
}

static int fill_arrays(j_compress_ptr writer, const struct hr__coefficients *item,
                       jvirt_barray_ptr arrays[3], struct hr_error *error)
{
    for (int c = 0; c < item->header.components; c++)
        for (uint32_t y = 0; y < item->blocks_y[c]; y++) {
            JBLOCKARRAY row =
                writer->mem->access_virt_barray((j_common_ptr)writer, arrays[c], y, 1, TRUE);
            int r = hr__coefficients_row(item, c, y, (int16_t(*)[64])row[0], error);
            if (r)
                return r;
        }
    return 0;
}

/* Prepares to write a file; what cannot be written fails with `unwritable`. */
static int prepare_writer(struct hr__transcoder *t, int unwritable, struct hr_error *error)
{
    if (!t->file && !(t->file = hr__alloc(HR__TAG_CODEC, 1, FIRST_BYTES)))
        return hr__fail(error, -ENOMEM, "out of memory for a file");
    t->capacity = t->capacity ? t->capacity : FIRST_BYTES;
    t->library.error = error;
    t->unwritable = unwritable;
    t->writer.err = jpeg_std_error(&t->writer_errors);
    t->writer_errors.error_exit = writer_failed;
    t->writer_errors.emit_message = writer_warned;
    t->writer.client_data = t;
    t->destination = (struct jpeg_destination_mgr){
        .init_destination = destination_begin,
        .empty_output_buffer = destination_grow,
        .term_destination = destination_end,
    };
    return 0;
}

/* Leaves with longjmp on errors. */
static void create_writer(struct hr__transcoder *t)
{
    jpeg_create_compress(&t->writer);
    t->writer.dest = &t->destination;
}

int hr__transcode_jpeg(struct hr__transcoder *t, const struct hr__coefficients *item,
                       struct hr__transcoded *out, struct hr_error *error)
{
    jvirt_barray_ptr arrays[3];
    j_compress_ptr writer = &t->writer;
    int r = prepare_writer(t, -EBADMSG, error);
    if (r)
        return r;
    if (setjmp(t->library.escape)) {
        jpeg_destroy_compress(writer);
        return t->library.code;
    }
    create_writer(t);
    describe(writer, item);
    request_arrays(writer, item, arrays);
    jpeg_write_coefficients(writer, arrays);
    t->library.code = fill_arrays(writer, item, arrays, error);
    if (!t->library.code) {
        write_orientation(writer, item->header.orientation);
        jpeg_finish_compress(writer);
        *out = (struct hr__transcoded){t->file, t->file_bytes};
    }
    jpeg_destroy_compress(writer);
    return t->library.code;
}

/* Writes the file that libjpeg has read the header of as a baseline file. */
static int write_baseline(struct hr__transcoder *t)
{
    struct jpeg_decompress_struct *cinfo = &t->library.cinfo;
    j_compress_ptr writer = &t->writer;
    jvirt_barray_ptr *arrays = jpeg_read_coefficients(cinfo);
    if (hr__jpeg_is_smoothed(cinfo))
        return hr__fail(t->library.error, -ENOTSUP,
                        "it is a progressive JPEG that was not saved whole, which decoders smooth");
    create_writer(t);
    jpeg_copy_critical_parameters(cinfo, writer);
    writer->optimize_coding = TRUE;
    writer->write_JFIF_header = writer->write_Adobe_marker = FALSE; /* they are copied */
    jpeg_write_coefficients(writer, arrays);
    for (jpeg_saved_marker_ptr m = cinfo->marker_list; m; m = m->next)
        jpeg_write_marker(writer, m->marker, m->data, m->data_length);
    jpeg_finish_compress(writer);
    return 0;
}

int hr__jpeg_to_baseline(struct hr__transcoder *t, const struct hr__encoded *in, size_t limit,
                         struct hr__transcoded *out, struct hr_error *error)
{
    struct jpeg_decompress_struct *cinfo = &t->library.cinfo;
    int r = prepare_writer(t, -ENOTSUP, error);
    if (r)
        return r;
    t->library.keep_metadata = 1;
    if (!setjmp(t->library.escape)) {
        hr__jpeg_read_header(&t->library, in);
        t->library.code = 0;
        *out = (struct hr__transcoded){in->bytes, in->length};
        if (cinfo->progressive_mode) {
            t->library.code = write_baseline(t);
            *out = (struct hr__transcoded){t->file, t->file_bytes};
        }
    }
    t->library.keep_metadata = 0;
    jpeg_destroy_compress(&t->writer);
    jpeg_destroy_decompress(cinfo);
    if (!t->library.code && limit && out->length > limit)
        return hr__fail(error, -ENOSPC, "as a baseline JPEG it takes %zu bytes, more than %zu",
                        out->length, limit);
    return t->library.code;
}
