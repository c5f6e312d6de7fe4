/*
 * Pairs of image and mask as caches and hosts give them back: any bytes are a pair or refused, and
 * what is a pair is the one that its parts make.
 */
#include "base/memory.h"
#include "dataset/dataset.h"
#include "dataset/pair.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hr_dataset masks;
    const struct hr_dataset with_masks = {.masks = &masks};
    struct hr__pair pair;
    size_t length;
    if (hr__pair_split(&pair, &with_masks, data, size)) {
        /* The first bytes and the last: a pair of their own. */
        const struct hr_item_part image = {data, size / 3},
                                  mask = {data + size / 3, size - size / 3};
        uint8_t *bytes = hr__pair_join(&image, 1, &mask, &length);
        if (!bytes)
            return 0;
        if (hr__pair_split(&pair, &with_masks, bytes, length) ||
            pair.image.length != image.length || pair.mask.length != mask.length)
            abort();
        hr__free(bytes);
        return 0;
    }
    uint8_t *again = hr__pair_join(&pair.image, 1, &pair.mask, &length);
    if (!again)
        return 0;
    if (length != size || memcmp(again, data, size))
        abort();
    hr__free(again);
    return 0;
}
