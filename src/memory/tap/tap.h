/*
 * Internals of the tap: the wrappers of malloc and the CUDA allocator report blocks through it, and
 * share the process-wide state defined here.
 *
 * The state is one mapping that the kernel wipes in a forked child (MADV_WIPEONFORK): the child has
 * no known blocks, no listener and no held lock, and may begin a recording of its own.
 */
#ifndef HR_MEMORY_TAP_TAP_H
#define HR_MEMORY_TAP_TAP_H

#include "memory/tap/table.h"

#include <headrace/tap.h>

#define HR__TAP_STRIPES 64

/* Counts threads that are notifying the listener or about to. There are two counters, so that a
 * thread waiting for the current notifiers need not wait for new ones. */
struct hr__tap_stripe {
    atomic_uint counts[2];
} __attribute__((aligned(64)));

enum hr__tap_phase { HR__TAP_OFF, HR__TAP_CHANGING, HR__TAP_ON };

struct hr__tap_state {
    struct hr__tap_table table;
    atomic_int phase;        /* enum hr__tap_phase; CHANGING: one thread is starting or stopping */
    atomic_int is_reporting; /* `to` may be called */
    atomic_uint turns;       /* lowest bit: which counter threads use now */
    struct hr_tap to;        /* written only while no thread reads it */
    struct hr__tap_stripe stripes[HR__TAP_STRIPES];
};

/* NULL: no block was ever seen. */
extern _Atomic(struct hr__tap_state *) hr__tap_here;

/* Non-zero while this thread notifies the listener: allocations then are the listener's own. */
extern __thread int hr__tap_inside __attribute__((tls_model("initial-exec")));

/* Returns 0 if no known block lives at the address. */
static inline int hr__tap_may_know(const void *address)
{
    struct hr__tap_state *state = atomic_load_explicit(&hr__tap_here, memory_order_acquire);
    return state && hr__tap_table_may_have(&state->table, (uintptr_t)address);
}

/* Reports a new block. Call after the allocator returned it and before another thread can
 * know it. */
void hr__tap_allocated(const void *address, uint64_t bytes, uint8_t device);

/* Reports the end of a block. Call before the allocator gets it back. Returns 1 if the block was
 * known, and fills *out (may be NULL); else 0. */
int hr__tap_freed(const void *address, struct hr__tap_entry *out);

void hr__tap_refused(uint64_t bytes, uint8_t device);

#endif
