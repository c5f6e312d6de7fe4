/*
 * The CUDA backend, on the driver API loaded with dlopen, and the backend that does nothing.
 *
 * A fence is one event per device, recorded over the device's whole primary context
 * (cuCtxRecordEvent, CUDA 12.5 and later), because we do not know on which streams a framework
 * copies. Prototypes follow NVIDIA's CUDA Driver API reference, version 12.5.
 *
 * All calls are made in the relaxed capture mode, so that our queries do not invalidate a CUDA
 * graph that another thread is capturing.
 */
#include "loader/accelerator.h"

#include "base/error.h"
#include "base/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    CUDA_SUCCESS = 0,
    CUDA_NOT_READY = 600,
    CUDA_CAPTURE_FIRST = 900, /* STREAM_CAPTURE_UNSUPPORTED and related errors */
    CUDA_CAPTURE_LAST = 908,
};

#define CUDA_HOST_REGISTER_PORTABLE 0x01u
#define CUDA_EVENT_DISABLE_TIMING   0x02u
#define CUDA_CAPTURE_MODE_RELAXED   2

struct driver {
    int (*init)(unsigned flags);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*primary_state)(int device, unsigned *flags, int *active);
    int (*primary_retain)(void **context, int device);
    int (*primary_release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*host_register)(void *memory, size_t bytes, unsigned flags);
    int (*host_unregister)(void *memory);
    int (*event_create)(void **event, unsigned flags);
    int (*event_query)(void *event);
    int (*event_destroy)(void *event);
    int (*context_record)(void *context, void *event);
    int (*exchange_capture_mode)(int *mode);
    /* Needed only to find the device's NUMA node; NULL if the driver lacks them. */
    int (*current_device)(int *device);
    int (*bus_id)(char *out, int capacity, int device);
};

struct cuda {
    struct driver driver;
    int devices;                 /* of the host, at most HR__MAX_DEVICES */
    int device[HR__MAX_DEVICES]; /* the driver's handles */
    pthread_mutex_t lock;        /* guards context[] */
    /* Primary contexts that were seen in use; retained. */
    void *context[HR__MAX_DEVICES];
};

static const struct accelerator_symbol {
    const char *name;
    size_t offset;
    int is_optional;
} symbols[] = {
    {"cuInit", offsetof(struct driver, init), 0},
    {"cuDeviceGetCount", offsetof(struct driver, device_count), 0},
    {"cuDeviceGet", offsetof(struct driver, device_get), 0},
    {"cuDevicePrimaryCtxGetState", offsetof(struct driver, primary_state), 0},
    {"cuDevicePrimaryCtxRetain", offsetof(struct driver, primary_retain), 0},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(struct driver, primary_release), 0},
    {"cuCtxPushCurrent_v2", offsetof(struct driver, push), 0},
    {"cuCtxPopCurrent_v2", offsetof(struct driver, pop), 0},
    {"cuMemHostRegister_v2", offsetof(struct driver, host_register), 0},
    {"cuMemHostUnregister", offsetof(struct driver, host_unregister), 0},
    {"cuEventCreate", offsetof(struct driver, event_create), 0},
    {"cuEventQuery", offsetof(struct driver, event_query), 0},
    {"cuEventDestroy_v2", offsetof(struct driver, event_destroy), 0},
    {"cuCtxRecordEvent", offsetof(struct driver, context_record), 0},
    {"cuThreadExchangeStreamCaptureMode", offsetof(struct driver, exchange_capture_mode), 0},
    {"cuCtxGetDevice", offsetof(struct driver, current_device), 1},
    {"cuDeviceGetPCIBusId", offsetof(struct driver, bus_id), 1},
};

