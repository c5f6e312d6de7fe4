/*
 * The CUDA allocator without a GPU, with or without a CUDA runtime: returns no memory and does not
 * crash.
 */
#include "../../test.h"

#include <headrace/tap.h>

#include <unistd.h>

static void test_none(void **unused)
{
    (void)unused;
    void *block = hr_tap_cuda_malloc(100, 0, NULL);
    if (access("/dev/nvidiactl", F_OK))
        assert_null(block);
    hr_tap_cuda_free(block, 100, 0, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
