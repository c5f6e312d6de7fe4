/*
 * See tensor.h. Only bytes limit a tensor: a waveform of a minute is one row of more than a million
 * elements, and an image may be as long and narrow.
 */
#include "recipe/tensor.h"

#include <string.h>

static void set_shape(struct hr_tensor_spec *spec, size_t dims, const int64_t *shape)
{
    spec->bytes = hr_dtype_bytes(spec->dtype);
    spec->dims = dims;
    for (size_t i = 0; i < HR_TENSOR_MAX_DIMS; i++) {
        spec->shape[i] = i < dims ? shape[i] : 0;
        spec->bytes *= i < dims ? (size_t)shape[i] : 1;
    }
}

void hr__tensor_image(struct hr_tensor_spec *spec, int channels, int height, int width)
{
    int64_t planes[3] = {channels, height, width}, pixels[3] = {height, width, channels};
    spec->channels = channels;
    spec->height = height;
    spec->width = width;
    set_shape(spec, 3, spec->layout == HR_NHWC ? pixels : planes);
}

void hr__tensor_matrix(struct hr_tensor_spec *spec, int rows, int columns)
{
    int64_t shape[2] = {rows, columns};
    spec->channels = 1;
    spec->height = rows;
    spec->width = columns;
    set_shape(spec, 2, shape);
}

/* Returns which number of an image's shape is its height; its width is the next one. */
static size_t height_at(const struct hr_tensor_spec *spec)
{
    return spec->layout == HR_NHWC ? 0 : 1;
}

void hr__tensor_widen(const struct hr_tensor_spec *spec, int width, int height, int64_t *extents)
{
    size_t at = height_at(spec);
    extents[at] = extents[at] > height ? extents[at] : height;
    extents[at + 1] = extents[at + 1] > width ? extents[at + 1] : width;
}

void hr__tensor_clear(const struct hr_tensor_spec *spec, void *out, int width, int height,
                      int64_t *extents)
{
    size_t at = height_at(spec), is_planar = at;
    size_t used_height = (size_t)extents[at], used_width = (size_t)extents[at + 1];
    size_t pixel = hr_dtype_bytes(spec->dtype) * (is_planar ? 1 : (size_t)spec->channels);
    size_t row = pixel * (size_t)spec->width, kept = pixel * (size_t)width;
    for (int c = 0; c < (is_planar ? spec->channels : 1); c++) {
        char *plane = (char *)out + (size_t)c * row * (size_t)spec->height;
        for (size_t y = 0; y < used_height; y++) {
            size_t from = y < (size_t)height ? kept : 0;
            if (used_width * pixel > from)
                memset(plane + y * row + from, 0, used_width * pixel - from);
        }
    }
    for (size_t i = 0; i < spec->dims; i++)
        extents[i] = i == at ? height : i == at + 1 ? width : spec->shape[i];
}

int hr__tensor_equal(const struct hr_tensor_spec *a, const struct hr_tensor_spec *b)
{
    return a->dtype == b->dtype && a->layout == b->layout && a->channels == b->channels &&
           a->height == b->height && a->width == b->width && a->bytes == b->bytes &&
           a->dims == b->dims && !memcmp(a->shape, b->shape, sizeof a->shape);
}

/* Multiplies *product by a side. Returns 0 if the side is not positive, or the product too large.
 */
static int multiply(uint64_t *product, int64_t side)
{
    if (side < 1 || (uint64_t)side > HR__TENSOR_MAX_BYTES / *product)
        return 0;
    *product *= (uint64_t)side;
    return 1;
}

const char *hr__tensor_wrong(const struct hr_tensor_spec *spec)
{
    uint64_t image, shaped;
    if ((unsigned)spec->dtype > HR_FLOAT32)
        return "dtype";
    if ((unsigned)spec->layout > HR_NHWC)
        return "layout";
    image = shaped = hr_dtype_bytes(spec->dtype);
    if (!multiply(&image, spec->channels))
        return "channels";
    if (!multiply(&image, spec->height) || !multiply(&image, spec->width))
        return "height and width";
    if (spec->bytes != image)
        return "bytes of channels, height and width";
    if (spec->dims > HR_TENSOR_MAX_DIMS)
        return "dims";
    for (size_t i = 0; i < HR_TENSOR_MAX_DIMS; i++)
        if (i < spec->dims ? !multiply(&shaped, spec->shape[i]) : spec->shape[i] != 0)
            return "shape";
    return spec->dims && shaped != image ? "bytes of the shape" : NULL;
}
