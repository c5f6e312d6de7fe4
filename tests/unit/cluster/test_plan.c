/*
 * Plans: for any owners and rates, a global batch has the same samples as with `exact`, and ranks
 * have equal counts; the number of hits is the largest possible; predicted times are close to the
 * optimum.
 */
#include "../test.h"

#include "base/memory.h"
#include "base/random.h"
#include "cluster/placement.h"
#include "cluster/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HOSTS = 16, RANKS = 64, SAMPLES = 20000, PLACES = 8192 };

/* A job: the inputs of a plan, on the heap. */
struct plan_job {
    struct hr__plan_wish wish;
    struct hr__order *order;
    uint16_t owners[SAMPLES];
    uint16_t disks[SAMPLES]; /* used if wish.disks points to it */
    uint32_t bytes[SAMPLES];
    int host_of_rank[RANKS];
    struct hr__plan_rates rates[HOSTS];
    struct hr__plan *plan;

    /* One batch, by place. */
    size_t places;
    uint16_t ranks[PLACES];
    uint64_t positions[PLACES];
    uint64_t left; /* places before padding, or more */
};

static struct plan_job *job_create(uint64_t samples, int hosts, uint64_t ranks_per_host,
                                   uint64_t batch_size)
{
    struct plan_job *job = calloc(1, sizeof *job);
    assert_non_null(job);
    assert_true(samples <= SAMPLES && hosts <= HOSTS);
    job->wish = (struct hr__plan_wish){.assignment = HR__ASSIGNMENT_LOCAL,
                                       .cut = {.samples = samples,
                                               .batch_size = batch_size,
                                               .ranks = ranks_per_host * (uint64_t)hosts},
                                       .owners = job->owners,
                                       .bytes = job->bytes,
                                       .host_count = hosts,
                                       .host_of_rank = job->host_of_rank};
    for (uint64_t r = 0; r < job->wish.cut.ranks; r++)
        job->host_of_rank[r] = (int)(r / ranks_per_host);
    for (uint64_t i = 0; i < samples; i++)
        job->bytes[i] = 100000;
    return job;
}

static void job_destroy(struct plan_job *job)
{
    hr__plan_destroy(&job->plan);
    hr__order_destroy(&job->order);
    free(job);
}

static void start_epoch(struct plan_job *job, uint64_t epoch)
{
    hr__plan_destroy(&job->plan);
    hr__order_destroy(&job->order);
    assert_int_equal(hr__order_create(&job->order, job->wish.cut.samples, 1, 99, epoch, NULL), 0);
    job->wish.order = job->order;
    assert_int_equal(hr__plan_create(&job->plan, &job->wish, NULL), 0);
}

/* Assigns owners as a placement does with budgets of `percent` of all bytes. */
static void own(struct plan_job *job, int percent, uint64_t seed)
{
    struct hr__placement_host hosts[HOSTS];
    struct hr__random random;
    uint64_t total = 0;
    hr__random_init(&random, seed, 2000, 0, 0);
    for (uint64_t i = 0; i < job->wish.cut.samples; i++)
        total += job->bytes[i];
    for (int h = 0; h < job->wish.host_count; h++) {
        hosts[h].id = hr__random_u64(&random);
        hosts[h].budget_bytes = total / 100 * (uint64_t)percent / (uint64_t)job->wish.host_count;
    }
    struct hr__placement_wish wish = {.hosts = hosts,
                                      .host_count = job->wish.host_count,
                                      .samples = job->wish.cut.samples,
                                      .bytes = job->bytes,
                                      .digest = seed};
    struct hr__placement *placement;
    assert_int_equal(hr__placement_create(&placement, &wish, NULL), 0);
    memcpy(job->owners, hr__placement_owners(placement),
           job->wish.cut.samples * sizeof *job->owners);
    hr__placement_destroy(&placement);
}

/* Draws sizes like those of photographs: most within a factor of two of the median, some ten times
 * as large. */
static void vary_sizes(struct plan_job *job, uint64_t seed)
{
    struct hr__random random;
    hr__random_init(&random, seed, 2001, 0, 0);
    for (uint64_t i = 0; i < job->wish.cut.samples; i++) {
        uint64_t a = hr__random_below(&random, 1000), b = hr__random_below(&random, 1000);
        job->bytes[i] = (uint32_t)(30000 + a * a * b / 4000);
    }
}

