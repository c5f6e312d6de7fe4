/*
 * Packs whose writing is interrupted: killed, cancelled, torn, or out of space. When it is
 * continued, each is the same as the pack of an undisturbed run.
 */
#include "pack_bench.h"

#include "dataset/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void slow_read(const char *path)
{
    nanosleep(&(struct timespec){.tv_nsec = 700000}, NULL);
}

/* Packs in a process of its own and kills it after `us` microseconds; 0: lets it run. Returns
 * whether it ended by itself. */
static int pack_in_child(const struct pack_bench *b, const char *name, unsigned us)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct hr_pack_options options;
        bench_options(&options, HR_FORM_COEFFICIENTS, 2);
        fixture_before_read = slow_read;
        int r = hr_pack_write(b->folder, bench_at(b, name), &options, NULL, NULL);
        _exit(r ? 1 : 0);
    }
    if (us) {
        nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
        kill(child, SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return 0;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    return 1;
}

/* Killed at any moment and continued, a pack is the one of an undisturbed run. Each attempt of a
 * round may take longer than the one before, so that slow machines finish, too; rounds go on until
 * enough runs were killed and continued. */
static void kills_change_nothing(void **state)
{
    struct pack_bench b;
    unsigned kills = 0, continued = 0, seed = 1;
    bench_make(&b);
    bench_pack(&b, "whole", HR_FORM_COEFFICIENTS, 2);
    for (int round = 0; round < 12 || kills < 30 || !continued; round++) {
        uint64_t last = 0;
        for (unsigned limit_us = 40000;; limit_us += limit_us / 8) {
            struct stat st;
            seed = seed * 1664525u + 1013904223u;
            if (pack_in_child(&b, "killed", 1000 + (seed >> 8) % limit_us))
                break;
            kills++;
            if (!stat(bench_at(&b, "killed.partial"), &st) && (uint64_t)st.st_size > last) {
                continued += last != 0;
                last = (uint64_t)st.st_size;
            }
            /* or it was killed after the file was renamed */
            if (!access(bench_at(&b, "killed"), F_OK))
                break;
        }
        assert_same_file(bench_at(&b, "whole"), bench_at(&b, "killed"));
        assert_int_not_equal(access(bench_at(&b, "killed.partial"), F_OK), 0);
        assert_int_equal(unlink(bench_at(&b, "killed")), 0);
    }
    bench_remove(&b);
}

/* Bytes behind the last safe item, and entries that a power cut has torn, are written again. */
static void torn_tail_is_written_again(void **state)
{
    struct pack_bench b;
    struct hr_pack_options options;
    struct hr_pack_result result = {.size = sizeof result};
    struct hr__pack_superblock super;
    bench_make(&b);
    bench_pack(&b, "whole", HR_FORM_COEFFICIENTS, 2);
    for (int what = 0; what < 4; what++) {
        struct hr__catalog map;
        size_t length;
        char *bytes = bench_bytes(bench_at(&b, "whole"), &length);
        memcpy(&super, bytes, sizeof super);
        super.state = HR__PACK_WRITING;
        super.bytes = 0;
        hr__pack_seal(&super);
        memcpy(bytes, &super, sizeof super);
        assert_int_equal(hr__catalog_map(&map, bytes + super.catalog_offset, super.catalog_bytes),
                         0);
        const uint64_t torn = 30;
        if (what == 0)
            bytes[map.ranges[torn].offset + 5] ^= 1;
        else if (what == 1)
            map.ranges[torn].checksum = 0;
        else if (what == 2)
            map.sizes[torn] = HR_SIZE_UNKNOWN;
        else
            map.ranges[torn].offset += 64;
        test_write(bench_at(&b, "torn.partial"), bytes, length);
        free(bytes);
        bench_options(&options, HR_FORM_COEFFICIENTS, 2);
        bench_write(b.folder, bench_at(&b, "torn"), &options, &result);
        assert_int_equal(result.continued, torn);
        assert_same_file(bench_at(&b, "whole"), bench_at(&b, "torn"));
        assert_int_equal(unlink(bench_at(&b, "torn")), 0);
    }
    bench_remove(&b);
}

/* The run was killed before it wrote the front, or the file is damaged. */
static void a_file_without_a_front_is_begun(void **state)
{
    struct pack_bench b;
    struct hr_pack_options options;
    struct hr_error error;
    bench_make(&b);
    bench_pack(&b, "whole", HR_FORM_ENCODED, 2);
    bench_options(&options, HR_FORM_ENCODED, 2);
    static const off_t lengths[] = {0, 4096, 5000, 100000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int fd = open(bench_at(&b, "p.partial"), O_RDWR | O_CREAT, 0666);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, lengths[i]), 0);
        close(fd);
        bench_write(b.folder, bench_at(&b, "p"), &options, NULL);
        assert_same_file(bench_at(&b, "whole"), bench_at(&b, "p"));
        assert_int_equal(unlink(bench_at(&b, "p")), 0);
    }
    int fd = open(bench_at(&b, "p.partial"), O_RDWR | O_CREAT, 0666);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "not ours", 8, 0), 8);
    close(fd);
    assert_int_equal(hr_pack_write(b.folder, bench_at(&b, "p"), &options, NULL, &error), -EBADMSG);
    assert_non_null(strstr(error.message, "restart it"));
    options.restart = 1;
    bench_write(b.folder, bench_at(&b, "p"), &options, NULL);
    assert_same_file(bench_at(&b, "whole"), bench_at(&b, "p"));
    bench_remove(&b);
}

