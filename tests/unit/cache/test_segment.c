/*
 * Segments: making, attaching and leaving them. Segments that are truncated, unfinished, of another
 * version, open to others, or damaged anywhere are refused or detected; they are never used and
 * never end the process. A user's liveness follows its process, also after a fork.
 */
#include "segment_fixture.h"

#include "cache/store_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static struct hr__store *filled(int number, uint64_t count)
{
    struct hr__store *store = fixture_open(number, 2 * MIB, 200);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(fixture_offer(store, i, i % 4 == 0), 1);
    return store;
}

/* Overwrites a part of the file, as a faulty program might. */
static void scribble(int number, uint64_t at, const void *bytes, size_t length)
{
    int fd = open(fixture_path(number), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, length, (off_t)at), length);
    close(fd);
}

static void expect_refused(int number, int code)
{
    int r;
    assert_null(fixture_attach(number, 1, &r));
    assert_int_equal(r, code);
    assert_null(fixture_attach(number, 0, &r));
    assert_int_equal(r, code);
}

static void test_refused(void **state)
{
    struct hr__store *store = filled(1, 10);
    struct hr__segment_layout layout = hr__store_segment(store)->layout;
    fixture_close(&store);
    expect_refused(99, -ENOENT);
    uint32_t other = HR__SEGMENT_VERSION + 1, version = HR__SEGMENT_VERSION, no = 0, yes = 1;
    uint64_t at = offsetof(struct hr__segment_header, version);
    scribble(1, at, &other, sizeof other);
    expect_refused(1, -EPROTO);
    scribble(1, at, &version, sizeof version);
    at = offsetof(struct hr__segment_header, ready);
    scribble(1, at, &no, sizeof no);
    expect_refused(1, -EBADMSG);
    scribble(1, at, &yes, sizeof yes);
    at = offsetof(struct hr__segment_header, damaged);
    scribble(1, at, &yes, sizeof yes);
    expect_refused(1, -EBADMSG);
    scribble(1, at, &no, sizeof no);
    assert_int_equal(chmod(fixture_path(1), 0604), 0);
    expect_refused(1, -EACCES);
    assert_int_equal(chmod(fixture_path(1), 0600), 0);
    assert_int_equal(truncate(fixture_path(1), (off_t)layout.file_bytes - 1), 0);
    expect_refused(1, -EBADMSG);
    assert_int_equal(truncate(fixture_path(1), 100), 0);
    expect_refused(1, -EBADMSG);
    assert_int_equal(truncate(fixture_path(1), 0), 0);
    expect_refused(1, -EBADMSG);
    fixture_drop(1);
    assert_int_equal(symlink("/dev/zero", fixture_path(1)), 0);
    expect_refused(1, -ELOOP);
    fixture_drop(1);
    assert_int_equal(mkfifo(fixture_path(1), 0600), 0);
    expect_refused(1, -EACCES);
    fixture_drop(1);
}

/* The checksum covers every byte of the constant header. */
static void test_a_damaged_header(void **state)
{
    struct hr__store *store = filled(2, 1);
    fixture_close(&store);
    size_t end = offsetof(struct hr__segment_header, constant_end);
    uint8_t *header = malloc(end);
    int fd = open(fixture_path(2), O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, header, end, 0), end);
    close(fd);
    for (size_t i = 0; i < end; i++) {
        uint8_t changed = header[i] ^ 0x40;
        int r;
        scribble(2, i, &changed, 1);
        assert_null(fixture_attach(2, 0, &r));
        assert_true(r == -EBADMSG || r == -EPROTO);
        scribble(2, i, &header[i], 1);
    }
    struct hr__segment *sound = fixture_attach(2, 0, NULL);
    hr__segment_detach(&sound);
    free(header);
    fixture_drop(2);
}

/* Everything that a user does, on a damaged segment. */
static void use_it(struct hr__store *store)
{
    for (uint64_t i = 0; i < 120; i++) {
        fixture_find(store, i);
        struct hr__key key = fixture_key(i);
        hr__store_claim(store, &key);
        fixture_offer(store, i, i % 3 == 0);
    }
    struct hr__cache_item item;
    struct hr__store_staged *staged = hr__store_take(store, &item);
    struct hr__cache_final final = {.bytes = NULL};
    if (staged)
        hr__store_settle(store, staged, &final);
    hr__store_waiting(store);
}

static void test_cut_while_in_use(void **state)
{
    for (int i = 0; i < 3; i++) {
        struct hr__store *store = filled(3, 50);
        uint64_t lengths[] = {0, 5000, hr__store_segment(store)->layout.file_bytes - 1};
        assert_int_equal(truncate(fixture_path(3), (off_t)lengths[i]), 0);
        use_it(store);
        assert_int_equal(fixture_find(store, 1), 0);
        fixture_close(&store);
        fixture_drop(3);
    }
}

