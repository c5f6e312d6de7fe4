/*
 * Samples with a mask, as they are kept: the image's item, the mask's file, and a tail with the
 * mask's length. So caches and hosts keep both as one item, which is found, admitted, moved and
 * evicted as a whole; and forms convert the image in it.
 *
 *    0 the image, in any form
 *      the mask, as it is stored
 *      the tail, little-endian: length of the mask, 8 bytes; a mark, 8 bytes
 *
 * Nothing in the bytes tells a pair from a file: the keys of samples with masks do (stamp.h).
 */
#ifndef HR_DATASET_PAIR_H
#define HR_DATASET_PAIR_H

#include <headrace/dataset.h>
#include <headrace/form.h>

#define HR__PAIR_TAIL 16

/* The mask's bytes are NULL if there is none. */
struct hr__pair {
    struct hr_item_part image, mask;
};

/* Splits what was kept for a sample of the dataset; without masks all of it is the image. Returns
 * 0, or -EBADMSG if it is no pair. Pure. */
int hr__pair_split(struct hr__pair *out, const struct hr_dataset *dataset, const void *bytes,
                   size_t length);

/* Makes one item of the `count` parts of an image's and its mask; without a mask the parts alone.
 * Returns bytes that the caller frees with hr__free, aligned to 64, and their length; NULL: out of
 * memory. */
void *hr__pair_join(const struct hr_item_part *parts, int count, const struct hr_item_part *mask,
                    size_t *length);

#endif
