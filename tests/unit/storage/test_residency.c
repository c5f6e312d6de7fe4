/*
 * Residency is reported as the kernel has it: after writing, reading and dropping, with mapped
 * pages, on in-memory file systems, and for files that cannot be read. If the build folder itself
 * is in memory, dropping has no effect, and the test expects that.
 */
#include "../test.h"

#include "base/memory.h"
#include "files.h"
#include "refuse.h"

#include <headrace/storage.h>

#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define PAGE 4096

typedef int (*surveyor)(const char *const *, size_t, struct hr_storage_residency *,
                        struct hr_error *);

static struct hr_storage_residency call(surveyor function, const char *const *paths, size_t count)
{
    struct hr_storage_residency now = {.size = sizeof now};
    struct hr_error error = {0};
    int r = function(paths, count, &now, &error);
    if (r)
        fail_msg("%d: %s", r, error.message);
    assert_int_equal(now.size, sizeof now);
    return now;
}

static int in_memory(void)
{
    char *path = files_make("kind", 1, 1);
    struct hr_storage_residency now = call(hr_storage_check, (const char *const *)&path, 1);
    unlink(path);
    free(path);
    return now.in_memory;
}

static void written_dropped_read(void **state)
{
    static const size_t sizes[] = {0, 1, PAGE, PAGE + 1, 300000, 3 << 20};
    enum { FILES = sizeof sizes / sizeof *sizes };
    char *paths[FILES], name[32];
    uint64_t total = 0;
    int memory = in_memory(), open_before = files_open_count();
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "file %d", i);
        paths[i] = files_make(name, (unsigned)i, sizes[i]);
        total += sizes[i];
    }
    const char *const *all = (const char *const *)paths;
    struct hr_storage_residency now = call(hr_storage_check, all, FILES);
    assert_int_equal(now.files, FILES);
    assert_int_equal(now.bytes, total);
    assert_int_equal(now.resident_bytes, total);
    assert_true(now.dirty_bytes <= total);
    assert_int_equal(now.failed + now.unknown, 0);
    assert_string_equal(now.problem, "");
    assert_true(now.filesystem[0] != 0);

    now = call(hr_storage_drop, all, FILES);
    assert_int_equal(now.bytes, total);
    assert_int_equal(now.resident_bytes, memory ? total : 0);
    if (!memory)
        assert_int_equal(now.dirty_bytes, 0);
    now = call(hr_storage_check, all, FILES);
    assert_int_equal(now.resident_bytes, memory ? total : 0);

    now = call(hr_storage_preread, all, FILES);
    assert_int_equal(now.files, FILES);
    assert_int_equal(now.resident_bytes, total);
    now = call(hr_storage_check, all + 4, 1);
    assert_int_equal(now.resident_bytes, 300000);

    /* a dropped file is complete again when it is read */
    call(hr_storage_drop, all, FILES);
    for (int i = 0; i < FILES; i++) {
        uint8_t *bytes = malloc(sizes[i] + 1);
        int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
        assert_int_equal(read(fd, bytes, sizes[i] + 1), (ssize_t)sizes[i]);
        assert_int_equal(files_differ(bytes, sizes[i], (unsigned)i), sizes[i]);
        close(fd);
        free(bytes);
        unlink(paths[i]);
        free(paths[i]);
    }
    assert_int_equal(files_open_count(), open_before);
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
}

