/* Option and result structs of programs that are older or newer than the library. */
#include "../test.h"

#include "base/versioned.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

struct older {
    size_t size;
    int depth;
    int width;
};

struct ours {
    size_t size;
    int depth;
    int width;
    double share;
};

struct newer {
    size_t size;
    int depth;
    int width;
    double share;
    uint64_t seed;
};

static const struct ours defaults = {sizeof defaults, 3, 4, 0.5};

static void defaults_stay_inside(void **state)
{
    struct {
        struct older options;
        uint64_t behind;
    } old = {.behind = 77};
    hr__versioned_default(&old.options, sizeof old.options, &defaults, sizeof defaults);
    assert_int_equal(old.options.size, sizeof old.options);
    assert_int_equal(old.options.width, 4);
    assert_int_equal(old.behind, 77);
    struct newer new = {.seed = 77};
    hr__versioned_default(&new, sizeof new, &defaults, sizeof defaults);
    assert_int_equal(new.size, sizeof new);
    assert_true(new.share == 0.5);
    assert_int_equal(new.seed, 0);
}

static void options_of_other_ages(void **state)
{
    struct ours out = defaults;
    struct older old = {sizeof old, 1, 2};
    assert_int_equal(hr__versioned_take(&out, sizeof out, &old, "hr_x", NULL), 0);
    assert_int_equal(out.size, sizeof out);
    assert_int_equal(out.depth, 1);
    assert_true(out.share == 0.5);
    struct newer new = {sizeof new, 7, 8, 0.25, 0};
    assert_int_equal(hr__versioned_take(&out, sizeof out, &new, "hr_x", NULL), 0);
    assert_int_equal(out.depth, 7);
    assert_true(out.share == 0.25);
    struct hr_error error;
    new.seed = 1;
    assert_int_equal(hr__versioned_take(&out, sizeof out, &new, "hr_x", &error), -EINVAL);
    assert_non_null(strstr(error.message, "hr_x has a member set"));
    for (size_t bad = 0; bad < 3; bad++) {
        old.size = (const size_t[]){0, 7, 5000}[bad];
        assert_int_equal(hr__versioned_take(&out, sizeof out, &old, "hr_x", &error), -EINVAL);
        assert_non_null(strstr(error.message, "call hr_x_default first"));
    }
}

static void results_for_other_ages(void **state)
{
    struct {
        struct older result;
        uint64_t behind;
    } old = {{.size = sizeof old.result}, 77};
    hr__versioned_give(&old.result, &defaults, sizeof defaults);
    assert_int_equal(old.result.width, 4);
    assert_int_equal(old.result.size, sizeof old.result);
    assert_int_equal(old.behind, 77);
    struct newer new = {.size = sizeof new, .seed = 77};
    hr__versioned_give(&new, &defaults, sizeof defaults);
    assert_int_equal(new.size, sizeof defaults);
    assert_int_equal(new.seed, 77);
    struct ours unset = {.depth = 9};
    hr__versioned_give(&unset, &defaults, sizeof defaults);
    assert_int_equal(unset.depth, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_stay_inside),
        cmocka_unit_test(options_of_other_ages),
        cmocka_unit_test(results_for_other_ages),
    };
    return cmocka_run_group_tests_name("base-versioned", tests, NULL, NULL);
}
