/*
 * What a simulated host has: cores, storage and a clock. Things run on it until they are
 * done, and hr__machine_next tells which one is done next.
 *
 * Cores are shared by fluid processor sharing in virtual time (Kleinrock, "Queueing Systems"
 * II, 4.4): all runnable threads advance at the same speed, so each is done when the virtual
 * time of its kind passes a mark set when it started, and a heap of marks is all that is
 * needed. Storage transfers reads one after another at its rate, as devices and throttles
 * do (were it shared too, threads that begin together would stay together); each takes
 * storage_latency_s more, while others are transferred. What storage could have transferred
 * while it idled it transfers at once, up to storage_saved_s of it: throttles save up their
 * allowance, and read-ahead fetches what is asked for next.
 */
#ifndef HR_STALLS_MODEL_MACHINE_H
#define HR_STALLS_MODEL_MACHINE_H

#include "stalls/model/model.h"

struct hr__mark {
    double at;      /* virtual time, or the clock's of a wait */
    uint64_t order; /* of those at the same time, the one set first is first */
    uint32_t id, threads;
};

struct hr__marks { /* a binary heap */
    struct hr__mark *marks;
    size_t count;
    double time; /* virtual, now */
};

struct hr__machine {
    const struct hr__system *system;
    struct hr__marks threads, steps, waits;
    struct hr__mark *reads; /* a ring: they end in the order in which they begin */
    size_t read_first, read_count, read_capacity;
    double storage_free; /* when all is transferred */
    int step_threads;    /* runnable, of all steps */
    uint64_t order;
    double now, busy_core_s;
};

/* `runners`: ids of threads, steps and waits at once; `reads`: reads at once. */
HR_NODISCARD int hr__machine_init(struct hr__machine *machine, const struct hr__system *system,
                                  size_t runners, size_t reads);
void hr__machine_clear(struct hr__machine *machine);

/* CPU work of one thread; of `threads` threads, as much on each; time that passes; a read. */
void hr__machine_run(struct hr__machine *machine, uint32_t id, double work_s);
void hr__machine_step(struct hr__machine *machine, uint32_t id, double work_s, int threads);
void hr__machine_wait(struct hr__machine *machine, uint32_t id, double wait_s);
void hr__machine_read(struct hr__machine *machine, uint32_t id, double bytes);

/* Advances to the next end of anything and returns its id; something must be running. */
uint32_t hr__machine_next(struct hr__machine *machine);

#endif
