/*
 * Items of the form `indexed`. An input is an item, or a file that one is made of, and CHOICE
 * bytes: what to damage, and the region to decode. The item lies in a block of exactly its size.
 *
 * Streams that guess wherever they skip make the same index. An item that is not damaged gives
 * libjpeg-turbo's pixels of its file by its index alone, and is the one that the decoder of files
 * makes in passing. With a wrong DC coefficient in one point, a region has those pixels or is
 * refused by the index, and the decoder gives them in any case; only restart markers may hide it,
 * and then nothing but memory safety is asked, as for any other damage and for items of unknown
 * origin. Cut items are refused.
 */
#include "region.h"

#include "codec/indexed.h"
#include "codec/jpeg_library.h"

/* Larger images only cost time. */
#define MOST_PIXELS (1 << 16)

/* Bytes: the kind of damage, a place, a mask, the region. */
enum { CHOICE = 1 + 4 + 8 + FUZZ_REGION_BYTES };

enum damage { DAMAGE_NONE, DAMAGE_LEVEL, DAMAGE_POINT, DAMAGE_HEADER, DAMAGE_CUT, DAMAGES };

struct indexed_tools {
    struct hr_converter *converter;
    struct hr__decoder *files, *items, *makers; /* libjpeg-turbo alone; of items; makes items */
    struct hr__baseline *baseline;
    struct hr__jpeg jpeg;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct indexed_tools *tools(void)
{
    static struct indexed_tools t;
    if (t.converter)
        return &t;
    struct hr_converter_options options;
    hr_converter_options_default(&options);
    options.max_pixels = MOST_PIXELS;
    require(!hr_converter_create(&t.converter, &options, NULL));
    require(!hr__decoder_create(&t.files, NULL) && !hr__decoder_create(&t.items, NULL) &&
            !hr__decoder_create(&t.makers, NULL) && !hr__baseline_create(&t.baseline, NULL));
    hr__decoder_use_library(t.files);
    hr__decoder_make_items(t.makers, 1);
    hr__jpeg_init(&t.jpeg);
    return &t;
}

/* Decodes by the index alone into planes that the caller frees. Returns 0 if it does not fit. */
static int decode_by_index(struct indexed_tools *t, const struct hr__indexed *item,
                           const struct hr_region *r, struct hr__planar *out)
{
    struct hr__decode_job job = {.in = item->file, .region = *r};
    size_t bytes;
    int done = 0;
    out->stride = (r->width + 63) & ~63;
    bytes = (size_t)out->stride * (size_t)r->height;
    out->plane[0] = calloc(1, 3 * bytes);
    require(out->plane[0] != NULL);
    out->plane[1] = out->plane[0] + bytes;
    out->plane[2] = out->plane[1] + bytes;
    job.out = *out;
    if (setjmp(t->jpeg.escape)) {
        jpeg_destroy_decompress(&t->jpeg.cinfo);
        return 0;
    }
    hr__jpeg_read_header(&t->jpeg, &item->file);
    if (r->x + r->width <= (int)t->jpeg.cinfo.image_width &&
        r->y + r->height <= (int)t->jpeg.cinfo.image_height)
        require(
            !hr__baseline_indexed(t->baseline, &t->jpeg.cinfo, &job, &item->index, &done, NULL));
    jpeg_destroy_decompress(&t->jpeg.cinfo);
    return done;
}

/* Decodes a region of an item of any content by its index, and through the decoder. With `file`,
 * the pixels that either gives are those of libjpeg-turbo for that file; returns which give them.
 */
enum { BY_INDEX = 1, BY_DECODER = 2 };

static int decode_item(struct indexed_tools *t, const struct hr__encoded *in,
                       const struct hr__encoded *file, const struct hr_region *r)
{
    struct hr_image_info info;
    struct hr__indexed item;
    struct hr__planar want, got, indexed = {.stride = 0};
    struct hr_error error = {0};
    int given = 0;
    if (file) {
        require(!hr__decoder_info(t->files, file->bytes, file->length, &info, NULL));
        require(!hr__decoder_region(t->files, file->bytes, file->length, &info, r, &want, NULL));
    }
    if (hr__indexed_open(&item, in->bytes, in->length, &error)) {
        require(error.code < 0 && memchr(error.message, 0, sizeof error.message));
    } else if (decode_by_index(t, &item, r, &indexed)) {
        if (file)
            require_same(&want, &indexed, r);
        given |= BY_INDEX;
    }
    free(indexed.plane[0]);
    if (!hr__decoder_info(t->items, in->bytes, in->length, &info, &error) &&
        (int64_t)info.width * info.height <= MOST_PIXELS && r->x + r->width <= info.width &&
        r->y + r->height <= info.height &&
        !hr__decoder_region(t->items, in->bytes, in->length, &info, r, &got, &error)) {
        if (file)
            require_same(&want, &got, r);
        given |= BY_DECODER;
    }
    return given;
}

/* The decoder of files makes no other item, whatever the region. */
static void check_made(struct indexed_tools *t, const uint8_t *data, size_t size,
                       const struct hr_item *item, const struct hr_region *r)
{
    struct hr_image_info info;
    struct hr__planar out;
    size_t bytes;
    if (hr__decoder_info(t->makers, data, size, &info, NULL) ||
        hr__decoder_region(t->makers, data, size, &info, r, &out, NULL))
        return;
    const void *made = hr__decoder_item(t->makers, &bytes);
    require(!made || (item && bytes == item->length && !memcmp(made, item->bytes, bytes)));
}

/* Streams that guess wherever they can make no other points (mcu_skip.h). */
static void check_guesses(struct indexed_tools *t, const struct hr__indexed *item)
{
    struct hr__scan_grid grid;
    uint8_t *points = malloc(item->index.count * HR__POINT_BYTES);
    require(points != NULL);
    hr__baseline_set_guess(t->baseline, 0);
    if (setjmp(t->jpeg.escape))
        abort();
    hr__jpeg_read_header(&t->jpeg, &item->file);
    require(hr__baseline_grid(t->baseline, &t->jpeg.cinfo, &grid));
    require(grid.points == item->index.count);
    require(hr__baseline_points(t->baseline, &t->jpeg.cinfo, points));
    require(!memcmp(points, item->index.points, grid.points * HR__POINT_BYTES));
    jpeg_destroy_decompress(&t->jpeg.cinfo);
    free(points);
}

/* Damages the item as chosen. Returns non-zero if pixels must stay what they are. */
static int damage(uint8_t *item, size_t length, const uint8_t *choice, int restarts)
{
    struct hr__indexed opened;
    uint32_t place;
    uint64_t mask;
    memcpy(&place, choice + 1, sizeof place);
    memcpy(&mask, choice + 5, sizeof mask);
    require(!hr__indexed_open(&opened, item, length, NULL));
    uint8_t *point =
        item + (opened.index.points - item) + place % opened.index.count * HR__POINT_BYTES;
    size_t head = (size_t)(opened.index.points - item);
    switch (choice[0] % DAMAGES) {
    case DAMAGE_NONE:
    case DAMAGE_CUT:
        return 1;
    case DAMAGE_LEVEL:
        mask &= ~((UINT64_C(1) << (HR__POINT_BYTE_BITS + 3)) - 1);
        break;
    case DAMAGE_POINT:
        restarts = 1;
        break;
    case DAMAGE_HEADER:
        item[place % head] ^= (uint8_t)mask;
        return 0;
    }
    for (size_t i = 0; i < HR__POINT_BYTES; i++)
        point[i] ^= (uint8_t)(mask >> 8 * i);
    return !restarts;
}

static void try_item(struct indexed_tools *t, const struct hr_item *made, const uint8_t *choice)
{
    struct hr__indexed opened;
    struct hr__item_header header;
    uint8_t *item = malloc(made->length), *file;
    require(item != NULL);
    memcpy(item, made->bytes, made->length);
    require(!hr__indexed_open(&opened, item, made->length, NULL));
    header = opened.header;
    check_guesses(t, &opened);
    struct hr__encoded in = {.bytes = item, .length = made->length}, of_file = opened.file;
    require((file = malloc(of_file.length)) != NULL);
    memcpy(file, of_file.bytes, of_file.length);
    of_file.bytes = file;
    struct hr_region r =
        pick_region(choice + CHOICE - FUZZ_REGION_BYTES, (int)header.width, (int)header.height);
    int restarts = 0;
    for (size_t i = 0; i + 1 < of_file.length; i++) /* DRI, or what looks like it */
        restarts |= file[i] == 0xFF && file[i + 1] == 0xDD;
    int exact = damage(item, in.length, choice, restarts);
    if (choice[0] % DAMAGES == DAMAGE_CUT) {
        in.length = made->length * choice[1] / 256;
        item = realloc(item, in.length ? in.length : 1);
        require(item != NULL);
        in.bytes = item;
    }
    int given = decode_item(t, &in, exact ? &of_file : NULL, &r);
    switch (choice[0] % DAMAGES) {
    case DAMAGE_NONE:
        require(given & BY_DECODER);
        break;
    case DAMAGE_LEVEL:
        require(!exact || given & BY_DECODER);
        break;
    case DAMAGE_CUT:
        require(!given);
        break;
    }
    free(item);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct indexed_tools *t = tools();
    struct hr_image_info info;
    struct hr_item item;
    if (size < CHOICE)
        return 0;
    const uint8_t *choice = data + size - CHOICE;
    if (hr__decoder_info(t->files, data, size, &info, NULL) ||
        (int64_t)info.width * info.height > MOST_PIXELS)
        return 0;
    struct hr_region r = pick_region(choice + CHOICE - FUZZ_REGION_BYTES, info.width, info.height);
    if (info.format == HR_IMAGE_INDEXED) {
        uint8_t *copy = malloc(size);
        require(copy != NULL);
        memcpy(copy, data, size);
        decode_item(t, &(struct hr__encoded){.bytes = copy, .length = size}, NULL, &r);
        free(copy);
        return 0;
    }
    int is_made = !hr_converter_run(t->converter, HR_FORM_INDEXED, data, size, &item, NULL);
    check_made(t, data, size, is_made ? &item : NULL, &r);
    if (is_made)
        try_item(t, &item, choice);
    return 0;
}
