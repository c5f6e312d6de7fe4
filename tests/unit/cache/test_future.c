/* When samples are used next: compared with searches through whole sequences of uses. */
#include "cache/future.h"

#include "../test.h"
#include "base/memory.h"
#include "base/random.h"
#include "cache/numbers.h"
#include "cache/residents.h"

#include <errno.h>
#include <math.h>

enum { SAMPLES = 50, USES = 400 };

static struct hr__future_order *make_order(struct hr__future *future)
{
    struct hr__future_order *order;
    struct hr_error error;
    assert_int_equal(hr__future_order_create(&order, future, SAMPLES, &error), 0);
    return order;
}

/* Draws with replacement, unequally. */
static void draw(uint32_t *uses, uint32_t count, uint64_t seed)
{
    struct hr__random random;
    hr__random_init(&random, seed, HR__PURPOSE_MIX, 0, 0);
    for (uint32_t i = 0; i < count; i++)
        uses[i] = (uint32_t)hr__random_below(&random, 1 + hr__random_below(&random, SAMPLES));
}

/* The number of the first use of a sample at `from` or later; `count` if there is none. */
static uint32_t search(const uint32_t *uses, uint32_t from, uint32_t count, uint32_t sample)
{
    while (from < count && uses[from] != sample)
        from++;
    return from;
}

static void add_all(struct hr__future_order *order, const uint32_t *uses, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(hr__future_add(order, uses[i]), 0);
}

/* Alone, an order uses something at each tick, so the next use is known to the tick, also in the
 * next epoch, and uses may be added while others happen. */
static void test_one_order_is_exact(void **state)
{
    struct hr__future future = {0};
    struct hr__future_order *order = make_order(&future);
    uint32_t uses[2 * USES];
    draw(uses, 2 * USES, 1);
    add_all(order, uses, USES / 2);
    for (uint32_t done = 0; done < USES; done++) {
        if (done == USES / 4) {
            add_all(order, uses + USES / 2, USES / 2);
            hr__future_end_epoch(order);
            add_all(order, uses + USES, USES);
        }
        uint32_t known = done < USES / 4 ? USES / 2 : 2 * USES;
        for (uint32_t sample = 0; sample < SAMPLES; sample++) {
            uint32_t use = search(uses, done, known, sample);
            double next = hr__future_next(order, sample);
            if (use < known)
                assert_true(next == use - done);
            else
                assert_true(next >= known - done);
        }
        hr__future_use(order, uses[done]);
    }
    assert_int_equal(future.clock, USES);
    hr__future_begin(order);
    assert_true(hr__future_next(order, 0) >= 0);
    hr__future_order_destroy(&order);
    hr__future_order_destroy(&order);
}

/* Threads come to different samples in another order. Each sample's list stays right. */
static void test_uses_out_of_order(void **state)
{
    struct hr__future future = {0};
    struct hr__future_order *order = make_order(&future);
    const uint32_t uses[] = {0, 1, 2, 0, 1, 0};
    add_all(order, uses, 6);
    hr__future_use(order, 2);
    hr__future_use(order, 1);
    assert_true(hr__future_next(order, 0) == 0); /* due since the first tick */
    assert_true(hr__future_next(order, 1) == 2);
    hr__future_use(order, 0);
    assert_true(hr__future_next(order, 0) == 0);
    hr__future_use(order, 0);
    assert_true(hr__future_next(order, 0) == 1);
    hr__future_order_destroy(&order);
}

/* What was used often is expected sooner than what was used seldom, once nothing is known. */
static void test_unknown_uses_follow_frequency(void **state)
{
    struct hr__future future = {0};
    struct hr__future_order *order = make_order(&future);
    for (int i = 0; i < 10; i++)
        hr__future_use(order, 3);
    hr__future_use(order, 4);
    double often = hr__future_next(order, 3), once = hr__future_next(order, 4);
    assert_true(often < once && once < hr__future_next(order, 5));
    assert_int_equal(hr__future_add(order, 5), 0);
    assert_true(hr__future_next(order, 5) < often);
    hr__future_order_destroy(&order);
}

