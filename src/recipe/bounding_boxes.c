/*
 * ClampBoundingBoxes and SanitizeBoundingBoxes, as in torchvision v2: they change rows, not pixels.
 */
#include "recipe/operation.h"
#include "recipe/rows_geometry.h"

#include <math.h>

static void clamp_defaults(struct hr_operation *operation)
{
}

static int clamp_check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    return 0;
}

static int clamp_draw(const struct hr__bound *bound, struct hr__random *random,
                      struct hr__prepare_plan *plan, struct hr_error *error)
{
    hr__rows_clamp(&plan->rows, hr__plan_width(plan), hr__plan_height(plan));
    return 0;
}

static const struct hr__parameter clamp_fields[] = {
    {0},
};

const struct hr__operation_class hr__class_clamp_bounding_boxes = {
    .name = "ClampBoundingBoxes",
    .fields = clamp_fields,
    .defaults = clamp_defaults,
    .check = clamp_check,
    .draw = clamp_draw,
};

static void sanitize_defaults(struct hr_operation *operation)
{
    operation->u.sanitize_bounding_boxes.min_size = 1;
    operation->u.sanitize_bounding_boxes.min_area = 1;
}

static int sanitize_check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    const struct hr_operation *o = &bound->operation;
    double size = o->u.sanitize_bounding_boxes.min_size;
    double area = o->u.sanitize_bounding_boxes.min_area;
    if (!(size >= 1 && isfinite(size)))
        return hr__refuse(error, bound, "min_size %g: it must be at least 1 pixel", size);
    if (!(area >= 1 && isfinite(area)))
        return hr__refuse(error, bound, "min_area %g: it must be at least 1 pixel", area);
    return 0;
}

/* Returns non-zero if the box is large enough and inside the image. */
static int is_valid(const struct hr_operation *o, const float *box, float width, float height)
{
    float across = box[2] - box[0], down = box[3] - box[1];
    float size = (float)o->u.sanitize_bounding_boxes.min_size;
    float area = (float)o->u.sanitize_bounding_boxes.min_area;
    return across >= size && down >= size && across * down >= area && box[0] >= 0 && box[1] >= 0 &&
           box[2] >= 0 && box[3] >= 0 && box[0] <= width && box[2] <= width && box[1] <= height &&
           box[3] <= height;
}

static int sanitize_draw(const struct hr__bound *bound, struct hr__random *random,
                         struct hr__prepare_plan *plan, struct hr_error *error)
{
    const float *box = hr__rows_boxes(&plan->rows);
    if (!box)
        return hr__refuse(error, bound, "the dataset has no boxes");
    for (size_t i = 0; i < plan->rows.in->rows; i++)
        if (!is_valid(&bound->operation, box + 4 * i, (float)hr__plan_width(plan),
                      (float)hr__plan_height(plan)))
            plan->rows.dropped[i] = 1;
    return 0;
}

static const struct hr__parameter sanitize_fields[] = {
    {"min_size", HR__REAL(sanitize_bounding_boxes.min_size)},
    {"min_area", HR__REAL(sanitize_bounding_boxes.min_area)},
    {0},
};

const struct hr__operation_class hr__class_sanitize_bounding_boxes = {
    .name = "SanitizeBoundingBoxes",
    .fields = sanitize_fields,
    .defaults = sanitize_defaults,
    .check = sanitize_check,
    .draw = sanitize_draw,
    .rows = HR__ROWS_NEEDED,
};