static void mapped_pages_stay_and_are_counted(void **state)
{
    enum { PAGES = 100, HELD = 10 };
    if (in_memory())
        skip();
    char *path = files_make("mapped", 2, PAGES * PAGE);
    call(hr_storage_drop, (const char *const *)&path, 1);
    call(hr_storage_preread, (const char *const *)&path, 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC), sum = 0;
    const volatile uint8_t *map = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    assert_true(map != MAP_FAILED);
    madvise((void *)map, PAGES * PAGE, MADV_RANDOM);
    for (int i = 0; i < HELD; i++)
        sum += map[i * PAGE];
    struct hr_storage_residency now = call(hr_storage_drop, (const char *const *)&path, 1);
    /* one large page may hold more than was touched */
    assert_true(now.resident_bytes >= HELD * PAGE && now.resident_bytes <= PAGES * PAGE);
    assert_int_equal(now.files, 1);
    munmap((void *)map, PAGES * PAGE);
    now = call(hr_storage_drop, (const char *const *)&path, 1);
    assert_int_equal(now.resident_bytes, 0);
    assert_true(sum >= 0);
    unlink(path);
    free(path);
}

static void what_is_no_file_is_counted(void **state)
{
    char *good = files_make("good", 3, 5000), *fifo = files_path("fifo");
    char *directory = files_path("directory"), *missing = files_path("missing\n\x01");
    char *link = files_path("link"), *loop = files_path("loop");
    assert_int_equal(mkfifo(fifo, 0600) | mkdir(directory, 0700), 0);
    assert_int_equal(symlink("good", link) | symlink("loop", loop), 0);
    const char *paths[] = {fifo, good, directory, missing, link, loop, "", "/dev/null", good};
    static const surveyor functions[] = {hr_storage_check, hr_storage_drop, hr_storage_preread};
    int open_before = files_open_count();
    for (int i = 0; i < 3; i++) {
        struct hr_storage_residency now = call(functions[i], paths, 9);
        assert_int_equal(now.files, 3);
        assert_int_equal(now.bytes, 15000);
        assert_int_equal(now.failed, 6);
        assert_non_null(strstr(now.problem, "fifo: is no regular file"));
    }
    struct hr_storage_residency now = call(hr_storage_check, paths + 2, 2);
    assert_int_equal(now.failed, 2);
    assert_non_null(strstr(now.problem, "directory: is a directory"));
    assert_string_equal(now.filesystem, "");
    now = call(hr_storage_check, paths + 3, 1);
    assert_non_null(strstr(now.problem, "missing\\x0A\\x01: No such file"));
    assert_int_equal(files_open_count(), open_before);
    assert_int_equal(unlink(fifo) | rmdir(directory) | unlink(link) | unlink(loop), 0);
    unlink(good);
    free(good), free(fifo), free(directory), free(missing), free(link), free(loop);
}

/* A long path is cut at its beginning, because its end identifies the file. */
static void long_paths_fit(void **state)
{
    char path[2000];
    memset(path, 'p', sizeof path);
    for (int i = 0; i < 2000; i += 100)
        path[i] = '/';
    snprintf(path + 1900, 100, "/the-end");
    const char *one = path;
    struct hr_storage_residency now = call(hr_storage_check, &one, 1);
    assert_int_equal(now.failed, 1);
    assert_non_null(strstr(now.problem, "/the-end: No such file"));
    assert_int_equal(strncmp(now.problem, "...ppp", 6), 0);
}

static void wrong_arguments(void **state)
{
    struct hr_storage_residency now = {.size = sizeof now};
    struct hr_error error = {0};
    const char *paths[] = {"/", NULL};
    assert_int_equal(hr_storage_check(NULL, 1, &now, &error), -EINVAL);
    assert_int_equal(hr_storage_drop(paths, 2, &now, &error), -EINVAL);
    assert_string_equal(error.message, "path 1 of 2 is NULL");
    now.size = 0;
    assert_int_equal(hr_storage_preread(paths, 1, &now, &error), -EINVAL);
    now = call(hr_storage_check, NULL, 0);
    assert_int_equal(now.files + now.bytes + now.failed, 0);
    call(hr_storage_drop, NULL, 0);
    call(hr_storage_preread, NULL, 0);
    /* an older program, whose struct ends earlier */
    char small[offsetof(struct hr_storage_residency, unknown) + 8];
    memset(small, 0x55, sizeof small);
    now.size = offsetof(struct hr_storage_residency, unknown);
    memcpy(small, &now.size, sizeof now.size);
    memset(small + sizeof now.size, 0, offsetof(struct hr_storage_residency, unknown) - 8);
    assert_int_equal(
        hr_storage_check(paths, 1, (struct hr_storage_residency *)(void *)small, &error), 0);
    assert_int_equal(small[offsetof(struct hr_storage_residency, unknown)], 0x55);
}

