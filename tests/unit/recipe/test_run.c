/*
 * Runs recipes on synthetic images: compares the region with the whole image, the fused pass with
 * the general path, and padding, orientation and types with plain loops. Each allocation fails
 * once.
 */
#include "recipe_cases.h"

#include "recipe/orient.h"

#define MAX_OUT (3 * 96 * 96)

static float first[MAX_OUT], second[MAX_OUT];

static enum hr_interpolation random_filter(struct hr__random *r)
{
    return hr__random_below(r, 2) ? HR_BICUBIC : HR_BILINEAR;
}

static struct hr_operation random_operation(struct hr__random *r)
{
    int height = 20 + (int)hr__random_below(r, 70), width = 20 + (int)hr__random_below(r, 70);
    enum hr_operation_kind kind = (enum hr_operation_kind)(1 + hr__random_below(r, 8));
    struct hr_operation o = kind <= HR_RANDOM_CROP ? sized(kind, height, width) : op(kind);
    switch (kind) {
    case HR_RANDOM_RESIZED_CROP:
        o.u.random_resized_crop.interpolation = random_filter(r);
        o.u.random_resized_crop.antialias = hr__random_below(r, 4) != 0;
        break;
    case HR_RESIZE:
        o.u.resize.interpolation = random_filter(r);
        o.u.resize.antialias = hr__random_below(r, 4) != 0;
        o.u.resize.width = hr__random_below(r, 2) ? 0 : width;
        break;
    case HR_RANDOM_CROP:
        o.u.random_crop.pad_if_needed = 1;
        o.u.random_crop.padding_mode = (enum hr_padding_mode)hr__random_below(r, 4);
        for (int k = 0; k < 4; k++)
            o.u.random_crop.padding[k] = (int)hr__random_below(r, 2) * 7;
        break;
    case HR_COLOR_JITTER:
        o.u.color_jitter.brightness[1] = 1.5;
        o.u.color_jitter.contrast[0] = 0.5;
        o.u.color_jitter.saturation[1] = 2;
        o.u.color_jitter.hue[1] = 0.3;
        break;
    case HR_RANDOM_GRAYSCALE:
        o.u.random_grayscale.p = 0.3;
        break;
    default:
        break;
    }
    return o;
}

/* Makes a random list of operations, to float32 of 0..255. One in three has the usual shape that
 * can be fused, with colours; half of the others end in a resize. */
static struct hr_recipe *random_recipe(struct hr__random *r, enum hr_layout layout)
{
    struct hr_operation list[16];
    struct hr_recipe_options options;
    struct hr_recipe *recipe;
    struct hr_error error = {0};
    size_t n = 0;
    if (hr__random_below(r, 3) == 0) {
        list[n++] = sized(HR_RANDOM_RESIZED_CROP, 60, 50);
        if (hr__random_below(r, 2))
            list[n++] = to_dtype(HR_FLOAT32, 1); /* colours on floats, else on bytes */
        list[n] = op(HR_COLOR_JITTER);
        list[n++].u.color_jitter.contrast[1] = 1.9;
        list[n++] = op(HR_RANDOM_HORIZONTAL_FLIP);
    } else {
        enum hr_operation_kind last = hr__random_below(r, 2) ? HR_CENTER_CROP : HR_RESIZE;
        size_t wanted = 1 + (size_t)hr__random_below(r, 5);
        while (n < wanted)
            list[n++] = random_operation(r);
        list[n++] =
            sized(last, 10 + (int)hr__random_below(r, 80), 10 + (int)hr__random_below(r, 80));
    }
    list[n++] = to_dtype(HR_FLOAT32, 1);
    list[n] = op(HR_NORMALIZE);
    for (int c = 0; c < 3; c++)
        list[n].u.normalize.std[c] = 1.0 / 255;
    hr_recipe_options_default(&options);
    options.layout = layout;
    options.apply_exif_orientation = 1;
    if (hr_recipe_create(&recipe, list, n + 1, &options, &error))
        fail_msg("%s", error.message);
    return recipe;
}

static size_t elements(const struct hr_recipe *recipe)
{
    struct hr_tensor_spec spec;
    hr_recipe_output(recipe, &spec);
    assert_true(spec.bytes <= sizeof first);
    return (size_t)3 * (size_t)spec.height * (size_t)spec.width;
}