/* Gets the batch's ranks from the plan, and its positions by place from exact's batches. */
static void look_at(struct plan_job *job, uint64_t number)
{
    struct hr__cut cut = job->wish.cut;
    job->left = cut.samples - hr__cut_position(&cut, number);
    job->places = hr__plan_ranks(job->plan, number, job->ranks);
    assert_true(job->places <= PLACES && job->places % cut.ranks == 0);
    for (cut.rank = 0; cut.rank < cut.ranks; cut.rank++) {
        uint64_t positions[PLACES];
        size_t padding, n = hr__cut_batch(&cut, number, positions, &padding);
        assert_int_equal(n, job->places / cut.ranks);
        for (size_t i = 0; i < n; i++)
            job->positions[i * cut.ranks + cut.rank] = positions[i];
    }
}

/* Compares this rank's own result with the plan of all ranks: its places in ascending order,
 * padding last. */
static void check_rank(const struct plan_job *job, struct hr__plan *plan, uint64_t rank,
                       uint64_t number)
{
    uint64_t positions[PLACES];
    size_t padding = 0, pads = 0, found = 0, n = hr__plan_batch(plan, number, positions, &padding);
    assert_int_equal(n, job->places / job->wish.cut.ranks);
    for (size_t i = 0; i < job->places; i++) {
        if (job->ranks[i] != rank)
            continue;
        assert_true(found < n);
        assert_int_equal(positions[found++], job->positions[i]);
        pads += i >= job->left;
    }
    assert_int_equal(found, n);
    assert_int_equal(padding, pads);
}

static int host_of(const struct plan_job *job, size_t place)
{
    return job->host_of_rank[job->ranks[place]];
}

static uint64_t sample_at(const struct plan_job *job, size_t place)
{
    return hr__order_at(job->order, job->positions[place]);
}

/* The host that keeps a sample, in memory or on its disk. */
static uint16_t keeper_of(const struct plan_job *job, uint64_t sample)
{
    uint16_t owner = job->owners[sample];
    return owner == HR__NOBODY && job->wish.disks ? job->disks[sample] : owner;
}

/* Counts how many samples of the batch each host keeps. */
static void count_owned(const struct plan_job *job, uint64_t owned[HOSTS + 1])
{
    memset(owned, 0, (HOSTS + 1) * sizeof *owned);
    for (size_t i = 0; i < job->places; i++) {
        uint16_t owner = keeper_of(job, sample_at(job, i));
        owned[owner == HR__NOBODY ? HOSTS : owner]++;
    }
}

static uint64_t slots_of(const struct plan_job *job, int host)
{
    uint64_t ranks = 0;
    for (uint64_t r = 0; r < job->wish.cut.ranks; r++)
        ranks += job->host_of_rank[r] == host;
    return ranks * job->places / job->wish.cut.ranks;
}

static uint64_t local_hits(const struct plan_job *job)
{
    uint64_t hits = 0;
    for (size_t i = 0; i < job->places; i++)
        hits += keeper_of(job, sample_at(job, i)) == host_of(job, i);
    return hits;
}

/* What is on a disk is used there, unless its host has too many of those alone. */
static void check_disks(const struct plan_job *job)
{
    uint64_t kept[HOSTS] = {0}, used[HOSTS] = {0};
    for (size_t i = 0; job->wish.disks && i < job->places; i++) {
        uint64_t sample = sample_at(job, i);
        uint16_t disk = job->owners[sample] == HR__NOBODY ? job->disks[sample] : HR__NOBODY;
        if (disk == HR__NOBODY)
            continue;
        kept[disk]++;
        used[disk] += disk == host_of(job, i);
    }
    for (int h = 0; h < job->wish.host_count; h++)
        assert_int_equal(used[h], kept[h] < slots_of(job, h) ? kept[h] : slots_of(job, h));
}

static uint64_t most_hits(const struct plan_job *job)
{
    uint64_t owned[HOSTS + 1], hits = 0;
    count_owned(job, owned);
    for (int h = 0; h < job->wish.host_count; h++)
        hits += owned[h] < slots_of(job, h) ? owned[h] : slots_of(job, h);
    return hits;
}