/* The same when the file is truncated before any other operation, also with an item in use. */
static void test_cut_before_anything(void **state)
{
    for (int first = 0; first < 5; first++) {
        struct hr__store *store = filled(3, 50);
        struct hr__cache_item item;
        struct hr__cache_counts counts;
        struct hr__cache_final final = {.bytes = "x", .length = 1};
        struct hr__store_staged *staged = hr__store_take(store, &item);
        assert_non_null(staged);
        assert_int_equal(truncate(fixture_path(3), 0), 0);
        if (first == 0)
            hr__store_get_counts(store, &counts);
        else if (first == 1)
            assert_int_equal(hr__store_waiting(store), 0);
        else if (first == 2)
            assert_int_equal(hr__store_room(store, staged, 0), 0);
        else if (first == 3)
            assert_null(hr__store_take(store, &item));
        assert_int_equal(hr__store_settle(store, staged, &final), 0);
        hr__store_get_counts(store, &counts);
        assert_int_equal(counts.items[0], 0);
        fixture_close(&store);
        fixture_drop(3);
    }
}

/* A flipped bit in an item is detected; from then on nobody uses the segment. */
static void test_a_damaged_item(void **state)
{
    struct hr__store *store = filled(4, 50), *other = fixture_open(4, 2 * MIB, 200);
    uint8_t *arena = hr__store_segment(store)->arena;
    assert_int_equal(fixture_find(store, 1), 1);
    arena[100] ^= 1;
    int found = 0;
    for (uint64_t i = 0; i < 50; i++)
        found += fixture_find(store, i);
    assert_true(found < 50);
    assert_int_equal(fixture_find(store, 40), 0);
    assert_int_equal(fixture_find(other, 40), 0);
    assert_int_equal(hr__segment_is_sound(hr__store_segment(other)), 0);
    expect_refused(4, -EBADMSG);
    fixture_close(&store);
    fixture_close(&other);
    fixture_drop(4);
}

/* The keys of two items of equal length are exchanged: the bytes are valid, but belong to another
 * key. */
static void test_exchanged_keys(void **state)
{
    struct hr__store *store = fixture_open(5, 2 * MIB, 200);
    struct hr__segment *s = hr__store_segment(store);
    assert_int_equal(fixture_offer(store, 1, 0), 1);
    struct hr__key key = fixture_key(2);
    uint64_t from = 0, to = key.low % s->layout.index_slots;
    while (!atomic_load(&s->entries[from].word))
        from++;
    s->entries[to] = s->entries[from];
    atomic_store(&s->entries[to].key_high, key.high);
    atomic_store(&s->entries[to].key_low, key.low);
    struct hr__cache_item item;
    assert_int_equal(hr__store_find(store, &key, &item), 0);
    assert_int_equal(hr__segment_is_sound(s), 0);
    fixture_close(&store);
    fixture_drop(5);
}

static uint64_t next_random(uint64_t *x)
{
    *x = *x * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *x >> 17;
}

/* Random bytes anywhere except in the users' table, whose counters are only reported. */
static void test_scribbled_over(void **state)
{
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct hr__store *store = filled(6, 60);
        struct hr__segment *s = hr__store_segment(store);
        uint64_t x = seed, n = 1 + next_random(&x) % 30;
        uint64_t parts[][2] = {
            {offsetof(struct hr__segment_header, constant_end),
             offsetof(struct hr__segment_header, users)},
            {s->layout.index_offset, s->layout.index_slots * sizeof(struct hr__entry)},
            {s->layout.ring_offset, 300000},
            {s->layout.arena_offset, 400000},
        };
        uint64_t part = seed % 4, from = parts[part][0];
        uint64_t length = part ? parts[part][1] : parts[0][1] - from;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t bytes = next_random(&x) ^ next_random(&x) << 40;
            memcpy((uint8_t *)s->header + from + next_random(&x) % (length - 8) / 8 * 8, &bytes,
                   next_random(&x) % 2 ? 8 : 1);
        }
        use_it(store);
        int r;
        struct hr__segment *again = fixture_attach(6, 1, &r);
        hr__segment_detach(&again);
        fixture_close(&store);
        fixture_drop(6);
    }
}

