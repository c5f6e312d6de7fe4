/*
 * The cost of planning, and the share of an epoch's bytes that crosses the network under the plan.
 *
 *   bench_plan [SAMPLES [ROUNDS]]
 *
 * Cost: CPU nanoseconds per sample of an epoch of SAMPLES (1 million), as one rank plans it, with
 * 256 samples per host and one rank per host: the minimum of ROUNDS (9) epochs, less the time to
 * look up the order. Measured with everything, half and nothing cached; with no rates, with equal
 * rates, and with one storage four times slower. plan_ms_per_million is the highest of these costs
 * with 8 and 64 hosts.
 *
 * Share: simulated bytes from other hosts over all bytes, with sizes like those of photographs, for
 * 2 to 1,024 hosts. Budgets are equal, and their sum is C / D of all bytes. The last line is JSON.
 */
#include "cluster/plan.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "cluster/placement.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { HOSTS_MAX = 1024, PER_HOST = 256, SIMULATED_BATCHES = 8 };

enum rates { NO_RATES, ALIKE, ONE_SLOW };

/* A dataset on several hosts. */
struct plan_bench {
    uint64_t samples;
    uint32_t *bytes;
    int hosts;
    struct hr__placement *placement;
    struct hr__order *order;
    int host_of_rank[HOSTS_MAX];
    struct hr__plan_rates rates[HOSTS_MAX];
};

static _Noreturn void die(const char *what, const struct hr_error *error)
{
    fprintf(stderr, "bench_plan: %s: %s\n", what, error->message);
    exit(3);
}

/* Draws sizes: log-normal about 110 kB, like photographs of one resolution. */
static void make_sizes(struct plan_bench *b, uint64_t samples)
{
    struct hr__random random;
    hr__random_init(&random, 1, 3000, 0, 0);
    b->samples = samples;
    b->bytes = hr__alloc(HR__TAG_ORDER, samples, sizeof *b->bytes);
    if (!b->bytes)
        die("sizes", &(struct hr_error){.message = "out of memory"});
    for (uint64_t i = 0; i < samples; i++) {
        double normal = 0;
        for (int k = 0; k < 12; k++)
            normal += hr__random_unit(&random) - 0.5;
        b->bytes[i] = (uint32_t)(100e3 * exp(0.45 * normal));
    }
}

static void place(struct plan_bench *b, int hosts, double cached)
{
    struct hr_error error = {0};
    struct hr__random random;
    struct hr__placement_host *list = hr__alloc(HR__TAG_ORDER, (size_t)hosts, sizeof *list);
    if (!list)
        die("hosts", &(struct hr_error){.message = "out of memory"});
    double total = 0;
    for (uint64_t i = 0; i < b->samples; i++)
        total += b->bytes[i];
    hr__random_init(&random, 2, 3001, 0, 0);
    for (int h = 0; h < hosts; h++) {
        list[h].id = hr__random_u64(&random);
        list[h].budget_bytes = (uint64_t)(total * cached / hosts);
        b->host_of_rank[h] = h;
    }
    b->hosts = hosts;
    hr__placement_destroy(&b->placement);
    struct hr__placement_wish wish = {
        .hosts = list, .host_count = hosts, .samples = b->samples, .bytes = b->bytes, .digest = 3};
    if (hr__placement_create(&b->placement, &wish, &error))
        die("placement", &error);
    hr__free(list);
}

static struct hr__plan *plan_of(struct plan_bench *b, uint64_t per_host, enum rates rates)
{
    struct hr_error error = {0};
    struct hr__plan *plan;
    for (int h = 0; h < b->hosts; h++)
        b->rates[h] = (struct hr__plan_rates){250, 1000, 5000, 5000};
    if (rates == ONE_SLOW)
        b->rates[b->hosts / 2].storage_ns *= 4;
    struct hr__plan_wish wish = {
        .assignment = HR__ASSIGNMENT_LOCAL,
        .cut = {.samples = b->samples, .batch_size = per_host, .ranks = (uint64_t)b->hosts},
        .order = b->order,
        .owners = hr__placement_owners(b->placement),
        .bytes = b->bytes,
        .host_count = b->hosts,
        .host_of_rank = b->host_of_rank,
        .rates = rates == NO_RATES ? NULL : b->rates};
    if (hr__plan_create(&plan, &wish, &error))
        die("plan", &error);
    return plan;
}

