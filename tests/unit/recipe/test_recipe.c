/* Creating recipes: defaults, output shapes, and the message of every refusal. */
#include "recipe_cases.h"

static void refused(const struct hr_operation *operations, size_t count, const char *words)
{
    struct hr_error error = {0};
    struct hr_recipe *recipe = (void *)1;
    int r = hr_recipe_create(&recipe, operations, count, NULL, &error);
    if (r != -EINVAL || !strstr(error.message, words))
        fail_msg("expected \"%s\", got %d \"%s\"", words, r, error.message);
    assert_int_equal(error.code, -EINVAL);
    assert_null(recipe);
    assert_int_equal(hr_recipe_create(&recipe, operations, count, NULL, NULL), -EINVAL);
}

static struct hr_tensor_spec made(const struct hr_operation *operations, size_t count)
{
    struct hr_error error = {0};
    struct hr_recipe *recipe;
    struct hr_tensor_spec spec;
    if (hr_recipe_create(&recipe, operations, count, NULL, &error))
        fail_msg("%s", error.message);
    hr_recipe_output(recipe, &spec);
    hr_recipe_unref(&recipe);
    assert_null(recipe);
    return spec;
}

static void names_and_defaults(void **state)
{
    static const char *const names[] = {NULL,
                                        "RandomResizedCrop",
                                        "Resize",
                                        "CenterCrop",
                                        "RandomCrop",
                                        "RandomHorizontalFlip",
                                        "RandomVerticalFlip",
                                        "ColorJitter",
                                        "RandomGrayscale",
                                        "ToDtype",
                                        "Normalize",
                                        NULL};
    for (int k = 1; k <= 10; k++)
        assert_string_equal(hr_operation_name((enum hr_operation_kind)k), names[k]);
    assert_null(hr_operation_name((enum hr_operation_kind)0));
    assert_null(hr_operation_name((enum hr_operation_kind)1000));
    assert_null(hr_operation_name((enum hr_operation_kind) - 1));

    struct hr_operation o = op(HR_RANDOM_RESIZED_CROP);
    assert_true(o.u.random_resized_crop.scale[0] == 0.08);
    assert_true(o.u.random_resized_crop.scale[1] == 1.0);
    assert_true(o.u.random_resized_crop.ratio[0] == 0.75);
    assert_true(o.u.random_resized_crop.ratio[1] == 4.0 / 3.0);
    assert_int_equal(o.u.random_resized_crop.antialias, 1);
    assert_int_equal(o.u.random_resized_crop.height, 0);
    assert_int_equal(op(HR_RESIZE).u.resize.antialias, 1);
    assert_true(op(HR_RANDOM_HORIZONTAL_FLIP).u.flip.p == 0.5);
    assert_true(op(HR_RANDOM_VERTICAL_FLIP).u.flip.p == 0.5);
    assert_true(op(HR_RANDOM_GRAYSCALE).u.random_grayscale.p == 0.1);
    o = op(HR_COLOR_JITTER);
    assert_true(o.u.color_jitter.contrast[0] == 1 && o.u.color_jitter.hue[1] == 0);
    o = op(HR_TO_DTYPE);
    assert_int_equal(o.u.to_dtype.dtype, HR_FLOAT32);
    assert_int_equal(o.u.to_dtype.scale, 0);
    assert_true(op(HR_NORMALIZE).u.normalize.std[2] == 1);
}

/* Flags that are shorts do not change their neighbours. */
static void short_flags_are_set(void **state)
{
    struct hr_operation o = op(HR_RANDOM_AFFINE);
    struct hr_error error;
    const double on = 1, off = 0, half = 0.5;
    assert_int_equal(hr_operation_set(&o, "has_center", &on, 1, &error), 0);
    assert_int_equal(hr_operation_set(&o, "has_fill", &off, 1, &error), 0);
    assert_int_equal(o.u.random_affine.has_center, 1);
    assert_int_equal(o.u.random_affine.has_fill, 0);
    assert_int_equal(o.u.random_affine.interpolation, HR_NEAREST);
    assert_int_equal(hr_operation_set(&o, "has_fill", &half, 1, &error), -EINVAL);
}

