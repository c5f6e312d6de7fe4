/*
 * The identity of a dataset and the keys of its items: equal for the same files under another path,
 * different for different files. Computing keys of a shared cache is cheap and allocates nothing.
 */
#include "../test.h"

#include "base/memory.h"
#include "cache/cache.h"
#include "cache/identity.h"
#include "cache/spec.h"
#include "dataset/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES 200

static char dir[64];

static void path_of(char out[128], int i)
{
    snprintf(out, 128, "%s/%03d.jpg", dir, i);
}

static void write_file(int i, const char *text, int seconds)
{
    char path[128];
    struct timespec t;
    path_of(path, i);
    test_write_text(path, text);
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += seconds - 100;
    assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){t, t}, 0), 0);
}

/* Waits until no file counts as just written. */
static void settle(void)
{
    usleep(HR__STAMP_FRESH_NS / 1000 + 20000);
}

static int setup(void **state)
{
    strcpy(dir, "/tmp/headrace-identity-XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < FILES; i++)
        write_file(i, "an image", 0);
    settle();
    return 0;
}

static int teardown(void **state)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf %s %s-link %s-shm", dir, dir, dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
    return 0;
}

/* Makes a dataset of the paths [from, to) below `below`. */
static struct hr_dataset *make_list(const char *below, int from, int to)
{
    char *paths[FILES] = {NULL};
    struct hr_dataset *dataset;
    struct hr_error error;
    for (int i = from; i < to; i++)
        assert_true(asprintf(&paths[i - from], "%s%s%03d.jpg", below, *below ? "/" : "", i) > 0);
    if (hr_dataset_from_paths(&dataset, (const char *const *)paths, NULL, (size_t)(to - from),
                              &error))
        fail_msg("%s", error.message);
    for (int i = from; i < to; i++)
        free(paths[i - from]);
    return dataset;
}

static struct hr__identity identity_of(const struct hr_dataset *dataset)
{
    struct hr__identity identity;
    struct hr_error error;
    assert_int_equal(hr__identity_make(&identity, dataset, &error), 0);
    assert_true(strlen(identity.text) > 0);
    return identity;
}

static int same(const struct hr__identity *a, const struct hr__identity *b)
{
    int digests = !memcmp(a->digest, b->digest, sizeof a->digest);
    assert_int_equal(digests, !strcmp(a->text, b->text));
    return digests;
}

static void test_lists(void **state)
{
    struct hr_dataset *a = make_list(dir, 0, 10), *b = make_list(dir, 0, 10);
    struct hr_dataset *more = make_list(dir, 0, 11), *later = make_list(dir, 1, 11), *subset;
    struct hr__identity of_a = identity_of(a), other = identity_of(b);
    assert_true(same(&of_a, &other));
    assert_non_null(strstr(of_a.text, "10 files"));
    other = identity_of(more);
    assert_false(same(&of_a, &other));
    other = identity_of(later);
    assert_false(same(&of_a, &other));
    assert_int_equal(hr_dataset_subset(&subset, a, (const int64_t[]){3, 1, 3}, 3, NULL), 0);
    other = identity_of(subset);
    assert_true(same(&of_a, &other));
    /* Absolute paths are the same from every directory, relative ones are not. */
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    struct hr_dataset *relative = make_list("", 0, 10);
    struct hr__identity from_here = identity_of(relative);
    assert_int_equal(chdir(dir), 0);
    other = identity_of(a);
    assert_true(same(&of_a, &other));
    other = identity_of(relative);
    assert_false(same(&from_here, &other));
    assert_non_null(strstr(other.text, dir));
    assert_int_equal(chdir(before), 0);
    hr_dataset_unref(&a);
    hr_dataset_unref(&b);
    hr_dataset_unref(&more);
    hr_dataset_unref(&later);
    hr_dataset_unref(&subset);
    hr_dataset_unref(&relative);
}

