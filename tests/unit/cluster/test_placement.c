/*
 * Placement: shares follow the budgets within statistical limits and never exceed them, items move
 * only if they have to, and the table is the same on every machine.
 */
#include "../test.h"

#include "base/memory.h"
#include "base/random.h"
#include "cluster/placement.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HOSTS = 40 };

/* Inputs and results of a placement. */
struct trial {
    struct hr__placement_host hosts[HOSTS];
    struct hr__placement_wish wish;
    uint32_t *bytes;
    uint64_t total; /* bytes of all items */
    struct hr__placement *placement;
    const uint16_t *owners;
};

/* `spread`: sizes are uniform in [1000, 1000 + spread). */
static void begin(struct trial *t, int hosts, uint64_t samples, uint32_t spread)
{
    memset(t, 0, sizeof *t);
    struct hr__random random;
    hr__random_init(&random, 7, 1000, samples, spread);
    t->bytes = calloc(samples ? samples : 1, sizeof *t->bytes);
    assert_non_null(t->bytes);
    for (uint64_t i = 0; i < samples; i++) {
        t->bytes[i] = 1000 + (spread ? (uint32_t)hr__random_below(&random, spread) : 0);
        t->total += t->bytes[i];
    }
    for (int h = 0; h < hosts; h++)
        t->hosts[h].id = hr__random_u64(&random);
    t->wish = (struct hr__placement_wish){.hosts = t->hosts,
                                          .host_count = hosts,
                                          .samples = samples,
                                          .bytes = t->bytes,
                                          .digest = 0x1234};
}

static void budgets(struct trial *t, uint64_t each)
{
    for (int h = 0; h < t->wish.host_count; h++)
        t->hosts[h].budget_bytes = each;
}

/* Makes the placement and checks what every placement must satisfy: shares add up and fit. */
static void place(struct trial *t)
{
    struct hr_error error = {0};
    hr__placement_destroy(&t->placement);
    assert_int_equal(hr__placement_create(&t->placement, &t->wish, &error), 0);
    t->owners = hr__placement_owners(t->placement);
    struct hr__placement_share shares[HOSTS] = {{0}};
    for (uint64_t i = 0; i < t->wish.samples; i++) {
        if (t->owners[i] == HR__NOBODY)
            continue;
        assert_true(t->owners[i] < t->wish.host_count);
        shares[t->owners[i]].items++;
        shares[t->owners[i]].bytes += t->bytes[i];
    }
    for (int h = 0; h < t->wish.host_count; h++) {
        struct hr__placement_share share = hr__placement_share(t->placement, h);
        assert_int_equal(share.items, shares[h].items);
        assert_int_equal(share.bytes, shares[h].bytes);
        assert_true(share.bytes <= t->hosts[h].budget_bytes);
    }
}

static uint64_t unowned(const struct trial *t)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < t->wish.samples; i++)
        count += t->owners[i] == HR__NOBODY;
    return count;
}

static void end(struct trial *t)
{
    hr__placement_destroy(&t->placement);
    free(t->bytes);
}

/* Compares the items of host h with `expected`, within five standard deviations of a binomial
 * distribution. */
static void expect_items(const struct trial *t, int h, double expected)
{
    double items = (double)hr__placement_share(t->placement, h).items;
    double deviation = sqrt(expected * (1 - expected / (double)t->wish.samples));
    if (fabs(items - expected) > 5 * deviation)
        fail_msg("host %d of %d has %.0f items instead of %.0f +- %.0f", h, t->wish.host_count,
                 items, expected, deviation);
}

static void equal_budgets_share_alike(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 8, 40};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct trial t;
        begin(&t, counts[i], 100000, 0);
        budgets(&t, 2 * t.total);
        place(&t);
        assert_int_equal(unowned(&t), 0);
        for (int h = 0; h < counts[i]; h++)
            expect_items(&t, h, 100000.0 / counts[i]);
        end(&t);
    }
}

static void shares_follow_unequal_budgets(void **state)
{
    (void)state;
    struct trial t;
    begin(&t, 7, 200000, 0);
    /* Some equal and some different, in proportions that are no powers of two: from a host with
     * 1/700 of all items to one with 3/7. */
    static const uint64_t weights[] = {1, 300, 100, 49, 100, 50, 100};
    for (int h = 0; h < 7; h++)
        t.hosts[h].budget_bytes = weights[h] * t.total;
    place(&t);
    assert_int_equal(unowned(&t), 0);
    for (int h = 0; h < 7; h++)
        expect_items(&t, h, 200000.0 * (double)weights[h] / 700);
    end(&t);
}

/* Two hosts share items in the same proportion whatever other hosts there are: scores of different
 * hosts are independent. */
static void second_choices_are_independent(void **state)
{
    (void)state;
    struct trial t;
    begin(&t, 4, 100000, 0);
    budgets(&t, 2 * t.total);
    place(&t);
    uint16_t *before = malloc(100000 * sizeof *before);
    assert_non_null(before);
    memcpy(before, t.owners, 100000 * sizeof *before);
    t.hosts[2].budget_bytes = 0;
    place(&t);
    double moved = 0, to[4] = {0};
    for (uint64_t i = 0; i < 100000; i++) {
        if (before[i] != 2)
            continue;
        moved++;
        to[t.owners[i]]++;
    }
    for (int h = 0; h < 4; h++)
        assert_true(h == 2 ? to[h] == 0 : fabs(to[h] - moved / 3) < 5 * sqrt(moved / 3));
    free(before);
    end(&t);
}

