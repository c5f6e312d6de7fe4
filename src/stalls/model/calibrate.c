/*
 * Calibrates a system so that its simulation reproduces a result.
 *
 * Direct measurements are used as they are: the step, CPU time of a sample, storage by depth. The
 * rest is inferred from its effects:
 *   - contention: CPU time of a sample over the number of busy cores, in the drains (a line);
 *   - CPU time of a sample, and a delay that needs no core: the loader alone on all cores (P);
 *   - how much the loader slows down a step on the CPU: the step's CPU time beside it;
 *   - the warm phase. If training computes on the CPU: how much work grows while there are more
 *     threads than cores; the step's work if it has several threads (those of a parallel loop
 *     spin while they wait for each other), else all work (caches). If the loader is the
 *     bottleneck: its work. Otherwise: receiving a batch;
 *   - the cold phase. If it was slower than simulated: storage's rate and latency, by the same
 *     factor. If it was faster: the latency.
 * Each figure is solved for, so that the unchanged system reproduces both phases as well as
 * possible. But only visible effects are fitted (hr__calibrate_explains): a figure whose effect is
 * hidden behind another keeps its direct measurement, even if a phase is met less well.
 */
#include "stalls/model/calibrate_inside.h"

#include "base/error.h"
#include "base/memory.h"
#include "stalls/model/inside.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define MOST_SHARING  4.0
#define MOST_CROWDING 0.5
#define CROWDED       0.3 /* share of a batch's time with too few cores, if training computes */
#define COMPUTES      0.2 /* share of a step on a core from which training notices shared cores */

/* ---- measurements ---- */

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

static int take_sizes(struct hr__model *model)
{
    const struct hr_stalls *stalls = model->stalls;
    double mean = hr__values_mean(stalls->sizes, stalls->size_count);
    if (!hr__known(mean))
        mean = hr__mean_bytes(stalls);
    model->file_bytes = hr__known(mean) ? mean : NAN;
    model->dataset_bytes = hr__dataset_bytes(stalls);
    size_t count = stalls->size_count && hr__known(mean) ? stalls->size_count : 1;
    model->sizes = hr__alloc(HR__TAG_STALLS, count, sizeof *model->sizes);
    if (!model->sizes)
        return -ENOMEM;
    if (count > 1)
        memcpy(model->sizes, stalls->sizes, count * sizeof *model->sizes);
    else /* then count a sample as one byte: storage rates are in samples */
        model->sizes[0] = hr__known(mean) ? mean : 1;
    model->system.bytes = (struct hr__values){model->sizes, count};
    return 0;
}

/* ---- the loader ---- */

static void take_kind(struct hr__model *model)
{
    const struct hr_stalls *stalls = model->stalls;
    struct hr__system *s = &model->system;
    s->loader = stalls->loader == HR__LOADER_HEADRACE ? HR__LOADER_HEADRACE : HR__LOADER_TORCH;
    s->workers = stalls->workers;
    /* A loader without workers that still prepares ahead counts as one worker. */
    if (s->workers < 1)
        s->workers = stalls->loader != HR__LOADER_TORCH && stalls->prefetch_batches > 0;
    s->batches_ahead = stalls->prefetch_batches;
    if (s->workers > 0 && s->batches_ahead < 1)
        s->batches_ahead = s->loader == HR__LOADER_HEADRACE ? HR__STALLS_AHEAD : 2 * s->workers;
    s->batch_size = stalls->batch_size > 0 ? stalls->batch_size : 1;
    s->fetches_ahead =
        s->loader == HR__LOADER_HEADRACE && s->workers > 0 ? hr__headrace_depth(stalls) : 0;
}

/* ---- storage ---- */

/* Returns the storage's full rate: the mean of the depths close to the best one. The best alone
 * would be a lucky outlier (throttles let a burst through first). */
