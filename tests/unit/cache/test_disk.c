/*
 * Caches on a disk: what was offered is found after a restart; a process killed at any step, or at
 * any moment, loses only what it was writing and leaks no space; flipped bits, torn tails and full
 * disks cost items and never give wrong bytes; processes that fill a cache together store each item
 * once; directories and files that others can touch are refused.
 */
#include "segment_fixture.h"

#include "base/memory.h"
#include "cache/directory.h"
#include "cache/segment_disk.h"
#include "cache/segment_inside.h"
#include "cache/store_inside.h"

#include <headrace/cache.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB   (UINT64_C(1) << 20)
#define ITEMS 100

static char place[64], logged[8192];

static void log_line(void *arg, enum hr_log_level level, const char *message)
{
    size_t used = strlen(logged);
    if (level >= HR_LOG_WARNING)
        snprintf(logged + used, sizeof logged - used, "%s\n", message);
}

static int set_up(void **state)
{
    snprintf(place, sizeof place, "/tmp/headrace-disk-XXXXXX");
    logged[0] = 0;
    hr_log_set(log_line, NULL);
    return mkdtemp(place) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];
    hr_log_set(NULL, NULL);
    umount(place);
    snprintf(command, sizeof command, "rm -r %s", place);
    return system(command);
}

static int try_open(struct hr__store **out, const char *text, struct hr_error *error)
{
    struct hr__cache_spec spec;
    struct hr__segment *segment;
    *out = NULL;
    if (hr__cache_spec_parse(&spec, text, error))
        fail_msg("%s", error->message);
    struct hr__segment_wish wish = {
        .spec = &spec, .dataset = "numbers", .items = 1000, .identity = {1}};
    int r = hr__directory_open(&segment, &wish, error);
    return r ? r : hr__store_create(out, segment, error);
}

static struct hr__store *open_of(uint64_t mib)
{
    char text[128];
    struct hr_error error;
    struct hr__store *store;
    snprintf(text, sizeof text, "disk:%s/c?size=%lluMiB", place, (unsigned long long)mib);
    if (try_open(&store, text, &error))
        fail_msg("%s", error.message);
    return store;
}

static struct hr__store *open_store(void)
{
    return open_of(64);
}

/* The path of the only segment. */
static const char *segment_path(void)
{
    static char path[256];
    struct hr__store *store = open_store();
    snprintf(path, sizeof path, "%s", hr__store_segment(store)->path);
    hr__store_destroy(&store);
    return path;
}

/* Returns the index of the entry of an item. */
static uint64_t entry_of(struct hr__store *store, uint64_t item)
{
    struct hr__key key = fixture_key(item);
    struct hr__found found;
    uint64_t free;
    assert_int_equal(hr__store_search(hr__store_segment(store), &key, 0, &found, &free), 1);
    return found.index;
}

static void fill(struct hr__store *store, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++)
        assert_int_equal(fixture_offer(store, i, 0), 1);
}

/* Returns how many of the items are there; wrong bytes fail the test. */
static uint64_t count_found(struct hr__store *store, uint64_t from, uint64_t to)
{
    uint64_t found = 0;
    for (uint64_t i = from; i < to; i++)
        found += (uint64_t)fixture_find(store, i);
    return found;
}

struct disk_place {
    uint64_t from, to;
};