/* Without a host, only its items move; when it returns, the same items return. */
static void only_what_must_moves(void **state)
{
    (void)state;
    for (int unequal = 0; unequal < 2; unequal++) {
        struct trial with, without;
        begin(&with, 9, 50000, 5000);
        begin(&without, 9, 50000, 5000);
        for (int h = 0; h < 9; h++)
            with.hosts[h].budget_bytes = (uint64_t)(2 + unequal * h) * with.total;
        /* In another order of the list, too, because ownership depends on ids. */
        without.wish.host_count = 8;
        for (int h = 0; h < 8; h++)
            without.hosts[h] = with.hosts[h < 4 ? 8 - h : 7 - h];
        place(&with);
        place(&without);
        uint64_t moved = 0;
        for (uint64_t i = 0; i < 50000; i++) {
            if (with.owners[i] == 4)
                moved++;
            else
                assert_int_equal(with.hosts[with.owners[i]].id,
                                 without.hosts[without.owners[i]].id);
        }
        assert_int_equal(moved, hr__placement_share(with.placement, 4).items);
        assert_true(moved > 0);
        end(&with);
        end(&without);
    }
}

static void a_little_more_than_all_is_enough(void **state)
{
    (void)state;
    for (int hosts = 1; hosts <= 32; hosts *= 2) {
        struct trial t;
        begin(&t, hosts, 100000, 200000);
        budgets(&t, t.total / (uint64_t)hosts * 102 / 100);
        place(&t);
        assert_int_equal(unowned(&t), 0);
        end(&t);
    }
}

/* If budgets do not suffice, they are filled to the last item that fits. The first samples are
 * kept, each by the first host of its own order that has room. */
static void full_hosts_pass_items_on(void **state)
{
    (void)state;
    struct trial t;
    begin(&t, 5, 20000, 3000);
    for (int h = 0; h < 5; h++)
        t.hosts[h].budget_bytes = t.total / 10 + (uint64_t)h * 1000;
    place(&t);
    uint64_t none = unowned(&t), room = 0;
    assert_true(none > 9000 && none < 11000);
    for (uint64_t i = 0; i < 8000; i++)
        assert_int_not_equal(t.owners[i], HR__NOBODY);
    for (int h = 0; h < 5; h++) {
        uint64_t left = t.hosts[h].budget_bytes - hr__placement_share(t.placement, h).bytes;
        room = left > room ? left : room;
    }
    assert_true(room < 4000);
    for (uint64_t i = 0; i < t.wish.samples; i++)
        assert_true(t.owners[i] != HR__NOBODY || t.bytes[i] > room);

    /* The same computed directly: the placement of sample i alone, among the hosts with room. */
    uint64_t used[5] = {0};
    for (uint64_t i = 0; i < 20000; i++) {
        struct hr__placement_host hosts[5];
        uint64_t budget[5];
        memcpy(hosts, t.hosts, sizeof hosts);
        for (int h = 0; h < 5; h++) {
            budget[h] = hosts[h].budget_bytes;
            if (budget[h] - used[h] < t.bytes[i])
                hosts[h].budget_bytes = 0;
        }
        if (i % 97 == 0) {
            uint32_t *alone = calloc(i + 1, sizeof *alone);
            assert_non_null(alone);
            alone[i] = t.bytes[i];
            struct hr__placement_wish wish = t.wish;
            wish.hosts = hosts;
            wish.samples = i + 1;
            wish.bytes = alone;
            struct hr__placement *one = NULL;
            assert_int_equal(hr__placement_create(&one, &wish, NULL), 0);
            assert_int_equal(hr__placement_owners(one)[i], t.owners[i]);
            hr__placement_destroy(&one);
            free(alone);
        }
        if (t.owners[i] != HR__NOBODY)
            used[t.owners[i]] += t.bytes[i];
    }
    end(&t);
}

static void hosts_without_budget_and_items_without_bytes(void **state)
{
    (void)state;
    struct trial t;
    begin(&t, 3, 1000, 100);
    place(&t);
    assert_int_equal(unowned(&t), 1000);
    t.hosts[1].budget_bytes = t.total;
    for (int i = 0; i < 1000; i += 10)
        t.bytes[i] = 0;
    place(&t);
    assert_int_equal(unowned(&t), 100);
    assert_int_equal(hr__placement_share(t.placement, 1).items, 900);
    assert_int_equal(hr__placement_share(t.placement, 0).items, 0);
    assert_int_equal(hr__placement_share(t.placement, 3).items, 0);
    /* Room for no item, and for all items but a few bytes. */
    t.hosts[1].budget_bytes = 999;
    place(&t);
    assert_int_equal(unowned(&t), 1000);
    end(&t);

    begin(&t, 2, 0, 0);
    budgets(&t, UINT64_MAX);
    place(&t);
    end(&t);
}

