/* The simulation of networks: closed formulas, limits, conservation of packets, and the published
 * oracles of loss tolerance. */
#include "replay/network.h"

#include "../test.h"

#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static struct hr__network make(int topology, uint32_t workers)
{
    struct hr__network n;
    hr__network_default(&n);
    n.topology = topology;
    n.workers = workers;
    n.bytes_per_s = 1.25e9;
    n.latency_s = 5e-6;
    return n;
}

/* Simulates, and checks what always holds. */
static struct hr__network_result run(const struct hr__network *n, double bytes)
{
    struct hr__network_result r;
    struct hr_error error = {0};
    if (hr__network_all_reduce(&r, n, bytes, &error))
        fail_msg("%s", error.message);
    assert_int_equal(r.sent, r.delivered + r.lost + r.dropped);
    double all = hr__network_packets(n, bytes);
    assert_true((double)r.delivered <= all);
    assert_true((double)r.delivered >= floor((1 - n->tolerance) * all));
    assert_int_equal(hr__allocated(HR__TAG_REPLAY), 0);
    return r;
}

static void assert_close(double value, double expected, double relative)
{
    if (!(fabs(value - expected) <= relative * fabs(expected)))
        fail_msg("%.12g is not %.12g", value, expected);
}

static void a_flow_alone(void **state)
{
    static const double sizes[] = {1, 1499, 1500, 1501, 1e6, 12345678};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t paths = 0; paths < 3; paths++) {
            struct hr__network n = make(HR__NETWORK_RING, 2);
            struct hr__network_flow flow = {
                .to = 1, .bytes = (uint64_t)sizes[i], .then = UINT32_MAX, .all = UINT32_MAX};
            struct hr__network_flows flows = {.flows = &flow, .count = 1, .hosts = 2};
            struct hr__network_result r;
            double finish;
            n.paths = paths;
            assert_int_equal(hr__network_run(&r, &n, &flows, &finish, NULL), 0);
            assert_close(r.seconds, sizes[i] / 1.25e9 + 5e-6, 1e-9);
            assert_close(finish, r.seconds, 0);
            assert_int_equal(r.sent, ceil(sizes[i] / 1500));
        }
}

static void closed_formulas(void **state)
{
    for (uint32_t workers = 2; workers <= 16; workers++) {
        struct hr__network n = make(HR__NETWORK_RING, workers);
        double bytes = 3000.0 * 16 * workers, w = workers;
        double ring = 2 * (w - 1) / w * bytes / 1.25e9 + 2 * (w - 1) * 5e-6;
        assert_close(run(&n, bytes).seconds, ring, 1e-9);
        assert_close(hr__network_ideal_s(&n, bytes), ring, 1e-12);
        assert_close(hr__network_ideal_bytes(&n, ring), bytes, 1e-9);
        n.topology = HR__NETWORK_SERVER;
        double server = 2 * w * bytes / 1.25e9 + 2 * 5e-6;
        struct hr__network_result r = run(&n, bytes);
        assert_close(r.seconds, server, 1e-9);
        assert_int_equal(r.dropped, 0);
        assert_close(hr__network_ideal_s(&n, bytes), server, 1e-12);
        assert_close(hr__network_ideal_bytes(&n, server), bytes, 1e-9);
    }
    struct hr__network n = make(HR__NETWORK_RING, 4);
    assert_true(hr__network_ideal_bytes(&n, 1e-6) == 0);
}

/* A public study of DBLP: 21.2 MB at 50 GB/s, 500 ns a hop; 1.652 is the ideal speedup. */
static void published_speedups(void **state)
{
    static const struct {
        uint32_t workers;
        double speedup;
    } published[] = {{4, 1.647}, {16, 1.632}, {64, 1.579}};
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct hr__network n = make(HR__NETWORK_RING, published[i].workers);
        double bytes = 21.2e6;
        n.bytes_per_s = 50e9;
        n.latency_s = 500e-9;
        /* 112 of 185 packets are nearly 1 / 1.652 of them */
        n.packet = (uint32_t)ceil(bytes / published[i].workers / 185);
        double before = run(&n, bytes).seconds;
        n.tolerance = 1 - 1 / 1.652;
        double after = run(&n, bytes).seconds;
        assert_close(before / after, published[i].speedup, 0.0006);
        double w = published[i].workers, part = bytes / 1.652 / w;
        assert_close(after, 2 * (w - 1) * (500e-9 + part / 50e9), 0.0006);
    }
}

static void loss_and_its_limits(void **state)
{
    for (int topology = HR__NETWORK_RING; topology <= HR__NETWORK_SERVER; topology++) {
        struct hr__network n = make(topology, 4);
        double ideal = run(&n, 1.2e6).seconds;
        n.loss = 0.01;
        struct hr__network_result first = run(&n, 1.2e6), again = run(&n, 1.2e6);
        assert_memory_equal(&first, &again, sizeof first);
        assert_true(first.lost > 0 && first.resent == first.lost);
        assert_true(first.seconds > ideal);
        n.seed = 2;
        assert_true(run(&n, 1.2e6).seconds != first.seconds);
        /* more than is lost need not arrive: nothing is sent twice, and no timeout is waited for */
        n.tolerance = 0.1;
        struct hr__network_result tolerant = run(&n, 1.2e6);
        assert_int_equal(tolerant.resent, 0);
        assert_true(tolerant.seconds < ideal);
        n.loss = 0;
        assert_true(run(&n, 1.2e6).seconds <= tolerant.seconds);
    }
}

