/*
 * A segment's file is truncated while it is in use, at every step of a transaction and under
 * readers of several processes; it stays short or is made as long as before. No process dies, no
 * wrong byte is used, and one line is logged.
 */
#include "segment_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB     (UINT64_C(1) << 20)
#define ITEMS   60
#define BUDGET  (2 * MIB)
#define READERS 3
#define THREADS 2
#define ROUNDS  24

static _Atomic int lines; /* log lines that report the truncation */

static void count_lines(void *arg, enum hr_log_level level, const char *message)
{
    if (level == HR_LOG_WARNING && strstr(message, "was cut short"))
        atomic_fetch_add(&lines, 1);
}

/* cmocka installs its own handlers at the beginning of each test. */
static struct sigaction handler;

static struct hr__store *filled(int number)
{
    assert_int_equal(sigaction(SIGBUS, &handler, NULL), 0);
    struct hr__store *store = fixture_open(number, BUDGET, 200);
    for (uint64_t i = 0; i < ITEMS; i++)
        assert_int_equal(fixture_offer(store, i, i % 4 == 0), 1);
    return store;
}

/* Lengths to which the file is truncated: at each part of it, and in the middle of an item. */
static uint64_t length_of(const struct hr__segment_layout *l, int kind)
{
    const uint64_t lengths[] = {
        0,
        offsetof(struct hr__segment_header, books),
        l->index_offset + 100,
        l->ring_offset,
        l->ring_offset + 5000,
        l->arena_offset,
        l->arena_offset + 5000,
        l->file_bytes - 1,
    };
    return lengths[kind];
}

#define KINDS 8

static void cut(int number, const struct hr__segment_layout *l, int kind, int again)
{
    if (truncate(fixture_path(number), (off_t)length_of(l, kind)) ||
        (again && truncate(fixture_path(number), (off_t)l->file_bytes)))
        _exit(90);
}

/* Returns 1 if the item was found and is right; 0 if it was not found, or must be discarded; -1 if
 * wrong bytes would be used. */
static int use_item(struct hr__store *store, uint64_t item)
{
    struct hr__key key = fixture_key(item);
    struct hr__cache_item found;
    uint8_t bytes[32768], expected[32768];
    if (!hr__store_find(store, &key, &found))
        return 0;
    size_t length = found.length < sizeof bytes ? found.length : sizeof bytes;
    memcpy(bytes, found.bytes, length);
    int is_whole = hr__store_is_whole(store, &found);
    hr__store_clear(&found);
    if (!is_whole)
        return 0;
    fixture_fill(item, found.form, expected, length);
    return memcmp(bytes, expected, length) ? -1 : 1;
}

/* Everything that a user does. Returns non-zero if wrong bytes would be used. */
static int use_all(struct hr__store *store)
{
    int is_wrong = 0;
    for (uint64_t i = 0; i < ITEMS + 20; i++) {
        struct hr__key key = fixture_key(i);
        is_wrong |= use_item(store, i) < 0;
        hr__store_claim(store, &key);
        fixture_offer(store, i, i % 3 == 0);
    }
    struct hr__cache_item item;
    struct hr__store_staged *staged = hr__store_take(store, &item);
    struct hr__cache_final final = {.bytes = NULL};
    if (staged)
        hr__store_settle(store, staged, &final);
    struct hr__cache_counts counts;
    hr__store_get_counts(store, &counts);
    return is_wrong;
}

/* The file is truncated while a found item is in use. */
static void test_in_hand(void **state)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int again = 0; again < 2; again++) {
            struct hr__store *store = filled(1);
            struct hr__key key = fixture_key(41);
            struct hr__cache_item item;
            volatile uint8_t sum = 0;
            assert_int_equal(hr__store_find(store, &key, &item), 1);
            assert_int_equal(hr__store_is_whole(store, &item), 1);
            assert_null(item.copy);
            atomic_store(&lines, 0);
            cut(1, &hr__store_segment(store)->layout, kind, again);
            for (size_t i = 0; i < item.length; i++)
                sum += item.bytes[i];
            assert_int_equal(hr__store_is_whole(store, &item), 0);
            hr__store_clear(&item);
            assert_int_equal(use_all(store), 0);
            assert_int_equal(use_item(store, 1), 0);
            assert_int_equal(atomic_load(&lines), 1);
            int code;
            assert_null(fixture_attach(1, 1, &code));
            fixture_close(&store);
            fixture_drop(1);
        }
}