static void outputs(void **state)
{
    struct hr_operation list[6];
    list[0] = sized(HR_RANDOM_RESIZED_CROP, 224, 200);
    struct hr_tensor_spec spec = made(list, 1);
    assert_int_equal(spec.dtype, HR_UINT8);
    assert_int_equal(spec.layout, HR_NCHW);
    assert_int_equal(spec.channels, 3);
    assert_int_equal(spec.height, 224);
    assert_int_equal(spec.width, 200);
    assert_int_equal(spec.bytes, 3 * 224 * 200);

    list[1] = op(HR_RANDOM_HORIZONTAL_FLIP);
    list[2] = to_dtype(HR_FLOAT16, 1);
    list[3] = op(HR_NORMALIZE);
    spec = made(list, 4);
    assert_int_equal(spec.dtype, HR_FLOAT16);
    assert_int_equal(spec.bytes, 2 * 3 * 224 * 200);

    /* For a known size the result of resizing the shorter side is known: 300x200 to 450x300. */
    list[1] = sized(HR_CENTER_CROP, 300, 200);
    list[2] = sized(HR_RESIZE, 300, 0);
    spec = made(list, 3);
    assert_int_equal(spec.height, 450);
    assert_int_equal(spec.width, 300);
    list[2].u.resize.max_size = 400; /* 300 x 400 / 450 truncates to 266 */
    spec = made(list, 3);
    assert_int_equal(spec.height, 400);
    assert_int_equal(spec.width, 266);

    list[1] = to_dtype(HR_FLOAT32, 1);
    list[2] = to_dtype(HR_BFLOAT16, 0);
    spec = made(list, 3);
    assert_int_equal(spec.dtype, HR_BFLOAT16);
    list[2] = to_dtype(HR_UINT8, 1);
    assert_int_equal(made(list, 3).dtype, HR_UINT8);
}

static void last_pass(void **state)
{
    struct hr_operation list[4] = {sized(HR_CENTER_CROP, 2, 2), to_dtype(HR_FLOAT32, 1),
                                   op(HR_NORMALIZE), op(HR_NORMALIZE)};
    list[2].u.normalize.mean[1] = 0.5;
    list[2].u.normalize.std[1] = 0.25;
    list[3].u.normalize.mean[1] = 2;
    list[3].u.normalize.std[1] = 4;
    struct hr_recipe *recipe;
    assert_int_equal(hr_recipe_create(&recipe, list, 4, NULL, NULL), 0);
    /* ((v / 255 - 0.5) / 0.25 - 2) / 4 = v / 255 - 1 */
    assert_float_equal(recipe->scale[1], 1.0 / 255, 1e-9);
    assert_float_equal(recipe->shift[1], -1.0, 1e-6);
    assert_true(recipe->scale[0] == (float)(1.0 / 255) && recipe->shift[0] == -0.0f);
    hr_recipe_unref(&recipe);
}

static void refused_sizes(void **state)
{
    struct hr_operation list[4];
    refused(NULL, 0, "no fixed size: it needs a RandomResizedCrop");
    list[0] = sized(HR_RESIZE, 256, 0);
    refused(list, 1, "no fixed size");
    list[0] = sized(HR_RANDOM_RESIZED_CROP, 0, 224);
    refused(list, 1,
            "RandomResizedCrop (operation 1 of the recipe): a size of 0 x 224 (height x width)");
    list[0] = sized(HR_CENTER_CROP, 5, -3);
    refused(list, 1, "CenterCrop (operation 1 of the recipe): a size of 5 x -3");
    list[0] = sized(HR_RANDOM_CROP, 65537, 1);
    refused(list, 1, "set both between 1 and 65536");
    list[0] = sized(HR_RESIZE, 256, -1);
    refused(list, 1, "Resize (operation 1 of the recipe): a size of 256 x -1");
    list[0] = sized(HR_RESIZE, 256, 300);
    list[0].u.resize.max_size = 400;
    refused(list, 1, "max_size goes only with one size");
    list[0] = sized(HR_RESIZE, 256, 0);
    list[0].u.resize.max_size = 256;
    refused(list, 1, "max_size 256 must be greater than the size 256");
    list[0].u.resize.max_size = -1;
    refused(list, 1, "max_size -1 is not possible");
    list[0] = sized(HR_CENTER_CROP, 1, 60000);
    list[1] = sized(HR_RESIZE, 60000, 0);
    refused(list, 2,
            "Resize (operation 2 of the recipe): an image of 60000 x 1 pixels is too long");
    list[1] = sized(HR_RESIZE, 2, 0);
    refused(list, 2, "output of 2 x 120000 (height x width) is too large");
    list[0] = sized(HR_CENTER_CROP, 10, 60000);
    list[1] = sized(HR_RESIZE, 1, 0);
    list[1].u.resize.max_size = 2;
    refused(list, 2, "too long and narrow");
    list[0] = sized(HR_RANDOM_RESIZED_CROP, 8, 8);
    list[0].u.random_resized_crop.interpolation = (enum hr_interpolation)7;
    refused(list, 1, "interpolation 7 is unknown: use bilinear, bicubic or one of the nearest");
}

