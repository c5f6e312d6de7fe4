/*
 * Servers that die, hang, restart empty or fill up in the middle of an epoch: batches are correct,
 * arrive within a bounded time, and the loaders recover by themselves.
 */
#include "world.h"

#include "base/memory.h"
#include "cluster/host_key.h"
#include "cluster/peers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

FIXTURE(300)

static uint64_t read_so_far(const struct world *w)
{
    struct hr_loader_stats s;
    world_stats(w, &s);
    return s.bytes_read;
}

/* Rank 0 calls this for server 1 after its third batch; consumers are slow enough that the other
 * ranks see the fault in the middle of their epoch. */
static void (*fault)(struct memcached *server);

static void hurt(struct world_rank *rank)
{
    usleep(3000);
    if (rank->rank == 0 && rank->batches == 3 && fault)
        fault(&rank->world->servers[1]);
}

static void kill_it(struct memcached *server)
{
    memcached_kill(server, SIGKILL);
}

static void stop_it(struct memcached *server)
{
    kill(server->pid, SIGSTOP);
}

static void replace_it(struct memcached *server)
{
    memcached_kill(server, SIGKILL);
    memcached_restart(server);
}

static void run_checked(struct world *w, uint64_t epoch)
{
    world_run(w, epoch, UINT64_MAX);
    world_check(w, 0);
}

static void make(struct world *w, const char *timeout)
{
    world_make(w, &fixture, 2, 2);
    snprintf(w->rest, sizeof w->rest, "size=16MiB&timeout=%s", timeout);
    for (int i = 0; i < 2; i++)
        w->all[i].between = hurt;
    fault = NULL;
    world_run(w, 0, UINT64_MAX);
}

/* Waits until the ranks use the server again. */
static void wait_until_up(struct world *w, uint64_t *epoch)
{
    struct hr_loader_host host = {.size = sizeof host};
    for (int i = 0; i < 1200; i++) { /* two minutes: it hangs */
        int up = 0;
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(hr_loader_host_get(w->all[rank].loader, 1, &host), 0);
            up += host.is_up;
        }
        if (up == 2)
            return;
        usleep(100000);
        world_run(w, (*epoch)++, UINT64_MAX);
        world_check(w, 0);
    }
    fail_msg("%s is not asked again: %s", host.name, host.problem);
}

/* Runs epochs until one of them reads nothing from storage: a request may have timed out. */
static void run_until_served(struct world *w, uint64_t epoch)
{
    for (int i = 0; i < 100; i++) {
        uint64_t before = read_so_far(w);
        run_checked(w, epoch++);
        if (read_so_far(w) == before)
            return;
    }
    fail_msg("each epoch reads from storage");
}

static void test_killed(void **state)
{
    struct world w;
    struct hr_loader_host host = {.size = sizeof host};
    make(&w, "20s");
    uint64_t epoch = 1;
    fault = kill_it;
    run_checked(&w, epoch++);
    fault = NULL;
    run_checked(&w, epoch++); /* the first one may have asked for everything before the kill */
    assert_int_equal(hr_loader_host_get(w.all[0].loader, 1, &host), 0);
    /* Not is_up: on a busy machine the time may have come to ask the server again. */
    assert_true(host.failures > 0);
    assert_true(strlen(host.problem) > 10);
    memcached_restart(&w.servers[1]);
    wait_until_up(&w, &epoch);
    run_until_served(&w, epoch);
    world_remove(&w);
}

static void test_restarted_empty(void **state)
{
    struct world w;
    make(&w, "20s");
    fault = replace_it;
    run_checked(&w, 1);
    fault = NULL;
    uint64_t epoch = 2;
    wait_until_up(&w, &epoch);
    run_until_served(&w, epoch);
    world_remove(&w);
}

static void test_hangs(void **state)
{
    struct world w;
    make(&w, "300ms");
    fault = stop_it;
    run_checked(&w, 1);
    fault = NULL;
    run_checked(&w, 2);
    kill(w.servers[1].pid, SIGCONT);
    uint64_t epoch = 3;
    wait_until_up(&w, &epoch);
    run_until_served(&w, epoch);
    world_remove(&w);
}

