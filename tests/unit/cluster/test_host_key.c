/*
 * The keys of items on servers: equal for copies of a dataset under other paths, different for
 * everything that may have other bytes.
 */
#include "../test.h"

#include "base/memory.h"
#include "cluster/host_key.h"
#include "dataset/dataset.h"

#include <headrace/rows.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 20

static char dir[64];

static int setup(void **state)
{
    strcpy(dir, "/tmp/headrace-host-key-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
    return 0;
}

static void write_file(const char *copy, int i, int bytes, int seconds)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s/c%d/%02d.jpg", dir, copy, i % 2, i);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int b = 0; b < bytes; b++)
        putc('x', f);
    assert_int_equal(fclose(f), 0);
    const struct timespec t = {1700000000 + seconds, 5};
    assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[]){t, t}, 0), 0);
}

/* A folder of two classes. */
static void make_copy(const char *copy)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", dir, copy);
    assert_int_equal(mkdir(path, 0700), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/c%d", dir, copy, i);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    for (int i = 0; i < FILES; i++)
        write_file(copy, i, 100 + i, i);
}

/* The descriptions of a dataset. */
struct known {
    struct hr__host_digest digest;
    uint64_t with[FILES][2], without[FILES][2];
};

static struct known know(struct hr_dataset *dataset)
{
    struct known k;
    struct hr_error error;
    memset(&k, 0, sizeof k);
    assert_int_equal(hr_dataset_wait_sizes(dataset), 0);
    if (hr__host_digest(&k.digest, dataset, &error))
        fail_msg("%s", error.message);
    for (size_t i = 0; i < hr_dataset_count(dataset); i++) {
        struct hr__stamp stamp;
        assert_int_equal(hr__stamp_now(&stamp, dataset, i), 0);
        for (int with = 0; with < 2; with++) {
            k.digest.with_mtime = with;
            assert_int_equal(
                hr__host_key(with ? k.with[i] : k.without[i], &k.digest, dataset, i, &stamp), 0);
        }
    }
    return k;
}

static struct hr_dataset *open_at(const char *copy)
{
    char path[160];
    struct hr_dataset *dataset;
    struct hr_dataset_options options;
    struct hr_error error;
    hr_dataset_options_default(&options);
    options.index = HR_INDEX_NONE;
    snprintf(path, sizeof path, "%s/%s", dir, copy);
    if (hr_dataset_open(&dataset, path, &options, &error))
        fail_msg("%s", error.message);
    return dataset;
}

static struct known know_at(const char *copy)
{
    struct hr_dataset *dataset = open_at(copy);
    struct known k = know(dataset);
    hr_dataset_unref(&dataset);
    return k;
}

static int same(const uint64_t a[2], const uint64_t b[2])
{
    return a[0] == b[0] && a[1] == b[1];
}

static void test_copies(void **state)
{
    make_copy("a");
    make_copy("b");
    struct known a = know_at("a"), b = know_at("b");
    assert_memory_equal(&a, &b, sizeof a);
    for (int i = 0; i < FILES; i++)
        for (int j = 0; j < FILES; j++) {
            assert_int_equal(same(a.with[i], a.with[j]), i == j);
            assert_int_equal(same(a.without[i], a.without[j]), i == j);
            assert_false(same(a.with[i], a.without[j]));
        }
}

/* Another modification time means another item, unless times do not count. */
static void test_time(void **state)
{
    make_copy("c");
    struct known before = know_at("c");
    write_file("c", 6, 106, 1000);
    struct known after = know_at("c");
    assert_true(same(before.digest.names, after.digest.names));
    assert_true(same(before.digest.sizes, after.digest.sizes));
    assert_true(same(before.digest.dataset, after.digest.dataset));
    assert_false(same(before.digest.times, after.digest.times));
    /* File 6 is the fourth of class 0. */
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(same(before.with[i], after.with[i]), i != 3);
        assert_true(same(before.without[i], after.without[i]));
    }
}

