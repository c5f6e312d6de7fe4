/* Splits and joins images and their masks (pair.h). */
#include "dataset/pair.h"

#include "base/memory.h"
#include "dataset/dataset.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* Loads of vectors may go past the end. */
#define SLACK 64

#define MARK UINT64_C(0x6b73616d2b676d69) /* "img+mask" */

struct pair_tail {
    uint64_t mask_bytes, mark;
};

_Static_assert(sizeof(struct pair_tail) == HR__PAIR_TAIL, "the tail is stored as it is");

int hr__pair_split(struct hr__pair *out, const struct hr_dataset *dataset, const void *bytes,
                   size_t length)
{
    struct pair_tail tail;
    *out = (struct hr__pair){.image = {bytes, length}};
    if (!dataset->masks)
        return 0;
    if (length < sizeof tail)
        return -EBADMSG;
    size_t room = length - sizeof tail;
    memcpy(&tail, (const char *)bytes + room, sizeof tail);
    uint64_t mask_bytes = le64toh(tail.mask_bytes);
    if (le64toh(tail.mark) != MARK || mask_bytes > room)
        return -EBADMSG;
    out->image.length = room - (size_t)mask_bytes;
    out->mask = (struct hr_item_part){(const char *)bytes + out->image.length, (size_t)mask_bytes};
    return 0;
}

void *hr__pair_join(const struct hr_item_part *parts, int count, const struct hr_item_part *mask,
                    size_t *length)
{
    const struct pair_tail tail = {htole64(mask->length), htole64(MARK)};
    *length = mask->bytes ? mask->length + sizeof tail : 0;
    for (int i = 0; i < count; i++)
        *length += parts[i].length;
    char *bytes = hr__alloc_aligned(HR__TAG_LOADER, *length, SLACK), *to = bytes;
    if (!bytes)
        return NULL;
    memset(bytes + *length, 0, SLACK);
    for (int i = 0; i < count; to += parts[i++].length)
        if (parts[i].length)
            memcpy(to, parts[i].bytes, parts[i].length);
    if (!mask->bytes)
        return bytes;
    memcpy(to, mask->bytes, mask->length);
    memcpy(to + mask->length, &tail, sizeof tail);
    return bytes;
}
