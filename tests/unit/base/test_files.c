/*
 * Reading whole files and parts of them; writing files that become visible either complete or not
 * at all.
 */
#include "../test.h"

#include "base/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static int set_up(void **state)
{
    strcpy(folder, "/tmp/headrace-output-XXXXXX");
    return !mkdtemp(folder);
}

static const char *in_folder(const char *name)
{
    static char path[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static int tear_down(void **state)
{
    unlink(in_folder("a"));
    unlink(in_folder("link"));
    unlink(in_folder("pipe"));
    return rmdir(folder);
}

static void assert_text(const char *path, const char *want)
{
    char text[64] = {0};
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    assert_int_equal(n, strlen(want));
    assert_string_equal(text, want);
}

static int entries(void)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void test_read(void **state)
{
    char text[8];
    assert_int_equal(hr__write_file(in_folder("a"), "0123456789", 10, NULL), 0);
    assert_int_equal(hr__read_text(in_folder("a"), text, sizeof text), 7);
    assert_string_equal(text, "0123456"); /* as many bytes as fit */
    assert_true(hr__read_text("/proc/self/cmdline", text, sizeof text) > 0);
    assert_int_equal(hr__read_text(in_folder("none"), text, sizeof text), -ENOENT);
    assert_string_equal(text, "");
    assert_int_equal(hr__read_text(folder, text, sizeof text), -EISDIR);
    assert_string_equal(text, "");

    int fd = open(in_folder("a"), O_RDONLY);
    assert_int_equal(hr__read_at(fd, text, 4, 3), 4);
    assert_memory_equal(text, "3456", 4);
    assert_int_equal(hr__read_at(fd, text, 4, 8), 2);
    assert_memory_equal(text, "89", 2);
    assert_int_equal(hr__read_at(fd, text, 4, 100), 0);
    assert_int_equal(hr__read_exactly(fd, text, 4, 6), 0);
    assert_memory_equal(text, "6789", 4);
    assert_int_equal(hr__read_exactly(fd, text, 4, 7), -ENODATA);
    close(fd);
    assert_int_equal(hr__read_at(fd, text, 4, 0), -EBADF);
    assert_int_equal(hr__read_exactly(fd, text, 4, 0), -EBADF);
    assert_int_equal(unlink(in_folder("a")), 0);
}

static void test_replace(void **state)
{
    struct hr_error error;
    struct stat st;
    mode_t mask = umask(027);
    assert_int_equal(hr__write_file(in_folder("a"), "one", 3, &error), 0);
    umask(mask);
    assert_text(in_folder("a"), "one");
    assert_int_equal(stat(in_folder("a"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(hr__write_file(in_folder("a"), "second", 6, &error), 0);
    assert_text(in_folder("a"), "second");

    /* The target of a link is replaced, not the link. */
    assert_int_equal(symlink("a", in_folder("link")), 0);
    assert_int_equal(hr__write_file(in_folder("link"), "3", 1, &error), 0);
    assert_text(in_folder("a"), "3");
    assert_int_equal(lstat(in_folder("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(entries(), 2);
}

/* The permissions and the link of the old file are not kept. */
static void test_replace_plainly(void **state)
{
    struct stat st;
    assert_int_equal(hr__replace_file(in_folder("link"), "private", 7, 0600), 0);
    assert_text(in_folder("link"), "private");
    assert_text(in_folder("a"), "3");
    assert_int_equal(lstat(in_folder("link"), &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(hr__replace_file(in_folder("no/such"), "x", 1, 0600), -ENOENT);
    assert_int_equal(hr__replace_file(folder, "x", 1, 0600), -EISDIR);
    assert_int_equal(entries(), 2);
    /* A name without a folder is in the current directory. */
    int kept = open(".", O_RDONLY | O_DIRECTORY);
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(hr__replace_file("link", "again", 5, 0600), 0);
    assert_int_equal(fchdir(kept), 0);
    close(kept);
    assert_text(in_folder("link"), "again");
    assert_int_equal(entries(), 2);
}

static void test_refused(void **state)
{
    struct hr_error error;
    assert_int_equal(hr__write_file(in_folder("no/such"), "x", 1, &error), -ENOENT);
    assert_non_null(strstr(error.message, "no/such"));
    assert_non_null(strstr(error.message, "create its directory"));
    assert_int_equal(hr__write_file(folder, "x", 1, &error), -EISDIR);
    assert_int_equal(hr__write_file("/dev/full", "x", 1, &error), -ENOSPC);
    assert_int_equal(hr__write_file("/dev/null", "x", 1, &error), 0);
    struct stat st;
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(entries(), 2);
}

/* Standard output and pipes are written directly. */
static void test_streams(void **state)
{
    struct hr_error error;
    char text[16] = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    printf("before ");
    int r = hr__write_file("-", "after", 5, &error);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    close(ends[1]);
    assert_int_equal(r, 0);
    assert_int_equal(read(ends[0], text, sizeof text), 12);
    close(ends[0]);
    assert_string_equal(text, "before after");

    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    int fd = open(in_folder("pipe"), O_RDWR);
    assert_int_equal(hr__write_file(in_folder("pipe"), "piped", 5, &error), 0);
    assert_int_equal(read(fd, text, sizeof text), 5);
    assert_memory_equal(text, "piped", 5);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_replace),
        cmocka_unit_test(test_replace_plainly),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
