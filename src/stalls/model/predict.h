/*
 * Turns a measured run into a system to simulate, and into systems that a change modifies.
 * calibrate.c makes the former, change.c the latter; predict.c and suggest.c use them.
 */
#ifndef HR_STALLS_MODEL_PREDICT_H
#define HR_STALLS_MODEL_PREDICT_H

#include "stalls/model/model.h"

#define HR__STALLS_BATCHES     200    /* simulated per prediction */
#define HR__STALLS_AHEAD       2      /* batches it prepares ahead by default */
#define HR__STALLS_SAMPLES_MAX 200000 /* simulated, over all ranks of a host */

/* Storage bandwidth by reads in flight, for files of `read_bytes` bytes on average. */
struct hr__storage_curve {
    struct hr__depth_record depths[HR__STALLS_MAX_POINTS];
    int count;
    double factor;         /* calibration: storage is so many times slower than the depths say */
    double latency_factor; /* besides, factor of the latency */
    double required;       /* bytes/s that were really read: storage is at least as fast */
    double saved_s;        /* of a byte's transfer, saved by a pause as long as a read */
    double burst_bytes;    /* saved by a longer pause */
};

/* A phase as measured and as the calibrated model reproduces it: seconds of a global batch. NaN:
 * the phase was not measured. */
struct hr__met {
    double measured_s, found_s;
};
enum { HR__MET_WARM, HR__MET_COLD };

struct hr__model {
    const struct hr_stalls *stalls;
    const struct hr__host_record *host; /* the simulated one: rank 0's */
    int hosts, ranks;                   /* number of hosts; ranks of all hosts */
    struct hr__system system;           /* unchanged, calibrated; missing: of a cold phase */
    double *step_s, *prepare_s, *sizes; /* storage of the system's values */
    struct hr__storage_curve storage;
    bool has_storage;
    double cold_missing; /* share of a cold segment's samples that are missing */
    double dataset_bytes, file_bytes, available_bytes, memory_bytes_per_s; /* NaN: unknown */
    /* Half the widths of the intervals, over the values; NaN: unknown. */
    double step_spread, prepare_spread, storage_spread;
    bool has_prepare; /* the loader alone or its workers' work was measured */
    struct hr__met met[2];
    double unexplained_s; /* part of a warm batch that no measurement explains */
    double device_times;  /* device speed when G was measured, over the calibrated one: near 1 */
};

/* Calibrates a model; `stalls` must outlive it. Errors: -ENODATA: too little was measured;
 * -ENOMEM. */
HR_NODISCARD int hr__model_open(struct hr__model *model, const struct hr_stalls *stalls,
                                struct hr_error *error);
void hr__model_clear(struct hr__model *model);

/* Sets a system's storage for `depth` reads in flight, `factor` times as fast as measured. Of a
 * store only the link gets faster: answers are as late as before. */
void hr__model_storage(const struct hr__model *model, int depth, double factor,
                       struct hr__system *system);

/* A changed system; owns the storage of its values. */
struct hr__changed {
    struct hr__system system;
    double *step_s, *prepare_s;
    double cached;        /* cached share of the samples */
    bool rests_on_loader; /* relies on the script's own loader */
    int hosts, ranks;
    int extrapolated;
    char why[256];
};

/* Errors: as hr_stalls_predict. */
HR_NODISCARD int hr__model_change(const struct hr__model *model,
                                  const struct hr_stalls_change *change,
                                  struct hr__changed *changed, struct hr_error *error);
void hr__changed_clear(struct hr__changed *changed);

/* Like hr_stalls_predict with an open model. Unless `full`, leaves the interval and the rates of
 * the paper's model unknown, which is several times as fast. */
HR_NODISCARD int hr__model_predict(const struct hr__model *model,
                                   const struct hr_stalls_change *change, bool full,
                                   struct hr_stalls_prediction *prediction, struct hr_error *error);

/* Returns the largest number of reads that a loader has in flight. */
int hr__reads_in_flight(const struct hr__system *system);

/* Returns how many global batches to simulate. */
int hr__model_batches(const struct hr__system *system);

/* Rejects an invalid change with -EINVAL. */
HR_NODISCARD int hr__change_check(const struct hr_stalls_change *change, struct hr_error *error);

/* Stores the share of samples that a shuffled epoch must fetch in the long run, if the page cache
 * holds the share x of the dataset's bytes: 1 at 0, 0 at 1. dataset_bytes: 0 or NaN: not known,
 * taken to be many. Errors: -ENOMEM. */
HR_NODISCARD int hr__page_cache_missing(double x, double dataset_bytes, double *missing);

#endif
