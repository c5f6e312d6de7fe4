/*
 * Any bytes as input of two decoders: one with our own decoder of baseline JPEG, one with
 * libjpeg-turbo alone. They agree on everything: the refused images and the messages, and the
 * pixels of the whole image and of a region, halved or not, which the last eight bytes choose.
 */
#include "codec/codec.h"

#include <stdlib.h>
#include <string.h>

/* Larger images only cost time. */
#define MOST_PIXELS (1 << 18)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

static int pick(const uint8_t *byte, int low, int high)
{
    return low + (byte[0] << 8 | byte[1]) % (high - low + 1);
}

static void compare(struct hr__decoder *const decoder[2], const uint8_t *data, size_t size,
                    const struct hr_image_info *info, const struct hr_region *region)
{
    struct hr__planar out[2];
    struct hr_error error[2];
    int r[2];
    for (int i = 0; i < 2; i++) {
        memset(&error[i], 0, sizeof error[i]);
        r[i] = hr__decoder_region(decoder[i], data, size, info, region, &out[i], &error[i]);
    }
    require(r[0] == r[1] && !strcmp(error[0].message, error[1].message));
    for (int c = 0; c < 3 && !r[0]; c++)
        for (int y = 0; y < region->height; y++)
            require(!memcmp(out[0].plane[c] + y * out[0].stride,
                            out[1].plane[c] + y * out[1].stride, (size_t)region->width));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hr__decoder *decoder[2];
    struct hr_image_info info;
    if (!decoder[0]) {
        require(!hr__decoder_create(&decoder[0], NULL));
        require(!hr__decoder_create(&decoder[1], NULL));
        hr__decoder_use_library(decoder[1]);
    }
    if (size < 8 || hr__decoder_info(decoder[0], data, size, &info, NULL) ||
        info.format != HR_IMAGE_JPEG || (int64_t)info.width * info.height > MOST_PIXELS)
        return 0;
    const uint8_t *choice = data + size - 8;
    int halvings = choice[0] >> 6;
    for (int i = 0; i < 2; i++)
        hr__decoder_halve(decoder[i], halvings);
    int width = ((info.width - 1) >> halvings) + 1, height = ((info.height - 1) >> halvings) + 1;
    struct hr_region whole = {0, 0, width, height}, r;
    r.width = pick(choice, 1, width);
    r.height = pick(choice + 2, 1, height);
    r.x = pick(choice + 4, 0, width - r.width);
    r.y = pick(choice + 6, 0, height - r.height);
    compare(decoder, data, size, &info, &whole);
    compare(decoder, data, size, &info, &r);
    return 0;
}
