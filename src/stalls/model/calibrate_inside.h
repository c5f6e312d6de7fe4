/*
 * Internals shared by the files that calibrate a model; see calibrate.c.
 */
#ifndef HR_STALLS_MODEL_CALIBRATE_INSIDE_H
#define HR_STALLS_MODEL_CALIBRATE_INSIDE_H

#include "stalls/model/predict.h"

#include <math.h>

#define HR__CALIBRATE_SEED  1
#define HR__CALIBRATE_CLOSE 0.003  /* relative error at which a phase counts as met */
#define HR__CALIBRATE_EXACT 0.0003 /* relative error that a search stops at */
#define HR__CALIBRATE_LEVER 3.0    /* most change per second of visible effect */

/* Returns whether a figure was measured: positive and finite. */
static inline bool hr__known(double value)
{
    return value > 0 && value < INFINITY;
}

/* Half the width of an interval over its value. NaN: no interval is known; 0: there is no such
 * figure, and nothing depends on it. */
static inline double hr__spread(const struct hr_interval *interval)
{
    return hr__known(interval->value) ? (interval->high - interval->low) / 2 / interval->value : 0;
}

/*
 * Returns whether changing a figure explains the measurement. A batch took `before_s` without the
 * change, `found_s` with it and `wanted_s` as measured; `change_s` is the change's time if nothing
 * hides it. A change with almost no visible effect explains nothing: it would be measurement noise,
 * magnified many times, and would surface in a prediction that removes what hides it.
 */
static inline bool hr__calibrate_explains(double before_s, double found_s, double wanted_s,
                                          double change_s)
{
    return fabs(found_s - wanted_s) < HR__CALIBRATE_CLOSE * wanted_s &&
           fabs(change_s) <= HR__CALIBRATE_LEVER * fabs(wanted_s - before_s);
}

/* ---- calibrate_solve.c ---- */

/* Scale values to a mean; hr__values_mean returns NaN for no values. */
double hr__values_mean(const double *values, size_t count);
void hr__values_scale(double *values, size_t count, double mean);

/* Computes the seconds of a global batch for a value of one figure. */
typedef int (*hr__try_fn)(const struct hr__model *model, double value, double *batch_s,
                          struct hr_error *error);

/*
 * Finds the value in `range` at which a batch takes wanted_s; the nearer end if there is none.
 * Greater values must give longer times. Uses false position in the Illinois variant, which halves
 * the weight of an end that stays: it needs a few simulations where bisection needs a dozen.
 */
HR_NODISCARD int hr__calibrate_solve(const struct hr__model *model, hr__try_fn try_it,
                                     double wanted_s, const double range[2], double *value,
                                     struct hr_error *error);

/* Returns the seconds of one global batch of a phase, in its median round: an outlier round, in
 * which the machine did something else, is not worth explaining. NaN: no such round. */
double hr__phase_s(const struct hr_stalls *stalls, enum hr_stalls_phase phase);

/* ---- calibrate_step.c ---- */

/* Fits the step: its length and its work. Errors: -ENODATA, -ENOMEM. */
HR_NODISCARD int hr__step_fit(struct hr__model *model, struct hr_error *error);

/* Fits the cost of receiving a batch, and the disturbance of the step by a loader running beside
 * it. Only if training is on the CPU and the segments show it. */
void hr__beside_fit(struct hr__model *model);

/* ---- calibrate_loader.c ---- */

/* The loader alone on some number of the host's cores. */
struct hr__drain {
    int cores;
    int ranks;          /* measured together */
    double rate, cpu_s; /* samples/s; CPU seconds per sample, NaN: unknown */
};

/* Finds the drains of rank 0's host, one per core count, sorted by cores, for which all its ranks
 * were measured. Returns their number. */
int hr__drains_find(const struct hr__model *model, bool cold, struct hr__drain *drains, int most);

/* Fits contention. Returns the CPU time of a sample without contention; NaN: unknown. */
double hr__contention_fit(struct hr__model *model, const struct hr__drain *drains, int count);

/* Fits what a sample and a batch cost in the loader, so that it reaches the rate it reached alone.
 * `cpu_s`: CPU time of a sample, if known. Errors: -ENOMEM. */
HR_NODISCARD int hr__loader_fit(struct hr__model *model, const struct hr__drain *drains, int count,
                                double cpu_s, struct hr_error *error);

/* Multiplies all of prepare_s by `factor`. */
void hr__prepare_scale(struct hr__model *model, double factor);

/* Computes the system's rate with a trainer that takes no time. */
HR_NODISCARD int hr__loader_rate(const struct hr__system *system, double *rate,
                                 struct hr_error *error);

#endif