static double fastest_of(const struct hr__storage_curve *curve)
{
    double best = 0, sum = 0, count = 0;
    for (int i = 0; i < curve->count; i++)
        best = fmax(best, curve->depths[i].bytes_per_s);
    for (int i = 0; i < curve->count; i++)
        if (curve->depths[i].bytes_per_s > 0.85 * best) {
            sum += curve->depths[i].bytes_per_s;
            count++;
        }
    return fmax(curve->required, count > 0 ? sum / count : 0);
}

/* Returns the time of a read besides its transfer, at a measured depth. */
static double latency_of(const struct hr__depth_record *d, double fastest)
{
    double transfer_s = d->bytes_per_s / d->reads_per_s / fastest;
    return fmax(0, d->depth / d->reads_per_s - transfer_s);
}

void hr__model_storage(const struct hr__model *model, int depth, double factor,
                       struct hr__system *system)
{
    const struct hr__storage_curve *curve = &model->storage;
    const struct hr__depth_record *d = curve->depths;
    double fastest = fastest_of(curve), latency = curve->count ? latency_of(d, fastest) : 0;
    int i = 0;
    /* At full rate, reads take longer because there are more of them, which the simulation covers;
     * the latency of a read shows at smaller depths. */
    while (i + 1 < curve->count && d[i].depth < depth && d[i + 1].bytes_per_s < 0.9 * fastest) {
        double low = latency_of(&d[i], fastest), high = latency_of(&d[i + 1], fastest);
        double way = log((double)depth / d[i].depth) / log((double)d[i + 1].depth / d[i].depth);
        latency = low + (high - low) * fmin(1, way);
        i++;
    }
    double slower = curve->factor / factor;
    double mean_bytes = hr__values_mean(model->sizes, system->bytes.count);
    double transfer_s = mean_bytes / fastest * slower;
    system->storage_bytes_per_s = fastest / slower;
    system->storage_latency_s =
        latency * curve->latency_factor * (hr__is_at_urls(model->stalls) ? curve->factor : slower);
    /* A throttle saves up an allowance for a fixed time, whatever its rate. Storage that saves
     * nothing while a reader pauses was only faster by chance after it idled. */
    double saved_s = curve->saved_s * mean_bytes * slower;
    system->storage_saved_s = fmin(transfer_s, saved_s);
    if (saved_s > transfer_s / 2)
        system->storage_saved_s = fmax(system->storage_saved_s, curve->burst_bytes / fastest);
}

int hr__reads_in_flight(const struct hr__system *s)
{
    int each = s->fetches_ahead > 0 ? s->fetches_ahead : s->workers > 0 ? s->workers : 1;
    return each * s->ranks;
}

static void take_storage(struct hr__model *model)
{
    struct hr__storage_curve *curve = &model->storage;
    curve->factor = curve->latency_factor = 1;
    for (size_t i = 0; i < model->host->depth_count && curve->count < HR__STALLS_MAX_POINTS; i++) {
        struct hr__depth_record d = model->host->depths[i];
        if (d.depth < 1 || !hr__known(d.bytes_per_s) || !hr__known(d.reads_per_s) ||
            (curve->count && d.depth <= curve->depths[curve->count - 1].depth))
            continue;
        curve->depths[curve->count++] = d;
    }
    model->has_storage = curve->count > 0;
    double paused = model->host->paused_bytes_per_s;
    if (curve->count && curve->depths[0].depth == 1 && hr__known(paused))
        curve->saved_s = fmax(0, 1 / curve->depths[0].bytes_per_s - 1 / paused);
    curve->burst_bytes = hr__known(model->host->saved_bytes) ? model->host->saved_bytes : 0;
    const struct hr_stalls *stalls = model->stalls;
    bool verified = !*stalls->phase_reason[HR_STALLS_COLD];
    model->storage_spread = hypot(hr__spread(&stalls->summary.fetch_rate),
                                  verified ? hr__spread(&stalls->step_s[HR_STALLS_COLD]) : 0);
}

