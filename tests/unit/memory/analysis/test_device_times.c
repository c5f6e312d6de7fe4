/*
 * Analysis of an accelerator's record: intervals are those between kernels if their times are
 * known; otherwise no swap is advised.
 */
#include "../../test.h"

#include <headrace/memory.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB        (UINT64_C(1) << 20)
#define MS         UINT64_C(1000000)
#define ITERATIONS 8

static char path[64];
static struct hr_memory_recorder *recorder;

static int set_up(void **state)
{
    strcpy(path, "/tmp/headrace-device-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || close(fd) || hr_memory_recorder_create(&recorder, path, NULL, NULL);
}

static int tear_down(void **state)
{
    return unlink(path);
}

static void put(uint64_t ns, uint8_t kind, uint64_t address, uint64_t bytes, const char *what)
{
    struct hr_memory_event event = {
        .time_ns = ns,
        .address = address,
        .bytes = bytes,
        .what = what ? hr_memory_name(recorder, what) : 0,
        .kind = kind,
        .phase = HR_MEMORY_FORWARD,
        .device = kind == HR_MEMORY_MARK ? 0 : 1,
        .flags = kind == HR_MEMORY_READ || kind == HR_MEMORY_WRITE ? HR_MEMORY_HOST_TIME : 0,
    };
    hr_memory_record(recorder, &event);
}

/* Records an access by the host's clock, and the device's time for it unless `ran_ns` is 0. */
static void put_access(uint64_t ns, uint8_t kind, uint64_t address, uint32_t call, uint64_t ran_ns)
{
    put(ns, kind, address, hr_memory_access(call, 0), kind == HR_MEMORY_READ ? "mm" : "relu");
    struct hr_memory_ran ran = {ran_ns, ran_ns + MS, call, 1};
    if (ran_ns)
        hr_memory_record_ran(recorder, &ran, 1);
}

/* Iterations in which the host issues all work within microseconds, and the device runs it for a
 * second. One block is written first and read last; others are made and freed in between. */
static void record(int with_times)
{
    uint32_t call = 1;
    for (uint64_t i = 0; i < ITERATIONS; i++) {
        uint64_t host = 1 + i * 1000 * MS, device = host + 100 * MS;
        put(host, HR_MEMORY_MARK, 0, i, "iteration");
        put(host + 10, HR_MEMORY_ALLOC, 1 * MIB, 64 * MIB, NULL);
        put_access(host + 20, HR_MEMORY_WRITE, 1 * MIB, call++, with_times ? device : 0);
        /* Another call, so that the first one does not run at the peak. */
        put(host + 3000, HR_MEMORY_ALLOC, 500 * MIB, MIB, NULL);
        put_access(host + 4000, HR_MEMORY_WRITE, 500 * MIB, call++,
                   with_times ? device + 50 * MS : 0);
        put(host + 4500, HR_MEMORY_FREE, 500 * MIB, 0, NULL);
        put(host + 5000, HR_MEMORY_ALLOC, 1000 * MIB, 256 * MIB, NULL);
        put_access(host + 6000, HR_MEMORY_WRITE, 1000 * MIB, call++,
                   with_times ? device + 100 * MS : 0);
        put_access(host + 7000, HR_MEMORY_READ, 1000 * MIB, call++,
                   with_times ? device + 110 * MS : 0);
        put(host + 8000, HR_MEMORY_FREE, 1000 * MIB, 0, NULL);
        put_access(host + 9000, HR_MEMORY_READ, 1 * MIB, call++,
                   with_times ? device + 600 * MS : 0);
        put(host + 10000, HR_MEMORY_FREE, 1 * MIB, 0, NULL);
    }
    hr_memory_recorder_destroy(&recorder);
}

static json_t *analyse(void)
{
    struct hr_memory *memory;
    struct hr_error error = {0};
    if (hr_memory_open(&memory, path, NULL, &error))
        fail_msg("%s", error.message);
    json_t *found = json_loads(hr_memory_json(memory), 0, NULL);
    hr_memory_destroy(&memory);
    assert_non_null(found);
    return found;
}

static size_t swaps(const json_t *found)
{
    size_t i, count = 0;
    json_t *one;
    json_array_foreach(json_object_get(found, "advice"), i, one) count +=
        !strcmp(json_string_value(json_object_get(one, "kind")), "swap");
    return count;
}

static double quantile(const json_t *found, const char *name)
{
    const json_t *intervals = json_object_get(found, "intervals");
    return json_number_value(json_object_get(json_object_get(intervals, "quantiles_ns"), name));
}

static const char *clock_of(const json_t *found)
{
    return json_string_value(json_object_get(json_object_get(found, "run"), "clock"));
}

static void test_known(void **state)
{
    record(1);
    json_t *found = analyse();
    assert_string_equal(clock_of(found), "device");
    /* From the end of one kernel to the beginning of the next: 9 ms and 599 ms, in bins of a
     * logarithmic scale. */
    double low = quantile(found, "p10"), high = quantile(found, "p90");
    if (low < 8.5 * MS || low > 9.5 * MS || high < 550.0 * MS || high > 650.0 * MS)
        fail_msg("intervals of %.2f and %.2f ms", low / MS, high / MS);
    /* 64 MiB can leave and return in 11.2 ms, at 12 GB/s each way. */
    assert_true(swaps(found) > 0);
    json_decref(found);
}

static void test_not_known(void **state)
{
    record(0);
    json_t *found = analyse();
    assert_string_equal(clock_of(found), "host");
    assert_int_equal(swaps(found), 0);
    assert_true(quantile(found, "p90") < 10000 * 1.1);
    json_decref(found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_not_known, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
