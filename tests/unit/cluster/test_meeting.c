/*
 * Meetings of ranks, as threads that share in-memory servers and a clock of their own: ranks that
 * arrive in time, late, never, twice or again; with different inputs; on servers that are down,
 * start later, or lose their items.
 */
#include "../test.h"

#include "base/memory.h"
#include "cluster/meeting.h"
#include "cluster/meeting_record.h"
#include "fake_servers.h"
#include "stepped_clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS  128
#define INPUTS 4

static const char *const hosts_texts[] = {
    "",
    "memcached:alpha:1?size=1GiB&timeout=100ms",
    "memcached:alpha:1,beta:2?size=1GiB&timeout=100ms",
    "memcached:alpha:1,beta:2,gamma:3?size=1GiB&timeout=100ms",
};

/* A process of the job. */
struct meeting_rank {
    struct hr__meeting_wish wish;
    struct hr__meeting_input inputs[INPUTS];
    const char *hosts;
    long late_ms;
    int again; /* number of further meetings, one after the other */
    atomic_int stop;
    /* out */
    int result;
    struct hr_error error;
    int host_of_rank[RANKS];
    struct stepped_thread thread;
};

static struct meeting_rank ranks[RANKS];

static int teardown(void **state)
{
    fake_servers_reset();
    assert_int_equal(hr__allocated(HR__TAG_CACHE), 0);
    return 0;
}

/* Makes `count` ranks with the same inputs on `hosts` hosts. */
static void make(int count, int hosts)
{
    fake_servers_reset();
    memset(ranks, 0, sizeof ranks);
    for (int r = 0; r < count; r++) {
        struct meeting_rank *rank = &ranks[r];
        const struct hr__meeting_input inputs[INPUTS] = {
            {"the seed", "0", NULL},
            {"the batch size", "64", "give all ranks one batch size"},
            {"the host list", "alpha, beta", NULL},
            {"the dataset", "1,000 samples", NULL}};
        memcpy(rank->inputs, inputs, sizeof inputs);
        rank->hosts = hosts_texts[hosts];
        rank->wish = (struct hr__meeting_wish){.job = "test",
                                               .rank = r,
                                               .world_size = count,
                                               .host = r * hosts / count,
                                               .inputs = rank->inputs,
                                               .input_count = INPUTS,
                                               .limit_s = 20,
                                               .stop = &rank->stop};
    }
}

static void *run_rank(void *arg)
{
    struct meeting_rank *rank = arg;
    struct hr__hosts hosts;
    struct hr__peers *peers = NULL;
    struct hr__meeting_found found = {NULL};
    stepped_sleep_ms(rank->late_ms);
    rank->result = hr__hosts_parse(&hosts, rank->hosts, &rank->error);
    if (!rank->result)
        rank->result = hr__peers_create(&peers, &hosts, &fake_peer_ops, &rank->error);
    for (int i = 0; !rank->result && i <= rank->again; i++) {
        hr__free(found.host_of_rank);
        rank->result = hr__meeting_run(peers, &hosts, &rank->wish, &found, &rank->error);
    }
    if (!rank->result)
        memcpy(rank->host_of_rank, found.host_of_rank, sizeof(int) * (size_t)rank->wish.world_size);
    hr__free(found.host_of_rank);
    hr__peers_destroy(&peers);
    hr__hosts_clear(&hosts);
    return NULL;
}

static void start(int first, int end)
{
    for (int r = first; r < end; r++)
        stepped_start(&ranks[r].thread, run_rank, &ranks[r]);
}

static void join(int first, int end)
{
    for (int r = first; r < end; r++)
        stepped_join(&ranks[r].thread);
}

static void assert_met(int first, int end)
{
    for (int r = first; r < end; r++) {
        if (ranks[r].result)
            fail_msg("rank %d: %d %s", r, ranks[r].result, ranks[r].error.message);
        for (int i = 0; i < ranks[r].wish.world_size; i++)
            assert_int_equal(ranks[r].host_of_rank[i], ranks[i].wish.host);
    }
}