static void refused_parameters(void **state)
{
    static const double scales[][2] = {{-0.1, 1}, {0.5, 0.4}, {0, 0}, {0.1, INFINITY}, {NAN, 1}};
    static const double ratios[][2] = {{0, 1}, {2, 1}, {1, INFINITY}, {NAN, NAN}};
    struct hr_operation list[2];
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        list[0] = sized(HR_RANDOM_RESIZED_CROP, 8, 8);
        memcpy(list[0].u.random_resized_crop.scale, scales[i], sizeof scales[i]);
        refused(list, 1, "must be two shares of the image's area");
    }
    for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; i++) {
        list[0] = sized(HR_RANDOM_RESIZED_CROP, 8, 8);
        memcpy(list[0].u.random_resized_crop.ratio, ratios[i], sizeof ratios[i]);
        refused(list, 1, "must be two positive ratios");
    }
    list[0] = sized(HR_RANDOM_CROP, 8, 8);
    list[0].u.random_crop.padding[2] = -1;
    refused(list, 1, "a padding of -1 pixels is not possible");
    list[0] = sized(HR_RANDOM_CROP, 8, 8);
    list[0].u.random_crop.padding_mode = (enum hr_padding_mode)4;
    refused(list, 1, "padding mode 4 is unknown: use constant, edge, reflect or symmetric");
    list[0] = sized(HR_RANDOM_CROP, 8, 8);
    list[0].u.random_crop.fill[1] = NAN;
    refused(list, 1, "a fill value is not a finite number");
    list[0] = sized(HR_CENTER_CROP, 8, 6);
    list[1] = sized(HR_RANDOM_CROP, 10, 6);
    refused(list, 2,
            "RandomCrop (operation 2 of the recipe): a crop of 10 x 6 (height x width) is "
            "larger than the image of 8 x 6: set pad_if_needed");
    list[1].u.random_crop.padding[1] = 1;
    refused(list, 2, "larger than the padded image of 9 x 6");
    list[1] = op(HR_RANDOM_HORIZONTAL_FLIP);
    list[1].u.flip.p = 1.5;
    refused(list, 2, "the probability p = 1.5 is outside 0..1");
    list[1] = op(HR_RANDOM_GRAYSCALE);
    list[1].u.random_grayscale.p = NAN;
    refused(list, 2, "RandomGrayscale (operation 2 of the recipe): the probability");
    list[1] = op(HR_COLOR_JITTER);
    list[1].u.color_jitter.contrast[0] = 1.5;
    refused(list, 2, "contrast (1.5, 1) must be two factors, the smaller first, not negative");
    list[1] = op(HR_COLOR_JITTER);
    list[1].u.color_jitter.hue[1] = 0.6;
    refused(list, 2, "hue (0, 0.6) must be two factors, the smaller first, within -0.5..0.5");
    list[1] = op((enum hr_operation_kind)1000);
    refused(list, 2, "operation 2 of the recipe has the unknown kind 1000");
}

static void refused_types(void **state)
{
    struct hr_operation list[4] = {sized(HR_CENTER_CROP, 8, 8), op(HR_NORMALIZE)};
    refused(list, 2,
            "Normalize (operation 2 of the recipe): the values are still uint8: put a "
            "ToDtype");
    list[1] = to_dtype((enum hr_dtype)9, 0);
    refused(list, 2, "type 9 is unknown");
    list[1] = to_dtype(HR_FLOAT32, 1);
    list[2] = op(HR_NORMALIZE);
    list[2].u.normalize.std[1] = 0;
    refused(list, 3, "the std 0 of channel 1 must be a positive number");
    list[2].u.normalize.std[1] = 1e-60;
    refused(list, 3, "beyond the range of float32 in channel 1");
    list[2] = op(HR_NORMALIZE);
    list[2].u.normalize.mean[0] = INFINITY;
    refused(list, 3, "the mean of channel 0 is not a finite number");
    list[2] = op(HR_NORMALIZE);
    list[3] = op(HR_COLOR_JITTER);
    refused(list, 4,
            "ColorJitter (operation 4 of the recipe): the colours are no longer 0..1 "
            "after Normalize: put it before Normalize");
    list[3] = op(HR_RANDOM_GRAYSCALE);
    refused(list, 4, "put it before Normalize");
    list[3] = to_dtype(HR_UINT8, 1);
    refused(list, 4, "normalised values do not fit into uint8");
    list[2] = to_dtype(HR_UINT8, 0);
    refused(list, 3, "has another scale");
    list[1] = to_dtype(HR_FLOAT32, 0);
    list[2] = op(HR_COLOR_JITTER);
    refused(list, 3, "floats are expected in 0..1 here, but the ToDtype before it leaves 0..255");
}