/* Budgets at the limits of their range: nothing overflows. */
static void extreme_budgets(void **state)
{
    (void)state;
    struct trial t;
    begin(&t, 4, 20000, 0);
    t.hosts[0].budget_bytes = UINT64_MAX;
    t.hosts[1].budget_bytes = UINT64_MAX - 1;
    t.hosts[2].budget_bytes = 1000;
    t.hosts[3].budget_bytes = 1;
    place(&t);
    assert_int_equal(unowned(&t), 0);
    expect_items(&t, 0, 10000);
    expect_items(&t, 1, 10000);
    assert_int_equal(hr__placement_share(t.placement, 3).items, 0);
    end(&t);
}

static uint64_t digest_of(const uint16_t *owners, uint64_t samples)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (uint64_t i = 0; i < samples; i++)
        digest = (digest ^ owners[i]) * UINT64_C(0x100000001b3);
    return digest;
}

/* Results of other versions, compilers and machines: a difference would make hosts request items
 * from the wrong server. */
static void the_table_is_the_same_everywhere(void **state)
{
    (void)state;
    static const struct {
        int hosts;
        uint64_t step, digest;
    } golden[] = {
        {1, 0, UINT64_C(0xf969360e280ecee1)},      {8, 0, UINT64_C(0xcd2ee00bda66d4e6)},
        {8, 1001, UINT64_C(0x65b7a308df4e8251)},   {40, 0, UINT64_C(0x349d3f41728de618)},
        {40, 70001, UINT64_C(0x54ef7bbce067e6e4)},
    };
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        struct trial t;
        begin(&t, golden[i].hosts, 30000, 100000);
        for (int h = 0; h < golden[i].hosts; h++)
            t.hosts[h].budget_bytes =
                t.total / (uint64_t)golden[i].hosts * 9 / 10 + (uint64_t)h * golden[i].step;
        place(&t);
        uint64_t digest = digest_of(t.owners, 30000);
        if (digest != golden[i].digest)
            fail_msg("%d hosts, step %" PRIu64 ": 0x%016" PRIx64, golden[i].hosts, golden[i].step,
                     digest);
        end(&t);
    }
}

static void another_digest_is_another_table(void **state)
{
    (void)state;
    struct trial a, b;
    begin(&a, 4, 10000, 0);
    begin(&b, 4, 10000, 0);
    budgets(&a, 2 * a.total);
    budgets(&b, 2 * b.total);
    b.wish.digest++;
    place(&a);
    place(&b);
    int same = 0;
    for (int i = 0; i < 10000; i++)
        same += a.owners[i] == b.owners[i];
    assert_true(abs(same - 2500) < 5 * 44);
    end(&a);
    end(&b);
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    struct trial t;
    struct hr_error error = {0};
    begin(&t, 3, 10, 0);
    budgets(&t, 5000);
    t.wish.host_count = 0;
    assert_int_equal(hr__placement_create(&t.placement, &t.wish, &error), -EINVAL);
    t.wish.host_count = HR__HOSTS_MAX + 1;
    assert_int_equal(hr__placement_create(&t.placement, &t.wish, &error), -EINVAL);
    assert_non_null(strstr(error.message, "4097 hosts"));
    t.wish.host_count = 3;
    t.hosts[2].id = t.hosts[0].id;
    t.hosts[2].budget_bytes++;
    assert_int_equal(hr__placement_create(&t.placement, &t.wish, &error), -EINVAL);
    assert_non_null(strstr(error.message, "one id"));
    assert_null(t.placement);
    end(&t);
    hr__placement_destroy(&t.placement);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    struct trial t;
    begin(&t, 3, 100, 0);
    for (int h = 0; h < 3; h++)
        t.hosts[h].budget_bytes = 20000 + (uint64_t)h;
    uint64_t before = hr__allocated(HR__TAG_ORDER);
    int rc = -ENOMEM, tries = 0;
    while (rc) {
        struct hr_error error = {0};
        hr__alloc_fail_at((uint64_t)++tries, 0);
        rc = hr__placement_create(&t.placement, &t.wish, &error);
        hr__alloc_fail_at(0, 0);
        assert_true(rc == 0 || (rc == -ENOMEM && error.code == -ENOMEM && !t.placement));
        assert_true(tries < 20);
    }
    assert_int_equal(tries, 8);
    end(&t);
    assert_int_equal(hr__allocated(HR__TAG_ORDER), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_budgets_share_alike),
        cmocka_unit_test(shares_follow_unequal_budgets),
        cmocka_unit_test(second_choices_are_independent),
        cmocka_unit_test(only_what_must_moves),
        cmocka_unit_test(a_little_more_than_all_is_enough),
        cmocka_unit_test(full_hosts_pass_items_on),
        cmocka_unit_test(hosts_without_budget_and_items_without_bytes),
        cmocka_unit_test(extreme_budgets),
        cmocka_unit_test(the_table_is_the_same_everywhere),
        cmocka_unit_test(another_digest_is_another_table),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