static void assert_failed(int rank, int code, const char *text)
{
    if (ranks[rank].result != code || !strstr(ranks[rank].error.message, text))
        fail_msg("rank %d: %d, not \"%s\": %s", rank, ranks[rank].result, text,
                 ranks[rank].error.message);
}

static void meet(int count)
{
    start(0, count);
    join(0, count);
}

static void test_all_come(void **state)
{
    for (int count = 1; count <= 8; count++)
        for (int hosts = 1; hosts <= 3 && hosts <= count; hosts++) {
            make(count, hosts);
            if (count == 5)
                ranks[4].wish.host = -1;
            meet(count);
            assert_met(0, count);
        }
}

/* Two of eight ranks differ: for each input, all ranks report the same. */
static void test_differences(void **state)
{
    static const char *const text[INPUTS] = {
        "do not agree on the seed: 0 at rank 0 (alpha:1), 1 (alpha:1) and 4 more; other at rank 2 "
        "(alpha:1), 5 (beta:2): make them equal",
        "do not agree on the batch size: 64 at rank 0 (alpha:1), 1 (alpha:1) and 4 more; other at "
        "rank 2 (alpha:1), 5 (beta:2): give all ranks one batch size",
        "do not agree on the host list: alpha, beta at rank 0 (alpha:1)",
        "do not agree on the dataset: 1,000 samples at rank 0",
    };
    for (int i = 0; i < INPUTS; i++) {
        make(8, 2);
        ranks[2].inputs[i].value = ranks[5].inputs[i].value = "other";
        meet(8);
        for (int r = 0; r < 8; r++) {
            assert_failed(r, -EINVAL, text[i]);
            assert_string_equal(ranks[r].error.message, ranks[0].error.message);
        }
    }
}

static void test_several_differences(void **state)
{
    make(4, 2);
    ranks[3].inputs[0].value = "1";
    ranks[3].inputs[3].value = "999 samples";
    ranks[1].inputs[1].value = "32";
    meet(4);
    for (int r = 0; r < 4; r++) {
        assert_failed(
            r, -EINVAL,
            "the seed: 0 at rank 0 (alpha:1), 1 (alpha:1) and 1 more; 1 at rank 3 (beta:2): "
            "make them equal. They differ, too, in the batch size, the dataset");
    }
    /* One rank has an input that the others do not know: another version of the library. */
    make(3, 1);
    ranks[1].inputs[3].name = "the weather";
    meet(3);
    for (int r = 0; r < 3; r++) {
        assert_failed(r, -EINVAL,
                      "the dataset: 1,000 samples at rank 0 (alpha:1), 2 (alpha:1); "
                      "nothing at rank 1 (alpha:1)");
        assert_failed(r, -EINVAL, "They differ, too, in the weather");
    }
    /* All ranks differ. */
    make(8, 1);
    static const char *const values[] = {"10", "11", "12", "13", "14", "15", "16", "17"};
    for (int r = 0; r < 8; r++)
        ranks[r].inputs[0].value = values[r];
    meet(8);
    for (int r = 0; r < 8; r++)
        assert_failed(r, -EINVAL, "10 at rank 0 (alpha:1); 11 at rank 1 (alpha:1); 12 at rank 2");
}

/* Long values are truncated in messages, and distinguished nevertheless. */
static void test_long_values(void **state)
{
    char values[2][4000];
    for (int i = 0; i < 2; i++) {
        memset(values[i], 'x', sizeof values[i]);
        values[i][10] = '\n';
        values[i][sizeof values[i] - 2] = (char)('a' + i);
        values[i][sizeof values[i] - 1] = 0;
    }
    make(2, 1);
    ranks[0].inputs[1].value = ranks[1].inputs[1].value = values[0];
    meet(2);
    assert_met(0, 2);
    make(2, 1);
    ranks[0].inputs[1].value = values[0];
    ranks[1].inputs[1].value = values[1];
    meet(2);
    for (int r = 0; r < 2; r++)
        assert_failed(r, -EINVAL, "the batch size: xxxxxxxxxx xxx");
}

