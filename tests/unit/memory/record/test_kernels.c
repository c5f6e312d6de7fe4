/*
 * The device's work is matched to the calls that launched it, for any order of records and any
 * division into buffers. Uses a stand-in for CUPTI that makes real records.
 */
#include "../../test.h"

#include "base/clock.h"
#include "base/memory.h"
#include "memory/record/record.h"
#include "memory/record/recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMCPY = 1, MEMSET = 2, KERNEL = 10, MEMCPY2 = 22, GRAPH = 51 };

/* The functions of the stand-in. */
static struct {
    uint32_t (*api)(void);
    void (*work)(int kind, uint32_t correlation, uint32_t device, uint64_t begin, uint64_t end);
    void (*later)(uint32_t correlation, uint64_t begin, uint64_t end);
    void (*turn)(void);
    void (*hold)(int is_holding, size_t limit);
    void (*set)(int other, int enable_result, int refused_kind, uint32_t version);
    void (*clock)(int64_t ahead_ns, double rate);
    void (*state)(int *subscribers, int *enabled, int *pushed, int *waits);
    int (*push)(int kind, uint64_t id);
    int (*pop)(int kind, uint64_t *last);
} standin;

static char path[64];
static struct hr_memory_recorder *recorder;
static struct hr_memory_kernels *kernels;
static uint64_t start_ns;

static void find(void *library, const char *name, void *place)
{
    void *address = dlsym(library, name);
    assert_non_null(address);
    memcpy(place, &address, sizeof address);
}

/* Selects the library that is found. */
static void use(const char *variable)
{
    const char *library = getenv(variable);
    assert_non_null(library);
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fail_msg("%s", dlerror());
    find(handle, "standin_api", &standin.api);
    find(handle, "standin_work", &standin.work);
    find(handle, "standin_later", &standin.later);
    find(handle, "standin_turn", &standin.turn);
    find(handle, "standin_hold", &standin.hold);
    find(handle, "standin_set", &standin.set);
    find(handle, "standin_clock", &standin.clock);
    find(handle, "standin_state", &standin.state);
    find(handle, "cuptiActivityPushExternalCorrelationId", &standin.push);
    find(handle, "cuptiActivityPopExternalCorrelationId", &standin.pop);
    standin.hold(0, 0);
    standin.set(0, 0, 0, 28);
    setenv("HEADRACE_CUPTI_LIBRARY", library, 1);
    setenv("HEADRACE_CUDA_LIBRARY", library, 1);
}

static void begin_recording(void)
{
    struct hr_error error = {0};
    if (hr_memory_recorder_create(&recorder, path, NULL, &error))
        fail_msg("%s", error.message);
    start_ns = hr__recorder_start_ns(recorder);
}

static void begin_following(void)
{
    struct hr_error error = {0};
    if (hr_memory_kernels_open(&kernels, recorder, &error))
        fail_msg("%s", error.message);
}

/* Ends the recording and returns the record. */
static struct hr__record *end_recording(void)
{
    struct hr__record *r;
    struct hr_error error = {0};
    int subscribers, enabled, pushed, waits;
    hr_memory_kernels_close(&kernels);
    assert_null(kernels);
    hr_memory_recorder_destroy(&recorder);
    standin.state(&subscribers, &enabled, &pushed, &waits);
    assert_int_equal(subscribers, 0);
    assert_int_equal(enabled, 0);
    assert_int_equal(pushed, 0);
    if (hr__record_open(&r, path, &error))
        fail_msg("%s", error.message);
    assert_int_equal(hr__record_damage(r)->extents, 0);
    return r;
}

static int set_up(void **state)
{
    strcpy(path, "/tmp/headrace-kernels-XXXXXX");
    int fd = mkstemp(path);
    use("HEADRACE_TEST_CUPTI");
    begin_recording();
    return fd < 0 || close(fd);
}

static int tear_down(void **state)
{
    assert_int_equal(hr__allocated(HR__TAG_MEMORY), 0);
    return unlink(path);
}

static void assert_ran(const struct hr__record *r, uint32_t call, uint32_t device, uint64_t begin,
                       uint64_t end)
{
    const struct hr_memory_ran *ran = hr__record_ran(r, device, call);
    if (!ran)
        fail_msg("call %u has no time on device %u", call, device);
    assert_int_equal(ran->begin_ns, begin);
    assert_int_equal(ran->end_ns, end);
}

