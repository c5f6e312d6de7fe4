/*
 * How ranks share a machine: single decisions, what shared memory may say, and a model of ranks
 * whose consumers wait for each other, stepped by a clock of its own.
 */
#include "../test.h"

#include "loader/balance.h"

#include <string.h>

#define MS UINT64_C(1000000)
#define T0 (UINT64_C(1000) * MS)

/* A rank with 4 workers whose consumer takes a batch every 100 ms. */
static struct hr__balance_rank rank_of(uint64_t stock, int waits)
{
    return (struct hr__balance_rank){
        .updated_ns = T0,
        .taken_ns = T0 - 50 * MS,
        .waits_ns = waits ? T0 - 40 * MS : 0,
        .period_ns = 100 * MS,
        .stock = stock,
        .work_ns = 400 * MS,
        .cores = 7,
        .base = 4,
        .active = 4,
    };
}

/* One decision of rank `self` from the beginning. */
static struct hr__balance decide(const struct hr__balance_rank *ranks, int count, int self)
{
    struct hr__balance b = {.active = (int)ranks[self].active};
    hr__balance_decide(&b, ranks, count, self, 16, T0);
    return b;
}

static void test_slack(void **state)
{
    struct hr__balance_rank r = rank_of(2000, 0);
    assert_true(hr__balance_slack_ns(&r, T0) == 150e6);
    /* A pause is not a hurry. */
    assert_true(hr__balance_slack_ns(&r, T0 + 5000 * MS) == 100e6);
    r = rank_of(500, 1);
    assert_true(hr__balance_slack_ns(&r, T0) == -90e6);
    assert_true(hr__balance_slack_ns(&r, T0 + 5000 * MS) == -150e6);
    /* A clock that others read before. */
    assert_true(hr__balance_slack_ns(&r, T0 - 500 * MS) == -50e6);
}

static void test_equal_ranks_change_nothing(void **state)
{
    const uint64_t stocks[] = {0, 300, 1000, 2000};
    for (int waits = 0; waits < 2; waits++)
        for (size_t i = 0; i < 4; i++) {
            struct hr__balance_rank ranks[3] = {
                rank_of(stocks[i], waits), rank_of(stocks[i], waits), rank_of(stocks[i], waits)};
            for (int self = 0; self < 3; self++) {
                struct hr__balance b = decide(ranks, 3, self);
                assert_int_equal(b.active, 4);
                assert_int_equal(b.shift, 0);
                assert_false(b.is_ahead);
            }
        }
}

static void test_one_alone_changes_nothing(void **state)
{
    struct hr__balance_rank ranks[1] = {rank_of(0, 1)};
    struct hr__balance b = decide(ranks, 1, 0);
    assert_int_equal(b.active, 4);
    assert_int_equal(b.shift, 0);
}

/* Nobody runs short: what is in stock may differ as it will. */
static void test_nobody_waits(void **state)
{
    struct hr__balance_rank ranks[2] = {rank_of(8000, 0), rank_of(1000, 0)};
    struct hr__balance b = decide(ranks, 2, 0);
    assert_false(b.is_ahead);
    assert_int_equal(b.active, 4);
}

/* The same at another time. */
static void move_on(struct hr__balance_rank *ranks, int count, uint64_t ns)
{
    for (int i = 0; i < count; i++) {
        ranks[i].updated_ns += ns;
        ranks[i].taken_ns += ns;
        ranks[i].waits_ns += ranks[i].waits_ns ? ns : 0;
    }
}