static int load(struct driver *driver, struct hr_error *error)
{
    const char *path = secure_getenv("HEADRACE_CUDA_LIBRARY");
    if (!path || !*path)
        path = "libcuda.so.1";
    /* Never closed, because the driver has threads of its own. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return hr__fail(error, -ENOTSUP,
                        "no CUDA driver (%s): pinned batches need an NVIDIA GPU and its driver; "
                        "leave `pinned` off",
                        dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address && !symbols[i].is_optional)
            return hr__fail(error, -ENOTSUP,
                            "the CUDA driver (%s) has no %s: pinned batches need a driver for "
                            "CUDA 12.5 or later; update it or leave `pinned` off",
                            path, symbols[i].name);
        memcpy((char *)driver + symbols[i].offset, &address, sizeof address);
    }
    return 0;
}

/* Enters the relaxed capture mode. Pass the result to leave(). */
static int enter(const struct cuda *cuda)
{
    int mode = CUDA_CAPTURE_MODE_RELAXED;
    cuda->driver.exchange_capture_mode(&mode);
    return mode;
}

static void leave(const struct cuda *cuda, int mode)
{
    cuda->driver.exchange_capture_mode(&mode);
}

/* Returns the primary context of device d if it is in use (or `make`), else NULL. The context is
 * retained, so that it outlives our events in it. */
static void *context_of(struct cuda *cuda, int d, int make)
{
    unsigned flags;
    int active = 0;
    pthread_mutex_lock(&cuda->lock);
    if (!cuda->context[d] &&
        (make || (!cuda->driver.primary_state(cuda->device[d], &flags, &active) && active)) &&
        cuda->driver.primary_retain(&cuda->context[d], cuda->device[d]))
        cuda->context[d] = NULL;
    void *context = cuda->context[d];
    pthread_mutex_unlock(&cuda->lock);
    return context;
}

/* Returns a context in which to lock memory. It does not create one if there are several devices:
 * a process of a multi-GPU job that has not chosen its device yet must not use memory of the
 * first. */
static void *any_context(struct cuda *cuda)
{
    for (int d = 0; d < cuda->devices; d++) {
        void *context = context_of(cuda, d, 0);
        if (context)
            return context;
    }
    return cuda->devices == 1 ? context_of(cuda, 0, 1) : NULL;
}

static void cuda_close(void *state)
{
    struct cuda *cuda = state;
    if (!cuda)
        return;
    for (int d = 0; d < cuda->devices; d++)
        if (cuda->context[d])
            cuda->driver.primary_release(cuda->device[d]);
    pthread_mutex_destroy(&cuda->lock);
    hr__free(cuda);
}

static int cuda_open(void **state, struct hr_error *error)
{
    *state = NULL;
    struct cuda *cuda = hr__alloc(HR__TAG_LOADER, 1, sizeof *cuda);
    if (!cuda)
        return hr__fail(error, -ENOMEM, "out of memory for the CUDA backend");
    pthread_mutex_init(&cuda->lock, NULL);
    int r = load(&cuda->driver, error);
    if (r)
        goto fail;
    int code = cuda->driver.init(0);
    if (!code)
        code = cuda->driver.device_count(&cuda->devices);
    if (cuda->devices > HR__MAX_DEVICES)
        cuda->devices = HR__MAX_DEVICES;
    for (int d = 0; d < cuda->devices && !code; d++)
        code = cuda->driver.device_get(&cuda->device[d], d);
    if (code || !cuda->devices) {
        r = hr__fail(error, -ENOTSUP,
                     "no CUDA device can be used (driver error %d): leave `pinned` off", code);
        cuda->devices = 0;
        goto fail;
    }
    int mode = enter(cuda);
    void *context = any_context(cuda);
    leave(cuda, mode);
    if (!context) {
        r = hr__fail(error, -ENOTSUP,
                     "%d GPUs and none of them in use by this process yet: choose and use the "
                     "device before making a pinned loader",
                     cuda->devices);
        goto fail;
    }
    *state = cuda;
    return 0;
fail:
    cuda_close(cuda);
    return r;
}

static int cuda_lock(void *state, void *memory, size_t bytes, struct hr_error *error)
{
    struct cuda *cuda = state;
    void *context = any_context(cuda);
    int mode = enter(cuda);
    int code = context ? cuda->driver.push(context) : 201;
    if (!code) {
        code = cuda->driver.host_register(memory, bytes, CUDA_HOST_REGISTER_PORTABLE);
        cuda->driver.pop(&context);
    }
    leave(cuda, mode);
    if (code)
        return hr__fail(error, code == 2 ? -ENOMEM : -ENOTSUP,
                        "cannot page-lock a batch of %zu bytes (cuMemHostRegister: error %d): "
                        "leave `pinned` off, or raise the locked-memory limit",
                        bytes, code);
    return 0;
}

static void cuda_unlock(void *state, void *memory)
{
    struct cuda *cuda = state;
    void *context = any_context(cuda);
    int mode = enter(cuda);
    if (context && !cuda->driver.push(context)) {
        cuda->driver.host_unregister(memory);
        cuda->driver.pop(&context);
    }
    leave(cuda, mode);
}

static int cuda_bus_id(void *state, char *out, int capacity)
{
    struct cuda *cuda = state;
    int device, known = 0;
    if (!cuda->driver.bus_id)
        return 0;
    int mode = enter(cuda);
    if (cuda->driver.current_device && !cuda->driver.current_device(&device))
        known = 1;
    for (int d = 0; d < cuda->devices && !known; d++)
        if (context_of(cuda, d, 0)) {
            device = cuda->device[d];
            known = 1;
        }
    known = known && !cuda->driver.bus_id(out, capacity, device);
    leave(cuda, mode);
    return known;
}

/* Records one device's part of a fence. Returns a driver error. */
static int record_device(struct cuda *cuda, void *context, void **event)
{
    int code = 0;
    if (!*event) {
        code = cuda->driver.push(context);
        if (code)
            return code;
        code = cuda->driver.event_create(event, CUDA_EVENT_DISABLE_TIMING);
        void *popped;
        cuda->driver.pop(&popped);
        if (code) {
            *event = NULL;
            return code;
        }
    }
    return cuda->driver.context_record(context, *event);
}

static int cuda_record(void *state, struct hr__fence *fence)
{
    struct cuda *cuda = state;
    int mode = enter(cuda);
    int r = 0;
    fence->waiting = 0;
    for (int d = 0; d < cuda->devices && !r; d++) {
        void *context = context_of(cuda, d, 0);
        int code = context ? record_device(cuda, context, &fence->event[d]) : CUDA_SUCCESS;
        if (context && code == CUDA_SUCCESS)
            fence->waiting |= UINT32_C(1) << d;
        else if (code == 2 || (code >= CUDA_CAPTURE_FIRST && code <= CUDA_CAPTURE_LAST))
            r = -EBUSY;
        /* After any other error the driver is shut down or the context is lost, and all copies with
         * it. */
    }
    leave(cuda, mode);
    return r;
}

static int cuda_done(void *state, struct hr__fence *fence)
{
    struct cuda *cuda = state;
    if (!fence->waiting)
        return 1;
    int mode = enter(cuda);
    for (int d = 0; d < cuda->devices; d++) {
        if (!(fence->waiting & UINT32_C(1) << d))
            continue;
        int code = cuda->driver.event_query(fence->event[d]);
        if (code == CUDA_NOT_READY || (code >= CUDA_CAPTURE_FIRST && code <= CUDA_CAPTURE_LAST))
            break;
        fence->waiting &= ~(UINT32_C(1) << d);
    }
    leave(cuda, mode);
    return !fence->waiting;
}

static void cuda_forget(void *state, struct hr__fence *fence)
{
    struct cuda *cuda = state;
    int mode = enter(cuda);
    for (int d = 0; d < cuda->devices; d++)
        if (fence->event[d])
            cuda->driver.event_destroy(fence->event[d]);
    leave(cuda, mode);
    memset(fence, 0, sizeof *fence);
}

const struct hr__accelerator hr__accelerator_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .lock = cuda_lock,
    .unlock = cuda_unlock,
    .bus_id = cuda_bus_id,
    .record = cuda_record,
    .done = cuda_done,
    .forget = cuda_forget,
};

static int none_open(void **state, struct hr_error *error)
{
    *state = NULL;
    return 0;
}

static void none_close(void *state)
{
}

static int none_lock(void *state, void *memory, size_t bytes, struct hr_error *error)
{
    return 0;
}

static void none_unlock(void *state, void *memory)
{
}

static int none_bus_id(void *state, char *out, int capacity)
{
    return 0;
}

static int none_record(void *state, struct hr__fence *fence)
{
    return 0;
}

static int none_done(void *state, struct hr__fence *fence)
{
    return 1;
}

static void none_forget(void *state, struct hr__fence *fence)
{
}

const struct hr__accelerator hr__accelerator_none = {
    .name = "none",
    .open = none_open,
    .close = none_close,
    .lock = none_lock,
    .unlock = none_unlock,
    .bus_id = none_bus_id,
    .record = none_record,
    .done = none_done,
    .forget = none_forget,
};
