/*
 * Stores on segments: lookups find the offered or converted items, the books agree with the index
 * after every operation, the ring passes items on and moves items to the arena before it overwrites
 * them, claims end with their process, and a process that is killed at any step of any operation
 * leaves a segment without errors, lost items or leaked space.
 */
#include "segment_fixture.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cache/store_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static void test_offer_and_find(void **state)
{
    struct hr__store *store = fixture_open(1, 4 * MIB, 500);
    for (uint64_t i = 0; i < 300; i++) {
        assert_int_equal(fixture_find(store, i), 0);
        assert_int_equal(fixture_offer(store, i, 0), 1);
        assert_int_equal(fixture_offer(store, i, 0), 0);
        assert_int_equal(fixture_find(store, i), 1);
    }
    fixture_audit(hr__store_segment(store));
    struct hr__cache_counts counts;
    hr__store_get_counts(store, &counts);
    assert_int_equal(counts.items[0], 300);
    assert_int_equal(counts.bytes, counts.reserved);
    /* another user, and one after all have left */
    for (int round = 0; round < 2; round++) {
        struct hr__store *other = fixture_open(1, 4 * MIB, 500);
        for (uint64_t i = 0; i < 300; i++)
            assert_int_equal(fixture_find(other, i), 1);
        assert_int_equal(fixture_find(other, 300), 0);
        fixture_close(&other);
        if (!round)
            fixture_close(&store);
    }
    fixture_drop(1);
}

static void test_budget(void **state)
{
    uint64_t budget = MIB / 2, admitted = 0, bytes = 0;
    struct hr__store *store = fixture_open(2, budget, 500);
    for (uint64_t i = 0; i < 500; i++) {
        int r = fixture_offer(store, i, 0);
        admitted += (uint64_t)r;
        bytes += r ? (fixture_length(i) + 63) / 64 * 64 : 0;
        assert_int_equal(fixture_find(store, i), r);
    }
    fixture_audit(hr__store_segment(store));
    struct hr__cache_counts counts;
    hr__store_get_counts(store, &counts);
    assert_int_equal(counts.items[0], admitted);
    assert_int_equal(counts.bytes, bytes);
    assert_true(bytes <= budget && bytes > budget - 2048);
    assert_int_equal(counts.refused, 500 - admitted);
    fixture_close(&store);
    fixture_drop(2);
}

static void test_an_index_that_is_full(void **state)
{
    struct hr__store *store = fixture_open(3, 16 * MIB, 10);
    uint64_t slots = hr__store_segment(store)->layout.index_slots, admitted = 0;
    for (uint64_t i = 0; i < 200; i++)
        admitted += (uint64_t)fixture_offer(store, i, 0);
    assert_int_equal(admitted, slots);
    for (uint64_t i = 0; i < 200; i++)
        assert_int_equal(fixture_find(store, i), i < slots);
    fixture_audit(hr__store_segment(store));
    fixture_close(&store);
    fixture_drop(3);
}

static void test_conversions(void **state)
{
    struct hr__store *store = fixture_open(4, 8 * MIB, 500);
    struct hr__segment *s = hr__store_segment(store);
    for (uint64_t i = 0; i < 200; i++) {
        assert_int_equal(fixture_offer(store, i, 1), 1);
        assert_int_equal(fixture_find(store, i), 1);
    }
    assert_int_equal(hr__store_waiting(store), 200);
    fixture_audit(s);
    for (int i = 0; i < 150; i++) {
        assert_int_equal(fixture_convert(store), 1);
        if (i % 10 == 0)
            fixture_audit(s);
    }
    /* it is unchanged */
    struct hr__cache_item item;
    struct hr__store_staged *staged = hr__store_take(store, &item);
    fixture_audit(s);
    struct hr__cache_final final = {.bytes = NULL};
    assert_int_equal(hr__store_settle(store, staged, &final), 0);
    while (fixture_convert(store) >= 0)
        ;
    fixture_audit(s);
    struct hr__cache_counts counts;
    hr__store_get_counts(store, &counts);
    assert_int_equal(counts.items[HR_FORM_INDEXED], 199);
    assert_int_equal(counts.items[HR_FORM_ENCODED], 1);
    assert_int_equal(counts.staged, 0);
    for (uint64_t i = 0; i < 200; i++)
        assert_int_equal(fixture_find(store, i), 1);
    fixture_close(&store);
    fixture_drop(4);
}

/* More items than the ring holds wait for their conversion. Items that the ring would overwrite are
 * settled unconverted and stay hits; a user that was converting one notices that. */