/* The last packet is lost: nothing after it shows that, so the sender waits for its timeout. */
static void the_tail(void **state)
{
    struct hr__network n = make(HR__NETWORK_RING, 2);
    int timeouts = 0;
    n.loss = 0.3;
    for (n.seed = 1; n.seed <= 20; n.seed++) {
        struct hr__network_result r = run(&n, 3000); /* two packets, one in each direction, twice */
        timeouts += r.timeouts > 0;
        assert_int_equal(r.timeouts > 0, r.seconds > n.timeout_s);
        assert_int_equal(r.timeouts, r.lost);
    }
    assert_in_range(timeouts, 5, 20);
}

static void time_falls_with_tolerance(void **state)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct hr__network n = make(HR__NETWORK_RING, 4);
        double before = INFINITY;
        n.loss = 0.02;
        n.seed = seed;
        for (int percent = 0; percent <= 95; percent += 5) {
            n.tolerance = percent / 100.0;
            double seconds = run(&n, 600000).seconds;
            assert_true(seconds <= before);
            before = seconds;
        }
    }
}

static void paths(void **state)
{
    struct hr__network n = make(HR__NETWORK_RING, 8);
    const double bytes = 8 * 1500 * 200, step = 1500 * 200 / 1.25e9 + 5e-6;
    double ideal = run(&n, bytes).seconds;
    n.queue = n.mark = 1 << 20; /* nothing is dropped or slowed down */
    n.paths = 4;
    n.is_sprayed = 1; /* 8 flows over 4 paths: twice the time, and a skew of a few packets */
    struct hr__network_result sprayed = run(&n, bytes);
    assert_close(sprayed.seconds, 14 * (2 * (step - 5e-6) + 5e-6), 0.03);
    n.paths = 8;
    assert_close(run(&n, bytes).seconds, ideal, 0.03);
    /* by hashes the fullest path decides: all steps take a whole number of flows' time */
    n.is_sprayed = 0;
    int collisions = 0;
    for (n.seed = 1; n.seed <= 10; n.seed++) {
        double flows = (run(&n, bytes).seconds / 14 - 5e-6) / (step - 5e-6);
        assert_true(flows > 0.99 && flows < 8.01);
        collisions += flows > 1.5;
    }
    assert_in_range(collisions, 8, 10); /* 8 flows on 8 paths: without one in 0.2 % of cases */
}

static void full_queues(void **state)
{
    struct hr__network n = make(HR__NETWORK_SERVER, 16);
    n.queue = 8;
    n.mark = 4;
    struct hr__network_result r = run(&n, 150000);
    assert_true(r.dropped > 0 && r.marked > 0 && r.resent == r.dropped);
    assert_true(r.seconds > hr__network_ideal_s(&n, 150000));
    /* with longer queues than all that is on its way nothing is dropped */
    n.queue = 1 << 20;
    assert_int_equal(run(&n, 150000).dropped, 0);
    /* packets of small magnitude are dropped where others are marked */
    n.small = 0.5;
    n.tolerance = 0.3;
    r = run(&n, 150000);
    assert_true(r.dropped > 0);
    n.small = 0;
    assert_int_equal(run(&n, 150000).dropped, 0);
}

static void refusals(void **state)
{
    struct hr__network good = make(HR__NETWORK_RING, 4), n;
    struct hr__network_result r;
    struct hr_error error = {0};
    static const struct {
        size_t at;
        double value;
        const char *words;
    } wrong[] = {{offsetof(struct hr__network, loss), 0.6, "loss is 0.6"},
                 {offsetof(struct hr__network, loss), NAN, "loss"},
                 {offsetof(struct hr__network, tolerance), 1, "p is 1"},
                 {offsetof(struct hr__network, bytes_per_s), 0, "link"},
                 {offsetof(struct hr__network, latency_s), -1, "latency"},
                 {offsetof(struct hr__network, timeout_s), 0, "timeout"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        n = good;
        *(double *)((char *)&n + wrong[i].at) = wrong[i].value;
        assert_int_equal(hr__network_all_reduce(&r, &n, 1e6, &error), -EINVAL);
        assert_non_null(strstr(error.message, wrong[i].words));
    }
    n = good;
    n.workers = 1;
    assert_int_equal(hr__network_all_reduce(&r, &n, 1e6, &error), -EINVAL);
    assert_int_equal(hr__network_all_reduce(&r, &good, 1e12, &error), -E2BIG);
    assert_non_null(strstr(error.message, "packet=9000"));
}

static void without_memory(void **state)
{
    struct hr__network n = make(HR__NETWORK_SERVER, 4);
    struct hr__network_result r;
    int failed = 0;
    n.loss = 0.1;
    n.paths = 2;
    for (uint64_t at = 1; at < 100; at++) {
        hr__alloc_fail_at(at, 0);
        int code = hr__network_all_reduce(&r, &n, 1e5, NULL);
        hr__alloc_fail_at(0, 0);
        assert_true(code == 0 || code == -ENOMEM);
        assert_int_equal(hr__allocated(HR__TAG_REPLAY), 0);
        failed += code != 0;
        if (!code)
            break;
    }
    assert_true(failed > 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flow_alone),
        cmocka_unit_test(closed_formulas),
        cmocka_unit_test(published_speedups),
        cmocka_unit_test(loss_and_its_limits),
        cmocka_unit_test(the_tail),
        cmocka_unit_test(time_falls_with_tolerance),
        cmocka_unit_test(paths),
        cmocka_unit_test(full_queues),
        cmocka_unit_test(refusals),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
