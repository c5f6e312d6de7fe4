/*
 * Loaders with items on several hosts: real memcached servers, ranks as threads. Batches are
 * compared with those of a plain loader, and reads of files are counted.
 */
#include "world.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

FIXTURE(300)

static uint64_t read_so_far(const struct world *w)
{
    struct hr_loader_stats s;
    world_stats(w, &s);
    return s.bytes_read;
}

static void test_two_hosts_keep_all(void **state)
{
    struct world w;
    struct hr_loader_stats s;
    world_make(&w, &fixture, 2, 2);
    uint64_t bytes = world_bytes(&w);
    world_run(&w, 0, UINT64_MAX);
    world_check(&w, 0);
    world_stats(&w, &s);
    assert_int_equal(s.bytes_read, bytes);
    assert_int_equal(s.stored, 300);
    for (uint64_t epoch = 1; epoch < 4; epoch++) {
        world_run(&w, epoch, UINT64_MAX);
        world_check(&w, 0);
        assert_int_equal(read_so_far(&w), bytes);
    }
    world_stats(&w, &s);
    /* Only the surplus of a rank in a batch moves. */
    assert_true(s.own_hits > s.peer_hits * 2);
    world_remove(&w);
}

/* Global batches have the same samples, whichever rank computes them. */
static void fill_sets(struct world *w, uint64_t *sets)
{
    for (int i = 0; i < w->ranks; i++)
        for (size_t k = 0; k < w->all[i].count; k++)
            sets[w->all[i].indices[k]] = w->all[i].numbers[k];
}

static void test_global_batches_are_the_same_sets(void **state)
{
    struct world w;
    uint64_t local[300], exact[300];
    world_make(&w, &fixture, 3, 3);
    strcpy(w.rest, "size=100KiB");
    world_run(&w, 0, UINT64_MAX);
    world_run(&w, 1, UINT64_MAX);
    world_check(&w, 0);
    fill_sets(&w, local);
    world_close(&w);
    w.options.assignment = HR_ASSIGNMENT_EXACT;
    world_run(&w, 1, UINT64_MAX);
    world_check(&w, 0);
    fill_sets(&w, exact);
    assert_memory_equal(local, exact, sizeof local);
    world_remove(&w);
}

/* Reads are exactly D - C bytes. */
static void test_what_nobody_keeps_is_read(void **state)
{
    struct world w;
    world_make(&w, &fixture, 2, 2);
    uint64_t bytes = world_bytes(&w), before, planned = 0;
    snprintf(w.rest, sizeof w.rest, "size=%lluB", (unsigned long long)bytes / 4);
    world_run(&w, 0, UINT64_MAX);
    world_check(&w, 0);
    assert_int_equal(read_so_far(&w), bytes);
    for (int i = 0; i < 2; i++) {
        struct hr_loader_host host = {.size = sizeof host};
        assert_int_equal(hr_loader_host_get(w.all[0].loader, i, &host), 0);
        assert_string_equal(host.name, w.servers[i].address);
        assert_int_equal(host.is_self, i == 0);
        assert_int_equal(host.is_up, 1);
        assert_int_equal(host.ranks, 1);
        assert_int_equal(host.budget_bytes, bytes / 4);
        assert_true(host.planned_bytes <= bytes / 4);
        assert_true(host.planned_bytes > bytes / 4 - 4096);
        assert_int_equal(host.limit_bytes, 64 << 20);
        planned += host.planned_bytes;
    }
    for (uint64_t epoch = 1; epoch < 3; epoch++) {
        before = read_so_far(&w);
        world_run(&w, epoch, UINT64_MAX);
        world_check(&w, 0);
        assert_int_equal(read_so_far(&w) - before, bytes - planned);
    }
    world_remove(&w);
}

static void test_one_rank_has_three_hosts(void **state)
{
    struct world w;
    struct hr_loader_stats s;
    world_make(&w, &fixture, 3, 1);
    uint64_t bytes = world_bytes(&w);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        world_run(&w, epoch, UINT64_MAX);
        world_check(&w, 0);
        assert_int_equal(read_so_far(&w), bytes);
    }
    world_stats(&w, &s);
    assert_true(s.own_hits > 100);
    assert_true(s.peer_hits > 200);
    assert_true(s.own_bytes > 100 * 500);
    world_remove(&w);
}

