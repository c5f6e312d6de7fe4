/*
 * Runs a program that changes files (guarded.c) with the guard preloaded: the program sees its
 * changes, and its folder is unchanged afterwards. Without the guard it sees the same. Arguments:
 * the library and the program.
 */
#include "../test.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *library, *program;
static char folder[64], state[16384];

static void write_file(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    test_write_text(path, text);
}

static void make_folder(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0755), 0);
}

static int set_up(void **unused)
{
    char path[256];
    (void)unused;
    strcpy(folder, "/var/tmp/headrace-guard-XXXXXX");
    assert_non_null(mkdtemp(folder));
    static const char *const folders[] = {"base",        "base/tree",    "base/tree/sub", "scratch",
                                          "scratch/new", "scratch/gone", "scratch/work"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        make_folder(folders[i]);
    write_file("scratch/exempt", "/dev\n/proc\n/sys\n");
    write_file("base/old", "old-1");
    write_file("base/other", "old-2");
    write_file("base/kept", "old-3");
    write_file("base/tree/a", "a");
    write_file("base/tree/sub/b", "b");
    snprintf(path, sizeof path, "%s/base/.first", folder);
    assert_int_equal(symlink("old", path), 0);
    snprintf(path, sizeof path, "%s/base/.b", folder);
    assert_int_equal(symlink("tree/sub/b", path), 0);
    snprintf(path, sizeof path, "%s/base/.pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof path, "%s/base/link", folder);
    return symlink("tree", path);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static int tear_down(void **unused)
{
    (void)unused;
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Adds the kind and contents of a file to the state. */
static int add_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    char text[64] = "";
    size_t used = strlen(state);
    (void)at;
    int fd = kind == FTW_F && S_ISREG(st->st_mode) ? open(path, O_RDONLY) : -1;
    if (fd >= 0) {
        assert_true(read(fd, text, sizeof text - 1) >= 0);
        close(fd);
    }
    snprintf(state + used, sizeof state - used, "%s %o %ld.%ld %ld.%ld %s\n", path, st->st_mode,
             (long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (long)st->st_ctim.tv_sec,
             st->st_ctim.tv_nsec, text);
    return 0;
}

static void look(char out[sizeof state])
{
    char path[128];
    snprintf(path, sizeof path, "%s/base", folder);
    state[0] = '\0';
    assert_int_equal(nftw(path, add_one, 16, FTW_PHYS), 0);
    memcpy(out, state, sizeof state);
}

static int run(const char *part, int is_guarded)
{
    char path[128];
    int status = -1;
    pid_t pid = fork();
    if (!pid) {
        snprintf(path, sizeof path, "%s/base", folder);
        if (chdir(path))
            _exit(8);
        snprintf(path, sizeof path, "%s/scratch", folder);
        if (is_guarded) {
            setenv("LD_PRELOAD", library, 1);
            setenv("HEADRACE_GUARD", path, 1);
        }
        execl(program, program, part, NULL);
        _exit(9);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void check_part(const char *part)
{
    static char before[sizeof state], after[sizeof state];
    look(before);
    assert_int_equal(run(part, 1), 0);
    look(after);
    assert_string_equal(before, after);
    /* The program's checks must also pass without the guard. */
    assert_int_equal(run(part, 0), 0);
    look(after);
    assert_string_not_equal(before, after);
}

#define PART(name)                                                                                 \
    static void test_##name(void **unused)                                                         \
    {                                                                                              \
        (void)unused;                                                                              \
        check_part(#name);                                                                         \
    }
PART(files)
PART(names)
PART(folders)
PART(threads)
PART(children)

static void test_sockets(void **unused)
{
    (void)unused;
    assert_int_equal(run("sockets", 1), 0);
    assert_int_equal(run("sockets", 0), 0);
}

/* The scratch folder is full: changes fail, and the original files stay unchanged. */
static void test_no_room(void **unused)
{
    static char before[sizeof state], after[sizeof state];
    char path[128];
    (void)unused;
    look(before);
    snprintf(path, sizeof path, "%s/scratch/new", folder);
    assert_int_equal(rmdir(path), 0);
    snprintf(path, sizeof path, "%s/scratch/work", folder);
    assert_int_equal(rmdir(path), 0);
    static const char *const parts[] = {"files", "names", "folders", "threads"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        int status = run(parts[i], 1);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    }
    look(after);
    assert_string_equal(before, after);
}

/* A program that is started after the run has ended does not run unguarded. */
static void test_run_is_over(void **unused)
{
    char path[128], moved[136];
    (void)unused;
    snprintf(path, sizeof path, "%s/scratch", folder);
    snprintf(moved, sizeof moved, "%s-gone", path);
    assert_int_equal(rename(path, moved), 0);
    int status = run("files", 1);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 70);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {TEST(files),   TEST(names),      TEST(folders),
                                       TEST(threads), TEST(children),   TEST(sockets),
                                       TEST(no_room), TEST(run_is_over)};
    if (argc != 3)
        return fprintf(stderr, "usage: test_guard_preload LIBRARY PROGRAM\n"), 2;
    library = realpath(argv[1], NULL);
    program = realpath(argv[2], NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(library);
    free(program);
    return failed;
}