static struct hr__cut cut_of(const struct plan_bench *b, uint64_t per_host)
{
    return (struct hr__cut){
        .samples = b->samples, .batch_size = per_host, .ranks = (uint64_t)b->hosts};
}

/* Returns nanoseconds per sample to look up the order, which a loader without hosts does, too. */
static double time_order(const struct plan_bench *b, int rounds)
{
    uint64_t least = UINT64_MAX, sum = 0;
    for (int k = 0; k < rounds; k++) {
        uint64_t from = hr__thread_cpu_ns();
        for (uint64_t i = 0; i < b->samples; i++)
            sum += hr__order_at(b->order, i);
        uint64_t taken = hr__thread_cpu_ns() - from;
        least = taken < least ? taken : least;
    }
    /* use the sum, so that it is computed */
    if (sum != (uint64_t)rounds * (b->samples * (b->samples - 1) / 2))
        die("order", &(struct hr_error){.message = "is no permutation"});
    return (double)least / (double)b->samples;
}

/* Returns nanoseconds per sample to plan one epoch. */
static double time_plan(struct plan_bench *b, enum rates rates)
{
    uint64_t positions[PER_HOST], from = hr__thread_cpu_ns();
    struct hr__cut cut = cut_of(b, PER_HOST);
    struct hr__plan *plan = plan_of(b, PER_HOST, rates);
    for (uint64_t batch = 0; batch < hr__cut_batches(&cut); batch++) {
        size_t padding;
        hr__plan_batch(plan, batch, positions, &padding);
    }
    hr__plan_destroy(&plan);
    return (double)(hr__thread_cpu_ns() - from) / (double)b->samples;
}

/* Returns the share of bytes that cross the network in the epoch's first batches. */
static double share_of(struct plan_bench *b, uint64_t per_host)
{
    struct hr__cut cut = cut_of(b, per_host);
    const uint16_t *owners = hr__placement_owners(b->placement);
    uint16_t *ranks = hr__alloc(HR__TAG_ORDER, per_host * (uint64_t)b->hosts, sizeof *ranks);
    uint64_t batches = b->samples / (per_host * (uint64_t)b->hosts), all = 0, remote = 0;
    if (!ranks)
        die("ranks", &(struct hr_error){.message = "out of memory"});
    struct hr__plan *plan = plan_of(b, per_host, NO_RATES);
    for (uint64_t batch = 0; batch < batches && batch < SIMULATED_BATCHES; batch++) {
        size_t places = hr__plan_ranks(plan, batch, ranks);
        for (size_t i = 0; i < places; i++) {
            uint64_t sample = hr__order_at(b->order, hr__cut_position(&cut, batch) + i);
            all += b->bytes[sample];
            if (owners[sample] != HR__NOBODY && owners[sample] != ranks[i])
                remote += b->bytes[sample];
        }
    }
    hr__plan_destroy(&plan);
    hr__free(ranks);
    return all ? (double)remote / (double)all : 0;
}

static void start_epoch(struct plan_bench *b)
{
    struct hr_error error = {0};
    hr__order_destroy(&b->order);
    if (hr__order_create(&b->order, b->samples, 1, 4, 5, &error))
        die("order", &error);
}

/* Appends to the JSON in the last line. */
__attribute__((format(printf, 3, 4))) static void add(char **json, size_t *length,
                                                      const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char text[256];
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char *longer = hr__realloc(HR__TAG_ORDER, *json, *length + (size_t)n + 1, 1);
    if (n < 0 || (size_t)n >= sizeof text || !longer)
        die("the result", &(struct hr_error){.message = "out of memory"});
    for (int i = 0; i <= n; i++)
        longer[*length + (size_t)i] = text[i];
    *json = longer;
    *length += (size_t)n;
}

/* The timed cases. */
static const int timed_hosts[] = {8, 64, 1024};
static const double timed_cached[] = {1.02, 0.5, 0};
static const char *const rate_names[] = {"none", "alike", "one slow"};

enum {
    CASE_HOSTS = sizeof timed_hosts / sizeof *timed_hosts,
    CASE_CACHED = sizeof timed_cached / sizeof *timed_cached,
};

/* Times one round over all cases, so that a short disturbance spoils only one round of each. 1,024
 * hosts, whose placement takes long, run only in the first three rounds. */