static void options(void **state)
{
    struct hr_operation list[40];
    struct hr_recipe_options o;
    struct hr_recipe *recipe;
    struct hr_error error = {0};
    for (int i = 0; i < 40; i++)
        list[i] = sized(HR_CENTER_CROP, 8, 8);
    refused(list, 33, "a recipe of 33 operations is too long: at most 32");
    assert_int_equal(made(list, 32).width, 8);
    hr_recipe_options_default(&o);
    assert_int_equal(o.max_pixels, 178956970);
    assert_int_equal(o.apply_exif_orientation, 0);
    /* A program built before max_pixels existed. */
    struct hr_recipe_options old;
    memset(&old, 0x55, sizeof old);
    hr_recipe_options_init(&old, offsetof(struct hr_recipe_options, max_pixels));
    assert_int_equal(old.max_pixels, 0x5555555555555555);
    assert_int_equal(hr_recipe_create(&recipe, list, 1, &old, NULL), 0);
    hr_recipe_unref(&recipe);
    o.size = 3;
    assert_int_equal(hr_recipe_create(&recipe, list, 1, &o, &error), -EINVAL);
    assert_non_null(strstr(error.message, "hr_recipe_options_default"));
    hr_recipe_options_default(&o);
    o.layout = (enum hr_layout)5;
    assert_int_equal(hr_recipe_create(&recipe, list, 1, &o, &error), -EINVAL);
    assert_non_null(strstr(error.message, "layout 5"));
    hr_recipe_options_default(&o);
    o.max_pixels = 0;
    assert_int_equal(hr_recipe_create(&recipe, list, 1, &o, &error), -EINVAL);
    assert_non_null(strstr(error.message, "max_pixels 0"));
    hr_recipe_options_default(&o);
    assert_int_equal(o.inexact, 0);
    o.inexact = 1;
    assert_int_equal(hr_recipe_create(&recipe, list, 1, &o, &error), -EINVAL);
    assert_non_null(strstr(error.message, "exact=False"));
    struct hr_operation shrinking = sized(HR_RANDOM_RESIZED_CROP, 8, 8);
    shrinking.u.random_resized_crop.antialias = 0;
    assert_int_equal(hr_recipe_create(&recipe, &shrinking, 1, &o, &error), -EINVAL);
    shrinking.u.random_resized_crop.antialias = 1;
    /* A program built before `inexact` existed, with garbage in the padding. */
    o.size = offsetof(struct hr_recipe_options, inexact);
    o.reserved = 77;
    assert_int_equal(hr_recipe_create(&recipe, &shrinking, 1, &o, &error), 0);
    assert_int_equal(hr__recipe_options(recipe)->inexact, 0);
    hr_recipe_unref(&recipe);
    o.size = sizeof o;
    assert_int_equal(hr_recipe_create(&recipe, &shrinking, 1, &o, &error), 0);
    assert_int_equal(hr__recipe_options(recipe)->inexact, 1);
    int form = HR_FORM_AUTO;
    assert_int_equal(hr__recipe_cache_form(recipe, &form, &error), 0);
    assert_int_equal(form, HR_FORM_INDEXED);
    form = HR_FORM_ENCODED;
    assert_int_equal(hr__recipe_cache_form(recipe, &form, &error), 0);
    assert_int_equal(form, HR_FORM_ENCODED);
    form = HR_FORM_PLANES;
    assert_int_equal(hr__recipe_cache_form(recipe, &form, &error), -EINVAL);
    assert_non_null(strstr(error.message, "planes"));
    hr_recipe_unref(&recipe);
    hr_recipe_options_default(&o);
    o.layout = HR_NHWC;
    assert_int_equal(hr_recipe_create(&recipe, list, 1, &o, &error), 0);
    struct hr_tensor_spec spec;
    hr_recipe_output(recipe, &spec);
    assert_int_equal(spec.layout, HR_NHWC);
    struct hr_recipe *other = hr_recipe_ref(recipe);
    hr_recipe_unref(&recipe);
    hr_recipe_output(other, &spec);
    assert_int_equal(spec.width, 8);
    hr_recipe_unref(&other);
    hr_recipe_unref(&other); /* NULL is accepted */
    assert_int_equal(hr__allocated(HR__TAG_RECIPE), 0);
}

static void no_memory(void **state)
{
    struct hr_operation list[1] = {sized(HR_CENTER_CROP, 8, 8)};
    struct hr_error error = {0};
    struct hr_recipe *recipe;
    hr__alloc_fail_at(1, 0);
    assert_int_equal(hr_recipe_create(&recipe, list, 1, NULL, &error), -ENOMEM);
    hr__alloc_fail_at(0, 0);
    assert_null(recipe);
    assert_string_equal(error.message, "out of memory for a recipe");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_defaults),
        cmocka_unit_test(short_flags_are_set),
        cmocka_unit_test(outputs),
        cmocka_unit_test(last_pass),
        cmocka_unit_test(refused_sizes),
        cmocka_unit_test(refused_parameters),
        cmocka_unit_test(refused_types),
        cmocka_unit_test(options),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests_name("recipe", tests, NULL, NULL);
}
