/* Masks: where each of their columns and rows comes from, and the pixels; see mask.h. */
#include "recipe/mask.h"

#include "base/error.h"
#include "recipe/canvas.h"

#include <errno.h>
#include <string.h>

int hr__recipe_check_masks(const struct hr_recipe *recipe, struct hr_error *error)
{
    if (recipe->is_sound)
        return hr__fail(error, -EINVAL,
                        "the recipe is of sounds, and the dataset has masks of images: leave one "
                        "of them out");
    if (recipe->views > 1)
        return hr__fail(error, -EINVAL,
                        "the recipe has %d views, and the dataset's masks can follow only one: use "
                        "one view",
                        recipe->views);
    for (int i = 0; i < recipe->count; i++)
        if (recipe->operation[i].class->rows == HR__ROWS_LOST)
            return hr__refuse(error, &recipe->operation[i],
                              "it does not move the dataset's masks with the pixels: leave it out");
    return 0;
}

/* One direction of the plan. */
struct direction {
    int is_y;
    int *from; /* of each column or row of the result: that of the step's input; -1: none */
    int count;
};

/* The size of the image before step i. */
static int size_before(const struct hr__prepare_plan *plan, int i, int is_y)
{
    return is_y ? hr__height_before(plan, i) : hr__width_before(plan, i);
}

static void unpad(const struct direction *d, int before, int size, enum hr_padding_mode mode)
{
    for (int i = 0; i < d->count; i++)
        if (d->from[i] >= 0)
            d->from[i] = hr__pad_index(d->from[i] - before, size, mode);
}

/* torch's nearest: a product in float32. */
static void unresize(const struct direction *d, int in, int out)
{
    float scale = (float)in / (float)out;
    for (int i = 0; i < d->count; i++) {
        int pixel = d->from[i] < 0 ? -1 : (int)((float)d->from[i] * scale);
        d->from[i] = pixel < in ? pixel : in - 1;
    }
}

/* Follows step i back to its input. */
static void undo(const struct hr__prepare_plan *plan, int i, const struct direction *d)
{
    const struct hr__step *step = &plan->step[i];
    int size = size_before(plan, i, d->is_y), left, top;
    enum hr__step_kind flip = d->is_y ? HR__STEP_FLIP_Y : HR__STEP_FLIP_X;
    if (step->kind == HR__STEP_CROP)
        for (int k = 0; k < d->count; k++)
            d->from[k] += d->from[k] < 0 ? 0 : d->is_y ? step->u.crop.y : step->u.crop.x;
    if (step->kind == HR__STEP_PAD)
        unpad(d, d->is_y ? step->u.pad.top : step->u.pad.left, size, step->u.pad.mode);
    if (hr__step_is_canvas(step, &left, &top))
        unpad(d, d->is_y ? top : left, size, HR_PAD_CONSTANT);
    if (step->kind == HR__STEP_RESIZE)
        unresize(d, size, d->is_y ? step->height : step->width);
    if (step->kind == flip)
        for (int k = 0; k < d->count; k++)
            d->from[k] = d->from[k] < 0 ? -1 : size - 1 - d->from[k];
}

/* Finds where the columns or rows of the result come from, and the range of these. Returns the
 * number of pixels in the range; 0: all are none. */
static int trace(const struct hr__prepare_plan *plan, const struct direction *d, int *first)
{
    int low = INT32_MAX, high = -1;
    for (int k = 0; k < d->count; k++)
        d->from[k] = k;
    for (int i = plan->count - 1; i >= 0; i--)
        undo(plan, i, d);
    for (int k = 0; k < d->count; k++) {
        if (d->from[k] < 0)
            continue;
        low = d->from[k] < low ? d->from[k] : low;
        high = d->from[k] > high ? d->from[k] : high;
    }
    *first = high < 0 ? 0 : low;
    return high < 0 ? 0 : high + 1 - low;
}

/* Writes the result from the decoded pixels of `region`; the rest of the place is ignored. */
static void gather(const struct hr_tensor_spec *spec, const struct direction d[2],
                   const struct hr_region *region, const struct hr__planar *pixels, uint8_t *out)
{
    size_t pitch = (size_t)spec->width, width = (size_t)d[0].count;
    memset(out, HR__MASK_IGNORED, pitch * (size_t)spec->height);
    for (int y = 0; region->width && y < d[1].count; y++) {
        uint8_t *row = out + (size_t)y * pitch;
        if (d[1].from[y] < 0)
            continue;
        if (y && d[1].from[y] == d[1].from[y - 1]) {
            memcpy(row, row - pitch, width);
            continue;
        }
        const uint8_t *line = pixels->plane[0] + (d[1].from[y] - region->y) * pixels->stride;
        for (size_t x = 0; x < width; x++)
            if (d[0].from[x] >= 0)
                row[x] = line[d[0].from[x] - region->x];
    }
}

/* Reads the mask's header and compares it with the image. */
static int check_header(const struct hr__prepare_plan *plan, struct hr__decoder *decoder,
                        const struct hr__mask *mask, struct hr_image_info *info,
                        struct hr_error *error)
{
    struct hr_error why = {0};
    int r = hr__decoder_info(decoder, mask->bytes, mask->length, info, &why);
    if (r)
        return hr__fail(error, r, "its mask: %s", why.message);
    if (info->format != HR_IMAGE_PNG)
        return hr__fail(error, -ENOTSUP,
                        "its mask is %s: masks are PNG files of class indices, because other "
                        "formats have colours or lose pixels",
                        hr_image_format_name(info->format));
    if (info->width == plan->width && info->height == plan->height)
        return 0;
    return hr__fail(error, -EBADMSG,
                    "its mask has %d x %d pixels (height x width), and the image %d x %d",
                    info->height, info->width, plan->height, plan->width);
}

int hr__mask_run(const struct hr_recipe *recipe, struct hr__scratch *scratch,
                 struct hr__decoder *decoder, const struct hr__mask *mask, struct hr_error *error)
{
    const struct hr__prepare_plan *plan = &scratch->plan;
    struct direction d[2] = {{.is_y = 0, .count = hr__plan_width(plan)},
                             {.is_y = 1, .count = hr__plan_height(plan)}};
    struct hr_image_info info;
    struct hr_region region;
    struct hr__planar pixels = {.stride = 0};
    struct hr_error why = {0};
    int r = check_header(plan, decoder, mask, &info, error);
    if (!r)
        r = hr__buffer_reserve(&scratch->mask_places,
                               (size_t)(d[0].count + d[1].count) * sizeof(int), error);
    if (r)
        return r;
    d[0].from = scratch->mask_places.bytes;
    d[1].from = d[0].from + d[0].count;
    region.width = trace(plan, &d[0], &region.x);
    region.height = trace(plan, &d[1], &region.y);
    if (!region.height)
        region.width = 0;
    if (region.width)
        r = hr__decoder_region(decoder, mask->bytes, mask->length, &info, &region, &pixels, &why);
    if (r)
        return hr__fail(error, r, "its mask: %s", why.message);
    gather(&recipe->spec, d, &region, &pixels, mask->out);
    if (mask->extents) {
        mask->extents[0] = d[1].count;
        mask->extents[1] = d[0].count;
    }
    return 0;
}