static void region_is_exact(void **state)
{
    struct hr__random r;
    int paths[2] = {0, 0}, rounds = test_rounds(300);
    hr__random_init(&r, 21, 0, 0, 0);
    for (uint64_t i = 0; i < (uint64_t)rounds; i++) {
        struct hr_recipe *recipe = random_recipe(&r, i & 1 ? HR_NHWC : HR_NCHW);
        int width = 25 + (int)hr__random_below(&r, 300),
            height = 25 + (int)hr__random_below(&r, 300);
        int orientation = 1 + (int)hr__random_below(&r, 8), fused;
        struct hr__planar image = image_of(width, height, i);
        struct hr_draw_key key = {1, 2, i};
        size_t n = elements(recipe);
        run_how(recipe, &image, orientation, &key, AS_PLANNED, first, &fused);
        run_how(recipe, &image, orientation, &key, WHOLE, second, NULL);
        assert_memory_equal(first, second, n * sizeof *first);
        paths[fused]++;
        image_free(&image);
        hr_recipe_unref(&recipe);
    }
    assert_true(paths[0] > rounds / 6 && paths[1] > rounds / 6);
}

/* Returns the factor by which a colour step may enlarge a difference. */
static double amplification(const struct hr__step *step)
{
    if (step->kind == HR__STEP_HUE)
        return 6;
    if (step->kind >= HR__STEP_BRIGHTNESS && step->kind <= HR__STEP_SATURATION)
        return fmax(1, 2 * step->u.factor);
    return 1;
}

/* Measures the distance between the paths; rounded weights cause at most 0.0122/255 for bilinear,
 * the 13 bits of bicubic a little more. */
static void both_paths_agree(void **state)
{
    struct hr__random r;
    int compared = 0, rounds = test_rounds(450);
    hr__random_init(&r, 22, 0, 0, 0);
    for (uint64_t i = 0; i < (uint64_t)rounds; i++) {
        struct hr_recipe *recipe = random_recipe(&r, HR_NCHW);
        struct hr__planar image =
            image_of(40 + (int)hr__random_below(&r, 200), 40 + (int)hr__random_below(&r, 200), i);
        struct hr_draw_key key = {1, 2, i};
        size_t n = elements(recipe);
        int fused, bicubic = 0;
        double most = 0, amplified = 1;
        run_how(recipe, &image, 1, &key, AS_PLANNED, first, &fused);
        struct hr__prepare_plan plan = plan_of_key(recipe, image.width, image.height, key);
        if (fused && !plan.bytes) {
            bicubic = plan.rest.interpolation == HR_BICUBIC;
            for (int k = 0; k < plan.count; k++)
                amplified *= amplification(&plan.step[k]);
            run_how(recipe, &image, 1, &key, GENERAL, second, NULL);
            for (size_t k = 0; k < n; k++)
                most = fmax(most, fabs((double)first[k] - (double)second[k]));
            if (most > (bicubic ? 0.04 : 0.02) * amplified)
                fail_msg("case %d: %g/255 apart", (int)i, most);
            compared++;
        }
        image_free(&image);
        hr_recipe_unref(&recipe);
    }
    assert_true(compared > rounds / 10);
}

static void padding_shows_the_right_pixels(void **state)
{
    struct hr__planar image = image_of(9, 7, 3);
    for (int mode = HR_PAD_CONSTANT; mode <= HR_PAD_SYMMETRIC; mode++) {
        struct hr_operation list[3] = {sized(HR_RANDOM_CROP, 20, 21), to_dtype(HR_FLOAT32, 0)};
        static const int padding[4] = {5, 6, 20, 9};
        static const double fill[3] = {10, 20.5, 255};
        memcpy(list[0].u.random_crop.padding, padding, sizeof padding);
        memcpy(list[0].u.random_crop.fill, fill, sizeof fill);
        list[0].u.random_crop.padding_mode = (enum hr_padding_mode)mode;
        struct hr_recipe *recipe = recipe_of(list, 2);
        for (uint64_t i = 0; i < 40; i++) {
            struct hr__prepare_plan plan = plan_of(recipe, 9, 7, i);
            struct hr_draw_key key = {.seed = 11, .epoch = 3, .index = i};
            int top = plan.step[1].u.crop.y - 6, left = plan.step[1].u.crop.x - 5;
            run_how(recipe, &image, 1, &key, AS_PLANNED, first, NULL);
            for (int c = 0; c < 3; c++)
                for (int y = 0; y < 20; y++)
                    for (int x = 0; x < 21; x++) {
                        int sy = hr__pad_index(y + top, 7, (enum hr_padding_mode)mode);
                        int sx = hr__pad_index(x + left, 9, (enum hr_padding_mode)mode);
                        double want =
                            sx < 0 || sy < 0 ? fill[c] : image.plane[c][sy * image.stride + sx];
                        assert_true(first[(c * 20 + y) * 21 + x] == want);
                    }
        }
        hr_recipe_unref(&recipe);
    }
    image_free(&image);
}

