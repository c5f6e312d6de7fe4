/*
 * The guard's view of paths, in this process and without the wrappers of the C library's functions,
 * so that the test can be built with sanitizers.
 */
#include "../test.h"

#include "guard/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static const char *at(const char *name)
{
    static char paths[4][256];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void meant_is(const char *path, const char *meant)
{
    struct hr__guard_path found;
    assert_int_equal(hr__guard_resolve(AT_FDCWD, path, 1, &found), 0);
    assert_string_equal(found.text, meant);
    assert_int_equal(found.length, strlen(meant));
}

static enum hr__guard_kind kind_of(const char *path)
{
    struct hr__guard_path found;
    struct hr__guard_place place;
    assert_int_equal(hr__guard_resolve(AT_FDCWD, path, 0, &found), 0);
    hr__guard_locate(&found, &place);
    return place.kind;
}

static void test_resolve(void **unused)
{
    struct hr__guard_path found;
    char text[2 * PATH_MAX];
    (void)unused;
    meant_is("/", "/");
    meant_is("//..//.", "/");
    meant_is(at("tree/./../tree//a"), at("tree/a"));
    meant_is(at("link/a"), at("tree/a"));
    meant_is(at("link"), at("tree"));
    meant_is(at("tree/none"), at("tree/none"));
    assert_int_equal(hr__guard_resolve(AT_FDCWD, at("none/a"), 1, &found), -ENOENT);
    assert_int_equal(hr__guard_resolve(AT_FDCWD, at("round/a"), 1, &found), -ELOOP);
    memset(text, 'a', sizeof text);
    text[0] = '/';
    text[sizeof text - 1] = '\0';
    assert_int_equal(hr__guard_resolve(AT_FDCWD, text, 1, &found), -ENAMETOOLONG);
    text[PATH_MAX - 1] = '\0';
    assert_int_equal(hr__guard_resolve(AT_FDCWD, text, 0, &found), 0);
    assert_int_equal(hr__guard_resolve(AT_FDCWD, text + 1, 0, &found), -ENAMETOOLONG);
    assert_int_equal(hr__guard_resolve(12345, "a", 1, &found), -EBADF);
}

static void test_unchanged(void **unused)
{
    struct hr__guard_place place;
    struct stat st;
    (void)unused;
    assert_int_equal(stat(at("scratch/state"), &st), 0);
    assert_true(st.st_blocks * 512 >=
                (off_t)sizeof *hr__guard_state); /* so that no later test finds it */
    assert_int_equal(hr__guard_see(AT_FDCWD, at("tree/a"), 1, &place), HR__GUARD_AS_IS);
    assert_int_equal(hr__guard_may_differ(at("tree/../a")), 0);
    assert_int_equal(kind_of(at("tree/a")), HR__GUARD_ORIGINAL);
    assert_int_equal(kind_of(at("tree/none")), HR__GUARD_ABSENT);
}

static void test_changes(void **unused)
{
    struct hr__guard_place place;
    int fd = -1;
    (void)unused;
    assert_int_equal(hr__guard_open(AT_FDCWD, at("link/new"), O_WRONLY | O_CREAT, 0600, &fd), 0);
    close(fd);
    assert_int_equal(kind_of(at("tree/new")), HR__GUARD_SCRATCH);
    assert_int_equal(hr__guard_see(AT_FDCWD, at("tree/new"), 1, &place), 0);
    assert_int_equal(hr__guard_see(AT_FDCWD, at("tree/b"), 1, &place), HR__GUARD_AS_IS);
    struct hr__guard_pair pair = {AT_FDCWD, at("tree/b"), AT_FDCWD, at("c")};
    assert_int_equal(hr__guard_rename(&pair, 0), 0);
    assert_int_equal(kind_of(at("tree/b")), HR__GUARD_ABSENT);
    assert_int_equal(kind_of(at("c")), HR__GUARD_LINKED);
    assert_int_equal(hr__guard_open(AT_FDCWD, at("c"), O_WRONLY, 0, &fd), 0);
    close(fd);
    assert_int_equal(kind_of(at("c")), HR__GUARD_SCRATCH);
    assert_int_equal(hr__guard_remove(AT_FDCWD, at("tree"), 1), -ENOTEMPTY);
    assert_int_equal(hr__guard_remove(AT_FDCWD, at("tree/a"), 0), 0);
    assert_int_equal(hr__guard_remove(AT_FDCWD, at("tree/new"), 0), 0);
    assert_int_equal(hr__guard_remove(AT_FDCWD, at("tree"), 1), 0);
    assert_int_equal(kind_of(at("tree")), HR__GUARD_ABSENT);
    /* The original files are all there. */
    assert_int_equal(access(at("tree/a"), F_OK), 0);
    assert_int_equal(access(at("tree/b"), F_OK), 0);
}

/* In the temporary folder: existing files are guarded; new files are made there and recorded. */
static void test_temporary(void **unused)
{
    struct hr__guard_path path;
    int fd = -1;
    (void)unused;
    assert_int_equal(hr__guard_resolve(AT_FDCWD, at("temp/was/x"), 1, &path), 0);
    assert_int_equal(hr__guard_is_exempt(&path), 0);
    assert_int_equal(hr__guard_resolve(AT_FDCWD, at("temp/wa"), 1, &path), 0);
    assert_int_equal(hr__guard_is_exempt(&path), 1);
    assert_int_equal(hr__guard_open(AT_FDCWD, at("temp/wa"), O_WRONLY | O_CREAT, 0600, &fd), 0);
    close(fd);
    assert_int_equal(unlink(at("temp/wa")), 0);
    FILE *made = fopen(at("scratch/made"), "r");
    char line[300] = "";
    assert_non_null(made);
    assert_non_null(fgets(line, sizeof line, made));
    fclose(made);
    line[strcspn(line, "\n")] = '\0';
    assert_string_equal(line, at("temp/wa"));
}

static void write_text(const char *name, const char *text, size_t bytes)
{
    test_write(at(name), text, bytes);
}

static int set_up(void **unused)
{
    static const char *const folders[] = {"tree",        "temp",         "temp/was",    "scratch",
                                          "scratch/new", "scratch/gone", "scratch/work"};
    char temp[300];
    (void)unused;
    strcpy(folder, "/var/tmp/headrace-guard-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        assert_int_equal(mkdir(at(folders[i]), 0755), 0);
    write_text("tree/a", "a", 1);
    write_text("tree/b", "b", 1);
    write_text("scratch/exempt", "/dev\n", 5);
    int length = snprintf(temp, sizeof temp, "%s%cwas", at("temp"), '\0');
    write_text("scratch/temp", temp, (size_t)length + 1);
    assert_int_equal(symlink("tree", at("link")), 0);
    assert_int_equal(symlink("round", at("round")), 0);
    return !hr__guard_begin(at("scratch"));
}

static int tear_down(void **unused)
{
    char command[128];
    (void)unused;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resolve), cmocka_unit_test(test_unchanged),
        cmocka_unit_test(test_changes), cmocka_unit_test(test_temporary)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