static void test_who_is_ahead_gives_up(void **state)
{
    struct hr__balance_rank ranks[2] = {rank_of(2000, 0), rank_of(200, 1)};
    ranks[1].work_ns = 3 * ranks[0].work_ns;
    struct hr__balance b = decide(ranks, 2, 0);
    assert_true(b.is_ahead);
    assert_int_equal(b.active, 4);
    assert_int_equal(b.shift, 1);
    /* A batch's time later it is so still. */
    move_on(ranks, 2, 100 * MS);
    hr__balance_decide(&b, ranks, 2, 0, 16, T0 + 100 * MS);
    assert_int_equal(b.active, 3);
    /* The next one once more later, and when the other has taken the first. */
    ranks[0].active = 3;
    ranks[1].active = 5;
    hr__balance_decide(&b, ranks, 2, 0, 16, T0 + 199 * MS);
    assert_int_equal(b.active, 3);
    ranks[1].active = 4;
    hr__balance_decide(&b, ranks, 2, 0, 16, T0 + 200 * MS);
    assert_int_equal(b.active, 3);
    ranks[1].active = 5;
    hr__balance_decide(&b, ranks, 2, 0, 16, T0 + 200 * MS);
    assert_int_equal(b.active, 2);
    /* With 6 for 3 times the work the other is as fast: a third one would not help. */
    ranks[0].active = 2;
    ranks[1].active = 6;
    move_on(ranks, 2, 1000 * MS);
    hr__balance_decide(&b, ranks, 2, 0, 16, T0 + 1100 * MS);
    assert_true(b.is_ahead);
    assert_int_equal(b.active, 2);
    assert_int_equal(b.shift, HR__BALANCE_SHIFT);
    /* Never below one. */
    ranks[1].work_ns *= 100;
    for (uint64_t i = 2; i < 10; i++) {
        move_on(ranks, 2, 1000 * MS);
        hr__balance_decide(&b, ranks, 2, 0, 16, T0 + 100 * MS + i * 1000 * MS);
        ranks[1].active = (uint32_t)(8 - b.active);
        ranks[0].active = (uint32_t)b.active;
    }
    assert_int_equal(b.active, 1);
    assert_int_equal(b.shift, HR__BALANCE_SHIFT);
}

static void test_who_runs_short_takes(void **state)
{
    struct hr__balance_rank ranks[2] = {rank_of(2000, 0), rank_of(200, 1)};
    struct hr__balance b = {.active = 4};
    ranks[0].active = 1;
    for (int i = 0; i < 20; i++) {
        ranks[1].active = (uint32_t)b.active;
        assert_int_equal(hr__balance_decide(&b, ranks, 2, 1, 16, T0), i < 3);
    }
    assert_int_equal(b.active, 7);
    assert_int_equal(b.shift, 0);
}

/* What is not known to help is not done; reads may be held back. */
static void test_work_that_is_equal_or_unknown(void **state)
{
    struct hr__balance_rank ranks[2] = {rank_of(2000, 0), rank_of(200, 1)};
    for (int unknown = -1; unknown < 2; unknown++) {
        ranks[0].work_ns = unknown == 0 ? 0 : 400 * MS;
        ranks[1].work_ns = unknown == 1 ? 0 : 400 * MS;
        struct hr__balance b = decide(ranks, 2, 0);
        assert_true(b.is_ahead);
        assert_int_equal(b.active, 4);
        assert_int_equal(b.shift, 1);
    }
}

static void test_no_more_than_there_are(void **state)
{
    struct hr__balance_rank ranks[2] = {rank_of(200, 1), rank_of(2000, 0)};
    ranks[1].active = 1;
    struct hr__balance b = {.active = 4};
    for (int i = 0; i < 5; i++) {
        ranks[0].active = (uint32_t)b.active;
        hr__balance_decide(&b, ranks, 2, 0, 5, T0);
    }
    assert_int_equal(b.active, 5);
}

/* Of three the most urgent takes; the one in between keeps what it has. */
static void test_the_most_urgent_takes(void **state)
{
    struct hr__balance_rank ranks[3] = {rank_of(2000, 0), rank_of(800, 1), rank_of(0, 1)};
    ranks[0].active = 2;
    assert_int_equal(decide(ranks, 3, 1).active, 4);
    assert_int_equal(decide(ranks, 3, 2).active, 5);
}

