/*
 * From a result to a system whose simulation gives what was measured.
 *
 * What is measured directly is taken as it is: the step, CPU of a sample, storage by depth.
 * What is not follows from what it does:
 *   - contention: CPU of a sample over the number of busy cores, in the drains (a line);
 *   - CPU of a sample, and a delay that needs no core: the loader alone at all cores (P);
 *   - the warm phase: where training computes on the CPU, the growth of a step's work while
 *     cores are wanted by more threads than there are (threads of a parallel loop wait for
 *     each other in a spin); where the loader is the bound, its work; else the receiving of
 *     a batch;
 *   - the cold phase: storage's rate and time of a read, both by the same factor.
 * Each is solved for, so that the unchanged system reproduces both phases.
 */
#include "stalls/predict.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define SEED  1
#define CLOSE 0.003  /* a phase that is met so well is met */
#define EXACT 0.0003 /* how well it is met where something is looked for */

static bool known(double value)
{
    return value > 0 && value < INFINITY;
}

static double spread_of(const struct hr_interval *interval)
{
    double half = (interval->high - interval->low) / 2 / interval->value;
    return half > 0 && half < 1 ? half : 0;
}

int hr__model_batches(const struct hr__system *system)
{
    double each = (double)system->batch_size * system->ranks;
    double batches = HR__STALLS_SAMPLES_MAX / each;
    return batches > HR__STALLS_BATCHES ? HR__STALLS_BATCHES : batches < 40 ? 40 : (int)batches;
}

/* ---- what was measured ---- */

/* Seconds of one global batch of a phase; NaN where there was none. */
static double phase_s(const struct hr_stalls *stalls, enum hr_stalls_phase phase)
{
    double value = stalls->step_s[phase].value;
    return known(value) ? value : NAN;
}

static const struct hr__host_record *host_of(const struct hr_stalls *stalls, const char *name)
{
    for (int i = 0; i < stalls->host_count; i++)
        if (!strcmp(stalls->hosts[i].name, name))
            return &stalls->hosts[i];
    return stalls->host_count ? &stalls->hosts[0] : NULL;
}

static bool on_host(const struct hr__model *model, const struct hr__rank_record *rank)
{
    return !strcmp(rank->host, model->stalls->ranks[0].host);
}

static int find_host(struct hr__model *model, struct hr_error *error)
{
    const struct hr_stalls *stalls = model->stalls;
    int local = 0;
    if (stalls->rank_count < 1 || !stalls->host_count)
        return hr__fail(error, -ENODATA,
                        "the result tells nothing of the machine it was measured on: measure again "
                        "with headrace stalls");
    model->host = host_of(stalls, stalls->ranks[0].host);
    for (int i = 0; i < stalls->rank_count; i++)
        local += on_host(model, &stalls->ranks[i]);
    model->ranks = stalls->world_size > 0 ? stalls->world_size : stalls->rank_count;
    model->hosts = model->ranks / local > 0 ? model->ranks / local : 1;
    model->system.ranks = local;
    model->system.cores = model->host->cores > 0 ? model->host->cores : 1;
    model->available_bytes =
        model->host->available_bytes ? (double)model->host->available_bytes : NAN;
    model->memory_bytes_per_s = model->host->memory_bytes_per_s;
    return 0;
}

static double mean_of(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return count ? sum / (double)count : NAN;
}

static int take_sizes(struct hr__model *model)
{
    const struct hr_stalls *stalls = model->stalls;
    double mean = mean_of(stalls->sizes, stalls->size_count);
    if (!known(mean) && known(stalls->bytes) && stalls->samples)
        mean = stalls->bytes / (double)stalls->samples;
    model->file_bytes = known(mean) ? mean : NAN;
    model->dataset_bytes = known(stalls->bytes) ? stalls->bytes : (double)stalls->samples * mean;
    if (!known(model->dataset_bytes))
        model->dataset_bytes = NAN;
    size_t count = stalls->size_count && known(mean) ? stalls->size_count : 1;
    model->sizes = hr__alloc(HR__TAG_STALLS, count, sizeof *model->sizes);
    if (!model->sizes)
        return -ENOMEM;
    if (count > 1)
        memcpy(model->sizes, stalls->sizes, count * sizeof *model->sizes);
    else /* a sample is a byte then, and storage's rates those of samples */
        model->sizes[0] = known(mean) ? mean : 1;
    model->system.bytes = (struct hr__values){model->sizes, count};
    return 0;
}

