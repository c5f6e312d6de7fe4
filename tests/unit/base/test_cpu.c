/* Core counts follow affinity; the instruction set can only be lowered. */
#include "../test.h"

#include "base/cpu.h"

#include <sched.h>
#include <stdlib.h>

static void affinity_limits_cores(void **state)
{
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_in_range(hr__cpu_count(), 1, CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(hr__cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void isa_is_lowered_by_environment(void **state)
{
    setenv("HEADRACE_ISA", "portable", 1);
    assert_int_equal(hr__isa(), HR__ISA_PORTABLE);
    setenv("HEADRACE_ISA", "avx2", 1);
    assert_int_equal(hr__isa(), HR__ISA_PORTABLE); /* read once */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(affinity_limits_cores),
        cmocka_unit_test(isa_is_lowered_by_environment),
    };
    return cmocka_run_group_tests_name("base-cpu", tests, NULL, NULL);
}
