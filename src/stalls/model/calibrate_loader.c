/*
 * Calibrates the loader of a model from its drains: the cost of a sample on cores, its growth with
 * more busy cores, and delays that need no core.
 */
#include "stalls/model/calibrate_inside.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <string.h>

/* Two explanations are equally good if their errors, as factors, differ by less. */
#define AS_GOOD 0.02
/* If others took more than this share of the cores' time, that explains slowness. */
#define TAKEN 0.1

static bool on_host(const struct hr__model *model, const struct hr__rank_record *rank)
{
    return !strcmp(rank->host, model->stalls->ranks[0].host);
}

static bool drained(const struct hr__drain_record *one, bool cold)
{
    return one->cold == cold && one->cores > 0 && one->samples && hr__known(one->elapsed_s);
}

/* Adds one rank's drain on `cores` cores; the mean if it was repeated. */
static void add_drains(struct hr__drain *drain, const struct hr__rank_record *rank, bool cold)
{
    double rate = 0, cpu_s = 0, count = 0;
    for (size_t i = 0; i < rank->drain_count; i++) {
        const struct hr__drain_record *one = &rank->drains[i];
        if (!drained(one, cold) || one->cores != drain->cores)
            continue;
        rate += (double)one->samples / one->elapsed_s;
        cpu_s += one->cpu_s / (double)one->samples;
        count++;
    }
    if (!count)
        return;
    drain->rate += rate / count;
    drain->cpu_s = (drain->cpu_s * drain->ranks + cpu_s / count) / (drain->ranks + 1);
    drain->ranks++;
}

/* Lists each core count once, over all ranks of the host; returns the number of entries. */
int hr__drains_find(const struct hr__model *model, bool cold, struct hr__drain *drains, int most)
{
    const struct hr_stalls *stalls = model->stalls;
    const struct hr__rank_record *first = &stalls->ranks[0];
    int count = 0;
    for (size_t i = 0; i < first->drain_count && count < most; i++) {
        struct hr__drain drain = {.cores = first->drains[i].cores};
        bool seen = !drained(&first->drains[i], cold);
        for (int k = 0; k < count; k++)
            seen |= drains[k].cores == drain.cores;
        for (int r = 0; r < stalls->rank_count && !seen; r++)
            if (on_host(model, &stalls->ranks[r]))
                add_drains(&drain, &stalls->ranks[r], cold);
        if (!seen && drain.ranks == model->system.ranks)
            drains[count++] = drain;
    }
    return count;
}

/* Fits a line to the CPU time of a sample over busy cores: its value at one core, and its slope. */
double hr__contention_fit(struct hr__model *model, const struct hr__drain *drains, int count)
{
    struct hr__system *s = &model->system;
    int threads = s->ranks * (s->workers > 0 ? s->workers : 1), widest = 0;
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int i = 0; i < count; i++) {
        int busy = drains[i].cores < threads ? drains[i].cores : threads;
        if (!hr__known(drains[i].cpu_s))
            continue;
        widest = busy > widest ? busy : widest;
        n++;
        sx += busy - 1;
        sy += drains[i].cpu_s;
        sxx += (double)(busy - 1) * (busy - 1);
        sxy += (busy - 1) * drains[i].cpu_s;
    }
    double width = n * sxx - sx * sx;
    double slope = width > 0 ? (n * sxy - sx * sy) / width : 0;
    double one = n > 0 ? (sy - slope * sx) / n : NAN;
    if (!(slope > 0 && one > 0)) {
        slope = 0;
        one = n > 0 ? sy / n : NAN;
    }
    s->contention = hr__known(one) ? slope / one : 0;
    s->contention_cores = widest;
    return one;
}

/* Estimates the variation of samples from the workers' times for whole batches: samples vary more,
 * by the root of the batch size. Limited, because the rest is noise. A loader of threads reports no
 * such times. */
static size_t vary(const struct hr_stalls *stalls, double *values)
{
    double sum = 0, samples = 0;
    size_t n = 0;
    for (int r = 0; r < stalls->rank_count && stalls->loader != HR__LOADER_HEADRACE; r++)
        for (size_t i = 0; i < stalls->ranks[r].prepare_count; i++) {
            const struct hr__prepare_record *one = &stalls->ranks[r].prepares[i];
            if (one->cold || !one->samples || !(one->cpu_s >= 0))
                continue;
            values[n] = one->cpu_s / one->samples;
            samples += one->samples;
            sum += values[n++];
        }
    if (n < 2 || !(sum > 0))
        return 0;
    double mean = sum / (double)n, root = sqrt(samples / (double)n);
    for (size_t i = 0; i < n; i++)
        values[i] = fmin(4 * mean, fmax(mean / 4, mean + (values[i] - mean) * root));
    return n;
}

