/*
 * A measured run as a system that can be simulated, and systems that differ from it by a
 * change. calibrate.c makes the first, change.c the others; predict.c and suggest.c ask.
 */
#ifndef HR_STALLS_MODEL_PREDICT_H
#define HR_STALLS_MODEL_PREDICT_H

#include "stalls/model/model.h"

#define HR__STALLS_BATCHES     200    /* simulated for a prediction */
#define HR__STALLS_FETCHES     64     /* reads that Headrace's loader keeps in flight */
#define HR__STALLS_AHEAD       2      /* its batches ahead, by default */
#define HR__STALLS_SAMPLES_MAX 200000 /* simulated, of all ranks of a host */

/* Storage by reads in flight: bytes/s of files of `read_bytes` on average. */
struct hr__storage_curve {
    struct hr__depth_record depths[HR__STALLS_MAX_POINTS];
    int count;
    double factor;         /* times as slow as the depths say, by the calibration */
    double latency_factor; /* besides, times the latency */
    double required;       /* bytes/s that were really read: storage is no slower */
    double saved_s;        /* of a byte's transfer, that a pause as long as a read saves */
};

/* A phase as it was measured, and as the calibrated model gives it: seconds of a global batch;
 * NaN: it was not measured. */
struct hr__met {
    double measured_s, found_s;
};
enum { HR__MET_WARM, HR__MET_COLD };

struct hr__model {
    const struct hr_stalls *stalls;
    const struct hr__host_record *host; /* the one that is simulated: rank 0's */
    int hosts, ranks;                   /* of hosts; of all hosts */
    struct hr__system system;           /* unchanged, calibrated; missing: of a cold phase */
    double *step_s, *prepare_s, *sizes; /* what its values point to */
    struct hr__storage_curve storage;
    bool has_storage;
    double cold_missing; /* of the samples of a cold segment */
    double dataset_bytes, file_bytes, available_bytes, memory_bytes_per_s; /* NaN: not known */
    /* Half the widths of the intervals, over the values; NaN: not known */
    double step_spread, prepare_spread, storage_spread;
    bool has_prepare; /* the loader was measured by itself, or its workers' work was */
    struct hr__met met[2];
    double unexplained_s; /* of a batch of the warm phase, that nothing measured explains */
    double device_times;  /* as fast as the calibrated step that G was measured: near 1 */
};

/* `stalls` must outlive the model. Errors: -ENODATA: too little was measured; -ENOMEM. */
HR_NODISCARD int hr__model_open(struct hr__model *model, const struct hr_stalls *stalls,
                                struct hr_error *error);
void hr__model_clear(struct hr__model *model);

/* Sets the storage of a system: `factor` times as fast as measured, for so many reads in
 * flight. */
void hr__model_storage(const struct hr__model *model, int depth, double factor,
                       struct hr__system *system);

/* A changed system; owns what its values point to. */
struct hr__changed {
    struct hr__system system;
    double *step_s, *prepare_s;
    double cached;        /* share of the samples */
    bool rests_on_loader; /* the script's */
    int hosts, ranks;
    int extrapolated;
    char why[256];
};

/* Errors: as hr_stalls_predict. */
HR_NODISCARD int hr__model_change(const struct hr__model *model,
                                  const struct hr_stalls_change *change,
                                  struct hr__changed *changed, struct hr_error *error);
void hr__changed_clear(struct hr__changed *changed);

/* hr_stalls_predict with a model that is there; not `full`: the interval is not known, nor
 * the rates of the paper's model, which is several times as fast. */
HR_NODISCARD int hr__model_predict(const struct hr__model *model,
                                   const struct hr_stalls_change *change, bool full,
                                   struct hr_stalls_prediction *prediction, struct hr_error *error);

/* Reads that a loader has in flight at most. */
int hr__reads_in_flight(const struct hr__system *system);

/* Global batches that are worth simulating. */
int hr__model_batches(const struct hr__system *system);

/* Refuses what makes no sense: -EINVAL. */
HR_NODISCARD int hr__change_check(const struct hr_stalls_change *change, struct hr_error *error);

/* Share of samples that are fetched where the page cache holds the share x of the bytes. */
double hr__page_cache_missing(double x);

#endif