/* Records of earlier runs do not disturb later ones, however those ended. */
static void test_stale(void **state)
{
    make(4, 2);
    ranks[1].inputs[0].value = "7";
    meet(4);
    assert_failed(0, -EINVAL, "the seed");
    for (int r = 0; r < 4; r++)
        ranks[r].inputs[0].value = "8";
    meet(4);
    assert_met(0, 4);
    /* A meeting that three of four ranks attended. */
    for (int r = 0; r < 4; r++) {
        ranks[r].inputs[0].value = "9";
        ranks[r].wish.limit_s = 1;
    }
    start(0, 3);
    join(0, 3);
    for (int r = 0; r < 3; r++)
        assert_failed(r, -ETIMEDOUT, "before the first batch for rank 3 of 4");
    for (int r = 0; r < 4; r++) {
        ranks[r].inputs[0].value = "10";
        ranks[r].wish.limit_s = 20;
    }
    meet(4);
    assert_met(0, 4);
    /* Then a meeting with another number of ranks. */
    for (int r = 0; r < 3; r++)
        ranks[r].wish.world_size = 3;
    start(0, 3);
    join(0, 3);
    assert_met(0, 3);
}

/* The same job meets several times in a row, each rank at its own pace: no rank is left behind. */
static void test_again(void **state)
{
    make(5, 2);
    for (int r = 0; r < 5; r++)
        ranks[r].again = 30;
    meet(5);
    assert_met(0, 5);
}

static void test_servers_down(void **state)
{
    make(6, 3);
    fake_server_set_down(0, 1);
    meet(6);
    assert_met(0, 6);
    make(6, 3);
    fake_server_set_down(0, 1);
    fake_server_set_down(2, 1);
    meet(6);
    assert_met(0, 6);
    /* A single rank needs no server. */
    make(1, 3);
    for (int s = 0; s < 3; s++)
        fake_server_set_down(s, 1);
    meet(1);
    assert_met(0, 1);
}

static void test_all_down(void **state)
{
    make(3, 2);
    fake_server_set_down(0, 1);
    fake_server_set_down(1, 1);
    for (int r = 0; r < 3; r++)
        ranks[r].wish.limit_s = 1;
    meet(3);
    for (int r = 0; r < 3; r++)
        assert_failed(r, -ETIMEDOUT, "no server answers: alpha:1, beta:2");
    assert_failed(1, -ETIMEDOUT,
                  "rank 1 (alpha:1) waited 1 s before the first batch for ranks 0, 2");
}

/* Servers that start while ranks wait, or lose their items. */
static void test_servers_come_up(void **state)
{
    make(4, 2);
    fake_server_set_down(0, 1);
    fake_server_set_down(1, 1);
    start(0, 4);
    stepped_sleep_ms(300);
    fake_server_set_down(1, 0);
    join(0, 4);
    assert_met(0, 4);
    make(4, 2);
    ranks[3].late_ms = 500;
    start(0, 4);
    stepped_sleep_ms(250);
    fake_server_empty(0);
    fake_server_empty(1);
    join(0, 4);
    assert_met(0, 4);
}

static void test_late(void **state)
{
    make(8, 3);
    ranks[6].late_ms = 700;
    meet(8);
    assert_met(0, 8);
}

static void test_missing(void **state)
{
    make(8, 2);
    for (int r = 0; r < 8; r++)
        ranks[r].wish.limit_s = 1;
    fake_server_set_down(1, 1);
    start(0, 2);
    start(4, 7);
    join(0, 2);
    join(4, 7);
    assert_failed(0, -ETIMEDOUT, "for ranks 2-3, 7 of 8; servers that do not answer: beta:2");
    assert_failed(5, -ETIMEDOUT, "&meet= gives them more time");
}