/* ---- the step ---- */

static void scale(double *values, size_t count, double mean)
{
    double now = mean_of(values, count);
    for (size_t i = 0; i < count; i++)
        values[i] = now > 0 ? values[i] * mean / now : mean;
}

/* How steps vary: those of rank 0 on a CPU. With a device the loop runs ahead of it, and
 * only the mean of a whole segment says how long a step is. */
static int step_values(struct hr__model *model, enum hr_stalls_phase phase, size_t *count)
{
    const struct hr__rank_record *rank = &model->stalls->ranks[0];
    size_t most = 1, n = 0;
    for (size_t i = 0; i < rank->segment_count; i++)
        if (rank->segments[i].phase == phase)
            most += model->stalls->on_cpu ? rank->segments[i].batches : 1;
    model->step_s = hr__alloc(HR__TAG_STALLS, most, sizeof *model->step_s);
    if (!model->step_s)
        return -ENOMEM;
    for (size_t i = 0; i < rank->segment_count; i++) {
        const struct hr__segment_record *segment = &rank->segments[i];
        if (segment->phase != phase || !segment->batches)
            continue;
        if (!model->stalls->on_cpu || !segment->batch_s)
            model->step_s[n++] = segment->elapsed_s / (double)segment->batches;
        else
            for (uint64_t k = 0; k < segment->batches; k++)
                model->step_s[n++] = segment->batch_s[k];
    }
    for (size_t i = 0; i < n; i++)
        if (!(model->step_s[i] >= 0 && model->step_s[i] < INFINITY))
            model->step_s[i] = 0;
    *count = n ? n : 1;
    return 0;
}

/* CPU seconds of a batch of training, as the result says or the segments do. */
static double training_cpu(const struct hr_stalls *stalls, enum hr_stalls_phase phase)
{
    const struct hr__rank_record *rank = &stalls->ranks[0];
    double cpu_s = 0, batches = 0;
    if (stalls->training_cpu_s >= 0)
        return stalls->training_cpu_s;
    for (size_t i = 0; i < rank->segment_count; i++)
        if (rank->segments[i].phase == phase && rank->segments[i].process_cpu_s >= 0) {
            cpu_s += rank->segments[i].process_cpu_s;
            batches += (double)rank->segments[i].batches;
        }
    return batches > 0 ? cpu_s / batches : 0;
}

static int take_step(struct hr__model *model, struct hr_error *error)
{
    const struct hr_stalls *stalls = model->stalls;
    struct hr__system *s = &model->system;
    enum hr_stalls_phase phase =
        known(phase_s(stalls, HR_STALLS_HOST)) ? HR_STALLS_HOST : HR_STALLS_DEVICE;
    double step_s = phase_s(stalls, phase), device_s = phase_s(stalls, HR_STALLS_DEVICE);
    if (!known(step_s))
        return hr__fail(error, -ENODATA,
                        "training without its loader was not measured, and nothing can be "
                        "predicted without it: measure again, for longer (--time)");
    double cpu_s = training_cpu(stalls, phase);
    /* More threads than the CPU time fills are threads that wait. */
    int threads = (int)ceil(cpu_s / step_s - 0.05);
    int most = stalls->on_cpu && stalls->training_threads > 0 ? stalls->training_threads : threads;
    s->step_threads = threads < 1 ? 1 : threads > most ? most : threads;
    /* What runs at once while nothing is loaded stretches the work already. */
    double runnable = (double)s->step_threads * s->ranks, busy = fmin(runnable, s->cores);
    double slowed = 1 + s->contention * (busy - 1);
    double stretch = fmax(1, runnable / s->cores) * slowed;
    double work_s = fmin(cpu_s / s->step_threads / slowed, step_s / stretch);
    double alone_s = step_s - work_s * (stretch - 1);
    size_t count;
    int r = step_values(model, phase, &count);
    if (r)
        return r;
    scale(model->step_s, count, alone_s);
    s->step_s = (struct hr__values){model->step_s, count};
    s->step_cpu_s = work_s * s->step_threads;
    s->copy_s = phase == HR_STALLS_HOST && known(device_s) ? fmax(0, step_s - device_s) : 0;
    model->step_spread = spread_of(&stalls->step_s[phase]);
    return 0;
}

/* ---- solving ---- */

