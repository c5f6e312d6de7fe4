/*
 * Held files stay in memory when they are dropped, and can be evicted once they are released; as
 * much is held as the limits allow, and the rest is read. If the build folder itself is in memory,
 * eviction cannot be tested.
 */
#include "../test.h"

#include "base/memory.h"
#include "files.h"
#include "refuse.h"

#include <headrace/storage.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define PAGE  ((uint64_t)sysconf(_SC_PAGESIZE))
#define FILES 6
#define LOTS  UINT64_MAX

/* Sanitizers make mappings of their own, and make mlock do nothing. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static const size_t sizes[FILES] = {0, 1, 300000, 20000, 3 << 20, 4096};

struct files {
    char *paths[FILES];
    uint64_t bytes;
    int in_memory;
};

static const char *const *all(const struct files *f)
{
    return (const char *const *)f->paths;
}

static uint64_t drop(const char *const *paths, size_t count)
{
    struct hr_storage_residency now = {.size = sizeof now};
    struct hr_error error = {0};
    if (hr_storage_drop(paths, count, &now, &error))
        fail_msg("%s", error.message);
    return now.resident_bytes;
}

static uint64_t resident(const char *const *paths, size_t count)
{
    struct hr_storage_residency now = {.size = sizeof now};
    struct hr_error error = {0};
    if (hr_storage_check(paths, count, &now, &error))
        fail_msg("%s", error.message);
    return now.resident_bytes;
}

static void make_files(struct files *f)
{
    char name[32];
    *f = (struct files){.bytes = 0};
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "file %d", i);
        f->paths[i] = files_make(name, (unsigned)i, sizes[i]);
        f->bytes += sizes[i];
    }
    f->in_memory = drop(all(f), FILES) != 0;
}

static void remove_files(struct files *f)
{
    for (int i = 0; i < FILES; i++) {
        unlink(f->paths[i]);
        free(f->paths[i]);
    }
    assert_int_equal(hr__allocated(HR__TAG_STORAGE), 0);
}

static struct hr_storage_held look(const struct hr_storage_hold *hold)
{
    struct hr_storage_held held = {.size = sizeof held};
    struct hr_error error = {0};
    if (hr_storage_hold_look(hold, &held, &error))
        fail_msg("%s", error.message);
    assert_true(held.locked_bytes <= held.held_bytes && held.held_bytes <= held.bytes);
    return held;
}

static struct hr_storage_held take(const char *const *paths, size_t count, uint64_t most,
                                   struct hr_storage_hold **hold)
{
    struct hr_error error = {0};
    if (hr_storage_hold(paths, count, most, hold, &error))
        fail_msg("%s", error.message);
    assert_non_null(*hold);
    return look(*hold);
}

static void held_files_stay(void **state)
{
    struct files f;
    struct hr_storage_hold *hold = NULL;
    make_files(&f);
    int open_before = files_open_count();
    struct hr_storage_held held = take(all(&f), FILES, LOTS, &hold);
    assert_int_equal(files_open_count(), open_before);
    assert_int_equal(held.files, FILES);
    assert_int_equal(held.bytes, f.bytes);
    assert_int_equal(held.held_bytes, f.bytes);
    assert_int_equal(resident(all(&f), FILES), f.bytes);
    for (int i = 0; i < FILES; i++) {
        int fd = open(f.paths[i], O_RDONLY | O_CLOEXEC);
        assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
        close(fd);
    }
    assert_int_equal(resident(all(&f), FILES), f.bytes);
    assert_int_equal(drop(all(&f), FILES), f.bytes);
    hr_storage_release(&hold);
    assert_null(hold);
    hr_storage_release(&hold);
    assert_int_equal(drop(all(&f), FILES), f.in_memory ? f.bytes : 0);
    remove_files(&f);
}

static void files_are_added(void **state)
{
    struct files f;
    struct hr_storage_hold *hold = NULL;
    struct hr_error error = {0};
    const char *twice[] = {NULL, NULL}, *wrong[] = {"/", NULL};
    make_files(&f);
    twice[0] = twice[1] = f.paths[2];
    assert_int_equal(take(NULL, 0, LOTS, &hold).files, 0);
    assert_int_equal(take(twice, 2, LOTS, &hold).held_bytes, 2 * sizes[2]);
    assert_int_equal(take(all(&f), FILES, LOTS, &hold).held_bytes, 2 * sizes[2] + f.bytes);
    assert_string_equal(look(hold).problem[0] ? "a problem" : "", "");
    /* A failure leaves the hold unchanged. */
    struct hr_storage_hold *same = hold;
    assert_int_equal(hr_storage_hold(wrong, 2, LOTS, &hold, &error), -EINVAL);
    const char *many[8 * FILES]; /* so that the list must grow */
    for (int i = 0; i < 8 * FILES; i++)
        many[i] = f.paths[i % FILES];
    for (int i = 1; i <= 3; i++) {
        uint64_t before = hr__allocated(HR__TAG_STORAGE);
        hr__alloc_fail_at((uint64_t)i, 0);
        int r = hr_storage_hold(many, 8 * FILES, LOTS, &hold, &error);
        hr__alloc_fail_at(0, 0);
        assert_int_equal(r, -ENOMEM);
        assert_true(error.message[0] != 0 && hr__allocated(HR__TAG_STORAGE) >= before);
    }
    assert_ptr_equal(hold, same);
    assert_int_equal(look(hold).held_bytes, 2 * sizes[2] + f.bytes);
    assert_int_equal(drop(all(&f), FILES), f.bytes);
    hr_storage_release(&hold);
    for (int i = 1; i <= 4; i++) {
        hr__alloc_fail_at((uint64_t)i, 0);
        assert_int_equal(hr_storage_hold(all(&f), FILES, LOTS, &hold, &error), -ENOMEM);
        hr__alloc_fail_at(0, 0);
        assert_null(hold);
    }
    assert_int_equal(drop(all(&f), FILES), f.in_memory ? f.bytes : 0);
    remove_files(&f);
}

