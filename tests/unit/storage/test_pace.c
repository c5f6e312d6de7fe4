/*
 * The bound of requests in flight, on simulated stores with a set clock: a latency that overlaps,
 * and a link on which answers follow each other. As many requests are in flight as the bound
 * allows.
 */
#include "../test.h"

#include "storage/pace.h"

#define LEAST     16
#define MOST      256
#define SECOND_NS UINT64_C(1000000000)
#define MS        UINT64_C(1000000)

/* Answers end in the order of their requests. */
struct pace_store {
    uint64_t latency_ns;
    uint64_t each_ns; /* that an answer takes on the link; 0: nothing */
    uint64_t now_ns, free_ns;
    uint64_t begun_ns[MOST], end_ns[MOST]; /* of the requests in flight, a ring */
    unsigned first, in_flight, longest;
};

static void fill(struct pace_store *s, unsigned bound)
{
    for (; s->in_flight < bound; s->in_flight++) {
        unsigned at = (s->first + s->in_flight) % MOST;
        uint64_t from_ns = s->now_ns + s->latency_ns;
        s->free_ns = (s->free_ns > from_ns ? s->free_ns : from_ns) + s->each_ns;
        s->begun_ns[at] = s->now_ns;
        s->end_ns[at] = s->free_ns;
    }
}

/* Runs for a while. Returns the answers. */
static uint64_t run(struct pace_store *s, struct hr__pace *pace, uint64_t ns)
{
    uint64_t until_ns = s->now_ns + ns, answers = 0;
    for (s->longest = 0; s->now_ns < until_ns; answers++) {
        fill(s, hr__pace_now(pace));
        assert_in_range(hr__pace_now(pace), LEAST, MOST);
        if (s->longest < hr__pace_now(pace))
            s->longest = hr__pace_now(pace);
        if (s->end_ns[s->first] > s->now_ns)
            s->now_ns = s->end_ns[s->first];
        struct hr__pace_sum ended = {1, s->now_ns - s->begun_ns[s->first]};
        s->first = (s->first + 1) % MOST;
        s->in_flight--;
        hr__pace_note(pace, &ended, s->now_ns);
    }
    return answers;
}

static void begin(struct pace_store *s, struct hr__pace *pace, uint64_t latency_ns,
                  uint64_t each_ns)
{
    *s = (struct pace_store){
        .latency_ns = latency_ns, .each_ns = each_ns, .now_ns = SECOND_NS, .free_ns = SECOND_NS};
    hr__pace_init(pace, LEAST, MOST);
    assert_int_equal(hr__pace_now(pace), MOST);
}

/* A link that holds 41 answers: the bound is twice that, and stays so for minutes. */
static void test_link(void **state)
{
    struct hr__pace pace;
    struct pace_store s;
    (void)state;
    begin(&s, &pace, 40 * MS, 1 * MS);
    run(&s, &pace, 12 * SECOND_NS);
    for (int i = 0; i < 20; i++) {
        uint64_t answers = run(&s, &pace, 10 * SECOND_NS);
        assert_in_range(s.longest, 78, 90);
        /* the probes cost little */
        assert_in_range(answers, 9850, 10001);
    }
}

/* No link is in the way: all that is allowed, all the time but in probes. */
static void test_far(void **state)
{
    struct hr__pace pace;
    struct pace_store s;
    (void)state;
    begin(&s, &pace, 200 * MS, 0);
    run(&s, &pace, 12 * SECOND_NS);
    assert_in_range(run(&s, &pace, 100 * SECOND_NS), 100 * 5 * MOST * 9 / 10, 100 * 5 * MOST);
    assert_int_equal(s.longest, MOST);
}

/* The link holds less than the least: each probe takes the bound further down, and not below it. */
static void test_near(void **state)
{
    struct hr__pace pace;
    struct pace_store s;
    (void)state;
    begin(&s, &pace, MS / 10, MS / 5);
    run(&s, &pace, 60 * SECOND_NS);
    run(&s, &pace, 30 * SECOND_NS);
    assert_in_range(s.longest, LEAST, 2 * LEAST);
}

/* Begun small, as after a time with few requests, the bound grows to what the link holds. */
static void test_grows(void **state)
{
    struct hr__pace pace;
    struct pace_store s;
    (void)state;
    begin(&s, &pace, 100 * MS, 1 * MS);
    pace.now = LEAST;
    run(&s, &pace, 5 * SECOND_NS);
    assert_in_range(hr__pace_now(&pace), 190, 220);
}

/* A link or a way that changes is followed, both ways. */
static void test_follows(void **state)
{
    struct hr__pace pace;
    struct pace_store s;
    (void)state;
    begin(&s, &pace, 40 * MS, 1 * MS);
    run(&s, &pace, 15 * SECOND_NS);
    s.each_ns = 2 * MS;
    run(&s, &pace, 35 * SECOND_NS);
    assert_in_range(hr__pace_now(&pace), 36, 50);
    s.each_ns = MS / 2;
    run(&s, &pace, 15 * SECOND_NS);
    assert_in_range(hr__pace_now(&pace), 145, 185);
    s.latency_ns = 10 * MS;
    run(&s, &pace, 35 * SECOND_NS);
    assert_in_range(hr__pace_now(&pace), 36, 50);
    s.latency_ns = 60 * MS;
    run(&s, &pace, 35 * SECOND_NS);
    assert_in_range(hr__pace_now(&pace), 220, MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link),  cmocka_unit_test(test_far),     cmocka_unit_test(test_near),
        cmocka_unit_test(test_grows), cmocka_unit_test(test_follows),
    };
    return cmocka_run_group_tests_name("storage-pace", tests, NULL, NULL);
}