static void test_hysteresis(void **state)
{
    struct hr__balance_rank ranks[2] = {rank_of(700, 0), rank_of(0, 1)};
    ranks[1].waits_ns = T0;
    /* The gap is 1.2 batches' time, then 0.7, then 0.4. */
    struct hr__balance b = decide(ranks, 2, 0);
    assert_true(b.is_ahead);
    ranks[0].stock = 200;
    uint64_t now_ns = T0 + 1900 * MS;
    for (int i = 0; i < 2; i++) {
        ranks[i].updated_ns = now_ns;
        ranks[i].taken_ns = now_ns - 50 * MS;
    }
    ranks[1].waits_ns = now_ns;
    ranks[0].active = (uint32_t)b.active;
    hr__balance_decide(&b, ranks, 2, 0, 16, now_ns);
    assert_true(b.is_ahead);
    struct hr__balance fresh = {.active = 4};
    hr__balance_decide(&fresh, ranks, 2, 0, 16, now_ns);
    assert_false(fresh.is_ahead);
    ranks[1].stock = 300;
    b.is_known[0] = b.is_known[1] = 0;
    hr__balance_decide(&b, ranks, 2, 0, 16, now_ns);
    assert_false(b.is_ahead);
    assert_int_equal(b.shift, 0);
}

/* Somebody died with workers of others, or those of others died: all come back. */
static void test_workers_come_back(void **state)
{
    struct hr__balance_rank ranks[2] = {rank_of(500, 1), {.updated_ns = 0}};
    ranks[0].active = 1;
    struct hr__balance b = {.active = 1};
    ranks[1] = rank_of(500, 1);
    for (int i = 0; i < 10; i++) {
        hr__balance_decide(&b, ranks, 2, 0, 16, T0);
        ranks[0].active = (uint32_t)b.active;
    }
    assert_int_equal(b.active, 4);
    ranks[1].updated_ns = 0;
    b.active = 7;
    for (int i = 0; i < 10; i++) {
        ranks[0].active = (uint32_t)b.active;
        hr__balance_decide(&b, ranks, 2, 0, 16, T0);
    }
    assert_int_equal(b.active, 4);
}

static void test_the_silent_are_not_waited_for(void **state)
{
    struct hr__balance_rank ranks[2] = {rank_of(2000, 0), rank_of(0, 1)};
    ranks[1].updated_ns = T0 - HR__BALANCE_STALE_NS - 1;
    assert_false(decide(ranks, 2, 0).is_ahead);
    ranks[1] = rank_of(0, 1);
    ranks[1].updated_ns = T0 + HR__BALANCE_STALE_NS + 1;
    assert_false(decide(ranks, 2, 0).is_ahead);
    ranks[1] = rank_of(0, 1);
    ranks[1].taken_ns = 0; /* between epochs */
    assert_false(decide(ranks, 2, 0).is_ahead);
    ranks[1] = rank_of(0, 1);
    ranks[1].period_ns = 0;
    assert_false(decide(ranks, 2, 0).is_ahead);
    ranks[1] = rank_of(0, 1);
    assert_true(decide(ranks, 2, 0).is_ahead);
}

/* Ranks that are bound to other cores have nothing of each other's threads, but share storage. */
static void test_other_cores(void **state)
{
    struct hr__balance_rank ranks[2] = {rank_of(2000, 0), rank_of(0, 1)};
    ranks[1].cores = 8;
    ranks[1].work_ns *= 10;
    struct hr__balance b = decide(ranks, 2, 0);
    assert_int_equal(b.active, 4);
    assert_int_equal(b.shift, 1);
    ranks[0].active = 1;
    assert_int_equal(decide(ranks, 2, 1).active, 4);
}

