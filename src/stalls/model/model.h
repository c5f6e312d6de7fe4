/*
 * Predicting training speed: the paper's bare minimum as the reference, and a simulation
 * of the loader's bounded queue in which preparation, training and storage share what
 * the host has.
 *
 * Pure functions of numbers: no clock, no I/O, no threads, no randomness but from a seed.
 */
#ifndef HR_STALLS_MODEL_MODEL_H
#define HR_STALLS_MODEL_MODEL_H

#include "stalls/model/result.h"

/* VLDB'21, section 3.4 (equations as in the paper): T_f = D x / C + D (1 - x) / S,
 * F = D / T_f, speed = min(F, P, G). Rates in samples/s; x: cached share. */
struct hr__reference {
    double device_rate;  /* G */
    double prepare_rate; /* P */
    double cache_rate;   /* C */
    double storage_rate; /* S */
    double cached;       /* x */
};
double hr__reference_fetch_rate(const struct hr__reference *reference);
double hr__reference_speed(const struct hr__reference *reference);

/* Distributions: values that are drawn from in a fixed order, seeded. */
struct hr__values {
    const double *values;
    size_t count;
};

/* One host, all its ranks alike. Zeroed members that a system has no use for mean that
 * there is none of it. */
struct hr__system {
    /* host */
    int cores;
    double contention;          /* a core is slower by this share for each other one that is busy,
                                   through shared caches, memory and execution units: k of them do
                                   the work of k / (1 + contention (k - 1)); 0: they are apart */
    int contention_cores;       /* from so many busy cores on it grows no more; 0: no such bound */
    double storage_bytes_per_s; /* of the host, however many reads are in flight */
    double storage_latency_s;   /* of one read, besides its transfer */
    double storage_saved_s;     /* of transfer that idle storage saves up at most */
    /* training: each rank's step */
    int ranks;
    struct hr__values step_s; /* device and copy, nothing else running; of all ranks */
    double copy_s;            /* of it, the copy */
    double step_cpu_s;        /* of it on cores; may be more than the step with threads */
    int step_threads;         /* that do it; a step is step_cpu_s / step_threads of work on
                                 each, and what remains of step_s is waiting */
    double disturbance;       /* a step's work is slower by this share for each core on which the
                                 loader works at once, besides contention */
    double sharing;           /* a step's work grows by this share while the loader's threads want
                                 more cores than there are: threads that wait for each other spin */
    double crowding;          /* so does all work then: threads that take turns on a core find
                                 their data gone from its caches */
    /* loader: each rank's */
    enum hr__loader_kind loader;
    int workers, batches_ahead, batch_size;
    struct hr__values prepare_s; /* CPU of one sample */
    double delay_s;              /* of one sample, waiting for neither CPU nor storage */
    double batch_cpu_s;          /* of the training process for each batch: receiving it */
    struct hr__values bytes;     /* of one sample's file */
    double missing;              /* share of samples that are fetched */
    double missing_cpu_s;        /* CPU of one of those besides prepare_s */
    int fetches_ahead;           /* reads in flight that the loader can keep besides its
                                    workers; 0: workers read themselves */
};

struct hr__prediction {
    double rate; /* samples/s of all ranks of the host; infinite where nothing takes time */
    double step_s, copy_s, wait_prepare_s, wait_fetch_s; /* of one batch; sum: its time */
    double core_share;
};

/*
 * Simulates until steady, then `batches` global batches (a few more, so that each worker
 * process does as many as the others). Threads share the cores fairly, reads in flight
 * the storage's rate; a global batch ends when its slowest rank has. The parts of the
 * outcome are differences of three simulations (a loader that costs nothing; nothing
 * missing; everything), so that they mean what measured ones do. Errors: -EINVAL, -ENOMEM.
 */
HR_NODISCARD int hr__simulate(const struct hr__system *system, int batches, uint64_t seed,
                              struct hr__prediction *outcome, struct hr_error *error);

/* As it stands, without the differences: seconds of one global batch, and the share of the
 * cores that is busy (NULL: not wanted). */
HR_NODISCARD int hr__simulate_batch_s(const struct hr__system *system, int batches, uint64_t seed,
                                      double *batch_s, double *core_share, struct hr_error *error);

#endif
