/*
 * Simulates one run: the ranks' training loops and their loaders on a machine.
 */
#ifndef HR_STALLS_MODEL_TRAINING_H
#define HR_STALLS_MODEL_TRAINING_H

#include "stalls/model/model.h"

/* Random draws for the samples and steps of a run: sample or global batch i uses entry i, modulo
 * the count. Each rank starts at another place in the samples' entries. */
struct hr__draws {
    const double *prepare_s, *bytes;
    const double *chance; /* a sample is missing if this is below system->missing */
    size_t samples;
    const double *step_s;
    size_t steps;
    double step_mean_s;
};

/* Runs `settle` global batches, then `batches` that count. Returns the seconds of one, and the
 * share of the cores that was busy. Errors: -ENOMEM. */
HR_NODISCARD int hr__training_run(const struct hr__system *system, const struct hr__draws *draws,
                                  uint64_t settle, uint64_t batches, double *batch_s,
                                  double *core_share);

#endif