static uint64_t ran_count(const struct hr__record *r)
{
    struct hr__record_about about;
    hr__record_about(r, &about);
    return about.ran;
}

/* Makes an operator's call that launches one kernel or copy. */
static void call_one(uint32_t call, int kind, uint32_t device, uint64_t begin, uint64_t end)
{
    hr_memory_kernels_call(kernels, call);
    uint32_t correlation = standin.api();
    hr_memory_kernels_called(kernels);
    standin.work(kind, correlation, device, start_ns + begin, start_ns + end);
}

static void test_kinds(void **state)
{
    begin_following();
    call_one(1, KERNEL, 0, 100, 200);
    call_one(2, MEMCPY, 0, 210, 250);
    call_one(3, MEMSET, 1, 300, 301);
    call_one(4, MEMCPY2, 2, 400, 480);
    call_one(5, GRAPH, 0, 500, 900);
    /* Several kernels and copies of one call, one of them without times, on two devices. */
    hr_memory_kernels_call(kernels, 6);
    uint32_t a = standin.api(), b = standin.api(), c = standin.api();
    hr_memory_kernels_called(kernels);
    standin.work(KERNEL, b, 0, start_ns + 1200, start_ns + 1300);
    standin.work(KERNEL, a, 0, start_ns + 1000, start_ns + 1100);
    standin.work(KERNEL, c, 0, 0, 0);
    standin.work(KERNEL, c, 3, start_ns + 1010, start_ns + 1020);
    /* Work of no call, and of another tool's. */
    uint64_t last;
    standin.work(KERNEL, standin.api(), 0, start_ns + 2000, start_ns + 2001);
    standin.push(3, 7);
    standin.work(KERNEL, standin.api(), 0, start_ns + 2010, start_ns + 2011);
    assert_int_equal(standin.pop(3, &last), 0);
    /* A call that launches nothing. */
    hr_memory_kernels_call(kernels, 8);
    standin.api();
    hr_memory_kernels_called(kernels);
    struct hr__record *r = end_recording();
    assert_ran(r, 1, 1, 100, 200);
    assert_ran(r, 2, 1, 210, 250);
    assert_ran(r, 3, 2, 300, 301);
    assert_ran(r, 4, 3, 400, 480);
    assert_ran(r, 5, 1, 500, 900);
    assert_ran(r, 6, 1, 1000, 1300);
    assert_ran(r, 6, 4, 1010, 1020);
    assert_int_equal(ran_count(r), 7);
    assert_non_null(strstr(hr__record_fact(r, "note CUDA graphs"), "graphs"));
    assert_null(hr__record_fact(r, "note accelerator records"));
    hr__record_close(&r);
}

/* Work belongs to the inner call, and to the outer ones, too. */
static void test_nested(void **state)
{
    begin_following();
    hr_memory_kernels_call(kernels, 10);
    standin.work(KERNEL, standin.api(), 0, start_ns + 100, start_ns + 110);
    hr_memory_kernels_call(kernels, 11);
    call_one(12, KERNEL, 0, 200, 210);
    standin.work(KERNEL, standin.api(), 0, start_ns + 300, start_ns + 310);
    hr_memory_kernels_called(kernels);
    standin.work(KERNEL, standin.api(), 0, start_ns + 150, start_ns + 160);
    hr_memory_kernels_called(kernels);
    call_one(13, KERNEL, 0, 400, 410);
    struct hr__record *r = end_recording();
    assert_ran(r, 10, 1, 100, 310);
    assert_ran(r, 11, 1, 200, 310);
    assert_ran(r, 12, 1, 200, 210);
    assert_ran(r, 13, 1, 400, 410);
    hr__record_close(&r);
}

/* Thousands of calls, in small buffers that come from the last to the first: an API call becomes
 * known long after its work, or before. */
