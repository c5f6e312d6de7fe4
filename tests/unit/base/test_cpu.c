/* The instruction set can only be lowered; whether PDEP is fast follows from the kind of CPU. */
#include "../test.h"

#include "base/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void isa_is_lowered_by_environment(void **state)
{
    setenv("HEADRACE_ISA", "portable", 1);
    assert_int_equal(hr__isa(), HR__ISA_PORTABLE);
    setenv("HEADRACE_ISA", "avx2", 1);
    assert_int_equal(hr__isa(), HR__ISA_PORTABLE); /* read once */
}

#ifdef __x86_64__
/* The value of a line of /proc/cpuinfo; "" where it has none. */
static void read_cpuinfo(const char *key, char value[64])
{
    char line[4096];
    FILE *f = fopen("/proc/cpuinfo", "re");
    *value = 0;
    while (f && !*value && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (colon && !strncmp(line, key, strlen(key)))
            snprintf(value, 64, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    if (f)
        fclose(f);
}

static void pdep_is_slow_before_zen_3(void **state)
{
    char vendor[64], family[64];
    read_cpuinfo("vendor_id", vendor);
    read_cpuinfo("cpu family", family);
    if (!*vendor || !*family)
        skip();
    int amd = !strcmp(vendor, "AuthenticAMD") || !strcmp(vendor, "HygonGenuine");
    assert_int_equal(hr__pdep_is_fast(), !amd || atoi(family) >= 25);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(isa_is_lowered_by_environment),
#ifdef __x86_64__
        cmocka_unit_test(pdep_is_slow_before_zen_3),
#endif
    };
    return cmocka_run_group_tests_name("base-cpu", tests, NULL, NULL);
}
