/*
 * Makes results without a run: the measurements that a simulated system would give. Predictions
 * from such a result can be compared with the changed system itself.
 */
#ifndef HR_TEST_MEASURED_H
#define HR_TEST_MEASURED_H

#include "stalls/model/model.h"

#define MEASURED_BATCH 32
#define MEASURED_BYTES 100000.0

struct measured {
    struct hr_stalls stalls;
    struct hr__system truth;
    double *batch_s; /* of the host segment */
};

/* A torch loader of `workers` processes on `cores` cores: a step of step_s that takes no core,
 * cpu_s for a sample, storage of bytes_per_s with 1 ms a read. Change `truth` and its values before
 * measured_take. */
void measured_begin(struct measured *m, int cores, int workers, const double *step_s,
                    const double *cpu_s, double bytes_per_s);

/* Makes its measurements: phases, drains, depths, preparation. */
void measured_take(struct measured *m);
/* Also sets the phases' rates and shares, as measured and verified: a change of nothing then gives
 * the measurement, and the cause of waiting is known. */
void measured_shares(struct measured *m);
void measured_clear(struct measured *m);
/* The first two together, and all three. */
void measured_make(struct measured *m, int cores, int workers, const double *step_s,
                   const double *cpu_s, double bytes_per_s);
void measured_known(struct measured *m, int cores, int workers, const double *step_s,
                    const double *cpu_s, double bytes_per_s);

/* Returns the samples/s of the system as it is now. */
double measured_rate(const struct hr__system *system);

/* Predicts from the measurements; fails if shares do not add up. */
struct hr_stalls_prediction predicted(const struct measured *m,
                                      const struct hr_stalls_change *change);

/* Fails if a prediction differs from the changed system by more than a share. */
void check(const struct measured *m, const struct hr_stalls_change *change,
           const struct hr__system *truth, double tolerance);

struct hr_stalls_change no_change(void);

#endif