static void test_order(void **state)
{
    enum { CALLS = 6000 };
    begin_following();
    standin.hold(1, 16 << 10);
    for (uint32_t call = 1; call <= CALLS; call++) {
        hr_memory_kernels_call(kernels, call);
        uint32_t first = standin.api(), second = standin.api();
        hr_memory_kernels_called(kernels);
        uint64_t at = start_ns + call * 1000;
        standin.work(KERNEL, second, 0, at + 500, at + 600);
        standin.work(KERNEL, first, 0, at + 100, at + 200);
        if (call % 200 == 0)
            standin.turn();
    }
    standin.turn();
    struct hr__record *r = end_recording();
    assert_int_equal(ran_count(r), CALLS);
    for (uint32_t call = 1; call <= CALLS; call++)
        assert_ran(r, call, 1, call * 1000 + 100, call * 1000 + 600);
    hr__record_close(&r);
}

#define THREADS 4
#define EACH    1500

static void *work(void *arg)
{
    uint32_t number = *(uint32_t *)arg;
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t call = 1 + i * THREADS + number;
        hr_memory_kernels_call(kernels, call);
        uint32_t correlation = standin.api();
        hr_memory_kernels_call(kernels, call + THREADS * EACH);
        uint32_t inner = standin.api();
        hr_memory_kernels_called(kernels);
        hr_memory_kernels_called(kernels);
        uint64_t at = start_ns + call * 100;
        standin.work(KERNEL, inner, number, at + 50, at + 60);
        standin.work(KERNEL, correlation, number, at + 10, at + 20);
    }
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t ids[THREADS];
    uint32_t numbers[THREADS];
    begin_following();
    standin.hold(0, 8 << 10);
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&ids[i], NULL, work, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    struct hr__record *r = end_recording();
    assert_int_equal(ran_count(r), 2 * THREADS * EACH);
    for (uint32_t call = 1; call <= THREADS * EACH; call++) {
        uint32_t device = 1 + (call - 1) % THREADS;
        assert_ran(r, call, device, call * 100 + 10, call * 100 + 60);
        assert_ran(r, call + THREADS * EACH, device, call * 100 + 50, call * 100 + 60);
    }
    hr__record_close(&r);
}

/* At the end, the devices' remaining work is waited for. */
static void test_waits(void **state)
{
    int subscribers, enabled, pushed, before, after;
    begin_following();
    standin.state(&subscribers, &enabled, &pushed, &before);
    assert_int_equal(subscribers, 1);
    assert_int_equal(enabled, 8);
    hr_memory_kernels_call(kernels, 77);
    standin.later(standin.api(), start_ns + 5000, start_ns + 6000);
    hr_memory_kernels_called(kernels);
    struct hr__record *r = end_recording();
    assert_ran(r, 77, 1, 5000, 6000);
    standin.state(&subscribers, &enabled, &pushed, &after);
    assert_int_equal(after, before + 1);
    hr__record_close(&r);
}

/* CUPTI gets a limited number of buffers; dropped records are reported. */
static void test_dropped(void **state)
{
    begin_following();
    standin.hold(1, 512);
    for (uint32_t call = 1; call <= 400; call++)
        call_one(call, KERNEL, 0, call * 10, call * 10 + 5);
    struct hr__record *r = end_recording();
    uint64_t ran = ran_count(r);
    assert_true(ran >= 64 && ran < 400);
    for (uint32_t call = 1; call < 64; call++)
        assert_ran(r, call, 1, call * 10, call * 10 + 5);
    const char *note = hr__record_fact(r, "note accelerator records");
    assert_non_null(note);
    assert_non_null(strstr(note, "dropped"));
    hr__record_close(&r);
}

/* A CUPTI without a function to set its clock: its times are converted. */
static void test_clock(void **state)
{
    use("HEADRACE_TEST_CUPTI_OLD");
    standin.clock(INT64_C(1700000000) * 1000000000, 1.00001);
    begin_following();
    uint64_t times[3];
    for (uint32_t i = 0; i < 3; i++) {
        times[i] = hr__now_ns() - start_ns;
        call_one(1 + i, KERNEL, 0, times[i], times[i] + 1000);
        usleep(20000);
        standin.turn();
    }
    struct hr__record *r = end_recording();
    for (uint32_t i = 0; i < 3; i++) {
        const struct hr_memory_ran *ran = hr__record_ran(r, 1, 1 + i);
        assert_non_null(ran);
        int64_t off = (int64_t)(ran->begin_ns - times[i]);
        /* A wrong conversion is off by hours: 1.7e18 ns at a rate that differs by 1e-5. */
        if (off < -1000000000 || off > 1000000000)
            fail_msg("the clock of call %u is off by %lld ns", i, (long long)off);
        assert_in_range(ran->end_ns - ran->begin_ns, 990, 1010);
    }
    hr__record_close(&r);
}

