/*
 * What the files that calibrate a model share; see calibrate.c.
 */
#ifndef HR_STALLS_MODEL_CALIBRATE_H
#define HR_STALLS_MODEL_CALIBRATE_H

#include "stalls/model/predict.h"

#include <math.h>

#define HR__CALIBRATE_SEED  1
#define HR__CALIBRATE_CLOSE 0.003  /* a phase that is met so well is met */
#define HR__CALIBRATE_EXACT 0.0003 /* how well it is met where something is looked for */
#define HR__CALIBRATE_LEVER 3.0    /* most that is changed for a second that shows of it */

/* Positive and finite: a figure that was measured. */
static inline bool hr__known(double value)
{
    return value > 0 && value < INFINITY;
}

/* Half the width of an interval over its value; NaN: it has no interval; 0: there is no such
 * figure, and nothing rests on it. */
static inline double hr__spread(const struct hr_interval *interval)
{
    return hr__known(interval->value) ? (interval->high - interval->low) / 2 / interval->value : 0;
}

/*
 * Whether changing a figure explains what was measured: it was `before_s` without and
 * `found_s` with the change, `wanted_s` measured, `change_s` the time that the change means
 * where nothing hides it. A change of which hardly anything shows explains nothing: it would
 * only be the noise of the measurement, many times as large, and come out where a
 * prediction takes away what hid it.
 */
static inline bool hr__calibrate_explains(double before_s, double found_s, double wanted_s,
                                          double change_s)
{
    return fabs(found_s - wanted_s) < HR__CALIBRATE_CLOSE * wanted_s &&
           fabs(change_s) <= HR__CALIBRATE_LEVER * fabs(wanted_s - before_s);
}

/* Scales values to a mean. NaN: the mean of none. */
double hr__values_mean(const double *values, size_t count);
void hr__values_scale(double *values, size_t count, double mean);

/* Seconds of a global batch at a value of one figure. */
typedef int (*hr__try_fn)(const struct hr__model *model, double value, double *batch_s,
                          struct hr_error *error);

/*
 * The value in the range at which a batch takes wanted_s; the nearer end where there is none.
 * Longer with greater values. By false position, with the end that stays weighed less
 * (Illinois), which needs a few simulations where halving would need a dozen.
 */
HR_NODISCARD int hr__calibrate_solve(const struct hr__model *model, hr__try_fn try_it,
                                     double wanted_s, const double range[2], double *value,
                                     struct hr_error *error);

/* Seconds of one global batch of a phase, of the middle round: one in which the machine did
 * something else is not to be explained. NaN where there was none. */
double hr__phase_s(const struct hr_stalls *stalls, enum hr_stalls_phase phase);

/* ---- calibrate_step.c ---- */

/* Sets the step: its length and its work. Errors: -ENODATA, -ENOMEM. */
HR_NODISCARD int hr__step_fit(struct hr__model *model, struct hr_error *error);

/* Sets what receiving a batch takes, and the disturbance by a loader that works beside the step,
 * where training is on the CPU and the segments tell. */
void hr__beside_fit(struct hr__model *model);

/* ---- calibrate_loader.c ---- */

/* The loader alone on so many cores of the host. */
struct hr__drain {
    int cores;
    int ranks;          /* that did so together */
    double rate, cpu_s; /* samples/s; of one sample, NaN: not known */
};

/* Of rank 0's host, by cores, each once, where all its ranks were measured; returns how
 * many. */
int hr__drains_find(const struct hr__model *model, bool cold, struct hr__drain *drains, int most);

/* Sets contention; returns the CPU time of a sample without it, NaN: not known. */
double hr__contention_fit(struct hr__model *model, const struct hr__drain *drains, int count);

/* Sets what a sample and a batch take in the loader, so that it gives what it gave alone;
 * `cpu_s`: of a sample, where it is known. Errors: -ENOMEM. */
HR_NODISCARD int hr__loader_fit(struct hr__model *model, const struct hr__drain *drains, int count,
                                double cpu_s, struct hr_error *error);

/* All of prepare_s times `factor`. */
void hr__prepare_scale(struct hr__model *model, double factor);

/* The rate of the system with a trainer that takes no time. */
HR_NODISCARD int hr__loader_rate(const struct hr__system *system, double *rate,
                                 struct hr_error *error);

#endif