/* Returns the share of bytes that other hosts' servers send, over an epoch. */
static double remote_share(struct plan_job *job)
{
    uint64_t remote = 0, all = 0;
    for (uint64_t b = 0; b < hr__cut_batches(&job->wish.cut); b++) {
        look_at(job, b);
        for (size_t i = 0; i < job->places; i++) {
            uint64_t sample = sample_at(job, i);
            uint16_t owner = job->owners[sample];
            all += job->bytes[sample];
            if (owner != HR__NOBODY && owner != host_of(job, i))
                remote += job->bytes[sample];
        }
    }
    return (double)remote / (double)all;
}

/* Returns the longest predicted time of a host for the batch, with ranks[place] as given. */
static double largest_time(const struct plan_job *job, const uint16_t *ranks)
{
    double times[HOSTS] = {0}, largest = 0;
    for (size_t i = 0; i < job->places; i++) {
        uint64_t sample = sample_at(job, i);
        int host = job->host_of_rank[ranks[i]];
        const struct hr__plan_rates *rates = &job->rates[host];
        uint16_t owner = job->owners[sample];
        uint32_t tier = owner == HR__NOBODY ? rates->storage_ns
                        : owner == host     ? rates->own_ns
                                            : rates->peer_ns;
        times[host] += (double)(tier + rates->prepare_ns) * job->bytes[sample] / 1024;
    }
    for (int h = 0; h < job->wish.host_count; h++)
        largest = times[h] > largest ? times[h] : largest;
    return largest;
}

static uint64_t below(struct hr__random *random, uint64_t n)
{
    return hr__random_below(random, n);
}

static struct plan_job *random_job(struct hr__random *random)
{
    struct plan_job *job =
        job_create(1 + below(random, 3000), 1 + (int)below(random, 9), 1, 1 + below(random, 40));
    struct hr__plan_wish *wish = &job->wish;
    wish->cut.ranks = 1 + below(random, 24);
    wish->cut.drop_last = (int)below(random, 2);
    wish->cut.start = below(random, 3) ? 0 : below(random, wish->cut.samples + 1);
    for (uint64_t r = 0; r < wish->cut.ranks; r++)
        job->host_of_rank[r] = (int)below(random, (uint64_t)wish->host_count + 1) - 1;
    uint64_t cached = below(random, 5) * 25, few = below(random, 3);
    for (uint64_t i = 0; i < wish->cut.samples; i++) {
        uint64_t owner = below(random, (uint64_t)wish->host_count);
        if (few == 0)
            owner /= 2;
        job->owners[i] = below(random, 100) < cached ? (uint16_t)owner : HR__NOBODY;
        job->disks[i] = below(random, 3) ? (uint16_t)owner : HR__NOBODY;
        job->bytes[i] = (uint32_t)below(random, UINT64_C(1) << (1 + below(random, 32)));
    }
    if (below(random, 4) == 0)
        wish->bytes = NULL;
    if (below(random, 2))
        wish->disks = job->disks;
    uint64_t known = below(random, 3);
    wish->rates = known ? job->rates : NULL;
    for (int h = 0; h < wish->host_count; h++) {
        uint32_t all[4];
        for (int k = 0; k < 4; k++)
            all[k] = known == 1 || below(random, 2)
                         ? (uint32_t)below(random, UINT64_C(1) << (1 + below(random, 32)))
                         : 0;
        job->rates[h] = (struct hr__plan_rates){all[0], all[1], all[2], all[3]};
    }
    return job;
}

static void any_job_gets_exactly_its_samples(void **state)
{
    (void)state;
    struct hr__random random;
    hr__random_init(&random, 1, 2002, 0, 0);
    uint64_t looked_at = 0;
    for (int trial = 0; trial < 300; trial++) {
        struct plan_job *job = random_job(&random);
        start_epoch(job, (uint64_t)trial);
        uint64_t batches = hr__cut_batches(&job->wish.cut), ranks = job->wish.cut.ranks;
        for (uint64_t k = 0; k < 3 && k < batches; k++) {
            uint64_t number = k ? below(&random, batches) : batches - 1;
            look_at(job, number);
            looked_at++;
            uint16_t first[PLACES];
            memcpy(first, job->ranks, job->places * sizeof *first);
            if (!job->wish.rates)
                assert_int_equal(local_hits(job), most_hits(job));
            check_disks(job);
            for (uint64_t r = 0; r < ranks; r++) {
                struct hr__plan_wish wish = job->wish;
                struct hr__plan *plan;
                wish.cut.rank = r;
                assert_int_equal(hr__plan_create(&plan, &wish, NULL), 0);
                check_rank(job, plan, r, number);
                hr__plan_ranks(plan, number, job->ranks);
                assert_memory_equal(first, job->ranks, job->places * sizeof *first);
                hr__plan_destroy(&plan);
            }
        }
        job_destroy(job);
    }
    assert_true(looked_at > 500);
}