static void test_liveness(void **state)
{
    struct hr__store *store = filled(7, 1);
    struct hr__segment *s = hr__store_segment(store);
    assert_int_equal(hr__segment_users(s, NULL, 0), 0);
    int pipes[2], status;
    char byte;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (!child) {
        struct hr__store *mine = fixture_open(7, 2 * MIB, 200);
        /* by the locks, the parent is alive, and not because of the files that this child
         * inherited */
        int alive = hr__segment_is_alive(hr__store_segment(mine), 0);
        if (write(pipes[1], "x", 1) != 1 || !alive)
            _exit(1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    int64_t pids[4];
    assert_int_equal(hr__segment_users(s, pids, 4), 1);
    assert_int_equal(pids[0], child);
    assert_int_equal(hr__segment_is_alive(s, 1), 1);
    assert_int_equal(hr__segment_is_alive(s, 2), 0);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    assert_int_equal(hr__segment_users(s, pids, 4), 0);
    assert_int_equal(hr__segment_is_alive(s, 1), 0);
    fixture_close(&store);
    /* a child that stays alive does not keep its parent's slot */
    child = fork();
    if (!child) {
        store = fixture_open(7, 2 * MIB, 200);
        pid_t grandchild = fork();
        if (!grandchild) {
            if (write(pipes[1], "x", 1) != 1)
                _exit(1);
            pause();
        }
        if (write(pipes[1], &grandchild, sizeof grandchild) != sizeof grandchild)
            _exit(1);
        pause();
    }
    pid_t grandchild = 0;
    uint8_t answer[1 + sizeof grandchild];
    size_t got = 0;
    while (got < sizeof answer) {
        ssize_t n = read(pipes[0], answer + got, sizeof answer - got);
        assert_true(n > 0);
        got += (size_t)n;
    }
    memcpy(&grandchild, answer[0] == 'x' ? answer + 1 : answer, sizeof grandchild);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    s = fixture_attach(7, 0, NULL);
    assert_int_equal(hr__segment_users(s, NULL, 0), 0);
    hr__segment_detach(&s);
    kill(grandchild, SIGKILL);
    close(pipes[0]);
    close(pipes[1]);
    fixture_drop(7);
}

/* The lock of the books lies beside that of the first user, and both are of one handle. */
static void test_a_user_in_a_transaction(void **state)
{
    struct hr__store *store = filled(8, 1);
    struct hr__segment *s = hr__store_segment(store), *other = fixture_attach(8, 0, NULL);
    int64_t pids[2] = {0};
    assert_int_equal(s->slot, 0);
    assert_int_equal(hr__segment_users(other, pids, 2), 1);
    assert_non_null(hr__segment_begin(s));
    assert_int_equal(hr__segment_users(other, pids, 2), 1);
    assert_int_equal(pids[0], getpid());
    hr__segment_abort(s);
    hr__segment_detach(&other);
    fixture_close(&store);
    fixture_drop(8);
}

static void test_many_users(void **state)
{
    struct hr__store *store = filled(8, 1);
    struct hr__segment *users[HR__SEGMENT_USERS] = {0};
    for (int i = 1; i < HR__SEGMENT_USERS; i++)
        users[i] = fixture_attach(8, 1, NULL);
    int r;
    assert_null(fixture_attach(8, 1, &r));
    assert_int_equal(r, -EUSERS);
    assert_int_equal(hr__segment_users(hr__store_segment(store), NULL, 0), HR__SEGMENT_USERS - 1);
    for (int i = 1; i < HR__SEGMENT_USERS; i++)
        hr__segment_detach(&users[i]);
    assert_int_equal(hr__segment_users(hr__store_segment(store), NULL, 0), 0);
    fixture_close(&store);
    fixture_drop(8);
}

/* The rounded budget is laid out like the budget itself, or nobody could attach. */
static void test_odd_budgets(void **state)
{
    for (uint64_t budget = 96 * MIB - 70; budget < 96 * MIB + 70; budget++) {
        struct hr__segment_layout first, again;
        assert_int_equal(hr__segment_plan(&first, budget, 1000, 0), 0);
        assert_true(first.arena_bytes >= budget);
        assert_int_equal(hr__segment_plan(&again, first.arena_bytes, 1000, 0), 0);
        assert_memory_equal(&first, &again, sizeof first);
    }
    struct hr__store *store = fixture_open(9, 96 * MIB + 1, 200);
    struct hr__segment *other = fixture_attach(9, 1, NULL);
    hr__segment_detach(&other);
    fixture_close(&store);
    fixture_drop(9);
}

static void test_index_bytes(void **state)
{
    /* 10 million items of at most 64 bytes: only the layout is allocated */
    uint64_t items = 10000000;
    uint64_t bytes = (items + items / 4 + 64) * sizeof(struct hr__entry);
    assert_true(bytes <= 64 * items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_a_damaged_header),
        cmocka_unit_test(test_cut_while_in_use),
        cmocka_unit_test(test_cut_before_anything),
        cmocka_unit_test(test_a_damaged_item),
        cmocka_unit_test(test_exchanged_keys),
        cmocka_unit_test(test_scribbled_over),
        cmocka_unit_test(test_liveness),
        cmocka_unit_test(test_a_user_in_a_transaction),
        cmocka_unit_test(test_many_users),
        cmocka_unit_test(test_odd_budgets),
        cmocka_unit_test(test_index_bytes),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
