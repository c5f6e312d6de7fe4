/*
 * A sample's mask: a second image whose pixels are class indices.
 *
 * It goes through the plan that the sample's image was drawn, after that was run: crops, flips,
 * padding, resizes and warps, to the nearest pixel as in torchvision; nothing else changes it. All
 * but warps act on rows and columns separately, so each pixel of a result is one pixel of what was
 * before, found by its column and its row, or none. A plan without warps takes each pixel straight
 * from the file. A warp makes an image of the part that is needed after it. Only the region that
 * these pixels lie in is decoded.
 */
#ifndef HR_RECIPE_MASK_H
#define HR_RECIPE_MASK_H

#include "recipe/scratch.h"

/* What pixels that no pixel of the mask gives become: torchvision's references ignore it. */
#define HR__MASK_IGNORED 255

/* A mask to make. */
struct hr__mask {
    const void *bytes; /* a PNG file */
    size_t length;
    uint8_t *out;     /* height x width of the recipe's tensor */
    int64_t *extents; /* set to height and width of the result; NULL: not wanted */
};

/* Refuses a recipe that moves pixels where masks cannot follow, that has several views, or is of
 * sounds. Errors: -EINVAL names the operation. */
int hr__recipe_check_masks(const struct hr_recipe *recipe, struct hr_error *error);

/*
 * Makes a mask by the scratch's plan, which was run. `decoder` decodes masks only. Messages call
 * the mask "its mask". Errors: -ENOTSUP: no PNG file of a palette or of greys; -EBADMSG: damaged,
 * or of another size than the image; -ENOMEM.
 */
int hr__mask_run(const struct hr_recipe *recipe, struct hr__scratch *scratch,
                 struct hr__decoder *decoder, const struct hr__mask *mask, struct hr_error *error);

#endif
