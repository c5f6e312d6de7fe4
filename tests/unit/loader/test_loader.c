/*
 * The contents of batches: every sample equals the preparer's result for it alone, in the order of
 * the order room, for any number of threads, any thread that reads the files, and any delays;
 * resuming and ranks included.
 */
#include "fixture.h"

#include "order/order.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 61

FIXTURE(SAMPLES)

/* Reads a whole epoch and compares it with the order. */
static void check_epoch(struct hr_loader *loader, const struct hr_loader_options *o, uint64_t epoch)
{
    struct hr_error error;
    struct hr__order *order = NULL;
    struct hr__cut cut = {.samples = SAMPLES,
                          .batch_size = (uint64_t)o->batch_size,
                          .ranks = (uint64_t)o->world_size,
                          .rank = (uint64_t)o->rank,
                          .drop_last = o->drop_last};
    uint64_t positions[SAMPLES];
    assert_int_equal(hr__order_create(&order, SAMPLES, o->shuffle, o->seed, epoch, &error), 0);
    assert_int_equal(hr_loader_start_epoch(loader, epoch, &error), 0);
    assert_int_equal(hr_loader_batches(loader), hr__cut_batches(&cut));
    for (uint64_t b = 0; b < hr__cut_batches(&cut); b++) {
        struct hr_batch *batch = fixture_next(loader);
        struct hr_batch_view view;
        size_t padding;
        hr_batch_get(batch, &view);
        assert_int_equal(view.count, hr__cut_batch(&cut, b, positions, &padding));
        assert_int_equal(view.padding, padding);
        assert_int_equal(view.number, b);
        assert_int_equal(view.epoch, epoch);
        assert_int_equal(view.replaced, 0);
        for (size_t i = 0; i < view.count; i++)
            assert_int_equal(view.indices[i], hr__order_at(order, positions[i]));
        fixture_check(&fixture, batch, 0, 0);
        hr_batch_release(&batch);
        assert_null(batch);
    }
    struct hr_batch *none = (struct hr_batch *)&error;
    assert_int_equal(hr_loader_next(loader, &none, &error), 0);
    assert_null(none);
    assert_int_equal(hr_loader_next(loader, &none, &error), 0);
    hr__order_destroy(&order);
}

static void check_options(const struct hr_loader_options *options)
{
    struct hr_loader *loader = fixture_loader(&fixture, options);
    check_epoch(loader, options, 0);
    check_epoch(loader, options, 5);
    hr_loader_destroy(&loader);
    assert_null(loader);
}

/* With direct_io every read goes through the fetchers, whatever is in the page cache. */
static void test_threads_and_readers(void **state)
{
    static const int threads[] = {1, 2, 5};
    for (size_t t = 0; t < 3; t++) {
        for (int reader = 0; reader < 4; reader++) {
            struct hr_loader_options options;
            fixture_options(&options);
            options.threads = threads[t];
            options.direct_io = reader & 1;
            options.no_io_uring = reader >> 1;
            check_options(&options);
        }
    }
}

static void delay_read(const char *path)
{
    fixture_delay(strlen(path));
}

static void test_random_delays(void **state)
{
    fixture_before_prepare = fixture_delay;
    fixture_before_read = delay_read;
    for (int reader = 0; reader < 2; reader++) {
        struct hr_loader_options options;
        fixture_options(&options);
        options.threads = 5;
        options.direct_io = reader;
        options.batches_ahead = 3;
        check_options(&options);
    }
}

static void test_shapes(void **state)
{
    static const struct {
        int batch_size, ahead, shuffle, drop_last;
        uint64_t staging;
    } shapes[] = {{1, 1, 1, 0, 1},          {7, 1, 0, 1, 1},      {61, 2, 1, 0, 1 << 20},
                  {100, 4, 1, 0, 16 << 20}, {16, 9, 0, 0, 20000}, {3, 2, 1, 1, 3000}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int direct = 0; direct < 2; direct++) {
            struct hr_loader_options options;
            fixture_options(&options);
            options.batch_size = shapes[i].batch_size;
            options.batches_ahead = shapes[i].ahead;
            options.shuffle = shapes[i].shuffle;
            options.drop_last = shapes[i].drop_last;
            options.staging_bytes = shapes[i].staging;
            options.direct_io = direct;
            check_options(&options);
        }
    }
}

