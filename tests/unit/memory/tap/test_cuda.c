/*
 * The CUDA allocator on a stand-in runtime: the function, device and stream of each call, the
 * reported events, and refused allocations.
 */
#include "../../test.h"

#include "memory/tap/tap.h"
#include "standin_cudart.h"

#include <dlfcn.h>
#include <string.h>

struct reported {
    int allocated, freed, failed, device;
    uint64_t address, bytes;
};

static struct reported reported;
static struct standin *cuda;

static void on_allocated(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    struct reported *t = arg;
    t->allocated++;
    t->address = address;
    t->bytes = bytes;
    t->device = device;
}

static void on_freed(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    struct reported *t = arg;
    /* Reported before the runtime gets the memory back, because another allocation may then get
     * it. */
    assert_int_equal(cuda->frees + cuda->async_frees, t->freed);
    t->freed++;
    t->address = address;
    t->bytes = bytes;
    t->device = device;
}

static void on_failed(void *arg, uint64_t bytes, uint8_t device)
{
    struct reported *t = arg;
    t->failed++;
    t->bytes = bytes;
    t->device = device;
}

static int start(void **unused)
{
    (void)unused;
    /* It is loaded already, and takes precedence over one that would have to be loaded. */
    void *library = dlopen("libcudart.so.12", RTLD_NOW);
    assert_non_null(library);
    standin_fn *find = (standin_fn *)dlsym(library, "standin_cudart");
    assert_non_null(find);
    cuda = find();
    hr_tap_cuda_free(NULL, 0, 0, NULL);
    void *block = hr_tap_cuda_malloc(1, 0, NULL);
    assert_non_null(block);
    assert_int_equal(cuda->live, 1);
    hr_tap_cuda_free(block, 1, 0, NULL);
    assert_int_equal(cuda->live, 0);
    return 0;
}

static int begin(void **unused)
{
    (void)unused;
    memset(&reported, 0, sizeof reported);
    memset(cuda, 0, offsetof(struct standin, thresholds));
    return hr_tap_begin(&(struct hr_tap){.version = HR_TAP_VERSION,
                                         .arg = &reported,
                                         .allocated = on_allocated,
                                         .freed = on_freed,
                                         .failed = on_failed});
}

static int end(void **unused)
{
    (void)unused;
    hr_tap_end();
    assert_int_equal(cuda->live, 0);
    assert_int_equal(cuda->wrong, 0);
    return 0;
}

static void test_pool(void **unused)
{
    (void)unused;
    int stream, other;
    uint8_t device = 0;
    cuda->device = 0;
    void *block = hr_tap_cuda_malloc(1000, 1, &stream);
    assert_non_null(block);
    assert_int_equal(cuda->async_mallocs, 1);
    assert_int_equal(cuda->mallocs, 0);
    assert_int_equal(cuda->bytes, 1000);
    assert_ptr_equal(cuda->stream, &stream);
    assert_int_equal(cuda->last_device, 1);
    assert_int_equal(cuda->device, 0);
    assert_int_equal(reported.allocated, 1);
    assert_int_equal(reported.bytes, 1000);
    assert_int_equal(reported.device, 2);
    assert_int_equal(reported.address, (uintptr_t)block);
    assert_int_equal(hr_tap_bytes((uintptr_t)block, &device), 1000);
    assert_int_equal(device, 2);
    assert_true(cuda->thresholds[1] == UINT64_MAX);
    hr_tap_cuda_free(block, 1000, 1, &other);
    assert_int_equal(cuda->async_frees, 1);
    assert_ptr_equal(cuda->stream, &other);
    assert_int_equal(cuda->last_device, 1);
    assert_int_equal(cuda->device, 0);
    assert_int_equal(reported.freed, 1);
    assert_int_equal(reported.bytes, 1000);
    assert_int_equal(hr_tap_bytes((uintptr_t)block, &device), 0);
}

/* The thread's device is set only if it differs. */
static void test_same_device(void **unused)
{
    (void)unused;
    cuda->device = 1;
    void *block = hr_tap_cuda_malloc(64, 1, NULL);
    hr_tap_cuda_free(block, 64, 1, NULL);
    assert_int_equal(cuda->set_devices, 0);
    assert_int_equal(reported.allocated + reported.freed, 2);
}

static void test_without_pools(void **unused)
{
    (void)unused;
    void *block = hr_tap_cuda_malloc(4096, STANDIN_DEVICES - 1, NULL);
    assert_non_null(block);
    assert_int_equal(cuda->mallocs, 1);
    hr_tap_cuda_free(block, 4096, STANDIN_DEVICES - 1, NULL);
    assert_int_equal(cuda->frees, 1);
    assert_int_equal(cuda->async_mallocs + cuda->async_frees, 0);
    assert_int_equal(reported.device, STANDIN_DEVICES);
    assert_int_equal(reported.freed, 1);
}

static void test_nothing(void **unused)
{
    (void)unused;
    assert_null(hr_tap_cuda_malloc(0, 0, NULL));
    assert_null(hr_tap_cuda_malloc(-1, 0, NULL));
    hr_tap_cuda_free(NULL, 0, 0, NULL);
    assert_int_equal(cuda->async_mallocs + cuda->async_frees, 0);
    assert_int_equal(reported.allocated + reported.freed + reported.failed, 0);
}

static void test_refused(void **unused)
{
    (void)unused;
    cuda->refuse = 2;
    assert_null(hr_tap_cuda_malloc(1 << 20, 1, NULL));
    assert_int_equal(reported.failed, 1);
    assert_int_equal(reported.bytes, 1 << 20);
    assert_int_equal(reported.device, 2);
    /* A later check for errors of kernels does not find this one. */
    assert_int_equal(cuda->last_error, 0);
    assert_int_equal(cuda->device, 0);
    cuda->refuse = 700; /* cudaErrorIllegalAddress, of an earlier kernel: it stays pending */
    assert_null(hr_tap_cuda_malloc(1 << 20, 1, NULL));
    assert_int_equal(reported.failed, 1);
    assert_int_equal(cuda->last_error, 700);
    cuda->refuse = 0;
    /* No such device. */
    assert_null(hr_tap_cuda_malloc(64, STANDIN_DEVICES, NULL));
    assert_int_equal(reported.allocated, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pool, begin, end),
        cmocka_unit_test_setup_teardown(test_same_device, begin, end),
        cmocka_unit_test_setup_teardown(test_without_pools, begin, end),
        cmocka_unit_test_setup_teardown(test_nothing, begin, end),
        cmocka_unit_test_setup_teardown(test_refused, begin, end),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
