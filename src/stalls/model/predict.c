/*
 * Predicts the effect of a change: the simulated rate, its interval, and the paper's min(F, P, G),
 * whose three rates are simulated too (each without the other parts).
 *
 * The interval reflects the measurements' uncertainty: the step, preparation and storage are each
 * made slower and faster by their intervals, one at a time, and the effects add up like independent
 * errors. The model's own error is not part of this.
 */
#include "stalls/model/calibrate_inside.h"

#include "base/error.h"
#include "base/versioned.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SEED 1

static double rate_of(const struct hr__changed *changed, double batch_s)
{
    double samples = (double)changed->system.batch_size * changed->ranks;
    return batch_s > 0 ? samples / batch_s : INFINITY;
}

static int rate_alone(const struct hr__changed *changed, const struct hr__system *system,
                      double *rate, struct hr_error *error)
{
    double batch_s = 0;
    int r = hr__simulate_batch_s(system, hr__model_batches(system), SEED, &batch_s, NULL, error);
    *rate = rate_of(changed, batch_s);
    return r;
}

/* The loader with a trainer that takes no time: preparation only, or storage only. */
static struct hr__system loader_alone(const struct hr__changed *changed, bool storage)
{
    struct hr__system s = changed->system;
    s.step_s = (struct hr__values){NULL, 0};
    s.step_cpu_s = s.copy_s = s.batch_cpu_s = 0;
    s.missing = storage;
    if (storage) {
        s.prepare_s = (struct hr__values){NULL, 0};
        s.delay_s = s.missing_cpu_s = 0;
    }
    return s;
}

/* Returns measured over simulated rate. Predictions are scaled by it, so that changing nothing
 * gives the measured rate. */
static double times_measured(double measured, double simulated)
{
    return hr__known(measured) && hr__known(simulated) ? measured / simulated : 1;
}

/* Scales P and F of the unchanged loader. */
static int scale_to_measured(const struct hr__model *model, double *prepare, double *fetch,
                             struct hr_error *error)
{
    const struct hr_stalls_summary *m = &model->stalls->summary;
    struct hr__changed same = {
        .system = model->system, .hosts = model->hosts, .ranks = model->ranks};
    double simulated = 0;
    struct hr__system alone = loader_alone(&same, false);
    int r = rate_alone(&same, &alone, &simulated, error);
    *prepare *= times_measured(m->prepare_rate.value, simulated);
    if (r || !model->has_storage)
        return r;
    alone = loader_alone(&same, true);
    hr__model_storage(model, hr__reads_in_flight(&alone), 1, &alone);
    r = rate_alone(&same, &alone, &simulated, error);
    *fetch *= times_measured(m->fetch_rate.value, simulated);
    return r;
}

static int predict_reference(const struct hr__model *model, const struct hr__changed *changed,
                             struct hr_stalls_prediction *p, struct hr_error *error)
{
    struct hr__system prepare = loader_alone(changed, false), fetch = loader_alone(changed, true);
    double cache = model->memory_bytes_per_s / model->file_bytes * changed->hosts;
    double missing = changed->system.missing, storage = INFINITY;
    int r = rate_alone(changed, &prepare, &p->prepare_rate, error);
    if (!r && missing > 0)
        r = rate_alone(changed, &fetch, &storage, error);
    if (!r && changed->rests_on_loader)
        r = scale_to_measured(model, &p->prepare_rate, &storage, error);
    struct hr__reference reference = {.device_rate = p->device_rate,
                                      .prepare_rate = p->prepare_rate,
                                      .cache_rate = cache > 0 ? cache : INFINITY,
                                      .storage_rate = storage,
                                      .cached = 1 - missing};
    p->fetch_rate = missing > 0 ? hr__reference_fetch_rate(&reference) : INFINITY;
    p->reference_rate = hr__reference_speed(&reference);
    return r;
}

/* ---- intervals ---- */