static void exact_is_the_cut(void **state)
{
    (void)state;
    struct plan_job *job = job_create(1003, 3, 2, 16);
    job->wish.assignment = HR__ASSIGNMENT_EXACT;
    job->wish.owners = NULL;
    for (job->wish.cut.rank = 0; job->wish.cut.rank < 6; job->wish.cut.rank++) {
        start_epoch(job, 0);
        for (uint64_t b = 0; b < hr__cut_batches(&job->wish.cut); b++) {
            uint64_t ours[16], theirs[16];
            size_t our_pads, their_pads;
            size_t n = hr__cut_batch(&job->wish.cut, b, theirs, &their_pads);
            assert_int_equal(hr__plan_batch(job->plan, b, ours, &our_pads), n);
            assert_int_equal(our_pads, their_pads);
            assert_memory_equal(ours, theirs, n * sizeof *ours);
            struct hr__cut cut = job->wish.cut;
            look_at(job, b);
            check_rank(job, job->plan, cut.rank, b);
        }
    }
    job_destroy(job);
}

static void little_travels_when_all_is_cached(void **state)
{
    (void)state;
    for (int per_host = 1; per_host <= 4; per_host *= 4) {
        struct plan_job *job = job_create(SAMPLES, 8, (uint64_t)per_host, 256 / (uint64_t)per_host);
        job->wish.cut.drop_last = 1;
        own(job, 102, 5);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            start_epoch(job, epoch);
            double share = remote_share(job);
            if (share > 0.03 || share < 0.005)
                fail_msg("%.4f of the bytes are remote with %d ranks a host", share, per_host);
        }
        job_destroy(job);
    }
}

/* Of the samples that must move, the smallest do. */
static void the_smallest_move(void **state)
{
    (void)state;
    struct plan_job *job = job_create(SAMPLES, 8, 1, 256);
    own(job, 102, 5);
    start_epoch(job, 0);
    double alike = remote_share(job);
    vary_sizes(job, 1);
    start_epoch(job, 0);
    assert_true(remote_share(job) < alike * 0.6);
    job_destroy(job);
}

static void misses_fill_the_slots_first(void **state)
{
    (void)state;
    static const int percents[] = {50, 70};
    for (size_t k = 0; k < 2; k++) {
        struct plan_job *job = job_create(SAMPLES, 8, 1, 256);
        vary_sizes(job, 2);
        own(job, percents[k], 6);
        job->wish.cut.drop_last = 1;
        start_epoch(job, 1);
        assert_true(remote_share(job) == 0);
        job_destroy(job);
    }
}

static void set_rates(struct plan_job *job, struct hr__plan_rates rates)
{
    job->wish.rates = job->rates;
    for (int h = 0; h < job->wish.host_count; h++)
        job->rates[h] = rates;
}

/* Returns the minimum of the longest time over all assignments with equal counts, by trying all. */
static double best_time(const struct plan_job *job, uint16_t *ranks, uint64_t *room, size_t place)
{
    if (place == job->places)
        return largest_time(job, ranks);
    double best = 1e300;
    for (uint16_t r = 0; r < job->wish.cut.ranks; r++) {
        if (!room[r])
            continue;
        room[r]--;
        ranks[place] = r;
        double time = best_time(job, ranks, room, place + 1);
        best = time < best ? time : best;
        room[r]++;
    }
    return best;
}