static void test_the_ring_comes_round(void **state)
{
    struct hr__store *store = fixture_open(5, 64 * MIB, 5000);
    struct hr__segment *s = hr__store_segment(store);
    struct hr__cache_item item;
    assert_int_equal(fixture_offer(store, 0, 1), 1);
    struct hr__store_staged *held = hr__store_take(store, &item);
    assert_non_null(held);
    for (uint64_t i = 1; i < 3000; i++) {
        assert_int_equal(fixture_offer(store, i, 1), 1);
        if (i % 500 == 0)
            fixture_audit(s);
    }
    assert_true(atomic_load(&s->header->ring_tail) > 0);
    uint8_t bytes[64] = {0};
    struct hr__cache_final final = {.bytes = bytes, .length = sizeof bytes};
    assert_int_equal(hr__store_settle(store, held, &final), 0);
    for (uint64_t i = 0; i < 3000; i++)
        assert_int_equal(fixture_find(store, i), 1);
    while (fixture_convert(store) >= 0)
        ;
    fixture_audit(s);
    for (uint64_t i = 0; i < 3000; i++)
        assert_int_equal(fixture_find(store, i), 1);
    fixture_close(&store);
    fixture_drop(5);
}

static void test_growth_beyond_the_budget(void **state)
{
    struct hr__store *store = fixture_open(6, MIB, 500);
    struct hr__segment *s = hr__store_segment(store);
    uint64_t admitted = 0;
    for (uint64_t i = 0; i < 400; i++)
        admitted += (uint64_t)fixture_offer(store, i, i % 2 == 0);
    fixture_audit(s);
    while (fixture_convert(store) >= 0)
        fixture_audit(s);
    struct hr__cache_counts counts;
    hr__store_get_counts(store, &counts);
    assert_int_equal(hr__all_items(counts.items), admitted);
    assert_true(counts.items[HR_FORM_INDEXED] > 0);
    assert_true(counts.bytes <= MIB);
    fixture_close(&store);
    fixture_drop(6);
}

/* Items for which the arena has no room pass from one user to another. */
static void test_items_pass_by(void **state)
{
    struct hr__store *a = fixture_open(7, 64 * 1024, 4000);
    for (uint64_t i = 0; i < 100; i++)
        fixture_offer(a, i, 0);
    assert_int_equal(fixture_offer(a, 100, 0), 0);
    assert_int_equal(fixture_find(a, 100), 0); /* there is no other user */
    assert_int_equal(hr__store_claim(a, &(struct hr__key){1, 2}), HR__CLAIM_ALONE);
    struct hr__store *b = fixture_open(7, 64 * 1024, 4000);
    atomic_store(&a->others_asked_ns, 0);
    uint64_t ring = hr__store_segment(a)->layout.ring_bytes;
    for (uint64_t i = 101; i < 3000; i++) {
        struct hr__key key = fixture_key(i);
        assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_YOURS);
        assert_int_equal(hr__store_claim(b, &key), HR__CLAIM_BUSY);
        assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_ALONE);
        assert_int_equal(fixture_offer(a, i, 0), 0);
        assert_int_equal(hr__store_claim(b, &key), HR__CLAIM_FOUND);
        assert_int_equal(fixture_find(b, i), 1);
    }
    /* the ring was overwritten several times: the first items are gone */
    assert_true(atomic_load(&hr__store_segment(a)->header->ring_tail) > ring);
    assert_int_equal(fixture_find(b, 101), 0);
    assert_int_equal(fixture_find(b, 2990), 1);
    fixture_audit(hr__store_segment(a));
    fixture_close(&a);
    fixture_close(&b);
    fixture_drop(7);
}

/* The ring was filled once, and the arena cannot grow at the moment: an unconverted item finds no
 * room, and takes no room except what the ring frees. */