/* Returns the share of the bytes of cold segments that was really read: the rest is in a loader's
 * own cache. */
static double share_read(const struct hr_stalls *stalls)
{
    double read = 0, expected = 0;
    for (int r = 0; r < stalls->rank_count; r++)
        for (size_t i = 0; i < stalls->ranks[r].segment_count; i++) {
            const struct hr__segment_record *one = &stalls->ranks[r].segments[i];
            if (one->phase == HR_STALLS_COLD && one->read_bytes >= 0 &&
                hr__known(one->expected_bytes)) {
                read += one->read_bytes;
                expected += one->expected_bytes;
            }
        }
    double share = expected > 0 ? read / expected : 1;
    return share > 0.9 ? 1 : share;
}

/* ---- fitting the phases ---- */

static int simulate(const struct hr__system *system, double *batch_s, struct hr_error *error)
{
    return hr__simulate_batch_s(system, hr__model_batches(system), HR__CALIBRATE_SEED, batch_s,
                                NULL, error);
}

static int try_sharing(const struct hr__model *model, double value, double *batch_s,
                       struct hr_error *error)
{
    struct hr__system s = model->system;
    s.missing = 0;
    s.sharing = value;
    return simulate(&s, batch_s, error);
}

static int try_crowding(const struct hr__model *model, double value, double *batch_s,
                        struct hr_error *error)
{
    struct hr__system s = model->system;
    s.missing = 0;
    s.crowding = value;
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
    struct hr__model m = *model;
    m.system.missing = model->cold_missing;
    m.storage.factor *= value;
    hr__model_storage(&m, hr__reads_in_flight(&m.system), 1, &m.system);
    return simulate(&m.system, batch_s, error);
}

/* Returns whether training computes on the cores, so that it notices the loader on them. */
static bool computes(const struct hr__model *model)
{
    const struct hr__system *s = &model->system;
    double each_s = s->step_cpu_s / s->step_threads;
    return each_s >= COMPUTES * hr__values_mean(model->step_s, s->step_s.count);
}

/* Fits the growth of work that explains the warm phase if training computes on the cores: of its
 * own work if it has several threads, which wait for each other, else of all work. Fits nothing if
 * even a large growth would not suffice or would hardly show: then the cause is another. */
static int fit_sharing(struct hr__model *model, double wanted_s, double *now_s,
                       struct hr_error *error)
{
    struct hr__system *s = &model->system;
    bool spins = s->step_threads > 1;
    hr__try_fn try_it = spins ? try_sharing : try_crowding;
    double *growth = spins ? &s->sharing : &s->crowding;
    double most = spins ? MOST_SHARING : MOST_CROWDING, most_s = 0, found_s = 0, value = 0;
    if (!computes(model))
        return 0;
    int r = try_it(model, most, &most_s, error);
    if (r || most_s < wanted_s || most_s < *now_s * (1 + HR__CALIBRATE_CLOSE))
        return r;
    r = hr__calibrate_solve(model, try_it, wanted_s, (double[]){0, most}, &value, error);
    if (!r)
        r = try_it(model, value, &found_s, error);
    /* Work grows only for the part of the time in which the loader works too. */
    if (r || !hr__calibrate_explains(*now_s, found_s, wanted_s, value * CROWDED * *now_s))
        return r;
    *growth = value;
    *now_s = found_s;
    return 0;
}

/* Fits the loader's work, by a factor, if the loader is nearly the bottleneck, or shares the cores
 * with training that takes less time than the two seem to need together. */