/* Compares the plan's longest time with the minimum: the worst batch of some, and the mean. */
static double against_best(struct plan_job *job, int batches, double *mean)
{
    double worst = 0;
    *mean = 0;
    for (int b = 0; b < batches; b++) {
        uint16_t ranks[PLACES];
        uint64_t room[RANKS];
        look_at(job, (uint64_t)b);
        for (uint64_t r = 0; r < job->wish.cut.ranks; r++)
            room[r] = job->places / job->wish.cut.ranks;
        double ratio = largest_time(job, job->ranks) / best_time(job, ranks, room, 0);
        assert_true(ratio > 0.999999);
        worst = ratio > worst ? ratio : worst;
        *mean += ratio / batches;
    }
    return worst;
}

static void a_slow_storage_gets_the_small_ones(void **state)
{
    (void)state;
    static const struct {
        int hosts;
        uint64_t batch_size;
        uint32_t slow;
    } cases[] = {{2, 5, 4}, {3, 3, 4}, {2, 6, 1}, {3, 3, 1}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct plan_job *job = job_create(2000, cases[k].hosts, 1, cases[k].batch_size);
        vary_sizes(job, 3);
        for (int i = 0; i < 2000; i++)
            job->owners[i] = HR__NOBODY;
        set_rates(job, (struct hr__plan_rates){100, 1000, 20000, 100});
        job->rates[1].storage_ns *= cases[k].slow;
        start_epoch(job, 0);
        double mean, worst = against_best(job, 40, &mean);
        if (worst > 1.25 || mean > 1.08)
            fail_msg("%d hosts, one %u times slower: %.3f times the best at worst, %.3f in the "
                     "mean",
                     cases[k].hosts, cases[k].slow, worst, mean);
        job_destroy(job);
    }
}

/* Half of the samples are cached: the slow host reads fewer, and fetches from others instead. */
static void a_slow_storage_is_relieved_over_the_network(void **state)
{
    (void)state;
    struct plan_job *job = job_create(SAMPLES, 4, 2, 32);
    vary_sizes(job, 4);
    own(job, 50, 7);
    set_rates(job, (struct hr__plan_rates){100, 1000, 40000, 1000});
    job->rates[2].storage_ns *= 4;
    double with = 0, without = 0;
    start_epoch(job, 0);
    for (uint64_t b = 0; b < 20; b++) {
        look_at(job, b);
        with += largest_time(job, job->ranks);
    }
    job->wish.rates = NULL;
    start_epoch(job, 0);
    for (uint64_t b = 0; b < 20; b++) {
        look_at(job, b);
        without += largest_time(job, job->ranks);
    }
    /* Speeds 4, 1, 4, 4 together against four times the slow one's. */
    assert_true(with < without / 2);

    /* A network slower than all storages: no cached sample moves to relieve a host. */
    set_rates(job, (struct hr__plan_rates){100, 400000, 40000, 1000});
    job->rates[2].storage_ns *= 4;
    start_epoch(job, 0);
    for (uint64_t b = 0; b < 20; b++) {
        look_at(job, b);
        assert_int_equal(local_hits(job), most_hits(job));
    }
    job_destroy(job);
}

static void small_mixed_batches_are_near_the_best(void **state)
{
    (void)state;
    struct plan_job *job = job_create(3000, 3, 1, 3);
    vary_sizes(job, 5);
    own(job, 50, 8);
    set_rates(job, (struct hr__plan_rates){100, 1000, 20000, 2000});
    job->rates[0].storage_ns *= 4;
    start_epoch(job, 0);
    double mean, worst = against_best(job, 40, &mean);
    if (worst > 1.4 || mean > 1.1)
        fail_msg("%.3f times the best at worst, %.3f in the mean", worst, mean);
    job_destroy(job);
}