static atomic_int worker_reads;

static void blocking_read(const char *path)
{
    atomic_fetch_add(&worker_reads, 1);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* When reads block a worker several times, the fetchers take over. */
static void test_blocking_reads_go_to_fetchers(void **state)
{
    struct hr_loader_options options;
    fixture_options(&options);
    fixture_before_read = blocking_read;
    atomic_store(&worker_reads, 0);
    check_options(&options);
    assert_in_range(atomic_load(&worker_reads), 1, 2 * SAMPLES / 3);
}

static void test_ranks(void **state)
{
    int seen[SAMPLES] = {0};
    struct hr_error error;
    uint64_t batches = 0, padding = 0;
    for (int rank = 0; rank < 3; rank++) {
        struct hr_loader_options options;
        fixture_options(&options);
        options.world_size = 3;
        options.rank = rank;
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        check_epoch(loader, &options, 1);
        assert_int_equal(hr_loader_start_epoch(loader, 2, &error), 0);
        assert_true(!rank || batches == hr_loader_batches(loader));
        batches = hr_loader_batches(loader);
        struct hr_batch *batch;
        while (hr_loader_next(loader, &batch, &error) == 1) {
            struct hr_batch_view view;
            hr_batch_get(batch, &view);
            padding += view.padding;
            for (size_t i = 0; i < view.count - view.padding; i++)
                seen[view.indices[i]]++;
            hr_batch_release(&batch);
        }
        hr_loader_destroy(&loader);
    }
    for (int i = 0; i < SAMPLES; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(padding, 2); /* 61 samples over 3 ranks: 63 places */
}

/* After a restore the batches are the same, bit for bit, as without it. */
static void test_resume(void **state)
{
    struct hr_loader_options options;
    struct hr_loader_state saved;
    struct hr_error error;
    fixture_options(&options);
    for (int done = 0; done <= 8; done++) {
        struct hr_loader *first = fixture_loader(&fixture, &options);
        assert_int_equal(hr_loader_start_epoch(first, 3, &error), 0);
        for (int b = 0; b < done; b++) {
            struct hr_batch *batch = fixture_next(first);
            hr_batch_release(&batch);
        }
        assert_int_equal(hr_loader_get_state(first, &saved, &error), 0);
        assert_int_equal(saved.position, done < 8 ? done * 8 : SAMPLES);
        struct hr_loader_options others = options;
        others.seed = 7; /* the state's seed replaces it */
        others.shuffle = 0;
        others.threads = 1;
        struct hr_loader *second = fixture_loader(&fixture, &others);
        assert_int_equal(hr_loader_restore(second, &saved, &error), 0);
        struct hr_batch *a, *b;
        while (hr_loader_next(first, &a, &error) == 1) {
            struct hr_batch_view va, vb;
            b = fixture_next(second);
            hr_batch_get(a, &va);
            hr_batch_get(b, &vb);
            assert_int_equal(va.count, vb.count);
            assert_int_equal(va.number, vb.number);
            assert_memory_equal(va.indices, vb.indices, va.count * sizeof *va.indices);
            assert_memory_equal(va.labels, vb.labels, va.count * sizeof *va.labels);
            assert_memory_equal(va.images, vb.images, va.count * va.spec.bytes);
            hr_batch_release(&a);
            hr_batch_release(&b);
        }
        assert_int_equal(hr_loader_next(second, &b, &error), 0);
        hr_loader_destroy(&first);
        hr_loader_destroy(&second);
    }
}

/* With other ranks and another batch size, the rest of the epoch comes exactly once. */
static void test_resume_cut_anew(void **state)
{
    struct hr_loader_options options;
    struct hr_loader_state saved;
    struct hr_error error;
    int seen[SAMPLES] = {0};
    fixture_options(&options);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_start_epoch(loader, 9, &error), 0);
    for (int b = 0; b < 3; b++) {
        struct hr_batch *batch = fixture_next(loader);
        struct hr_batch_view view;
        hr_batch_get(batch, &view);
        for (size_t i = 0; i < view.count; i++)
            seen[view.indices[i]]++;
        hr_batch_release(&batch);
    }
    assert_int_equal(hr_loader_get_state(loader, &saved, &error), 0);
    hr_loader_destroy(&loader);
    for (int rank = 0; rank < 2; rank++) {
        options.batch_size = 5;
        options.world_size = 2;
        options.rank = rank;
        loader = fixture_loader(&fixture, &options);
        assert_int_equal(hr_loader_restore(loader, &saved, &error), 0);
        struct hr_batch *batch;
        while (hr_loader_next(loader, &batch, &error) == 1) {
            struct hr_batch_view view;
            hr_batch_get(batch, &view);
            fixture_check(&fixture, batch, 0, 0);
            for (size_t i = 0; i < view.count - view.padding; i++)
                seen[view.indices[i]]++;
            hr_batch_release(&batch);
        }
        hr_loader_destroy(&loader);
    }
    for (int i = 0; i < SAMPLES; i++)
        assert_int_equal(seen[i], 1);
}

static void test_restore_refuses(void **state)
{
    struct hr_loader_options options;
    struct hr_loader_state saved;
    struct hr_error error;
    fixture_options(&options);
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_get_state(loader, &saved, &error), 0);
    saved.version = 2;
    assert_int_equal(hr_loader_restore(loader, &saved, &error), -EINVAL);
    saved.version = 1;
    saved.samples--;
    assert_int_equal(hr_loader_restore(loader, &saved, &error), -EINVAL);
    assert_non_null(strstr(error.message, "60 samples"));
    saved.samples++;
    saved.position = SAMPLES + 1;
    assert_int_equal(hr_loader_restore(loader, &saved, &error), -EINVAL);
    hr_loader_destroy(&loader);
}

