/* Reads the raw output of libjpeg; see components.h. */
#include "components.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

struct jpeg_spec sampled_spec(int sampling, int width, int height, uint64_t seed)
{
    struct jpeg_spec spec = {.width = width, .height = height, .seed = seed};
    static const int qualities[] = {100, 98, 90, 75, 30, 5};
    spec.components = sampling ? 3 : 1;
    spec.quality = qualities[seed % 6];
    for (int c = 0; c < spec.components; c++) {
        spec.h[c] = !c && sampling ? sampling / 100 : 1;
        spec.v[c] = !c && sampling ? sampling / 10 % 10 : 1;
    }
    return spec;
}

/* Copies those of `count` rows of a component, beginning with `first`, that belong to the image. */
static void keep_rows(struct components *out, int c, JSAMPARRAY rows, int first, int count)
{
    for (int y = first; y < first + count && y < out->height[c]; y++)
        memcpy(out->plane[c] + (size_t)y * (size_t)out->width[c], rows[y - first],
               (size_t)out->width[c]);
}

void components_of(const struct bytes *file, struct components *out)
{
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    JSAMPROW rows[3][4 * DCTSIZE];
    JSAMPARRAY planes[3];
    memset(out, 0, sizeof *out);
    cinfo.err = jpeg_std_error(&errors); /* ends the process on errors */
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, file->data, file->length);
    jpeg_read_header(&cinfo, TRUE);
    cinfo.raw_data_out = TRUE;
    jpeg_start_decompress(&cinfo);
    out->shape.width = cinfo.image_width;
    out->shape.height = cinfo.image_height;
    out->shape.components = (uint8_t)cinfo.num_components;
    out->shape.rgb = cinfo.jpeg_color_space == JCS_RGB;
    for (int c = 0; c < cinfo.num_components; c++) {
        const jpeg_component_info *info = &cinfo.comp_info[c];
        size_t padded = (info->width_in_blocks + 4) * 8;
        out->shape.across[c] = (uint8_t)(cinfo.max_h_samp_factor / info->h_samp_factor);
        out->shape.down[c] = (uint8_t)(cinfo.max_v_samp_factor / info->v_samp_factor);
        out->width[c] = (int)info->downsampled_width;
        out->height[c] = (int)info->downsampled_height;
        out->plane[c] = malloc((size_t)out->width[c] * (size_t)out->height[c]);
        for (int i = 0; i < 4 * DCTSIZE; i++)
            rows[c][i] = malloc(padded);
        planes[c] = rows[c];
    }
    int lines = cinfo.max_v_samp_factor * 8;
    for (int y = 0; y < (int)cinfo.output_height; y += lines) {
        if (!jpeg_read_raw_data(&cinfo, planes, (JDIMENSION)lines))
            abort();
        for (int c = 0; c < cinfo.num_components; c++) {
            int count = cinfo.comp_info[c].v_samp_factor * 8;
            keep_rows(out, c, rows[c], y / lines * count, count);
        }
    }
    for (int c = 0; c < cinfo.num_components; c++)
        for (int i = 0; i < 4 * DCTSIZE; i++)
            free(rows[c][i]);
    jpeg_finish_decompress(&cinfo);
    jpeg_destroy_decompress(&cinfo);
}

void components_free(struct components *components)
{
    for (int c = 0; c < 3; c++)
        free(components->plane[c]);
}

struct reading {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    jvirt_barray_ptr *arrays;
};

static void read_coefficients(struct reading *r, const struct bytes *file)
{
    r->cinfo.err = jpeg_std_error(&r->errors);
    jpeg_create_decompress(&r->cinfo);
    jpeg_mem_src(&r->cinfo, file->data, file->length);
    jpeg_read_header(&r->cinfo, TRUE);
    r->arrays = jpeg_read_coefficients(&r->cinfo);
}

static int same_component(struct reading *a, struct reading *b, int c)
{
    const jpeg_component_info *x = &a->cinfo.comp_info[c], *y = &b->cinfo.comp_info[c];
    if (x->width_in_blocks != y->width_in_blocks || x->height_in_blocks != y->height_in_blocks ||
        memcmp(x->quant_table->quantval, y->quant_table->quantval, sizeof x->quant_table->quantval))
        return 0;
    for (JDIMENSION row = 0; row < x->height_in_blocks; row++) {
        JBLOCKARRAY p =
            a->cinfo.mem->access_virt_barray((j_common_ptr)&a->cinfo, a->arrays[c], row, 1, FALSE);
        JBLOCKARRAY q =
            b->cinfo.mem->access_virt_barray((j_common_ptr)&b->cinfo, b->arrays[c], row, 1, FALSE);
        if (memcmp(p[0], q[0], x->width_in_blocks * sizeof(JBLOCK)))
            return 0;
    }
    return 1;
}

static int same_files(const struct bytes *a, const struct bytes *b, int scans_differ)
{
    struct reading first, second;
    read_coefficients(&first, a);
    read_coefficients(&second, b);
    int same = first.cinfo.num_components == second.cinfo.num_components &&
               first.cinfo.image_width == second.cinfo.image_width &&
               first.cinfo.image_height == second.cinfo.image_height &&
               (first.cinfo.progressive_mode != second.cinfo.progressive_mode) == scans_differ &&
               first.cinfo.jpeg_color_space == second.cinfo.jpeg_color_space;
    for (int c = 0; same && c < first.cinfo.num_components; c++)
        same = same_component(&first, &second, c);
    jpeg_destroy_decompress(&first.cinfo);
    jpeg_destroy_decompress(&second.cinfo);
    return same;
}

int same_coefficients(const struct bytes *a, const struct bytes *b)
{
    return same_files(a, b, 0);
}

int same_coefficients_as_progressive(const struct bytes *a, const struct bytes *b)
{
    return same_files(a, b, 1);
}