/* Two orders, one three times as fast: their uses are merged by the measured speeds. */
static void test_speeds(void **state)
{
    struct hr__future future = {0};
    struct hr__future_order *slow = make_order(&future), *fast = make_order(&future);
    uint32_t uses[4 * USES];
    draw(uses, 4 * USES, 2);
    add_all(slow, uses, 4 * USES);
    add_all(fast, uses, 4 * USES);
    for (uint32_t tick = 0; tick < 4 * USES / 2; tick++)
        hr__future_use(tick % 4 ? fast : slow, uses[tick % 4 ? tick - tick / 4 - 1 : tick / 4]);
    uint32_t done = USES / 2;
    for (uint32_t sample = 0; sample < SAMPLES; sample++) {
        uint32_t use = search(uses, done, 4 * USES, sample);
        if (use < 4 * USES) {
            double truth = 4.0 * (use - done);
            assert_true(fabs(hr__future_next(slow, sample) - truth) <= 0.1 * truth + 4);
        }
        use = search(uses, 3 * done, 4 * USES, sample);
        if (use < 4 * USES) {
            double truth = 4.0 / 3 * (use - 3 * done);
            assert_true(fabs(hr__future_next(fast, sample) - truth) <= 0.1 * truth + 4);
        }
    }
    hr__future_order_destroy(&slow);
    hr__future_order_destroy(&fast);
}

static void run_epoch(struct hr__future_order *order, uint32_t uses)
{
    hr__future_begin(order);
    for (int epoch = 0; epoch < 2; epoch++) {
        for (uint32_t i = 0; i < uses; i++)
            assert_int_equal(hr__future_add(order, i % SAMPLES), 0);
        if (!epoch)
            hr__future_end_epoch(order);
    }
    for (uint32_t i = 0; i < uses; i++)
        hr__future_use(order, i % SAMPLES);
}

/* Training and validation in turn: the validation is expected where its period says. One that does
 * not come is expected later and later. */
static void test_epochs_in_turn(void **state)
{
    struct hr__future future = {0};
    struct hr__future_order *training = make_order(&future), *validation = make_order(&future);
    for (int round = 0; round < 3; round++) {
        run_epoch(training, USES);
        run_epoch(validation, SAMPLES);
    }
    assert_true(hr__future_next(validation, 7) == USES + 7);
    run_epoch(training, USES);
    assert_true(hr__future_next(validation, 7) == 7);
    run_epoch(training, USES);
    assert_true(hr__future_next(validation, 7) == USES + 7);
    run_epoch(training, USES);
    assert_true(hr__future_next(validation, 7) == 2 * USES + 7);
    hr__future_order_destroy(&training);
    hr__future_order_destroy(&validation);
}

/* An order that stands still in the middle of an epoch does not keep its samples near. */
static void test_a_pause(void **state)
{
    struct hr__future future = {0};
    struct hr__future_order *stands = make_order(&future), *runs = make_order(&future);
    uint32_t uses[USES];
    draw(uses, USES, 3);
    add_all(stands, uses, USES);
    for (uint32_t i = 0; i < USES / 2; i++)
        hr__future_use(stands, uses[i]);
    for (uint32_t i = 0; i < 10 * USES; i++)
        hr__future_use(runs, i % SAMPLES);
    assert_true(hr__future_next(stands, uses[USES / 2]) >= 10 * USES);
    hr__future_use(stands, uses[USES / 2]);
    uint32_t next = uses[USES / 2 + 1];
    assert_true(hr__future_next(stands, next) < USES);
    hr__future_order_destroy(&stands);
    hr__future_order_destroy(&runs);
}

static void test_errors(void **state)
{
    struct hr__future future = {0};
    struct hr__future_order *order;
    struct hr_error error;
    assert_int_equal(hr__future_order_create(&order, &future, UINT32_MAX, &error), -EOVERFLOW);
    assert_null(order);
    for (uint64_t n = 1; n <= 4; n++) {
        hr__alloc_fail_at(n, 0);
        assert_int_equal(hr__future_order_create(&order, &future, SAMPLES, &error), -ENOMEM);
        assert_null(order);
    }
    order = make_order(&future);
    for (uint64_t n = 1; n <= 8; n++) {
        hr__alloc_fail_at(n, 0);
        assert_int_equal(hr__future_add(order, 1), -ENOMEM);
        hr__alloc_fail_at(0, 0);
        hr__future_order_destroy(&order);
        order = make_order(&future);
    }
    assert_int_equal(hr__future_add(order, 1), 0);
    assert_true(hr__future_next(order, 1) == 0);
    hr__future_order_destroy(&order);
}

static double by_number(const void *context, uint32_t item)
{
    return *(const double *)context + item;
}

/* The chosen item is there, its time is right, and it is far on average: of 32 random items the
 * furthest. */