/* Makes files longer that decode as before. */
static void lengthen_files(size_t bytes)
{
    int64_t labels[300];
    struct hr_error error;
    char *more = calloc(1, bytes);
    for (size_t i = 0; i < fixture.count; i++) {
        FILE *file = fopen(fixture.paths[i], "ab");
        assert_non_null(file);
        assert_int_equal(fwrite(more, 1, bytes, file), bytes);
        assert_int_equal(fclose(file), 0);
        labels[i] = (int64_t)(i % 7);
    }
    free(more);
    hr_dataset_unref(&fixture.dataset);
    assert_int_equal(hr_dataset_from_paths(&fixture.dataset, (const char *const *)fixture.paths,
                                           labels, fixture.count, &error),
                     0);
}

static void with_memory(struct world *w, int mebibytes, const char *item_max)
{
    for (int i = 0; i < w->hosts; i++) {
        memcached_kill(&w->servers[i], SIGKILL);
        w->servers[i].mebibytes = mebibytes;
        w->servers[i].item_max = item_max;
        memcached_restart(&w->servers[i]);
    }
}

static uint64_t largest_file(void)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < fixture.count; i++) {
        uint64_t bytes = (uint64_t)hr_dataset_sample_bytes(fixture.dataset, i);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

/* A server has too little memory for its items: the rest is read once in every epoch. */
static void test_full(void **state)
{
    struct world w;
    struct hr_loader_stats s;
    lengthen_files(30000);
    world_make(&w, &fixture, 2, 2);
    with_memory(&w, 2, "512k");
    uint64_t bytes = world_bytes(&w), before = 0;
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        world_run(&w, epoch, UINT64_MAX);
        world_check(&w, 0);
        uint64_t now = read_so_far(&w);
        world_stats(&w, &s);
        /* Only samples read ahead before the first refusal may be read again, once. */
        uint64_t again = epoch ? 0 : s.read_ahead * largest_file();
        assert_in_range(now - before, bytes / 5, bytes + (again < bytes ? again : bytes));
        before = now;
    }
    world_stats(&w, &s);
    assert_true(s.refused > 10);
    assert_true(s.cache_hits > 50);
    world_remove(&w);
}

/* Some items are larger than the server's limit: no host owns them, and nobody tries to store
 * them. */
static void test_too_large(void **state)
{
    struct world w;
    struct hr_loader_stats s;
    struct hr_loader_host host = {.size = sizeof host};
    lengthen_files(524288 - 512 - 1700);
    world_make(&w, &fixture, 1, 2);
    strcpy(w.rest, "size=1GiB");
    with_memory(&w, 2, "512k");
    world_run(&w, 0, 4);
    world_stats(&w, &s);
    assert_int_equal(hr_loader_host_get(w.all[0].loader, 0, &host), 0);
    assert_true(host.planned_items > 10 && host.planned_items < 290);
    world_remove(&w);
}

/* No server runs at the first batch: a single rank continues without them. */
static void test_none_is_there(void **state)
{
    struct world w;
    world_make(&w, &fixture, 2, 1);
    strcpy(w.rest, "size=16MiB&timeout=200ms");
    memcached_kill(&w.servers[0], SIGKILL);
    memcached_kill(&w.servers[1], SIGKILL);
    run_checked(&w, 0);
    assert_int_equal(read_so_far(&w), world_bytes(&w));
    world_remove(&w);
}

/* Epochs that are left in the middle, repeatedly. */
static void test_epochs_are_dropped(void **state)
{
    struct world w;
    struct hr_error error;
    world_make(&w, &fixture, 2, 2);
    for (int i = 0; i < 2; i++)
        w.all[i].between = NULL;
    for (uint64_t epoch = 0; epoch < 12; epoch++) {
        world_run(&w, epoch, epoch % 5);
        for (int i = 0; i < 2; i++)
            assert_int_equal(hr_loader_start_epoch(w.all[i].loader, epoch + 1, &error), 0);
    }
    world_run(&w, 20, UINT64_MAX);
    world_check(&w, 0);
    world_run(&w, 21, UINT64_MAX);
    uint64_t before = read_so_far(&w);
    world_run(&w, 22, UINT64_MAX);
    world_check(&w, 0);
    assert_int_equal(read_so_far(&w), before);
    world_remove(&w);
}

