/* Threads of the library block all signals except the faults that they cause themselves. */
#include "../test.h"

#include "base/thread.h"

static void *look_at_mask(void *arg)
{
    pthread_sigmask(SIG_SETMASK, NULL, arg);
    return NULL;
}

static void blocks_all_but_faults(void **state)
{
    pthread_t thread;
    sigset_t of_thread, before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(hr__thread_create(&thread, look_at_mask, &of_thread), 0);
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    const int blocked[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM, SIGPIPE, SIGRTMIN};
    const int open[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof blocked / sizeof *blocked; i++) {
        assert_true(sigismember(&of_thread, blocked[i]));
        assert_int_equal(sigismember(&after, blocked[i]), sigismember(&before, blocked[i]));
    }
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        assert_false(sigismember(&of_thread, open[i]));
}

static void blocking_is_undone(void **state)
{
    sigset_t original, before, now;
    pthread_sigmask(SIG_SETMASK, NULL, &original);
    before = hr__signals_block();
    pthread_sigmask(SIG_SETMASK, &before, &now);
    assert_true(sigismember(&now, SIGINT));
    assert_false(sigismember(&now, SIGBUS));
    for (int number = 1; number < SIGRTMIN; number++)
        assert_int_equal(sigismember(&before, number), sigismember(&original, number));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_all_but_faults),
        cmocka_unit_test(blocking_is_undone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
