/*
 * The search for the depth, on simulated devices: with a latency that overlaps and a bandwidth that
 * does not; throttled in ticks, as control groups do; slower with more reads in flight. The depth
 * found is compared with the rates of all depths in the same simulation.
 */
#include "../test.h"

#include "base/random.h"
#include "storage/depth.h"

#define MOST      64
#define TICK_NS   UINT64_C(4000000)
#define SECOND_NS UINT64_C(1000000000)

/* Properties of a device. Rates are in bytes per ns, that is, GB/s. */
struct device {
    double rate;
    double latency_ns;
    double throttle;     /* limit in bytes per ns; 0: none */
    unsigned crowd;      /* number of reads in flight beyond which it gets slower; 0: never */
    double crowd_cost;   /* share of the rate that each further read costs */
    double noise;        /* latencies are extended at random by up to this share */
    uint64_t file_bytes; /* on average; 0.5 to 1.5 times that */
};

struct depth_flight {
    double end_ns;
    uint64_t bytes;
};

struct simulation {
    struct device device;
    struct hr__random random;
    double now_ns, free_ns, allowed_ns;
    struct depth_flight flights[MOST];
    unsigned in_flight;
    uint64_t bytes; /* bytes of completed reads */
};

static void simulation_init(struct simulation *s, const struct device *device)
{
    *s = (struct simulation){.device = *device, .now_ns = 1e9, .free_ns = 1e9, .allowed_ns = 1e9};
    hr__random_init(&s->random, 7, 1, 0, 0);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void submit(struct simulation *s)
{
    const struct device *d = &s->device;
    double bytes = (double)d->file_bytes * hr__random_range(&s->random, 0.5, 1.5);
    double begin = s->now_ns, speed = d->rate;
    if (d->throttle > 0) {
        s->allowed_ns = larger(s->allowed_ns, begin) + bytes / d->throttle;
        uint64_t ticks = (uint64_t)s->allowed_ns / TICK_NS + 1;
        begin = (double)(ticks * TICK_NS);
    }
    begin += d->latency_ns * (1 + d->noise * hr__random_unit(&s->random));
    if (d->crowd && s->in_flight >= d->crowd)
        speed /= 1 + d->crowd_cost * (s->in_flight + 1 - d->crowd);
    s->free_ns = larger(s->free_ns, begin) + bytes / speed;
    s->flights[s->in_flight++] = (struct depth_flight){s->free_ns, (uint64_t)bytes};
}

/* Advances time until a read completes, and collects all that complete in the next `together_ns`.
 * Returns their number, and adds up their bytes. */
static unsigned collect(struct simulation *s, double together_ns, uint64_t *bytes)
{
    double first = s->flights[0].end_ns;
    unsigned count = 0;
    for (unsigned i = 1; i < s->in_flight; i++)
        if (s->flights[i].end_ns < first)
            first = s->flights[i].end_ns;
    s->now_ns = larger(s->now_ns, first + together_ns);
    *bytes = 0;
    for (unsigned i = 0; i < s->in_flight;) {
        if (s->flights[i].end_ns > s->now_ns) {
            i++;
            continue;
        }
        *bytes += s->flights[i].bytes;
        s->flights[i] = s->flights[--s->in_flight];
        count++;
    }
    s->bytes += *bytes;
    return count;
}

/* Reads for so many seconds, with as many reads in flight as `depth` says. */
static void run(struct simulation *s, struct hr__depth *depth, double seconds)
{
    double end_ns = s->now_ns + seconds * 1e9;
    while (s->now_ns < end_ns) {
        unsigned now = hr__depth_now(depth);
        assert_in_range(now, 1, depth->most);
        while (s->in_flight < now)
            submit(s);
        uint64_t bytes;
        unsigned in_flight = s->in_flight;
        unsigned reads = collect(s, 20000, &bytes);
        hr__depth_note(depth, in_flight, reads, bytes, (uint64_t)s->now_ns);
    }
}

/* A device's rate at each depth, in bytes per ns. */
struct truth {
    double rates[MOST + 1];
    double best; /* the highest of them */
};

static void measure(struct truth *truth, const struct device *device)
{
    truth->best = 0;
    for (unsigned fixed = 1; fixed <= MOST; fixed++) {
        struct simulation s;
        struct hr__depth depth = {.most = fixed, .now = fixed};
        simulation_init(&s, device);
        run(&s, &depth, 0.5);
        uint64_t bytes = s.bytes;
        double begin_ns = s.now_ns;
        run(&s, &depth, 4);
        truth->rates[fixed] = (double)(s.bytes - bytes) / (s.now_ns - begin_ns);
        truth->best = larger(truth->best, truth->rates[fixed]);
    }
}

/* Returns the smallest depth with this share of the best bandwidth. */
static unsigned least_with(const struct truth *truth, double share)
{
    unsigned depth = 1;
    while (truth->rates[depth] < share * truth->best)
        depth++;
    return depth;
}

/* Runs until the search rests. */
static void settle(struct simulation *s, struct hr__depth *depth)
{
    for (int i = 0; i < 600 && depth->searching; i++)
        run(s, depth, 0.2);
    assert_false(depth->searching);
}

/* The search rests where nearly all of the bandwidth is reached, and not much deeper than
 * necessary. */
static void check_rest(const struct truth *truth, const struct hr__depth *depth)
{
    unsigned now = hr__depth_now(depth), plenty = least_with(truth, 0.98);
    /* The next step of the search is up to 1.5 times as deep, or twice for depth 1. */
    assert_in_range(now, least_with(truth, 0.92), plenty + (plenty + 1) / 2);
    assert_true(truth->rates[now] >= 0.92 * truth->best);
}

static void finds(const struct device *device)
{
    struct simulation s;
    struct truth truth;
    struct hr__depth depth;
    measure(&truth, device);
    simulation_init(&s, device);
    hr__depth_init(&depth, MOST);
    assert_int_equal(hr__depth_now(&depth), MOST);
    settle(&s, &depth);
    check_rest(&truth, &depth);
    /* Later, too, including all further searches, and without much loss through them. */
    uint64_t bytes = s.bytes;
    double begin_ns = s.now_ns;
    run(&s, &depth, 60);
    assert_true((double)(s.bytes - bytes) / (s.now_ns - begin_ns) >= 0.90 * truth.best);
    settle(&s, &depth);
    check_rest(&truth, &depth);
}

static const struct device fast_disk = {.rate = 1, .latency_ns = 800000, .file_bytes = 110000};

static void bandwidth_and_latency(void **state)
{
    (void)state;
    static const double latencies_ns[] = {1000, 100000, 800000, 3000000};
    for (size_t i = 0; i < sizeof latencies_ns / sizeof *latencies_ns; i++) {
        struct device device = fast_disk;
        device.latency_ns = latencies_ns[i];
        finds(&device);
    }
}

static void noisy_latency(void **state)
{
    (void)state;
    struct device device = fast_disk;
    device.noise = 2;
    finds(&device);
}

/* More reads than the limit would give more bandwidth: it stays at the limit. */
static void never_deep_enough(void **state)
{
    (void)state;
    struct device device = {.rate = 10, .latency_ns = 5e6, .file_bytes = 50000};
    struct simulation s;
    struct hr__depth depth;
    simulation_init(&s, &device);
    hr__depth_init(&depth, MOST);
    settle(&s, &depth);
    assert_int_equal(hr__depth_now(&depth), MOST);
}

/* Few reads give as much as many, down to those of one tick. */
static void throttled(void **state)
{
    (void)state;
    struct device device = fast_disk;
    device.latency_ns = 100000;
    device.throttle = 0.1;
    finds(&device);
    device.throttle = 0.01;
    finds(&device);
}

static void worse_when_crowded(void **state)
{
    (void)state;
    struct device device = fast_disk;
    device.crowd = 16;
    device.crowd_cost = 0.03;
    finds(&device);
}

static void follows_the_device(void **state)
{
    (void)state;
    struct simulation s;
    struct hr__depth depth;
    struct device device = fast_disk;
    struct truth fast, slow;
    measure(&fast, &device);
    simulation_init(&s, &device);
    hr__depth_init(&depth, MOST);
    settle(&s, &depth);
    check_rest(&fast, &depth);
    /* Long enough for long rests. */
    run(&s, &depth, 100);
    settle(&s, &depth);
    assert_true(depth.rest_ns >= 30 * SECOND_NS);
    /* Twenty times slower: a new search soon, however long it meant to rest. */
    device.throttle = 0.05;
    measure(&slow, &device);
    s.device = device;
    run(&s, &depth, 12);
    settle(&s, &depth);
    check_rest(&slow, &depth);
    s.device = fast_disk;
    run(&s, &depth, 12);
    settle(&s, &depth);
    check_rest(&fast, &depth);
}

/* With fewer reads than allowed, the demand limits the rate: nothing is learned about the
 * device. */
static void demand_teaches_nothing(void **state)
{
    (void)state;
    struct hr__depth depth;
    uint64_t now_ns = SECOND_NS;
    hr__depth_init(&depth, MOST);
    for (int i = 0; i < 100000; i++)
        hr__depth_note(&depth, 1 + (unsigned)i % 40, 1, 100000, now_ns += 1000000);
    assert_int_equal(hr__depth_now(&depth), MOST);
    assert_int_equal(depth.window.ns, 0);

    /* At rest, idle time counts neither for the bandwidth nor for the rest's length. */
    struct simulation s;
    simulation_init(&s, &fast_disk);
    hr__depth_init(&depth, MOST);
    settle(&s, &depth);
    unsigned rest = hr__depth_now(&depth);
    struct hr__depth before = depth;
    for (int i = 0; i < 100; i++) {
        s.now_ns += 1e9;
        hr__depth_note(&depth, 0, 0, 0, (uint64_t)s.now_ns);
    }
    assert_int_equal(hr__depth_now(&depth), rest);
    assert_int_equal(depth.window.ns, before.window.ns);
    assert_int_equal(depth.rested_ns, before.rested_ns);
}

/* If the clock stands still there is no rate, and nothing is concluded. */
static void a_clock_that_stands(void **state)
{
    (void)state;
    struct hr__depth depth;
    hr__depth_init(&depth, MOST);
    for (int i = 0; i < 1000; i++)
        hr__depth_note(&depth, MOST, 1, 100000, SECOND_NS);
    assert_int_equal(hr__depth_now(&depth), MOST);
    assert_int_equal(depth.window.bytes, 0);
}

/* For every limit there is a sequence of depths that ends at it, and a search that ends. */
static void all_ladders(void **state)
{
    (void)state;
    for (unsigned most = 1; most <= 1024; most = most < 70 ? most + 1 : most * 3 / 2) {
        struct hr__depth depth;
        uint64_t now_ns = SECOND_NS;
        hr__depth_init(&depth, most);
        assert_int_equal(hr__depth_now(&depth), most);
        assert_int_equal(depth.searching, most > 1);
        /* The same rate at all depths: one read suffices. */
        for (int i = 0; i < 400000 && depth.searching; i++) {
            assert_in_range(hr__depth_now(&depth), 1, most);
            hr__depth_note(&depth, hr__depth_now(&depth), 1, 100000, now_ns += 100000);
        }
        assert_false(depth.searching);
        assert_int_equal(hr__depth_now(&depth), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bandwidth_and_latency),
        cmocka_unit_test(noisy_latency),
        cmocka_unit_test(never_deep_enough),
        cmocka_unit_test(throttled),
        cmocka_unit_test(worse_when_crowded),
        cmocka_unit_test(follows_the_device),
        cmocka_unit_test(demand_teaches_nothing),
        cmocka_unit_test(a_clock_that_stands),
        cmocka_unit_test(all_ladders),
    };
    return cmocka_run_group_tests_name("storage-depth", tests, NULL, NULL);
}
