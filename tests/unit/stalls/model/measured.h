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

/* A torch loader of `workers` processes on `cores` cores: a step of step_s that takes no
 * core, cpu_s of a sample, storage of bytes_per_s with 1 ms a read. Change `truth` and its
 * values before measured_take. */
void measured_begin(struct measured *m, int cores, int workers, const double *step_s,
                    const double *cpu_s, double bytes_per_s);

/* Measures it: phases, drains, depths, preparation. */
void measured_take(struct measured *m);
/* The phases' rates and shares as well, as measured and verified: then what does not change is
 * what was measured, and what is waited for is known. */
void measured_shares(struct measured *m);
void measured_clear(struct measured *m);

/* Samples/s of the system as it is now. */
double measured_rate(const struct hr__system *system);

/* Of what was measured; shares that do not add up fail. */
struct hr_stalls_prediction predicted(const struct measured *m,
                                      const struct hr_stalls_change *change);

/* Fails where a prediction is off the changed system itself by more than a share. */
void check(const struct measured *m, const struct hr_stalls_change *change,
           const struct hr__system *truth, double tolerance);

struct hr_stalls_change no_change(void);

#endif
