/*
 * The private cache that evicts: what is used sooner stays, the budget is never exceeded, space is
 * used again, several loaders share one budget; readers see right bytes while others evict; failing
 * allocations.
 */
#include "cache/evicting.h"

#include "../test.h"
#include "base/memory.h"
#include "base/random.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { SAMPLES = 600, LONGEST = 3100, DRAWS = 6000 };

static const struct hr__cache_options options = {.samples = SAMPLES, .budget_bytes = 300 << 10};

static struct hr__cache *make(void)
{
    struct hr__cache *cache;
    struct hr_error error;
    if (hr__cache_create_evicting(&cache, &options, &error))
        fail_msg("%s", error.message);
    assert_true(hr__cache_evicts(cache));
    return cache;
}

static struct hr__cache *join(struct hr__cache *beside)
{
    struct hr__cache *cache;
    struct hr_error error;
    if (hr__cache_join_evicting(&cache, beside, &options, &error))
        fail_msg("%s", error.message);
    return cache;
}

/* The length of a sample, and its bytes, which change with the time of writing. */
static size_t length_of(uint64_t index)
{
    return 100 + index * 37 % (LONGEST - 100);
}

static int offer(struct hr__cache *cache, uint64_t index, uint8_t time)
{
    uint8_t bytes[LONGEST];
    memset(bytes, (int)(index * 131 + time), sizeof bytes);
    struct hr__cache_offer o = {.index = index,
                                .bytes = bytes,
                                .length = length_of(index),
                                .form = HR_FORM_ENCODED,
                                .convert = 1};
    return hr__cache_offer(cache, &o);
}

/* Returns non-zero if the sample is cached. All its bytes must be of one time of writing. */
static int check(struct hr__cache *cache, uint64_t index)
{
    struct hr__cache_item item;
    if (!hr__cache_find(cache, index, &item))
        return 0;
    assert_int_equal(item.length, length_of(index));
    assert_int_equal((uintptr_t)item.bytes % 64, 0);
    uint8_t first = item.bytes[0];
    for (size_t i = 0; i < item.length; i++)
        assert_int_equal(item.bytes[i], first);
    assert_true((uint8_t)(first - index * 131) < 8);
    hr__cache_unpin(cache, &item);
    return 1;
}

static void check_counts(struct hr__cache *cache)
{
    struct hr__cache_counts now;
    uint64_t items = 0, source = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        int is_there = check(cache, i);
        items += (uint64_t)is_there;
        source += is_there ? length_of(i) : 0;
    }
    hr__cache_get_counts(cache, &now);
    assert_int_equal(hr__all_items(now.items), items);
    assert_int_equal(now.source_bytes, source);
    assert_true(now.bytes >= source && now.bytes <= now.reserved);
    assert_true(now.reserved <= options.budget_bytes);
    assert_int_equal(now.staged, 0);
}

/* Uses a sample as a loader does. Returns the bytes that were read from storage. */
static size_t use(struct hr__cache *cache, uint64_t index)
{
    hr__cache_use(cache, index);
    if (check(cache, index))
        return 0;
    offer(cache, index, 0);
    return length_of(index);
}

/* Draws with replacement: what is used next is kept, so much less is read than by keeping what came
 * first. */
static void test_draws_with_replacement(void **state)
{
    struct hr__cache *cache = make();
    struct hr__random random;
    static int64_t draws[DRAWS];
    static uint8_t is_kept[SAMPLES];
    uint64_t ours = 0, first_ones = 0, kept = 0;
    hr__random_init(&random, 1, HR__PURPOSE_MIX, 0, 0);
    for (int i = 0; i < DRAWS; i++)
        draws[i] = (int64_t)hr__random_below(&random, SAMPLES);
    hr__cache_begin_uses(cache);
    hr__cache_add_uses(cache, draws, DRAWS);
    hr__cache_end_uses(cache);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t index = (uint64_t)draws[i];
        ours += use(cache, index);
        first_ones += is_kept[index] ? 0 : length_of(index);
        if (!is_kept[index] && kept + length_of(index) <= options.budget_bytes) {
            is_kept[index] = 1;
            kept += length_of(index);
        }
    }
    check_counts(cache);
    assert_true(ours < first_ones * 2 / 3);
    hr__cache_destroy(&cache);
}

