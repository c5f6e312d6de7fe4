/*
 * The table of live blocks: insertion, removal, growth, closing of holes, several threads; the
 * filter never misses a block in the table.
 */
#include "../../test.h"

#include "memory/tap/table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct hr__tap_table *make(void)
{
    struct hr__tap_table *table = aligned_alloc(64, sizeof *table);
    assert_non_null(table);
    return memset(table, 0, sizeof *table);
}

static void drop(struct hr__tap_table *table)
{
    for (size_t s = 0; s < HR__TAP_SHARDS; s++)
        if (table->shards[s].slots)
            munmap(table->shards[s].slots,
                   table->shards[s].capacity * sizeof *table->shards[s].slots);
    free(table);
}

static uint64_t random_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *state >> 20;
}

static void assert_same(const struct hr__tap_entry *a, const struct hr__tap_entry *b)
{
    assert_int_equal(a->address, b->address);
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->device, b->device);
    assert_int_equal(a->is_reported, b->is_reported);
}

static void test_one(void **unused)
{
    (void)unused;
    struct hr__tap_table *table = make();
    struct hr__tap_entry out,
        in = {.address = 0x1000, .bytes = 77, .device = 255, .is_reported = 1};
    assert_int_equal(hr__tap_table_take(table, 0x1000, &out), 0);
    assert_int_equal(hr__tap_table_put(table, &in, &out), 0);
    assert_true(hr__tap_table_may_have(table, 0x1000));
    assert_int_equal(hr__tap_table_find(table, 0x1000, &out), 1);
    assert_same(&out, &in);
    in.bytes = HR__TAP_LARGEST;
    in.device = 3;
    in.is_reported = 0;
    /* Another block at the same address. */
    assert_int_equal(hr__tap_table_put(table, &in, &out), 1);
    assert_int_equal(out.bytes, 77);
    assert_int_equal(hr__tap_table_take(table, 0x1000, &out), 1);
    assert_same(&out, &in);
    assert_int_equal(hr__tap_table_take(table, 0x1000, &out), 0);
    assert_false(hr__tap_table_may_have(table, 0x1000));
    in.bytes = HR__TAP_LARGEST + 1;
    assert_true(hr__tap_table_put(table, &in, &out) < 0);
    assert_int_equal(hr__tap_table_find(table, 0, &out), 0);
    drop(table);
}

/* Compared with a plain array: 40,000 changes among 3,000 addresses. */
static void test_many(void **unused)
{
    (void)unused;
    enum { ADDRESSES = 3000, CHANGES = 40000 };
    struct hr__tap_table *table = make();
    uint64_t *bytes = calloc(ADDRESSES, sizeof *bytes), state = 1;
    assert_non_null(bytes);
    for (int i = 0; i < CHANGES; i++) {
        size_t k = random_next(&state) % ADDRESSES;
        struct hr__tap_entry out, in = {.address = 0x7f0000000000 + k * 64, .bytes = i + 1};
        if (random_next(&state) % 3) {
            assert_int_equal(hr__tap_table_put(table, &in, &out), bytes[k] != 0);
            assert_true(!bytes[k] || out.bytes == bytes[k]);
            bytes[k] = in.bytes;
        } else {
            assert_int_equal(hr__tap_table_take(table, in.address, &out), bytes[k] != 0);
            assert_true(!bytes[k] || out.bytes == bytes[k]);
            bytes[k] = 0;
        }
    }
    for (size_t k = 0; k < ADDRESSES; k++) {
        struct hr__tap_entry out;
        uint64_t address = 0x7f0000000000 + k * 64;
        assert_int_equal(hr__tap_table_find(table, address, &out), bytes[k] != 0);
        assert_true(!bytes[k] || hr__tap_table_may_have(table, address));
        if (bytes[k])
            assert_int_equal(hr__tap_table_take(table, address, &out), 1);
    }
    for (size_t i = 0; i < HR__TAP_FILTER; i++)
        assert_int_equal(atomic_load(&table->filter[i]), 0);
    free(bytes);
    drop(table);
}

static void add_up(void *arg, struct hr__tap_entry *entry)
{
    *(uint64_t *)arg += entry->bytes;
    entry->is_reported = 1;
}

static void test_each(void **unused)
{
    (void)unused;
    struct hr__tap_table *table = make();
    struct hr__tap_entry out;
    uint64_t sum = 0;
    for (uint64_t i = 1; i <= 1000; i++)
        hr__tap_table_put(table, &(struct hr__tap_entry){.address = i << 12, .bytes = i}, &out);
    hr__tap_table_each(table, add_up, &sum);
    assert_int_equal(sum, 500500);
    assert_int_equal(hr__tap_table_find(table, 500 << 12, &out), 1);
    assert_int_equal(out.is_reported, 1);
    assert_int_equal(out.bytes, 500);
    drop(table);
}

struct table_part {
    struct hr__tap_table *table;
    uint64_t first;
    int wrong;
};

static void *work(void *arg)
{
    struct table_part *part = arg;
    struct hr__tap_entry out;
    for (int round = 0; round < 20; round++) {
        for (uint64_t i = 0; i < 500; i++) {
            struct hr__tap_entry in = {.address = part->first + i * 16, .bytes = i + 1};
            part->wrong += hr__tap_table_put(part->table, &in, &out) != 0;
        }
        for (uint64_t i = 0; i < 500; i++) {
            uint64_t address = part->first + i * 16;
            part->wrong += !hr__tap_table_may_have(part->table, address);
            part->wrong +=
                hr__tap_table_take(part->table, address, &out) != 1 || out.bytes != i + 1;
        }
    }
    return NULL;
}

static void test_threads(void **unused)
{
    (void)unused;
    enum { THREADS = 4 };
    struct hr__tap_table *table = make();
    struct table_part parts[THREADS];
    pthread_t threads[THREADS];
    for (uint64_t i = 0; i < THREADS; i++) {
        parts[i] = (struct table_part){.table = table, .first = 0x100000 * (i + 1)};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &parts[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(parts[i].wrong, 0);
    }
    drop(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one), cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_each), cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
