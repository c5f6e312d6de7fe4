/*
 * Compares ranks. A rank's own stall is its time blocked in next(). When gradients are summed, the
 * other ranks wait for it too, but inside the sum. So the cost of its loading to all shows only as
 * a difference: segments in which it alone loads against segments in which no rank does. Nothing is
 * subtracted between ranks.
 */
#include "base/error.h"
#include "base/memory.h"
#include "stalls/model/inside.h"

#include <errno.h>
#include <stdlib.h>

/* Smallest share of the time for a rank to be named. */
#define STRAGGLES 0.02

static double clamped(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* Computes the share of a rank's time in `phase` that it was blocked, over its segments. */
static struct hr_interval waiting_of(const struct hr__rank_record *rank, int phase, double *shares)
{
    size_t n = 0;
    for (size_t k = 0; k < rank->segment_count; k++) {
        const struct hr__segment_record *g = &rank->segments[k];
        if ((int)g->phase != phase || !(g->elapsed_s > 0))
            continue;
        double sum = 0;
        for (uint64_t b = 0; b < g->batches; b++)
            sum += g->wait_s[b];
        shares[n++] = clamped(sum / g->elapsed_s);
    }
    struct hr_interval i = hr__interval_mean(shares, n);
    if (isfinite(i.low)) {
        i.low = clamped(i.low);
        i.high = clamped(i.high);
    }
    return i;
}

static int by_value(const void *a, const void *b)
{
    const struct hr_interval *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

static int find_stragglers(struct hr_stalls *s, struct hr_error *error)
{
    size_t n = (size_t)s->rank_count;
    struct hr_interval *sorted = hr__alloc(HR__TAG_STALLS, n, sizeof *sorted);
    if (!sorted)
        return hr__fail(error, -ENOMEM, "out of memory for %zu ranks", n);
    for (size_t i = 0; i < n; i++)
        sorted[i] = s->waiting[i];
    qsort(sorted, n, sizeof *sorted, by_value);
    struct hr_interval middle = sorted[(n - 1) / 2];
    for (size_t i = 0; i < n; i++)
        s->straggles[i] =
            s->waiting[i].low > middle.high && s->waiting[i].value - middle.value >= STRAGGLES;
    hr__free(sorted);
    return 0;
}

/* Collects the times of a global batch while only `rank` loads. */
static struct hr__moments alone_moments(const struct hr_stalls *s, const struct hr__joined *j,
                                        int rank, double *times)
{
    size_t n = 0;
    for (size_t k = 0; k < j->segments; k++) {
        if (s->ranks[0].segments[k].phase != HR_STALLS_ALONE ||
            s->ranks[0].segments[k].alone_rank != rank)
            continue;
        times[n] = 0;
        for (int i = 0; i < s->rank_count; i++) {
            const struct hr__segment_record *g = &s->ranks[i].segments[k];
            times[n] = fmax(times[n], g->elapsed_s / (double)g->batches);
        }
        n++;
    }
    return hr__moments_of(times, n);
}

/*
 * Compares each rank's mean with that of replay. Two segments say little about the variance of such
 * times, so it is pooled over all ranks. The difference has the degrees of freedom of Welch, "The
 * Generalization of Student's Problem When Several Different Population Variances Are Involved",
 * Biometrika 1947.
 */
static void alone_costs(struct hr_stalls *s, const struct hr__joined *j, double *times)
{
    int base_phase = isfinite(s->step_s[HR_STALLS_HOST].value) ? HR_STALLS_HOST : HR_STALLS_DEVICE;
    for (int r = 0; r < j->rounds; r++)
        times[r] = j->round[r].seconds[base_phase];
    struct hr__moments base = hr__moments_of(times, (size_t)j->rounds);
    double squares = 0, degrees = 0;
    for (int i = 0; i < s->rank_count; i++) {
        struct hr__moments m = alone_moments(s, j, s->ranks[i].rank, times);
        if (m.count > 1) {
            squares += m.squares;
            degrees += m.count - 1;
        }
    }
    double base_degrees = base.count - 1;
    double base_variance = base.count > 1 ? base.squares / base_degrees / base.count : NAN;
    for (int i = 0; i < s->rank_count; i++) {
        struct hr__moments m = alone_moments(s, j, s->ranks[i].rank, times);
        s->alone_s[i] = HR__UNKNOWN;
        if (!m.count || !base.count)
            continue;
        double cost = m.mean - base.mean;
        double variance = degrees > 0 ? squares / degrees / m.count : NAN;
        double sum = variance + base_variance;
        double welch =
            sum * sum /
            (variance * variance / degrees + base_variance * base_variance / base_degrees);
        double half = sum > 0 ? hr__student(welch) * sqrt(sum) : sum == 0 ? 0 : NAN;
        s->alone_s[i] = (struct hr_interval){fmax(cost, 0), NAN, NAN};
        if (isfinite(half)) {
            s->alone_s[i].low = fmax(cost - half, 0);
            s->alone_s[i].high = fmax(cost + half, s->alone_s[i].value);
        }
    }
}

int hr__derive_ranks(struct hr_stalls *s, const struct hr__joined *j, struct hr_error *error)
{
    size_t most = (size_t)j->rounds;
    for (int i = 0; i < s->rank_count; i++)
        if (s->ranks[i].segment_count > most)
            most = s->ranks[i].segment_count;
    double *values = hr__alloc(HR__TAG_STALLS, most, sizeof *values);
    if (!values)
        return hr__fail(error, -ENOMEM, "out of memory for %zu segments", most);
    bool cold = s->summary.measured[HR_STALLS_COLD] || !isfinite(s->step_s[HR_STALLS_WARM].value);
    for (int i = 0; i < s->rank_count; i++)
        s->waiting[i] = waiting_of(&s->ranks[i], cold ? HR_STALLS_COLD : HR_STALLS_WARM, values);
    alone_costs(s, j, values);
    hr__free(values);
    return find_stragglers(s, error);
}