static void test_ranks_share_a_host(void **state)
{
    struct world w;
    struct hr_loader_stats s;
    world_make(&w, &fixture, 1, 3);
    w.ranks_a_host = 3;
    uint64_t bytes = world_bytes(&w);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        world_run(&w, epoch, UINT64_MAX);
        world_check(&w, 0);
        assert_int_equal(read_so_far(&w), bytes);
    }
    world_stats(&w, &s);
    assert_int_equal(s.peer_hits, 0);
    world_remove(&w);
}

/* Items are converted before they are stored; pixels are the same. */
static void test_forms(void **state)
{
    struct world w;
    struct hr_loader_stats s;
    world_make(&w, &fixture, 2, 2);
    uint64_t bytes = world_bytes(&w);
    for (int form = HR_FORM_ENCODED + 1; form < IMAGE_FORMS; form++) {
        snprintf(w.rest, sizeof w.rest, "size=16MiB&form=%s", hr_form_name((enum hr_form)form));
        for (int i = 0; i < 2; i++) {
            memcached_kill(&w.servers[i], SIGKILL);
            memcached_restart(&w.servers[i]);
        }
        world_run(&w, 0, UINT64_MAX);
        world_check(&w, 0);
        world_stats(&w, &s);
        assert_true(s.converted > 0);
        world_run(&w, 1, UINT64_MAX);
        world_check(&w, 0);
        assert_int_equal(read_so_far(&w), bytes);
        world_close(&w);
    }
    world_remove(&w);
}

/* The consumer is slow: samples of later batches are read ahead, each file once. */
static void be_slow(struct world_rank *rank)
{
    usleep(20000);
}

static void test_later_batches_are_read_ahead(void **state)
{
    struct world w;
    struct hr_loader_stats s;
    world_make(&w, &fixture, 2, 2);
    uint64_t bytes = world_bytes(&w);
    for (int i = 0; i < 2; i++)
        w.all[i].between = be_slow;
    world_run(&w, 0, UINT64_MAX);
    world_check(&w, 0);
    world_stats(&w, &s);
    assert_int_equal(s.bytes_read, bytes);
    assert_int_equal(s.stored, 300);
    assert_true(s.read_ahead > 100);
    world_run(&w, 1, UINT64_MAX);
    assert_int_equal(read_so_far(&w), bytes);
    world_remove(&w);
}

/* The next run finds the items that the one before it stored. */
static void test_servers_outlive_a_run(void **state)
{
    struct world w;
    struct hr_loader_stats s;
    world_make(&w, &fixture, 2, 2);
    world_run(&w, 0, UINT64_MAX);
    world_close(&w);
    w.options.seed = FIXTURE_SEED;
    world_run(&w, 5, UINT64_MAX);
    world_check(&w, 0);
    world_stats(&w, &s);
    assert_int_equal(s.bytes_read, 0);
    assert_int_equal(s.cache_hits, s.samples);
    world_remove(&w);
}

/* In the middle of an epoch, with another number of ranks. */
static void test_resume_with_more_ranks(void **state)
{
    struct world w;
    struct hr_error error;
    char seen[300] = {0};
    world_make(&w, &fixture, 2, 2);
    world_run(&w, 0, UINT64_MAX);
    world_run(&w, 1, 7);
    struct hr_loader_state at = w.all[0].state;
    assert_int_equal(at.position, 7 * 2 * 8);
    assert_int_equal(w.all[1].state.position, at.position);
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < w.all[i].count; k++)
            seen[w.all[i].indices[k]]++;
    world_close(&w);
    w.ranks = 3;
    world_open(&w);
    for (int i = 0; i < 3; i++) {
        w.all[i].count = w.all[i].batches = 0;
        w.all[i].most = UINT64_MAX;
        assert_int_equal(hr_loader_restore(w.all[i].loader, &at, &error), 0);
    }
    world_consume(&w);
    for (int i = 0; i < 3; i++) {
        if (w.all[i].result < 0)
            fail_msg("%s", w.all[i].error.message);
        for (size_t k = 0; k < w.all[i].count; k++)
            seen[w.all[i].indices[k]]++;
    }
    for (int i = 0; i < 300; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(read_so_far(&w), 0);
    world_remove(&w);
}

