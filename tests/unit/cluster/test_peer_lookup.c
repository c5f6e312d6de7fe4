/*
 * Name lookups: numeric addresses need no thread. Other lookups return within their time limit;
 * after that the search continues in the background, and its answer serves the next call.
 */
#include "../test.h"

#include "cluster/peer_lookup.h"

#include "base/clock.h"
#include "base/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <time.h>

#define MS UINT64_C(1000000)

static int look(struct hr__peer_lookup *lookup, const char *name, uint64_t ms,
                struct addrinfo **list)
{
    const char *reason = NULL;
    atomic_int stop = 0;
    int r = hr__peer_lookup(lookup, name, 11211, hr__now_ns() + ms * MS, &stop, list, &reason);
    assert_true(!r == (*list != NULL));
    assert_true((r == -EHOSTUNREACH) == (reason != NULL));
    return r;
}

static void test_digits(void **state)
{
    struct hr__peer_lookup lookup = {NULL};
    struct addrinfo *list;
    /* Needs no time, and leaves nothing behind. */
    assert_int_equal(look(&lookup, "127.0.0.1", 0, &list), 0);
    assert_int_equal(list->ai_family, AF_INET);
    assert_int_equal(((struct sockaddr_in *)(void *)list->ai_addr)->sin_port, htons(11211));
    freeaddrinfo(list);
    assert_int_equal(look(&lookup, "fd00::1", 0, &list), 0);
    assert_int_equal(list->ai_family, AF_INET6);
    freeaddrinfo(list);
    assert_null(lookup.pending);
}

static void test_names(void **state)
{
    struct hr__peer_lookup lookup = {NULL};
    struct addrinfo *list;
    assert_int_equal(look(&lookup, "localhost", 30000, &list), 0);
    freeaddrinfo(list);
    int r = look(&lookup, "no-such-host.invalid", 30000, &list);
    assert_int_equal(r, -EHOSTUNREACH);
    assert_null(lookup.pending);
}

static void test_time(void **state)
{
    struct hr__peer_lookup lookup = {NULL};
    struct addrinfo *list;
    const struct timespec pause = {0, 5 * MS};
    int r = look(&lookup, "localhost", 0, &list);
    while (r == -ETIMEDOUT) {
        assert_non_null(lookup.pending);
        nanosleep(&pause, NULL);
        r = look(&lookup, "localhost", 0, &list);
    }
    assert_int_equal(r, 0);
    freeaddrinfo(list);
}

static void test_stop(void **state)
{
    struct hr__peer_lookup lookup = {NULL};
    struct addrinfo *list;
    const char *reason = NULL;
    atomic_int stop = 1;
    int r = hr__peer_lookup(&lookup, "localhost", 11211, hr__now_ns() + 30000 * MS, &stop, &list,
                            &reason);
    assert_true(r == -ECANCELED || !r);
    if (!r)
        freeaddrinfo(list);
    hr__peer_lookup_clear(&lookup);
    assert_null(lookup.pending);
    hr__peer_lookup_clear(&lookup);
}

/* The thread ends soon after its lookup. */
static int nothing_left(void **state)
{
    const struct timespec pause = {0, 5 * MS};
    while (hr__allocated(HR__TAG_CACHE))
        nanosleep(&pause, NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_digits, nothing_left),
        cmocka_unit_test_teardown(test_names, nothing_left),
        cmocka_unit_test_teardown(test_time, nothing_left),
        cmocka_unit_test_teardown(test_stop, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
