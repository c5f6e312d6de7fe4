/*
 * Geometric filters: the matrix, exact cases, windows against the whole image, and the kernels of
 * each instruction set against the portable ones. tests/python/test_augment_geometry.py compares
 * the pixels with torchvision's.
 */
#include "recipe_cases.h"

#include "recipe/affine.h"
#include "recipe/perspective.h"
#include "recipe/warp_rows.h"

#define NONE                                                                                       \
    (const double[2])                                                                              \
    {                                                                                              \
        0, 0                                                                                       \
    }

static struct hr__window window_of(const struct hr__planar *image)
{
    return (struct hr__window){.plane = {image->plane[0], image->plane[1], image->plane[2]},
                               .stride = image->stride,
                               .width = image->width,
                               .height = image->height,
                               .image_width = image->width,
                               .image_height = image->height};
}

/* Runs the filter of `step` for its `need`, on a copy of what it reads, upside down in memory if
 * `flipped`. */
static struct hr__planar run_filter(const struct hr__step *step, const struct hr__planar *image,
                                    int flipped)
{
    const struct hr__filter *filter = step->u.filter.filter;
    struct hr__scratch *scratch;
    assert_int_equal(hr__scratch_create(&scratch, NULL), 0);
    struct hr_region source = filter->source(step, image->width, image->height, &step->need);
    struct hr__planar cut = image_cut(image, &source);
    struct hr__window in = window_of(&cut);
    in.x = source.x;
    in.y = source.y;
    in.image_width = image->width;
    in.image_height = image->height;
    for (int c = 0; c < 3 && flipped; c++) {
        for (int a = 0, b = cut.height - 1; a < b; a++, b--) {
            for (int x = 0; x < cut.width; x++) {
                uint8_t *up = cut.plane[c] + a * cut.stride + x;
                uint8_t *down = cut.plane[c] + b * cut.stride + x, swap = *up;
                *up = *down;
                *down = swap;
            }
        }
        in.plane[c] += (cut.height - 1) * cut.stride;
    }
    in.stride = flipped ? -cut.stride : cut.stride;
    struct hr__planar result = image_of(step->need.width, step->need.height, 0);
    struct hr__window out = window_of(&result);
    out.x = step->need.x;
    out.y = step->need.y;
    out.image_width = step->width;
    out.image_height = step->height;
    assert_int_equal(filter->run(scratch, step, &in, &out, NULL), 0);
    image_free(&cut);
    hr__scratch_destroy(&scratch);
    return result;
}

static void assert_part(const struct hr__planar *part, const struct hr__planar *whole,
                        const struct hr_region *need)
{
    for (int c = 0; c < 3; c++) {
        for (int y = 0; y < need->height; y++)
            assert_memory_equal(part->plane[c] + y * part->stride,
                                whole->plane[c] + (need->y + y) * whole->stride + need->x,
                                (size_t)need->width);
    }
}

static struct hr_region random_part(struct hr__random *r, int width, int height)
{
    struct hr_region part;
    part.width = 1 + (int)hr__random_below(r, (uint64_t)width);
    part.height = 1 + (int)hr__random_below(r, (uint64_t)height);
    part.x = (int)hr__random_below(r, (uint64_t)(width - part.width) + 1);
    part.y = (int)hr__random_below(r, (uint64_t)(height - part.height) + 1);
    return part;
}

/* A random map, in about half of the cases of a result of another size. */
static void plan_random(struct hr__prepare_plan *plan, struct hr__random *r)
{
    const double translate[2] = {rint(hr__random_range(r, -30, 30)),
                                 rint(hr__random_range(r, -30, 30))};
    const double shear[2] = {hr__random_range(r, -30, 30), hr__random_range(r, -30, 30)};
    const double center[2] = {hr__random_range(r, -20, 20), hr__random_range(r, -20, 20)};
    const double fill[3] = {0, 100.25, 255};
    double matrix[6];
    hr__affine_matrix(hr__random_range(r, -180, 180), translate, hr__random_range(r, 0.3, 3), shear,
                      center, matrix);
    int more = (int)hr__random_below(r, 2) * (int)hr__random_below(r, 40);
    hr__plan_affine_to(plan, matrix, plan->width + more, plan->height + more,
                       hr__random_below(r, 2) ? HR_NEAREST : HR_BILINEAR,
                       hr__random_below(r, 4) ? fill : NULL);
}

