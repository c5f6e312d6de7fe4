/*
 * Records allocations that the allocators report, for headrace._core.MemoryRecorder, through the
 * tap (headrace/tap.h) if its library is loaded in the process.
 *
 * The callbacks may run on any thread, inside malloc, so they only record. A forked child never
 * ends the tap: there it is off already, and the recorder records nothing.
 */
#include "memory_inside.h"

#include <headrace/tap.h>

#include <dlfcn.h>
#include <errno.h>

struct memory_tap {
    int (*begin)(const struct hr_tap *tap);
    void (*end)(void);
    uint64_t (*bytes)(uint64_t address, uint8_t *device);
    _Atomic uint64_t failures;
};

static void on_allocated(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    struct memory *m = arg;
    struct hr_memory_event event = {
        .address = address, .bytes = bytes, .kind = HR_MEMORY_ALLOC, .device = device};
    if (atomic_load_explicit(&m->op_thread, memory_order_relaxed) == (uintptr_t)pthread_self())
        event.what = atomic_load_explicit(&m->alloc_stack, memory_order_relaxed);
    memory_record(m, event);
}

static void on_freed(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    memory_record(
        arg, (struct hr_memory_event){
                 .address = address, .bytes = bytes, .kind = HR_MEMORY_FREE, .device = device});
}

/* Reports a block that is allocated already when reports begin. */
static void on_present(void *arg, uint64_t address, uint64_t bytes, uint8_t device)
{
    memory_record(
        arg, (struct hr_memory_event){
                 .address = address, .bytes = bytes, .kind = HR_MEMORY_PRESENT, .device = device});
}

static void on_failed(void *arg, uint64_t bytes, uint8_t device)
{
    struct memory *m = arg;
    memory_record(
        m, (struct hr_memory_event){.bytes = bytes, .kind = HR_MEMORY_FAILED, .device = device});
    atomic_fetch_add(&m->tap->failures, 1);
}

int memory_tap_begin(struct memory *m)
{
    struct memory_tap *tap = PyMem_Calloc(1, sizeof *tap);
    if (!tap) {
        PyErr_NoMemory();
        return -1;
    }
    /* The casts avoid converting dlsym's object pointer to a function pointer. */
    *(void **)&tap->begin = dlsym(RTLD_DEFAULT, "hr_tap_begin");
    *(void **)&tap->end = dlsym(RTLD_DEFAULT, "hr_tap_end");
    *(void **)&tap->bytes = dlsym(RTLD_DEFAULT, "hr_tap_bytes");
    int (*sees_host)(void);
    *(void **)&sees_host = dlsym(RTLD_DEFAULT, "hr_tap_sees_host");
    if (!tap->begin || !tap->end || !tap->bytes || !sees_host) {
        PyMem_Free(tap);
        return 0;
    }
    const struct hr_tap callbacks = {
        .version = HR_TAP_VERSION,
        .arg = m,
        .allocated = on_allocated,
        .freed = on_freed,
        .failed = on_failed,
        .present = on_present,
    };
    m->tap = tap;
    int r = tap->begin(&callbacks);
    if (r) {
        m->tap = NULL;
        PyMem_Free(tap);
        if (r == -EBUSY)
            PyErr_SetString(PyExc_RuntimeError,
                            "another recorder in this process follows the allocators "
                            "(HEADRACE_TAP_RECORD, or a library's own): end that one first");
        return r == -EBUSY ? -1 : 0;
    }
    return sees_host() ? 1 : 0;
}

void memory_tap_end(struct memory *m)
{
    if (!m->tap)
        return;
    m->tap->end();
    PyMem_Free(m->tap);
    m->tap = NULL;
}

uint64_t memory_tap_bytes(const struct memory *m, uint64_t address, uint8_t *device)
{
    uint8_t of = 0;
    uint64_t bytes = m->tap ? m->tap->bytes(address, &of) : 0;
    /* A library's block may hold a tensor's storage (from_numpy): it is recorded as a storage. */
    if (!bytes || of == HR_MEMORY_LIBRARIES)
        return 0;
    *device = of;
    return bytes;
}

uint64_t memory_tap_failures(const struct memory *m)
{
    return m->tap ? atomic_load(&m->tap->failures) : 0;
}