/* After Normalize the fill is in normalised units, and CenterCrop pads with 0. */
static void padding_after_normalize(void **state)
{
    struct hr__planar image = image_of(6, 6, 4);
    struct hr_operation list[4] = {to_dtype(HR_FLOAT32, 1), op(HR_NORMALIZE),
                                   sized(HR_CENTER_CROP, 8, 8), sized(HR_RANDOM_CROP, 10, 8)};
    struct hr_draw_key key = {0, 0, 0};
    for (int c = 0; c < 3; c++) {
        list[1].u.normalize.mean[c] = 0.4;
        list[1].u.normalize.std[c] = 0.2;
        list[3].u.random_crop.fill[c] = -3;
    }
    list[3].u.random_crop.padding[1] = 2;
    struct hr_recipe *recipe = recipe_of(list, 4);
    run_how(recipe, &image, 1, &key, AS_PLANNED, first, NULL);
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < 10; y++)
            for (int x = 0; x < 8; x++) {
                double want = y < 2 ? -3 : 0;
                if (y >= 3 && y < 9 && x >= 1 && x < 7)
                    want = (image.plane[c][(y - 3) * image.stride + x - 1] / 255.0 - 0.4) / 0.2;
                assert_float_equal(first[(c * 10 + y) * 8 + x], want, 1e-5);
            }
    hr_recipe_unref(&recipe);
    image_free(&image);
}

/* Maps pixel (x, y) of the displayed image, as the Exif standard defines it: by the sides on which
 * the stored first row and first column are displayed. */
static void seen_at(int orientation, int width, int height, int x, int y, int *seen_x, int *seen_y)
{
    static const struct {
        char row, column; /* side on which the stored row 0, column 0 is displayed */
    } sides[9] = {{0, 0},     {'t', 'l'}, {'t', 'r'}, {'b', 'r'}, {'b', 'l'},
                  {'l', 't'}, {'r', 't'}, {'r', 'b'}, {'l', 'b'}};
    char row = sides[orientation].row, column = sides[orientation].column;
    *seen_x = row == 'l' ? y : row == 'r' ? height - 1 - y : column == 'l' ? x : width - 1 - x;
    *seen_y = row == 't' ? y : row == 'b' ? height - 1 - y : column == 't' ? x : width - 1 - x;
}

static void orientations(void **state)
{
    enum { W = 37, H = 22 };
    struct hr__planar image = image_of(W, H, 5);
    for (int orientation = 1; orientation <= 8; orientation++) {
        int turned = orientation >= 5, width = turned ? H : W, height = turned ? W : H;
        struct hr_operation list[1] = {sized(HR_CENTER_CROP, height, width)};
        struct hr_recipe_options options;
        struct hr_recipe *recipe;
        struct hr_draw_key key = {0, 0, 0};
        uint8_t *out = (uint8_t *)first;
        hr_recipe_options_default(&options);
        options.apply_exif_orientation = 1;
        assert_int_equal(hr_recipe_create(&recipe, list, 1, &options, NULL), 0);
        run_how(recipe, &image, orientation, &key, AS_PLANNED, out, NULL);
        for (int c = 0; c < 3; c++)
            for (int y = 0; y < H; y++)
                for (int x = 0; x < W; x++) {
                    int sx, sy;
                    seen_at(orientation, W, H, x, y, &sx, &sy);
                    assert_int_equal(out[(c * height + sy) * width + sx],
                                     image.plane[c][y * image.stride + x]);
                }
        hr_recipe_unref(&recipe);
    }
    /* ignored by default */
    struct hr_operation list[1] = {sized(HR_CENTER_CROP, H, W)};
    struct hr_recipe *recipe = recipe_of(list, 1);
    struct hr_draw_key key = {0, 0, 0};
    run_how(recipe, &image, 6, &key, AS_PLANNED, first, NULL);
    assert_memory_equal(first, image.plane[0], W);
    hr_recipe_unref(&recipe);
    image_free(&image);
}