static void test_external_order(void **state)
{
    static const int64_t pushed[3][4] = {{5, 5, 60, 0}, {1, 2, 3, 5}, {5, 9, 9, 9}};
    static const size_t counts[3] = {4, 4, 2};
    struct hr_loader_options options;
    struct hr_loader_state saved;
    struct hr_error error;
    struct hr_batch *batch;
    fixture_options(&options);
    options.batch_size = 4;
    options.external_order = 1;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_push(loader, pushed[0], 4, &error), -EINVAL);
    assert_int_equal(hr_loader_start_epoch(loader, 2, &error), 0);
    assert_int_equal(hr_loader_next(loader, &batch, &error), -EAGAIN);
    for (int i = 0; i < 3; i++)
        assert_int_equal(hr_loader_push(loader, pushed[i], counts[i], &error), 0);
    assert_int_equal(hr_loader_push(loader, pushed[0], 5, &error), -EINVAL);
    assert_int_equal(hr_loader_push(loader, (const int64_t[]){61}, 1, &error), -ERANGE);
    assert_non_null(strstr(error.message, "61"));
    for (int i = 0; i < 3; i++) {
        struct hr_batch_view view;
        batch = fixture_next(loader);
        hr_batch_get(batch, &view);
        assert_int_equal(view.count, counts[i]);
        assert_int_equal(view.number, i);
        assert_memory_equal(view.indices, pushed[i], counts[i] * sizeof **pushed);
        fixture_check(&fixture, batch, 1, (uint64_t)i * 4);
        hr_batch_release(&batch);
        if (i == 0)
            assert_int_equal(hr_loader_get_state(loader, &saved, &error), 0);
    }
    assert_int_equal(hr_loader_next(loader, &batch, &error), -EAGAIN);
    assert_int_equal(hr_loader_push_end(loader, &error), 0);
    assert_int_equal(hr_loader_push(loader, pushed[0], 4, &error), -EINVAL);
    assert_int_equal(hr_loader_next(loader, &batch, &error), 0);
    /* Restored after the first batch: the caller pushes the rest again. */
    assert_int_equal(saved.position, 4);
    assert_int_equal(hr_loader_restore(loader, &saved, &error), 0);
    assert_int_equal(hr_loader_push(loader, pushed[1], 4, &error), 0);
    batch = fixture_next(loader);
    fixture_check(&fixture, batch, 1, 4);
    hr_batch_release(&batch);
    hr_loader_destroy(&loader);
}