static int compare(const void *a, const void *b)
{
    const struct disk_place *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Fails unless the books agree with the index, but for `dropped` bytes at most that wait for the
 * next start, no two items overlap, and the file takes no more of the disk than the books say. No
 * writer may be at work. */
static void audit(struct hr__segment *s, uint64_t dropped)
{
    struct hr__books books = hr__segment_books(s);
    struct disk_place places[2000];
    uint64_t used = 0, items = 0, sources = 0, all = 0;
    struct stat st;
    for (uint64_t i = 0; i < s->layout.index_slots; i++) {
        struct hr__found found;
        if (!hr__segment_look(s, i, 0, &found) || found.word.state == HR__ENTRY_VACANT ||
            (found.word.state == HR__ENTRY_CLAIMED && !found.word.pending))
            continue;
        assert_int_equal(found.word.state, HR__ENTRY_FINAL);
        assert_true(items < 2000);
        places[items].from = found.offset;
        places[items++].to = found.offset + hr__disk_padded(found.length);
        used += hr__disk_padded(found.length);
        sources += found.source_bytes;
    }
    if (items)
        qsort(places, items, sizeof *places, compare);
    for (uint64_t i = 1; i < items; i++)
        assert_true(places[i - 1].to <= places[i].from);
    for (int form = 0; form < HR_FORMS; form++)
        all += books.items[form];
    assert_in_range(books.arena_used, used, used + dropped);
    assert_int_equal(books.source_bytes, sources);
    assert_int_equal(all, items);
    assert_true(!items || places[items - 1].to <= books.end);
    assert_true(books.arena_used <= books.arena_allocated);
    assert_int_equal(fstat(s->own.fd, &st), 0);
    assert_in_range((uint64_t)st.st_blocks * 512, 0,
                    s->layout.arena_offset + books.arena_used + (UINT64_C(64) << 10));
}

static void test_restart(void **state)
{
    struct hr__store *store = open_store();
    fill(store, 0, ITEMS);
    for (uint64_t i = 0; i < ITEMS; i++)
        assert_int_equal(fixture_offer(store, i, 0), 0);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(count_found(store, 0, ITEMS), ITEMS);
        assert_int_equal(fixture_find(store, ITEMS), 0);
        struct hr__key key = fixture_key(5);
        struct hr__cache_place at;
        assert_int_equal(hr__store_locate(store, &key, &at), 1);
        assert_int_equal(at.offset % 4096, 0);
        assert_int_equal(at.length, fixture_length(5));
        struct stat st;
        assert_int_equal(fstat(hr__store_segment(store)->own.fd, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_int_equal(st.st_size % 4096, 0);
        hr__store_destroy(&store);
        store = open_store();
        audit(hr__store_segment(store), 0);
    }
    assert_string_equal(logged, "");
    hr__store_destroy(&store);
}

static void test_size(void **state)
{
    struct hr__store *store = open_of(1);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < 500; i++)
        kept += (uint64_t)fixture_offer(store, i, 0);
    struct hr__books books = hr__segment_books(hr__store_segment(store));
    assert_in_range(books.arena_used, MIB - 16384, MIB);
    assert_in_range(kept, 50, 499);
    assert_int_equal(count_found(store, 0, 500), kept);
    audit(hr__store_segment(store), 0);
    hr__store_destroy(&store);
}

/* ---- killed ---- */

static int steps_left;

static void die_at_step(int step)
{
    if (!--steps_left)
        kill(getpid(), SIGKILL);
}

/* Runs each operation. */
static void operate(struct hr__store *store)
{
    struct hr__key key = fixture_key(500);
    struct hr__cache_place at;
    for (uint64_t i = 100; i < 103; i++)
        fixture_offer(store, i, 0);
    hr__store_claim(store, &key);
    fixture_offer(store, 500, 0);
    key = fixture_key(3);
    if (hr__store_locate(store, &key, &at))
        hr__store_verify(store, &at, NULL, 0); /* which drops it */
    key = fixture_key(501);
    hr__store_claim(store, &key);
}

/* `others`: whether another process uses the cache all the time. */
static void kill_at_every_step(int others)
{
    int survived = 0;
    for (int steps = 1; !survived; steps += test_is_slow() ? 3 : 1) {
        struct hr__store *store = open_store();
        for (uint64_t i = 0; i < 5; i++)
            fixture_offer(store, i, 0);
        if (!others)
            hr__store_destroy(&store);
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            hr__store_abandon(&store);
            store = open_store();
            steps_left = steps;
            hr__segment_test_step = die_at_step;
            operate(store);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        survived = WIFEXITED(status);
        struct hr__store *next = open_store();
        audit(hr__store_segment(next), others ? 12288 : 0);
        assert_in_range(count_found(next, 0, 5), 4, 5);
        count_found(next, 100, 502);
        for (uint64_t i = 100; i < 103; i++)
            fixture_offer(next, i, 0);
        assert_int_equal(count_found(next, 100, 103), 3);
        struct hr__key key = fixture_key(501);
        assert_int_equal(hr__store_claim(next, &key), HR__CLAIM_YOURS);
        hr__store_unclaim(next, &key);
        audit(hr__store_segment(next), others ? 12288 : 0);
        hr__store_destroy(&next);
        hr__store_destroy(&store);
        assert_int_equal(hr_cache_drop("disk:/", NULL, 0, NULL, NULL, NULL), -EINVAL);
        char text[128];
        snprintf(text, sizeof text, "disk:%s/c", place);
        assert_int_equal(hr_cache_drop(text, NULL, 0, NULL, NULL, NULL), 0);
        assert_true(steps < 5000);
    }
}

static void test_killed_at_every_step(void **state)
{
    test_has_one_thread();
    kill_at_every_step(0);
}

static void test_killed_beside_another(void **state)
{
    test_has_one_thread();
    kill_at_every_step(1);
}

/* Writes items of a range over and over, dropping some. */
static void churn(uint64_t from, unsigned seed)
{
    struct hr__store *store = open_store();
    struct hr__cache_place at;
    for (;;) {
        uint64_t i = from + (uint64_t)rand_r(&seed) % 40;
        struct hr__key key = fixture_key(i);
        if (hr__store_locate(store, &key, &at) && rand_r(&seed) % 2)
            hr__store_verify(store, &at, NULL, 0);
        else
            fixture_offer(store, i, 0);
    }
}

static void test_killed_at_any_moment(void **state)
{
    test_has_one_thread();
    unsigned seed = 5;
    struct hr__store *store = open_store();
    fill(store, 0, 20);
    hr__store_destroy(&store);
    for (int kills = 0; kills < test_rounds(200); kills++) {
        pid_t children[2];
        for (int i = 0; i < 2; i++) {
            children[i] = fork();
            assert_true(children[i] >= 0);
            if (!children[i])
                churn(100 + 30 * (uint64_t)i, seed + (unsigned)i);
        }
        usleep((useconds_t)(rand_r(&seed) % 4000));
        for (int i = 0; i < 2; i++)
            kill(children[i], SIGKILL);
        for (int i = 0; i < 2; i++)
            waitpid(children[i], NULL, 0);
        if (kills % 10)
            continue;
        store = open_store();
        audit(hr__store_segment(store), 0);
        assert_int_equal(count_found(store, 0, 20), 20);
        count_found(store, 100, 200);
        hr__store_destroy(&store);
    }
    assert_null(strstr(logged, "damaged"));
}

/* ---- processes side by side ---- */

static void test_two_at_once(void **state)
{
    int stored[2];
    assert_int_equal(pipe(stored), 0);
    struct hr__store *store = open_store();
    for (int child = 0; child < 2; child++) {
        if (fork())
            continue;
        hr__store_abandon(&store);
        store = open_store();
        uint32_t count = 0;
        for (uint64_t i = 0; i < 400; i++) {
            struct hr__key key = fixture_key(child ? 399 - i : i);
            enum hr__claim claim = hr__store_claim(store, &key);
            while (claim == HR__CLAIM_BUSY) {
                usleep(100);
                claim = hr__store_claim(store, &key);
            }
            if (claim != HR__CLAIM_FOUND)
                count += (uint32_t)fixture_offer(store, child ? 399 - i : i, 0);
        }
        _exit(write(stored[1], &count, sizeof count) != sizeof count);
    }
    uint32_t counts[2];
    assert_int_equal(read(stored[0], &counts[0], 4), 4);
    assert_int_equal(read(stored[0], &counts[1], 4), 4);
    for (int child = 0; child < 2; child++)
        wait(NULL);
    assert_int_equal(counts[0] + counts[1], 400);
    assert_int_equal(count_found(store, 0, 400), 400);
    audit(hr__store_segment(store), 0);
    hr__store_destroy(&store);
    close(stored[0]);
    close(stored[1]);
}

/* Others wait for an item that is being written, but not for ever: its writer may live on without
 * ending the write, because it did not get the lock. */
static void test_unfinished_write(void **state)
{
    struct hr__store *writer = open_store(), *other = open_store();
    struct hr__segment *s = hr__store_segment(writer);
    struct hr__key key = fixture_key(7);
    assert_int_equal(hr__store_claim(writer, &key), HR__CLAIM_YOURS);
    uint64_t index = entry_of(writer, 7);
    for (int is_old = 0; is_old < 2; is_old++) {
        struct hr__books *books = hr__segment_begin(s);
        hr__segment_change(s, books, index);
        struct hr__word word = hr__word_unpack(books->after.word);
        word.pending = 1;
        word.reserve = hr__store_moment() - (is_old ? 20000 : 0);
        books->after.word = hr__word_pack(&word);
        books->after.offset = 0;
        hr__segment_commit(s);
        assert_int_equal(hr__store_claim(other, &key), is_old ? HR__CLAIM_ALONE : HR__CLAIM_BUSY);
    }
    hr__store_destroy(&writer);
    hr__store_destroy(&other);
}

static struct hr__store *robbed;

/* Frees the place of item 9 as if its writer had died. */
static void give_back_at_step(int step)
{
    struct hr__word vacant = {.state = HR__ENTRY_VACANT};
    struct hr__segment *s = hr__store_segment(robbed);
    if (step != HR__STEP_BYTES)
        return;
    hr__segment_test_step = NULL;
    uint64_t index = entry_of(robbed, 9);
    struct hr__books *books = hr__segment_begin(s);
    hr__segment_change(s, books, index);
    hr__segment_give_back(s, books, &books->after);
    books->after.word = hr__word_pack(&vacant);
    hr__segment_commit(s);
}

static void test_place_given_back(void **state)
{
    robbed = open_store();
    fill(robbed, 0, 5);
    hr__segment_test_step = give_back_at_step;
    assert_int_equal(fixture_offer(robbed, 9, 0), 0);
    audit(hr__store_segment(robbed), 0);
    assert_int_equal(fixture_offer(robbed, 9, 0), 1);
    audit(hr__store_segment(robbed), 0);
    hr__store_destroy(&robbed);
}

/* A cache that is dropped under its user does not take the directory with it. */
static void test_dropped(void **state)
{
    char text[128];
    struct stat st;
    struct hr__store *store = open_store();
    snprintf(text, sizeof text, "disk:%s/c", place);
    assert_int_equal(hr_cache_drop(text, NULL, 1, NULL, NULL, NULL), 0);
    assert_int_equal(fixture_offer(store, 1, 0), 0);
    assert_int_equal(stat(text + strlen("disk:"), &st), 0);
    hr__store_destroy(&store);
}

/* ---- damage ---- */

static void flip(const char *path, uint64_t at, unsigned bit)
{
    uint8_t byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte = (uint8_t)(byte ^ 1u << bit);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

/* Each bit of an entry is flipped, under a user and between two of them. Only that item may be
 * lost, and it can be stored again. */
static void test_flipped_entry(void **state)
{
    const char *path = segment_path();
    struct hr__store *store = open_store();
    fill(store, 0, ITEMS);
    for (unsigned bit = 0; bit < sizeof(struct hr__entry) * 8; bit++) {
        uint64_t item = bit % ITEMS;
        struct hr__segment *s = hr__store_segment(store);
        uint64_t at = s->layout.index_offset + entry_of(store, item) * sizeof(struct hr__entry);
        if (bit % 3 == 0)
            hr__store_destroy(&store);
        flip(path, at + bit / 8, bit % 8);
        if (!store)
            store = open_store();
        assert_in_range(count_found(store, 0, ITEMS), ITEMS - 1, ITEMS);
        fixture_offer(store, item, 0);
        hr__store_destroy(&store);
        store = open_store();
        fixture_offer(store, item, 0);
        assert_int_equal(count_found(store, 0, ITEMS), ITEMS);
        audit(hr__store_segment(store), 0);
    }
    hr__store_destroy(&store);
}

/* Bits of an item's bytes, and its whole first page. */
static void test_flipped_bytes(void **state)
{
    const char *path = segment_path();
    struct hr__store *store = open_store();
    fill(store, 0, ITEMS);
    for (unsigned i = 0; i < 30; i++) {
        struct hr__key key = fixture_key(i);
        struct hr__cache_place at;
        assert_int_equal(hr__store_locate(store, &key, &at), 1);
        flip(path, at.offset + (uint64_t)i * 31 % at.length, i % 8);
        assert_int_equal(fixture_find(store, i), 0);
        assert_int_equal(fixture_offer(store, i, 0), 1);
        assert_int_equal(fixture_find(store, i), 1);
    }
    assert_non_null(strstr(logged, "has an item that is not what was written"));
    assert_int_equal(count_found(store, 0, ITEMS), ITEMS);
    audit(hr__store_segment(store), 30 * 12288);
    hr__store_destroy(&store);
    store = open_store();
    audit(hr__store_segment(store), 0);
    hr__store_destroy(&store);
}

/* An entry whose length is wrong makes the items larger than the cache: the rest stays. */
static void test_wrong_length(void **state)
{
    struct hr__store *store = open_of(1);
    struct hr__segment *s = hr__store_segment(store);
    char path[256];
    uint64_t kept = 0;
    for (uint64_t i = 0; i < 500; i++)
        kept += (uint64_t)fixture_offer(store, i, 0);
    uint64_t at = s->layout.index_offset + entry_of(store, 0) * sizeof(struct hr__entry);
    snprintf(path, sizeof path, "%s", s->path);
    hr__store_destroy(&store);
    flip(path, at + offsetof(struct hr__entry, lengths) + 2, 3);
    store = open_of(1);
    assert_int_equal(count_found(store, 0, 500), kept - 1);
    hr__store_destroy(&store);
    store = open_of(1);
    assert_int_equal(fixture_offer(store, 0, 0), 1);
    assert_int_equal(count_found(store, 0, 500), kept);
    audit(hr__store_segment(store), 0);
    hr__store_destroy(&store);
}

/* The books are counted anew when the first user comes; a header that is wrong costs the cache. */
static void test_flipped_books(void **state)
{
    const char *path = segment_path();
    struct hr__store *store = open_store();
    fill(store, 0, ITEMS);
    hr__store_destroy(&store);
    uint64_t from = offsetof(struct hr__segment_header, shown);
    uint64_t to = offsetof(struct hr__segment_header, users);
    for (uint64_t at = from; at < to; at += 5) {
        flip(path, at, (unsigned)at % 8);
        store = open_store();
        assert_int_equal(count_found(store, 0, ITEMS), ITEMS);
        audit(hr__store_segment(store), 0);
        hr__store_destroy(&store);
    }
    flip(path, offsetof(struct hr__segment_header, size_bytes), 3);
    store = open_store();
    assert_int_equal(count_found(store, 0, ITEMS), 0);
    fill(store, 0, ITEMS);
    assert_non_null(strstr(logged, "damaged in its header"));
    hr__store_destroy(&store);
}

static void test_torn_tail(void **state)
{
    const char *path = segment_path();
    struct hr__store *store = open_store();
    fill(store, 0, ITEMS);
    uint64_t begin = hr__store_segment(store)->layout.arena_offset;
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    /* under a user: items are lost, the rest stays */
    assert_int_equal(truncate(path, st.st_size - 20000), 0);
    assert_in_range(count_found(store, 0, ITEMS), ITEMS - 8, ITEMS - 1);
    /* and made longer again with zeros */
    hr__store_destroy(&store);
    assert_int_equal(truncate(path, st.st_size - 60000), 0);
    assert_int_equal(truncate(path, st.st_size), 0);
    store = open_store();
    assert_in_range(count_found(store, 0, ITEMS), ITEMS - 40, ITEMS - 2);
    for (uint64_t i = 0; i < ITEMS; i++)
        fixture_offer(store, i, 0);
    assert_int_equal(count_found(store, 0, ITEMS), ITEMS);
    hr__store_destroy(&store);
    store = open_store();
    audit(hr__store_segment(store), 0);
    hr__store_destroy(&store);
    /* the index itself: it is made again */
    assert_int_equal(truncate(path, (off_t)begin - 5000), 0);
    store = open_store();
    assert_int_equal(count_found(store, 0, ITEMS), 0);
    fill(store, 0, ITEMS);
    /* and under a user: everything is a miss, nobody is killed */
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(count_found(store, 0, ITEMS), 0);
    assert_int_equal(fixture_offer(store, 1, 0), 0);
    hr__store_destroy(&store);
}

/* ---- no room ---- */

/* Fills a cache that has no room for all. `from`: the items before it are there. */
static void check_full(struct hr__store *store, uint64_t from)
{
    uint64_t kept = from;
    for (uint64_t i = from; i < 1000; i++)
        kept += (uint64_t)fixture_offer(store, i, 0);
    assert_in_range(kept, 1, 900);
    assert_int_equal(count_found(store, 0, 1000), kept);
    audit(hr__store_segment(store), 0);
}

static void test_full_disk(void **state)
{
    if (mount("headrace-test", place, "tmpfs", 0, "size=4M,mode=0700"))
        skip(); /* needs root */
    struct hr_error error;
    struct hr__store *store;
    char text[128], filler[128];
    snprintf(text, sizeof text, "disk:%s/c?size=64MiB", place);
    assert_int_equal(try_open(&store, text, &error), -ENOSPC);
    assert_non_null(strstr(error.message, "does not fit on the disk"));
    store = open_of(3);
    snprintf(filler, sizeof filler, "%s/filler", place);
    int fd = open(filler, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 3 * MIB), 0);
    fill(store, 0, 20);
    (void)!posix_fallocate(fd, 0, 2 * MIB + MIB / 2); /* somebody else fills the disk */
    check_full(store, 20);
    assert_non_null(strstr(logged, "stays"));
    hr__store_destroy(&store);
    close(fd);
    /* The next start goes on when there is room again. */
    assert_int_equal(unlink(filler), 0);
    store = open_of(3);
    assert_in_range(fixture_offer(store, 2000, 0), 1, 1);
    audit(hr__store_segment(store), 0);
    hr__store_destroy(&store);
}

static void test_limited_file(void **state)
{
    pid_t child = fork();
    if (!child) {
        struct rlimit limit = {.rlim_cur = 2 * MIB, .rlim_max = 2 * MIB};
        if (setrlimit(RLIMIT_FSIZE, &limit))
            _exit(2);
        struct hr__store *store = open_store();
        check_full(store, 0);
        uint64_t end = hr__segment_books(hr__store_segment(store)).end;
        fixture_offer(store, 2000, 0); /* it is not even tried */
        assert_int_equal(hr__segment_books(hr__store_segment(store)).end, end);
        hr__store_destroy(&store);
        _exit(!strstr(logged, "cannot be written to"));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    struct hr__store *store = open_store();
    assert_int_equal(fixture_offer(store, 2000, 0), 1);
    audit(hr__store_segment(store), 0);
    hr__store_destroy(&store);
}

/* ---- strangers ---- */

static void expect_refusal(const char *text, const char *said)
{
    struct hr_error error;
    struct hr__store *store;
    assert_int_not_equal(try_open(&store, text, &error), 0);
    if (!strstr(error.message, said))
        fail_msg("%s", error.message);
}

static void test_refusals(void **state)
{
    char text[160], path[300];
    struct hr_error error;
    struct hr__store *store;
    snprintf(text, sizeof text, "disk:%s/c?size=8MiB", place);
    snprintf(path, sizeof path, "%s", segment_path());
    assert_int_equal(chmod(path, 0666), 0);
    expect_refusal(text, "is open to everybody");
    assert_int_equal(chmod(path, 0600), 0);
    if (!geteuid()) {
        assert_int_equal(chown(path, 12345, (gid_t)-1), 0);
        expect_refusal(text, "belongs to another user");
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("elsewhere", path), 0);
    expect_refusal(text, "is a link");
    assert_int_equal(unlink(path), 0);
    test_write_text(path, "what somebody else wrote here, and no cache at all");
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(try_open(&store, text, &error), 0); /* it is made again */
    hr__store_destroy(&store);
    snprintf(path, sizeof path, "%s/c", place);
    assert_int_equal(chmod(path, 0755), 0);
    expect_refusal(text, "is open to others");
    assert_int_equal(chmod(path, 0700), 0);
    snprintf(text, sizeof text, "disk:%s/none/c?size=8MiB", place);
    expect_refusal(text, "parent exists");
}

/* Two datasets share the size; nothing of one in use is dropped for the other. */
static void test_two_datasets(void **state)
{
    char text[128];
    struct hr_error error;
    struct hr__cache_spec spec;
    struct hr__segment *segment;
    struct hr__store *first = open_of(1), *second;
    for (uint64_t i = 0; i < 500; i++)
        fixture_offer(first, i, 0);
    uint64_t kept = count_found(first, 0, 500);
    snprintf(text, sizeof text, "disk:%s/c?size=1MiB", place);
    assert_int_equal(hr__cache_spec_parse(&spec, text, &error), 0);
    struct hr__segment_wish wish = {
        .spec = &spec, .dataset = "others", .items = 1000, .identity = {2}};
    assert_int_equal(hr__directory_open(&segment, &wish, &error), 0);
    assert_int_equal(hr__store_create(&second, segment, &error), 0);
    assert_int_equal(fixture_offer(second, 1, 0), 0);
    assert_int_equal(count_found(first, 0, 500), kept);
    assert_int_equal(count_found(second, 0, 500), 0);
    hr__store_destroy(&second);
    hr__store_destroy(&first);
    /* Nobody uses the first any more, so it makes room. */
    assert_int_equal(hr__directory_open(&segment, &wish, &error), 0);
    assert_int_equal(hr__store_create(&second, segment, &error), 0);
    assert_int_equal(fixture_offer(second, 1, 0), 1);
    hr__store_destroy(&second);
    assert_non_null(strstr(logged, "least recently used"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(restart),
        TEST(size),
        TEST(killed_at_every_step),
        TEST(killed_beside_another),
        TEST(killed_at_any_moment),
        TEST(two_at_once),
        TEST(unfinished_write),
        TEST(place_given_back),
        TEST(dropped),
        TEST(flipped_entry),
        TEST(flipped_bytes),
        TEST(wrong_length),
        TEST(flipped_books),
        TEST(torn_tail),
        TEST(full_disk),
        TEST(limited_file),
        TEST(refusals),
        TEST(two_datasets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
