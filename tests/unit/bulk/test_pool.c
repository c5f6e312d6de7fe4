/* The thread pool: every item is processed once; reuse; many short runs. */
#include "../test.h"

#include "bulk/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

enum { ITEMS = 10000 };

static _Atomic unsigned char seen[ITEMS];

static void mark(void *arg, size_t i)
{
    atomic_fetch_add(&seen[i], 1);
}

static void every_item_once(void **state)
{
    for (int threads = 1; threads <= 9; threads += 4) {
        struct hr__pool *pool;
        assert_int_equal(hr__pool_create(&pool, threads, NULL), 0);
        const struct hr__executor *e = hr__pool_executor(pool);
        assert_int_equal(e->threads, threads);
        static const size_t counts[] = {0, 1, 2, 7, ITEMS, 3};
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            for (size_t i = 0; i < ITEMS; i++)
                atomic_store(&seen[i], 0);
            e->run(e->self, counts[k], mark, NULL);
            for (size_t i = 0; i < ITEMS; i++)
                assert_int_equal(atomic_load(&seen[i]), i < counts[k]);
        }
        hr__pool_destroy(&pool);
        assert_null(pool);
    }
}

static void add(void *arg, size_t i)
{
    atomic_fetch_add((_Atomic size_t *)arg, i);
}

static void many_short_runs(void **state)
{
    struct hr__pool *pool;
    _Atomic size_t sum = 0;
    assert_int_equal(hr__pool_create(&pool, 4, NULL), 0);
    const struct hr__executor *e = hr__pool_executor(pool);
    for (int k = 0; k < 3000; k++)
        e->run(e->self, 5, add, &sum);
    assert_int_equal(sum, 3000 * 10);
    hr__pool_destroy(&pool);
}

struct masks {
    pthread_t caller;
    _Atomic int open; /* workers that do not block SIGINT */
};

static void look_at_mask(void *arg, size_t i)
{
    struct masks *m = arg;
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    if (!pthread_equal(m->caller, pthread_self()) && !sigismember(&now, SIGINT))
        atomic_fetch_add(&m->open, 1);
}

static void workers_take_no_signals(void **state)
{
    struct hr__pool *pool;
    struct masks m = {.caller = pthread_self()};
    sigset_t now;
    assert_int_equal(hr__pool_create(&pool, 4, NULL), 0);
    const struct hr__executor *e = hr__pool_executor(pool);
    e->run(e->self, 1000, look_at_mask, &m);
    assert_int_equal(m.open, 0);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    assert_false(sigismember(&now, SIGINT));
    hr__pool_destroy(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_once),
        cmocka_unit_test(many_short_runs),
        cmocka_unit_test(workers_take_no_signals),
    };
    return cmocka_run_group_tests_name("bulk-pool", tests, NULL, NULL);
}