static void a_window_gives_the_same_bytes(void **state)
{
    static struct hr__prepare_plan plan;
    static const int sizes[][2] = {{97, 61}, {64, 64}, {1, 9}, {40, 1}, {2, 2}};
    struct hr__random r;
    hr__random_init(&r, 1, 0, 0, 0);
    for (int i = 0; i < 100; i++) {
        plan.width = sizes[i % 5][0];
        plan.height = sizes[i % 5][1];
        plan.count = 0;
        plan_random(&plan, &r);
        struct hr__step *step = &plan.step[0];
        struct hr__planar image = image_of(plan.width, plan.height, (uint64_t)i);
        step->need = (struct hr_region){0, 0, step->width, step->height};
        struct hr__planar whole = run_filter(step, &image, 0);
        for (int k = 0; k < 5; k++) {
            step->need = random_part(&r, step->width, step->height);
            struct hr__planar part = run_filter(step, &image, k % 2);
            assert_part(&part, &whole, &step->need);
            image_free(&part);
        }
        image_free(&whole);
        image_free(&image);
    }
}

static void quarter_turns_move_pixels(void **state)
{
    static struct hr__prepare_plan plan;
    struct hr__planar image = image_of(32, 32, 0);
    double matrix[6];
    for (int bilinear = 0; bilinear < 2; bilinear++) {
        plan.width = plan.height = 32;
        plan.count = 0;
        hr__affine_matrix(90, NONE, 1, NONE, NONE, matrix);
        hr__plan_affine(&plan, matrix, bilinear ? HR_BILINEAR : HR_NEAREST, NULL);
        plan.step[0].need = (struct hr_region){0, 0, 32, 32};
        struct hr__planar turned = run_filter(&plan.step[0], &image, 0);
        for (int y = 0; y < 32; y++)
            for (int x = 0; x < 32; x++)
                assert_int_equal(turned.plane[1][y * turned.stride + x],
                                 image.plane[1][(31 - x) * image.stride + y]);
        image_free(&turned);
    }
    image_free(&image);
}

static void shifts_show_the_fill(void **state)
{
    static struct hr__prepare_plan plan = {.width = 20, .height = 10};
    const double fill[3] = {7, 8, 9}, translate[2] = {6, -3};
    double matrix[6];
    struct hr__planar image = image_of(20, 10, 0);
    plan.count = 0;
    hr__affine_matrix(0, NONE, 1, NONE, NONE, matrix);
    hr__plan_affine(&plan, matrix, HR_NEAREST, fill);
    assert_int_equal(plan.count, 0); /* the identity */
    hr__affine_matrix(0, translate, 1, NONE, NONE, matrix);
    hr__plan_affine(&plan, matrix, HR_NEAREST, fill);
    struct hr__step *step = &plan.step[0];
    step->need = (struct hr_region){0, 0, 20, 10};
    struct hr__planar moved = run_filter(step, &image, 0);
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < 10; y++)
            for (int x = 0; x < 20; x++)
                assert_int_equal(moved.plane[c][y * moved.stride + x],
                                 x < 6 || y >= 7 ? 7 + c
                                                 : image.plane[c][(y + 3) * image.stride + x - 6]);
    image_free(&moved);
    /* only the corner that is shown is read; nothing of it: one pixel */
    step->need = (struct hr_region){15, 0, 5, 2};
    struct hr_region source = step->u.filter.filter->source(step, 20, 10, &step->need);
    assert_in_range(source.x, 8, 9);
    assert_in_range(source.x + source.width, 14, 15);
    assert_in_range(source.y + source.height, 5, 6);
    step->need = (struct hr_region){0, 9, 20, 1};
    source = step->u.filter.filter->source(step, 20, 10, &step->need);
    assert_int_equal(source.height, 1);
    image_free(&image);
}

static void refused(const struct hr_operation *o, const char *words)
{
    const struct hr_operation list[] = {*o, sized(HR_CENTER_CROP, 8, 8)};
    struct hr_error error = {0};
    struct hr_recipe *recipe;
    int r = hr_recipe_create(&recipe, list, 2, NULL, &error);
    if (r != -EINVAL || !strstr(error.message, words))
        fail_msg("expected \"%s\", got %d \"%s\"", words, r, error.message);
}

