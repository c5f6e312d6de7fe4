/*
 * Random chains of filters, resizes, crops and flips: a small crop of the result has the bytes that
 * the whole result has there, though much less is decoded and computed for it.
 */
#include "recipe_cases.h"

#define LONGEST 6
#define LARGEST 600 /* pixels: no chain's result is larger, or it is left out */

static int below(struct hr__random *r, int n)
{
    return (int)hr__random_below(r, (uint64_t)n);
}

static void set_geometry(struct hr_operation *o, struct hr__random *r)
{
    enum hr_interpolation how = below(r, 2) ? HR_NEAREST : HR_BILINEAR;
    int filled = below(r, 2);
    switch (o->kind) {
    case HR_RANDOM_AFFINE:
        for (int i = 0; i < 2; i++) {
            o->u.random_affine.degrees[i] = i ? 40 : -40;
            o->u.random_affine.translate[i] = 0.3;
            o->u.random_affine.scale[i] = 0.5 + i;
            o->u.random_affine.shear[i] = i ? 10 : -10;
        }
        o->u.random_affine.interpolation = how;
        o->u.random_affine.has_fill = (short)filled;
        o->u.random_affine.fill[0] = 77;
        break;
    case HR_RANDOM_ROTATION:
        o->u.random_rotation.degrees[0] = below(r, 3) ? -90 : 90;
        o->u.random_rotation.degrees[1] = 90;
        o->u.random_rotation.expand = below(r, 2);
        o->u.random_rotation.interpolation = how;
        o->u.random_rotation.has_fill = filled;
        break;
    case HR_RANDOM_PERSPECTIVE:
        o->u.random_perspective.p = 1;
        o->u.random_perspective.interpolation = how;
        break;
    case HR_ELASTIC_TRANSFORM:
        o->u.elastic_transform.alpha[0] = below(r, 30);
        o->u.elastic_transform.interpolation = how;
        break;
    case HR_PAD:
        for (int i = 0; i < 4; i++)
            o->u.pad.padding[i] = below(r, 7);
        o->u.pad.padding_mode = (enum hr_padding_mode)below(r, 4);
        break;
    case HR_RANDOM_ZOOM_OUT:
        o->u.random_zoom_out.p = 0.9;
        o->u.random_zoom_out.fill[1] = 99;
        break;
    case HR_RANDOM_SHORTEST_SIZE:
        for (int i = 0; i < 3; i++)
            o->u.random_shortest_size.min_size[i] = 20 + below(r, 40);
        o->u.random_shortest_size.max_size = below(r, 2) * 60;
        break;
    case HR_LETTER_BOX:
        o->u.letter_box.height = 15 + below(r, 50);
        o->u.letter_box.width = 15 + below(r, 50);
        break;
    default:
        break;
    }
}

static void set_colors(struct hr_operation *o, struct hr__random *r)
{
    switch (o->kind) {
    case HR_GAUSSIAN_BLUR:
        for (int i = 0; i < 2; i++)
            o->u.gaussian_blur.kernel_size[i] = 1 + 2 * below(r, 12);
        o->u.gaussian_blur.sigma[1] = 5;
        break;
    case HR_RANDOM_ADJUST_SHARPNESS:
        o->u.adjust.p = 1;
        o->u.adjust.sharpness = 1.05 + below(r, 20) * 0.1; /* never 1, which is no filter */
        break;
    case HR_COLOR_JITTER:
        o->u.color_jitter.contrast[0] = 0.5;
        o->u.color_jitter.saturation[0] = 0.5;
        o->u.color_jitter.hue[0] = -0.2;
        break;
    case HR_RAND_AUGMENT:
        o->u.auto_augment.num_ops = below(r, 5);
        break;
    case HR_TIMM_RAND_AUGMENT:
        o->u.timm.num_ops = below(r, 4);
        o->u.timm.choices = (enum hr_timm_choices)below(r, 5);
        o->u.timm.p = 1;
        o->u.timm.any_interpolation = 1;
        break;
    case HR_TIMM_AUTO_AUGMENT:
        o->u.timm.policy = (enum hr_timm_policy)below(r, 5);
        break;
    case HR_TIMM_AUG_MIX:
        o->u.timm.blended = below(r, 2);
        o->u.timm.magnitude_std = 1;
        break;
    default:
        break;
    }
}

