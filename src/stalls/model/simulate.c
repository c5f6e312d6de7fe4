/*
 * Simulates a system: draws the costs of its samples and steps, runs it (training.h), and computes
 * the parts of a batch's time as differences of runs.
 *
 * Draws are a shuffled pool as long as the counted part of a run, scaled to the mean of the values.
 * So each run sees exactly the given means and missing share, whatever its length. A sample that is
 * missing at some share is missing at every greater one, so that curves are smooth.
 */
#include "stalls/model/model.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "stalls/model/training.h"

#include <errno.h>
#include <math.h>

#define ROUNDING   1e-9      /* share of a batch's time that counts as no difference */
#define MAX_COUNT  (1 << 16) /* largest number of cores, ranks, workers, batches ahead */
#define MAX_POOL   ((uint64_t)1 << 18)
#define MAX_WINDOW ((uint64_t)1 << 26) /* samples of all ranks' windows */

struct pools {
    double *prepare_s, *bytes, *chance, *step_s;
};

/* ---- validation ---- */

static int wrong(struct hr_error *error, const char *what, double value)
{
    return hr__fail(error, -EINVAL, "a simulated system cannot have %s %g", what, value);
}

static bool amount(double value)
{
    return value >= 0 && value < INFINITY;
}

static int check_values(const char *what, struct hr__values values, struct hr_error *error)
{
    for (size_t i = 0; i < values.count; i++)
        if (!amount(values.values[i]))
            return wrong(error, what, values.values[i]);
    return 0;
}

static int check_amounts(const struct hr__system *s, struct hr_error *error)
{
    const struct {
        const char *what;
        double value;
    } amounts[] = {
        {"a contention of", s->contention},
        {"a read's latency of", s->storage_latency_s},
        {"saved transfer of", s->storage_saved_s},
        {"a copy of", s->copy_s},
        {"CPU of a step of", s->step_cpu_s},
        {"a step's disturbance of", s->disturbance},
        {"a step's growth of", s->sharing},
        {"a growth of all work of", s->crowding},
        {"a delay of", s->delay_s},
        {"CPU of a batch of", s->batch_cpu_s},
        {"CPU of a missing sample of", s->missing_cpu_s},
        {"missing samples of", s->missing},
    };
    for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++)
        if (!amount(amounts[i].value))
            return wrong(error, amounts[i].what, amounts[i].value);
    if (s->missing > 1)
        return wrong(error, "missing samples of", s->missing);
    if (s->missing > 0 && !(s->storage_bytes_per_s > 0))
        return wrong(error, "storage of bytes/s", s->storage_bytes_per_s);
    return 0;
}

static int check_counts(const struct hr__system *s, int batches, struct hr_error *error)
{
    const struct {
        const char *what;
        int value, least;
    } counts[] = {
        {"cores:", s->cores, 1},
        {"busy cores that contend:", s->contention_cores, 0},
        {"ranks:", s->ranks, 1},
        {"threads of training:", s->step_threads, 0},
        {"workers:", s->workers, 0},
        {"batches ahead:", s->batches_ahead, s->workers > 0},
        {"samples in a batch:", s->batch_size, 1},
        {"reads ahead:", s->fetches_ahead, 0},
        {"batches:", batches, 1},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < counts[i].least || counts[i].value > MAX_COUNT)
            return wrong(error, counts[i].what, counts[i].value);
    uint64_t window = (uint64_t)s->ranks * (uint64_t)s->batch_size;
    if (window * (uint64_t)(s->batches_ahead + 1) > MAX_WINDOW ||
        (uint64_t)s->ranks * (uint64_t)(s->workers + 1) > MAX_WINDOW)
        return wrong(error, "so many samples in work:", (double)window * s->batches_ahead);
    return 0;
}

static int check(const struct hr__system *s, int batches, struct hr_error *error)
{
    int r = check_counts(s, batches, error);
    if (!r)
        r = check_amounts(s, error);
    if (!r)
        r = check_values("a step of", s->step_s, error);
    if (!r)
        r = check_values("CPU of a sample of", s->prepare_s, error);
    if (!r)
        r = check_values("a file of bytes", s->bytes, error);
    return r;
}

/* ---- drawing ---- */

static double mean_of(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return count ? sum / (double)count : 0;
}

static void shuffle(double *values, size_t count, uint64_t seed, uint64_t stream)
{
    struct hr__random random;
    hr__random_init(&random, seed, HR__PURPOSE_SHUFFLE, stream, 0);
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)hr__random_below(&random, i);
        double value = values[i - 1];
        values[i - 1] = values[j];
        values[j] = value;
    }
}