static int fit_loading(struct hr__model *model, double wanted_s, double *now_s,
                       struct hr_error *error)
{
    struct hr__system *s = &model->system, alone = model->system;
    const double range[2] = {0.5, 2};
    double rate = 0, value = 1, found_s = 0;
    alone.missing = 0;
    int r = hr__loader_rate(&alone, &rate, error);
    double loading_s = (double)s->batch_size * s->ranks / rate;
    bool counts = loading_s > 0.85 * wanted_s || !s->workers;
    if (r || !(counts || (*now_s > wanted_s && computes(model))))
        return r;
    r = hr__calibrate_solve(model, try_loader, wanted_s, range, &value, error);
    if (!r)
        r = try_loader(model, value, &found_s, error);
    if (r || value <= range[0] || value >= range[1] ||
        !hr__calibrate_explains(*now_s, found_s, wanted_s, (value - 1) * loading_s))
        return r;
    hr__prepare_scale(model, value);
    s->delay_s *= value;
    *now_s = found_s;
    return 0;
}

static bool is_met(double now_s, double wanted_s)
{
    return fabs(wanted_s - now_s) < HR__CALIBRATE_CLOSE * wanted_s;
}

/* Attributes to each batch what neither the interaction of training and loading nor the loader's
 * work explains of the warm phase. */
static int fit_warm(struct hr__model *model, double wanted_s, struct hr_error *error)
{
    double now_s = 0;
    int r = try_sharing(model, 0, &now_s, error);
    if (!r && wanted_s > now_s && !is_met(now_s, wanted_s))
        r = fit_sharing(model, wanted_s, &now_s, error);
    if (!r && !is_met(now_s, wanted_s))
        r = fit_loading(model, wanted_s, &now_s, error);
    if (!r && wanted_s > now_s && !is_met(now_s, wanted_s)) {
        model->system.batch_cpu_s += wanted_s - now_s;
        model->unexplained_s = wanted_s - now_s;
    }
    return r;
}

static int try_latency(const struct hr__model *model, double value, double *batch_s,
                       struct hr_error *error)
{
    struct hr__model m = *model;
    m.storage.latency_factor = value;
    return try_storage(&m, 1, batch_s, error);
}

/* Sets a lower bound for storage from what the cold phase, or the loader alone, really read. If
 * storage was not measured by itself, this is also its rate. */
static void require_read(struct hr__model *model, double cold_s)
{
    const struct hr__system *s = &model->system;
    double bytes = hr__values_mean(model->sizes, s->bytes.count) * model->cold_missing;
    struct hr__drain drain;
    model->storage.required = bytes * s->batch_size * s->ranks / cold_s;
    if (model->has_storage && hr__drains_find(model, true, &drain, 1))
        model->storage.required = fmax(model->storage.required, bytes * drain.rate);
    model->has_storage = model->has_storage || model->storage.required > 0;
}

/* Fits a factor of storage within `range`; work_s: the time of what it multiplies. */
static int fit_factor(const struct hr__model *model, hr__try_fn try_it, const double range[2],
                      const double times_s[2], double work_s, double *factor,
                      struct hr_error *error)
{
    double value = 1, found_s = 0, now_s = times_s[0], wanted_s = times_s[1];
    int r = hr__calibrate_solve(model, try_it, wanted_s, range, &value, error);
    if (!r)
        r = try_it(model, value, &found_s, error);
    if (!r && value > range[0] &&
        hr__calibrate_explains(now_s, found_s, wanted_s, (value - 1) * work_s))
        *factor = value;
    return r;
}

/* Fits storage to a cold batch, which takes times_s[0] and should take times_s[1]: a factor that
 * slows down its rate and its latency, or one that shortens the latency. */
static int fit_storage(struct hr__model *model, const double times_s[2], struct hr_error *error)
{
    struct hr__system s = model->system;
    hr__model_storage(model, hr__reads_in_flight(&s), 1, &s);
    double samples = (double)s.batch_size * s.ranks * model->cold_missing;
    double transfer_s = hr__values_mean(model->sizes, s.bytes.count) / s.storage_bytes_per_s;
    double each_s = (transfer_s + s.storage_latency_s) / hr__reads_in_flight(&s);
    double waiting_s = samples * s.storage_latency_s / hr__reads_in_flight(&s);
    return times_s[0] < times_s[1]
               ? fit_factor(model, try_storage, (const double[]){1, 10}, times_s,
                            samples * fmax(transfer_s, each_s), &model->storage.factor, error)
               : fit_factor(model, try_latency, (const double[]){0.1, 1}, times_s, waiting_s,
                            &model->storage.latency_factor, error);
}

