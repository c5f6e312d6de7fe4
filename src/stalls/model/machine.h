/*
 * The resources of a simulated host: cores, storage and a clock. Work items run on it until they
 * are done; hr__machine_next returns the one that is done next.
 *
 * Cores are shared by fluid processor sharing in virtual time (Kleinrock, "Queueing Systems" II,
 * 4.4): all runnable threads advance at the same speed. So each is done when the virtual time of
 * its kind passes a mark set when it started, and a heap of marks is enough. Storage transfers
 * reads one after another at its rate, as devices and throttles do; if reads shared it, threads
 * that begin together would stay together. Each read takes storage_latency_s more, while others are
 * transferred. Idle storage saves up transfer time, at most storage_saved_s, which later reads use
 * at once: throttles accumulate an allowance, and read-ahead fetches the next data early.
 */
#ifndef HR_STALLS_MODEL_MACHINE_H
#define HR_STALLS_MODEL_MACHINE_H

#include "stalls/model/model.h"

struct hr__mark {
    double at;      /* virtual time; for a wait, the clock */
    uint64_t order; /* of marks at the same time, the lowest order comes first */
    uint32_t id, threads;
};

struct hr__marks { /* a binary heap */
    struct hr__mark *marks;
    size_t count;
    double time; /* virtual time now */
};

struct hr__machine {
    const struct hr__system *system;
    struct hr__marks threads, steps, waits;
    struct hr__mark *reads; /* a ring: reads end in the order they begin */
    size_t read_first, read_count, read_capacity;
    double storage_free; /* time at which all transfers are done */
    int step_threads;    /* runnable threads of all steps */
    uint64_t order;
    double now, busy_core_s;
};

/* `runners`: ids of threads, steps and waits at once; `reads`: reads at once. */
HR_NODISCARD int hr__machine_init(struct hr__machine *machine, const struct hr__system *system,
                                  size_t runners, size_t reads);
void hr__machine_clear(struct hr__machine *machine);

/* Start work: CPU work of one thread; the same work on each of `threads` threads; a delay;
 * a read. */
void hr__machine_run(struct hr__machine *machine, uint32_t id, double work_s);
void hr__machine_step(struct hr__machine *machine, uint32_t id, double work_s, int threads);
void hr__machine_wait(struct hr__machine *machine, uint32_t id, double wait_s);
void hr__machine_read(struct hr__machine *machine, uint32_t id, double bytes);

/* Advances the clock until something is done and returns its id. Something must be running. */
uint32_t hr__machine_next(struct hr__machine *machine);

#endif
