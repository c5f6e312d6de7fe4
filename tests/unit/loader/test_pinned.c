/*
 * Page-locked batches and asynchronous copies: with a stand-in driver that performs copies late,
 * every copied byte is that of the batch it was copied from, however early the batch was released.
 * The same run without fences shows that the test would detect an error.
 */
#include "fixture.h"

#include "base/memory.h"
#include "loader/ring.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLES 61
#define BATCHES 8

static struct fixture fixture;

static struct {
    void (*start)(void);
    void (*stop)(void);
    void (*copy)(void *to, const void *from, size_t bytes, long delay_ns);
    void (*synchronize)(void);
    void (*set_capturing)(int capturing);
    void (*set_held)(int held);
    void (*counts)(int *recorded, int *events, int *pinned, int *unpinned_in_use,
                   int *contexts_held);
} gpu;

struct counts {
    int recorded, events, pinned, unpinned_in_use, contexts_held;
};

static struct counts counts(void)
{
    struct counts c;
    gpu.counts(&c.recorded, &c.events, &c.pinned, &c.unpinned_in_use, &c.contexts_held);
    return c;
}

static void *symbol(void *library, const char *name)
{
    void *address = dlsym(library, name);
    if (!address)
        fail_msg("no %s in the stand-in", name);
    return address;
}

static int setup(void **state)
{
    const char *path = getenv("HEADRACE_TEST_CUDA");
    assert_non_null(path);
    setenv("HEADRACE_CUDA_LIBRARY", path, 1);
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        fail_msg("%s", dlerror());
    *(void **)&gpu.start = symbol(library, "standin_start");
    *(void **)&gpu.stop = symbol(library, "standin_stop");
    *(void **)&gpu.copy = symbol(library, "standin_copy");
    *(void **)&gpu.synchronize = symbol(library, "standin_synchronize");
    *(void **)&gpu.set_capturing = symbol(library, "standin_set_capturing");
    *(void **)&gpu.set_held = symbol(library, "standin_set_held");
    *(void **)&gpu.counts = symbol(library, "standin_counts");
    gpu.start();
    fixture_make(&fixture, SAMPLES);
    return 0;
}

/* Nothing stays registered with the driver. */
static int teardown(void **state)
{
    gpu.set_capturing(0);
    gpu.synchronize();
    struct counts c = counts();
    assert_int_equal(c.events, 0);
    assert_int_equal(c.pinned, 0);
    assert_int_equal(c.contexts_held, 0);
    assert_int_equal(c.unpinned_in_use, 0);
    gpu.stop();
    fixture_remove(&fixture);
    assert_int_equal(hr__allocated(HR__TAG_SLOT), 0);
    return 0;
}

static struct hr_loader *make_loader(void)
{
    struct hr_loader_options options;
    fixture_options(&options);
    options.pinned = 1;
    return fixture_loader(&fixture, &options);
}

/* "Device" memory and its expected contents. */
struct pinned_device {
    char *memory, *expected;
    size_t bytes; /* of one batch */
};

static void device_make(struct pinned_device *d)
{
    d->bytes = 8 * fixture.spec.bytes;
    d->memory = calloc(BATCHES, d->bytes);
    d->expected = calloc(BATCHES, d->bytes);
    assert_non_null(d->memory);
    assert_non_null(d->expected);
}

static void device_free(struct pinned_device *d)
{
    free(d->memory);
    free(d->expected);
}

/* Enqueues the copy of a batch, and releases the batch before the copy is performed. */
static void copy_and_release(struct pinned_device *d, struct hr_batch *batch, long delay_ns)
{
    struct hr_batch_view view;
    hr_batch_get(batch, &view);
    size_t bytes = view.count * view.spec.bytes;
    memcpy(d->expected + view.number * d->bytes, view.images, bytes);
    gpu.copy(d->memory + view.number * d->bytes, view.images, bytes, delay_ns);
    hr_batch_release(&batch);
}

static void test_copies_are_whole(void **state)
{
    struct pinned_device d;
    struct hr_error error;
    struct hr_batch *batch;
    int before = counts().recorded;
    struct hr_loader *loader = make_loader();
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        device_make(&d);
        assert_int_equal(hr_loader_start_epoch(loader, epoch, &error), 0);
        while (hr_loader_next(loader, &batch, &error) == 1) {
            fixture_check(&fixture, batch, 0, 0);
            copy_and_release(&d, batch, 3000000);
        }
        gpu.synchronize();
        assert_memory_equal(d.memory, d.expected, BATCHES * d.bytes);
        device_free(&d);
    }
    assert_int_equal(counts().recorded - before, 3 * BATCHES);
    struct hr_loader_stats stats = {.size = sizeof stats};
    hr_loader_get_stats(loader, &stats);
    assert_int_equal(stats.grown_slots, 0);
    hr_loader_destroy(&loader);
}

/* The same consumer with a loader that does not pin: slots are reused while copies read them, and
 * the copied bytes are wrong. */
static void test_would_notice(void **state)
{
    struct pinned_device d;
    struct hr_loader_options options;
    struct hr_error error;
    struct hr_batch *batch;
    fixture_options(&options);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    device_make(&d);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    gpu.set_held(1);
    while (hr_loader_next(loader, &batch, &error) == 1)
        copy_and_release(&d, batch, 0);
    gpu.set_held(0);
    gpu.synchronize();
    assert_memory_not_equal(d.memory, d.expected, BATCHES * d.bytes);
    device_free(&d);
    hr_loader_destroy(&loader);
}