static void test_size_and_names(void **state)
{
    char from[160], to[160];
    make_copy("d");
    struct known before = know_at("d");
    write_file("d", 6, 300, 6);
    struct known after = know_at("d");
    assert_true(same(before.digest.names, after.digest.names));
    assert_false(same(before.digest.sizes, after.digest.sizes));
    assert_true(same(before.digest.times, after.digest.times));
    /* Another dataset whose files have the same names, sizes and times by chance: no item of one is
     * used for the other. */
    for (int i = 0; i < FILES; i++) {
        assert_false(same(before.with[i], after.with[i]));
        assert_false(same(before.without[i], after.without[i]));
    }
    snprintf(from, sizeof from, "%s/d/c1/19.jpg", dir);
    snprintf(to, sizeof to, "%s/d/c1/20.jpg", dir);
    assert_int_equal(rename(from, to), 0);
    struct known renamed = know_at("d");
    assert_false(same(after.digest.names, renamed.digest.names));
    assert_true(same(after.digest.sizes, renamed.digest.sizes));
}

/* A subset's items have the keys of its parent's; its digest of samples differs. */
static void test_subset(void **state)
{
    struct hr_dataset *subset, *parent = open_at("a");
    struct known of_parent = know(parent);
    assert_int_equal(hr_dataset_subset(&subset, parent, (const int64_t[]){7, 2, 7}, 3, NULL), 0);
    struct known of_subset = know(subset);
    assert_true(same(of_subset.with[0], of_parent.with[7]));
    assert_true(same(of_subset.with[1], of_parent.with[2]));
    assert_true(same(of_subset.without[2], of_parent.without[7]));
    assert_true(same(of_subset.digest.dataset, of_parent.digest.dataset));
    assert_false(same(of_subset.digest.names, of_parent.digest.names));
    assert_false(same(of_subset.digest.sizes, of_parent.digest.sizes));
    hr_dataset_unref(&subset);
    hr_dataset_unref(&parent);
}

/* Hosts compare labels, but keys do not depend on them. */
static void test_labels(void **state)
{
    char path[160], text[512];
    struct known of[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/list%d", dir, i);
        snprintf(text, sizeof text, "%s/a/c0/00.jpg %d\n%s/a/c0/02.jpg 1\n", dir, i, dir);
        test_write_text(path, text);
        snprintf(text, sizeof text, "list%d", i);
        of[i] = know_at(text);
    }
    assert_false(same(of[0].digest.names, of[1].digest.names));
    assert_true(same(of[0].digest.sizes, of[1].digest.sizes));
    assert_true(same(of[0].with[0], of[1].with[0]));
}

/* Ranges of a tar file: the same keys for a copy of it, other keys if it has other files. */
static void test_tars(void **state)
{
    char command[1024];
    struct known of[3];
    snprintf(command, sizeof command,
             "cd %s && tar cf one.tar -C a c0/00.jpg c1/01.jpg && mkdir copy && "
             "cp -p one.tar copy/two.tar && tar cf other.tar -C a c0/02.jpg c1/01.jpg && "
             "touch -r one.tar other.tar",
             dir);
    assert_int_equal(system(command), 0);
    of[0] = know_at("one.tar");
    of[1] = know_at("copy/two.tar");
    of[2] = know_at("other.tar");
    assert_memory_equal(&of[0], &of[1], sizeof of[0]);
    for (int i = 0; i < 2; i++) {
        assert_false(same(of[0].with[i], of[2].with[i]));
        assert_false(same(of[0].without[i], of[2].without[i]));
    }
    assert_false(same(of[0].with[0], of[0].with[1]));
}

/* Rows are compared, but are no part of the keys of items. */
static void test_rows(void **state)
{
    make_copy("r");
    struct hr_dataset *plain = open_at("r"), *with;
    const struct hr_column column = {.name = "x", .dtype = HR_UINT8};
    uint64_t offsets[FILES + 1] = {0, 1, 1, 2};
    for (int i = 4; i <= FILES; i++)
        offsets[i] = 2;
    struct known of[3] = {know(plain)};
    for (int k = 1; k < 3; k++) {
        const uint8_t values[2] = {1, (uint8_t)k};
        const void *data = values;
        assert_int_equal(hr_dataset_with_rows(&with, plain, &column, 1, offsets, &data, NULL), 0);
        of[k] = know(with);
        hr_dataset_unref(&with);
    }
    hr_dataset_unref(&plain);
    for (int k = 0; k < 3; k++) {
        assert_false(same(of[k].digest.rows, of[(k + 1) % 3].digest.rows));
        assert_true(same(of[k].digest.names, of[0].digest.names));
        for (int i = 0; i < FILES; i++)
            assert_true(same(of[k].with[i], of[0].with[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),         cmocka_unit_test(test_time),
        cmocka_unit_test(test_size_and_names), cmocka_unit_test(test_subset),
        cmocka_unit_test(test_labels),         cmocka_unit_test(test_tars),
        cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