static int prepare_values(struct hr__model *model, double mean)
{
    size_t most = 1;
    for (int r = 0; r < model->stalls->rank_count; r++)
        most += model->stalls->ranks[r].prepare_count;
    model->prepare_s = hr__alloc(HR__TAG_STALLS, most, sizeof *model->prepare_s);
    if (!model->prepare_s)
        return -ENOMEM;
    size_t n = vary(model->stalls, model->prepare_s);
    if (!n)
        model->prepare_s[n++] = 1;
    hr__values_scale(model->prepare_s, n, mean);
    model->system.prepare_s = (struct hr__values){model->prepare_s, n};
    return 0;
}

static double mean_prepare(const struct hr_stalls *stalls, bool cold)
{
    double cpu_s = 0, samples = 0;
    for (int r = 0; r < stalls->rank_count; r++)
        for (size_t i = 0; i < stalls->ranks[r].prepare_count; i++) {
            const struct hr__prepare_record *one = &stalls->ranks[r].prepares[i];
            if (one->cold == cold && one->cpu_s >= 0) {
                cpu_s += one->cpu_s;
                samples += one->samples;
            }
        }
    return samples > 0 ? cpu_s / samples : NAN;
}

void hr__prepare_scale(struct hr__model *model, double factor)
{
    for (size_t i = 0; i < model->system.prepare_s.count; i++)
        model->prepare_s[i] *= factor;
}

/* Computes the rate of a system whose trainer takes no time: the loader's rate. */
int hr__loader_rate(const struct hr__system *system, double *rate, struct hr_error *error)
{
    struct hr__system s = *system;
    double batch_s = 0;
    s.step_s = (struct hr__values){NULL, 0};
    s.step_cpu_s = s.copy_s = 0;
    int r =
        hr__simulate_batch_s(&s, hr__model_batches(&s), HR__CALIBRATE_SEED, &batch_s, NULL, error);
    *rate = batch_s > 0 ? (double)s.batch_size * s.ranks / batch_s : INFINITY;
    return r;
}

static int try_delay(const struct hr__model *model, double value, double *batch_s,
                     struct hr_error *error)
{
    struct hr__system s = model->system;
    double rate = 0;
    s.delay_s = value;
    int r = hr__loader_rate(&s, &rate, error);
    *batch_s = (double)s.batch_size * s.ranks / rate;
    return r;
}

/* Computes the error of the loader's rate on the fewest cores measured, as a factor of at least 1,
 * given a delay and CPU time multiplied by `times`. */
static int miss_narrow(const struct hr__model *model, const struct hr__drain *narrow,
                       double delay_s, double times, double *off, struct hr_error *error)
{
    struct hr__system s = model->system;
    double rate = 0, slowed = 1;
    s.cores = narrow->cores;
    s.missing = 0;
    s.delay_s = delay_s;
    int r = hr__loader_rate(&s, &rate, error);
    /* Work that grows by `times` on every core makes the loader slower by that factor. */
    if (times > 1)
        slowed = times;
    *off = rate / slowed / narrow->rate;
    *off = *off < 1 ? 1 / *off : *off;
    return r;
}

/* Returns whether other processes or a hypervisor used much of the cores meanwhile. */
static bool cores_were_taken(const struct hr__model *model)
{
    const struct hr__rank_record *rank = &model->stalls->ranks[0];
    double sum = 0, count = 0;
    for (size_t i = 0; i < rank->segment_count; i++)
        if (rank->segments[i].others >= 0) {
            sum += rank->segments[i].others;
            count++;
        }
    return count > 0 && sum / count > TAKEN;
}

/*
 * Explains a loader that was slower alone than the CPU time of its samples suggests. Either samples
 * wait for something other than a core, or the cores are slower than they seem (other processes, a
 * hypervisor). The loader on fewer cores shows which: it is slower there only in the second case.
 * Headrace's threads wait only for storage.
 */
