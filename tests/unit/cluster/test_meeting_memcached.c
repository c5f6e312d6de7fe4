/* Meetings on real memcached servers: in order, full of items, killed and started again. */
#include "../test.h"

#include "base/memory.h"
#include "cluster/meeting.h"
#include "memcached_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS   6
#define SERVERS 2

static struct memcached servers[SERVERS] = {{.item_max = "1m"}, {.item_max = "1m"}};
static char hosts_text[300];

struct memcached_rank {
    int rank;
    const char *seed;
    int result;
    struct hr_error error;
    pthread_t thread;
};

static int setup(void **state)
{
    for (int s = 0; s < SERVERS; s++)
        if (memcached_start(&servers[s], 1, 64))
            return 0;
    snprintf(hosts_text, sizeof hosts_text, "memcached:%s:%d,%s:%d?size=40MiB&timeout=500ms",
             servers[0].address, servers[0].port, servers[1].address, servers[1].port);
    return 0;
}

static int teardown(void **state)
{
    for (int s = 0; s < SERVERS; s++)
        memcached_stop(&servers[s]);
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
    return 0;
}

static void need_servers(void)
{
    if (*hosts_text)
        return;
    print_message("skipped: there is no memcached on this machine\n");
    skip();
}

static void *run_rank(void *arg)
{
    struct memcached_rank *rank = arg;
    struct hr__hosts hosts;
    struct hr__peers *peers = NULL;
    struct hr__meeting_found found = {NULL};
    const struct hr__meeting_input input = {"the seed", rank->seed, NULL};
    const struct hr__meeting_wish wish = {.job = "real",
                                          .rank = rank->rank,
                                          .world_size = RANKS,
                                          .host = rank->rank % SERVERS,
                                          .inputs = &input,
                                          .input_count = 1,
                                          .limit_s = 30};
    rank->result = hr__hosts_parse(&hosts, hosts_text, &rank->error);
    if (!rank->result)
        rank->result = hr__peers_create(&peers, &hosts, &hr__peer_ops, &rank->error);
    if (!rank->result)
        rank->result = hr__meeting_run(peers, &hosts, &wish, &found, &rank->error);
    for (int r = 0; !rank->result && r < RANKS; r++)
        assert_int_equal(found.host_of_rank[r], r % SERVERS);
    hr__free(found.host_of_rank);
    hr__peers_destroy(&peers);
    hr__hosts_clear(&hosts);
    return NULL;
}

static void start_some(struct memcached_rank ranks[RANKS], int from, int to)
{
    for (int r = from; r < to; r++) {
        if (!ranks[r].seed)
            ranks[r].seed = "0";
        ranks[r].rank = r;
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]), 0);
    }
}

static void start(struct memcached_rank ranks[RANKS])
{
    start_some(ranks, 0, RANKS);
}

static void join(struct memcached_rank ranks[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_join(ranks[r].thread, NULL), 0);
}

static void assert_met(const struct memcached_rank ranks[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        if (ranks[r].result)
            fail_msg("rank %d: %s", r, ranks[r].error.message);
}

static void test_meet(void **state)
{
    struct memcached_rank ranks[RANKS] = {{0}}, others[RANKS] = {{0}};
    char expected[512];
    need_servers();
    start(ranks);
    join(ranks);
    assert_met(ranks);
    others[3].seed = "1";
    start(others);
    join(others);
    snprintf(expected, sizeof expected,
             "the seed: 0 at rank 0 (%s:%d), 1 (%s:%d) and 3 more; 1 at rank 3 ",
             servers[0].address, servers[0].port, servers[1].address, servers[1].port);
    for (int r = 0; r < RANKS; r++)
        if (!strstr(others[r].error.message, expected))
            fail_msg("rank %d: %s", r, others[r].error.message);
}

/* A full server, as in the second run on a dataset, still takes records. */
static void test_full(void **state)
{
    struct memcached_rank ranks[RANKS] = {{0}};
    struct hr__hosts hosts;
    struct hr__peers *peers = NULL;
    struct hr_error error;
    char *bytes = calloc(1, 100000);
    need_servers();
    assert_int_equal(hr__hosts_parse(&hosts, hosts_text, &error), 0);
    assert_int_equal(hr__peers_create(&peers, &hosts, &hr__peer_ops, &error), 0);
    for (int s = 0; s < SERVERS; s++) {
        memcached_kill(&servers[s], SIGKILL);
        memcached_restart(&servers[s]);
        int refused = 0;
        for (uint64_t i = 0; i < 2000 && !refused; i++) {
            struct hr__peer_item item = {
                .key = {i, 1}, .bytes = (uint8_t *)bytes, .length = 100000, .source_bytes = 100000};
            refused = !hr__peers_store(peers, s, &item, 1) && item.result == -ENOSPC;
        }
        assert_true(refused);
    }
    start(ranks);
    join(ranks);
    assert_met(ranks);
    hr__peers_destroy(&peers);
    hr__hosts_clear(&hosts);
    free(bytes);
}

/* Waits until ranks have written records to the first server. */
static void await_records(void)
{
    struct hr__hosts hosts;
    struct hr__peers *peers;
    struct hr__peer_about about;
    struct hr_error error;
    assert_int_equal(hr__hosts_parse(&hosts, hosts_text, &error), 0);
    assert_int_equal(hr__peers_create(&peers, &hosts, &hr__peer_ops, &error), 0);
    while (hr__peers_about(peers, 0, &about, &error) || !about.items)
        test_pause_ms(1);
    hr__peers_destroy(&peers);
    hr__hosts_clear(&hosts);
}

/* A server dies during the meeting and comes back empty before the last rank arrives; another one
 * hangs. */
static void test_faults(void **state)
{
    struct memcached_rank ranks[RANKS] = {{0}}, again[RANKS] = {{0}};
    need_servers();
    memcached_kill(&servers[0], SIGKILL);
    memcached_restart(&servers[0]);
    start_some(ranks, 0, RANKS - 1);
    await_records();
    memcached_kill(&servers[0], SIGKILL);
    memcached_restart(&servers[0]);
    await_records();
    start_some(ranks, RANKS - 1, RANKS);
    join(ranks);
    assert_met(ranks);
    memcached_kill(&servers[1], SIGSTOP);
    start(again);
    join(again);
    memcached_kill(&servers[1], SIGCONT);
    assert_met(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meet),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