static void refuse(const char *word)
{
    struct hr_error error = {0};
    int subscribers, enabled, pushed, waits;
    assert_int_equal(hr_memory_kernels_open(&kernels, recorder, &error), -ENOTSUP);
    assert_null(kernels);
    if (!strstr(error.message, word))
        fail_msg("%s", error.message);
    assert_non_null(strstr(error.message, "accelerators' times are"));
    standin.state(&subscribers, &enabled, &pushed, &waits);
    assert_int_equal(subscribers, 0);
    assert_int_equal(enabled, 0);
}

static void test_refused(void **state)
{
    struct hr_error error = {0};
    struct hr_memory_kernels *second;
    standin.set(1, 0, 0, 28);
    refuse("another tool");
    standin.set(0, 35, KERNEL, 28);
    refuse("NVreg_RestrictProfilingToAdminUsers");
    standin.set(0, 999, 5, 28);
    refuse("CUPTI_ERROR_UNKNOWN");
    standin.set(0, 0, 0, 17);
    refuse("CUDA 11.8");
    const char *library = getenv("HEADRACE_TEST_CUPTI");
    setenv("HEADRACE_CUPTI_LIBRARY", "/nowhere/libcupti.so", 1);
    refuse("no CUPTI");
    setenv("HEADRACE_CUPTI_LIBRARY", library, 1);
    standin.set(0, 0, 0, 28);
    hr__alloc_fail_at(1, 0);
    assert_int_equal(hr_memory_kernels_open(&kernels, recorder, &error), -ENOMEM);
    hr__alloc_fail_at(0, 0);
    /* If graphs cannot be traced, everything else is. */
    standin.set(0, 27, GRAPH, 28);
    begin_following();
    assert_int_equal(hr_memory_kernels_open(&second, recorder, &error), -ENOTSUP);
    assert_null(second);
    assert_non_null(strstr(error.message, "another recording"));
    call_one(1, KERNEL, 0, 10, 20);
    struct hr__record *r = end_recording();
    assert_ran(r, 1, 1, 10, 20);
    hr__record_close(&r);
    hr_memory_kernels_close(&kernels);
    hr_memory_kernels_close(NULL);
}

/* Work launched in an earlier recording does not belong to the next one. */
static void test_again(void **state)
{
    uint64_t last;
    begin_following();
    hr_memory_kernels_call(kernels, 5);
    uint32_t early = standin.api();
    hr_memory_kernels_called(kernels);
    /* An id that the first recording left behind. */
    standin.push(5, UINT64_C(1) << 32 | 9);
    hr_memory_kernels_close(&kernels);
    begin_following();
    uint32_t stale = standin.api();
    assert_int_equal(standin.pop(5, &last), 0);
    standin.work(KERNEL, early, 0, start_ns + 50, start_ns + 60);
    standin.work(KERNEL, stale, 0, start_ns + 50, start_ns + 60);
    call_one(6, KERNEL, 0, 100, 200);
    struct hr__record *r = end_recording();
    assert_int_equal(ran_count(r), 1);
    assert_ran(r, 6, 1, 100, 200);
    hr__record_close(&r);
}

/* A forked child does not call CUPTI, and closes only its copy. */
static void test_fork(void **state)
{
    begin_following();
    pid_t child = fork();
    if (!child) {
        int subscribers, enabled, pushed, waits;
        hr_memory_kernels_call(kernels, 1);
        standin.state(&subscribers, &enabled, &pushed, &waits);
        hr_memory_kernels_called(kernels);
        hr_memory_kernels_close(&kernels);
        int is_right = !pushed && enabled == 8;
        standin.state(&subscribers, &enabled, &pushed, &waits);
        _exit(is_right && enabled == 8 && subscribers == 1 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    call_one(2, KERNEL, 0, 10, 20);
    struct hr__record *r = end_recording();
    assert_ran(r, 2, 1, 10, 20);
    hr__record_close(&r);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_kinds), TEST(test_nested),  TEST(test_order), TEST(test_threads),
        TEST(test_waits), TEST(test_dropped), TEST(test_clock), TEST(test_refused),
        TEST(test_again), TEST(test_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
