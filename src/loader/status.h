/*
 * The status that a loader publishes about itself (metrics/meter.h): from its first epoch on, when
 * an epoch begins or ends, and otherwise every half second, in a call of next. The consumer's
 * thread does it, so it costs nothing while no batch is asked for, and needs no thread. Less than
 * 30 us each: below a part in ten thousand.
 */
#ifndef HR_LOADER_STATUS_H
#define HR_LOADER_STATUS_H

#include <headrace/base.h>

#include <stdint.h>

struct hr_meter;
struct hr_loader;

/* A loader's part; only the consumer's thread and destroy use it. */
struct hr__publication {
    struct hr_meter *meter; /* NULL before the first epoch */
    uint64_t begun_ns;      /* the first epoch */
    uint64_t due_ns;        /* the next time to publish */
    uint64_t wait_since_ns; /* the call of next that is in progress; 0: none */
    uint64_t left_ns;       /* the end of the last call of next in this epoch; 0: none */
    int is_running;         /* an epoch is going on */
    int is_interrupted;     /* the last call of next ended without its batch: it goes on waiting */
    uint64_t fetch_ns, prepare_ns; /* sums over samples when it was last published */
};

/* Before an epoch: joins the process's loaders, once. Errors: as hr_meter_begin. */
HR_NODISCARD int hr__status_begin(struct hr_loader *l, struct hr_error *error);

/* An epoch has begun. */
void hr__status_start(struct hr_loader *l);

/* A call of next begins, and ends with `result`. */
void hr__status_enter(struct hr_loader *l, uint64_t now_ns);
void hr__status_leave(struct hr_loader *l, uint64_t now_ns, int result);

/* Within a long wait: publishes if it is time. Returns the next time. */
uint64_t hr__status_tick(struct hr_loader *l);

#endif
