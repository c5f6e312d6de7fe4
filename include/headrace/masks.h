/*
 * Masks: images of class indices that belong to a dataset's images, for semantic segmentation.
 *
 * A mask is a PNG file of a palette or of greys, of at most 8 bits, whose numbers as stored are
 * class indices. The recipe moves it with its image: crops, flips, padding, and resizes and warps
 * to the nearest pixel, with the parameters that were drawn for the image. Colours and Normalize
 * leave it as it is. What padding and warps add becomes 255, which losses are told to ignore. A
 * mask has the size of its image, after EXIF orientation where that is applied.
 *
 * A batch has the masks as the field "masks" (hr_batch_field): uint8, samples x height x width.
 */
#ifndef HEADRACE_MASKS_H
#define HEADRACE_MASKS_H

#include <headrace/base.h>
#include <headrace/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Makes a dataset of the samples of `parent`, of which sample i has the mask that is sample i of
 * `masks`. Holds references to both. A subset of the new dataset has its samples' masks. Caches, of
 * this host or several, keep a mask with its image, as one item. A mask that is missing, damaged or
 * of another size than its image makes its sample a bad one, for hr_dataset_verify, too.
 *
 * Errors: -EINVAL: the two have different numbers of samples, one of them has masks or rows
 * already, or the parent is produced; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_dataset_with_masks(struct hr_dataset **out, struct hr_dataset *parent,
                                              struct hr_dataset *masks, struct hr_error *error);

/* Returns the dataset's masks, which it owns; NULL: it has none. */
HR_API const struct hr_dataset *hr_dataset_masks(const struct hr_dataset *dataset);

#ifdef __cplusplus
}
#endif

#endif