/* The file is truncated at every step of transactions. */
static struct {
    const struct hr__segment_layout *layout;
    int step, after, kind, again;
} plan;

static void cut_at_step(int step)
{
    if (step != plan.step || plan.after-- > 0)
        return;
    hr__segment_test_step = NULL;
    cut(2, plan.layout, plan.kind, plan.again);
}

static void test_in_transactions(void **state)
{
    for (int step = HR__STEP_LOCKED; step < HR__STEPS; step++) {
        if (step == HR__STEP_RESERVED) /* on disk */
            continue;
        for (int kind = 0; kind < KINDS; kind++)
            for (int again = 0; again < 2; again++) {
                struct hr__store *store = filled(2);
                plan.layout = &hr__store_segment(store)->layout;
                plan.step = step;
                plan.after = kind % 3;
                plan.kind = kind;
                plan.again = again;
                hr__segment_test_step = cut_at_step;
                int is_wrong = use_all(store);
                assert_null(hr__segment_test_step); /* the truncation happened */
                assert_int_equal(is_wrong, 0);
                assert_int_equal(hr__segment_is_sound(hr__store_segment(store)), 0);
                fixture_close(&store);
                fixture_drop(2);
            }
    }
}

static void *read_on(void *arg)
{
    struct hr__store *store = arg;
    intptr_t is_wrong = 0;
    while (hr__segment_is_sound(hr__store_segment(store)))
        for (uint64_t i = 0; i < ITEMS; i++)
            is_wrong |= use_item(store, i) < 0;
    return (void *)is_wrong;
}

static void read_in_threads(int ready)
{
    struct hr__store *store = fixture_open(3, BUDGET, 200);
    pthread_t threads[THREADS];
    int is_wrong = use_item(store, 1) != 1;
    atomic_store(&lines, 0);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, read_on, store))
            _exit(91);
    if (write(ready, "r", 1) != 1)
        _exit(92);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        is_wrong |= result != NULL;
    }
    fixture_close(&store);
    _exit(is_wrong ? 1 : atomic_load(&lines) == 1 ? 0 : 2);
}

static void test_readers(void **state)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct hr__store *store = filled(3);
        struct hr__segment_layout layout = hr__store_segment(store)->layout;
        fixture_close(&store);
        int pipes[2], status;
        pid_t readers[READERS];
        char byte;
        assert_int_equal(pipe(pipes), 0);
        for (int i = 0; i < READERS; i++) {
            readers[i] = fork();
            if (!readers[i])
                read_in_threads(pipes[1]);
        }
        for (int i = 0; i < READERS; i++)
            assert_int_equal(read(pipes[0], &byte, 1), 1);
        usleep((useconds_t)(round * 97 % 3000));
        cut(3, &layout, round % KINDS, round / KINDS % 2);
        for (int i = 0; i < READERS; i++) {
            assert_int_equal(waitpid(readers[i], &status, 0), readers[i]);
            assert_int_equal(status, 0);
        }
        close(pipes[0]);
        close(pipes[1]);
        fixture_drop(3);
    }
}

static int set_up(void **state)
{
    hr_log_set(count_lines, NULL);
    if (fixture_make(state))
        return -1;
    struct hr__store *store = fixture_open(0, BUDGET, 200);
    fixture_close(&store);
    fixture_drop(0);
    return sigaction(SIGBUS, NULL, &handler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_hand),
        cmocka_unit_test(test_in_transactions),
        cmocka_unit_test(test_readers),
    };
    return cmocka_run_group_tests(tests, set_up, fixture_remove);
}
