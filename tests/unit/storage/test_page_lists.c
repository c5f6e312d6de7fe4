/*
 * The simulated page cache: each rule of the kernel by itself, and the share of shuffled epochs
 * that was measured.
 */
#include "../test.h"
#include "storage/page_lists.h"

#include "base/random.h"

#include <stdlib.h>

static struct hr__page_lists *lists;

static void begin(uint32_t files, uint64_t bytes)
{
    assert_int_equal(hr__page_lists_create(&lists, files, bytes), 0);
}

static void end(void)
{
    hr__page_lists_destroy(&lists);
    assert_null(lists);
}

static int reads(uint32_t file)
{
    return hr__page_lists_read(lists, file, 10, NULL, NULL);
}

static void test_hits_and_misses(void **state)
{
    begin(4, 30);
    for (uint32_t file = 0; file < 3; file++)
        assert_false(reads(file));
    for (uint32_t file = 0; file < 3; file++)
        assert_true(hr__page_lists_has(lists, file) && reads(file));
    assert_false(hr__page_lists_has(lists, 3));
    end();
}

static void gather(void *context, uint32_t file)
{
    *(uint32_t *)context |= UINT32_C(1) << file;
}

static void test_second_reads_protect(void **state)
{
    uint32_t evicted = 0;
    begin(6, 40);
    for (uint32_t file = 0; file < 4; file++)
        reads(file);
    reads(0); /* is active now: the list that nothing is evicted from */
    hr__page_lists_read(lists, 4, 10, gather, &evicted);
    assert_int_equal(evicted, 1u << 1);
    hr__page_lists_read(lists, 5, 20, gather, &evicted);
    assert_int_equal(evicted, 1u << 1 | 1u << 2 | 1u << 3);
    assert_true(hr__page_lists_has(lists, 0));
    end();
}

static void test_all_are_active(void **state)
{
    begin(3, 20);
    for (uint32_t file = 0; file < 2; file++) {
        reads(file);
        reads(file);
    }
    reads(2);
    assert_false(hr__page_lists_has(lists, 0)); /* the oldest one */
    assert_true(hr__page_lists_has(lists, 1) && hr__page_lists_has(lists, 2));
    end();
}

static void test_a_mark_lasts_until_activation(void **state)
{
    begin(8, 40);
    for (uint32_t file = 0; file < 4; file++) {
        reads(file);
        reads(file); /* active, without a mark */
    }
    reads(4); /* evicts 0; the scan moves 1 and 2 to the inactive list */
    assert_false(hr__page_lists_has(lists, 0));
    reads(1); /* a mark only: 1 is still the next to go */
    reads(5);
    assert_false(hr__page_lists_has(lists, 1));
    end();
}

static void test_a_soon_return_is_active(void **state)
{
    begin(8, 40);
    for (uint32_t file = 0; file < 4; file++)
        reads(file);
    reads(2);
    reads(3); /* 20 bytes are active */
    reads(4); /* evicts 0 */
    assert_false(hr__page_lists_has(lists, 0));
    assert_false(reads(0)); /* evicts 1, returns within 20 bytes: active */
    reads(5);
    reads(6);
    assert_true(hr__page_lists_has(lists, 0)); /* 4 and others left before it */
    end();
}

static void test_a_file_larger_than_the_cache(void **state)
{
    begin(2, 25);
    reads(0);
    assert_false(hr__page_lists_read(lists, 1, 30, NULL, NULL));
    assert_false(hr__page_lists_has(lists, 1));
    assert_false(reads(0));
    assert_true(reads(0));
    end();
}

/* Returns the share that each of the epochs 4 to 11 of `files` files read, on average. */
static double missing(uint32_t files, double share)
{
    uint32_t *order = calloc(files, sizeof *order), missed = 0;
    struct hr__random random;
    assert_non_null(order);
    hr__random_init(&random, 1, HR__PURPOSE_SHUFFLE, 0, 0);
    begin(files, (uint64_t)(share * files * 10));
    for (uint32_t i = 0; i < files; i++)
        order[i] = i;
    for (int epoch = 0; epoch < 12; epoch++) {
        for (uint32_t i = files; i > 1; i--) {
            uint32_t j = (uint32_t)hr__random_below(&random, i), file = order[i - 1];
            order[i - 1] = order[j];
            order[j] = file;
        }
        for (uint32_t i = 0; i < files; i++)
            missed += !reads(order[i]) && epoch >= 4;
    }
    end();
    free(order);
    return (double)missed / 8 / files;
}

static void test_shuffled_epochs_as_measured(void **state)
{
    /* See page_lists.h. */
    static const struct {
        double share, measured;
    } cases[] = {{0.344, 0.886}, {0.484, 0.800}, {0.795, 0.430}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double found = missing(5000, cases[i].share);
        assert_true(found > 0.95 * cases[i].measured && found < 1.06 * cases[i].measured);
        assert_true(found > 1.2 * (1 - cases[i].share)); /* what never evicting reads */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits_and_misses),
        cmocka_unit_test(test_second_reads_protect),
        cmocka_unit_test(test_all_are_active),
        cmocka_unit_test(test_a_mark_lasts_until_activation),
        cmocka_unit_test(test_a_soon_return_is_active),
        cmocka_unit_test(test_a_file_larger_than_the_cache),
        cmocka_unit_test(test_shuffled_epochs_as_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
