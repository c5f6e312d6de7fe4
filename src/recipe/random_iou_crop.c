/*
 * RandomIoUCrop: SSD's crop, drawn so that it holds the centre of a box and overlaps one enough, as
 * in torchvision v2. It draws from the boxes as they stand after the operations before it. Boxes
 * whose centre is outside become 0, 0, 0, 0; SanitizeBoundingBoxes drops them.
 */
#include "recipe/operation.h"
#include "recipe/rows_geometry.h"

#include <math.h>

#define OPTIONS_MAX 11
#define TRIALS_MAX  10000

/* Choices of an overlap after which the image is left as it is, where torchvision would go on for
 * ever: no option of at least 1 is there to end it. */
#define ROUNDS_MAX 100

static void defaults(struct hr_operation *operation)
{
    static const double overlaps[] = {0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0};
    operation->u.random_iou_crop.min_scale = 0.3;
    operation->u.random_iou_crop.max_scale = 1;
    operation->u.random_iou_crop.min_aspect_ratio = 0.5;
    operation->u.random_iou_crop.max_aspect_ratio = 2;
    for (int i = 0; i < 7; i++)
        operation->u.random_iou_crop.sampler_options[i] = overlaps[i];
    operation->u.random_iou_crop.option_count = 7;
    operation->u.random_iou_crop.trials = 40;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    double least = o->u.random_iou_crop.min_scale, most = o->u.random_iou_crop.max_scale;
    double narrow = o->u.random_iou_crop.min_aspect_ratio;
    double wide = o->u.random_iou_crop.max_aspect_ratio;
    int count = o->u.random_iou_crop.option_count, trials = o->u.random_iou_crop.trials;
    if (!(least >= 0 && least <= most && most <= 1))
        return hr__refuse(error, bound,
                          "the scales %g to %g must be shares of the image's sides, the smaller "
                          "first",
                          least, most);
    if (!(narrow > 0 && narrow <= wide && isfinite(wide)))
        return hr__refuse(error, bound,
                          "the aspect ratios %g to %g must be positive, the smaller first", narrow,
                          wide);
    if (count < 1 || count > OPTIONS_MAX)
        return hr__refuse(error, bound, "%d sampler_options: give it 1 to %d", count, OPTIONS_MAX);
    for (int i = 0; i < count; i++) {
        if (!isfinite(o->u.random_iou_crop.sampler_options[i]))
            return hr__refuse(error, bound, "a sampler_option is not a finite number");
    }
    if (trials < 1 || trials > TRIALS_MAX)
        return hr__refuse(error, bound, "trials %d: set it between 1 and %d", trials, TRIALS_MAX);
    hr__state_vary(state, hr__state_most_height(state), hr__state_most_width(state));
    return 0;
}

static int is_inside(const float *box, const struct hr_region *crop)
{
    float x = 0.5f * (box[0] + box[2]), y = 0.5f * (box[1] + box[3]);
    return x > (float)crop->x && x < (float)(crop->x + crop->width) && y > (float)crop->y &&
           y < (float)(crop->y + crop->height);
}

/* Returns the area that a box and the crop share over the area that either covers. */
static float overlap(const float *box, const struct hr_region *crop)
{
    const float edge[4] = {(float)crop->x, (float)crop->y, (float)(crop->x + crop->width),
                           (float)(crop->y + crop->height)};
    float width = fminf(box[2], edge[2]) - fmaxf(box[0], edge[0]);
    float height = fminf(box[3], edge[3]) - fmaxf(box[1], edge[1]);
    float both = (width > 0 ? width : 0) * (height > 0 ? height : 0);
    float one = (box[2] - box[0]) * (box[3] - box[1]);
    float other = (edge[2] - edge[0]) * (edge[3] - edge[1]);
    return both / (one + other - both);
}

/* Returns non-zero if the centre of a box is inside, and one of these boxes overlaps enough. */
static int suits(const struct hr__plan_rows *rows, const struct hr_region *crop, double least)
{
    const float *box = hr__rows_boxes(rows);
    float best = -1;
    for (size_t i = 0; i < rows->in->rows; i++, box += 4)
        if (hr__row_is_kept(rows, i) && is_inside(box, crop))
            best = fmaxf(best, overlap(box, crop));
    return best >= 0 && best >= (float)least;
}

/* Draws a crop. Returns non-zero if its shape is allowed and it is not empty. */
static int draw_crop(const struct hr_operation *o, struct hr__random *random, int width, int height,
                     struct hr_region *crop)
{
    double least = o->u.random_iou_crop.min_scale, most = o->u.random_iou_crop.max_scale;
    crop->width = (int)(width * hr__random_range(random, least, most));
    crop->height = (int)(height * hr__random_range(random, least, most));
    if (crop->width < 1 || crop->height < 1)
        return 0;
    double shape = (double)crop->width / crop->height;
    if (shape < o->u.random_iou_crop.min_aspect_ratio ||
        shape > o->u.random_iou_crop.max_aspect_ratio)
        return 0;
    crop->x = (int)((width - crop->width) * hr__random_unit(random));
    crop->y = (int)((height - crop->height) * hr__random_unit(random));
    return 1;
}

/* Draws until a crop suits. Returns 0 if the image is to be left as it is. */
static int choose(const struct hr_operation *o, struct hr__random *random,
                  const struct hr__prepare_plan *plan, struct hr_region *crop)
{
    int width = hr__plan_width(plan), height = hr__plan_height(plan);
    for (int round = 0; round < ROUNDS_MAX; round++) {
        uint64_t which = hr__random_below(random, (uint64_t)o->u.random_iou_crop.option_count);
        double least = o->u.random_iou_crop.sampler_options[which];
        if (least >= 1)
            return 0;
        for (int i = 0; i < o->u.random_iou_crop.trials; i++)
            if (draw_crop(o, random, width, height, crop) && suits(&plan->rows, crop, least))
                return 1;
    }
    return 0;
}

static int draw(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error)
{
    struct hr_region crop;
    float *box = hr__rows_boxes(&plan->rows);
    if (!box)
        return hr__refuse(error, bound, "the dataset has no boxes, from which it draws");
    if (!choose(&bound->operation, random, plan, &crop))
        return 0;
    /* what is at the crop's corner is at 0, 0 afterwards */
    for (size_t i = 0; i < plan->rows.in->rows; i++, box += 4) {
        if (is_inside(box, &crop))
            continue;
        box[0] = box[2] = (float)crop.x;
        box[1] = box[3] = (float)crop.y;
    }
    hr__plan_crop(plan, crop.x, crop.y, crop.width, crop.height);
    return 0;
}

static const struct hr__parameter fields[] = {
    {"min_scale", HR__REAL(random_iou_crop.min_scale)},
    {"max_scale", HR__REAL(random_iou_crop.max_scale)},
    {"min_aspect_ratio", HR__REAL(random_iou_crop.min_aspect_ratio)},
    {"max_aspect_ratio", HR__REAL(random_iou_crop.max_aspect_ratio)},
    {"sampler_options", HR__REALS(random_iou_crop.sampler_options)},
    {"option_count", HR__INTEGER(random_iou_crop.option_count)},
    {"trials", HR__INTEGER(random_iou_crop.trials)},
    {0},
};

const struct hr__operation_class hr__class_random_iou_crop = {
    .name = "RandomIoUCrop",
    .fields = fields,
    .defaults = defaults,
    .check = check,
    .draw = draw,
    .rows = HR__ROWS_NEEDED,
};
