/*
 * Any bytes as input of the converter. An item made from them decodes, whole and by region, to the
 * pixels of the file; the restored file has the same pixels (an indexed file that was not
 * progressive is the very file), and a restored JPEG gives the same item again. The last nine bytes
 * choose the form and the region. Bytes that are an item are restored. The converter runs with
 * `trust`, so that wrong items are found here; for one input in eight it verifies, and must give
 * the same result.
 */
#include "codec/codec.h"
#include "codec/item.h"

#include <headrace/form.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Larger images only cost time. */
#define MOST_PIXELS (1 << 16)

enum { CHOICE = 9 };

struct convert_tools {
    struct hr_converter *trusting, *verifying;
    struct hr__decoder *decoder;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int pick(const uint8_t *byte, int low, int high)
{
    return low + (byte[0] << 8 | byte[1]) % (high - low + 1);
}

static void require(int truth)
{
    if (!truth)
        abort();
}

static struct convert_tools *make_tools(void)
{
    static struct convert_tools tools;
    struct hr_converter_options options;
    if (tools.decoder)
        return &tools;
    hr_converter_options_default(&options);
    options.max_pixels = MOST_PIXELS;
    require(!hr_converter_create(&tools.verifying, &options, NULL));
    options.trust = 1;
    require(!hr_converter_create(&tools.trusting, &options, NULL));
    require(!hr__decoder_create(&tools.decoder, NULL));
    return &tools;
}

/* The pixels of a region of the image, three tight planes; NULL: not decodable. */
static uint8_t *pixels_of(struct hr__decoder *decoder, const void *bytes, size_t length,
                          const struct hr_region *region)
{
    struct hr_image_info info;
    struct hr__planar out;
    if (hr__decoder_info(decoder, bytes, length, &info, NULL) ||
        hr__decoder_region(decoder, bytes, length, &info, region, &out, NULL))
        return NULL;
    uint8_t *pixels = malloc(3 * (size_t)region->width * (size_t)region->height), *p = pixels;
    require(pixels != NULL);
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < region->height; y++, p += region->width)
            memcpy(p, out.plane[c] + y * out.stride, (size_t)region->width);
    return pixels;
}

/* Pixels of the region are these, in the item or file. */
static void compare(struct hr__decoder *decoder, const struct hr_item *item,
                    const struct hr_region *region, const uint8_t *expected)
{
    uint8_t *own = pixels_of(decoder, item->bytes, item->length, region);
    require(own && expected);
    require(!memcmp(own, expected, 3 * (size_t)region->width * (size_t)region->height));
    free(own);
}

static void *copy_of(const struct hr_item *item)
{
    void *copy = malloc(item->length);
    require(copy != NULL);
    memcpy(copy, item->bytes, item->length);
    return copy;
}

static void follow_item(struct convert_tools *tools, const struct hr_item *file,
                        struct hr_item item, const uint8_t *choice)
{
    struct hr_image_info info;
    struct hr_item restored, again;
    require(!hr__decoder_info(tools->decoder, file->bytes, file->length, &info, NULL));
    struct hr_region whole = {0, 0, info.width, info.height}, r;
    r.width = pick(choice, 1, info.width);
    r.height = pick(choice + 2, 1, info.height);
    r.x = pick(choice + 4, 0, info.width - r.width);
    r.y = pick(choice + 6, 0, info.height - r.height);
    uint8_t *expected = pixels_of(tools->decoder, file->bytes, file->length, &whole);
    uint8_t *part = pixels_of(tools->decoder, file->bytes, file->length, &r);
    void *kept = copy_of(&item);
    item.bytes = kept;
    compare(tools->decoder, &item, &whole, expected);
    compare(tools->decoder, &item, &r, part);
    require(!hr_converter_restore(tools->trusting, item.bytes, item.length, &restored, NULL));
    require(restored.form == HR_FORM_ENCODED);
    compare(tools->decoder, &restored, &whole, expected);
    int rewritten = hr__item_is_rewritten(kept, item.length);
    if (item.form == HR_FORM_INDEXED && !rewritten)
        require(restored.length == file->length &&
                !memcmp(restored.bytes, file->bytes, file->length));
    if (item.form == HR_FORM_COEFFICIENTS) {
        void *jpeg = copy_of(&restored);
        require(!hr_converter_run(tools->trusting, item.form, jpeg, restored.length, &again, NULL));
        require(again.length == item.length && !memcmp(again.bytes, kept, item.length));
        free(jpeg);
    }
    free(kept);
    free(expected);
    free(part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct convert_tools *tools = make_tools();
    struct hr_form_estimate estimate = {.size = sizeof estimate};
    struct hr_error error = {0};
    struct hr_item item = {0};
    if (size < CHOICE)
        return 0;
    const uint8_t *choice = data + size - CHOICE;
    struct hr_item file = {data, size - CHOICE, hr_form_of(data, size - CHOICE)};
    enum hr_form form = (enum hr_form)(HR_FORM_ENCODED + 1 + choice[0] % (HR_FORMS - 1));
    struct hr_converter *converter = choice[0] < 32 ? tools->verifying : tools->trusting;
    if (file.form != HR_FORM_ENCODED) {
        int r = hr_converter_restore(converter, file.bytes, file.length, &item, &error);
        require(r ? error.code == r && error.message[0] : item.form == HR_FORM_ENCODED);
    }
    int r = hr_converter_run(converter, form, file.bytes, file.length, &item, &error);
    if (r) {
        require(r == error.code && error.message[0]);
        require(r == -ENOTSUP || r == -EBADMSG || r == -EFBIG);
        /* What the header tells is known beforehand; that pixels differ never happens. */
        require(!strstr(error.message, "would differ"));
        return 0;
    }
    require(file.form == HR_FORM_ENCODED && item.form == form);
    require(!hr_converter_estimate(converter, form, file.bytes, file.length, &estimate, NULL));
    int is_exact = form == HR_FORM_PLANES ||
                   (form == HR_FORM_INDEXED && !hr__item_is_rewritten(item.bytes, item.length));
    require(estimate.possible && (!is_exact || estimate.bytes == item.length));
    follow_item(tools, &file, item, choice + 1);
    return 0;
}