enum { STEP, PREPARE, STORAGE, KINDS };

/* Largest error of the model where its predictions were measured afterwards (docs/benchmarks.md,
 * make bench-stalls). No interval is narrower, however well its inputs are known. */
#define MODEL_ERROR 0.05

static void stretch(struct hr__changed *changed, int kind, double factor)
{
    struct hr__system *s = &changed->system;
    for (size_t i = 0; i < s->step_s.count && kind == STEP; i++)
        changed->step_s[i] *= factor;
    for (size_t i = 0; i < s->prepare_s.count && kind == PREPARE; i++)
        changed->prepare_s[i] *= factor;
    if (kind == STEP) {
        s->step_cpu_s *= factor;
    } else if (kind == PREPARE) {
        s->delay_s *= factor;
        s->batch_cpu_s *= factor;
        s->missing_cpu_s *= factor;
    } else {
        s->storage_latency_s *= factor;
        s->storage_saved_s *= factor;
        s->storage_bytes_per_s /= factor;
    }
}

static int predict_interval(const struct hr__model *model, struct hr__changed *changed,
                            struct hr_stalls_prediction *p, struct hr_error *error)
{
    const double spreads[KINDS] = {model->step_spread, model->prepare_spread,
                                   model->storage_spread};
    double own = MODEL_ERROR * p->rate, below = own * own, above = own * own;
    int r = 0;
    for (int kind = 0; kind < KINDS && !r; kind++) {
        double slow = p->rate, fast = p->rate, factor = 1 + spreads[kind];
        bool foreign = kind == PREPARE && !changed->rests_on_loader && !(spreads[kind] < 1);
        if (foreign || (kind == STORAGE && !(changed->system.missing > 0)))
            continue;
        if (isnan(spreads[kind]))
            return 0; /* the interval stays unknown */
        stretch(changed, kind, factor);
        r = rate_alone(changed, &changed->system, &slow, error);
        stretch(changed, kind, 1 / factor / factor);
        if (!r)
            r = rate_alone(changed, &changed->system, &fast, error);
        stretch(changed, kind, factor);
        below += fmax(0, p->rate - slow) * fmax(0, p->rate - slow);
        above += fmax(0, fast - p->rate) * fmax(0, fast - p->rate);
    }
    p->low = fmax(0, p->rate - sqrt(below));
    p->high = p->rate + sqrt(above);
    return r;
}

/* ---- predictions ---- */

static int predict_changed(const struct hr__model *model, struct hr__changed *changed, bool full,
                           struct hr_stalls_prediction *p, struct hr_error *error)
{
    struct hr__prediction outcome = {0};
    int r =
        hr__simulate(&changed->system, hr__model_batches(&changed->system), SEED, &outcome, error);
    if (r)
        return r;
    double parts[] = {outcome.step_s, outcome.copy_s, outcome.wait_prepare_s, outcome.wait_fetch_s};
    double batch_s = parts[0] + parts[1] + parts[2] + parts[3];
    *p = (struct hr_stalls_prediction){
        .rate = rate_of(changed, batch_s),
        .low = NAN,
        .high = NAN,
        .reference_rate = NAN,
        .prepare_rate = NAN,
        .fetch_rate = NAN,
        .device_rate = rate_of(changed, parts[0]) * model->device_times,
        .core_share = outcome.core_share,
        .extrapolated = changed->extrapolated,
        .cached = changed->cached,
    };
    for (int i = 0; i < 4; i++)
        p->share[i] = batch_s > 0 ? parts[i] / batch_s : i == 0;
    memcpy(p->why, changed->why, sizeof p->why);
    if (full)
        r = predict_reference(model, changed, p, error);
    if (!r && full)
        r = predict_interval(model, changed, p, error);
    return r;
}