/* The key distinguishes samples, sizes, times and datasets. */
static void test_keys(void **state)
{
    struct hr_dataset *a = make_list(dir, 0, 10), *subset;
    struct hr__identity identity = identity_of(a), other = identity;
    struct hr__stamp stamp, then;
    struct hr__key key, next;
    assert_int_equal(hr__stamp_now(&stamp, a, 4), 0);
    assert_int_equal(stamp.bytes, 8);
    assert_false(hr__stamp_is_fresh(&stamp));
    assert_false(hr__stamp_believed(&then, a, 4)); /* no file was checked yet */
    assert_int_equal(hr__identity_key(&key, &identity, a, 4, &stamp), 0);
    assert_int_equal(hr_dataset_subset(&subset, a, (const int64_t[]){9, 4}, 2, NULL), 0);
    assert_int_equal(hr__identity_key(&next, &identity, subset, 1, &stamp), 0);
    assert_memory_equal(&key, &next, sizeof key);
    for (int change = 0; change < 5; change++) {
        then = stamp;
        other = identity;
        then.bytes += change == 0;
        then.mtime_ns += change == 1;
        then.change += change == 4;
        other.digest[7] ^= change == 2;
        assert_int_equal(hr__identity_key(&next, &other, a, change == 3 ? 5 : 4, &then), 0);
        assert_memory_not_equal(&key, &next, sizeof key);
    }
    write_file(4, "another image", 0);
    assert_int_equal(hr__stamp_now(&then, a, 4), 0);
    assert_int_equal(then.bytes, 13);
    /* Its ctime shows that it changed recently, whatever its modification time is set to. */
    struct timespec begun, now;
    clock_gettime(CLOCK_REALTIME, &begun);
    write_file(4, "another image", 1000);
    assert_int_equal(hr__stamp_now(&then, a, 4), 0);
    int fresh = hr__stamp_is_fresh(&then);
    clock_gettime(CLOCK_REALTIME, &now);
    assert_true(fresh ||
                now.tv_sec - begun.tv_sec + 1e-9 * (double)(now.tv_nsec - begun.tv_nsec) > 0.01);
    settle();
    assert_false(hr__stamp_is_fresh(&then));
    hr__catalog_store(&a->catalog->sizes[4], then.bytes);
    hr__catalog_store(&a->catalog->mtimes_ns[4], then.mtime_ns);
    a->catalog->changes[4] = then.change;
    assert_true(hr__stamp_believed(&stamp, a, 4));
    assert_int_equal(hr__stamp_digest(&stamp), hr__stamp_digest(&then));
    char path[128];
    path_of(path, 4);
    assert_int_equal(unlink(path), 0);
    assert_true(hr__stamp_now(&then, a, 4) < 0);
    hr_dataset_unref(&subset);
    hr_dataset_unref(&a);
}

static struct hr__cache *open_shared(struct hr_dataset *dataset, const char *text)
{
    struct hr__cache_spec spec;
    struct hr__cache *cache;
    struct hr_error error;
    char shm[80];
    snprintf(shm, sizeof shm, "%s-shm", dir);
    mkdir(shm, 0700);
    setenv("HEADRACE_SHM", shm, 1);
    if (hr__cache_spec_parse(&spec, text, &error) ||
        hr__cache_create_shared(&cache, dataset, &spec, "test", &error))
        fail_msg("%s", error.message);
    return cache;
}

static int admit(struct hr__cache *cache, uint64_t index, const char *bytes)
{
    struct hr__cache_ticket ticket = {.is_claimed = 0};
    if (hr__cache_claim(cache, index, &ticket) == HR__CLAIM_FOUND)
        return 0;
    struct hr__cache_offer offer = {
        .index = index, .ticket = &ticket, .bytes = bytes, .length = strlen(bytes)};
    int r = hr__cache_offer(cache, &offer);
    assert_false(ticket.is_claimed);
    return r;
}

static int find(struct hr__cache *cache, uint64_t index, const char *bytes)
{
    struct hr__cache_item item;
    if (!hr__cache_find(cache, index, &item))
        return 0;
    assert_int_equal(item.length, strlen(bytes));
    assert_memory_equal(item.bytes, bytes, item.length);
    hr__cache_unpin(cache, &item);
    return 1;
}

/* A file that changes between claim and offer is not admitted; one that changes later is a miss, in
 * each process. */
static void test_changes(void **state)
{
    struct hr_dataset *a = make_list(dir, 0, FILES);
    struct hr__cache *first = open_shared(a, "shm:changes?size=8MiB");
    struct hr__cache_ticket ticket = {.is_claimed = 0};
    assert_int_equal(admit(first, 1, "an image"), 1);
    assert_int_equal(find(first, 1, "an image"), 1);
    assert_int_equal(hr__cache_claim(first, 2, &ticket), HR__CLAIM_YOURS);
    write_file(2, "another image", 0);
    struct hr__cache_offer offer = {
        .index = 2, .ticket = &ticket, .bytes = "an image", .length = 8};
    assert_int_equal(hr__cache_offer(first, &offer), 0);
    assert_int_equal(find(first, 2, ""), 0);
    /* From now on its new contents are cached. */
    settle();
    assert_int_equal(admit(first, 2, "another image"), 1);
    assert_int_equal(find(first, 2, "another image"), 1);
    write_file(1, "a new image", 5);
    settle();
    assert_int_equal(find(first, 1, ""), 0);
    struct hr__cache *second = open_shared(a, "shm:changes?size=8MiB");
    assert_int_equal(find(second, 1, ""), 0);
    assert_int_equal(find(second, 2, "another image"), 1);
    assert_int_equal(admit(second, 1, "a new image"), 1);
    hr__cache_destroy(&first);
    hr__cache_destroy(&second);
    hr_dataset_unref(&a);
}

