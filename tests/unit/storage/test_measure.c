/*
 * Measuring storage: every file is read once and completely, at any depth, in either way; reading
 * makes no file resident; files that cannot be read are counted.
 */
#include "../test.h"

#include "base/clock.h"
#include "base/memory.h"
#include "files.h"
#include "refuse.h"

#include <headrace/storage.h>

#include <math.h>
#include <sys/wait.h>

enum { FILES = 60 };

static char *paths[FILES + 1];
static uint64_t total;

/* Makes small files, an empty one, and some that are read in pieces. */
static void make_files(void)
{
    char name[32];
    total = 0;
    for (int i = 0; i < FILES; i++) {
        size_t size = i % 20 == 7 ? (3 << 20) + (size_t)i : (size_t)i * 997;
        snprintf(name, sizeof name, "measured %d", i);
        paths[i] = files_make(name, (unsigned)i, size);
        total += size;
    }
}

static void remove_files(void)
{
    for (int i = 0; i < FILES; i++) {
        unlink(paths[i]);
        free(paths[i]);
    }
}

/* Returns the line that failed; 0: everything is right. */
static int measure_all(int depth)
{
    const char *const *all = (const char *const *)paths;
    struct hr_storage_rate rate = {.size = sizeof rate};
    struct hr_storage_residency now = {.size = sizeof now};
    struct hr_error error = {0};
    int open_before = files_open_count();
    if (hr_storage_drop(all, FILES, &now, NULL))
        return __LINE__;
    int r = hr_storage_measure(all, FILES, depth, 60, &rate, &error);
    if (r) {
        fprintf(stderr, "%s\n", error.message);
        return __LINE__;
    }
    if (rate.bytes != total || rate.failed || !rate.exhausted)
        return __LINE__;
    /* at least a read for each file, and 4 for each of the 3 large ones */
    if (rate.reads < FILES + 9 || rate.reads > FILES + 3 * 13)
        return __LINE__;
    if (!(rate.elapsed_s > 0 && rate.elapsed_s < 60))
        return __LINE__;
    if (rate.part_count > (int)(rate.elapsed_s / (60.0 / HR_STORAGE_PARTS)))
        return __LINE__;
    if (rate.bytes_per_s * rate.elapsed_s < 0.999 * (double)total ||
        rate.bytes_per_s * rate.elapsed_s > 1.001 * (double)total)
        return __LINE__;
    if (hr_storage_check(all, FILES, &now, NULL) || (!now.in_memory && now.resident_bytes))
        return __LINE__;
    if (files_open_count() != open_before || hr__allocated(HR__TAG_STORAGE))
        return __LINE__;
    return 0;
}

static void every_file_once(void **state)
{
    static const int depths[] = {1, 2, 5, 32, 1024};
    make_files();
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
        assert_int_equal(measure_all(depths[i]), 0);
    remove_files();
}