/* Returns whether the change affects only where the files are. */
static bool is_same(const struct hr_stalls_change *change)
{
    return change->loader == HR_STALLS_LOADER_SAME && !change->cores && !change->ranks &&
           !change->workers && !(change->storage_bytes_per_s > 0) &&
           !(change->storage_factor > 0 && change->storage_factor != 1) &&
           !(change->device_speedup > 0 && change->device_speedup != 1);
}

/* For what was measured, uses the measurement instead of a prediction. */
static void take_measured(const struct hr__model *model, const struct hr_stalls_change *change,
                          const struct hr__changed *changed, struct hr_stalls_prediction *p)
{
    const struct hr_stalls_summary *m = &model->stalls->summary;
    double missing = changed->system.missing;
    bool cold = missing > 0 && missing == model->cold_missing;
    const struct hr_interval *share = cold ? m->share : m->warm_share;
    enum hr_stalls_phase phase = cold ? HR_STALLS_COLD : HR_STALLS_WARM;
    bool own_cache =
        model->system.loader == HR__LOADER_HEADRACE && changed->cached > 0 && !change->page_cache;
    if (!is_same(change) || own_cache || (missing > 0 && !cold) || !m->measured[phase] ||
        !hr__known(m->rate[phase].value) || isnan(share[0].value))
        return;
    p->measured = 1;
    p->rate = m->rate[phase].value;
    p->low = m->rate[phase].low;
    p->high = m->rate[phase].high;
    for (int i = 0; i < 4; i++)
        p->share[i] = (i < 3 || cold) && !isnan(share[i].value) ? share[i].value : 0;
}

static int predict_once(const struct hr__model *model, const struct hr_stalls_change *change,
                        bool full, struct hr_stalls_prediction *p, struct hr_error *error)
{
    struct hr__changed changed;
    int r = hr__model_change(model, change, &changed, error);
    if (r)
        return r;
    r = predict_changed(model, &changed, full, p, error);
    if (!r)
        take_measured(model, change, &changed, p);
    hr__changed_clear(&changed);
    return r;
}

/* Finds the form in which Headrace's loader makes training fastest. */
static int best_form(const struct hr__model *model, const struct hr_stalls_change *change,
                     int *form, struct hr_error *error)
{
    struct hr_stalls_change one = *change;
    double fastest = 0;
    int r = 0;
    *form = HR_FORM_ENCODED;
    for (size_t i = 0; i < model->host->form_count && !change->page_cache && !r; i++) {
        struct hr_stalls_prediction p;
        one.form = (int)model->host->forms[i].form;
        r = predict_once(model, &one, false, &p, error);
        if (!r && p.rate > fastest * (1 + 1e-6)) {
            fastest = p.rate;
            *form = one.form;
        }
    }
    return r;
}

int hr__model_predict(const struct hr__model *model, const struct hr_stalls_change *change,
                      bool full, struct hr_stalls_prediction *prediction, struct hr_error *error)
{
    struct hr_stalls_change c = *change;
    int r = hr__change_check(change, error);
    if (!r && c.loader == HR_STALLS_LOADER_HEADRACE && c.form == HR_FORM_AUTO)
        r = best_form(model, change, &c.form, error);
    return r ? r : predict_once(model, &c, full, prediction, error);
}

int hr_stalls_predict(const struct hr_stalls *result, const struct hr_stalls_change *change,
                      struct hr_stalls_prediction *prediction, struct hr_error *error)
{
    struct hr__model model;
    struct hr_stalls_change c;
    struct hr_stalls_prediction p;
    hr_stalls_change_default(&c);
    int r = change ? hr__versioned_take(&c, sizeof c, change, "hr_stalls_change", error) : 0;
    if (!r)
        r = hr__change_check(&c, error);
    if (!r)
        r = hr__model_open(&model, result, error);
    if (r)
        return r;
    r = hr__model_predict(&model, &c, true, &p, error);
    hr__model_clear(&model);
    if (!r)
        hr__versioned_give(prediction, &p, sizeof p);
    return r;
}
