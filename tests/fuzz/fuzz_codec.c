/*
 * Any bytes as input of the decoder. It must not crash, and an image that decodes as a whole must
 * decode by region to the same pixels; the last eight bytes of the input choose the region. Then
 * the same with damaged images accepted, and with the indices of PNG in one plane. The decoder is
 * reused from input to input, as in a worker.
 */
#include "region.h"

/* Larger images only cost time. */
#define MOST_PIXELS (1 << 18)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(struct hr__decoder *decoder, const uint8_t *data, size_t size,
                   enum hr_damaged damaged, int planes)
{
    struct hr_image_info info;
    struct hr_error error;
    struct hr__planar out;
    hr__decoder_accept(decoder, damaged);
    if (hr__decoder_info(decoder, data, size, &info, &error)) {
        if (error.code >= 0 || !memchr(error.message, 0, sizeof error.message))
            abort();
        return;
    }
    if (info.width < 1 || info.height < 1 || info.orientation < 1 || info.orientation > 8 ||
        info.channels < 1 || info.channels > 4)
        abort();
    if ((int64_t)info.width * info.height > MOST_PIXELS || size < FUZZ_REGION_BYTES)
        return;
    struct hr_region whole = {0, 0, info.width, info.height};
    struct hr_region r = pick_region(data + size - FUZZ_REGION_BYTES, info.width, info.height);
    if (hr__decoder_region(decoder, data, size, &info, &whole, &out, &error)) {
        /* The region may lie before the damage; it must only be safe. */
        (void)!hr__decoder_region(decoder, data, size, &info, &r, &out, &error);
        return;
    }
    uint8_t *kept = malloc(3 * (size_t)r.width * (size_t)r.height), *p = kept;
    if (!kept)
        abort();
    for (int c = 0; c < planes; c++)
        for (int y = 0; y < r.height; y++, p += r.width)
            memcpy(p, out.plane[c] + (r.y + y) * out.stride + r.x, (size_t)r.width);
    if (hr__decoder_region(decoder, data, size, &info, &r, &out, &error))
        abort();
    p = kept;
    for (int c = 0; c < planes; c++)
        for (int y = 0; y < r.height; y++, p += r.width)
            if (memcmp(p, out.plane[c] + y * out.stride, (size_t)r.width))
                abort();
    free(kept);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hr__decoder *decoder;
    if (!decoder && hr__decoder_create(&decoder, NULL))
        abort();
    decode(decoder, data, size, HR_DAMAGED_REFUSE, 3);
    decode(decoder, data, size, HR_DAMAGED_ACCEPT, 3);
    static struct hr__decoder *masks;
    if (!masks && hr__decoder_create(&masks, NULL))
        abort();
    hr__decoder_want_indices(masks, 1);
    if (size > 1 && data[1] == 'P') /* others ignore it */
        decode(masks, data, size, HR_DAMAGED_REFUSE, 1);
    return 0;
}
