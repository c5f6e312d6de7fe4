/*
 * Notifies a listener of allocations and frees; any thread may notify.
 *
 * A notifying thread increments a counter before it checks whether there is a listener, and
 * decrements it afterwards. hr_tap_end removes the listener and then waits for the counters. Both
 * are sequentially consistent, so a thread that still saw the listener was counted. No lock is
 * held during a notification.
 *
 * A free is reported before the block returns to the allocator, and an allocation after the block
 * came from it, so the reported lives of an address never overlap.
 */
#include "memory/tap/tap.h"

#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

_Atomic(struct hr__tap_state *) hr__tap_here;
__thread int hr__tap_inside __attribute__((tls_model("initial-exec")));

/* Returns the process's state; NULL: out of memory, or the kernel cannot wipe pages on fork. */
static struct hr__tap_state *state_of_process(void)
{
    struct hr__tap_state *state = atomic_load_explicit(&hr__tap_here, memory_order_acquire);
    if (state)
        return state;
    void *memory =
        mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (madvise(memory, sizeof *state, MADV_WIPEONFORK)) {
        munmap(memory, sizeof *state);
        return NULL;
    }
    if (atomic_compare_exchange_strong(&hr__tap_here, &state, memory))
        return memory;
    munmap(memory, sizeof *state);
    return state;
}

/* ---- notifying ---- */

/* One notification in progress. */
struct tap_call {
    atomic_uint *count;      /* counter that includes it */
    const struct hr_tap *to; /* NULL: no listener */
};

/* Threads are distinguished by the addresses of their thread-local variables. */
static struct tap_call enter(struct hr__tap_state *state)
{
    uint64_t mixed = (uint64_t)(uintptr_t)&hr__tap_inside * UINT64_C(0x9e3779b97f4a7c15);
    unsigned turn = atomic_load_explicit(&state->turns, memory_order_relaxed);
    struct tap_call call = {.count = &state->stripes[mixed >> 58].counts[turn & 1]};
    atomic_fetch_add(call.count, 1);
    hr__tap_inside++;
    if (atomic_load(&state->is_reporting))
        call.to = &state->to;
    return call;
}

static void leave(const struct tap_call *call)
{
    hr__tap_inside--;
    atomic_fetch_sub_explicit(call->count, 1, memory_order_release);
}

/* Returns whether to report the end of a block: not if its beginning could have been reported but
 * was not. */
static int is_known(const struct hr_tap *tap, const struct hr__tap_entry *entry)
{
    return tap && (entry->is_reported || !tap->present);
}

void hr__tap_allocated(const void *address, uint64_t bytes, uint8_t device)
{
    struct hr__tap_state *state = state_of_process();
    struct hr__tap_entry old;
    if (!state || !address || hr__tap_inside)
        return;
    struct tap_call call = enter(state);
    const struct hr_tap *tap = call.to;
    struct hr__tap_entry entry = {.address = (uintptr_t)address,
                                  .bytes = bytes,
                                  .device = device,
                                  .is_reported = tap != NULL};
    int code = hr__tap_table_put(&state->table, &entry, &old);
    /* The old block was freed in a way we do not see. */
    if (code == 1 && is_known(tap, &old))
        tap->freed(tap->arg, old.address, old.bytes, old.device);
    if (code >= 0 && tap)
        tap->allocated(tap->arg, entry.address, bytes, device);
    leave(&call);
}

int hr__tap_freed(const void *address, struct hr__tap_entry *out)
{
    struct hr__tap_state *state = atomic_load_explicit(&hr__tap_here, memory_order_acquire);
    struct hr__tap_entry entry;
    if (!state || hr__tap_inside)
        return 0;
    struct tap_call call = enter(state);
    const struct hr_tap *tap = call.to;
    int was_there = hr__tap_table_take(&state->table, (uintptr_t)address, &entry);
    if (was_there && is_known(tap, &entry))
        tap->freed(tap->arg, entry.address, entry.bytes, entry.device);
    leave(&call);
    if (was_there && out)
        *out = entry;
    return was_there;
}

void hr__tap_refused(uint64_t bytes, uint8_t device)
{
    struct hr__tap_state *state = atomic_load_explicit(&hr__tap_here, memory_order_acquire);
    if (!state || hr__tap_inside)
        return;
    struct tap_call call = enter(state);
    const struct hr_tap *tap = call.to;
    if (tap)
        tap->failed(tap->arg, bytes, device);
    leave(&call);
}

/* ---- listening ---- */

static void wait_for_kind(const struct hr__tap_state *state, unsigned kind)
{
    for (size_t i = 0; i < HR__TAP_STRIPES; i++)
        for (int tries = 0; atomic_load(&state->stripes[i].counts[kind]); tries++)
            if (tries < 100)
                sched_yield();
            else
                nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

/* Waits until each thread counted before now has left; `is_reporting` must have changed before.
 * Waits for both counters, one while new threads use the other: a thread may choose its counter
 * long before it increments it (as do readers of McKenney's sleepable RCU). */
static void wait_for_reporters(struct hr__tap_state *state)
{
    for (int i = 0; i < 2; i++)
        wait_for_kind(state, atomic_fetch_add(&state->turns, 1) & 1);
}

static void report_present(void *arg, struct hr__tap_entry *entry)
{
    const struct hr_tap *tap = arg;
    if (!entry->is_reported)
        tap->present(tap->arg, entry->address, entry->bytes, entry->device);
    entry->is_reported = 1;
}

static void forget_reported(void *arg, struct hr__tap_entry *entry)
{
    (void)arg;
    entry->is_reported = 0;
}

int hr_tap_begin(const struct hr_tap *tap)
{
    if (tap->version != HR_TAP_VERSION)
        return -ENOTSUP;
    struct hr__tap_state *state = state_of_process();
    int off = HR__TAP_OFF;
    if (!state)
        return -ENOMEM;
    if (!atomic_compare_exchange_strong(&state->phase, &off, HR__TAP_CHANGING))
        return -EBUSY;
    state->to = *tap;
    atomic_store(&state->is_reporting, 1);
    /* An earlier thread may silently remove blocks that must be reported here. */
    wait_for_reporters(state);
    /* Hold the lock of each shard in turn, so that no block is freed between being found and being
     * reported. Mark this thread as inside, so that its own allocations do not get back to the
     * table. */
    hr__tap_inside++;
    if (tap->present)
        hr__tap_table_each(&state->table, report_present, &state->to);
    hr__tap_inside--;
    atomic_store(&state->phase, HR__TAP_ON);
    return 0;
}

void hr_tap_end(void)
{
    struct hr__tap_state *state = atomic_load(&hr__tap_here);
    int on = HR__TAP_ON;
    if (!state || !atomic_compare_exchange_strong(&state->phase, &on, HR__TAP_CHANGING))
        return;
    atomic_store(&state->is_reporting, 0);
    wait_for_reporters(state);
    hr__tap_table_each(&state->table, forget_reported, NULL);
    atomic_store(&state->phase, HR__TAP_OFF);
}

uint64_t hr_tap_bytes(uint64_t address, uint8_t *device)
{
    struct hr__tap_state *state = atomic_load_explicit(&hr__tap_here, memory_order_acquire);
    struct hr__tap_entry entry;
    if (!state || hr__tap_inside || !hr__tap_table_find(&state->table, address, &entry))
        return 0;
    if (device)
        *device = entry.device;
    return entry.bytes;
}