static double value_of(const void *out, enum hr_dtype dtype, size_t i)
{
    uint16_t half;
    float f;
    switch (dtype) {
    case HR_UINT8:
        return ((const uint8_t *)out)[i];
    case HR_FLOAT32:
        return ((const float *)out)[i];
    case HR_BFLOAT16: {
        uint32_t bits = (uint32_t)((const uint16_t *)out)[i] << 16;
        memcpy(&f, &bits, sizeof f);
        return f;
    }
    default:
        half = ((const uint16_t *)out)[i];
        return ldexp((half & 0x7fff) < 0x400 ? half & 0x3ff : (half & 0x3ff) + 0x400,
                     ((half & 0x7fff) < 0x400 ? 1 : half >> 10 & 31) - 25) *
               (half >> 15 ? -1 : 1);
    }
}

/* Every type and layout has the values of float32 NCHW, on both paths. */
static void types_and_layouts(void **state)
{
    static const double relative[] = {0, 1.0 / 2048, 1.0 / 256, 1e-7};
    static uint8_t out[sizeof first];
    struct hr__planar image = image_of(90, 70, 6);
    struct hr_draw_key key = {5, 0, 1};
    for (int general = 0; general < 2; general++) {
        struct hr_operation list[3] = {
            sized(HR_RANDOM_RESIZED_CROP, 30, 31), to_dtype(HR_FLOAT32, 0), {0}};
        enum how how = general ? GENERAL : AS_PLANNED;
        struct hr_recipe *recipe = recipe_of(list, 2);
        run_how(recipe, &image, 1, &key, how, first, NULL);
        hr_recipe_unref(&recipe);
        for (int dtype = 0; dtype < 4; dtype++) {
            for (int layout = 0; layout < 2; layout++) {
                struct hr_recipe_options options;
                hr_recipe_options_default(&options);
                options.layout = (enum hr_layout)layout;
                list[1] = to_dtype((enum hr_dtype)dtype, 0);
                assert_int_equal(hr_recipe_create(&recipe, list, 2, &options, NULL), 0);
                run_how(recipe, &image, 1, &key, how, out, NULL);
                for (size_t i = 0; i < 3 * 30 * 31; i++) {
                    size_t c = i / (30 * 31), p = i % (30 * 31);
                    double got = value_of(out, (enum hr_dtype)dtype, layout ? p * 3 + c : i);
                    double want = dtype == HR_UINT8 ? floor(first[i] + 0.5) : (double)first[i];
                    assert_true(fabs(got - want) <= relative[dtype] * want);
                }
                hr_recipe_unref(&recipe);
            }
        }
    }
    image_free(&image);
}

/* Without an operation that changes values, uint8 pixels are unchanged. */
static void bytes_pass_unchanged(void **state)
{
    struct hr__planar image = image_of(50, 40, 7);
    struct hr_operation list[2] = {sized(HR_CENTER_CROP, 30, 20), op(HR_RANDOM_HORIZONTAL_FLIP)};
    struct hr_draw_key key = {0, 0, 0};
    uint8_t *out = (uint8_t *)first;
    list[1].u.flip.p = 1;
    struct hr_recipe *recipe = recipe_of(list, 2);
    run_how(recipe, &image, 1, &key, AS_PLANNED, out, NULL);
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < 30; y++)
            for (int x = 0; x < 20; x++)
                assert_int_equal(out[(c * 30 + y) * 20 + x],
                                 image.plane[c][(y + 5) * image.stride + 15 + 19 - x]);
    hr_recipe_unref(&recipe);
    image_free(&image);
}

static int prepare_once(const struct hr_recipe *recipe, const struct hr__planar *image,
                        struct hr_error *error)
{
    struct hr__scratch *scratch;
    const struct hr__prepare_plan *plan;
    struct hr_region region;
    struct hr_image_info info = {HR_IMAGE_JPEG, image->width, image->height, 3, 6};
    struct hr_draw_key key = {0, 0, 9};
    int r = hr__scratch_create(&scratch, error);
    if (r)
        return r;
    r = hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, error);
    if (!r) {
        struct hr__planar pixels = *image;
        for (int c = 0; c < 3; c++)
            pixels.plane[c] += region.y * pixels.stride + region.x;
        pixels.width = region.width;
        pixels.height = region.height;
        r = hr__recipe_run(recipe, scratch, plan, &pixels, first, error);
    }
    assert_true(r || hr__scratch_memory(scratch) >= sizeof *scratch);
    hr__scratch_destroy(&scratch);
    return r;
}

