/*
 * Predicts training speed, by two models: the paper's equations as the reference, and a simulation
 * of the loader's bounded queue in which preparation, training and storage share the host's
 * resources.
 *
 * Pure functions of numbers: no clock, no I/O, no threads; randomness only from a seed.
 */
#ifndef HR_STALLS_MODEL_MODEL_H
#define HR_STALLS_MODEL_MODEL_H

#include "stalls/model/result.h"

/* VLDB'21, section 3.4 (equations as in the paper): T_f = D x / C + D (1 - x) / S, F = D / T_f,
 * speed = min(F, P, G). Rates in samples/s; x: cached share. */
struct hr__reference {
    double device_rate;  /* G */
    double prepare_rate; /* P */
    double cache_rate;   /* C */
    double storage_rate; /* S */
    double cached;       /* x */
};
double hr__reference_fetch_rate(const struct hr__reference *reference);
double hr__reference_speed(const struct hr__reference *reference);

/* A distribution: values used one after another in a fixed, seeded order. */
struct hr__values {
    const double *values;
    size_t count;
};

/* One host, all its ranks alike. A member left zero means that the system has none of it. */
struct hr__system {
    /* host */
    int cores;
    double contention;          /* a core is slower by this share for each other busy core, because
                                   they share caches, memory and execution units: k busy cores do
                                   the work of k / (1 + contention (k - 1)); 0: independent cores */
    int contention_cores;       /* contention stops growing at so many busy cores; 0: never */
    double storage_bytes_per_s; /* of the host, at any number of reads in flight */
    double storage_latency_s;   /* per read, besides its transfer */
    double storage_saved_s;     /* most transfer time that idle storage saves up */
    /* training: each rank's step */
    int ranks;
    struct hr__values step_s; /* device and copy, undisturbed; of all ranks */
    double copy_s;            /* the copy's part of a step */
    double step_cpu_s;        /* CPU part of a step; threads may make it longer than the step */
    int step_threads;         /* threads of a step: each does step_cpu_s / step_threads of work; the
                                 rest of step_s is waiting */
    double disturbance;       /* besides contention, slows a step's work by this share per core that
                                 the loader is using */
    double sharing;           /* a step's work grows by this share while the loader's threads want
                                 more cores than there are: its threads spin while they wait for
                                 each other */
    double crowding;          /* so does all work then: threads that take turns on a core find its
                                 caches cold */
    /* loader: each rank's */
    enum hr__loader_kind loader;
    int workers, batches_ahead, batch_size;
    struct hr__values prepare_s; /* CPU time per sample */
    double delay_s;              /* per sample, waiting for neither CPU nor storage */
    double batch_cpu_s;          /* training process's CPU time to receive a batch */
    struct hr__values bytes;     /* of a sample's file */
    double missing;              /* share of samples that must be fetched */
    double missing_cpu_s;        /* CPU time of such a sample besides prepare_s */
    int fetches_ahead;           /* reads in flight that the loader can keep besides its workers; 0:
                                    workers read themselves */
};

struct hr__prediction {
    double rate; /* samples/s of all ranks of the host; infinite if nothing takes time */
    double step_s, copy_s, wait_prepare_s, wait_fetch_s; /* parts of a batch's time */
    double core_share;
};

/*
 * Simulates until the state is steady, then `batches` global batches (a few more, so that each
 * worker process does equally many). Threads share the cores fairly; reads in flight share the
 * storage's rate; a global batch ends when its slowest rank does. The parts of the outcome are
 * differences of three simulations (a loader that costs nothing; nothing missing; everything), so
 * that they mean the same as measured ones. Errors: -EINVAL, -ENOMEM.
 */
HR_NODISCARD int hr__simulate(const struct hr__system *system, int batches, uint64_t seed,
                              struct hr__prediction *outcome, struct hr_error *error);

/* Simulates the system once, without the differences. Returns the seconds of one global batch, and
 * the share of the cores that is busy (NULL: not wanted). */
HR_NODISCARD int hr__simulate_batch_s(const struct hr__system *system, int batches, uint64_t seed,
                                      double *batch_s, double *core_share, struct hr_error *error);

#endif