/* Ranks without a common server do not meet, and report the servers that they can reach. */
static void test_apart(void **state)
{
    make(2, 2);
    ranks[0].hosts = "memcached:alpha:1,beta:7?size=1GiB&timeout=100ms";
    ranks[1].hosts = "memcached:alpha:8,beta:2?size=1GiB&timeout=100ms";
    fake_server_set_down(6, 1);
    fake_server_set_down(7, 1);
    ranks[0].wish.limit_s = ranks[1].wish.limit_s = 1;
    meet(2);
    assert_failed(0, -ETIMEDOUT, "for rank 1 of 2; servers that do not answer: beta:7");
    assert_failed(1, -ETIMEDOUT, "for rank 0 of 2; servers that do not answer: alpha:8");
    /* With one server in common they meet, though their own servers differ. */
    make(3, 3);
    for (int s = 3; s < 6; s++)
        fake_server_set_down(s, 1);
    ranks[0].hosts = "memcached:alpha:1,beta:4,gamma:3?size=1GiB&timeout=100ms";
    ranks[1].hosts = "memcached:alpha:5,beta:2,gamma:3?size=1GiB&timeout=100ms";
    ranks[2].hosts = "memcached:alpha:1,beta:6,gamma:3?size=1GiB&timeout=100ms";
    meet(3);
    assert_met(0, 3);
}

static void test_cancel(void **state)
{
    make(3, 2);
    start(0, 2);
    stepped_sleep_ms(100);
    atomic_store(&ranks[0].stop, 1);
    join(0, 1);
    assert_int_equal(ranks[0].result, -ECANCELED);
    atomic_store(&ranks[1].stop, 1);
    join(1, 2);
    assert_int_equal(ranks[1].result, -ECANCELED);
    /* A cancelled meeting does not disturb the next. */
    make(1, 1);
    atomic_store(&ranks[0].stop, 1);
    meet(1);
    assert_int_equal(ranks[0].result, -ECANCELED);
}

static void test_twice(void **state)
{
    make(3, 1);
    ranks[2].wish.rank = 1;
    ranks[2].wish.host = -1;
    for (int r = 0; r < 3; r++)
        ranks[r].wish.limit_s = 1;
    meet(3);
    /* The rank whose number was taken reports that; the other waits for the missing rank. */
    int which = ranks[1].result == -EINVAL ? 1 : 2;
    assert_failed(which, -EINVAL, "two processes are rank 1 of this job, on ");
}

static void test_other_world(void **state)
{
    make(4, 1);
    ranks[1].wish.world_size = 8;
    for (int r = 0; r < 4; r++)
        ranks[r].wish.limit_s = 8;
    start(0, 3);
    join(0, 3);
    assert_failed(
        0, -EINVAL,
        "do not agree on the number of ranks: 4 at rank 0 (alpha:1), 8 at rank 1 (alpha:1)");
    assert_failed(1, -EINVAL, "8 at rank 1 (alpha:1), 4 at rank ");
}

/* A dead rank of a job with another number of ranks has left other records on other servers, and
 * one such rank arrives late: records with another number of ranks are ignored. */
static void test_left_by_another_world(void **state)
{
    struct hr__meeting_record stale = {
        .world_size = 3, .run = 7, .writing = 1, .number = 5, .inputs = 5, .place = "alpha:1"};
    char key[HR__MEETING_KEY], text[HR__MEETING_RECORD];
    make(2, 2);
    hr__meeting_rank_key(key, "test", 1);
    for (int server = 0; server < 2; server++, stale.writing++) {
        assert_int_equal(hr__meeting_record_write(text, &stale), 0);
        fake_server_put(server, key, text);
    }
    start(0, 1);
    stepped_sleep_ms(300);
    stale.writing++;
    assert_int_equal(hr__meeting_record_write(text, &stale), 0);
    fake_server_put(0, key, text);
    stepped_sleep_ms(300);
    start(1, 2);
    join(0, 2);
    assert_met(0, 2);
}

