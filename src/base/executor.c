/* The serial executor, for callers without threads. */
#include "base/executor.h"

static void run_serial(void *self, size_t n, void (*fn)(void *arg, size_t i), void *arg)
{
    (void)self;
    for (size_t i = 0; i < n; i++)
        fn(arg, i);
}

const struct hr__executor hr__executor_serial = {.threads = 1, .run = run_serial};
