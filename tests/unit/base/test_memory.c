/* The tagged allocator: accounting, alignment, overflow, asked-for failures. */
#include "../test.h"

#include "base/memory.h"

#include <string.h>

static void accounting(void **state)
{
    uint64_t before = hr__allocated(HR__TAG_ORDER);
    char *p = hr__alloc(HR__TAG_ORDER, 10, 10);
    assert_non_null(p);
    for (int i = 0; i < 100; i++)
        assert_int_equal(p[i], 0);
    assert_int_equal(hr__allocated(HR__TAG_ORDER), before + 100);
    p = hr__realloc(HR__TAG_ORDER, p, 1000, 3);
    assert_non_null(p);
    assert_int_equal(hr__allocated(HR__TAG_ORDER), before + 3000);
    hr__free(p);
    hr__free(NULL);
    assert_int_equal(hr__allocated(HR__TAG_ORDER), before);
}

static void alignment(void **state)
{
    for (size_t size = 0; size < 300; size += 7) {
        unsigned char *p = hr__alloc_aligned(HR__TAG_CODEC, size, 64);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 1, size + 64);
        hr__free(p);
    }
    for (size_t to = 64; to <= 65536; to *= 4) {
        unsigned char *p = hr__alloc_aligned_to(HR__TAG_CODEC, 1000, 64, to);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % to, 0);
        memset(p, 1, 1064);
        hr__free(p);
    }
    assert_int_equal(hr__allocated(HR__TAG_CODEC), 0);
}

static void overflow_is_refused(void **state)
{
    assert_null(hr__alloc(HR__TAG_ORDER, SIZE_MAX / 2, 3));
    assert_null(hr__alloc_aligned(HR__TAG_ORDER, SIZE_MAX - 8, 64));
    assert_null(hr__alloc_aligned_to(HR__TAG_ORDER, SIZE_MAX - 8192, 64, 8192));
    char *p = hr__alloc(HR__TAG_ORDER, 1, 1);
    assert_null(hr__realloc(HR__TAG_ORDER, p, SIZE_MAX, 2));
    hr__free(p);
}

static void asked_for_failures(void **state)
{
    hr__alloc_fail_at(2, 0);
    void *a = hr__alloc(HR__TAG_ORDER, 1, 1);
    void *b = hr__alloc(HR__TAG_ORDER, 1, 1);
    void *c = hr__alloc(HR__TAG_ORDER, 1, 1);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    hr__alloc_fail_at(1, 1);
    assert_null(hr__alloc(HR__TAG_ORDER, 1, 1));
    assert_null(hr__strdup(HR__TAG_ORDER, "text"));
    hr__alloc_fail_at(0, 0);
    char *d = hr__strdup(HR__TAG_ORDER, "text");
    assert_string_equal(d, "text");
    hr__free(a);
    hr__free(c);
    hr__free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accounting),
        cmocka_unit_test(alignment),
        cmocka_unit_test(overflow_is_refused),
        cmocka_unit_test(asked_for_failures),
    };
    return cmocka_run_group_tests_name("base-memory", tests, NULL, NULL);
}