/* Files beyond the limit are read, and can be dropped. */
static void no_more_than_asked(void **state)
{
    struct files f;
    struct hr_storage_hold *hold = NULL;
    make_files(&f);
    uint64_t whole = (sizes[2] + PAGE - 1) / PAGE * PAGE;
    struct hr_storage_held held = take(all(&f), FILES, PAGE + whole, &hold);
    assert_int_equal(held.bytes, f.bytes);
    assert_int_equal(held.held_bytes, sizes[1] + sizes[2]);
    assert_non_null(strstr(held.problem, "file 3: more than is to be held"));
    assert_int_equal(resident(all(&f), FILES), f.bytes);
    assert_int_equal(drop(all(&f), FILES), f.in_memory ? f.bytes : held.held_bytes);
    hr_storage_release(&hold);
    held = take(all(&f), FILES, 0, &hold);
    assert_int_equal(held.held_bytes, 0);
    assert_int_equal(resident(all(&f), FILES), f.bytes);
    hr_storage_release(&hold);
    remove_files(&f);
}

static void no_more_files_than_may_be_mapped(void **state)
{
    struct files f;
    struct hr_storage_hold *hold = NULL;
    unsigned long most = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    if (!file || fscanf(file, "%lu", &most) != 1 || most > 200000) {
        if (file)
            fclose(file);
        skip();
    }
    fclose(file);
    make_files(&f);
    size_t count = most / 2 + 10;
    const char **many = calloc(count, sizeof *many);
    for (size_t i = 0; i < count; i++)
        many[i] = f.paths[1];
    struct hr_storage_held held = take(many, count, LOTS, &hold);
    assert_int_equal(held.files, count);
    assert_int_equal(held.held_bytes, most / 2);
    assert_non_null(strstr(held.problem, "vm.max_map_count"));
    hr_storage_release(&hold);
    free(many);
    remove_files(&f);
}

static void what_is_no_file_is_left_out(void **state)
{
    struct files f;
    struct hr_storage_hold *hold = NULL;
    make_files(&f);
    const char *paths[] = {f.paths[2], "/nowhere\n", "/", "/dev/zero", f.paths[3]};
    struct hr_storage_held held = take(paths, 5, LOTS, &hold);
    assert_int_equal(held.files, 2);
    assert_int_equal(held.held_bytes, sizes[2] + sizes[3]);
    assert_string_equal(held.problem, "/nowhere\\x0A: No such file or directory");
    hr_storage_release(&hold);
    remove_files(&f);
}

/* ---- limits, in a child that lives under them ---- */