static int explain_slowness(struct hr__model *model, const struct hr__drain *wide,
                            const struct hr__drain *narrow, double rate, struct hr_error *error)
{
    const struct hr__system *s = &model->system;
    struct hr__model alone = *model;
    double times = rate / wide->rate, delay_s = 0, by_delay = 1, by_work = 2;
    double most = (double)s->ranks * (s->workers > 0 ? s->workers : 1) / wide->rate;
    alone.system.cores = wide->cores;
    alone.system.missing = 0;
    int r = 0;
    double samples = (double)s->batch_size * s->ranks, found_s = 0;
    if (s->loader == HR__LOADER_TORCH) {
        r = hr__calibrate_solve(&alone, try_delay, samples / wide->rate, (double[]){0, most},
                                &delay_s, error);
        if (!r)
            r = try_delay(&alone, delay_s, &found_s, error);
        /* A delay that hides behind the work of workers sharing cores has no visible effect. */
        if (!hr__calibrate_explains(samples / rate, found_s, samples / wide->rate,
                                    delay_s / most * samples / wide->rate))
            by_delay = INFINITY;
    }
    if (!r && narrow && s->loader == HR__LOADER_TORCH && by_delay < INFINITY) {
        r = miss_narrow(model, narrow, delay_s, 1, &by_delay, error);
        if (!r)
            r = miss_narrow(model, narrow, 0, times, &by_work, error);
    }
    /* With one worker both look the same: assume a delay, unless others were seen to take cores. */
    double as_good = cores_were_taken(model) ? 1 - AS_GOOD : 1 + AS_GOOD;
    if (s->loader == HR__LOADER_TORCH && by_delay <= by_work * as_good)
        model->system.delay_s = delay_s;
    else
        hr__prepare_scale(model, times);
    return r;
}

/* Makes the loader alone reach its measured rate on the most cores. */
static int fit_alone(struct hr__model *model, const struct hr__drain *drains, int count,
                     struct hr_error *error)
{
    struct hr__system s = model->system;
    const struct hr__drain *wide = &drains[0], *narrow = &drains[0];
    double rate = 0;
    for (int i = 1; i < count; i++) {
        wide = drains[i].cores > wide->cores ? &drains[i] : wide;
        narrow = drains[i].cores < narrow->cores ? &drains[i] : narrow;
    }
    s.cores = wide->cores;
    s.missing = 0;
    int r = hr__loader_rate(&s, &rate, error);
    if (r || !hr__known(rate))
        return r;
    if (rate > wide->rate * (1 + 10 * HR__CALIBRATE_CLOSE))
        return explain_slowness(model, wide, narrow != wide ? narrow : NULL, rate, error);
    hr__prepare_scale(model, rate / wide->rate);
    return 0;
}

/* Returns the extra CPU time of a sample whose file must be fetched: from the drains (process and
 * workers), else from the workers' own reports. */
static double missing_cpu(const struct hr__model *model, const struct hr__drain *drains, int count)
{
    struct hr__drain cold;
    double more = NAN;
    if (hr__drains_find(model, true, &cold, 1))
        for (int i = 0; i < count; i++)
            if (drains[i].cores == cold.cores)
                more = cold.cpu_s - drains[i].cpu_s;
    if (isnan(more) && model->stalls->loader != HR__LOADER_HEADRACE)
        more = mean_prepare(model->stalls, true) - mean_prepare(model->stalls, false);
    return more > 0 ? more : 0;
}

int hr__loader_fit(struct hr__model *model, const struct hr__drain *drains, int count, double cpu_s,
                   struct hr_error *error)
{
    const struct hr_stalls *stalls = model->stalls;
    if (!hr__known(cpu_s))
        cpu_s = stalls->prepare_cpu_s >= 0 ? stalls->prepare_cpu_s : mean_prepare(stalls, false);
    model->has_prepare = count > 0 || cpu_s >= 0;
    int r = prepare_values(model, cpu_s >= 0 ? cpu_s : 0);
    model->system.missing_cpu_s = missing_cpu(model, drains, count);
    model->prepare_spread = hypot(hr__spread(&stalls->summary.prepare_rate),
                                  hr__spread(&stalls->step_s[HR_STALLS_WARM]));
    return !r && count ? fit_alone(model, drains, count, error) : r;
}
