/*
 * Creates recipes. Each operation is checked against what is known about the pixels at its place,
 * so an impossible recipe is refused before the first sample is read. ToDtype and Normalize become
 * the scale and shift of the last pass (see operation.h).
 */
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "codec/waveform.h"
#include "recipe/erase.h"
#include "recipe/group.h"
#include "recipe/sound.h"
#include "recipe/tensor.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Pillow raises DecompressionBombError above this. */
#define DEFAULT_MAX_PIXELS 178956970
#define DEFAULT_MAX_SOURCE (UINT64_C(64) << 20)

void hr_recipe_options_init(struct hr_recipe_options *options, size_t size)
{
    static const struct hr_recipe_options defaults = {.layout = HR_NCHW,
                                                      .max_pixels = DEFAULT_MAX_PIXELS,
                                                      .max_source_bytes = DEFAULT_MAX_SOURCE};
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

static int read_options(struct hr_recipe_options *out, const struct hr_recipe_options *options,
                        struct hr_error *error)
{
    hr_recipe_options_default(out);
    if (!options)
        return 0;
    int r = hr__versioned_take(out, sizeof *out, options, "hr_recipe_options", error);
    if (r)
        return r;
    if (out->layout != HR_NCHW && out->layout != HR_NHWC)
        return hr__fail(error, -EINVAL, "layout %d of the recipe is unknown: use NCHW or NHWC",
                        (int)out->layout);
    if (out->damaged != HR_DAMAGED_REFUSE && out->damaged != HR_DAMAGED_ACCEPT)
        return hr__fail(error, -EINVAL, "damaged = %d: must be %d (refuse) or %d (accept)",
                        (int)out->damaged, HR_DAMAGED_REFUSE, HR_DAMAGED_ACCEPT);
    out->inexact = !!out->inexact;
    out->padded = !!out->padded;
    if (out->max_height < 0 || out->max_width < 0 || !out->max_height != !out->max_width ||
        out->max_height > HR__MAX_SIDE || out->max_width > HR__MAX_SIDE)
        return hr__fail(error, -EINVAL,
                        "a largest size of %d x %d (height x width) is not possible: set both "
                        "between 1 and %d, or leave both out",
                        out->max_height, out->max_width, HR__MAX_SIDE);
    if (out->max_height && !out->padded)
        return hr__fail(error, -EINVAL,
                        "max_height and max_width are for samples of several sizes: set padded");
    out->reserved = 0;
    if (!out->max_source_bytes)
        return hr__fail(error, -EINVAL, "max_source_bytes 0 would refuse every file: set a limit");
    if (!out->max_pixels)
        return hr__fail(error, -EINVAL, "max_pixels 0 would refuse every image: set a limit");
    return 0;
}

static int bind_operations(struct hr_recipe *recipe, const struct hr_operation *operations,
                           struct hr_error *error)
{
    for (int i = 0; i < recipe->count; i++) {
        struct hr__bound *bound = &recipe->operation[i], *first = &recipe->operation[0];
        bound->class = hr__operation_class(operations[i].kind);
        if (!bound->class)
            return hr__fail(error, -EINVAL, "operation %d of the recipe has the unknown kind %d",
                            i + 1, (int)operations[i].kind);
        bound->operation = operations[i];
        bound->position = i;
        if (!bound->class->sound != !first->class->sound)
            return hr__refuse(
                error, bound,
                "it is of %s, and the recipe begins with %s, which is of %s: a recipe "
                "has one kind of samples",
                bound->class->sound ? "sounds" : "images", first->class->name,
                first->class->sound ? "sounds" : "images");
    }
    return 0;
}

/* Makes the largest result's size that of the tensor. */
static int limit_size(const struct hr_recipe *recipe, struct hr__state *state,
                      struct hr_error *error)
{
    int height = recipe->options.max_height, width = recipe->options.max_width;
    int most_height = hr__state_most_height(state), most_width = hr__state_most_width(state);
    state->height = !most_height || (height && height < most_height) ? height : most_height;
    state->width = !most_width || (width && width < most_width) ? width : most_width;
    if (state->width)
        return 0;
    return hr__fail(error, -EINVAL,
                    "nothing limits the size of the recipe's output, and batches reserve room for "
                    "the largest: end with a Resize or RandomShortestSize that has a max_size, or "
                    "set max_size (in C, max_height and max_width)");
}

/* Checks the operations of a recipe of images. */
static int check_images(struct hr_recipe *recipe, struct hr__state *state, struct hr_error *error)
{
    int r = hr__check_operations(recipe, state, error);
    if (r)
        return r;
    if (recipe->options.padded)
        return limit_size(recipe, state, error);
    if (!state->width)
        return hr__fail(
            error, -EINVAL,
            "the recipe's output has no fixed size: it needs a "
            "RandomResizedCrop, CenterCrop, RandomCrop, LetterBox or a Resize to height and width; "
            "or take samples of several sizes (collate=\"pad\" or \"list\"; in C, padded)");
    return 0;
}

/* Refuses scaled decoding where it could never act, or would not act like the resize. */
static int check_inexact(const struct hr_recipe *recipe, struct hr_error *error)
{
    int shrinks = 0;
    for (int i = 0; i < recipe->count; i++) {
        const struct hr_operation *o = &recipe->operation[i].operation;
        shrinks |= o->kind == HR_RESIZE && o->u.resize.antialias &&
                   !hr__is_nearest(o->u.resize.interpolation);
        shrinks |= o->kind == HR_RANDOM_RESIZED_CROP && o->u.random_resized_crop.antialias &&
                   !hr__is_nearest(o->u.random_resized_crop.interpolation);
        shrinks |= o->kind == HR_RANDOM_SHORTEST_SIZE && o->u.random_shortest_size.antialias &&
                   !hr__is_nearest(o->u.random_shortest_size.interpolation);
        shrinks |= o->kind == HR_LETTER_BOX && o->u.letter_box.antialias &&
                   !hr__is_nearest(o->u.letter_box.interpolation);
    }
    if (!recipe->options.inexact || shrinks)
        return 0;
    return hr__fail(error, -EINVAL,
                    "scaled decoding (exact=False; in C, inexact) needs a Resize, "
                    "RandomResizedCrop, RandomShortestSize or LetterBox with antialias in the "
                    "recipe: leave it out");
}

static int set_output(struct hr_recipe *recipe, const struct hr__state *state,
                      struct hr_error *error)
{
    struct hr_tensor_spec *spec = &recipe->spec;
    if (state->width > HR__MAX_SIDE || state->height > HR__MAX_SIDE)
        return hr__fail(error, -EINVAL,
                        "the recipe's output of %d x %d (height x width) is too "
                        "large: neither side may be more than %d",
                        state->height, state->width, HR__MAX_SIDE);
    spec->dtype = state->dtype;
    spec->layout = recipe->options.layout;
    hr__tensor_image(spec, 3, state->height, state->width);
    for (int i = 0; i < recipe->count; i++) {
        if (recipe->operation[i].operation.kind == HR_RANDOM_ERASING)
            hr__erasing_finish(&recipe->operation[i], state);
    }
    for (int c = 0; c < 3; c++) {
        recipe->scale[c] = (float)state->scale[c];
        recipe->shift[c] = (float)state->shift[c];
        if (!isfinite(recipe->scale[c]) || !isfinite(recipe->shift[c]))
            return hr__fail(error, -EINVAL,
                            "the recipe's Normalize leads beyond the range of "
                            "float32 in channel %d: use a larger std",
                            c);
    }
    return 0;
}

int hr_recipe_create(struct hr_recipe **out, const struct hr_operation *operations, size_t count,
                     const struct hr_recipe_options *options, struct hr_error *error)
{
    struct hr__state state = {.dtype = HR_UINT8, .scale = {1, 1, 1}};
    *out = NULL;
    if (count > HR__RECIPE_MAX_OPERATIONS)
        return hr__fail(error, -EINVAL, "a recipe of %zu operations is too long: at most %d", count,
                        HR__RECIPE_MAX_OPERATIONS);
    struct hr_recipe *recipe = hr__alloc(HR__TAG_RECIPE, 1, sizeof *recipe);
    if (!recipe)
        return hr__fail(error, -ENOMEM, "out of memory for a recipe");
    atomic_init(&recipe->references, 1);
    recipe->count = (int)count;
    int r = read_options(&recipe->options, options, error);
    if (!r)
        r = bind_operations(recipe, operations, error);
    if (!r && count && recipe->operation[0].class->sound) {
        if (recipe->options.max_width)
            r = hr__fail(error, -EINVAL,
                         "max_size (in C, max_height and max_width) is of images: PadOrTrim or a "
                         "window says how long sounds are at most; leave it out");
        if (!r)
            r = hr__sound_recipe(recipe, error);
    } else if (!r) {
        r = check_images(recipe, &state, error);
        if (!r)
            r = check_inexact(recipe, error);
        if (!r)
            r = set_output(recipe, &state, error);
    }
    if (r) {
        hr_recipe_unref(&recipe);
        return r;
    }
    *out = recipe;
    return 0;
}

int hr__recipe_create_raw(struct hr_recipe **out, size_t bytes, struct hr_error *error)
{
    *out = hr__alloc(HR__TAG_RECIPE, 1, sizeof **out);
    if (!*out)
        return hr__fail(error, -ENOMEM, "out of memory for a recipe");
    atomic_init(&(*out)->references, 1);
    hr_recipe_options_default(&(*out)->options);
    (*out)->is_raw = 1;
    (*out)->spec = (struct hr_tensor_spec){.dtype = HR_UINT8, .layout = HR_NCHW};
    hr__tensor_image(&(*out)->spec, 1, 1, (int)bytes);
    return 0;
}

size_t hr__recipe_raw_bytes(const struct hr_recipe *recipe)
{
    return recipe->is_raw ? recipe->spec.bytes : 0;
}

struct hr_recipe *hr_recipe_ref(struct hr_recipe *recipe)
{
    atomic_fetch_add_explicit(&recipe->references, 1, memory_order_relaxed);
    return recipe;
}

void hr_recipe_unref(struct hr_recipe **recipe)
{
    struct hr_recipe *r = *recipe;
    *recipe = NULL;
    /* release, then acquire: all uses by other owners happen before the free */
    if (!r || atomic_fetch_sub_explicit(&r->references, 1, memory_order_acq_rel) != 1)
        return;
    for (int v = 0; v < r->views; v++)
        hr_recipe_unref(&r->view[v]);
    hr__mel_destroy(&r->mel);
    hr__free(r);
}

size_t hr_recipe_views(const struct hr_recipe *recipe)
{
    return recipe->views ? (size_t)recipe->views : 1;
}

const struct hr_recipe *hr__recipe_view(const struct hr_recipe *recipe, size_t view)
{
    return recipe->views ? recipe->view[view] : recipe;
}

size_t hr__recipe_count(const struct hr_recipe *recipe)
{
    return (size_t)recipe->count;
}

const struct hr_operation *hr__recipe_operation(const struct hr_recipe *recipe, size_t i)
{
    return &recipe->operation[i].operation;
}

const struct hr_recipe_options *hr__recipe_options(const struct hr_recipe *recipe)
{
    return &recipe->options;
}

uint64_t hr__recipe_max_source(const struct hr_recipe *recipe)
{
    return recipe->is_sound ? recipe->options.max_source_bytes : 0;
}

int hr__recipe_cache_form(const struct hr_recipe *recipe, int *form, struct hr_error *error)
{
    int is_waveform = *form >= 0 && hr__form_is_waveform((enum hr_form) * form);
    if (recipe->is_sound) {
        if (*form == HR_FORM_AUTO || *form == HR_FORM_ENCODED || is_waveform)
            return 0;
        return hr__fail(error, -EINVAL,
                        "%s is a form of images, and the recipe is of sounds: a cache keeps them "
                        "encoded or as waveform",
                        hr_form_name((enum hr_form) * form));
    }
    if (is_waveform)
        return hr__fail(error, -EINVAL,
                        "%s is a form of sounds, and the recipe is of images: a cache keeps them "
                        "encoded, indexed, or as coefficients or planes",
                        hr_form_name((enum hr_form) * form));
    if (!recipe->options.inexact)
        return 0;
    if (*form == HR_FORM_AUTO)
        *form = HR_FORM_INDEXED;
    if (hr__form_is_scalable((enum hr_form) * form))
        return 0;
    return hr__fail(error, -EINVAL,
                    "a cache of %s holds images that are decoded exactly, and the recipe asks for "
                    "scaled decoding (exact=False; in C, inexact): pixels would depend on what is "
                    "cached; leave one of them out",
                    hr_form_name((enum hr_form) * form));
}

void hr_recipe_output(const struct hr_recipe *recipe, struct hr_tensor_spec *spec)
{
    *spec = recipe->spec;
}

void hr_recipe_view_output(const struct hr_recipe *recipe, size_t view, struct hr_tensor_spec *spec)
{
    *spec = hr__recipe_view(recipe, view)->spec;
}
