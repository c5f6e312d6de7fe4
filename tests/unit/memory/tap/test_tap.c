/*
 * Reporting: a listener gets each allocation and free once, in an order in which no address is live
 * twice; it gets the blocks that were live before; it gets nothing after the end. A forked child
 * starts without blocks.
 */
#include "../../test.h"

#include "memory/tap/tap.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ADDRESS(i) ((void *)(uintptr_t)(0x10000 + (uintptr_t)(i)*64))

/* A listener: counts events, and tracks live blocks by them. */
struct heard {
    atomic_int allocated, freed, failed, present, wrong, over;
    atomic_int is_over;        /* nothing may be reported any more */
    atomic_ullong lives[4096]; /* bytes, by address */
};

static struct heard heard;

static atomic_ullong *life(uint64_t address)
{
    return &heard.lives[(address - 0x10000) / 64];
}

static void on_allocated(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    (void)device;
    heard.over += atomic_load(&heard.is_over);
    heard.wrong += arg != &heard || atomic_exchange(life(address), bytes) != 0;
    heard.allocated++;
}

static void on_present(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    (void)device;
    heard.wrong += arg != &heard || atomic_exchange(life(address), bytes) != 0;
    heard.present++;
}

static void on_freed(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    (void)device;
    heard.over += atomic_load(&heard.is_over);
    heard.wrong += arg != &heard || atomic_exchange(life(address), 0) != bytes;
    heard.freed++;
}

static void on_failed(void *arg, uint64_t bytes, uint8_t device)
{
    heard.wrong += arg != &heard || bytes != 12345 || device != 2;
    heard.failed++;
}

static const struct hr_tap listener = {.version = HR_TAP_VERSION,
                                       .arg = &heard,
                                       .allocated = on_allocated,
                                       .freed = on_freed,
                                       .failed = on_failed,
                                       .present = on_present};

static int start(void **unused)
{
    (void)unused;
    memset(&heard, 0, sizeof heard);
    return 0;
}

static void test_life(void **unused)
{
    (void)unused;
    uint8_t device = 9;
    struct hr__tap_entry was;
    assert_int_equal(hr_tap_bytes((uintptr_t)ADDRESS(1), &device), 0);
    hr__tap_allocated(ADDRESS(1), 100, 255);
    hr__tap_allocated(ADDRESS(2), 200, 0);
    assert_int_equal(hr_tap_bytes((uintptr_t)ADDRESS(1), &device), 100);
    assert_int_equal(device, 255);
    assert_int_equal(hr_tap_begin(&listener), 0);
    assert_int_equal(hr_tap_begin(&listener), -EBUSY);
    assert_int_equal(heard.present, 2);
    hr__tap_allocated(ADDRESS(3), 300, 1);
    hr__tap_refused(12345, 2);
    assert_int_equal(hr__tap_freed(ADDRESS(1), &was), 1);
    assert_int_equal(was.bytes, 100);
    assert_int_equal(hr__tap_freed(ADDRESS(1), &was), 0);
    assert_int_equal(hr__tap_freed(ADDRESS(3), NULL), 1);
    /* Its free was not seen: the old block ends first. */
    hr__tap_allocated(ADDRESS(2), 201, 0);
    assert_int_equal(heard.freed, 3);
    assert_int_equal(hr_tap_bytes((uintptr_t)ADDRESS(2), NULL), 201);
    hr_tap_end();
    hr_tap_end();
    assert_int_equal(hr__tap_freed(ADDRESS(2), NULL), 1);
    assert_int_equal(heard.allocated, 2);
    assert_int_equal(heard.freed, 3);
    assert_int_equal(heard.failed, 1);
    assert_int_equal(heard.wrong, 0);
}