/* Sets each number of each parameter to each wrong value: all are refused. */
static void wrong_parameters_are_refused(void **state)
{
    static const enum hr_operation_kind kinds[] = {HR_PAD, HR_RANDOM_AFFINE, HR_RANDOM_ROTATION,
                                                   HR_RANDOM_PERSPECTIVE, HR_ELASTIC_TRANSFORM};
    static const double wrong[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (const struct hr__parameter *f = hr__operation_fields(kinds[k]); f->name; f++) {
            for (size_t i = 0; i < f->count; i++) {
                struct hr_operation o = op(kinds[k]);
                char *at = (char *)&o + f->offset;
                for (int w = 0; w < 3 && f->type == HR__PARAMETER_REAL; w++) {
                    memcpy(at + i * sizeof(double), &wrong[w], sizeof(double));
                    refused(&o, "(operation 1 of the recipe): ");
                }
                const int unknown = f->type == HR__PARAMETER_INTEGER ? -1 : 9;
                if (f->type == HR__PARAMETER_INTEGER || f->type == HR__PARAMETER_WORD) {
                    memcpy(at + i * sizeof unknown, &unknown, sizeof unknown);
                    refused(&o, "(operation 1 of the recipe): ");
                }
            }
        }
    }
    struct hr_operation o = op(HR_RANDOM_AFFINE);
    o.u.random_affine.scale[0] = 0;
    refused(&o, "RandomAffine (operation 1 of the recipe): the scale 0 must be above 0");
    o = op(HR_RANDOM_ROTATION);
    o.u.random_rotation.degrees[0] = 1;
    refused(&o, "degrees (1, 0) must be two finite numbers, the smaller first");
    o = op(HR_ELASTIC_TRANSFORM);
    o.u.elastic_transform.sigma[1] = 0;
    refused(&o, "above 0 in both directions or none");
    o = op(HR_RANDOM_PERSPECTIVE);
    o.u.random_perspective.interpolation = HR_BICUBIC;
    refused(&o, "interpolation 1 is not possible: use nearest or bilinear");
    o.u.random_perspective.interpolation = HR_BILINEAR;
    o.u.random_perspective.fill[2] = 255.5;
    refused(&o, "the fill value 255.5 is outside 0..255");
    const struct hr_operation late[] = {sized(HR_CENTER_CROP, 8, 8), to_dtype(HR_FLOAT32, 1),
                                        op(HR_RANDOM_AFFINE)};
    struct hr_error error = {0};
    struct hr_recipe *recipe;
    assert_int_equal(hr_recipe_create(&recipe, late, 3, NULL, &error), -EINVAL);
    assert_non_null(strstr(error.message, "it works on bytes: put it before the ToDtype"));
    struct hr_operation expand[] = {sized(HR_CENTER_CROP, 8, 8), op(HR_RANDOM_ROTATION)};
    expand[1].u.random_rotation.expand = 1;
    assert_int_equal(hr_recipe_create(&recipe, expand, 2, NULL, &error), -EINVAL);
    assert_non_null(strstr(error.message, "no fixed size"));
}

/* A rotated image whose sides do not fit into int. */
static void rotations_that_expand_too_far_are_refused(void **state)
{
    struct hr_operation list[] = {op(HR_RANDOM_ROTATION), sized(HR_CENTER_CROP, 8, 8)};
    for (int i = 0; i < 2; i++) {
        list[0].u.random_rotation.degrees[i] = 45;
        list[0].u.random_rotation.center[i] = 1e300;
    }
    list[0].u.random_rotation.expand = list[0].u.random_rotation.has_center = 1;
    struct hr_recipe *recipe = recipe_of(list, 2);
    const struct hr_image_info info = {HR_IMAGE_JPEG, 30, 20, 3, 1};
    const struct hr_draw_key key = {0};
    const struct hr__prepare_plan *plan;
    struct hr_region region;
    struct hr_error error = {0};
    struct hr__scratch *scratch;
    assert_int_equal(hr__scratch_create(&scratch, &error), 0);
    assert_int_equal(hr__recipe_plan(recipe, scratch, &info, &key, &plan, &region, &error),
                     -EINVAL);
    assert_non_null(strstr(error.message, "an image of 30 x 20 pixels becomes too large"));
    hr__scratch_destroy(&scratch);
    hr_recipe_unref(&recipe);
}

/* Corners that meet have no map; otherwise the map takes corners to corners. */
static void perspective_maps_corners(void **state)
{
    const double from[4][2] = {{0, 0}, {9, 0}, {9, 7}, {0, 7}};
    const double to[4][2] = {{1, 2}, {8, 0}, {6, 5}, {0, 7}}, line[4][2] = {{0, 0}, {9, 0}};
    double m[8];
    assert_int_equal(hr__perspective_matrix(from, to, m), 1);
    for (int i = 0; i < 4; i++) {
        double x = to[i][0], y = to[i][1], divisor = m[6] * x + m[7] * y + 1;
        assert_true(fabs((m[0] * x + m[1] * y + m[2]) / divisor - from[i][0]) < 1e-9);
        assert_true(fabs((m[3] * x + m[4] * y + m[5]) / divisor - from[i][1]) < 1e-9);
    }
    assert_int_equal(hr__perspective_matrix(from, line, m), 0);
}