static void test_no_growth_just_now(void **state)
{
    uint64_t budget = 64 * MIB;
    struct hr__store *store = fixture_open(14, budget, 20000);
    struct hr__store *other = fixture_open(14, budget, 20000);
    struct hr__segment *s = hr__store_segment(store);
    uint64_t i = 0;
    for (; i < 1200; i++)
        assert_int_equal(fixture_offer(store, i, 1), 1);
    assert_true(atomic_load(&s->header->ring_tail) > 0);
    /* A stopped process holds the directory's lock. */
    int fd = open(getenv("HEADRACE_SHM"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    while (fixture_offer(store, i, 0))
        assert_true(++i < 20000);
    for (uint64_t end = i + 1500; i < end; i++)
        fixture_offer(store, i, 0);
    assert_true(hr__segment_is_sound(s));
    fixture_audit(s);
    for (uint64_t j = 0; j < 1200; j++)
        assert_int_equal(fixture_find(other, j), 1);
    close(fd);
    assert_int_equal(fixture_offer(store, 19999, 0), 1);
    while (fixture_convert(store) >= 0)
        ;
    fixture_audit(s);
    fixture_close(&other);
    fixture_close(&store);
    fixture_drop(14);
}

static void test_claims(void **state)
{
    struct hr__store *a = fixture_open(8, MIB, 100), *b = fixture_open(8, MIB, 100);
    struct hr__key key = fixture_key(1);
    assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_YOURS);
    assert_int_equal(hr__store_claim(b, &key), HR__CLAIM_BUSY);
    hr__store_unclaim(b, &key); /* not b's claim */
    assert_int_equal(hr__store_claim(b, &key), HR__CLAIM_BUSY);
    hr__store_unclaim(a, &key);
    assert_int_equal(hr__store_claim(b, &key), HR__CLAIM_YOURS);
    assert_int_equal(fixture_offer(b, 1, 0), 1);
    assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_FOUND);
    /* a claim ends with its user, however the user ends */
    key = fixture_key(2);
    assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_YOURS);
    fixture_close(&a);
    assert_int_equal(hr__store_claim(b, &key), HR__CLAIM_YOURS);
    a = fixture_open(8, MIB, 100);
    assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_BUSY);
    fixture_close(&a);
    fixture_close(&b);
    fixture_drop(8);
}

/* A user that was stopped, or hangs in a read, is waited for only briefly. */
static void test_a_claimant_that_does_not_get_on(void **state)
{
    struct hr__store *a = fixture_open(9, MIB, 100), *b = fixture_open(9, MIB, 100);
    struct hr__key key = fixture_key(1);
    unsigned slot = (unsigned)hr__store_segment(a)->slot;
    assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_YOURS);
    assert_int_equal(hr__store_claim(b, &key), HR__CLAIM_BUSY);
    atomic_fetch_sub(&b->since_ns[slot], UINT64_C(2100000000));
    assert_int_equal(hr__store_claim(b, &key), HR__CLAIM_ALONE);
    hr__store_unclaim(a, &(struct hr__key){1, 1});
    assert_int_equal(hr__store_claim(b, &key), HR__CLAIM_BUSY);
    fixture_close(&a);
    fixture_close(&b);
    fixture_drop(9);
}

static void note_place(struct hr__store *store, uint64_t order, uint64_t position)
{
    struct hr__cache_progress at = {.order = order, .position = position, .samples = 4000};
    hr__store_note_place(store, &at);
}

/* Of two users with the same order, the one that is ahead by more than the ring holds waits for the
 * other, but only while the other moves, and not for ever. */
static void test_kept_together(void **state)
{
    uint64_t items = 4000;
    struct hr__store *a = fixture_open(14, 64 * 1024, items),
                     *b = fixture_open(14, 64 * 1024, items);
    for (uint64_t i = 0; i < 100; i++)
        fixture_offer(a, i, 0);
    struct hr__key key = fixture_key(5000);
    /* The ring of 4 MiB holds about 760 items; half of that is the window. */
    note_place(a, 77, 2000);
    note_place(b, 77, 1900);
    assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_YOURS);
    hr__store_unclaim(a, &key);
    note_place(b, 77, 1000);
    assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_BUSY);
    assert_int_equal(hr__store_claim(b, &key), HR__CLAIM_YOURS); /* the user that is behind never
                                                                    waits */
    hr__store_unclaim(b, &key);
    note_place(b, 78, 1000); /* another order */
    assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_YOURS);
    hr__store_unclaim(a, &key);
    /* A user that does not move is not waited for, */
    note_place(b, 77, 1001);
    assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_BUSY);
    atomic_fetch_sub(&a->place_ns[hr__store_segment(b)->slot], UINT64_C(300000000));
    assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_YOURS);
    hr__store_unclaim(a, &key);
    /* nor is one that stays slower */
    note_place(b, 77, 1002);
    assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_BUSY);
    atomic_store(&a->waited_ns, UINT64_C(60000000000));
    assert_int_equal(hr__store_claim(a, &key), HR__CLAIM_YOURS);
    hr__store_unclaim(a, &key);
    fixture_close(&a);
    fixture_close(&b);
    fixture_drop(14);
}

