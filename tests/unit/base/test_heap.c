/* Heaps: elements come out in their order, whatever the order in which they went in. */
#include "../test.h"

#include "base/heap.h"
#include "base/random.h"

#include <stdlib.h>

struct heap_item {
    int64_t at;
    uint64_t order;
    char rest[9]; /* goes with the rest, of any size */
};

static int is_before(const void *one, const void *other)
{
    const struct heap_item *a = one, *b = other;
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static int by_order(const void *a, const void *b)
{
    return is_before(a, b) ? -1 : is_before(b, a);
}

#define ITEMS 300

static void items_come_in_order(void **state)
{
    struct heap_item heap[ITEMS], sorted[ITEMS], first;
    size_t count = 0;
    for (uint32_t round = 0; round < 50; round++) {
        size_t items = 1 + round * 6;
        for (uint32_t i = 0; i < items; i++) {
            uint32_t counter[4] = {i, round, 0, 0}, key[2] = {0, 0}, out[4];
            hr__philox(counter, key, out);
            /* many of the same time */
            sorted[i] = (struct heap_item){.at = (int64_t)(out[0] % 40) - 20, .order = i};
            snprintf(sorted[i].rest, sizeof sorted[i].rest, "%u", i);
            hr__heap_push(heap, &count, &sorted[i], sizeof sorted[i], is_before);
        }
        qsort(sorted, items, sizeof *sorted, by_order);
        for (size_t i = 0; i < items; i++) {
            hr__heap_pop(heap, &count, &first, sizeof first, is_before);
            assert_int_equal(first.at, sorted[i].at);
            assert_int_equal(first.order, sorted[i].order);
            assert_string_equal(first.rest, sorted[i].rest);
        }
        assert_int_equal(count, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_in_order),
    };
    return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
