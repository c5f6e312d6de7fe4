/*
 * The public preparer: one decoder and one scratch, used alternately. It reads the header, asks the
 * recipe which region it needs, decodes only that, and runs the recipe.
 */
#include "base/error.h"
#include "base/memory.h"
#include "recipe/mask.h"
#include "recipe/operation.h"
#include "recipe/recipe.h"
#include "recipe/rows.h"
#include "recipe/sound.h"
#include "recipe/tensor.h"

#include <errno.h>
#include <string.h>

struct hr_preparer {
    struct hr__decoder *decoder;
    struct hr__decoder *masks; /* their decoder; NULL: no mask was prepared yet */
    struct hr__scratch *scratch;
    struct hr__sound_scratch *sound;     /* NULL: no sound was prepared yet */
    int scale;                           /* see hr_preparer_scale */
    int64_t extents[HR_TENSOR_MAX_DIMS]; /* of the last result */
    hr__help_fn help;                    /* NULL: none */
    void *help_arg;
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
    hr__decoder_destroy(&p->masks);
    hr__scratch_destroy(&p->scratch);
    hr__sound_scratch_destroy(&p->sound);
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

int hr_preparer_item_parts(const struct hr_preparer *preparer,
                           struct hr_item_part parts[HR_ITEM_PARTS])
{
    const struct hr_item_part *made = hr__decoder_item_parts(preparer->decoder);
    if (!made)
        return -ENOENT;
    memcpy(parts, made, HR_ITEM_PARTS * sizeof *parts);
    return 0;
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

void hr__preparer_set_help(struct hr_preparer *preparer, hr__help_fn help, void *arg)
{
    preparer->help = help;
    preparer->help_arg = arg;
}

struct hr__decoder *hr__preparer_decoder(struct hr_preparer *preparer)
{
    return preparer->decoder;
}

/* Has a region decoded with help. Returns 0 if there is none, or that failed. */
static int decode_with_help(struct hr_preparer *p, const struct hr_item *item,
                            const struct hr_image_info *info, const struct hr_region *region,
                            struct hr__planar *out)
{
    struct hr__shared_region shared;
    if (!p->help ||
        !hr__decoder_share(p->decoder, item->bytes, item->length, info, region, &shared) ||
        p->help(p->help_arg, p->decoder, &shared))
        return 0;
    *out = shared.out;
    return 1;
}

/* An image to decode for one sample. */
struct encoded_source {
    struct hr_item item;
    struct hr_image_info info;
    const struct hr_draw_key *key;
};

/* Decodes a region, with help if there is any. */
static int decode_region(struct hr_preparer *p, const struct encoded_source *s,
                         const struct hr_region *region, struct hr__planar *out,
                         struct hr_error *error)
{
    if (decode_with_help(p, &s->item, &s->info, region, out))
        return 0;
    return hr__decoder_region(p->decoder, s->item.bytes, s->item.length, &s->info, region, out,
                              error);
}

/* Runs the plan of a padded recipe. */
static int run_padded(struct hr_preparer *p, const struct hr_recipe *recipe,
                      const struct hr__prepare_plan *plan, const struct hr__planar *pixels,
                      void *out, struct hr_error *error)
{
    int width = hr__plan_width(plan), height = hr__plan_height(plan);
    hr__tensor_widen(&recipe->spec, width, height, p->extents);
    int r = hr__recipe_run(recipe, p->scratch, plan, pixels, out, error);
    if (!r)
        hr__tensor_clear(&recipe->spec, out, width, height, p->extents);
    return r;
}

static int run_one(struct hr_preparer *p, const struct hr_recipe *recipe,
                   const struct encoded_source *s, void *out, struct hr_error *error)
{
    const struct hr__prepare_plan *plan;
    struct hr_region region;
    struct hr__planar pixels;
    int r = hr__recipe_plan(recipe, p->scratch, &s->info, s->key, &plan, &region, error);
    if (r)
        return r;
    hr__decoder_halve(p->decoder, plan->halvings);
    r = decode_region(p, s, &region, &pixels, error);
    hr__decoder_halve(p->decoder, 0);
    if (!r)
        r = recipe->options.padded ? run_padded(p, recipe, plan, &pixels, out, error)
                                   : hr__recipe_run(recipe, p->scratch, plan, &pixels, out, error);
    if (!r)
        p->scale = 1 << plan->halvings;
    return r;
}

static uint64_t area(const struct hr_region *region)
{
    return (uint64_t)region->width * (uint64_t)region->height;
}

/* Plans all views, and returns in *all the smallest region that contains theirs, and in *apart the
 * pixels of all of them, counted one by one. */
static int plan_views(struct hr_preparer *p, const struct hr_recipe *recipe,
                      const struct encoded_source *s, struct hr_region *all, uint64_t *apart,
                      struct hr_error *error)
{
    const struct hr__prepare_plan *plan;
    struct hr_region one;
    int left = INT32_MAX, top = INT32_MAX, right = 0, bottom = 0;
    *apart = 0;
    for (size_t v = 0; v < hr_recipe_views(recipe); v++) {
        int r = hr__recipe_plan(hr__recipe_view(recipe, v), p->scratch, &s->info, s->key, &plan,
                                &one, error);
        if (r)
            return r;
        left = one.x < left ? one.x : left;
        top = one.y < top ? one.y : top;
        right = one.x + one.width > right ? one.x + one.width : right;
        bottom = one.y + one.height > bottom ? one.y + one.height : bottom;
        *apart += area(&one);
    }
    *all = (struct hr_region){left, top, right - left, bottom - top};
    return 0;
}

/* Runs a view on the pixels of `all`, which contains its region. Planning it again costs less than
 * keeping the plans of all views. */
static int run_view(struct hr_preparer *p, const struct hr_recipe *recipe,
                    const struct encoded_source *s, const struct hr_region *all,
                    const struct hr__planar *pixels, void *out, struct hr_error *error)
{
    const struct hr__prepare_plan *plan;
    struct hr_region one;
    int r = hr__recipe_plan(recipe, p->scratch, &s->info, s->key, &plan, &one, error);
    if (r)
        return r;
    struct hr__planar part = {.stride = pixels->stride, .width = one.width, .height = one.height};
    for (int c = 0; c < 3; c++)
        part.plane[c] = pixels->plane[c] + (one.y - all->y) * pixels->stride + (one.x - all->x);
    return hr__recipe_run(recipe, p->scratch, plan, &part, out, error);
}

/* Runs all views on one decode of the region that they need together. If the views need fewer
 * pixels one by one, and the image can be decoded from the middle, decodes each region instead. */
static int run_views(struct hr_preparer *p, const struct hr_recipe *recipe,
                     const struct encoded_source *s, void *const *outs, struct hr_error *error)
{
    struct hr_region all;
    struct hr__planar pixels;
    uint64_t apart;
    int r = plan_views(p, recipe, s, &all, &apart, error);
    if (r)
        return r;
    int from_middle = hr__format_is_seekable(s->info.format) && apart < area(&all);
    if (!from_middle)
        r = decode_region(p, s, &all, &pixels, error);
    for (size_t v = 0; v < hr_recipe_views(recipe) && !r; v++) {
        const struct hr_recipe *view = hr__recipe_view(recipe, v);
        r = from_middle ? run_one(p, view, s, outs[v], error)
                        : run_view(p, view, s, &all, &pixels, outs[v], error);
    }
    return r;
}

/* Runs a recipe of images. */
static int run_images(struct hr_preparer *p, const struct hr_recipe *recipe,
                      struct encoded_source *s, void *const *outs, struct hr_error *error)
{
    int r = hr__decoder_info(p->decoder, s->item.bytes, s->item.length, &s->info, error);
    if (r)
        return r;
    return hr_recipe_views(recipe) == 1 ? run_one(p, hr__recipe_view(recipe, 0), s, outs[0], error)
                                        : run_views(p, recipe, s, outs, error);
}

/* Runs a recipe of sounds, which moves no rows and writes all of the tensor. */
static int run_sound(struct hr_preparer *p, const struct hr_recipe *recipe,
                     const struct encoded_source *s, void *out, struct hr_error *error)
{
    int r = hr__rows_begin(p->scratch, error);
    if (!r)
        r = hr__sound_run(recipe, &p->sound, &s->item, s->key, out, error);
    if (!r && recipe->options.padded) {
        p->extents[0] = recipe->spec.height;
        p->extents[1] = hr__sound_length(recipe, p->sound);
    }
    return r;
}

/* Makes the mask of the image that was run. Masks have a decoder of their own, because the image's
 * keeps what is asked about it afterwards. */
static int run_mask(struct hr_preparer *p, const struct hr_recipe *recipe,
                    const struct hr__mask *mask, struct hr_error *error)
{
    int r = p->masks ? 0 : hr__decoder_create(&p->masks, error);
    if (r)
        return r;
    hr__decoder_want_indices(p->masks, 1);
    return hr__mask_run(recipe, p->scratch, p->masks, mask, error);
}

/* Runs the recipe on an encoded image or sound; the scratch has the sample's rows. */
static int run_recipe(struct hr_preparer *p, const struct hr_recipe *recipe,
                      struct encoded_source *source, const struct hr__prepared *prepared,
                      struct hr_error *error)
{
    int r = recipe->is_sound ? run_sound(p, recipe, source, prepared->outs[0], error)
                             : run_images(p, recipe, source, prepared->outs, error);
    if (!r && prepared->in)
        r = hr__rows_finish(p->scratch, prepared->record, error);
    if (!r && prepared->mask)
        r = run_mask(p, recipe, prepared->mask, error);
    return r;
}

int hr__preparer_run_item(struct hr_preparer *preparer, const struct hr_recipe *recipe,
                          const struct hr_item *item, const struct hr_draw_key *key,
                          const struct hr__prepared *prepared, struct hr_error *error)
{
    struct encoded_source source = {.item = {item->bytes, item->length, 0}, .key = key};
    preparer->scale = 1;
    memcpy(preparer->extents, recipe->spec.shape, sizeof preparer->extents);
    size_t raw = hr__recipe_raw_bytes(recipe);
    if (raw) {
        if (item->length != raw)
            return hr__fail(error, -EBADMSG, "it has %zu bytes, and %zu are needed", item->length,
                            raw);
        hr__decoder_accept(preparer->decoder, HR_DAMAGED_REFUSE);
        memcpy(prepared->outs[0], item->bytes, item->length);
        return 0;
    }
    hr__decoder_accept(preparer->decoder, hr__recipe_options(recipe)->damaged);
    hr__scratch_set_rows(preparer->scratch, prepared->in);
    if (prepared->extents)
        memcpy(preparer->extents, prepared->extents, recipe->spec.dims * sizeof(int64_t));
    int r = run_recipe(preparer, recipe, &source, prepared, error);
    hr__scratch_set_rows(preparer->scratch, NULL);
    if (prepared->extents)
        memcpy(prepared->extents, preparer->extents, recipe->spec.dims * sizeof(int64_t));
    if (r)
        hr__decoder_accept(preparer->decoder, HR_DAMAGED_REFUSE); /* the sample was not used */
    return r;
}

int hr_preparer_run_views(struct hr_preparer *preparer, const struct hr_recipe *recipe,
                          const void *bytes, size_t length, const struct hr_draw_key *key,
                          void *const *outs, struct hr_error *error)
{
    const struct hr_item item = {bytes, length, 0};
    const struct hr__prepared prepared = {.outs = outs};
    return hr__preparer_run_item(preparer, recipe, &item, key, &prepared, error);
}

int hr_preparer_run(struct hr_preparer *preparer, const struct hr_recipe *recipe, const void *bytes,
                    size_t length, const struct hr_draw_key *key, void *out, struct hr_error *error)
{
    if (hr_recipe_views(recipe) > 1)
        return hr__fail(error, -EINVAL,
                        "the recipe has %zu views and there is room for one: use "
                        "hr_preparer_run_views",
                        hr_recipe_views(recipe));
    return hr_preparer_run_views(preparer, recipe, bytes, length, key, &out, error);
}

int hr_preparer_sound_info(struct hr_preparer *preparer, const void *bytes, size_t length,
                           struct hr_sound_info *info, struct hr_error *error)
{
    int r = hr__sound_scratch_get(&preparer->sound, error);
    return r ? r : hr__sound_open(preparer->sound->decoder, bytes, length, info, error);
}

int hr_preparer_sound_decode(struct hr_preparer *preparer, const void *bytes, size_t length,
                             uint64_t first, uint64_t count, float *out, struct hr_error *error)
{
    struct hr_sound_info info = {0};
    float *planes[HR_SOUND_MAX_CHANNELS];
    int r = hr_preparer_sound_info(preparer, bytes, length, &info, error);
    for (int c = 0; c < info.channels && !r; c++)
        planes[c] = out + (size_t)c * count;
    return r ? r : hr__sound_read(preparer->sound->decoder, first, count, planes, error);
}

size_t hr_preparer_extents(const struct hr_preparer *preparer, int64_t extents[HR_TENSOR_MAX_DIMS])
{
    size_t dims = 0;
    for (; dims < HR_TENSOR_MAX_DIMS && preparer->extents[dims]; dims++)
        extents[dims] = preparer->extents[dims];
    return dims;
}

int hr_preparer_waveform(struct hr_preparer *preparer, enum hr_form form,
                         const struct hr_sound_head *head, const void *bytes, size_t length,
                         struct hr_item *item, struct hr_error *error)
{
    const struct hr__encoded file = {.bytes = bytes, .length = length};
    int r = hr__sound_scratch_get(&preparer->sound, error);
    return r ? r : hr__sound_make_waveform(preparer->sound, form, head, &file, item, error);
}

int hr_preparer_scale(const struct hr_preparer *preparer)
{
    return preparer->scale;
}

size_t hr_preparer_memory(const struct hr_preparer *preparer)
{
    return sizeof *preparer + hr__decoder_memory(preparer->decoder) +
           (preparer->masks ? hr__decoder_memory(preparer->masks) : 0) +
           hr__scratch_memory(preparer->scratch) + hr__sound_scratch_memory(preparer->sound);
}