/* ---- killed at every step ---- */

static int steps_left, only_step = -1;

static void die_at_step(int step)
{
    if (only_step >= 0 && step != only_step)
        return;
    if (!--steps_left)
        kill(getpid(), SIGKILL);
}

/* Runs each operation once. */
static void operate(struct hr__store *store)
{
    struct hr__key key = fixture_key(1000);
    struct hr__cache_item item;
    for (uint64_t i = 100; i < 110; i++)
        fixture_offer(store, i, 0);
    for (uint64_t i = 200; i < 220; i++)
        fixture_offer(store, i, 1);
    atomic_store(&store->others_asked_ns, hr__now_ns() + UINT64_C(1000000000000));
    atomic_store(&store->others, 1);
    hr__store_claim(store, &key);
    fixture_convert(store);
    struct hr__store_staged *staged = hr__store_take(store, &item);
    struct hr__cache_final final = {.bytes = NULL};
    if (staged)
        hr__store_settle(store, staged, &final);
    fixture_offer(store, 1000, 0);
    key = fixture_key(1001);
    hr__store_claim(store, &key);
    hr__store_unclaim(store, &key);
    hr__store_take(store, &item); /* the process dies while it holds the item */
    key = fixture_key(1002);
    hr__store_claim(store, &key);
}

static void test_killed_at_every_step(void **state)
{
    test_has_one_thread();
    int survived = 0;
    for (int steps = 1; !survived; steps += test_is_slow() ? 3 : 1) {
        struct hr__store *store = fixture_open(10, 2 * MIB, 1000);
        for (uint64_t i = 0; i < 20; i++)
            assert_int_equal(fixture_offer(store, i, 0), 1);
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            hr__store_abandon(&store);
            struct hr__store *mine = fixture_open(10, 2 * MIB, 1000);
            steps_left = steps;
            hr__segment_test_step = die_at_step;
            operate(mine);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        survived = WIFEXITED(status);
        if (!survived)
            assert_int_equal(WTERMSIG(status), SIGKILL);
        /* the next user takes over the dead user's slot and cleans up */
        struct hr__store *next = fixture_open(10, 2 * MIB, 1000);
        assert_int_equal(hr__store_segment(next)->slot, 1);
        fixture_audit(hr__store_segment(next));
        for (uint64_t i = 0; i < 20; i++)
            assert_int_equal(fixture_find(store, i), 1);
        for (uint64_t i = 100; i < 1003; i++)
            fixture_find(store, i);
        for (uint64_t i = 1000; i < 1003; i++) {
            struct hr__key key = fixture_key(i);
            enum hr__claim claim = hr__store_claim(next, &key);
            if (claim != HR__CLAIM_YOURS && claim != HR__CLAIM_FOUND)
                fail_msg("killed at step %d: claim of %d says %d", steps, (int)i, (int)claim);
        }
        for (uint64_t i = 100; i < 220; i++)
            fixture_offer(next, i, 0);
        for (uint64_t i = 100; i < 220; i++)
            assert_int_equal(fixture_find(store, i), 1);
        while (fixture_convert(next) >= 0)
            ;
        fixture_audit(hr__store_segment(store));
        struct hr__cache_counts counts;
        hr__store_get_counts(store, &counts);
        assert_int_equal(counts.staged, 0);
        fixture_close(&next);
        fixture_close(&store);
        fixture_drop(10);
        assert_true(steps < 5000);
    }
}

/* A process that was stopped in a transaction delays the others only briefly. */
static void stop_at_step(int step)
{
    if (step == only_step)
        raise(SIGSTOP);
}