static void run_and_fail(struct world *w, int code, const char *const *parts)
{
    struct hr_error error;
    for (int i = 0; i < w->ranks; i++) {
        w->all[i].batches = 0;
        w->all[i].most = UINT64_MAX;
        if (hr_loader_start_epoch(w->all[i].loader, 0, &error))
            fail_msg("%s", error.message);
    }
    world_consume(w);
    for (int i = 0; i < w->ranks; i++) {
        assert_int_equal(w->all[i].batches, 0);
        assert_int_equal(w->all[i].result, code);
        for (int k = 0; parts[k]; k++)
            if (!strstr(w->all[i].error.message, parts[k]))
                fail_msg("rank %d says: %s", i, w->all[i].error.message);
    }
}

static void test_a_difference_is_named(void **state)
{
    struct world w;
    world_make(&w, &fixture, 2, 2);
    world_open(&w);
    hr_loader_destroy(&w.all[1].loader);
    w.options.seed = 43;
    world_open(&w);
    run_and_fail(&w, -EINVAL, (const char *const[]){"the seed", "42", "43", NULL});
    world_close(&w);
    w.options.seed = FIXTURE_SEED;
    world_open(&w);
    hr_loader_destroy(&w.all[1].loader);
    strcpy(w.rest, "size=17MiB");
    world_open(&w);
    run_and_fail(&w, -EINVAL, (const char *const[]){"16", "17", NULL});
    /* The difference was reported, and is not permanent. */
    world_close(&w);
    world_run(&w, 0, UINT64_MAX);
    world_check(&w, 0);
    world_remove(&w);
}

static void test_rank_that_does_not_come(void **state)
{
    struct world w;
    struct hr_error error;
    struct hr_batch *batch;
    world_make(&w, &fixture, 2, 2);
    strcpy(w.rest, "size=16MiB&meet=5s");
    w.options.wait_ms = 50;
    world_open(&w);
    struct hr_loader *loader = w.all[0].loader;
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    assert_int_equal(hr_loader_next(loader, &batch, &error), -EINTR);
    int r;
    while ((r = hr_loader_next(loader, &batch, &error)) == -EINTR)
        ;
    assert_int_equal(r, -ETIMEDOUT);
    assert_non_null(strstr(error.message, "1"));
    assert_int_equal(hr_loader_next(loader, &batch, &error), 0);
    /* The loader is destroyed while it waits. */
    assert_int_equal(hr_loader_start_epoch(loader, 0, &error), 0);
    assert_int_equal(hr_loader_next(loader, &batch, &error), -EINTR);
    world_remove(&w);
}

static void test_bad_samples_are_replaced(void **state)
{
    struct world w;
    struct hr_loader_stats s;
    for (size_t i = 10; i < 15; i++)
        fixture_spoil(&fixture, i, "no picture");
    world_make(&w, &fixture, 2, 2);
    w.options.on_error = HR_ON_ERROR_SKIP;
    w.options.max_bad_share = 0.5;
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        world_run(&w, epoch, UINT64_MAX);
        world_check(&w, 5);
        world_stats(&w, &s);
        assert_int_equal(s.bad_samples, 5 * (epoch + 1));
    }
    world_remove(&w);
}

static void test_other_hosts_from_an_epoch_on(void **state)
{
    struct world w;
    struct hr_error error;
    char text[1024];
    world_make(&w, &fixture, 3, 2);
    uint64_t bytes = world_bytes(&w);
    w.hosts = 2;
    world_run(&w, 0, UINT64_MAX);
    w.hosts = 3;
    for (int i = 0; i < 2; i++) {
        world_text(&w, i, text, sizeof text);
        if (hr_loader_set_hosts(w.all[i].loader, 2, text, &error))
            fail_msg("%s", error.message);
    }
    world_run(&w, 1, UINT64_MAX);
    assert_int_equal(read_so_far(&w), bytes);
    assert_int_equal(hr_loader_host_count(w.all[0].loader), 2);
    world_run(&w, 2, UINT64_MAX);
    world_check(&w, 0);
    assert_int_equal(hr_loader_host_count(w.all[0].loader), 3);
    uint64_t moved = read_so_far(&w) - bytes;
    /* About a third of the items have another owner. */
    assert_in_range(moved, bytes / 5, bytes / 2);
    world_run(&w, 3, UINT64_MAX);
    world_check(&w, 0);
    assert_int_equal(read_so_far(&w), bytes + moved);
    world_remove(&w);
}

