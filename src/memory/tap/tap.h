/*
 * Internals of the tap: how malloc's stand-ins and the CUDA allocator report blocks, and the
 * process-wide state they share.
 *
 * The state is one mapping that the kernel wipes in a forked child (MADV_WIPEONFORK): there
 * nothing lives that we know, nobody listens, no lock is held, and a recording of the child's
 * own may begin.
 */
#ifndef HR_MEMORY_TAP_TAP_H
#define HR_MEMORY_TAP_TAP_H

#include "memory/tap/table.h"

#include <headrace/tap.h>

#define HR__TAP_STRIPES 64

/* Threads that are about to tell, or tell; of two kinds, so that who waits for those that there
 * are does not wait for those that come. */
struct hr__tap_stripe {
    atomic_uint counts[2];
} __attribute__((aligned(64)));

enum hr__tap_phase { HR__TAP_OFF, HR__TAP_CHANGING, HR__TAP_ON };

struct hr__tap_state {
    struct hr__tap_table table;
    atomic_int phase;      /* enum hr__tap_phase: who begins or ends has it to himself */
    atomic_int is_telling; /* `to` may be called */
    atomic_uint turns;     /* its lowest bit: as which kind threads count now */
    struct hr_tap to;      /* written while nobody reads it */
    struct hr__tap_stripe stripes[HR__TAP_STRIPES];
};

/* NULL: nothing was ever seen. */
extern _Atomic(struct hr__tap_state *) hr__tap_here;

/* Non-zero while this thread tells: what it allocates by then is the listener's. */
extern __thread int hr__tap_inside __attribute__((tls_model("initial-exec")));

/* 0: no block that was told of lives at the address. */
static inline int hr__tap_may_know(const void *address)
{
    struct hr__tap_state *state = atomic_load_explicit(&hr__tap_here, memory_order_acquire);
    return state && hr__tap_table_may_have(&state->table, (uintptr_t)address);
}

/* A block lives from now on: after the allocator gave it and before anybody else knows it. */
void hr__tap_allocated(const void *address, uint64_t bytes, uint8_t device);

/* It does not any more: before the allocator has it back. 1: it was known, and is in *out
 * (which may be NULL); 0: it was not. */
int hr__tap_freed(const void *address, struct hr__tap_entry *out);

void hr__tap_refused(uint64_t bytes, uint8_t device);

#endif