/* Anything else in place of a record is ignored. */
static void test_garbage(void **state)
{
    struct hr__meeting_record stale = {.world_size = 2,
                                       .number = 5,
                                       .inputs = 5,
                                       .agreed = 5,
                                       .before_number = 5,
                                       .before_inputs = 5,
                                       .before_agreed = 5,
                                       .place = "alpha:1"};
    char key[HR__MEETING_KEY], of_another[HR__MEETING_RECORD], unnumbered[HR__MEETING_RECORD];
    assert_int_equal(hr__meeting_record_write(of_another, &stale), 0);
    stale.number = 0;
    assert_int_equal(hr__meeting_record_write(unnumbered, &stale), 0);
    const char *const texts[] = {"",         "hr1",      unnumbered,
                                 "\xff\xfe", of_another, "hr1 2 0 0 0 5 5 5 5 5 5 alpha:1"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        make(2, 1);
        for (int r = 0; r < 2; r++) {
            hr__meeting_rank_key(key, "test", r);
            fake_server_put(0, key, texts[i]);
        }
        meet(2);
        assert_met(0, 2);
    }
    make(2, 1);
    ranks[0].wish.limit_s = 1;
    hr__meeting_rank_key(key, "test", 1);
    fake_server_put(0, key, of_another);
    start(0, 1);
    join(0, 1);
    assert_failed(0, -ETIMEDOUT, "for rank 1 of 2");
}

/* A rank that waits long asks rarely; many ranks that come at once do not ask too often. */
static void test_cost(void **state)
{
    make(2, 1);
    ranks[0].wish.world_size = 1024;
    ranks[0].wish.limit_s = 2;
    start(0, 1);
    join(0, 1);
    struct fake_counts counts = fake_server_counts(0);
    assert_int_equal(ranks[0].result, -ETIMEDOUT);
    assert_failed(0, -ETIMEDOUT, "for ranks 1-1023 of 1024");
    if (counts.keys > 20 * 1024 || counts.puts > 20)
        fail_msg("%d gets of %d keys, %d puts", (int)counts.gets, (int)counts.keys,
                 (int)counts.puts);
    make(RANKS, 2);
    meet(RANKS);
    assert_met(0, RANKS);
    uint64_t keys = fake_server_counts(0).keys + fake_server_counts(1).keys;
    assert_true(keys < 40 * RANKS * RANKS);
}

static void test_wrong_wishes(void **state)
{
    make(2, 1);
    ranks[0].wish.rank = 2;
    ranks[1].wish.world_size = 0;
    meet(2);
    assert_failed(0, -EINVAL, "rank 2 is not in a world of 2 ranks");
    assert_failed(1, -EINVAL, "a world of 0 ranks cannot meet");
    make(1, 1);
    ranks[0].wish.input_count = HR__MEETING_INPUTS + 1;
    meet(1);
    assert_failed(0, -EINVAL, "inputs cannot be compared");
}

static void test_no_memory(void **state)
{
    struct hr__hosts hosts;
    struct hr__peers *peers = NULL;
    struct hr_error error;
    int failures = 0, r;
    make(1, 1);
    assert_int_equal(hr__hosts_parse(&hosts, hosts_texts[1], &error), 0);
    assert_int_equal(hr__peers_create(&peers, &hosts, &fake_peer_ops, &error), 0);
    do {
        struct hr__meeting_found found = {NULL};
        hr__alloc_fail_at((uint64_t)failures + 1, 0);
        r = hr__meeting_run(peers, &hosts, &ranks[0].wish, &found, &error);
        assert_true(!r || r == -ENOMEM);
        assert_int_equal(!r, found.host_of_rank != NULL);
        hr__free(found.host_of_rank);
        failures += r != 0;
    } while (r && failures < 50);
    hr__alloc_fail_at(0, 0);
    assert_int_equal(r, 0);
    assert_true(failures >= 8);
    hr__peers_destroy(&peers);
    hr__hosts_clear(&hosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_come),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_several_differences),
        cmocka_unit_test(test_long_values),
        cmocka_unit_test(test_stale),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_servers_down),
        cmocka_unit_test(test_all_down),
        cmocka_unit_test(test_servers_come_up),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_other_world),
        cmocka_unit_test(test_left_by_another_world),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_wrong_wishes),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
