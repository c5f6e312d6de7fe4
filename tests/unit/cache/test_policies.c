/* The simulator of bench/policies.c: Belady's rule is compared with trying every choice, the others
 * with what is known about them. */
#include "policies_fixture.h"

#include "base/memory.h"
#include "cache/residents.h"

static void equal_sizes(struct policies_stream *s)
{
    for (uint64_t i = 0; i < s->all; i++)
        s->size[i] = 1;
}

/* The fewest misses from `use` on with the set `cached` of at most `capacity` slots: after each
 * use, any of the cached slots and the used one may be kept. */
static uint32_t fewest(const struct policies_stream *s, uint64_t capacity, uint32_t *memo)
{
    uint32_t sets = 1u << s->slots;
    for (uint64_t use = s->uses; use-- > 0;) {
        const uint32_t *after = memo + (use + 1) * sets;
        for (uint32_t set = 0; set < sets; set++) {
            uint32_t used = 1u << s->slot[use], have = set | used, best = UINT32_MAX;
            /* Keeping more never hurts: drop one slot, or none. */
            if ((uint64_t)__builtin_popcount(have) <= capacity)
                best = after[have];
            for (uint32_t out = 0; out < s->slots; out++)
                if ((have >> out & 1) && (uint64_t)__builtin_popcount(have) <= capacity + 1 &&
                    after[have & ~(1u << out)] < best)
                    best = after[have & ~(1u << out)];
            memo[use * sets + set] = best == UINT32_MAX ? best : best + !(set & used);
        }
    }
    return memo[0];
}

static void test_belady_is_the_best_of_all_choices(void **state)
{
    for (uint32_t round = 0; round < 24; round++) {
        struct policies_wish wish = {.samples = 3 + round % 4,
                                     .validation = round % 3,
                                     .every = 1,
                                     .jobs = 1 + round % 2,
                                     .hosts = 1,
                                     .epochs = 3,
                                     .known = 2,
                                     .drawn = 8,
                                     .sampler = (enum sampler_kind)(round / 2 % 4)};
        struct policies_stream s;
        stream_make(&s, &wish);
        equal_sizes(&s);
        uint32_t *memo = policies_array((s.uses + 1) << s.slots, sizeof *memo);
        for (uint64_t capacity = 0; capacity <= s.slots; capacity++) {
            uint64_t best = fewest(&s, capacity, memo);
            assert_int_equal(policies_reads(&s, "belady", capacity), best);
            for (const struct policy_rule *rule = policy_rules; rule->name; rule++)
                assert_true(policies_reads(&s, rule->name, capacity) >= best);
        }
        hr__free(memo);
        stream_free(&s);
    }
}

/* A large item that is used later than the others is not admitted. */
static void test_capacity_is_kept_and_sizes_count(void **state)
{
    uint32_t size[] = {5, 7}, sample[] = {0, 1}, slot[] = {0, 1, 0, 1},
             next[] = {2, 3, NO_NEXT, NO_NEXT};
    uint64_t first[] = {0, 2};
    struct phase phase = {.ends = 4, .jobs = 1};
    struct policies_stream s = {.wish = {.samples = 2, .jobs = 1, .hosts = 1},
                                .all = 2,
                                .size = size,
                                .uses = 4,
                                .slot = slot,
                                .next = next,
                                .slots = 2,
                                .sample = sample,
                                .first = first,
                                .phases = &phase,
                                .phase_count = 1};
    assert_int_equal(policies_reads(&s, "belady", 12), 5 + 7);
    assert_int_equal(policies_reads(&s, "belady", 11), 5 + 7 + 7);
    assert_int_equal(policies_reads(&s, "belady", 4), 5 + 7 + 5 + 7);
}

/* One order that uses each sample once an epoch: what keeps its items reads D - C after the first
 * epoch, on every host; next uses save much with two orders. */
static void test_known_results(void **state)
{
    struct policies_wish wish = {
        .samples = 2000, .every = 1, .jobs = 1, .hosts = 1, .epochs = 5, .known = 2, .drawn = 32};
    struct policies_stream s;
    stream_make(&s, &wish);
    equal_sizes(&s);
    assert_int_equal(policies_reads(&s, "never evict", 1000), 2000 + 4 * 1000);
    assert_int_equal(policies_reads(&s, "lobster", 1000), 2000 + 4 * 1000);
    assert_int_equal(policies_reads(&s, "nopfs", 1000), 2000 + 4 * 1000);
    assert_int_equal(policies_reads(&s, "belady", 1000), 2000 + 4 * 1000);
    uint64_t page_cache = policies_reads(&s, "page cache", 1000),
             lru = policies_reads(&s, "lru", 1000);
    assert_true(lru > page_cache && page_cache > 2000 + 4 * 1250);
    assert_true(policies_reads(&s, "ours", 1000) < 2000 + 4 * 1020);
    for (const struct policy_rule *rule = policy_rules; rule->name; rule++)
        assert_int_equal(policies_reads(&s, rule->name, 2000), 2000);
    stream_free(&s);
    wish.jobs = 2;
    stream_make(&s, &wish);
    equal_sizes(&s);
    uint64_t best = policies_reads(&s, "belady", 1000), ours = policies_reads(&s, "ours", 1000);
    assert_true(ours >= best && ours < best + best / 10);
    assert_true(ours < policies_reads(&s, "never evict", 1000) * 3 / 4);
    stream_free(&s);
}

/* Hosts have their own slots: each uses its part of every epoch. */
static void test_hosts(void **state)
{
    struct policies_wish wish = {
        .samples = 400, .every = 1, .jobs = 1, .hosts = 4, .epochs = 4, .known = 2, .drawn = 8};
    struct policies_stream s;
    stream_make(&s, &wish);
    equal_sizes(&s);
    assert_int_equal(s.uses, 1600);
    for (uint32_t host = 0; host < 4; host++)
        for (uint64_t slot = s.first[host]; slot < s.first[host + 1]; slot++)
            assert_true(s.sample[slot] < 400);
    for (uint64_t use = 0; use < s.uses; use++) {
        uint32_t host = (uint32_t)(use % 4);
        assert_true(s.slot[use] >= s.first[host] && s.slot[use] < s.first[host + 1]);
        if (s.next[use] != NO_NEXT)
            assert_true(s.slot[s.next[use]] == s.slot[use] && s.next[use] > use);
    }
    assert_true(policies_reads(&s, "belady", 400) == s.slots);
    stream_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_belady_is_the_best_of_all_choices),
        cmocka_unit_test(test_capacity_is_kept_and_sizes_count),
        cmocka_unit_test(test_known_results),
        cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