/* A host with slow processors gives its largest samples away, the others their smallest. */
static void a_late_host_gives_large_ones_away(void **state)
{
    (void)state;
    double times[2] = {0}, moved[2] = {0}, others[2] = {0}, count[2] = {0}, other_count[2] = {0};
    for (int with = 0; with < 2; with++) {
        struct plan_job *job = job_create(SAMPLES, 4, 1, 64);
        vary_sizes(job, 7);
        own(job, 102, 11);
        set_rates(job, (struct hr__plan_rates){100, 1000, 40000, 5000});
        job->rates[1].prepare_ns *= 3;
        job->wish.rates = with ? job->rates : NULL;
        job->wish.cut.drop_last = 1;
        start_epoch(job, 2);
        for (uint64_t b = 0; b < hr__cut_batches(&job->wish.cut); b++) {
            look_at(job, b);
            assert_int_equal(local_hits(job), most_hits(job));
            times[with] += largest_time(job, job->ranks);
            for (size_t i = 0; i < job->places; i++) {
                uint64_t sample = sample_at(job, i);
                if (job->owners[sample] == host_of(job, i))
                    continue;
                if (job->owners[sample] == 1) {
                    moved[with] += job->bytes[sample];
                    count[with]++;
                } else {
                    others[with] += job->bytes[sample];
                    other_count[with]++;
                }
            }
        }
        job_destroy(job);
    }
    assert_true(count[0] > 20 && count[0] == count[1]);
    assert_true(moved[1] / count[1] > 3 * moved[0] / count[0]);
    assert_true(others[1] / other_count[1] < 1.2 * others[0] / other_count[0]);
    assert_true(times[1] < times[0] * 0.98);
}

/* Returns the spread of the ranks' bytes over their mean: the mean over an epoch's batches. */
static double spread_of_bytes(struct plan_job *job)
{
    double spread = 0, batches = (double)hr__cut_batches(&job->wish.cut);
    for (uint64_t b = 0; b < (uint64_t)batches; b++) {
        uint64_t bytes[RANKS] = {0}, least = UINT64_MAX, most = 0, sum = 0;
        look_at(job, b);
        for (size_t i = 0; i < job->places; i++)
            bytes[job->ranks[i]] += job->bytes[sample_at(job, i)];
        for (uint64_t r = 0; r < job->wish.cut.ranks; r++) {
            least = bytes[r] < least ? bytes[r] : least;
            most = bytes[r] > most ? bytes[r] : most;
            sum += bytes[r];
        }
        spread += (double)((most - least) * job->wish.cut.ranks) / (double)sum / batches;
    }
    return spread;
}

/* Large samples are spread over hosts and over the ranks of a host. */
static void large_samples_are_spread(void **state)
{
    (void)state;
    static const int percents[] = {0, 30, 102};
    static const double most[] = {0.2, 0.5, 0.6};
    for (size_t k = 0; k < 3; k++) {
        struct plan_job *job = job_create(SAMPLES, 4, 4, 64);
        vary_sizes(job, 6);
        own(job, percents[k], 9);
        job->wish.cut.drop_last = 1;
        start_epoch(job, 0);
        double ours = spread_of_bytes(job);
        job->wish.assignment = HR__ASSIGNMENT_EXACT;
        start_epoch(job, 0);
        double chance = spread_of_bytes(job);
        if (ours > chance * most[k])
            fail_msg("with %d %% cached the ranks' bytes are %.3f of their mean apart, by chance "
                     "%.3f",
                     percents[k], ours, chance);
        job_destroy(job);
    }
}

static void ranks_on_no_host_fetch_and_read(void **state)
{
    (void)state;
    for (int percent = 60; percent <= 110; percent += 50) {
        struct plan_job *job = job_create(SAMPLES, 3, 2, 50);
        own(job, percent, 10);
        job->host_of_rank[1] = job->host_of_rank[4] = -1;
        /* Host 1 now has three ranks, host 2 one, host 0 none. */
        job->host_of_rank[0] = 1;
        start_epoch(job, 3);
        uint64_t fetched = 0, read = 0;
        for (uint64_t b = 0; b < 30; b++) {
            look_at(job, b);
            assert_int_equal(local_hits(job), most_hits(job));
            for (size_t i = 0; i < job->places; i++) {
                if (host_of(job, i) != -1)
                    continue;
                read += job->owners[sample_at(job, i)] == HR__NOBODY;
                fetched += job->owners[sample_at(job, i)] != HR__NOBODY;
            }
        }
        assert_int_equal(fetched + read, 30 * 2 * 50);
        assert_true(percent < 100 ? read > 0 : read == 0);
        job_destroy(job);
    }
}

/* Results of other versions, compilers and machines: ranks with different plans would train on
 * samples twice. */
