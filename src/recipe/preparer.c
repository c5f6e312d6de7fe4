/*
 * The public preparer: one decoder and one scratch, used alternately. It reads the header, asks the
 * recipe which region it needs, decodes only that, and runs the recipe.
 */
#include "base/error.h"
#include "base/memory.h"
#include "recipe/plan.h"
#include "recipe/recipe.h"

#include <errno.h>
#include <string.h>

struct hr_preparer {
    struct hr__decoder *decoder;
    struct hr__scratch *scratch;
    int scale; /* see hr_preparer_scale */
};

int hr_preparer_create(struct hr_preparer **out, struct hr_error *error)
{
    *out = NULL;
    struct hr_preparer *p = hr__alloc(HR__TAG_RECIPE, 1, sizeof *p);
    if (!p)
        return hr__fail(error, -ENOMEM, "out of memory for a preparer");
    p->scale = 1;
    int r = hr__decoder_create(&p->decoder, error);
    if (!r)
        r = hr__scratch_create(&p->scratch, error);
    if (r) {
        hr_preparer_destroy(&p);
        return r;
    }
    *out = p;
    return 0;
}

void hr_preparer_destroy(struct hr_preparer **preparer)
{
    struct hr_preparer *p = *preparer;
    if (!p)
        return;
    hr__decoder_destroy(&p->decoder);
    hr__scratch_destroy(&p->scratch);
    hr__free(p);
    *preparer = NULL;
}

int hr_preparer_info(struct hr_preparer *preparer, const void *bytes, size_t length,
                     struct hr_image_info *info, struct hr_error *error)
{
    hr__decoder_accept(preparer->decoder, HR_DAMAGED_REFUSE);
    return hr__decoder_info(preparer->decoder, bytes, length, info, error);
}

const char *hr_preparer_damage(const struct hr_preparer *preparer)
{
    return hr__decoder_damage(preparer->decoder);
}

void hr_preparer_make_items(struct hr_preparer *preparer, int wanted)
{
    hr__decoder_make_items(preparer->decoder, wanted);
}

int hr_preparer_item(const struct hr_preparer *preparer, struct hr_item *item)
{
    item->bytes = hr__decoder_item(preparer->decoder, &item->length);
    item->form = HR_FORM_INDEXED;
    return item->bytes ? 0 : -ENOENT;
}

static void interleave(const struct hr__planar *p, uint8_t *out)
{
    for (int y = 0; y < p->height; y++) {
        const uint8_t *r = p->plane[0] + y * p->stride;
        const uint8_t *g = p->plane[1] + y * p->stride;
        const uint8_t *b = p->plane[2] + y * p->stride;
        for (int x = 0; x < p->width; x++, out += 3) {
            out[0] = r[x];
            out[1] = g[x];
            out[2] = b[x];
        }
    }
}

int hr_preparer_decode(struct hr_preparer *preparer, const void *bytes, size_t length,
                       const struct hr_region *region, void *out, size_t capacity,
                       struct hr_error *error)
{
    struct hr_image_info info;
    hr__decoder_accept(preparer->decoder, HR_DAMAGED_REFUSE);
    int r = hr__decoder_info(preparer->decoder, bytes, length, &info, error);
    if (r)
        return r;
    struct hr_recipe_options limits;
    hr_recipe_options_default(&limits);
    r = hr__check_pixels(&info, limits.max_pixels, error);
    if (r)
        return r;
    struct hr_region whole = {0, 0, info.width, info.height};
    if (!region)
        region = &whole;
    struct hr__planar pixels;
    if (region->width > 0 && region->height > 0 &&
        (uint64_t)region->width * (uint64_t)region->height * 3 > capacity)
        return hr__fail(error, -ENOSPC, "%d x %d pixels need %llu bytes and %zu are there",
                        region->width, region->height,
                        (unsigned long long)region->width * (unsigned)region->height * 3, capacity);
    r = hr__decoder_region(preparer->decoder, bytes, length, &info, region, &pixels, error);
    if (r)
        return r;
    interleave(&pixels, out);
    return 0;
}

int hr_preparer_run(struct hr_preparer *preparer, const struct hr_recipe *recipe, const void *bytes,
                    size_t length, const struct hr_draw_key *key, void *out, struct hr_error *error)
{
    struct hr_image_info info;
    struct hr_region region;
    struct hr__planar pixels;
    const struct hr__prepare_plan *plan;
    hr__decoder_accept(preparer->decoder, hr__recipe_options(recipe)->damaged);
    preparer->scale = 1;
    int r = hr__decoder_info(preparer->decoder, bytes, length, &info, error);
    if (!r)
        r = hr__recipe_plan(recipe, preparer->scratch, &info, key, &plan, &region, error);
    if (!r) {
        hr__decoder_halve(preparer->decoder, plan->halvings);
        r = hr__decoder_region(preparer->decoder, bytes, length, &info, &region, &pixels, error);
        hr__decoder_halve(preparer->decoder, 0);
    }
    if (!r)
        r = hr__recipe_run(recipe, preparer->scratch, plan, &pixels, out, error);
    if (r)
        hr__decoder_accept(preparer->decoder, HR_DAMAGED_REFUSE); /* the sample was not used */
    else
        preparer->scale = 1 << plan->halvings;
    return r;
}

int hr_preparer_scale(const struct hr_preparer *preparer)
{
    return preparer->scale;
}

size_t hr_preparer_memory(const struct hr_preparer *preparer)
{
    return sizeof *preparer + hr__decoder_memory(preparer->decoder) +
           hr__scratch_memory(preparer->scratch);
}
