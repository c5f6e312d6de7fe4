/* Recipes of several views of one image: copies of the views' recipes, with positions of their own
 * for random numbers. */
#include "base/error.h"
#include "base/memory.h"
#include "recipe/operation.h"

#include <errno.h>
#include <stdatomic.h>

static int check(struct hr_recipe *const *views, size_t count, struct hr_error *error)
{
    if (count < 1 || count > HR_RECIPE_MAX_VIEWS)
        return hr__fail(error, -EINVAL, "%zu views are not possible: give 1 to %d", count,
                        HR_RECIPE_MAX_VIEWS);
    const struct hr_recipe_options *first = &views[0]->options;
    for (size_t v = 0; v < count; v++) {
        const struct hr_recipe_options *o = &views[v]->options;
        if (views[v]->is_sound)
            return hr__fail(error, -EINVAL,
                            "view %zu is of sounds, and only images have views: use one recipe", v);
        if (views[v]->views)
            return hr__fail(error, -EINVAL, "view %zu has views itself: list them all at once", v);
        if (o->inexact)
            return hr__fail(error, -EINVAL,
                            "several views of one image are decoded exactly: leave out exact=False "
                            "(in C, inexact)");
        if (o->padded)
            return hr__fail(error, -EINVAL,
                            "several views of one image have fixed sizes: leave out padded (in "
                            "Python, collate)");
        if (o->layout != first->layout || o->max_pixels != first->max_pixels ||
            o->damaged != first->damaged ||
            o->apply_exif_orientation != first->apply_exif_orientation)
            return hr__fail(error, -EINVAL,
                            "view %zu has other options than view 0: give all views the same "
                            "layout, max_pixels, damaged and apply_exif_orientation",
                            v);
    }
    return 0;
}

static struct hr_recipe *copy(const struct hr_recipe *from, int view)
{
    struct hr_recipe *to = hr__alloc(HR__TAG_RECIPE, 1, sizeof *to);
    if (!to)
        return NULL;
    atomic_init(&to->references, 1);
    to->options = from->options;
    to->spec = from->spec;
    to->count = from->count;
    for (int c = 0; c < 3; c++) {
        to->scale[c] = from->scale[c];
        to->shift[c] = from->shift[c];
    }
    for (int i = 0; i < from->count; i++) {
        to->operation[i] = from->operation[i];
        to->operation[i].position += view * HR__VIEW_POSITIONS;
    }
    return to;
}

int hr_recipe_create_views(struct hr_recipe **out, struct hr_recipe *const *views, size_t count,
                           struct hr_error *error)
{
    *out = NULL;
    int r = check(views, count, error);
    if (r)
        return r;
    struct hr_recipe *recipe = copy(views[0], 0);
    for (; recipe && recipe->views < (int)count; recipe->views++) {
        recipe->view[recipe->views] = copy(views[recipe->views], recipe->views);
        if (!recipe->view[recipe->views]) {
            hr_recipe_unref(&recipe);
            break;
        }
    }
    if (!recipe)
        return hr__fail(error, -ENOMEM, "out of memory for a recipe");
    *out = recipe;
    return 0;
}