/* Compares the coefficients, as float32, with torchvision's, whose solver rounds otherwise. */
static void perspective_has_torchvisions_coefficients(void **state)
{
    char path[4096];
    const char *root = getenv("HEADRACE_SOURCE_ROOT");
    double corner[16], theirs, m[8], from[4][2], to[4][2];
    int maps = 0, other = 0;
    assert_non_null(root);
    snprintf(path, sizeof path, "%s/tests/golden/perspective.txt", root);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fscanf(file, "%lf", &corner[0]) == 1) {
        for (int i = 1; i < 16; i++)
            assert_int_equal(fscanf(file, "%lf", &corner[i]), 1);
        for (int i = 0; i < 8; i++) {
            from[i / 2][i % 2] = corner[i];
            to[i / 2][i % 2] = corner[8 + i];
        }
        assert_int_equal(hr__perspective_matrix(from, to, m), 1);
        for (int i = 0; i < 8; i++) {
            assert_int_equal(fscanf(file, "%lf", &theirs), 1);
            other += (float)m[i] != (float)theirs && fabs(theirs) > 1e-9;
            assert_true(fabs(m[i] - theirs) <= 1e-7 * fabs(theirs) + 1e-10);
        }
        maps++;
    }
    fclose(file);
    assert_true(maps >= 100);
    assert_true(other < maps / 10);
}

#define PIXELS 100

static struct hr__warp_row row_of(int n, float *floats, int32_t *at, uint8_t *place)
{
    return (struct hr__warp_row){n,  floats, floats + n, floats + 2 * n, floats + 3 * n,
                                 at, at + n, place};
}

static void kernels_agree(void **state)
{
    const struct hr__warp_rows *plain = &hr__warp_rows_portable, *fast = hr__warp_rows(hr__isa());
    struct hr__planar image = image_of(50, 30, 0);
    const struct hr__warp_input input = {50, 30, 0, 0, (int)image.stride};
    float floats[2][4 * PIXELS];
    int32_t at[2][2 * PIXELS];
    uint8_t place[2][PIXELS], bytes[2][PIXELS];
    struct hr__random r;
    hr__random_init(&r, 2, 0, 0, 0);
    for (int i = 0; i < 300; i++) {
        struct hr__warp_row rows[2];
        struct hr__affine_map map = {
            .first_x = -49.5f, .first_y = 3, .half_width = 25, .half_height = 15};
        for (int k = 0; k < 6; k++)
            map.m[k] = (float)hr__random_range(&r, -0.05, 0.05);
        memset(floats, 0, sizeof floats);
        for (int k = 0; k < 2; k++) {
            const struct hr__warp_rows *kernels = k ? fast : plain;
            rows[k] = row_of(PIXELS, floats[k], at[k], place[k]);
            memset(bytes[k], 0, sizeof bytes[k]);
            kernels->affine(&map, i % 7, i % 30, &rows[k]);
            if (i == 0)
                rows[k].x[3] = NAN, rows[k].y[5] = INFINITY, rows[k].x[7] = -1e30f;
            (i % 2 ? kernels->nearest : kernels->bilinear)(&rows[k], &input);
            for (int first = 0; first < PIXELS; first++) {
                int end = first;
                while (end < PIXELS && place[k][end] == HR__WARP_INSIDE)
                    end++;
                const struct hr__warp_plane plane = {image.plane[1], image.stride, bytes[k], i & 4,
                                                     i & 4 ? 99.5f : 0};
                (i % 2 ? kernels->take : kernels->mix)(&rows[k], first, end, &plane);
                first = end;
            }
        }
        assert_memory_equal(floats[0], floats[1], sizeof floats[0]);
        assert_memory_equal(at[0], at[1], sizeof at[0]);
        assert_memory_equal(place[0], place[1], sizeof place[0]);
        assert_memory_equal(bytes[0], bytes[1], sizeof bytes[0]);
    }
    image_free(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_gives_the_same_bytes),
        cmocka_unit_test(quarter_turns_move_pixels),
        cmocka_unit_test(shifts_show_the_fill),
        cmocka_unit_test(wrong_parameters_are_refused),
        cmocka_unit_test(rotations_that_expand_too_far_are_refused),
        cmocka_unit_test(perspective_maps_corners),
        cmocka_unit_test(perspective_has_torchvisions_coefficients),
        cmocka_unit_test(kernels_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