/* Whatever is in shared memory, decisions stay within their limits. */
static void test_any_bytes(void **state)
{
    struct hr__balance_rank ranks[HR__BALANCE_RANKS];
    uint64_t x = 88172645463325252u;
    struct hr__balance b = {.active = 4};
    for (int round = 0; round < 2000; round++) {
        uint64_t words[(sizeof ranks) / (sizeof(uint64_t))];
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            words[i] = x % 4 == 0 ? x : x % 4 == 1 ? T0 - x % (4000 * MS) : x % 4 == 2 ? 0 : x % 9;
        }
        memcpy(ranks, words, sizeof ranks);
        int self = round % HR__BALANCE_RANKS, before = b.active;
        hr__balance_decide(&b, ranks, HR__BALANCE_RANKS, self, 16, T0 + (uint64_t)round * MS);
        assert_in_range(b.active, 1, 16);
        assert_in_range(b.shift, 0, HR__BALANCE_SHIFT);
        assert_in_range(b.active - before + 1, 0, 2);
        for (int i = 0; i < HR__BALANCE_RANKS; i++)
            assert_true(!b.is_known[i] || (b.slack_ns[i] > -2e11 && b.slack_ns[i] < 1e14));
    }
    b = (struct hr__balance){.active = 4};
    assert_int_equal(hr__balance_decide(&b, ranks, HR__BALANCE_RANKS, HR__BALANCE_RANKS, 16, T0),
                     0);
    assert_int_equal(hr__balance_decide(&b, ranks, 4, -1, 16, T0), 0);
}

/* ---- a model ---- */

#define MODEL_RANKS 3
#define BATCH       32
#define AHEAD       2
#define CORES       12

/* Ranks with workers that prepare samples, each at so many a millisecond and worker, two batches
 * ahead; consumers compute for a while and then wait for each other. */
struct model {
    int ranks;
    double cost_ms[MODEL_RANKS];
    double done[MODEL_RANKS]; /* samples that are ready, in front of the consumer */
    int waits[MODEL_RANKS], arrived[MODEL_RANKS];
    uint64_t begun_ns[MODEL_RANKS], waited_ns[MODEL_RANKS];
    uint64_t steps;
    int is_balanced;
    uint64_t moves; /* of workers */
    uint64_t random;
    struct hr__balance balance[MODEL_RANKS];
    struct hr__balance_rank said[MODEL_RANKS];
};

static double jitter(struct model *m)
{
    m->random = m->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return 0.5 + (double)(m->random >> 40) / (double)(1 << 24);
}

/* One millisecond. */
static void model_step(struct model *m, uint64_t now_ns, uint64_t compute_ns)
{
    int all = 1, active = 0;
    for (int i = 0; i < m->ranks; i++)
        active += m->balance[i].active;
    assert_true(active <= CORES);
    for (int i = 0; i < m->ranks; i++) {
        m->done[i] += m->balance[i].active / m->cost_ms[i] * jitter(m);
        if (m->done[i] > AHEAD * BATCH)
            m->done[i] = AHEAD * BATCH;
        struct hr__balance_rank *r = &m->said[i];
        if (m->arrived[i])
            continue;
        if (!m->waits[i] && now_ns - m->begun_ns[i] >= compute_ns) {
            m->waits[i] = 1;
            r->waits_ns = now_ns;
        }
        if (m->waits[i] && m->done[i] >= BATCH) {
            m->done[i] -= BATCH;
            m->waits[i] = 0;
            m->arrived[i] = 1;
            m->waited_ns[i] += now_ns - r->waits_ns;
            uint64_t took_ns = now_ns - r->taken_ns;
            r->period_ns = r->period_ns ? (7 * r->period_ns + took_ns) / 8 : took_ns;
            r->taken_ns = now_ns;
            r->waits_ns = 0;
        }
    }
    for (int i = 0; i < m->ranks; i++)
        all &= m->arrived[i];
    for (int i = 0; i < m->ranks && all; i++) {
        m->arrived[i] = 0;
        m->begun_ns[i] = now_ns;
    }
    m->steps += all != 0;
    for (int i = 0; i < m->ranks; i++) {
        m->said[i].updated_ns = now_ns;
        m->said[i].stock = (uint64_t)(m->done[i] / BATCH * 1000);
        m->said[i].active = (uint32_t)m->balance[i].active;
        m->said[i].work_ns = (uint64_t)(m->cost_ms[i] * BATCH * 1e6 * (0.95 + 0.1 * jitter(m)));
    }
    for (int i = 0; i < m->ranks && m->is_balanced; i++)
        if ((now_ns / MS + (uint64_t)i * 3) % 10 == 0) {
            int before = m->balance[i].active;
            hr__balance_decide(&m->balance[i], m->said, m->ranks, i,
                               HR__BALANCE_MOST * CORES / m->ranks, now_ns);
            m->moves += m->balance[i].active != before;
            m->said[i].active = (uint32_t)m->balance[i].active;
        }
}

