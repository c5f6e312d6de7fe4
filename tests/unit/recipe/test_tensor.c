/* Shapes of samples' tensors: images in both layouts, matrices, and specs that are wrong. */
#include "recipe_cases.h"

#include "recipe/tensor.h"

static void shapes(void **state)
{
    struct hr_tensor_spec spec = {.dtype = HR_FLOAT32, .layout = HR_NHWC};
    hr__tensor_image(&spec, 3, 20, 70000);
    assert_int_equal(spec.dims, 3);
    assert_int_equal(spec.shape[0], 20);
    assert_int_equal(spec.shape[1], 70000);
    assert_int_equal(spec.shape[2], 3);
    assert_int_equal(spec.shape[3], 0);
    assert_int_equal(spec.bytes, 3 * 20 * 70000 * 4);
    assert_null(hr__tensor_wrong(&spec));
    struct hr_tensor_spec other = spec;
    assert_true(hr__tensor_equal(&spec, &other));
    other.layout = HR_NCHW;
    hr__tensor_image(&other, 3, 20, 70000);
    assert_int_equal(other.shape[0], 3);
    assert_int_equal(other.shape[2], 70000);
    assert_false(hr__tensor_equal(&spec, &other));
    other.dtype = HR_FLOAT16;
    hr__tensor_matrix(&other, 80, 3000);
    assert_int_equal(other.dims, 2);
    assert_int_equal(other.shape[0], 80);
    assert_int_equal(other.shape[1], 3000);
    assert_int_equal(other.shape[2], 0);
    assert_int_equal(other.channels, 1);
    assert_int_equal(other.bytes, 80 * 3000 * 2);
    assert_null(hr__tensor_wrong(&other));
}

static void wrong(void **state)
{
    struct hr_tensor_spec good = {.dtype = HR_UINT8}, s;
    hr__tensor_matrix(&good, 2, 100000);
    s = good;
    s.dims = 0; /* an image without a shape of its own */
    memset(s.shape, 0, sizeof s.shape);
    assert_null(hr__tensor_wrong(&s));
#define WRONG(member, value, words)                                                                \
    do {                                                                                           \
        s = good;                                                                                  \
        s.member = (value);                                                                        \
        assert_non_null(hr__tensor_wrong(&s));                                                     \
        assert_non_null(strstr(hr__tensor_wrong(&s), words));                                      \
    } while (0)
    WRONG(dtype, (enum hr_dtype)4, "dtype");
    WRONG(layout, (enum hr_layout)2, "layout");
    WRONG(channels, 0, "channels");
    WRONG(width, -1, "width");
    WRONG(bytes, good.bytes + 1, "bytes");
    WRONG(dims, 0, "shape");
    WRONG(dims, 5, "dims");
    WRONG(shape[0], 0, "shape");
    WRONG(shape[0], INT64_MAX, "shape");
    WRONG(shape[1], 100001, "shape");
    WRONG(shape[3], 1, "shape");
    s = good;
    s.channels = s.height = s.width = INT32_MAX; /* the product needs more than 64 bits */
    assert_non_null(hr__tensor_wrong(&s));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(shapes), cmocka_unit_test(wrong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
