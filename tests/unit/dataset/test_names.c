/* Names: Python's sort order, torchvision's extensions, the sorted set. */
#include "../test.h"

#include "dataset/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The output of CPython's sorted(map(os.fsdecode, ...)) for these names, in order. */
static const char *const python_order[] = {
    "",
    "1.jpg",
    "10.jpg",
    "2.jpg",
    "A",
    "a",
    "a-b",
    "a/b",
    "aa",
    "\xC3\xA9",     /* U+00E9 */
    "\xE2\x82\xAC", /* U+20AC */
    "\xE4\xB8\xAD", /* U+4E2D */
    "\xED\x9F\xBF", /* U+D7FF */
    "\x80",         /* U+DC80 */
    "\xC0\x80",     /* an overlong form: U+DCC0 U+DC80 */
    "\xE2\x82",     /* cut short: U+DCE2 U+DC82 */
    ("\xE2\x82"
     "A"),
    "\xED\xA0\x80",     /* a surrogate: U+DCED U+DCA0 U+DC80 */
    "\xF0\x9F\x98",     /* cut short: U+DCF0 ... */
    "\xFF",             /* U+DCFF */
    "\xEE\x80\x80",     /* U+E000 */
    "\xEF\xBC\x81",     /* U+FF01 */
    "\xF0\x9F\x98\x80", /* U+1F600 */
    "\xF4\x8F\xBF\xBF", /* U+10FFFF */
};

#define COUNT (sizeof python_order / sizeof *python_order)

static void order_is_pythons(void **state)
{
    for (size_t i = 0; i < COUNT; i++)
        for (size_t k = 0; k < COUNT; k++) {
            int r = hr__name_compare(python_order[i], python_order[k]);
            if (i == k)
                assert_int_equal(r, 0);
            else
                assert_true(i < k ? r < 0 : r > 0);
        }
}

static void images_by_extension(void **state)
{
    static const char *const yes[] = {"a.jpg", "a.JPG", "a.JpEg", "a.png",  "a.ppm", "a.bmp",
                                      "a.pgm", "a.TIF", "a.tiff", "a.webp", ".jpg",  "a.tar.png"};
    static const char *const no[] = {"",
                                     "jpg",
                                     "a.jp",
                                     "a.jpg ",
                                     "a.gif",
                                     "a.txt",
                                     "a.jpgx",
                                     "a.jpg~",
                                     "webp",
                                     ("a.t\xC4\xB0"
                                      "f")};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(hr__name_is_image(yes[i], strlen(yes[i])));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(hr__name_is_image(no[i], strlen(no[i])));
}

static void sorted_set(void **state)
{
    struct hr__names names = {0};
    assert_int_equal(hr__names_sort(&names), 0);
    /* in reverse order, while the text grows several times */
    for (size_t i = COUNT; i-- > 1;)
        assert_int_equal(hr__names_add(&names, python_order[i], strlen(python_order[i])), 0);
    assert_int_equal(hr__names_sort(&names), 0);
    assert_int_equal(names.count, COUNT - 1);
    for (size_t i = 1; i < COUNT; i++)
        assert_string_equal(names.items[i - 1], python_order[i]);
    hr__names_clear(&names);
    assert_null(names.text);
}

static int compare_plain(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Long common prefixes, names that are prefixes of others, repeats. */
static void keyed_sort_is_strcmp(void **state)
{
    enum { N = 3000 };
    static char text[N][40];
    static char *expected[N];
    struct hr__names names = {0};
    uint32_t x = 12345;
    for (int i = 0; i < N; i++) {
        x = x * 1664525 + 1013904223;
        int n = snprintf(text[i], sizeof text[i], "n01440764_%.*u", (int)(x >> 29), x >> 12);
        expected[i] = text[i];
        assert_int_equal(hr__names_add(&names, text[i], (size_t)n), 0);
    }
    qsort(expected, N, sizeof *expected, compare_plain);
    assert_int_equal(hr__names_sort(&names), 0);
    for (int i = 0; i < N; i++)
        assert_string_equal(names.items[i], expected[i]);
    hr__names_clear(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_pythons),
        cmocka_unit_test(images_by_extension),
        cmocka_unit_test(sorted_set),
        cmocka_unit_test(keyed_sort_is_strcmp),
    };
    return cmocka_run_group_tests_name("dataset-names", tests, NULL, NULL);
}