static void test_again(void **unused)
{
    (void)unused;
    struct hr_tap plain = listener, other = listener;
    hr__tap_allocated(ADDRESS(1), 100, 0);
    for (int i = 1; i <= 3; i++) {
        atomic_store(life((uintptr_t)ADDRESS(1)), 0);
        assert_int_equal(hr_tap_begin(&listener), 0);
        assert_int_equal(heard.present, i);
        hr_tap_end();
    }
    /* Without `present`, ends of earlier blocks are reported all the same. */
    plain.present = NULL;
    assert_int_equal(hr_tap_begin(&plain), 0);
    hr__tap_freed(ADDRESS(1), NULL);
    assert_int_equal(heard.freed, 1);
    hr_tap_end();
    other.version++;
    assert_int_equal(hr_tap_begin(&other), -ENOTSUP);
    assert_int_equal(heard.wrong, 0);
}

/* Allocations of the listener itself are not reported. */
static void nested(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    on_allocated(arg, address, bytes, device);
    hr__tap_allocated(ADDRESS(7), 1, 0);
    assert_int_equal(hr__tap_freed(ADDRESS(7), NULL), 0);
    hr__tap_refused(1, 0);
}

static void test_nested(void **unused)
{
    (void)unused;
    struct hr_tap tap = listener;
    tap.allocated = nested;
    assert_int_equal(hr_tap_begin(&tap), 0);
    hr__tap_allocated(ADDRESS(1), 100, 0);
    assert_int_equal(heard.allocated, 1);
    assert_int_equal(hr_tap_bytes((uintptr_t)ADDRESS(7), NULL), 0);
    hr__tap_freed(ADDRESS(1), NULL);
    hr_tap_end();
    assert_int_equal(heard.wrong + heard.failed, 0);
}

static atomic_int stop_working;

/* Allocates and frees addresses of its own, until it must stop. */
static void *work(void *arg)
{
    uintptr_t first = (uintptr_t)arg * 1000;
    while (!atomic_load(&stop_working)) {
        for (uintptr_t i = 0; i < 100; i++)
            hr__tap_allocated(ADDRESS(first + i), i + 1, 0);
        for (uintptr_t i = 0; i < 100; i++)
            hr__tap_freed(ADDRESS(first + i), NULL);
    }
    return NULL;
}

static void test_threads(void **unused)
{
    (void)unused;
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    atomic_store(&stop_working, 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    /* Twenty times, and until the threads got a core meanwhile. */
    for (int round = 0; round < 20 || !heard.allocated || !heard.freed; round++) {
        memset(heard.lives, 0, sizeof heard.lives);
        atomic_store(&heard.is_over, 0);
        assert_int_equal(hr_tap_begin(&listener), 0);
        usleep(1000);
        hr_tap_end();
        atomic_store(&heard.is_over, 1);
    }
    atomic_store(&stop_working, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_true(heard.allocated > 0 && heard.freed > 0);
    assert_int_equal(heard.over, 0);
    assert_int_equal(heard.wrong, 0);
}

static int child(void)
{
    /* Without a listener, earlier blocks are unknown. */
    hr__tap_allocated(ADDRESS(5), 5, 0);
    if (heard.allocated || hr_tap_bytes((uintptr_t)ADDRESS(4), NULL) ||
        hr__tap_freed(ADDRESS(4), NULL) || hr_tap_bytes((uintptr_t)ADDRESS(5), NULL) != 5)
        return 1;
    hr_tap_end();
    if (hr_tap_begin(&listener) || heard.present != 1)
        return 2;
    hr__tap_freed(ADDRESS(5), NULL);
    hr_tap_end();
    return heard.freed == 1 ? 0 : 3;
}

static void test_fork(void **unused)
{
    (void)unused;
    int status = 0;
    hr__tap_allocated(ADDRESS(4), 4, 0);
    assert_int_equal(hr_tap_begin(&listener), 0);
    heard.present = 0;
    pid_t pid = fork();
    if (!pid)
        _exit(child());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(hr_tap_bytes((uintptr_t)ADDRESS(4), NULL), 4);
    hr__tap_freed(ADDRESS(4), NULL);
    assert_int_equal(heard.freed, 1);
    hr_tap_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_life, start),    cmocka_unit_test_setup(test_again, start),
        cmocka_unit_test_setup(test_nested, start),  cmocka_unit_test_setup(test_fork, start),
        cmocka_unit_test_setup(test_threads, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
