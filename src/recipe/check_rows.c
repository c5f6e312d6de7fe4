/* Which recipes go with which rows; see rows.h. */
#include "base/error.h"
#include "recipe/operation.h"
#include "recipe/rows.h"

#include <errno.h>

/* Returns the padding mode of an operation that pads; constant for others. */
static enum hr_padding_mode padding_of(const struct hr_operation *o)
{
    if (o->kind == HR_PAD)
        return o->u.pad.padding_mode;
    return o->kind == HR_RANDOM_CROP ? o->u.random_crop.padding_mode : HR_PAD_CONSTANT;
}

static int check_operation_rows(const struct hr__bound *bound, const char *moving, int has_boxes,
                                struct hr_error *error)
{
    if (bound->class->rows == HR__ROWS_NEEDED && !has_boxes)
        return hr__refuse(error, bound,
                          "the dataset has no boxes: leave it out, or give the dataset a column "
                          "with the role box");
    if (moving && (bound->class->rows == HR__ROWS_LOST || bound->class->rows == HR__ROWS_MASKS))
        return hr__refuse(error, bound,
                          "it does not move the dataset's %s with the pixels: leave it out, or "
                          "give that column the role value (in Python: another name)",
                          moving);
    if (moving && padding_of(&bound->operation) != HR_PAD_CONSTANT)
        return hr__refuse(error, bound,
                          "padding that repeats pixels does not go with the dataset's %s: use "
                          "constant padding",
                          moving);
    return 0;
}

int hr__recipe_check_rows(const struct hr_recipe *recipe, const struct hr__rows_layout *layout,
                          struct hr_error *error)
{
    int box = layout ? layout->box : -1, points = layout ? layout->points : -1, r = 0;
    const char *moving = box >= 0 ? layout->name[box] : points >= 0 ? layout->name[points] : NULL;
    if (moving && recipe->is_sound)
        return hr__fail(error, -EINVAL,
                        "the recipe is of sounds, and the dataset's %s is of images: give that "
                        "column the role value (in Python: another name)",
                        moving);
    if (moving && recipe->views > 1)
        return hr__fail(error, -EINVAL,
                        "the recipe has %d views, and the dataset's %s can follow only one: use "
                        "one view, or give that column the role value (in Python: another name)",
                        recipe->views, moving);
    for (size_t v = 0; v < hr_recipe_views(recipe); v++) {
        const struct hr_recipe *view = hr__recipe_view(recipe, v);
        for (int i = 0; i < view->count && !r; i++)
            r = check_operation_rows(&view->operation[i], moving, box >= 0, error);
    }
    return r;
}