static void no_memory_is_reported(void **state)
{
    static const surveyor functions[] = {hr_storage_drop, hr_storage_preread};
    const char *path = "/dev/null";
    for (int i = 0; i < 2; i++) {
        struct hr_storage_residency now = {.size = sizeof now};
        struct hr_error error = {0};
        hr__alloc_fail_at(1, 0);
        assert_int_equal(functions[i](&path, 1, &now, &error), -ENOMEM);
        hr__alloc_fail_at(0, 0);
        assert_true(error.message[0] != 0);
    }
}

static void tmpfs_is_memory(void **state)
{
    struct statfs status;
    if (statfs("/dev/shm", &status) || status.f_type != 0x01021994)
        skip();
    char path[] = "/dev/shm/headrace-test-XXXXXX";
    const char *paths[2] = {path, "/proc/self/status"};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, path, 10), 10);
    close(fd);
    struct hr_storage_residency now = call(hr_storage_drop, paths, 2);
    unlink(path);
    assert_int_equal(now.files, 2);
    assert_int_equal(now.failed, 0);
    assert_string_equal(now.filesystem, "tmpfs");
    assert_true(now.in_memory && !now.network);
    assert_int_equal(now.bytes, 10);
    assert_int_equal(now.resident_bytes, 10);
}

/* Runs in a child; its exit status is the number of the line that failed, or 0. */
static void in_child(int (*body)(const char *path), const char *path)
{
    pid_t child = fork();
    if (!child) {
        alarm(120);
        int line = body(path);
        if (line)
            fprintf(stderr, "line %d failed\n", line);
        _exit(line != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A user who may read the file, but neither owns it nor may write to it, cannot see its residency,
 * and the result says that it is unknown; dropping works all the same. */
static int as_somebody_else(const char *path)
{
    struct hr_storage_residency now = {.size = sizeof now};
    if (setgid(65533) || setuid(65533))
        return __LINE__;
    if (hr_storage_check(&path, 1, &now, NULL))
        return __LINE__;
    if (now.files != 1 || now.bytes != 50000 || now.failed)
        return __LINE__;
    if (now.unknown) { /* newer kernels; older ones tell every user */
        if (now.unknown != 1 || now.resident_bytes || !strstr(now.problem, "only to its owner"))
            return __LINE__;
        if (refuse(451, ENOSYS) || hr_storage_check(&path, 1, &now, NULL) || now.unknown != 1)
            return __LINE__;
    }
    return hr_storage_drop(&path, 1, &now, NULL) || now.files != 1 ? __LINE__ : 0;
}

static int as_somebody_refused(const char *path)
{
    struct hr_storage_residency now = {.size = sizeof now};
    if (setgid(65533) || setuid(65533))
        return __LINE__;
    if (hr_storage_drop(&path, 1, &now, NULL))
        return __LINE__;
    return now.files || now.failed != 1 || !strstr(now.problem, "Permission denied") ? __LINE__ : 0;
}

static void others_files(void **state)
{
    if (geteuid())
        skip();
    /* a folder that everybody can enter */
    char path[] = "/var/tmp/headrace-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 50000) | fchmod(fd, 0644) | fsync(fd), 0);
    const char *one = path;
    call(hr_storage_preread, &one, 1);
    in_child(as_somebody_else, path);
    struct hr_storage_residency now = call(hr_storage_check, &one, 1);
    assert_int_equal(now.resident_bytes, now.in_memory ? 50000 : 0);
    assert_int_equal(fchmod(fd, 0600), 0);
    in_child(as_somebody_refused, path);
    close(fd);
    unlink(path);
}

/* Without cachestat, as on kernels before 6.5 and in older containers: mappings give the same
 * result. */
static int without_cachestat(const char *path)
{
    struct hr_storage_residency now = {.size = sizeof now};
    if (refuse(451, EPERM))
        return __LINE__;
    if (hr_storage_check(&path, 1, &now, NULL) || now.unknown || now.resident_bytes != 300000)
        return __LINE__;
    if (hr_storage_drop(&path, 1, &now, NULL) || now.unknown)
        return __LINE__;
    if (now.resident_bytes != (now.in_memory ? 300000 : 0))
        return __LINE__;
    if (hr_storage_preread(&path, 1, &now, NULL) || now.resident_bytes != 300000)
        return __LINE__;
    return 0;
}

static void mappings_agree(void **state)
{
    char *path = files_make("mincore", 4, 300000);
    in_child(without_cachestat, path);
    unlink(path);
    free(path);
}

/* An overlay's files have their pages in the layer below, where cachestat does not see them. Runs
 * in a mount namespace of the child. */
static int on_overlay(const char *root)
{
    char options[1000], path[600];
    const char *one = path;
    struct hr_storage_residency now = {.size = sizeof now};
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return 0; /* not permitted here */
    snprintf(options, sizeof options, "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", root,
             root, root);
    snprintf(path, sizeof path, "%s/merged", root);
    if (mount("overlay", path, "overlay", 0, options))
        return 0;
    snprintf(path, sizeof path, "%s/merged/file", root);
    if (hr_storage_preread(&one, 1, &now, NULL) || now.resident_bytes != 200000)
        return __LINE__;
    if (strcmp(now.filesystem, "overlay") || now.unknown)
        return __LINE__;
    if (hr_storage_drop(&one, 1, &now, NULL) || now.resident_bytes)
        return __LINE__;
    return 0;
}

static void overlays_are_looked_through(void **state)
{
    if (geteuid() || in_memory())
        skip();
    static const char *const names[] = {"lower", "upper", "work", "merged"};
    char *root = files_path("overlay"), path[600];
    assert_int_equal(mkdir(root, 0755), 0);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", root, names[i]);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    char *lower = files_make("overlay/lower/file", 6, 200000);
    /* dirty pages below are not written through an overlay */
    call(hr_storage_drop, (const char *const *)&lower, 1);
    free(lower);
    in_child(on_overlay, root);
    snprintf(path, sizeof path, "rm -rf '%s'", root);
    assert_int_equal(system(path), 0);
    free(root);
}

/* Drops 1,000 files of usual size; the time is only printed. */
static void many_files(void **state)
{
    enum { FILES = 1000, BYTES = 20000 };
    static char *paths[FILES];
    char name[32];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "many %d", i);
        paths[i] = files_make(name, (unsigned)i, BYTES);
    }
    const char *const *all = (const char *const *)paths;
    call(hr_storage_drop, all, FILES);
    struct hr_storage_residency now = call(hr_storage_preread, all, FILES);
    assert_int_equal(now.resident_bytes, (uint64_t)FILES * BYTES);
    now = call(hr_storage_drop, all, FILES);
    assert_int_equal(now.files, FILES);
    assert_int_equal(now.resident_bytes, now.in_memory ? now.bytes : 0);
    call(hr_storage_check, all, FILES);
    for (int i = 0; i < FILES; i++) {
        unlink(paths[i]);
        free(paths[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_dropped_read),
        cmocka_unit_test(mapped_pages_stay_and_are_counted),
        cmocka_unit_test(what_is_no_file_is_counted),
        cmocka_unit_test(long_paths_fit),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(no_memory_is_reported),
        cmocka_unit_test(tmpfs_is_memory),
        cmocka_unit_test(others_files),
        cmocka_unit_test(mappings_agree),
        cmocka_unit_test(overlays_are_looked_through),
        cmocka_unit_test(many_files),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
