/* Kinds of file systems, from magic numbers and from real lists of mounts. */
#include "../test.h"

#include "storage/filesystem.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const char mounts[] =
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n"
    "23 22 0:21 / /dev/shm rw - tmpfs tmpfs rw,size=24684084k\n"
    "47 22 0:41 / /data\\040of\\040mine rw,relatime - overlay overlay rw,lowerdir=/a - xfs\n"
    "48 22 0:52 /home /mnt ro shared:7 master:3 propagate_from:2 - fuse.sshfs me@host:/ rw\n"
    "49 22 0:53 / /net rw - nfs4 server:/export rw,vers=4.2\n"
    "50 22 0:54 / /over rw - ext3 /dev/vdb rw\n"
    "51 50 0:54 / /over rw - ext4 /dev/vdb rw\n";

static void check_mount(const char *text, size_t length, unsigned dev_minor, const char *expected)
{
    char name[32] = "";
    FILE *file = fmemopen((void *)text, length, "r");
    assert_non_null(file);
    int found = hr__filesystem_from_mounts(file, makedev(0, dev_minor), name, sizeof name);
    fclose(file);
    assert_int_equal(found, *expected != 0);
    assert_string_equal(name, expected);
}

static void mounts_give_the_name(void **state)
{
    check_mount(mounts, sizeof mounts - 1, 21, "tmpfs");
    check_mount(mounts, sizeof mounts - 1, 41, "overlay");
    check_mount(mounts, sizeof mounts - 1, 52, "fuse.sshfs");
    check_mount(mounts, sizeof mounts - 1, 53, "nfs4");
    check_mount(mounts, sizeof mounts - 1, 54, "ext4"); /* the last mount is on top */
    check_mount(mounts, sizeof mounts - 1, 99, "");
    char name[4] = "";
    FILE *file = fmemopen((void *)mounts, sizeof mounts - 1, "r");
    assert_int_equal(hr__filesystem_from_mounts(file, makedev(254, 0), name, sizeof name), 1);
    assert_string_equal(name, "ext"); /* truncated to the buffer */
    fclose(file);
}

/* Every prefix of the list, and a line that does not fit and contains something that looks like
 * another line. */
static void strange_mounts_do_no_harm(void **state)
{
    for (size_t length = 1; length < sizeof mounts; length++) {
        char name[32] = "";
        FILE *file = fmemopen((void *)mounts, length, "r");
        hr__filesystem_from_mounts(file, makedev(0, 53), name, sizeof name);
        assert_true(strlen(name) < 5);
        fclose(file);
    }
    static char text[40000];
    int n = snprintf(text, sizeof text, "60 22 0:61 / /long rw - overlay overlay rw,lowerdir=");
    memset(text + n, 'x', 30000);
    for (int at = n; at < 30000; at += 64)
        memcpy(text + at, "70 22 0:62 / /false rw - zfs pool rw", 36);
    snprintf(text + n + 30000, 100, "\n61 22 0:63 / /next rw - xfs /dev/x rw\n");
    check_mount(text, strlen(text), 61, "overlay");
    check_mount(text, strlen(text), 62, "");
    check_mount(text, strlen(text), 63, "xfs");
}

static void magic_gives_the_kind(void **state)
{
    static const struct {
        unsigned magic;
        struct hr__filesystem expected;
    } cases[] = {
        {0xEF53, {.name = "ext4"}},
        {0x58465342, {.name = "xfs"}},
        {0x01021994, {.name = "tmpfs", .in_memory = true}},
        {0x858458F6, {.name = "ramfs", .in_memory = true}},
        {0x6969, {.name = "nfs", .network = true}},
        {0xFF534D42, {.name = "cifs", .network = true}},
        {0xFE534D42, {.name = "smb2", .network = true}},
        {0x00C36400, {.name = "ceph", .network = true}},
        {0x0BD00BD0, {.name = "lustre", .network = true}},
        {0x47504653, {.name = "gpfs", .network = true}},
        {0x01021997, {.name = "9p", .network = true}},
        {0x65735546, {.name = "fuse", .network = true, .layered = true}},
        {0x794C7630, {.name = "overlay", .layered = true}},
        {0x2FC12FC1, {.name = "zfs", .own_cache = true}},
        {0x12345678, {.name = ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__filesystem now;
        const struct hr__filesystem *want = &cases[i].expected;
        hr__filesystem_of_magic(&now, (long)(int)cases[i].magic); /* negative in 32 bits */
        assert_string_equal(now.name, want->name);
        assert_int_equal(now.in_memory, want->in_memory);
        assert_int_equal(now.network, want->network);
        assert_int_equal(now.layered, want->layered);
        assert_int_equal(now.own_cache, want->own_cache);
    }
}

static void real_files_are_known(void **state)
{
    struct hr__filesystem now;
    struct stat status;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &status), 0);
    hr__filesystem_look(&now, fd, status.st_dev);
    close(fd);
    assert_string_equal(now.name, "proc");
    assert_true(now.in_memory && !now.network);
    hr__filesystem_look(&now, -1, 0);
    assert_string_equal(now.name, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mounts_give_the_name),
        cmocka_unit_test(strange_mounts_do_no_harm),
        cmocka_unit_test(magic_gives_the_kind),
        cmocka_unit_test(real_files_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