/* Seconds of a global batch at a value of one figure. */
typedef int (*try_fn)(const struct hr__model *model, double value, double *batch_s,
                      struct hr_error *error);

/* The value in the range at which a batch takes wanted_s; the nearer end where there is none.
 * Longer with greater values. By false position, with the end that stays weighed less
 * (Illinois), which needs a few simulations where halving would need a dozen. */
static int solve(const struct hr__model *model, try_fn try_it, double wanted_s,
                 const double range[2], double *value, struct hr_error *error)
{
    double at[2] = {range[0], range[1]}, off[2] = {0, 0}, found;
    int r = 0, last = -1;
    for (int i = 0; i < 2 && !r; i++) {
        r = try_it(model, at[i], &found, error);
        off[i] = found - wanted_s;
        *value = at[i];
        if (!r && (i == 0 ? off[0] >= 0 : off[1] <= 0))
            return 0;
    }
    for (int i = 0; i < 24 && !r; i++) {
        *value = at[0] - off[0] * (at[1] - at[0]) / (off[1] - off[0]);
        r = try_it(model, *value, &found, error);
        if (fabs(found - wanted_s) < EXACT * wanted_s)
            break;
        int side = found > wanted_s;
        at[side] = *value;
        off[side] = found - wanted_s;
        if (last == side)
            off[!side] /= 2;
        last = side;
    }
    return r;
}

/* ---- the loader ---- */

/* The loader alone on so many cores of the host, all ranks that were measured so. */
struct drain {
    int cores;
    int ranks;          /* that did so together */
    double rate, cpu_s; /* samples/s; of one sample, NaN: not known */
};

static bool drained(const struct hr__drain_record *one, bool cold)
{
    return one->cold == cold && one->cores > 0 && one->samples && known(one->elapsed_s);
}

/* One rank's on `cores` cores; several are repetitions: their mean. */
static void add_drains(struct drain *drain, const struct hr__rank_record *rank, bool cold)
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

