/* Ids of texts: each text has one id, ids are in order of first use, for any number of texts. */
#include "../test.h"

#include "base/ids.h"

#include <stdio.h>
#include <string.h>

static void test_ids(void **state)
{
    struct hr__ids names = {.table = NULL};
    char text[32];
    assert_int_equal(hr__ids_find(&names, "a", 1), 0);
    for (uint32_t i = 0; i < 10000; i++) {
        int n = snprintf(text, sizeof text, "text %u", i);
        assert_int_equal(hr__ids_find(&names, text, (size_t)n), 0);
        assert_int_equal(hr__ids_add(&names, text, (size_t)n), i + 1);
    }
    for (uint32_t i = 0; i < 10000; i++) {
        int n = snprintf(text, sizeof text, "text %u", i);
        assert_int_equal(hr__ids_find(&names, text, (size_t)n), i + 1);
    }
    assert_int_equal(hr__ids_find(&names, "text 1", 5), 0);
    assert_int_equal(hr__ids_add(&names, "", 0), 10001);
    assert_int_equal(hr__ids_find(&names, "", 0), 10001);
    hr__ids_clear(&names);
    assert_int_equal(hr__ids_find(&names, "text 1", 6), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