static void test_stopped_in_a_transaction(void **state)
{
    struct hr__store *store = fixture_open(11, 2 * MIB, 1000);
    fixture_offer(store, 1, 0);
    pid_t child = fork();
    if (!child) {
        hr__store_abandon(&store);
        struct hr__store *mine = fixture_open(11, 2 * MIB, 1000);
        only_step = HR__STEP_BYTES;
        hr__segment_test_step = stop_at_step;
        fixture_offer(mine, 2, 0);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    for (uint64_t i = 10; i < 1000; i++)
        assert_int_equal(fixture_offer(store, i, 0), 0);
    assert_int_equal(fixture_find(store, 1), 1);
    kill(child, SIGCONT);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(fixture_find(store, 2), 1);
    assert_int_equal(fixture_offer(store, 10, 0), 1);
    fixture_audit(hr__store_segment(store));
    fixture_close(&store);
    fixture_drop(11);
}

/* ---- many at once ---- */

#define RACERS 4
#define RACED  1500

static void *race(void *arg)
{
    struct hr__store *store = arg;
    uint64_t seed = (uint64_t)(uintptr_t)&seed >> 6;
    for (int round = 0; round < 6; round++) {
        for (uint64_t i = 0; i < RACED; i++) {
            uint64_t item = (i * 7 + seed) % RACED;
            if (!fixture_find(store, item))
                fixture_offer(store, item, item % 3 == 0);
            if (i % 5 == 0)
                fixture_convert(store);
        }
    }
    return NULL;
}

static void run_racers(struct hr__store *store)
{
    pthread_t threads[RACERS];
    for (int i = 0; i < RACERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race, store), 0);
    for (int i = 0; i < RACERS; i++)
        pthread_join(threads[i], NULL);
}

static void test_threads_and_processes(void **state)
{
    struct hr__store *store = fixture_open(12, 6 * MIB, RACED);
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (!children[i]) {
            hr__store_abandon(&store);
            struct hr__store *mine = fixture_open(12, 6 * MIB, RACED);
            run_racers(mine);
            fixture_close(&mine);
            _exit(0);
        }
    }
    run_racers(store);
    for (int i = 0; i < 2; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    while (fixture_convert(store) >= 0)
        ;
    fixture_audit(hr__store_segment(store));
    fixture_close(&store);
    fixture_drop(12);
}

/* ---- growth ---- */

#define GROWERS    4
#define GROWN      150 /* items each */
#define GROWN_SIZE (300 * 1024)

struct grower {
    struct hr__store *store;
    uint64_t from;
};

static void *grow(void *arg)
{
    const struct grower *g = arg;
    uint8_t *bytes = calloc(1, GROWN_SIZE);
    uint64_t admitted = 0;
    for (uint64_t i = 0; i < GROWN; i++) {
        struct hr__store_piece piece = {bytes, GROWN_SIZE};
        struct hr__store_offer offer = {
            .key = fixture_key(g->from + i),
            .pieces = &piece,
            .piece_count = 1,
            .length = GROWN_SIZE,
            .source_bytes = GROWN_SIZE,
        };
        admitted += (uint64_t)hr__store_offer(g->store, &offer);
    }
    free(bytes);
    return (void *)(uintptr_t)admitted;
}

/* Memory is allocated step by step, and the room of one store may be taken by another meanwhile:
 * items within the budget are admitted all the same. */
static void test_many_grow(void **state)
{
    struct hr__store *store = fixture_open(15, 256 * MIB, 1000);
    pthread_t threads[GROWERS];
    struct grower growers[GROWERS];
    for (uint64_t i = 0; i < GROWERS; i++) {
        growers[i] = (struct grower){store, i * GROWN};
        assert_int_equal(pthread_create(&threads[i], NULL, grow, &growers[i]), 0);
    }
    for (int i = 0; i < GROWERS; i++) {
        void *admitted;
        pthread_join(threads[i], &admitted);
        assert_int_equal((uintptr_t)admitted, GROWN);
    }
    fixture_audit(hr__store_segment(store));
    fixture_close(&store);
    fixture_drop(15);
}

static void test_failing_allocations(void **state)
{
    struct hr__store *store = fixture_open(13, 4 * MIB, 500);
    for (uint64_t n = 1; n < 12; n++) {
        hr__alloc_fail_at(n, 0);
        fixture_offer(store, n, 1);
        fixture_find(store, n);
        fixture_convert(store);
        hr__alloc_fail_at(0, 0);
        fixture_audit(hr__store_segment(store));
        assert_int_equal(fixture_find(store, n), 1);
    }
    fixture_close(&store);
    fixture_drop(13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offer_and_find),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_an_index_that_is_full),
        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_the_ring_comes_round),
        cmocka_unit_test(test_growth_beyond_the_budget),
        cmocka_unit_test(test_items_pass_by),
        cmocka_unit_test(test_no_growth_just_now),
        cmocka_unit_test(test_claims),
        cmocka_unit_test(test_a_claimant_that_does_not_get_on),
        cmocka_unit_test(test_kept_together),
        cmocka_unit_test(test_killed_at_every_step),
        cmocka_unit_test(test_stopped_in_a_transaction),
        cmocka_unit_test(test_threads_and_processes),
        cmocka_unit_test(test_many_grow),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