/* Floats are coloured before they become bytes again for a filter. */
static void floats_are_colored_before_filters(void **state)
{
    uint8_t out[3][20][20];
    struct hr_operation gray = op(HR_RANDOM_GRAYSCALE), invert = op(HR_RANDOM_INVERT);
    gray.u.random_grayscale.p = 1;
    invert.u.adjust.p = 1;
    const struct hr_operation list[] = {to_dtype(HR_FLOAT32, 1), gray, to_dtype(HR_UINT8, 1),
                                        invert, sized(HR_CENTER_CROP, 20, 20)};
    struct hr_recipe *recipe = recipe_of(list, 5);
    struct hr__planar image = image_of(50, 40, 1);
    const struct hr_draw_key key = {0};
    run_how(recipe, &image, 1, &key, AS_PLANNED, out, NULL);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    assert_memory_equal(out[0], out[2], sizeof out[0]);
    image_free(&image);
    hr_recipe_unref(&recipe);
}

static void every_allocation_may_fail(void **state)
{
    struct hr__planar image = image_of(200, 150, 8);
    for (int kind = 0; kind < 3; kind++) {
        struct hr_operation list[3] = {sized(HR_RANDOM_RESIZED_CROP, 60, 60), op(HR_COLOR_JITTER),
                                       sized(HR_RESIZE, 50, 40)};
        struct hr_recipe_options options;
        struct hr_recipe *recipe;
        struct hr_error error = {0};
        list[1].u.color_jitter.contrast[1] = 3;
        hr_recipe_options_default(&options);
        options.apply_exif_orientation = 1;
        assert_int_equal(hr_recipe_create(&recipe, list, (size_t)kind + 1, &options, NULL), 0);
        uint64_t before = hr__allocated(HR__TAG_RECIPE);
        int failures = 0, r = -ENOMEM;
        while (r) {
            hr__alloc_fail_at((uint64_t)failures + 1, 0);
            r = prepare_once(recipe, &image, &error);
            hr__alloc_fail_at(0, 0);
            assert_true(r == 0 || r == -ENOMEM);
            assert_int_equal(hr__allocated(HR__TAG_RECIPE), before);
            failures += r != 0;
        }
        assert_true(failures >= 3);
        hr_recipe_unref(&recipe);
    }
    image_free(&image);
}

/* The region that the decoder returns is checked before it is used. */
static void wrong_region_is_refused(void **state)
{
    struct hr__planar image = image_of(40, 40, 9);
    struct hr_operation list[1] = {sized(HR_CENTER_CROP, 10, 10)};
    struct hr_recipe *recipe = recipe_of(list, 1);
    struct hr__scratch *scratch;
    const struct hr__prepare_plan *plan;
    struct hr_region region;
    struct hr_error error = {0};
    struct hr_image_info info = {HR_IMAGE_PNG, 40, 40, 3, 1};
    struct hr_draw_key key = {0, 0, 0};
    assert_int_equal(hr__scratch_create(&scratch, NULL), 0);
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, NULL), 0);
    assert_int_equal(hr__recipe_run(recipe, scratch, plan, &image, first, &error), -EINVAL);
    assert_non_null(strstr(error.message, "pixels and was given 40 x 40"));
    hr__scratch_destroy(&scratch);
    hr__scratch_destroy(&scratch);
    hr_recipe_unref(&recipe);
    image_free(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(region_is_exact),
        cmocka_unit_test(both_paths_agree),
        cmocka_unit_test(padding_shows_the_right_pixels),
        cmocka_unit_test(padding_after_normalize),
        cmocka_unit_test(orientations),
        cmocka_unit_test(types_and_layouts),
        cmocka_unit_test(bytes_pass_unchanged),
        cmocka_unit_test(floats_are_colored_before_filters),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(wrong_region_is_refused),
    };
    return cmocka_run_group_tests_name("recipe-run", tests, NULL, NULL);
}