/* The check of the file costs most; computing the key takes no system call and no memory. */
static void test_cost(void **state)
{
    struct hr_dataset *a = make_list(dir, 0, FILES);
    struct hr__cache *cache = open_shared(a, "shm:cost?size=8MiB");
    struct hr__identity identity = identity_of(a);
    struct hr__stamp stamp = {.bytes = 8, .change = 1};
    struct hr__key key = {0, 0};
    for (uint64_t i = 0; i < FILES; i++)
        assert_int_equal(admit(cache, i, "an image"), 1);
    hr__alloc_fail_at(1, 1);
    for (int round = 0; round < 100; round++)
        for (uint64_t i = 0; i < FILES; i++)
            assert_int_equal(find(cache, i, "an image"), 1);
    uint64_t sum = 0;
    for (int round = 0; round < 100; round++) {
        for (uint64_t i = 0; i < FILES; i++) {
            stamp.mtime_ns++;
            hr__identity_key(&key, &identity, a, i, &stamp);
            sum += key.low;
        }
    }
    hr__alloc_fail_at(0, 0);
    assert_true(sum != 0);
    hr__cache_destroy(&cache);
    hr_dataset_unref(&a);
}

/* Gives file `i` other bytes, with the same size and modification time. */
static void rewrite(int i, const char *text, int by_rename)
{
    char path[128], other[140];
    struct stat before;
    path_of(path, i);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal((size_t)before.st_size, strlen(text));
    snprintf(other, sizeof other, "%s%s", path, by_rename ? ".new" : "");
    FILE *f = fopen(other, by_rename ? "wb" : "r+b");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, other, times, 0), 0);
    if (by_rename)
        assert_int_equal(rename(other, path), 0);
    settle();
}

static struct hr__cache *open_private(struct hr_dataset *dataset)
{
    struct hr__cache *cache;
    struct hr_error error;
    const struct hr__cache_options options = {
        .dataset = dataset, .samples = FILES, .budget_bytes = 8 << 20};
    if (hr__cache_create(&cache, &options, &error))
        fail_msg("%s", error.message);
    return cache;
}

/* A file with the same size and modification time but other bytes is detected by ctime and inode
 * number, in every kind of cache, at every hit; then its new contents are cached. */
static void test_same_times(void **state)
{
    struct hr_dataset *a = make_list(dir, 0, FILES);
    for (int kind = 0; kind < 2; kind++) {
        struct hr__cache *cache = kind ? open_private(a) : open_shared(a, "shm:times?size=8MiB");
        struct hr__cache_counts counts;
        for (int by_rename = 0; by_rename < 2; by_rename++) {
            int i = 10 * kind + by_rename;
            assert_int_equal(admit(cache, (uint64_t)i, "an image"), 1);
            assert_int_equal(find(cache, (uint64_t)i, "an image"), 1);
            rewrite(i, "an IMAGE", by_rename);
            assert_int_equal(find(cache, (uint64_t)i, ""), 0);
            /* It was read under the old stamp. */
            if (!admit(cache, (uint64_t)i, "an IMAGE"))
                assert_int_equal(admit(cache, (uint64_t)i, "an IMAGE"), 1);
            assert_int_equal(find(cache, (uint64_t)i, "an IMAGE"), 1);
        }
        hr__cache_get_counts(cache, &counts);
        assert_int_equal(counts.items[0], kind ? 2 : 4);
        char path[128], away[160];
        path_of(path, 10 * kind);
        snprintf(away, sizeof away, "%s.away", path);
        assert_int_equal(rename(path, away), 0);
        assert_int_equal(find(cache, (uint64_t)(10 * kind), ""), 0);
        assert_int_equal(rename(away, path), 0);
        hr__cache_destroy(&cache);
    }
    hr_dataset_unref(&a);
}

/* If a file system keeps no change times, the content decides. */
static void test_no_change_times(void **state)
{
    struct hr_dataset *a = make_list(dir, 0, 10);
    struct hr__identity identity = identity_of(a);
    struct hr__stamp stamp = {.bytes = 8, .mtime_ns = 1000000000};
    struct hr__key before, after;
    char *text = malloc(200001);
    for (size_t bytes = 1; bytes <= 200000; bytes *= 20) {
        uint64_t digest;
        memset(text, 'x', bytes);
        text[bytes] = 0;
        write_file(4, text, 0);
        assert_int_equal(hr__content_look(&digest, a, 4), 0);
        assert_int_equal(digest, hr__content_digest(text, bytes));
        assert_int_equal(hr__identity_key(&before, &identity, a, 4, &stamp), 0);
        const size_t at[] = {0, bytes / 2, bytes - 1};
        for (int k = 0; k < 3; k++) {
            text[at[k]] = 'y';
            write_file(4, text, 0);
            text[at[k]] = 'x';
            assert_int_equal(hr__identity_key(&after, &identity, a, 4, &stamp), 0);
            assert_memory_not_equal(&before, &after, sizeof after);
        }
    }
    free(text);
    hr_dataset_unref(&a);
}

/* It has no files, whose change could be seen. */
static void test_produced(void **state)
{
    const struct hr__produced what = {.sample_bytes = 1, .name = "made"};
    struct hr__identity identity;
    struct hr_dataset *d;
    struct hr_error error = {0};
    assert_int_equal(hr__dataset_create_produced(&d, 3, &what, NULL), 0);
    assert_int_equal(hr__identity_make(&identity, d, &error), -ENOTSUP);
    assert_non_null(strstr(error.message, "made"));
    hr_dataset_unref(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lists, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_same_times, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_change_times, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cost, setup, teardown),
        cmocka_unit_test(test_produced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