/* The loader is destroyed, and then the last batch released, while copies are in flight. */
static void test_destroy_under_copies(void **state)
{
    struct pinned_device d;
    struct hr_error error;
    struct hr_loader *loader = make_loader();
    device_make(&d);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    for (int i = 0; i < 3; i++)
        copy_and_release(&d, fixture_next(loader), 10000000);
    struct hr_batch *last = fixture_next(loader);
    hr_loader_destroy(&loader);
    copy_and_release(&d, last, 10000000);
    gpu.synchronize();
    assert_memory_equal(d.memory, d.expected, BATCHES * d.bytes);
    device_free(&d);
}

/* Batches released while a stream is captured: their slots stay out of the ring until a later
 * release can record a fence. */
static void test_capture(void **state)
{
    struct pinned_device d;
    struct hr_error error;
    struct hr_loader_stats stats = {.size = sizeof stats};
    struct hr_loader *loader = make_loader();
    device_make(&d);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    int before = counts().recorded;
    gpu.set_capturing(1);
    for (int i = 0; i < 5; i++)
        copy_and_release(&d, fixture_next(loader), 3000000);
    gpu.set_capturing(0);
    assert_int_equal(counts().recorded, before);
    copy_and_release(&d, fixture_next(loader), 3000000);
    assert_int_equal(counts().recorded, before + 6);
    for (int i = 6; i < BATCHES; i++)
        copy_and_release(&d, fixture_next(loader), 3000000);
    gpu.synchronize();
    assert_memory_equal(d.memory, d.expected, BATCHES * d.bytes);
    /* The additional slots are gone again. */
    assert_int_equal(hr_loader_start_epoch(loader, 1, &error), 0);
    struct hr_batch *batch = fixture_next(loader);
    hr_batch_release(&batch);
    hr_loader_get_stats(loader, &stats);
    assert_in_range(stats.slots, 1, 6);
    hr_loader_destroy(&loader);
    device_free(&d);
}

/* A device that never finishes: after a while the ring grows; nothing hangs. */
static void test_endless_copy(void **state)
{
    struct pinned_device d;
    struct hr_error error;
    struct hr_loader_stats stats = {.size = sizeof stats};
    struct hr_loader *loader = make_loader();
    device_make(&d);
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    gpu.set_held(1);
    for (int i = 0; i < BATCHES; i++)
        copy_and_release(&d, fixture_next(loader), 0);
    hr_loader_get_stats(loader, &stats);
    assert_int_equal(stats.slots, BATCHES);
    assert_int_equal(stats.grown_slots, 2);
    gpu.set_held(0);
    hr_loader_destroy(&loader);
    gpu.synchronize();
    assert_memory_equal(d.memory, d.expected, BATCHES * d.bytes);
    device_free(&d);
}

static void wait_for_device(void *calls)
{
    gpu.synchronize();
    ++*(int *)calls;
}

/* Replayed batches are handed out again while copies read them; loaded ones are released before
 * they have been copied. */
static void test_watched_loop(void **state)
{
    struct hr_loader_options options;
    struct hr_stalls_watch_options watch_options;
    struct hr_stalls_watch *watch;
    struct hr_batch *batch;
    struct hr_error error;
    struct pinned_device d;
    int synchronized = 0, steps = 0, r;
    fixture_options(&options);
    options.pinned = 1;
    options.external_order = 1;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    hr_stalls_watch_options_default(&watch_options);
    watch_options.time_s = 0.5;
    watch_options.synchronize = wait_for_device;
    watch_options.arg = &synchronized;
    assert_int_equal(hr_stalls_watch_open(&watch, loader, &watch_options, &error), 0);
    device_make(&d);
    while ((r = hr_stalls_watch_next(watch, &batch, &error)) == 1) {
        struct hr_batch_view view;
        hr_batch_get(batch, &view);
        size_t at = (size_t)(steps % BATCHES) * d.bytes;
        memcpy(d.expected + at, view.images, d.bytes);
        gpu.copy(d.memory + at, view.images, d.bytes, 500000);
        hr_batch_release(&batch);
        if (++steps % BATCHES)
            continue;
        gpu.synchronize();
        assert_memory_equal(d.memory, d.expected, BATCHES * d.bytes);
    }
    if (r)
        fail_msg("%s", error.message);
    /* Called at both ends of the segments of at least two rounds, each of at least four batches. */
    assert_true(synchronized >= 8 && steps >= 16);
    gpu.synchronize();
    hr_stalls_watch_close(&watch);
    hr_loader_destroy(&loader);
    device_free(&d);
}

static void test_old_driver(void **state)
{
    struct hr_loader_options options;
    struct hr_loader *loader;
    struct hr_error error;
    setenv("HEADRACE_CUDA_LIBRARY", getenv("HEADRACE_TEST_CUDA_OLD"), 1);
    fixture_options(&options);
    options.pinned = 1;
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error),
                     -ENOTSUP);
    assert_non_null(strstr(error.message, "cuCtxRecordEvent"));
    assert_non_null(strstr(error.message, "12.5"));
}

/* The device whose node a loader looks up: the one that the process uses. */
static void test_bus_id(void **state)
{
    struct hr_error error;
    void *gpus;
    char id[32] = "";
    assert_int_equal(hr__accelerator_none.bus_id(NULL, id, sizeof id), 0);
    assert_int_equal(hr__accelerator_cuda.open(&gpus, &error), 0);
    assert_int_equal(hr__accelerator_cuda.bus_id(gpus, id, sizeof id), 1);
    assert_string_equal(id, "0000:3B:00.0");
    hr__accelerator_cuda.close(gpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_copies_are_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_would_notice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_destroy_under_copies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_capture, setup, teardown),
        cmocka_unit_test_setup_teardown(test_endless_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_watched_loop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bus_id, setup, teardown),
        cmocka_unit_test_setup_teardown(test_old_driver, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
