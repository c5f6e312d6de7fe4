/* Masks: where each of their columns and rows comes from, and the pixels; see mask.h. */
#include "recipe/mask.h"

#include "base/error.h"
#include "recipe/canvas.h"
#include "recipe/filter.h"

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
    for (int i = 0; i < recipe->count; i++) {
        if (recipe->operation[i].class->rows == HR__ROWS_LOST)
            return hr__refuse(error, &recipe->operation[i],
                              "it does not move the dataset's masks with the pixels: leave it out");
    }
    return 0;
}

/* Most steps of a plan that warp: an operation has one at most. */
#define WARPS_MOST HR__RECIPE_MAX_OPERATIONS

/* Consecutive steps of a plan that act on columns and rows separately. Between two stages is a step
 * that warps. */
struct mask_stage {
    int first, last;         /* steps [first, last) */
    struct hr_region need;   /* what is made of their result */
    struct hr_region source; /* what that takes of their input; width 0: nothing, all is ignored */
};

/* One direction of a stage. */
struct direction {
    int is_y;
    int *from; /* of each column or row that is made: that of the step's input; -1: none */
    int first, count;
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

/* Finds where the columns or rows that are made come from, and the range of these. Returns the
 * number of pixels in the range; 0: all are none. */
static int trace(const struct hr__prepare_plan *plan, const struct mask_stage *stage,
                 const struct direction *d, int *first)
{
    int low = INT32_MAX, high = -1;
    for (int k = 0; k < d->count; k++)
        d->from[k] = d->first + k;
    for (int i = stage->last - 1; i >= stage->first; i--)
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

/* Sets both directions of a stage, and what it takes. The places are in the scratch's memory, until
 * the next call. Errors: -ENOMEM. */
static int trace_stage(struct hr__scratch *scratch, struct mask_stage *stage, struct direction d[2],
                       struct hr_error *error)
{
    const struct hr_region *need = &stage->need;
    int r = hr__buffer_reserve(&scratch->mask_places,
                               ((size_t)need->width + (size_t)need->height) * sizeof(int), error);
    if (r)
        return r;
    int *places = scratch->mask_places.bytes;
    d[0] = (struct direction){0, places, need->x, need->width};
    d[1] = (struct direction){1, places + need->width, need->y, need->height};
    stage->source.width = trace(&scratch->plan, stage, &d[0], &stage->source.x);
    stage->source.height = trace(&scratch->plan, stage, &d[1], &stage->source.y);
    if (!stage->source.height)
        stage->source.width = 0;
    return 0;
}

static int is_warp(const struct hr__step *step)
{
    return step->kind == HR__STEP_FILTER && step->u.filter.filter->warp_fill;
}

/* Divides the plan into stages, and finds what each has to make. They end with
 * stage[WARPS_MOST]. Stages before one that takes nothing are left out. Returns the first, or a
 * negative errno. */
static int plan_stages(struct hr__scratch *scratch, struct mask_stage stage[WARPS_MOST + 1],
                       struct hr_error *error)
{
    const struct hr__prepare_plan *plan = &scratch->plan;
    struct hr_region need = {0, 0, hr__plan_width(plan), hr__plan_height(plan)};
    int last = plan->count;
    for (int n = WARPS_MOST; n >= 0; n--) {
        struct mask_stage *s = &stage[n];
        struct direction d[2];
        *s = (struct mask_stage){.first = last, .last = last, .need = need};
        while (s->first && !is_warp(&plan->step[s->first - 1]))
            s->first--;
        int r = trace_stage(scratch, s, d, error);
        if (r || !s->first || !s->source.width)
            return r ? r : n;
        last = s->first - 1;
        const struct hr__step *warp = &plan->step[last];
        need = warp->u.filter.filter->source(warp, hr__width_before(plan, last),
                                             hr__height_before(plan, last), &s->source);
    }
    return hr__fail(error, -EINVAL,
                    "its mask would be warped more than %d times: please report this as an error "
                    "of Headrace",
                    WARPS_MOST);
}

/* Writes what a stage makes, of the pixels of its source. */
static void gather(const struct direction d[2], const struct hr_region *source,
                   const struct hr__window *pixels, uint8_t *out, size_t pitch)
{
    size_t width = (size_t)d[0].count;
    for (int y = 0; y < d[1].count; y++) {
        uint8_t *row = out + (size_t)y * pitch;
        if (y && d[1].from[y] == d[1].from[y - 1]) {
            memcpy(row, row - pitch, width);
            continue;
        }
        memset(row, HR__MASK_IGNORED, width);
        if (!source->width || d[1].from[y] < 0)
            continue;
        const uint8_t *line = pixels->plane[0] + (d[1].from[y] - source->y) * pixels->stride;
        for (size_t x = 0; x < width; x++)
            if (d[0].from[x] >= 0)
                row[x] = line[d[0].from[x] - source->x];
    }
}

/* Makes a window for a region of a mask, in one of the scratch's buffers. */
static int reserve(struct hr__buffer *buffer, const struct hr_region *region,
                   struct hr__window *window, struct hr_error *error)
{
    int r = hr__buffer_reserve(
        buffer, (size_t)region->width * (size_t)region->height + HR__PIXEL_SLACK, error);
    *window = (struct hr__window){.plane = {buffer->bytes},
                                  .stride = region->width,
                                  .x = region->x,
                                  .y = region->y,
                                  .width = region->width,
                                  .height = region->height};
    return r;
}

/* Makes what a stage makes, then what the step behind it makes of that for the next stage. *pixels
 * has the source of the one, and then that of the other. */
static int run_stage(struct hr__scratch *scratch, struct mask_stage *stage,
                     struct hr__window *pixels, struct hr_error *error)
{
    const struct hr__prepare_plan *plan = &scratch->plan;
    struct hr__step warp = plan->step[stage->last];
    struct hr__window in, out;
    struct direction d[2];
    int r = trace_stage(scratch, stage, d, error);
    if (!r)
        r = reserve(&scratch->bytes[0], &stage->need, &in, error);
    if (r)
        return r;
    gather(d, &stage->source, pixels, in.plane[0], (size_t)in.stride);
    in.image_width = hr__width_before(plan, stage->last);
    in.image_height = hr__height_before(plan, stage->last);
    r = reserve(&scratch->bytes[1], &stage[1].source, &out, error);
    if (r)
        return r;
    out.image_width = warp.width;
    out.image_height = warp.height;
    const struct hr__filter *filter = warp.u.filter.filter;
    warp.u.filter.word[0] = HR_NEAREST;
    warp.u.filter.word[1] = 1;
    for (int c = 0; c < 3; c++)
        warp.u.filter.value[filter->warp_fill + c] = HR__MASK_IGNORED;
    *pixels = out;
    return filter->run(scratch, &warp, &in, &out, error);
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

/* Decodes what the first stage takes. */
static int decode(struct hr__decoder *decoder, const struct hr__mask *mask,
                  const struct hr_image_info *info, const struct hr_region *region,
                  struct hr__window *pixels, struct hr_error *error)
{
    struct hr__planar planar;
    struct hr_error why = {0};
    if (!region->width)
        return 0;
    int r = hr__decoder_region(decoder, mask->bytes, mask->length, info, region, &planar, &why);
    if (r)
        return hr__fail(error, r, "its mask: %s", why.message);
    *pixels = (struct hr__window){.plane = {planar.plane[0]}, .stride = planar.stride};
    return 0;
}

int hr__mask_run(const struct hr_recipe *recipe, struct hr__scratch *scratch,
                 struct hr__decoder *decoder, const struct hr__mask *mask, struct hr_error *error)
{
    const size_t pitch = (size_t)recipe->spec.width;
    struct mask_stage stage[WARPS_MOST + 1], *last = &stage[WARPS_MOST];
    struct direction d[2];
    struct hr_image_info info;
    struct hr__window pixels = {.stride = 0};
    int r = check_header(&scratch->plan, decoder, mask, &info, error);
    int n = r ? r : plan_stages(scratch, stage, error);
    if (n < 0)
        return n;
    r = decode(decoder, mask, &info, &stage[n].source, &pixels, error);
    for (struct mask_stage *s = &stage[n]; s < last && !r; s++)
        r = run_stage(scratch, s, &pixels, error);
    if (!r)
        r = trace_stage(scratch, last, d, error);
    if (r)
        return r;
    memset(mask->out, HR__MASK_IGNORED, pitch * (size_t)recipe->spec.height);
    gather(d, &last->source, &pixels, mask->out, pitch);
    if (mask->extents) {
        mask->extents[0] = d[1].count;
        mask->extents[1] = d[0].count;
    }
    return 0;
}