/* A cold phase slower than simulated means slower storage. A faster one says nothing about
 * storage's rate, for which the bytes read are a lower bound, but about its latency. */
static int fit_cold(struct hr__model *model, double cold_s, struct hr_error *error)
{
    double now_s = 0, seen_s = 0;
    if (!hr__known(cold_s) || !(model->cold_missing > 0))
        return 0;
    require_read(model, cold_s);
    if (!model->has_storage)
        return 0;
    int r = try_storage(model, 1, &now_s, error);
    if (!r)
        r = try_loader(model, 1, &seen_s, error);
    /* If storage hides behind the loader's work, only the visible part can be fitted. */
    double wanted_s = fmax(cold_s, seen_s * (1 + HR__CALIBRATE_CLOSE));
    bool hidden = wanted_s > cold_s && now_s <= wanted_s;
    if (r || hidden || is_met(now_s, wanted_s))
        return r;
    return fit_storage(model, (const double[]){now_s, wanted_s}, error);
}

/* The cold phase counts only if it was verified: if some files were in memory, it says nothing
 * about storage. */
static double cold_phase_s(const struct hr_stalls *stalls)
{
    return *stalls->phase_reason[HR_STALLS_COLD] ? NAN : hr__phase_s(stalls, HR_STALLS_COLD);
}

/* Records how well the calibrated model meets the phases. */
static int meet(struct hr__model *model, const double measured_s[2], struct hr_error *error)
{
    int r = 0;
    for (int i = 0; i < 2 && !r; i++) {
        model->met[i] = (struct hr__met){measured_s[i], NAN};
        if (!hr__known(measured_s[i]) || (i == HR__MET_COLD && !model->has_storage))
            continue;
        r = i == HR__MET_COLD ? try_storage(model, 1, &model->met[i].found_s, error)
                              : try_loader(model, 1, &model->met[i].found_s, error);
    }
    return r;
}

/* ---- the whole ---- */

void hr__model_clear(struct hr__model *model)
{
    hr__free(model->step_s);
    hr__free(model->prepare_s);
    hr__free(model->sizes);
    *model = (struct hr__model){.stalls = NULL};
}

int hr__model_open(struct hr__model *model, const struct hr_stalls *stalls, struct hr_error *error)
{
    struct hr__drain drains[HR__STALLS_MAX_POINTS];
    *model = (struct hr__model){.stalls = stalls, .cold_missing = 1};
    int r = find_host(model, error);
    if (r)
        goto fail;
    take_kind(model);
    int count = hr__drains_find(model, false, drains, HR__STALLS_MAX_POINTS);
    double cpu_s = hr__contention_fit(model, drains, count);
    r = hr__step_fit(model, error);
    if (!r)
        r = take_sizes(model);
    if (!r)
        r = hr__loader_fit(model, drains, count, cpu_s, error);
    if (r)
        goto fail;
    take_storage(model);
    hr__beside_fit(model);
    const double measured_s[] = {[HR__MET_WARM] = hr__phase_s(stalls, HR_STALLS_WARM),
                                 [HR__MET_COLD] = cold_phase_s(stalls)};
    model->cold_missing = share_read(stalls);
    if (hr__known(measured_s[HR__MET_WARM]))
        r = fit_warm(model, measured_s[HR__MET_WARM], error);
    if (!r)
        r = fit_cold(model, measured_s[HR__MET_COLD], error);
    if (!r)
        r = meet(model, measured_s, error);
    if (!r)
        return 0;
fail:
    if (r == -ENOMEM)
        hr__fail(error, r, "out of memory while predicting");
    hr__model_clear(model);
    return r;
}