/* Items with a correct checksum that are not images. */
static void test_wrong_items(void **state)
{
    struct world w;
    struct hr_error error;
    struct hr__hosts hosts;
    struct hr__peers *peers;
    struct hr__host_digest digest;
    char text[1024];
    world_make(&w, &fixture, 1, 2);
    w.ranks_a_host = 2;
    uint64_t bytes = world_bytes(&w), wrong_bytes = 0;
    world_run(&w, 0, UINT64_MAX);
    world_text(&w, 0, text, sizeof text);
    assert_int_equal(hr__hosts_parse(&hosts, text, &error), 0);
    assert_int_equal(hr__peers_create(&peers, &hosts, &hr__peer_ops, &error), 0);
    assert_int_equal(hr__host_digest(&digest, fixture.dataset, &error), 0);
    for (uint64_t i = 20; i < 40; i++) {
        int64_t size = hr_dataset_sample_bytes(fixture.dataset, i);
        struct hr__peer_item item = {
            .bytes = (uint8_t *)text, .length = 300, .source_bytes = (uint64_t)size};
        struct hr__stamp stamp;
        assert_int_equal(hr__stamp_now(&stamp, fixture.dataset, i), 0);
        item.change = stamp.change;
        digest.with_mtime = hosts.with_mtime;
        assert_int_equal(hr__host_key(item.key, &digest, fixture.dataset, i, &stamp), 0);
        assert_int_equal(hr__peers_store(peers, 0, &item, 1), 1);
        wrong_bytes += (uint64_t)size;
    }
    hr__peers_destroy(&peers);
    hr__hosts_clear(&hosts);
    world_run(&w, 1, UINT64_MAX);
    world_check(&w, 0);
    assert_int_equal(read_so_far(&w), bytes + wrong_bytes);
    world_run(&w, 2, UINT64_MAX);
    world_check(&w, 0);
    assert_int_equal(read_so_far(&w), bytes + wrong_bytes);
    world_remove(&w);
}

/* Allocations that fail while a loader is made leave nothing behind. */
static void test_no_memory(void **state)
{
    struct hr_loader_options options;
    struct hr_loader *loader;
    struct hr_error error;
    int r = -ENOMEM;
    fixture_options(&options);
    options.cache = "memcached:127.0.0.1:1,127.0.0.2:1?size=1MiB&self=0";
    for (uint64_t nth = 1; r; nth++) {
        assert_true(nth < 200);
        hr__alloc_fail_at(nth, 0);
        r = hr_loader_create(&loader, fixture.dataset, fixture.recipe, &options, &error);
        hr__alloc_fail_at(0, 0);
        if (r)
            assert_null(loader);
    }
    hr_loader_destroy(&loader);
}

/* An allocation fails during an epoch: the epoch ends with that error, or is complete. */
static void test_no_memory_in_an_epoch(void **state)
{
    struct world w;
    struct hr_error error;
    world_make(&w, &fixture, 2, 1);
    int failed = 0;
    for (uint64_t nth = 1; nth < 150; nth += 6) {
        struct world_rank *r = &w.all[0];
        world_open(&w);
        r->count = r->batches = 0;
        r->most = UINT64_MAX;
        hr__alloc_fail_at(nth, 0);
        r->result = hr_loader_start_epoch(r->loader, 0, &error);
        if (!r->result)
            world_consume(&w);
        hr__alloc_fail_at(0, 0);
        if (!r->result)
            world_check(&w, 0);
        else
            assert_int_equal(r->result, -ENOMEM);
        failed += r->result != 0;
        world_close(&w);
    }
    assert_true(failed > 2);
    world_remove(&w);
}

/* A forked child cannot use the loader, but can destroy it. */
static void test_fork(void **state)
{
    struct world w;
    struct hr_error error;
    struct hr_batch *batch;
    world_make(&w, &fixture, 2, 2);
    world_run(&w, 0, UINT64_MAX);
    pid_t child = fork();
    if (!child) {
        int wrong = hr_loader_next(w.all[0].loader, &batch, &error) != -ECHILD;
        wrong |= hr_loader_host_count(w.all[0].loader) != 0;
        hr_loader_destroy(&w.all[0].loader);
        _exit(wrong);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    uint64_t before = read_so_far(&w);
    world_run(&w, 1, UINT64_MAX);
    world_check(&w, 0);
    assert_int_equal(read_so_far(&w), before);
    world_remove(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_restarted_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hangs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_none_is_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_epochs_are_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_items, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory_in_an_epoch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