static void in_child(int (*body)(const struct files *f))
{
    struct files f;
    make_files(&f);
    pid_t child = fork();
    if (!child) {
        alarm(60);
        int line = body(&f);
        if (line)
            fprintf(stderr, "line %d failed\n", line);
        _exit(line != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    remove_files(&f);
}

/* Becomes a user who may not lock more than `bytes` but may still read the files. */
static int become_limited(rlim_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    if (setrlimit(RLIMIT_MEMLOCK, &limit))
        return -1;
    return geteuid() ? 0 : setgid(65533) || setuid(65533);
}

static int nothing_may_be_locked(const struct files *f)
{
    struct hr_storage_hold *hold = NULL;
    struct hr_storage_held held = {.size = sizeof held};
    struct hr_error error;
    if (become_limited(0) || hr_storage_hold(all(f), FILES, LOTS, &hold, &error) ||
        hr_storage_hold_look(hold, &held, &error))
        return __LINE__;
    if (held.held_bytes != f->bytes || held.locked_bytes || !strstr(held.problem, "(ulimit -l)"))
        return __LINE__;
    struct hr_storage_residency now = {.size = sizeof now};
    if (hr_storage_drop(all(f), FILES, &now, &error))
        return __LINE__;
    if (!now.unknown && now.resident_bytes != f->bytes)
        return __LINE__;
    hr_storage_release(&hold);
    return 0;
}

/* Files of 300,000 and 20,000 bytes fit into half of 700,000; the large one does not. */
static int half_is_locked(const struct files *f)
{
    struct hr_storage_hold *hold = NULL;
    struct hr_storage_held held = {.size = sizeof held};
    struct hr_error error;
    if (become_limited(700000) || hr_storage_hold(all(f), FILES, LOTS, &hold, &error) ||
        hr_storage_hold_look(hold, &held, &error))
        return __LINE__;
    if (held.held_bytes != f->bytes ||
        held.locked_bytes != sizes[1] + sizes[2] + sizes[3] + sizes[5] ||
        !strstr(held.problem, "file 4: is not locked"))
        return __LINE__;
    /* The other half is still there. */
    void *other = mmap(NULL, 300000, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (other == MAP_FAILED || mlock(other, 300000))
        return __LINE__;
    hr_storage_release(&hold);
    return 0;
}

static int locking_is_refused(const struct files *f)
{
    struct hr_storage_hold *hold = NULL;
    struct hr_storage_held held = {.size = sizeof held};
    struct hr_error error;
    if (refuse(SYS_mlock, EPERM) || hr_storage_hold(all(f), FILES, LOTS, &hold, &error) ||
        hr_storage_hold_look(hold, &held, &error))
        return __LINE__;
    if (held.held_bytes != f->bytes || held.locked_bytes || !strstr(held.problem, "lock"))
        return __LINE__;
    hr_storage_release(&hold);
    return 0;
}

static int mapping_is_refused(const struct files *f)
{
    struct hr_storage_hold *hold = NULL;
    struct hr_storage_held held = {.size = sizeof held};
    struct hr_storage_residency now = {.size = sizeof now};
    struct hr_error error;
    /* Above the present use, plus the buffer that files are read through. */
    struct rlimit limit = {0, 0};
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%ld", &pages) != 1)
        return __LINE__;
    fclose(file);
    limit.rlim_cur = limit.rlim_max = (rlim_t)pages * PAGE + (2 << 20);
    if (setrlimit(RLIMIT_AS, &limit) || hr_storage_hold(all(f), FILES, LOTS, &hold, &error) ||
        hr_storage_hold_look(hold, &held, &error))
        return __LINE__;
    if (held.held_bytes != f->bytes - sizes[4] || !strstr(held.problem, "file 4: "))
        return __LINE__;
    if (hr_storage_check(all(f), FILES, &now, &error) || now.resident_bytes != f->bytes)
        return __LINE__;
    hr_storage_release(&hold);
    return 0;
}

static void limits_are_kept(void **state)
{
    in_child(nothing_may_be_locked);
    in_child(half_is_locked);
    if (!SANITIZED) {
        in_child(locking_is_refused);
        in_child(mapping_is_refused);
    }
}

/* A child that lives on does not hold its parent's files. */
static void children_hold_nothing(void **state)
{
    struct files f;
    struct hr_storage_hold *hold = NULL;
    int ends[2];
    make_files(&f);
    take(all(&f), FILES, LOTS, &hold);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (!child) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) != 0);
    }
    close(ends[0]);
    hr_storage_release(&hold);
    uint64_t left = drop(all(&f), FILES);
    close(ends[1]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(left, f.in_memory ? f.bytes : 0);
    remove_files(&f);
}

static void versions_of_what_is_held(void **state)
{
    struct files f;
    struct hr_storage_hold *hold = NULL;
    struct hr_storage_held none = {.size = 0};
    struct hr_error error = {0};
    uint64_t small[2] = {sizeof small, 7};
    make_files(&f);
    take(all(&f), FILES, LOTS, &hold);
    assert_int_equal(hr_storage_hold_look(hold, &none, &error), -EINVAL);
    assert_int_equal(hr_storage_hold_look(hold, (struct hr_storage_held *)(void *)small, &error),
                     0);
    assert_int_equal(small[1], FILES);
    hr_storage_release(&hold);
    remove_files(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_files_stay),
        cmocka_unit_test(files_are_added),
        cmocka_unit_test(no_more_than_asked),
        cmocka_unit_test(no_more_files_than_may_be_mapped),
        cmocka_unit_test(what_is_no_file_is_left_out),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(children_hold_nothing),
        cmocka_unit_test(versions_of_what_is_held),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