static double *draw(struct hr__values from, size_t count, uint64_t seed, uint64_t stream)
{
    double *pool = hr__alloc(HR__TAG_STALLS, count, sizeof *pool);
    if (!pool || !from.count)
        return pool;
    /* A pool shorter than the values uses evenly spaced ones. */
    for (size_t i = 0; i < count; i++)
        pool[i] = count < from.count ? from.values[(uint64_t)i * from.count / count]
                                     : from.values[i % from.count];
    double mean = mean_of(pool, count), wanted = mean_of(from.values, from.count);
    for (size_t i = 0; i < count && mean > 0; i++)
        pool[i] *= wanted / mean;
    shuffle(pool, count, seed, stream);
    return pool;
}

static void free_pools(struct pools *pools)
{
    hr__free(pools->prepare_s);
    hr__free(pools->bytes);
    hr__free(pools->chance);
    hr__free(pools->step_s);
}

static int draw_all(struct pools *pools, struct hr__draws *draws, const struct hr__system *s,
                    uint64_t batches, uint64_t seed)
{
    uint64_t samples = batches * (uint64_t)s->batch_size;
    size_t count = (size_t)(samples < MAX_POOL ? samples : MAX_POOL);
    pools->prepare_s = draw(s->prepare_s, count, seed, 0);
    pools->bytes = draw(s->bytes, count, seed, 1);
    pools->step_s = draw(s->step_s, (size_t)batches, seed, 2);
    pools->chance = hr__alloc(HR__TAG_STALLS, count, sizeof *pools->chance);
    if (!pools->prepare_s || !pools->bytes || !pools->step_s || !pools->chance)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        pools->chance[i] = ((double)i + 0.5) / (double)count;
    shuffle(pools->chance, count, seed, 3);
    *draws = (struct hr__draws){
        .prepare_s = pools->prepare_s,
        .bytes = pools->bytes,
        .chance = pools->chance,
        .samples = count,
        .step_s = pools->step_s,
        .steps = (size_t)batches,
        .step_mean_s = mean_of(s->step_s.values, s->step_s.count),
    };
    return 0;
}

/* ---- running ---- */

int hr__simulate_batch_s(const struct hr__system *system, int batches, uint64_t seed,
                         double *batch_s, double *core_share, struct hr_error *error)
{
    struct pools pools = {.prepare_s = NULL};
    struct hr__draws draws;
    double share, passed_s;
    int r = check(system, batches, error);
    if (r)
        return r;
    uint64_t each = system->loader != HR__LOADER_HEADRACE && system->workers > 1
                        ? (uint64_t)system->workers
                        : 1;
    uint64_t counted = ((uint64_t)batches + each - 1) / each * each;
    /* The initial state shows until the window has gone round a few times. */
    uint64_t settle = 3 * (uint64_t)system->batches_ahead + 8;
    settle = (settle < 4 * counted ? settle : 4 * counted) / each * each + each;
    r = draw_all(&pools, &draws, system, counted, seed);
    if (!r)
        r = hr__training_run(system, &draws, settle, counted, &passed_s, &share);
    free_pools(&pools);
    if (r)
        return hr__fail(error, r, "out of memory while simulating training");
    *batch_s = passed_s;
    if (core_share)
        *core_share = share;
    return 0;
}

/* A system whose batches are always ready. */
static struct hr__system without_loader(const struct hr__system *system)
{
    struct hr__system s = *system;
    s.loader = HR__LOADER_TORCH;
    s.workers = 0;
    s.prepare_s = s.bytes = (struct hr__values){NULL, 0};
    s.delay_s = s.batch_cpu_s = s.missing = s.missing_cpu_s = 0;
    return s;
}

int hr__simulate(const struct hr__system *system, int batches, uint64_t seed,
                 struct hr__prediction *outcome, struct hr_error *error)
{
    struct hr__system trained = without_loader(system), warm = *system;
    double trained_s = 0, warm_s = 0, all_s = 0, core_share = 0;
    warm.missing = 0;
    int r = hr__simulate_batch_s(system, batches, seed, &all_s, &core_share, error);
    if (!r && system->missing > 0)
        r = hr__simulate_batch_s(&warm, batches, seed, &warm_s, NULL, error);
    else
        warm_s = all_s;
    if (!r)
        r = hr__simulate_batch_s(&trained, batches, seed, &trained_s, NULL, error);
    if (r)
        return r;
    /* Neither can exceed the whole it is part of, except by rounding. */
    warm_s = all_s - warm_s > ROUNDING * all_s ? warm_s : all_s;
    trained_s = warm_s - trained_s > ROUNDING * warm_s ? trained_s : warm_s;
    double copy_s = fmin(system->copy_s, trained_s);
    *outcome = (struct hr__prediction){
        .rate = all_s > 0 ? (double)system->batch_size * system->ranks / all_s : INFINITY,
        .step_s = trained_s - copy_s,
        .copy_s = copy_s,
        .wait_prepare_s = warm_s - trained_s,
        .wait_fetch_s = all_s - warm_s,
        .core_share = core_share,
    };
    return 0;
}
