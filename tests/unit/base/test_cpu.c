/* The instruction set can only be lowered. */
#include "../test.h"

#include "base/cpu.h"

#include <stdlib.h>

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
        cmocka_unit_test(isa_is_lowered_by_environment),
    };
    return cmocka_run_group_tests_name("base-cpu", tests, NULL, NULL);
}