static void check_histogram(const struct hr_histogram *h, uint64_t count)
{
    uint64_t sum = 0;
    for (int i = 0; i < HR_HISTOGRAM_BUCKETS; i++)
        sum += h->buckets[i];
    assert_int_equal(h->count, count);
    assert_int_equal(sum, count);
    assert_true(h->sum_ns > 0);
}

static void test_stats_add_up(void **state)
{
    uint64_t bytes = 0;
    struct hr_error error;
    for (size_t i = 0; i < SAMPLES; i++) {
        FILE *file = fopen(fixture.paths[i], "rb");
        assert_non_null(file);
        assert_int_equal(fseek(file, 0, SEEK_END), 0);
        bytes += (uint64_t)ftell(file);
        fclose(file);
    }
    for (int direct = 0; direct < 2; direct++) {
        struct hr_loader_options options;
        struct hr_loader_stats stats = {.size = sizeof stats};
        fixture_options(&options);
        options.direct_io = direct;
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            struct hr_batch *batch;
            assert_int_equal(hr_loader_start_epoch(loader, epoch, &error), 0);
            while (hr_loader_next(loader, &batch, &error) == 1)
                hr_batch_release(&batch);
        }
        hr_loader_get_stats(loader, &stats);
        assert_int_equal(stats.samples, 2 * SAMPLES);
        assert_int_equal(stats.batches, 16);
        assert_int_equal(stats.bytes_read, 2 * bytes);
        assert_int_equal(stats.bad_samples, 0);
        assert_int_equal(stats.padded_samples, 0);
        assert_int_equal(stats.staged_bytes, 0);
        assert_int_equal(stats.ready_batches, 0);
        assert_int_equal(stats.grown_slots, 0);
        assert_in_range(stats.slots, 1, 4);
        assert_int_equal(stats.slot_bytes, 8 * (fixture.spec.bytes + 16));
        assert_int_equal(stats.threads, 2);
        check_histogram(&stats.fetch, 2 * SAMPLES);
        check_histogram(&stats.prepare, 2 * SAMPLES);
        check_histogram(&stats.wait, 18);
        assert_int_equal(stats.wait.sum_ns, stats.wait_ns);
        /* A caller of an older version gets the members that it knows. */
        struct hr_loader_stats old = {.size = offsetof(struct hr_loader_stats, wait_ns),
                                      .wait_ns = 77};
        hr_loader_get_stats(loader, &old);
        assert_int_equal(old.samples, 2 * SAMPLES);
        assert_int_equal(old.wait_ns, 77);
        hr_loader_destroy(&loader);
    }
}

static void count_suggestions(void *arg, enum hr_log_level level, const char *message)
{
    int *count = arg;
    *count += level == HR_LOG_WARNING && strstr(message, "2 ranks of this machine prepare") &&
              strstr(message, "agent=\"auto\"");
}

static void make_rank(int rank, int ranks, int here)
{
    struct hr_loader_options options;
    fixture_options(&options);
    options.rank = rank;
    options.world_size = ranks;
    options.local_world_size = here;
    struct hr_loader *loader = fixture_loader(&fixture, &options);
    hr_loader_destroy(&loader);
}

