/*
 * Any bytes as an item of planes. If the first byte is odd, the header's size is corrected; with
 * its bit 1, the other fixed fields are, too, and the item is cut or extended to the size of its
 * shape, so that most inputs pass the header. An item that decodes as a whole decodes by region to
 * the same pixels. The item is in a block of exactly its size.
 */
#include "codec/codec.h"
#include "codec/planes.h"

#include <stdlib.h>
#include <string.h>

/* Larger images only cost time. */
#define MOST_PIXELS (1 << 16)

enum { CHOICE = 9 }; /* bytes: what is repaired, and the region */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int pick(const uint8_t *byte, int low, int high)
{
    return low + (byte[0] << 8 | byte[1]) % (high - low + 1);
}

static uint8_t *make_item(int repair, const uint8_t *data, size_t *size)
{
    struct hr__item_header h;
    memset(&h, 0, sizeof h);
    memcpy(&h, data, *size < sizeof h ? *size : sizeof h);
    size_t wanted = *size;
    if (repair & 2) {
        memcpy(h.magic, HR__ITEM_MAGIC, sizeof h.magic);
        h.version = HR__PLANES_VERSION;
        h.form = HR_FORM_PLANES;
        memset(h.reserved, 0, sizeof h.reserved);
        h.width &= 0x3FF;
        h.height &= 0x3FF;
        if ((uint64_t)h.width * h.height <= MOST_PIXELS && h.components <= 3 && h.h && h.v)
            wanted = (size_t)hr__planes_bytes(&h);
    }
    if (repair & 1)
        h.bytes = wanted;
    uint8_t *item = malloc(wanted ? wanted : 1);
    if (!item)
        abort();
    for (size_t i = 0; i < wanted; i++)
        item[i] = *size ? data[i % *size] : 0;
    if (repair)
        memcpy(item, &h, wanted < sizeof h ? wanted : sizeof h);
    *size = wanted;
    return item;
}

static void compare(const struct hr__planar *whole, const struct hr_region *r, uint8_t *const kept,
                    int check)
{
    uint8_t *p = kept;
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < r->height; y++, p += r->width) {
            uint8_t *row = whole->plane[c] + (r->y + y) * whole->stride + r->x;
            if (!check)
                memcpy(p, row, (size_t)r->width);
            else if (memcmp(p, row, (size_t)r->width))
                abort();
        }
}

static void decode(struct hr__decoder *decoder, const uint8_t *item, size_t length,
                   const uint8_t *choice)
{
    struct hr_image_info info;
    struct hr_error error;
    struct hr__planar out;
    if (hr__decoder_info(decoder, item, length, &info, &error)) {
        if (error.code >= 0 || !memchr(error.message, 0, sizeof error.message))
            abort();
        return;
    }
    if ((int64_t)info.width * info.height > MOST_PIXELS)
        return;
    struct hr_region whole = {0, 0, info.width, info.height}, r;
    r.width = pick(choice, 1, info.width);
    r.height = pick(choice + 2, 1, info.height);
    r.x = pick(choice + 4, 0, info.width - r.width);
    r.y = pick(choice + 6, 0, info.height - r.height);
    if (hr__decoder_region(decoder, item, length, &info, &whole, &out, &error)) {
        if (info.format == HR_IMAGE_PLANES) /* their sizes are all there is to check */
            abort();
        return;
    }
    uint8_t *kept = malloc(3 * (size_t)r.width * (size_t)r.height);
    if (!kept)
        abort();
    compare(&out, &r, kept, 0);
    if (hr__decoder_region(decoder, item, length, &info, &r, &out, &error))
        abort();
    compare(&out, &(struct hr_region){0, 0, r.width, r.height}, kept, 1);
    free(kept);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hr__decoder *decoder;
    if (!decoder && hr__decoder_create(&decoder, NULL))
        abort();
    if (size < CHOICE)
        return 0;
    size_t length = size - CHOICE;
    uint8_t *item = make_item(data[0] & 3, data + CHOICE, &length);
    decode(decoder, item, length, data + 1);
    free(item);
    return 0;
}