static void test_rates(void **state)
{
    struct world w;
    struct hr_error error;
    struct hr_loader_rates rates[2];
    world_make(&w, &fixture, 2, 2);
    strcpy(w.rest, "size=100KiB");
    world_run(&w, 0, UINT64_MAX);
    world_run(&w, 1, UINT64_MAX);
    for (int i = 0; i < 2; i++) {
        rates[i].size = sizeof rates[i];
        assert_int_equal(hr_loader_get_rates(w.all[i].loader, &rates[i], &error), 0);
        assert_int_equal(rates[i].host, i);
        assert_true(rates[i].own_bytes_per_s > 0);
        assert_true(rates[i].storage_bytes_per_s > 0);
        assert_true(rates[i].prepare_bytes_per_s > 0);
        assert_true(rates[i].ready_s > 0 && rates[i].ready_s < 10);
        assert_true(rates[i].wait_s > 0 && rates[i].wait_s < 10);
    }
    assert_int_equal(hr_loader_set_rates(w.all[0].loader, 2, rates, 1, &error), -EINVAL);
    /* One host has much slower storage: the other reads the samples that no host keeps. */
    rates[0].storage_bytes_per_s = 1e9;
    rates[1].storage_bytes_per_s = 1e4;
    for (int i = 0; i < 2; i++) {
        rates[i].own_bytes_per_s = rates[i].peer_bytes_per_s = 1e8;
        assert_int_equal(rates[i].size, sizeof rates[i]);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(hr_loader_set_rates(w.all[i].loader, 2, rates, 2, &error), 0);
    struct hr_loader_stats before[2], after[2];
    for (int i = 0; i < 2; i++) {
        before[i].size = after[i].size = sizeof *before;
        hr_loader_get_stats(w.all[i].loader, &before[i]);
    }
    world_run(&w, 2, UINT64_MAX);
    world_check(&w, 0);
    for (int i = 0; i < 2; i++)
        hr_loader_get_stats(w.all[i].loader, &after[i]);
    assert_true(after[0].bytes_read - before[0].bytes_read >
                2 * (after[1].bytes_read - before[1].bytes_read));
    world_remove(&w);
}

/* Options that exclude each other. */
static void test_refusals(void **state)
{
    struct hr_loader_options options;
    struct hr_loader *loader;
    struct hr_error error;
    struct hr_loader_rates rates = {.size = sizeof rates};
    fixture_options(&options);
    options.assignment = HR_ASSIGNMENT_LOCAL;
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error),
                     -EINVAL);
    assert_non_null(strstr(error.message, "assignment"));
    options.assignment = HR_ASSIGNMENT_AUTO;
    options.cache = "memcached:127.0.0.1:1?size=1MiB";
    options.agent = "auto";
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error),
                     -ENOTSUP);
    assert_non_null(strstr(error.message, "agent"));
    options.agent = NULL;
    options.external_order = 1;
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error),
                     -ENOTSUP);
    options.external_order = 0;
    options.cache = "memcached:127.0.0.1:1";
    assert_int_equal(hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error),
                     -EINVAL);
    options.cache = NULL;
    loader = fixture_loader(&fixture, &options);
    assert_int_equal(hr_loader_host_count(loader), 0);
    assert_int_equal(hr_loader_get_rates(loader, &rates, &error), -EINVAL);
    assert_int_equal(hr_loader_set_rates(loader, 0, &rates, 1, &error), -EINVAL);
    assert_int_equal(hr_loader_set_hosts(loader, 0, "memcached:a?size=1", &error), -EINVAL);
    hr_loader_destroy(&loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two_hosts_keep_all, setup, teardown),
        cmocka_unit_test_setup_teardown(test_global_batches_are_the_same_sets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_nobody_keeps_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_rank_has_three_hosts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ranks_share_a_host, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forms, setup, teardown),
        cmocka_unit_test_setup_teardown(test_later_batches_are_read_ahead, setup, teardown),
        cmocka_unit_test_setup_teardown(test_servers_outlive_a_run, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume_with_more_ranks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_difference_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rank_that_does_not_come, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_samples_are_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_hosts_from_an_epoch_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rates, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
