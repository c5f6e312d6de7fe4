/* Raw output of libjpeg, see components.h. */
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

/* Copies what is true of the rows of one component, `first` and on. */
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
    JSAMPROW rows[3][16];
    JSAMPARRAY planes[3];
    memset(out, 0, sizeof *out);
    cinfo.err = jpeg_std_error(&errors); /* which ends the process on errors */
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, file->data, file->length);
    jpeg_read_header(&cinfo, TRUE);
    cinfo.raw_data_out = TRUE;
    jpeg_start_decompress(&cinfo);
    out->shape.width = cinfo.image_width;
    out->shape.height = cinfo.image_height;
    out->shape.components = (uint8_t)cinfo.num_components;
    out->shape.h = (uint8_t)cinfo.max_h_samp_factor;
    out->shape.v = (uint8_t)cinfo.max_v_samp_factor;
    for (int c = 0; c < cinfo.num_components; c++) {
        const jpeg_component_info *info = &cinfo.comp_info[c];
        size_t padded = (info->width_in_blocks + 2) * 8;
        out->width[c] = (int)info->downsampled_width;
        out->height[c] = (int)info->downsampled_height;
        out->plane[c] = malloc((size_t)out->width[c] * (size_t)out->height[c]);
        for (int i = 0; i < 16; i++)
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
        for (int i = 0; i < 16; i++)
            free(rows[c][i]);
    jpeg_finish_decompress(&cinfo);
    jpeg_destroy_decompress(&cinfo);
}

void components_free(struct components *components)
{
    for (int c = 0; c < 3; c++)
        free(components->plane[c]);
}
