/* The tagged allocator: accounting, alignment, overflow, injected failures. */
#include "../test.h"

#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
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

static void arrays_grow(void **state)
{
    uint64_t *array = NULL;
    uint64_t before = hr__allocated(HR__TAG_ORDER);
    unsigned moves = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t held = hr__allocated(HR__TAG_ORDER);
        assert_int_equal(hr__reserve(HR__TAG_ORDER, &array, i + 1), 0);
        array[i] = i;
        moves += hr__allocated(HR__TAG_ORDER) != held;
    }
    for (uint64_t i = 0; i < 100000; i++)
        assert_int_equal(array[i], i);
    assert_in_range(moves, 5, 30);
    assert_in_range(hr__allocated(HR__TAG_ORDER) - before, 800000, 1200000);
    /* No change if there is room; a large step is made at once. */
    uint64_t *same = array;
    assert_int_equal(hr__reserve(HR__TAG_ORDER, &array, 0), 0);
    assert_int_equal(hr__reserve(HR__TAG_ORDER, &array, 100000), 0);
    assert_ptr_equal(array, same);
    assert_int_equal(hr__reserve(HR__TAG_ORDER, &array, 1000000), 0);
    assert_int_equal(hr__allocated(HR__TAG_ORDER), before + 8000000);
    assert_int_equal(array[99999], 99999);
    hr__free(array);
    assert_int_equal(hr__allocated(HR__TAG_ORDER), before);
}

static void arrays_stay_without_memory(void **state)
{
    uint32_t *array = NULL;
    assert_int_equal(hr__reserve(HR__TAG_ORDER, &array, SIZE_MAX / 2), -ENOMEM);
    assert_null(array);
    /* hr__alloc may have made the array. */
    array = hr__alloc(HR__TAG_ORDER, 2, sizeof *array);
    array[0] = array[1] = 7;
    uint32_t *same = array;
    assert_int_equal(hr__reserve(HR__TAG_ORDER, &array, SIZE_MAX / 2), -ENOMEM);
    assert_int_equal(hr__reserve(HR__TAG_ORDER, &array, SIZE_MAX / 4), -ENOMEM);
    hr__alloc_fail_at(1, 0);
    assert_int_equal(hr__reserve(HR__TAG_ORDER, &array, 3), -ENOMEM);
    assert_ptr_equal(array, same);
    assert_int_equal(hr__reserve(HR__TAG_ORDER, &array, 3), 0);
    assert_int_equal(array[0], 7);
    assert_int_equal(array[1], 7);
    hr__free(array);
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

static void pool_reuses_and_accounts(void **state)
{
    struct hr__blocks *pool = hr__blocks_create(HR__TAG_STORAGE, 4096, 1 << 20);
    assert_non_null(pool);
    uint64_t empty = hr__allocated(HR__TAG_STORAGE);
    char *a = hr__blocks_alloc(pool, 100000);
    assert_int_equal((uintptr_t)a % 4096, 0);
    memset(a, 1, 100000);
    uint64_t one = hr__allocated(HR__TAG_STORAGE) - empty;
    assert_in_range(one, 100000, 125000);
    hr__free(a);
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), empty + one);
    char *b = hr__blocks_alloc(pool, 99000); /* the same size class: the same block */
    assert_ptr_equal(a, b);
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), empty + one);
    char *c = hr__blocks_alloc(pool, 200000);
    memset(c, 2, 200000);
    hr__blocks_destroy(&pool);
    assert_null(pool);
    hr__blocks_destroy(&pool);
    memset(b, 3, 99000); /* blocks stay valid after their pool is gone */
    hr__free(b);
    hr__free(c);
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
}

static void pool_holds_every_size(void **state)
{
    struct hr__blocks *pool = hr__blocks_create(HR__TAG_STORAGE, 64, 64 << 20);
    for (size_t around = 1 << 12; around <= 1 << 23; around *= 2)
        for (size_t quarter = 0; quarter < 4; quarter++)
            for (size_t off = 0; off < 3; off++) {
                size_t size = around + around / 4 * quarter + off - 1;
                uint64_t before = hr__allocated(HR__TAG_STORAGE);
                char *p = hr__blocks_alloc(pool, size);
                assert_non_null(p);
                assert_int_equal((uintptr_t)p % 64, 0);
                p[0] = p[size - 1] = 1;
                uint64_t grown = hr__allocated(HR__TAG_STORAGE) - before;
                assert_true(!grown || (grown >= size && grown <= size + size / 4 + 1));
                hr__free(p);
            }
    hr__blocks_destroy(&pool);
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
}

static void pool_keeps_its_limit(void **state)
{
    struct hr__blocks *pool = hr__blocks_create(HR__TAG_STORAGE, 64, 1 << 20);
    uint64_t empty = hr__allocated(HR__TAG_STORAGE);
    void *block[64];
    for (int i = 0; i < 64; i++)
        assert_non_null(block[i] = hr__blocks_alloc(pool, 64 << 10));
    for (int i = 0; i < 64; i++)
        hr__free(block[i]);
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), empty + (1 << 20));
    hr__alloc_fail_at(1, 0);
    assert_null(hr__blocks_alloc(pool, 64 << 10));
    hr__alloc_fail_at(1, 0);
    assert_null(hr__blocks_create(HR__TAG_STORAGE, 64, 1));
    hr__blocks_destroy(&pool);
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
}

/* One thread allocates blocks, others free them. */
enum { PASSED = 8192 };
static void *_Atomic passing[PASSED];

static void *free_every_other(void *arg)
{
    for (size_t i = (size_t)(uintptr_t)arg; i < PASSED; i += 2) {
        void *block;
        while (!(block = atomic_load(&passing[i])))
            sched_yield();
        assert_int_equal(*(size_t *)block, i);
        hr__free(block);
    }
    return NULL;
}

static void pool_between_threads(void **state)
{
    struct hr__blocks *pool = hr__blocks_create(HR__TAG_STORAGE, 64, 4 << 20);
    pthread_t thread[2];
    for (uintptr_t t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, free_every_other, (void *)t), 0);
    for (size_t i = 0; i < PASSED; i++) {
        size_t *block = hr__blocks_alloc(pool, (17 << 10) + i % 13 * 1000);
        assert_non_null(block);
        *block = i;
        atomic_store(&passing[i], block);
    }
    hr__blocks_destroy(&pool);
    for (int t = 0; t < 2; t++)
        pthread_join(thread[t], NULL);
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accounting),
        cmocka_unit_test(alignment),
        cmocka_unit_test(overflow_is_refused),
        cmocka_unit_test(arrays_grow),
        cmocka_unit_test(arrays_stay_without_memory),
        cmocka_unit_test(asked_for_failures),
        cmocka_unit_test(pool_reuses_and_accounts),
        cmocka_unit_test(pool_holds_every_size),
        cmocka_unit_test(pool_keeps_its_limit),
        cmocka_unit_test(pool_between_threads),
    };
    return cmocka_run_group_tests_name("base-memory", tests, NULL, NULL);
}
