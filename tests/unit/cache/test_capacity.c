/* What a cache may take under given limits, and what refusals say. */
#include "../test.h"

#include "cache/capacity.h"

#include <errno.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

#define HAVE(free, all, can_give, limit, file)                                                     \
    {                                                                                              \
        .files_free = free, .files_total = all, .available = can_give, .group_limit = limit,       \
        .group_file = file                                                                         \
    }

static void test_check(void **state)
{
    const struct {
        struct hr__memory_limits have;
        uint64_t bytes, freed;
        const char *said; /* the message; NULL: there is enough */
    } cases[] = {
        {HAVE(64 * GIB, 64 * GIB, 64 * GIB, 64 * GIB, "x"), 64 * GIB, 0, NULL},
        {HAVE(UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, ""), 64 * GIB, GIB, NULL},
        {HAVE(64 * GIB - 1, 96 * GIB, 99 * GIB, 99 * GIB, ""), 64 * GIB, 0,
         "file system of /dev/shm/x: 63.9 GiB of its 96.0 GiB are free; enlarge it (mount -o "
         "remount,size=65G /dev/shm"},
        {HAVE(60 * GIB, 96 * GIB, 99 * GIB, 99 * GIB, ""), 64 * GIB, 4 * GIB, NULL},
        {HAVE(60 * GIB, 96 * GIB, 60 * GIB, 99 * GIB, ""), 64 * GIB, 4 * GIB, NULL},
        {HAVE(99 * GIB, 99 * GIB, 63 * GIB, 99 * GIB, ""), 64 * GIB, 0,
         "machine has available: 63.0"},
        {HAVE(99 * GIB, 99 * GIB, 63 * GIB, 63 * GIB, "/sys/fs/cgroup/a/memory.max"), 64 * GIB,
         9 * GIB, "/sys/fs/cgroup/a/memory.max says 63.0 GiB; raise that limit (Docker: --memory"},
        {HAVE(64 << 20, 64 << 20, 99 * GIB, 99 * GIB, ""), 65 << 20, 0,
         "64 MiB of its 64 MiB are free; enlarge it (mount -o remount,size=1G"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hr__capacity_wish wish = {.bytes = cases[i].bytes,
                                         .budget = cases[i].bytes,
                                         .freed_bytes = cases[i].freed,
                                         .place = "/dev/shm/x"};
        struct hr_error error = {0};
        int r = hr__capacity_check(&cases[i].have, &wish, &error);
        assert_int_equal(r, cases[i].said ? -ENOSPC : 0);
        assert_int_equal(hr__capacity_check(&cases[i].have, &wish, NULL), r);
        if (r && !strstr(error.message, cases[i].said))
            fail_msg("case %zu: %s", i, error.message);
    }
}

/* What may be allocated now: some memory is left for the job itself. */
static void test_grants(void **state)
{
    const struct hr__memory_limits free = {.files_free = UINT64_MAX,
                                           .available = 20 * GIB,
                                           .total = 24 * GIB,
                                           .group_left = UINT64_MAX};
    struct hr__memory_limits have = free;
    char why[HR__CAPACITY_WHY] = "";
    assert_int_equal(hr__capacity_grants(&have, 20 * GIB - 192 * MIB, why), 1);
    assert_string_equal(why, "");
    assert_int_equal(hr__capacity_grants(&have, 20 * GIB - 192 * MIB + 1, why), 0);
    assert_non_null(strstr(why, "the machine has 20.0 GiB available, of which 192 MiB"));
    have.group_left = 700 * MIB;
    have.left_limit = 800 * MIB;
    strcpy(have.left_file, "/sys/fs/cgroup/a/memory.max");
    assert_int_equal(hr__capacity_grants(&have, 668 * MIB, why), 1);
    assert_int_equal(hr__capacity_grants(&have, 669 * MIB, why), 0);
    assert_non_null(strstr(why, "has 700 MiB left, of which 32 MiB are kept for the job itself; "
                                "raise /sys/fs/cgroup/a/memory.max (Docker"));
    have.files_free = MIB;
    assert_int_equal(hr__capacity_grants(&have, MIB + 1, why), 0);
    assert_non_null(strstr(why, "1024 KiB are free in the file system of shared memory"));
    have = (struct hr__memory_limits){UINT64_MAX, UINT64_MAX, UINT64_MAX, .total = UINT64_MAX,
                                      .group_left = UINT64_MAX};
    assert_int_equal(hr__capacity_grants(&have, UINT64_MAX, why), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_grants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