static void the_plan_is_the_same_everywhere(void **state)
{
    (void)state;
    static const struct {
        int hosts, percent, rates;
        uint64_t ranks_per_host, digest;
    } golden[] = {
        {1, 50, 0, 4, UINT64_C(0x8118b5c53b5841ed)},  {8, 102, 0, 1, UINT64_C(0x8cc6a2097a767cf7)},
        {8, 102, 1, 4, UINT64_C(0xd825ff6ae2ff68e9)}, {16, 50, 0, 2, UINT64_C(0x6a05da0c66da446f)},
        {16, 50, 1, 2, UINT64_C(0x9deaf00127f2ab19)}, {5, 0, 1, 3, UINT64_C(0xc33edeb4198bb450)},
    };
    for (size_t k = 0; k < sizeof golden / sizeof *golden; k++) {
        struct plan_job *job =
            job_create(SAMPLES - 77, golden[k].hosts, golden[k].ranks_per_host, 32);
        vary_sizes(job, k);
        own(job, golden[k].percent, k);
        if (golden[k].rates) {
            set_rates(job, (struct hr__plan_rates){300, 2000, 30000, 4000});
            job->rates[1].storage_ns = 120000;
            job->rates[2].prepare_ns = 8000;
            job->rates[3].peer_ns = 0;
        }
        start_epoch(job, k);
        uint64_t digest = UINT64_C(0xcbf29ce484222325);
        for (uint64_t b = 0; b < hr__cut_batches(&job->wish.cut); b++) {
            look_at(job, b);
            for (size_t i = 0; i < job->places; i++)
                digest = (digest ^ job->ranks[i]) * UINT64_C(0x100000001b3);
        }
        if (digest != golden[k].digest)
            fail_msg("case %zu: 0x%016" PRIx64, k, digest);
        job_destroy(job);
    }
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    struct plan_job *job = job_create(100, 2, 2, 4);
    struct hr_error error = {0};
    struct hr__plan *plan = NULL;
    struct hr__plan_wish wish = job->wish;
    wish.cut.rank = 4;
    assert_int_equal(hr__plan_create(&plan, &wish, &error), -EINVAL);
    wish = job->wish;
    wish.host_count = 0;
    assert_int_equal(hr__plan_create(&plan, &wish, &error), -EINVAL);
    wish = job->wish;
    job->host_of_rank[3] = 2;
    assert_int_equal(hr__plan_create(&plan, &wish, &error), -EINVAL);
    assert_non_null(strstr(error.message, "rank 3"));
    job->host_of_rank[3] = 1;
    wish.cut.samples = UINT64_C(1) << 40;
    wish.cut.batch_size = UINT64_C(1) << 35;
    assert_int_equal(hr__plan_create(&plan, &wish, &error), -EINVAL);
    assert_non_null(strstr(error.message, "batch_size"));
    assert_null(plan);
    hr__plan_destroy(&plan);
    job_destroy(job);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    struct plan_job *job = job_create(100, 2, 2, 4);
    uint64_t before = hr__allocated(HR__TAG_ORDER);
    int rc = -ENOMEM, tries = 0;
    while (rc) {
        struct hr_error error = {0};
        hr__alloc_fail_at((uint64_t)++tries, 0);
        rc = hr__plan_create(&job->plan, &job->wish, &error);
        hr__alloc_fail_at(0, 0);
        assert_true(rc == 0 || (rc == -ENOMEM && error.code == -ENOMEM && !job->plan));
        assert_true(tries < 40);
    }
    assert_true(tries > 10);
    job_destroy(job);
    assert_int_equal(hr__allocated(HR__TAG_ORDER), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_job_gets_exactly_its_samples),
        cmocka_unit_test(exact_is_the_cut),
        cmocka_unit_test(little_travels_when_all_is_cached),
        cmocka_unit_test(the_smallest_move),
        cmocka_unit_test(misses_fill_the_slots_first),
        cmocka_unit_test(a_slow_storage_gets_the_small_ones),
        cmocka_unit_test(a_slow_storage_is_relieved_over_the_network),
        cmocka_unit_test(small_mixed_batches_are_near_the_best),
        cmocka_unit_test(a_late_host_gives_large_ones_away),
        cmocka_unit_test(large_samples_are_spread),
        cmocka_unit_test(ranks_on_no_host_fetch_and_read),
        cmocka_unit_test(the_plan_is_the_same_everywhere),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