static struct hr_operation any(struct hr__random *r)
{
    static const enum hr_operation_kind kinds[] = {HR_RANDOM_AFFINE,
                                                   HR_RANDOM_ROTATION,
                                                   HR_RANDOM_PERSPECTIVE,
                                                   HR_ELASTIC_TRANSFORM,
                                                   HR_PAD,
                                                   HR_GAUSSIAN_BLUR,
                                                   HR_GAUSSIAN_NOISE,
                                                   HR_RANDOM_ADJUST_SHARPNESS,
                                                   HR_RANDOM_EQUALIZE,
                                                   HR_RANDOM_AUTOCONTRAST,
                                                   HR_COLOR_JITTER,
                                                   HR_RANDOM_PHOTOMETRIC_DISTORT,
                                                   HR_RAND_AUGMENT,
                                                   HR_AUG_MIX,
                                                   HR_TIMM_RAND_AUGMENT,
                                                   HR_TIMM_AUTO_AUGMENT,
                                                   HR_TIMM_AUG_MIX,
                                                   HR_RANDOM_HORIZONTAL_FLIP,
                                                   HR_RANDOM_VERTICAL_FLIP,
                                                   HR_RESIZE,
                                                   HR_RANDOM_RESIZED_CROP,
                                                   HR_RANDOM_ZOOM_OUT,
                                                   HR_RANDOM_SHORTEST_SIZE,
                                                   HR_LETTER_BOX,
                                                   HR_CENTER_CROP};
    enum hr_operation_kind kind = kinds[below(r, sizeof kinds / sizeof kinds[0])];
    struct hr_operation o = op(kind);
    if (kind == HR_RESIZE || kind == HR_RANDOM_RESIZED_CROP || kind == HR_CENTER_CROP)
        o = sized(kind, 15 + below(r, 50), 15 + below(r, 50));
    set_geometry(&o, r);
    set_colors(&o, r);
    return o;
}

static struct hr_recipe *oriented(const struct hr_operation *list, size_t count)
{
    struct hr_recipe_options options;
    struct hr_recipe *recipe;
    struct hr_error error;
    hr_recipe_options_default(&options);
    options.apply_exif_orientation = 1;
    if (hr_recipe_create(&recipe, list, count, &options, &error))
        fail_msg("%s", error.message);
    return recipe;
}

/* Where CenterCrop, to `size` pixels, has the first pixel of an image of `of` pixels. */
static int first_of(int of, int size)
{
    return of < size ? (size - of) / 2 : -(int)rint((of - size) / 2.0);
}

/* Runs a chain, and compares its crop with its whole result. Returns 0 if that is too large. */
static int check_chain(uint64_t number)
{
    static uint8_t whole[3][LARGEST][LARGEST], crop[3 * 16 * 16];
    struct hr_operation list[LONGEST + 2];
    struct hr__random r;
    hr__random_init(&r, 5, 0, 0, number);
    int count = 1 + below(&r, LONGEST), width = 3 + below(&r, 9), height = 3 + below(&r, 9);
    for (int i = 0; i < count; i++)
        list[i] = any(&r);
    /* a filter at the end: both recipes then do the same up to it, and no resize after it */
    list[count] = op(HR_RANDOM_ADJUST_SHARPNESS);
    set_colors(&list[count++], &r);
    struct hr__planar image = image_of(20 + below(&r, 80), 20 + below(&r, 80), number);
    const struct hr_draw_key key = {.seed = 2, .index = number};
    int orientation = 1 + below(&r, 8), turned = orientation >= 5;
    list[count] = sized(HR_CENTER_CROP, LARGEST, LARGEST);
    struct hr_recipe *all = oriented(list, (size_t)count + 1);
    list[count] = sized(HR_CENTER_CROP, height, width);
    struct hr_recipe *part = oriented(list, (size_t)count + 1);
    struct hr__prepare_plan plan = plan_of_key(part, turned ? image.height : image.width,
                                               turned ? image.width : image.height, key);
    int before_x = hr__width_before(&plan, plan.bytes),
        before_y = hr__height_before(&plan, plan.bytes);
    int fits = before_x <= LARGEST && before_y <= LARGEST;
    if (fits) {
        run_how(all, &image, orientation, &key, AS_PLANNED, whole, NULL);
        run_how(part, &image, orientation, &key, AS_PLANNED, crop, NULL);
    }
    int x = first_of(before_x, LARGEST) - first_of(before_x, width);
    int y = first_of(before_y, LARGEST) - first_of(before_y, height);
    for (int c = 0; c < 3 && fits; c++)
        for (int row = 0; row < height; row++)
            assert_memory_equal(whole[c][y + row] + x, crop + (c * height + row) * width,
                                (size_t)width);
    image_free(&image);
    hr_recipe_unref(&all);
    hr_recipe_unref(&part);
    return fits;
}

static void crops_have_the_bytes_of_the_whole(void **state)
{
    int checked = 0, chains = test_rounds(400);
    for (int i = 0; i < chains; i++)
        checked += check_chain((uint64_t)i);
    assert_true(checked > chains * 8 / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crops_have_the_bytes_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