/* The first rank of a machine logs once that an agent would share the cores. */
static void test_first_rank_suggests_an_agent(void **state)
{
    int count = 0;
    unsetenv("LOCAL_RANK");
    hr_log_set(count_suggestions, &count);
    make_rank(3, 4, 2);
    make_rank(0, 1, 2);
    make_rank(1, 2, 1);
    setenv("LOCAL_RANK", "1", 1);
    make_rank(0, 4, 2);
    assert_int_equal(count, 0);
    setenv("LOCAL_RANK", "0", 1);
    make_rank(1, 4, 2);
    assert_int_equal(count, 1);
    unsetenv("LOCAL_RANK");
    make_rank(0, 4, 2);
    make_rank(2, 4, 2);
    assert_int_equal(count, 1);
    hr_log_set(NULL, NULL);
}

/* Without `threads`, each rank of a host gets a fixed part of the cores. */
static void test_ranks_divide_the_cores(void **state)
{
    for (int ranks = 1; ranks < 4; ranks++) {
        struct hr_loader_options options;
        struct hr_loader_stats stats = {.size = sizeof stats};
        fixture_options(&options);
        options.threads = 0;
        options.world_size = options.local_world_size = ranks;
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        check_epoch(loader, &options, 0);
        hr_loader_get_stats(loader, &stats);
        int workers = hr_cores() / ranks - 1;
        assert_int_equal(stats.threads, workers > 0 ? workers : 1);
        assert_int_equal(stats.workers_now, stats.threads);
        assert_int_equal(stats.balanced, 0);
        hr_loader_destroy(&loader);
    }
}

/* The memory policy of an address, or of this thread: 0 default, 1 preferred; -1: the kernel or the
 * container does not say. */
static int policy_of(void *address)
{
    int policy = -1;
    return syscall(SYS_get_mempolicy, &policy, NULL, 0ul, address, address ? 2ul : 0ul) ? -1
                                                                                        : policy;
}

static atomic_int worker_policy;

static void note_policy(uint64_t index)
{
    atomic_store(&worker_policy, policy_of(NULL));
}

/* Slots and workers of a loader at home on node 0; with one node and no wish there is no home. */
static void test_node(void **state)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int bound = 0; bound < 2; bound++) {
        struct hr_loader_options options;
        struct hr_error error;
        struct hr_batch_view view;
        setenv("HEADRACE_NUMA", bound ? "node0" : "off", 1);
        fixture_options(&options);
        fixture_before_prepare = note_policy;
        struct hr_loader *loader = fixture_loader(&fixture, &options);
        assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
        struct hr_batch *batch = fixture_next(loader);
        hr_batch_get(batch, &view);
        fixture_check(&fixture, batch, 0, 0);
        void *images = (void *)(((uintptr_t)view.images + page) & ~(page - 1));
        int policy = policy_of(images);
        if (policy >= 0) {
            assert_int_equal(policy, bound);
            assert_int_equal(atomic_load(&worker_policy), bound);
        }
        hr_loader_destroy(&loader);
        hr_batch_release(&batch);
        /* Memory that malloc may use for anything has no policy. */
        assert_true(policy_of(images) <= 0);
    }
    fixture_before_prepare = NULL;
    unsetenv("HEADRACE_NUMA");
}

/* This program is linked without the agent's room, like a library built without agents. */
static void test_agent_needs_its_room(void **state)
{
    (void)state;
    struct hr_loader_options o;
    struct hr_loader *loader;
    struct hr_error error;
    fixture_options(&o);
    o.agent = "auto";
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, &o, &error),
                     -ENOTSUP);
    assert_null(loader);
    assert_non_null(strstr(error.message, "built without"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* This test comes first, because a process logs the line only once. */
        cmocka_unit_test_setup_teardown(test_first_rank_suggests_an_agent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_agent_needs_its_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads_and_readers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random_delays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shapes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_blocking_reads_go_to_fetchers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ranks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ranks_divide_the_cores, setup, teardown),
        cmocka_unit_test_setup_teardown(test_node, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume_cut_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(test_restore_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_external_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stats_add_up, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