/* The sample that is used last makes room, and one that is used later than all others is not
 * admitted. */
static void test_bypass(void **state)
{
    struct hr__cache *cache = make();
    int64_t uses[2 * SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        uses[i] = uses[SAMPLES + i] = i;
    hr__cache_begin_uses(cache);
    hr__cache_add_uses(cache, uses, 2 * SAMPLES);
    uint64_t index = 0;
    for (; index < SAMPLES; index++) {
        hr__cache_use(cache, index);
        if (!offer(cache, index, 0))
            break;
    }
    /* It is full. What comes now is used later than all that is there. */
    assert_true(index > 50 && index < SAMPLES);
    for (uint64_t i = index + 1; i < SAMPLES; i++)
        hr__cache_use(cache, i);
    for (uint64_t i = 0; i < index; i++)
        assert_true(check(cache, i));
    /* Nothing of the first ones is needed any more, and others soon are. */
    for (uint64_t i = 0; i < index; i++)
        hr__cache_use(cache, i);
    for (uint64_t i = index; i < index + 20; i++)
        assert_true(offer(cache, i, 0));
    check_counts(cache);
    hr__cache_destroy(&cache);
}

/* Training and validation in turn in one budget: the second epoch of each reads far less, and the
 * space of a loader that ends serves the other. */
static void test_two_loaders(void **state)
{
    struct hr__cache *training = make(), *validation = join(training);
    int64_t uses[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        uses[i] = i;
    uint64_t read[2] = {0, 0};
    for (int epoch = 0; epoch < 6; epoch++)
        for (int which = 0; which < 2; which++) {
            struct hr__cache *cache = which ? validation : training;
            uint64_t count = which ? 60 : 200;
            hr__cache_begin_uses(cache);
            hr__cache_add_uses(cache, uses, count);
            hr__cache_end_uses(cache);
            hr__cache_add_uses(cache, uses, count);
            for (uint64_t i = 0; i < count; i++)
                read[which] += epoch < 2 ? 0 * use(cache, i) : use(cache, i);
        }
    uint64_t all[2] = {0, 0};
    for (uint64_t i = 0; i < 200; i++) {
        all[0] += length_of(i);
        all[1] += i < 60 ? length_of(i) : 0;
    }
    assert_true(all[0] + all[1] > options.budget_bytes);
    uint64_t least = 4 * (all[0] + all[1] - options.budget_bytes);
    assert_true(read[0] + read[1] >= least);
    assert_true(read[0] + read[1] < least + all[0]);
    check_counts(training);
    hr__cache_destroy(&training);
    check_counts(validation);
    struct hr__cache_counts now;
    hr__cache_get_counts(validation, &now);
    assert_int_equal(now.reserved, now.bytes);
    struct hr__cache *third = join(validation);
    hr__cache_destroy(&validation);
    hr__cache_begin_uses(third);
    hr__cache_add_uses(third, uses, SAMPLES);
    assert_true(offer(third, 5, 3));
    assert_true(check(third, 5));
    hr__cache_destroy(&third);
}

/* A pinned item stays whole after its eviction, and its space is used again afterwards. */
static void test_pinned_items(void **state)
{
    struct hr__cache *cache = make();
    struct hr__cache_item item;
    int64_t uses[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        uses[i] = i + 1 < SAMPLES ? i + 1 : 1;
    assert_true(offer(cache, 0, 5));
    assert_true(hr__cache_find(cache, 0, &item));
    hr__cache_begin_uses(cache);
    hr__cache_add_uses(cache, uses, SAMPLES);
    for (int round = 0; round < 40 && hr__cache_has(cache, 0); round++)
        for (uint64_t i = 1; i < SAMPLES; i++)
            offer(cache, i, 0);
    assert_false(hr__cache_has(cache, 0));
    for (size_t i = 0; i < item.length; i++)
        assert_int_equal(item.bytes[i], 5);
    struct hr__cache_counts before, after;
    hr__cache_get_counts(cache, &before);
    assert_true(before.reserved > before.bytes);
    hr__cache_unpin(cache, &item);
    offer(cache, 0, 0);
    offer(cache, 1, 0);
    hr__cache_get_counts(cache, &after);
    assert_int_equal(after.reserved, after.bytes);
    hr__cache_destroy(&cache);
}

/* ---- many threads ---- */

struct user {
    struct hr__cache *cache;
    uint64_t seed;
    atomic_uint *evicted;
};

static void *run_user(void *argument)
{
    struct user *user = argument;
    struct hr__random random;
    hr__random_init(&random, user->seed, HR__PURPOSE_MIX, 0, 0);
    for (int i = 0; i < 15000; i++) {
        /* Some samples are used much more often, so that they are read while others evict them. */
        uint64_t most = hr__random_u32(&random) % 4 ? 150 : SAMPLES;
        uint64_t index = hr__random_below(&random, most);
        hr__cache_use(user->cache, index);
        if (!check(user->cache, index) && offer(user->cache, index, (uint8_t)(i % 8)))
            atomic_fetch_add(user->evicted, 1);
    }
    return NULL;
}

static void test_threads(void **state)
{
    enum { THREADS = 4 };
    struct hr__cache *caches[2] = {make(), NULL};
    struct user users[THREADS];
    pthread_t threads[THREADS];
    atomic_uint admitted = 0;
    caches[1] = join(caches[0]);
    for (int i = 0; i < THREADS; i++) {
        users[i] = (struct user){caches[i % 2], (uint64_t)i, &admitted};
        assert_int_equal(pthread_create(&threads[i], NULL, run_user, &users[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    /* Far more items were admitted than fit at once. */
    assert_true(admitted > 3 * SAMPLES);
    check_counts(caches[0]);
    check_counts(caches[1]);
    hr__cache_destroy(&caches[0]);
    hr__cache_destroy(&caches[1]);
}

static void test_errors(void **state)
{
    struct hr__cache *cache, *plain;
    struct hr_error error;
    struct hr__cache_options none = {.samples = 10}, huge = options;
    assert_int_equal(hr__cache_create_evicting(&cache, &none, &error), -EINVAL);
    huge.budget_bytes = UINT64_MAX;
    assert_int_equal(hr__cache_create_evicting(&cache, &huge, &error), -ENOMEM);
    for (uint64_t n = 1; n < 20; n++) {
        hr__alloc_fail_at(n, 0);
        int r = hr__cache_create_evicting(&cache, &options, &error);
        hr__alloc_fail_at(0, 0);
        if (!r)
            break;
        assert_int_equal(r, -ENOMEM);
        assert_null(cache);
        assert_true(n < 19);
    }
    struct hr__cache *other;
    for (uint64_t n = 1; n < 4; n++) {
        hr__alloc_fail_at(n, 0);
        assert_int_equal(hr__cache_join_evicting(&other, cache, &options, &error), -ENOMEM);
        hr__alloc_fail_at(0, 0);
    }
    assert_int_equal(hr__cache_create(&plain, &options, &error), 0);
    assert_int_equal(hr__cache_join_evicting(&other, plain, &options, &error), -EINVAL);
    assert_null(other);
    hr__cache_destroy(&plain);
    hr__cache_destroy(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_with_replacement),
        cmocka_unit_test(test_bypass),
        cmocka_unit_test(test_two_loaders),
        cmocka_unit_test(test_pinned_items),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