/* In a container that refuses io_uring, and also without cachestat. */
static void without_io_uring(void **state)
{
    make_files();
    pid_t child = fork();
    if (!child) {
        alarm(120);
        int line = refuse(SYS_io_uring_setup, EPERM) ? __LINE__ : measure_all(1);
        line = line ? line : measure_all(7);
        line = line ? line : refuse(451, ENOSYS) ? __LINE__ : measure_all(64);
        if (line)
            fprintf(stderr, "line %d failed\n", line);
        _exit(line != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    remove_files();
}

/* The same files many times, more than can be read in the time. */
static void time_ends_it(void **state)
{
    enum { MANY = 200000 };
    static const char *many[MANY];
    struct hr_storage_rate rate = {.size = sizeof rate};
    make_files();
    for (int i = 0; i < MANY; i++)
        many[i] = paths[(i * 7) % FILES];
    uint64_t begin = hr__now_ns();
    assert_int_equal(hr_storage_measure(many, MANY, 4, 0.3, &rate, NULL), 0);
    double took = (double)(hr__now_ns() - begin) * 1e-9;
    assert_false(rate.exhausted);
    assert_true(rate.elapsed_s >= 0.3 && took >= rate.elapsed_s);
    assert_true(rate.reads > 0 && rate.bytes > 0);
    /* The bytes of four parts of 75 ms, except those of reads in flight at the end. */
    double in_parts = 0;
    assert_int_equal(rate.part_count, HR_STORAGE_PARTS);
    for (int i = 0; i < rate.part_count; i++) {
        assert_true(rate.parts[i] > 0);
        in_parts += rate.parts[i] * 0.3 / HR_STORAGE_PARTS;
    }
    assert_true(in_parts <= (double)rate.bytes * (1 + 1e-9));
    assert_true(in_parts >= (double)rate.bytes - 4 * 1048576.0);
    print_message("%.0f reads/s, %.0f MB/s, in %.2f s of 0.3\n", rate.reads_per_s,
                  rate.bytes_per_s * 1e-6, took);
    remove_files();
}

static void what_cannot_be_read_is_counted(void **state)
{
    struct hr_storage_rate rate = {.size = sizeof rate};
    struct hr_error error = {0};
    char *good = files_make("good", 1, 10000), *fifo = files_path("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const char *some[] = {"/nowhere/at-all", fifo, good, "/", good};
    assert_int_equal(hr_storage_measure(some, 5, 2, 5, &rate, &error), 0);
    assert_int_equal(rate.reads, 2);
    assert_int_equal(rate.failed, 3);
    assert_int_equal(rate.bytes, 20000);
    assert_true(rate.exhausted);
    assert_int_equal(hr_storage_measure(some, 2, 2, 5, &rate, &error), -ENODATA);
    assert_non_null(strstr(error.message, "none of 2 files could be read; /nowhere/at-all: No"));
    assert_int_equal(hr_storage_measure(NULL, 0, 2, 5, &rate, &error), -ENODATA);
    assert_int_equal(unlink(fifo) | unlink(good), 0);
    free(good), free(fifo);
}

static void wrong_arguments(void **state)
{
    struct hr_storage_rate rate = {.size = sizeof rate};
    struct hr_error error = {0};
    const char *path = "/dev/null";
    assert_int_equal(hr_storage_measure(&path, 1, 0, 1, &rate, &error), -EINVAL);
    assert_int_equal(hr_storage_measure(&path, 1, 1025, 1, &rate, &error), -EINVAL);
    assert_string_equal(error.message, "depth is 1025; it must be 1 to 1024");
    static const double seconds[] = {0, -1, 1e9, (double)NAN};
    for (int i = 0; i < 4; i++)
        assert_int_equal(hr_storage_measure(&path, 1, 1, seconds[i], &rate, &error), -EINVAL);
    assert_int_equal(hr_storage_measure(NULL, 1, 1, 1, &rate, &error), -EINVAL);
    rate.size = 4;
    assert_int_equal(hr_storage_measure(&path, 1, 1, 1, &rate, &error), -EINVAL);
}

/* Each allocation fails once: the result is an error or a result, and nothing leaks. */
static void no_memory_is_reported(void **state)
{
    char *good = files_make("good", 1, 10000);
    int open_before = files_open_count(), failures = 0;
    for (uint64_t n = 1; n < 12; n++) {
        struct hr_storage_rate rate = {.size = sizeof rate};
        struct hr_error error = {0};
        hr__alloc_fail_at(n, 0);
        int r = hr_storage_measure((const char *const *)&good, 1, 2, 5, &rate, &error);
        hr__alloc_fail_at(0, 0);
        assert_true(r == 0 || r == -ENOMEM || r == -ENODATA);
        assert_true(!r || error.message[0]);
        failures += r != 0;
        assert_int_equal(files_open_count(), open_before);
        assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
    }
    assert_true(failures >= 4);
    unlink(good);
    free(good);
}

static void tmpfs_is_read_too(void **state)
{
    char path[] = "/dev/shm/headrace-test-XXXXXX";
    const char *one = path;
    struct hr_storage_rate rate = {.size = sizeof rate};
    int fd = mkstemp(path);
    if (fd < 0)
        skip();
    assert_int_equal(ftruncate(fd, 5 << 20), 0);
    close(fd);
    int r = hr_storage_measure(&one, 1, 8, 5, &rate, NULL);
    unlink(path);
    assert_int_equal(r, 0);
    assert_int_equal(rate.bytes, 5 << 20);
    assert_int_equal(rate.reads, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_file_once),   cmocka_unit_test(without_io_uring),
        cmocka_unit_test(time_ends_it),      cmocka_unit_test(what_cannot_be_read_is_counted),
        cmocka_unit_test(wrong_arguments),   cmocka_unit_test(no_memory_is_reported),
        cmocka_unit_test(tmpfs_is_read_too),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