static atomic_int reads_left; /* before reads are blocked */
static atomic_int cancelled;

/* Cancels a run after some progress. */
static int cancel_on_its_way(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    *(uint64_t *)arg = done;
    atomic_store(&cancelled, done > 0);
    return done > 0;
}

/* The last samples are not read before the run is cancelled, whenever that is. */
static void held_up_read(const char *path)
{
    if (atomic_fetch_sub(&reads_left, 1) > 0)
        return;
    while (!atomic_load(&cancelled))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Leaves an unfinished pack of some samples. Returns how many were counted. */
static uint64_t cancel(const struct pack_bench *b, const char *name,
                       const struct hr_pack_options *given)
{
    struct hr_pack_options options = *given;
    struct hr_error error;
    uint64_t done = 0;
    options.progress = cancel_on_its_way;
    options.progress_arg = &done;
    atomic_store(&reads_left, SAMPLES / 2);
    atomic_store(&cancelled, 0);
    fixture_before_read = held_up_read;
    assert_int_equal(hr_pack_write(b->folder, bench_at(b, name), &options, NULL, &error),
                     -ECANCELED);
    fixture_before_read = NULL;
    assert_non_null(strstr(error.message, "continue"));
    assert_in_range(done, 1, SAMPLES - 1);
    return done;
}

static void cancelled_is_kept(void **state)
{
    struct pack_bench b;
    struct hr_pack_options options;
    struct hr_pack_result result = {.size = sizeof result};
    bench_make(&b);
    bench_pack(&b, "whole", HR_FORM_ENCODED, 2);
    bench_options(&options, HR_FORM_ENCODED, 1);
    uint64_t done = cancel(&b, "p", &options);
    assert_int_not_equal(access(bench_at(&b, "p"), F_OK), 0);
    bench_write(b.folder, bench_at(&b, "p"), &options, &result);
    assert_in_range(result.continued, done, SAMPLES - 1);
    assert_same_file(bench_at(&b, "whole"), bench_at(&b, "p"));
    bench_remove(&b);
}

static void changed_inputs_are_noticed(void **state)
{
    struct pack_bench b;
    struct hr_pack_options options, other;
    struct hr_error error;
    bench_make(&b);
    bench_options(&options, HR_FORM_ENCODED, 1);
    assert_true(cancel(&b, "p", &options) > 0);
    /* other options */
    other = options;
    other.form = HR_FORM_COEFFICIENTS;
    assert_int_equal(hr_pack_write(b.folder, bench_at(&b, "p"), &other, NULL, &error), -ESTALE);
    assert_non_null(strstr(error.message, "encoded"));
    other = options;
    other.trust = 1;
    assert_int_equal(hr_pack_write(b.folder, bench_at(&b, "p"), &other, NULL, &error), -ESTALE);
    /* another dataset */
    int64_t indices[] = {1, 0};
    struct hr_dataset *subset;
    assert_int_equal(hr_dataset_subset(&subset, b.folder, indices, 2, NULL), 0);
    assert_int_equal(hr_pack_write(subset, bench_at(&b, "p"), &options, NULL, &error), -ESTALE);
    hr_dataset_unref(&subset);
    /* a file that is already packed */
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, bench_at(&b, "set/cat/000.jpg"), times, 0), 0);
    assert_int_equal(hr_pack_write(b.folder, bench_at(&b, "p"), &options, NULL, &error), -ESTALE);
    assert_non_null(strstr(error.message, "set/cat/000.jpg"));
    options.restart = 1;
    bench_write(b.folder, bench_at(&b, "p"), &options, NULL);
    bench_remove(&b);
}