static void time_round(struct plan_bench *b, int round, double least[CASE_HOSTS][CASE_CACHED][3])
{
    for (int h = 0; h < CASE_HOSTS && (timed_hosts[h] <= 64 || round < 3); h++)
        for (int c = 0; c < CASE_CACHED; c++) {
            place(b, timed_hosts[h], timed_cached[c]);
            for (enum rates rates = NO_RATES; rates <= ONE_SLOW; rates++) {
                double ns = time_plan(b, rates);
                if (round == 0 || ns < least[h][c][rates])
                    least[h][c][rates] = ns;
            }
        }
}

static double run_timing(struct plan_bench *b, int rounds, char **json, size_t *length)
{
    double least[CASE_HOSTS][CASE_CACHED][3], dearest = 0;
    start_epoch(b);
    double order = time_order(b, rounds);
    for (int round = 0; round < rounds; round++)
        time_round(b, round, least);
    printf("order by itself: %.1f ns a sample, not in the figures below\n", order);
    printf("%5s %6s %9s %12s\n", "hosts", "C/D", "rates", "ns a sample");
    for (int h = 0; h < CASE_HOSTS; h++)
        for (int c = 0; c < CASE_CACHED; c++)
            for (int k = 0; k < 3; k++) {
                double ns = least[h][c][k] - order;
                if (timed_hosts[h] <= 64 && ns > dearest)
                    dearest = ns;
                printf("%5d %6.2f %9s %12.1f\n", timed_hosts[h], timed_cached[c], rate_names[k],
                       ns);
                add(json, length,
                    "%s{\"hosts\": %d, \"cached\": %.2f, \"rates\": \"%s\", "
                    "\"ns_per_sample\": %.2f}",
                    h || c || k ? ", " : "", timed_hosts[h], timed_cached[c], rate_names[k], ns);
            }
    fflush(stdout);
    return dearest;
}

static void run_shares(struct plan_bench *b, char **json, size_t *length)
{
    static const uint64_t per_host[] = {64, 256, 1024};
    static const double cached[] = {1.02, 0.7, 0.5};
    const char *comma = "";
    start_epoch(b);
    printf("\nshare of bytes that other hosts send\n%5s %6s %10s %10s %10s\n", "hosts", "C/D",
           "64 a host", "256", "1,024");
    for (int hosts = 2; hosts <= HOSTS_MAX; hosts *= 2)
        for (size_t c = 0; c < sizeof cached / sizeof *cached; c++) {
            place(b, hosts, cached[c]);
            printf("%5d %6.2f", hosts, cached[c]);
            for (size_t k = 0; k < sizeof per_host / sizeof *per_host; k++) {
                /* A batch with most of a small dataset is not random. */
                if (per_host[k] * (uint64_t)hosts * 2 > b->samples) {
                    printf(" %10s", "-");
                    continue;
                }
                double share = share_of(b, per_host[k]);
                printf(" %9.2f%%", 100 * share);
                add(json, length,
                    "%s{\"hosts\": %d, \"cached\": %.2f, \"per_host\": %" PRIu64
                    ", \"share\": %.5f}",
                    comma, hosts, cached[c], per_host[k], share);
                comma = ", ";
            }
            printf("\n");
            fflush(stdout);
        }
}

int main(int argc, char **argv)
{
    static struct plan_bench b;
    uint64_t samples = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    int rounds = argc > 2 ? atoi(argv[2]) : 9;
    if (argc > 3 || samples < 2 || samples > UINT64_C(1) << 31 || rounds < 1) {
        fprintf(stderr, "usage: bench_plan [SAMPLES [ROUNDS]]\n");
        return 2;
    }
    char *json = NULL;
    size_t length = 0;
    make_sizes(&b, samples);
    add(&json, &length, "\"timing\": [");
    double dearest = run_timing(&b, rounds, &json, &length);
    add(&json, &length, "], \"shares\": [");
    if (samples < 2 * 1024 * HOSTS_MAX) {
        hr__free(b.bytes);
        make_sizes(&b, samples < 1000000 ? samples : 2 * 1024 * HOSTS_MAX);
    }
    run_shares(&b, &json, &length);
    add(&json, &length, "]");
    printf("{\"plan_ms_per_million\": %.2f, %s}\n", dearest, json);
    hr__free(json);
    hr__placement_destroy(&b.placement);
    hr__order_destroy(&b.order);
    hr__free(b.bytes);
    return 0;
}
