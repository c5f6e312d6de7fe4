/*
 * Shared memory fills up while a cache grows, on an in-memory file system that is really full:
 * admitted items stay hits, others are refused and logged once, the cache works without staging,
 * and no process gets a SIGBUS. Needs root, to mount the file system.
 */
#include "segment_fixture.h"

#include "cache/directory.h"

#include <headrace/cache.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB   (UINT64_C(1) << 20)
#define ITEMS 1500

static char place[64], filler[96], logged[4096];

static void log_line(void *arg, enum hr_log_level level, const char *message)
{
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", message);
}

static int set_up(void **state)
{
    snprintf(place, sizeof place, "/tmp/headrace-full-XXXXXX");
    if (!mkdtemp(place))
        return -1;
    snprintf(filler, sizeof filler, "%s/filler", place);
    setenv("HEADRACE_SHM", place, 1);
    hr_log_set(log_line, NULL);
    return 0;
}

static int tear_down(void **state)
{
    umount(place);
    return rmdir(place);
}

static struct hr__store *open_store(void)
{
    struct hr__cache_spec spec;
    struct hr_error error;
    struct hr__segment *segment;
    struct hr__store *store;
    if (hr__cache_spec_parse(&spec, "shm:full?size=6MiB", &error))
        fail_msg("%s", error.message);
    struct hr__segment_wish wish = {
        .spec = &spec, .run = "r1", .dataset = "numbers", .items = ITEMS, .identity = {1}};
    if (hr__directory_open(&segment, &wish, &error) || hr__store_create(&store, segment, &error))
        fail_msg("%s", error.message);
    return store;
}

/* Leaves `bytes` of the file system free. */
static void fill(uint64_t bytes)
{
    struct statvfs files;
    int fd = open(filler, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fstatvfs(fd, &files), 0);
    uint64_t there = (uint64_t)files.f_bavail * files.f_frsize;
    assert_true(there > bytes);
    assert_int_equal(posix_fallocate(fd, 0, (off_t)(there - bytes)), 0);
    close(fd);
}

static unsigned count_of(const char *text)
{
    unsigned count = 0;
    for (const char *at = logged; (at = strstr(at, text)); at++)
        count++;
    return count;
}

static void test_memory_ends(void **state)
{
    if (mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,mode=0700")) {
        print_message("no file system can be mounted: %s\n", strerror(errno));
        skip();
    }
    struct hr__store *store = open_store();
    fill(2 * MIB);
    uint64_t admitted = 0;
    for (uint64_t i = 0; i < ITEMS; i++) {
        int r = fixture_offer(store, i, i % 5 == 0);
        admitted += (uint64_t)r;
        assert_int_equal(fixture_find(store, i), r);
    }
    /* About two of the six MiB were available. */
    assert_true(admitted > 250 && admitted < ITEMS / 2);
    assert_int_equal(count_of("stays at"), 1);
    fixture_audit(hr__store_segment(store));
    for (uint64_t i = 0, found = 0; i < ITEMS; i++) {
        found += (uint64_t)fixture_find(store, i);
        if (i == ITEMS - 1)
            assert_int_equal(found, admitted);
    }

    /* With room again, the next user continues. */
    assert_int_equal(unlink(filler), 0);
    struct hr__store *next = open_store();
    uint64_t more = 0;
    for (uint64_t i = 0; i < ITEMS; i++)
        more += (uint64_t)fixture_offer(next, i, 0);
    assert_true(more > 100);
    fixture_audit(hr__store_segment(next));
    fixture_close(&next);
    fixture_close(&store);
    assert_int_equal(hr_cache_drop("full", NULL, 0, NULL, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_ends)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