/* Steps of training in so many seconds. */
static void model_run(struct model *m, int ranks, const double *cost_ms, int balanced, int seconds)
{
    memset(m, 0, sizeof *m);
    m->ranks = ranks;
    m->is_balanced = balanced;
    m->random = 42;
    for (int i = 0; i < ranks; i++) {
        m->cost_ms[i] = cost_ms[i];
        m->balance[i].active = CORES / ranks;
        m->begun_ns[i] = T0;
        m->said[i] = (struct hr__balance_rank){.taken_ns = T0, .base = (uint32_t)(CORES / ranks)};
    }
    for (uint64_t ms = 1; ms <= (uint64_t)seconds * 1000; ms++)
        model_step(m, T0 + ms * MS, 20 * MS);
}

/* A rank whose samples cost three times as much gets most of the workers, as many as it should;
 * it waits less, and all are faster. */
static void test_model_of_an_expensive_rank(void **state)
{
    const int best[] = {9, 7}; /* or one less: of 12 workers by 3:1, and by 3:1:1 */
    const double cost[MODEL_RANKS] = {30, 10, 10};
    for (int ranks = 2; ranks <= 3; ranks++) {
        struct model alone, together, longer;
        model_run(&alone, ranks, cost, 0, 60);
        model_run(&together, ranks, cost, 1, 60);
        model_run(&longer, ranks, cost, 1, 120);
        assert_in_range(together.balance[0].active, best[ranks - 2] - 1, best[ranks - 2]);
        assert_true((double)together.steps > 1.3 * (double)alone.steps);
        assert_true(together.waited_ns[0] / together.steps <
                    alone.waited_ns[0] / alone.steps * 7 / 10);
        /* It settles. */
        assert_in_range(together.moves, 1, 12);
        assert_in_range(longer.moves - together.moves, 0, 4);
    }
}

/* Costs change in the middle: the workers go back, and to the other side. */
static void test_model_of_a_change(void **state)
{
    const double cost[MODEL_RANKS] = {30, 10};
    struct model m;
    model_run(&m, 2, cost, 1, 30);
    assert_in_range(m.balance[0].active, 8, 9);
    m.cost_ms[0] = 10;
    m.cost_ms[1] = 30;
    for (uint64_t ms = 30001; ms <= 60000; ms++)
        model_step(&m, T0 + ms * MS, 20 * MS);
    assert_in_range(m.balance[1].active, 8, 9);
    assert_int_equal(m.balance[0].active + m.balance[1].active, CORES);
}

/* Equal ranks that all run short, or none does, keep what they have. */
static void test_model_of_equal_ranks(void **state)
{
    const double costs[][MODEL_RANKS] = {{20, 20, 20}, {1, 1, 1}, {60, 60, 60}};
    for (size_t i = 0; i < 3; i++) {
        struct model m;
        model_run(&m, 3, costs[i], 1, 60);
        assert_int_equal(m.moves, 0);
        for (int rank = 0; rank < 3; rank++)
            assert_int_equal(m.balance[rank].active, 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slack),
        cmocka_unit_test(test_equal_ranks_change_nothing),
        cmocka_unit_test(test_one_alone_changes_nothing),
        cmocka_unit_test(test_nobody_waits),
        cmocka_unit_test(test_who_is_ahead_gives_up),
        cmocka_unit_test(test_who_runs_short_takes),
        cmocka_unit_test(test_work_that_is_equal_or_unknown),
        cmocka_unit_test(test_no_more_than_there_are),
        cmocka_unit_test(test_the_most_urgent_takes),
        cmocka_unit_test(test_hysteresis),
        cmocka_unit_test(test_workers_come_back),
        cmocka_unit_test(test_the_silent_are_not_waited_for),
        cmocka_unit_test(test_other_cores),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_model_of_an_expensive_rank),
        cmocka_unit_test(test_model_of_a_change),
        cmocka_unit_test(test_model_of_equal_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