/* By cores, each once, of all ranks of the host together; returns how many. */
static int find_drains(const struct hr__model *model, bool cold, struct drain *drains, int most)
{
    const struct hr_stalls *stalls = model->stalls;
    const struct hr__rank_record *first = &stalls->ranks[0];
    int count = 0;
    for (size_t i = 0; i < first->drain_count && count < most; i++) {
        struct drain drain = {.cores = first->drains[i].cores};
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

/* CPU of a sample over busy cores is a line: its value at one, and how it rises. */
static double fit_contention(struct hr__model *model, const struct drain *drains, int count)
{
    struct hr__system *s = &model->system;
    int threads = s->ranks * (s->workers > 0 ? s->workers : 1), widest = 0;
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int i = 0; i < count; i++) {
        int busy = drains[i].cores < threads ? drains[i].cores : threads;
        if (!known(drains[i].cpu_s))
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
    s->contention = known(one) ? slope / one : 0;
    s->contention_cores = widest;
    return one;
}

/* Samples vary more than the means of batches do: by the root of their number. */
static int prepare_values(struct hr__model *model, double mean)
{
    size_t most = 1, n = 0;
    for (int r = 0; r < model->stalls->rank_count; r++)
        most += model->stalls->ranks[r].prepare_count;
    model->prepare_s = hr__alloc(HR__TAG_STALLS, most, sizeof *model->prepare_s);
    if (!model->prepare_s)
        return -ENOMEM;
    double sum = 0, batch = 0;
    for (int r = 0; r < model->stalls->rank_count; r++)
        for (size_t i = 0; i < model->stalls->ranks[r].prepare_count; i++) {
            const struct hr__prepare_record *one = &model->stalls->ranks[r].prepares[i];
            if (one->cold || !one->samples || !(one->cpu_s >= 0))
                continue;
            model->prepare_s[n] = one->cpu_s / one->samples;
            batch += one->samples;
            sum += model->prepare_s[n++];
        }
    bool varies = n > 1 && sum > 0;
    double found = varies ? sum / (double)n : 0, root = varies ? sqrt(batch / (double)n) : 0;
    for (size_t i = 0; i < n && varies; i++) {
        double value = found + (model->prepare_s[i] - found) * root;
        model->prepare_s[i] = value > 0.1 * found ? value : 0.1 * found;
    }
    if (!varies)
        model->prepare_s[0] = 1;
    n = varies ? n : 1;
    scale(model->prepare_s, n, mean);
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

static void scale_prepare(struct hr__model *model, double factor)
{
    for (size_t i = 0; i < model->system.prepare_s.count; i++)
        model->prepare_s[i] *= factor;
}

/* The system with a trainer that takes no time: its rate is the loader's. */
static int drained_rate(const struct hr__system *system, double *rate, struct hr_error *error)
{
    struct hr__system s = *system;
    double batch_s = 0;
    s.step_s = (struct hr__values){NULL, 0};
    s.step_cpu_s = s.copy_s = 0;
    int r = hr__simulate_batch_s(&s, hr__model_batches(&s), SEED, &batch_s, NULL, error);
    *rate = batch_s > 0 ? (double)s.batch_size * s.ranks / batch_s : INFINITY;
    return r;
}

static int try_delay(const struct hr__model *model, double value, double *batch_s,
                     struct hr_error *error)
{
    struct hr__system s = model->system;
    double rate = 0;
    s.delay_s = value;
    int r = drained_rate(&s, &rate, error);
    *batch_s = (double)s.batch_size * s.ranks / rate;
    return r;
}

/* The loader alone gave `rate` on all cores: a delay or less CPU explains the difference. */
static int fit_loader_alone(struct hr__model *model, const struct drain *drain,
                            struct hr_error *error)
{
    struct hr__system s = model->system;
    double rate = 0;
    int r = 0;
    s.cores = drain->cores;
    s.missing = 0;
    r = drained_rate(&s, &rate, error);
    if (r || rate < drain->rate) {
        if (!r && known(rate)) /* what is CPU in training may wait for something there */
            scale_prepare(model, fmax(0.5, rate / drain->rate));
        return r;
    }
    if (rate < drain->rate * (1 + 10 * CLOSE)) {
        scale_prepare(model, rate / drain->rate);
        return 0;
    }
    double most = (double)s.ranks * (s.workers > 0 ? s.workers : 1) / drain->rate;
    struct hr__model alone = *model;
    alone.system = s;
    return solve(&alone, try_delay, (double)s.batch_size * s.ranks / drain->rate,
                 (double[]){0, most}, &model->system.delay_s, error);
}

static void take_kind(struct hr__model *model)
{
    const struct hr_stalls *stalls = model->stalls;
    struct hr__system *s = &model->system;
    s->loader = stalls->loader == HR__LOADER_HEADRACE ? HR__LOADER_HEADRACE : HR__LOADER_TORCH;
    s->workers = stalls->workers;
    /* What has no workers and yet prepares ahead has one, whatever it is. */
    if (s->workers < 1)
        s->workers = stalls->loader != HR__LOADER_TORCH && stalls->prefetch_batches > 0;
    s->batches_ahead = stalls->prefetch_batches;
    if (s->workers > 0 && s->batches_ahead < 1)
        s->batches_ahead = s->loader == HR__LOADER_HEADRACE ? HR__STALLS_AHEAD : 2 * s->workers;
    s->batch_size = stalls->batch_size > 0 ? stalls->batch_size : 1;
    s->fetches_ahead = s->loader == HR__LOADER_HEADRACE && s->workers > 0 ? HR__STALLS_FETCHES : 0;
}

static int take_loader(struct hr__model *model, const struct drain *drains, int count, double cpu_s,
                       struct hr_error *error)
{
    const struct hr_stalls *stalls = model->stalls;
    struct hr__system *s = &model->system;
    double warm = mean_prepare(stalls, false), cold = mean_prepare(stalls, true);
    if (!known(cpu_s))
        cpu_s = stalls->prepare_cpu_s >= 0 ? stalls->prepare_cpu_s : warm;
    if (!(cpu_s >= 0))
        cpu_s = 0;
    int r = prepare_values(model, cpu_s), widest = -1;
    for (int i = 0; i < count; i++)
        if (widest < 0 || drains[i].cores > drains[widest].cores)
            widest = i;
    s->missing_cpu_s = cold > warm ? cold - warm : 0;
    model->prepare_spread =
        hypot(spread_of(&stalls->summary.prepare_rate), spread_of(&stalls->step_s[HR_STALLS_WARM]));
    if (!r && widest >= 0)
        r = fit_loader_alone(model, &drains[widest], error);
    return r;
}

/* ---- storage ---- */

void hr__model_storage(const struct hr__model *model, int depth, double factor, double *bytes_per_s,
                       double *request_s)
{
    const struct hr__storage_curve *curve = &model->storage;
    const struct hr__depth_record *d = curve->depths;
    double fastest = curve->required, each = curve->count ? d[0].depth / d[0].reads_per_s : 0;
    int i = 0;
    for (int k = 0; k < curve->count; k++)
        fastest = fmax(fastest, d[k].bytes_per_s);
    /* Where storage does all it can, reads take longer because there are more of them,
     * which the simulation knows; what a read takes shows at smaller depths. */
    while (i + 1 < curve->count && d[i].depth < depth && d[i + 1].bytes_per_s < 0.9 * fastest) {
        double low = d[i].depth / d[i].reads_per_s, high = d[i + 1].depth / d[i + 1].reads_per_s;
        double way = log((double)depth / d[i].depth) / log((double)d[i + 1].depth / d[i].depth);
        each = low + (high - low) * fmin(1, way);
        i++;
    }
    *bytes_per_s = fastest / curve->factor * factor;
    *request_s = each * curve->factor / factor;
}

/* How many reads the loader has in flight at most. */
static int reads_in_flight(const struct hr__system *s)
{
    int each = s->fetches_ahead > 0 ? s->fetches_ahead : s->workers > 0 ? s->workers : 1;
    return each * s->ranks;
}

static void take_storage(struct hr__model *model)
{
    struct hr__storage_curve *curve = &model->storage;
    curve->factor = 1;
    for (size_t i = 0; i < model->host->depth_count && curve->count < HR__STALLS_MAX_POINTS; i++) {
        struct hr__depth_record d = model->host->depths[i];
        if (d.depth < 1 || !known(d.bytes_per_s) || !known(d.reads_per_s) ||
            (curve->count && d.depth <= curve->depths[curve->count - 1].depth))
            continue;
        curve->depths[curve->count++] = d;
    }
    model->has_storage = curve->count > 0;
    model->storage_spread = hypot(spread_of(&model->stalls->summary.fetch_rate),
                                  spread_of(&model->stalls->step_s[HR_STALLS_COLD]));
}

/* Share of the bytes of cold segments that were really read: a loader's own cache has the
 * rest. */
static double share_read(const struct hr_stalls *stalls)
{
    double read = 0, expected = 0;
    for (int r = 0; r < stalls->rank_count; r++)
        for (size_t i = 0; i < stalls->ranks[r].segment_count; i++) {
            const struct hr__segment_record *one = &stalls->ranks[r].segments[i];
            if (one->phase == HR_STALLS_COLD && one->read_bytes >= 0 &&
                known(one->expected_bytes)) {
                read += one->read_bytes;
                expected += one->expected_bytes;
            }
        }
    double share = expected > 0 ? read / expected : 1;
    return share > 0.9 ? 1 : share;
}

/* ---- meeting the phases ---- */

static int simulate(const struct hr__system *system, double *batch_s, struct hr_error *error)
{
    return hr__simulate_batch_s(system, hr__model_batches(system), SEED, batch_s, NULL, error);
}

static int try_sharing(const struct hr__model *model, double value, double *batch_s,
                       struct hr_error *error)
{
    struct hr__system s = model->system;
    s.missing = 0;
    s.sharing = value;
    return simulate(&s, batch_s, error);
}

static int try_loader(const struct hr__model *model, double value, double *batch_s,
                      struct hr_error *error)
{
    struct hr__system s = model->system;
    double *values = hr__alloc(HR__TAG_STALLS, s.prepare_s.count, sizeof *values);
    if (!values)
        return hr__fail(error, -ENOMEM, "out of memory while predicting");
    for (size_t i = 0; i < s.prepare_s.count; i++)
        values[i] = s.prepare_s.values[i] * value;
    s.prepare_s.values = values;
    s.delay_s *= value;
    s.missing = 0;
    int r = simulate(&s, batch_s, error);
    hr__free(values);
    return r;
}

static int try_storage(const struct hr__model *model, double value, double *batch_s,
                       struct hr_error *error)
{
    struct hr__system s = model->system;
    s.missing = model->cold_missing;
    hr__model_storage(model, reads_in_flight(&s), 1 / value, &s.storage_bytes_per_s,
                      &s.storage_request_s);
    return simulate(&s, batch_s, error);
}

/* What of the warm phase is still not met is the loader's work, where that is near to being
 * the bound, and else what comes with each batch. */
static int fit_warm(struct hr__model *model, double wanted_s, struct hr_error *error)
{
    struct hr__system *s = &model->system;
    double now_s = 0, value = 1, rate = 0, shared_s = 0;
    int r = try_sharing(model, 0, &now_s, error);
    if (!r && wanted_s > now_s * (1 + CLOSE) && s->step_cpu_s > 0)
        r = try_sharing(model, 4, &shared_s, error);
    if (!r && shared_s > now_s * (1 + CLOSE)) {
        r = solve(model, try_sharing, wanted_s, (double[]){0, 4}, &s->sharing, error);
        if (!r)
            r = try_sharing(model, s->sharing, &now_s, error);
    }
    if (r || fabs(wanted_s - now_s) < CLOSE * wanted_s)
        return r;
    struct hr__system alone = *s;
    alone.missing = 0;
    r = drained_rate(&alone, &rate, error);
    double loading_s = (double)s->batch_size * s->ranks / rate;
    if (!r && (loading_s > 0.85 * wanted_s || !s->workers || now_s > wanted_s)) {
        r = solve(model, try_loader, wanted_s, (double[]){0.5, 2}, &value, error);
        if (!r)
            r = try_loader(model, value, &now_s, error);
        /* Where even that changes little it is not the loader. */
        if (!r && fabs(now_s - wanted_s) < 0.02 * wanted_s) {
            scale_prepare(model, value);
            s->delay_s *= value;
            return 0;
        }
        if (!r)
            r = try_loader(model, 1, &now_s, error);
    }
    if (!r && wanted_s > now_s)
        s->batch_cpu_s += wanted_s - now_s;
    return r;
}

/* Storage by what a cold epoch took, where storage was not measured by itself: at least
 * that fast it is. */
static void storage_from_phase(struct hr__model *model, double cold_s)
{
    const struct hr__system *s = &model->system;
    double bytes = mean_of(model->sizes, s->bytes.count) * s->batch_size * s->ranks;
    model->storage.required = bytes * model->cold_missing / cold_s;
    model->has_storage = model->storage.required > 0;
}

static int fit_cold(struct hr__model *model, double cold_s, double warm_s, struct hr_error *error)
{
    double now_s = 0, value = 1;
    if (!known(cold_s) || !(model->cold_missing > 0))
        return 0;
    if (!model->has_storage)
        storage_from_phase(model, cold_s);
    if (!model->has_storage)
        return 0;
    int r = try_storage(model, 1, &now_s, error);
    bool hidden = known(warm_s) && cold_s < warm_s * (1 + CLOSE) && now_s <= cold_s * (1 + CLOSE);
    if (r || hidden || fabs(now_s - cold_s) < CLOSE * cold_s)
        return r;
    r = solve(model, try_storage, cold_s, (double[]){0.1, 10}, &value, error);
    if (r)
        return r;
    model->storage.factor = value;
    r = try_storage(model, 1, &now_s, error);
    return r;
}

/* ---- all of it ---- */

void hr__model_clear(struct hr__model *model)
{
    hr__free(model->step_s);
    hr__free(model->prepare_s);
    hr__free(model->sizes);
    *model = (struct hr__model){.stalls = NULL};
}

int hr__model_open(struct hr__model *model, const struct hr_stalls *stalls, struct hr_error *error)
{
    struct drain drains[HR__STALLS_MAX_POINTS];
    *model = (struct hr__model){.stalls = stalls, .cold_missing = 1};
    int r = find_host(model, error);
    if (r)
        goto fail;
    take_kind(model);
    int count = find_drains(model, false, drains, HR__STALLS_MAX_POINTS);
    double cpu_s = fit_contention(model, drains, count);
    r = take_step(model, error);
    if (!r)
        r = take_sizes(model);
    if (!r)
        r = take_loader(model, drains, count, cpu_s, error);
    if (r)
        goto fail;
    take_storage(model);
    double warm_s = phase_s(stalls, HR_STALLS_WARM), cold_s = phase_s(stalls, HR_STALLS_COLD);
    model->cold_missing = share_read(stalls);
    if (known(warm_s))
        r = fit_warm(model, warm_s, error);
    if (!r)
        r = fit_cold(model, cold_s, warm_s, error);
    if (!r)
        return 0;
fail:
    if (r == -ENOMEM)
        hr__fail(error, r, "out of memory while predicting");
    hr__model_clear(model);
    return r;
}