static int write_again(void *arg, uint64_t done, uint64_t total, const char *stage)
{
    const struct pack_bench *b = arg;
    struct hr_pack_options options;
    struct hr_error error;
    bench_options(&options, HR_FORM_ENCODED, 1);
    assert_int_equal(hr_pack_write(b->folder, bench_at(b, "p"), &options, NULL, &error), -EBUSY);
    return 0;
}

static void names_are_respected(void **state)
{
    struct pack_bench b;
    struct hr_pack_options options;
    struct hr_error error;
    bench_make(&b);
    bench_options(&options, HR_FORM_ENCODED, 1);
    options.progress = write_again;
    options.progress_arg = &b;
    bench_write(b.folder, bench_at(&b, "p"), &options, NULL);
    options.progress = NULL;
    assert_int_equal(hr_pack_write(b.folder, bench_at(&b, "p"), &options, NULL, &error), -EEXIST);
    assert_int_equal(hr_pack_write(b.folder, bench_at(&b, "set"), &options, NULL, &error), -EEXIST);
    assert_int_equal(hr_pack_write(b.folder, bench_at(&b, "none/p"), &options, NULL, &error),
                     -ENOENT);
    assert_int_equal(hr_pack_write(b.folder, bench_at(&b, ""), &options, NULL, &error), -EINVAL);
    options.overwrite = 1;
    bench_write(b.folder, bench_at(&b, "p"), &options, NULL);
    options.form = 7;
    assert_int_equal(hr_pack_write(b.folder, bench_at(&b, "q"), &options, NULL, &error), -EINVAL);
    bench_remove(&b);
}

/* A limit on the size of files stands for a full disk. */
static void full_disk_keeps_what_is_done(void **state)
{
    struct pack_bench b;
    struct hr_pack_options options;
    struct hr_pack_result result = {.size = sizeof result};
    struct stat st;
    bench_make(&b);
    bench_pack(&b, "whole", HR_FORM_ENCODED, 2);
    assert_int_equal(stat(bench_at(&b, "whole"), &st), 0);
    bench_options(&options, HR_FORM_ENCODED, 2);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct rlimit limit = {(rlim_t)st.st_size / 2, (rlim_t)st.st_size / 2};
        struct hr_error error;
        signal(SIGXFSZ, SIG_IGN);
        int bad = setrlimit(RLIMIT_FSIZE, &limit);
        int r = hr_pack_write(b.folder, bench_at(&b, "p"), &options, NULL, &error);
        const char *kept = strstr(error.message, "the first ");
        _exit(!bad && r == -EFBIG && strstr(error.message, "make room") && kept
                  ? atoi(kept + strlen("the first "))
                  : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    bench_write(b.folder, bench_at(&b, "p"), &options, &result);
    assert_in_range(result.continued, SAMPLES / 4, SAMPLES - 1);
    assert_int_equal(result.continued, WEXITSTATUS(status));
    assert_same_file(bench_at(&b, "whole"), bench_at(&b, "p"));
    bench_remove(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kills_change_nothing),
        cmocka_unit_test(torn_tail_is_written_again),
        cmocka_unit_test(a_file_without_a_front_is_begun),
        cmocka_unit_test(cancelled_is_kept),
        cmocka_unit_test(changed_inputs_are_noticed),
        cmocka_unit_test(names_are_respected),
        cmocka_unit_test(full_disk_keeps_what_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