static void test_residents(void **state)
{
    enum { ITEMS = 3000 };
    struct hr__residents set;
    double add = 5, when, sum = 0;
    hr__residents_init(&set);
    assert_int_equal(hr__residents_reserve(&set, 10), 0);
    assert_int_equal(hr__residents_furthest(&set, by_number, &add, &when), HR__NO_RESIDENT);
    assert_int_equal(hr__residents_reserve(&set, ITEMS), 0);
    for (uint32_t item = 0; item < ITEMS; item++)
        hr__residents_add(&set, item);
    for (uint32_t item = 0; item < ITEMS; item += 3)
        hr__residents_remove(&set, item);
    assert_int_equal(set.count, ITEMS / 3 * 2);
    for (int i = 0; i < 1000; i++) {
        uint32_t item = hr__residents_furthest(&set, by_number, &add, &when);
        assert_true(hr__residents_has(&set, item) && item % 3 && when == item + 5.0);
        sum += item;
    }
    assert_true(sum / 1000 > 0.95 * ITEMS);
    for (uint32_t left = set.count; left--;) {
        uint32_t item = hr__residents_furthest(&set, by_number, &add, &when);
        hr__residents_remove(&set, item);
        assert_false(hr__residents_has(&set, item));
    }
    assert_int_equal(set.count, 0);
    hr__residents_clear(&set);
}

/* The largest number is that of a walk over all of them, wherever numbers come and go. */
static void test_numbers(void **state)
{
    enum { NUMBERS = 300000 };
    static uint8_t there[NUMBERS];
    struct hr__numbers set = {.room = 0};
    struct hr__random random;
    hr__random_init(&random, 4, HR__PURPOSE_MIX, 0, 0);
    assert_int_equal(hr__numbers_largest(&set), HR__NO_NUMBER);
    for (uint32_t room = 1; room <= NUMBERS; room = room < NUMBERS / 3 ? room * 3 : NUMBERS + 1) {
        assert_int_equal(hr__numbers_reserve(&set, room), 0);
        for (int i = 0; i < 300; i++) {
            uint32_t number = (uint32_t)hr__random_below(&random, room);
            there[number] ^= 1;
            (there[number] ? hr__numbers_add : hr__numbers_remove)(&set, number);
            uint32_t largest = NUMBERS;
            while (largest-- && !there[largest])
                ;
            assert_int_equal(hr__numbers_largest(&set), largest);
            assert_int_equal(hr__numbers_has(&set, number), there[number]);
        }
    }
    hr__numbers_clear(&set);
    assert_int_equal(hr__numbers_largest(&set), HR__NO_NUMBER);
    enum { FAR = 40000000 };
    assert_int_equal(hr__numbers_reserve(&set, FAR + 1), 0);
    hr__numbers_add(&set, FAR);
    assert_int_equal(hr__numbers_largest(&set), FAR);
    hr__numbers_remove(&set, FAR);
    assert_int_equal(hr__numbers_largest(&set), HR__NO_NUMBER);
    hr__numbers_free(&set);
}

/* The kept sample that is used last is found, by known uses and where they end, while samples are
 * used, kept and dropped and epochs begin. */
static void test_furthest(void **state)
{
    struct hr__future future = {0};
    struct hr__future_order *order = make_order(&future);
    uint32_t uses[2 * USES];
    uint8_t kept[SAMPLES] = {0};
    struct hr__random random;
    double when;
    hr__random_init(&random, 5, HR__PURPOSE_MIX, 0, 0);
    assert_int_equal(hr__future_furthest(order, &when), HR__NO_RESIDENT);
    for (int epoch = 0; epoch < 3; epoch++) {
        draw(uses, 2 * USES, (uint32_t)epoch + 10);
        hr__future_begin(order);
        add_all(order, uses, USES);
        hr__future_end_epoch(order);
        add_all(order, uses + USES, USES);
        for (uint32_t done = 0; done < USES; done++) {
            uint32_t sample = (uint32_t)hr__random_below(&random, SAMPLES);
            kept[sample] = (uint8_t)hr__random_below(&random, 2);
            (kept[sample] ? hr__future_keep : hr__future_drop)(order, sample);
            hr__future_use(order, uses[done]);
            double latest = -1;
            for (uint32_t i = 0; i < SAMPLES; i++)
                if (kept[i] && hr__future_next(order, i) > latest)
                    latest = hr__future_next(order, i);
            uint32_t found = hr__future_furthest(order, &when);
            assert_int_equal(found == HR__NO_RESIDENT, latest < 0);
            if (found == HR__NO_RESIDENT)
                continue;
            assert_true(kept[found] && when == hr__future_next(order, found));
            /* Of those without a known use some random ones are compared. */
            assert_true(when == latest || search(uses, done + 1, 2 * USES, found) == 2 * USES);
        }
    }
    hr__future_order_destroy(&order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_order_is_exact),
        cmocka_unit_test(test_uses_out_of_order),
        cmocka_unit_test(test_unknown_uses_follow_frequency),
        cmocka_unit_test(test_speeds),
        cmocka_unit_test(test_epochs_in_turn),
        cmocka_unit_test(test_a_pause),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_residents),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_furthest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
