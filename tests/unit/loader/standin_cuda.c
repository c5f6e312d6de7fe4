/*
 * A stand-in for NVIDIA's driver: one device whose copies from host memory are performed late by a
 * thread, in order, as on a busy GPU.
 *
 * The driver's functions that the loader uses behave as NVIDIA's reference documents; functions for
 * the tests begin with standin_. A copy reads its source only when it is performed, so a slot that
 * is reused too early shows in the copied bytes.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define EXPORT     __attribute__((visibility("default")))
#define NOT_READY  600
#define CAPTURING  900
#define MAX_COPIES 4096
#define MAX_PINNED 64

struct copy {
    void *to;
    const void *from;
    size_t bytes; /* a multiple of 8 */
    long delay_ns;
};

struct event {
    uint64_t after; /* number of copies that must be performed */
};

static struct {
    pthread_mutex_t lock; /* guards all members */
    pthread_cond_t changed;
    pthread_t thread;
    int running;
    struct copy copies[MAX_COPIES];
    uint64_t enqueued, performed;
    int context_active, contexts_held;
    int capturing;
    int held; /* non-zero: no copy is performed */
    int recorded, events, queries;
    void *pinned[MAX_PINNED];
    int pinned_count;
    int unpinned_in_use; /* memory that was unlocked while a copy from it was pending */
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static char the_context;

/* Reads as a device does, not as a thread of the program: hidden from the race detector, because
 * one test reuses memory under a copy on purpose. */
__attribute__((no_sanitize("thread"))) static void transfer(const struct copy *copy)
{
    volatile uint64_t *to = copy->to;
    const volatile uint64_t *from = copy->from;
    size_t words = copy->bytes / sizeof *to;
    for (size_t i = 0; i < words; i++)
        to[i] = from[i];
}

static void *perform(void *arg)
{
    pthread_mutex_lock(&gpu.lock);
    for (;;) {
        while ((gpu.performed == gpu.enqueued || gpu.held) && gpu.running)
            pthread_cond_wait(&gpu.changed, &gpu.lock);
        if (gpu.performed == gpu.enqueued)
            break;
        struct copy copy = gpu.copies[gpu.performed % MAX_COPIES];
        pthread_mutex_unlock(&gpu.lock);
        nanosleep(&(struct timespec){.tv_nsec = copy.delay_ns}, NULL);
        transfer(&copy);
        pthread_mutex_lock(&gpu.lock);
        gpu.performed++;
        pthread_cond_broadcast(&gpu.changed);
    }
    pthread_mutex_unlock(&gpu.lock);
    return NULL;
}

#define LOCKED(statements)                                                                         \
    do {                                                                                           \
        pthread_mutex_lock(&gpu.lock);                                                             \
        statements;                                                                                \
        pthread_mutex_unlock(&gpu.lock);                                                           \
    } while (0)

EXPORT void standin_start(void);
EXPORT void standin_stop(void);
EXPORT void standin_copy(void *to, const void *from, size_t bytes, long delay_ns);
EXPORT void standin_synchronize(void);
EXPORT void standin_set_capturing(int capturing);
EXPORT void standin_set_held(int held);
EXPORT void standin_counts(int *recorded, int *events, int *pinned, int *unpinned_in_use,
                           int *contexts_held);

/* Makes the device's context active, as a framework's first use does. */
void standin_start(void)
{
    LOCKED(gpu.running = 1; gpu.context_active = 1);
    pthread_create(&gpu.thread, NULL, perform, NULL);
}

void standin_stop(void)
{
    LOCKED(gpu.running = 0; gpu.context_active = 0; pthread_cond_broadcast(&gpu.changed));
    pthread_join(gpu.thread, NULL);
}

void standin_copy(void *to, const void *from, size_t bytes, long delay_ns)
{
    pthread_mutex_lock(&gpu.lock);
    while (gpu.enqueued - gpu.performed == MAX_COPIES)
        pthread_cond_wait(&gpu.changed, &gpu.lock);
    gpu.copies[gpu.enqueued++ % MAX_COPIES] =
        (struct copy){.to = to, .from = from, .bytes = bytes, .delay_ns = delay_ns};
    pthread_cond_broadcast(&gpu.changed);
    pthread_mutex_unlock(&gpu.lock);
}

void standin_synchronize(void)
{
    pthread_mutex_lock(&gpu.lock);
    while (gpu.performed < gpu.enqueued)
        pthread_cond_wait(&gpu.changed, &gpu.lock);
    pthread_mutex_unlock(&gpu.lock);
}

void standin_set_capturing(int capturing)
{
    LOCKED(gpu.capturing = capturing);
}

void standin_set_held(int held)
{
    LOCKED(gpu.held = held; pthread_cond_broadcast(&gpu.changed));
}

void standin_counts(int *recorded, int *events, int *pinned, int *unpinned_in_use,
                    int *contexts_held)
{
    LOCKED(*recorded = gpu.recorded; *events = gpu.events; *pinned = gpu.pinned_count;
           *unpinned_in_use = gpu.unpinned_in_use; *contexts_held = gpu.contexts_held);
}

EXPORT int cuInit(unsigned flags);
EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuDeviceGet(int *device, int ordinal);
EXPORT int cuDeviceGetPCIBusId(char *out, int capacity, int device);
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device);
EXPORT int cuDevicePrimaryCtxRelease_v2(int device);
EXPORT int cuCtxPushCurrent_v2(void *context);
EXPORT int cuCtxPopCurrent_v2(void **context);
EXPORT int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags);
EXPORT int cuMemHostUnregister(void *memory);
EXPORT int cuEventCreate(void **event, unsigned flags);
EXPORT int cuEventQuery(void *event);
EXPORT int cuEventDestroy_v2(void *event);
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode);

static _Thread_local int current_depth;
static _Thread_local int capture_mode;

int cuInit(unsigned flags)
{
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = 100 + ordinal;
    return ordinal ? 101 : 0;
}

int cuDeviceGetPCIBusId(char *out, int capacity, int device)
{
    if (device != 100)
        return 101;
    snprintf(out, (size_t)capacity, "0000:3B:00.0");
    return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    if (device != 100)
        return 101;
    *flags = 0;
    LOCKED(*active = gpu.context_active);
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &the_context;
    LOCKED(gpu.context_active = 1; gpu.contexts_held++);
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    LOCKED(gpu.contexts_held--);
    return 0;
}

int cuCtxPushCurrent_v2(void *context)
{
    current_depth++;
    return context == &the_context ? 0 : 201;
}

int cuCtxPopCurrent_v2(void **context)
{
    *context = &the_context;
    return current_depth-- > 0 ? 0 : 201;
}

int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    int code = !current_depth || (uintptr_t)memory % 4096 ? 1 : 0;
    pthread_mutex_lock(&gpu.lock);
    if (!code && gpu.pinned_count == MAX_PINNED)
        code = 2;
    if (!code)
        gpu.pinned[gpu.pinned_count++] = memory;
    pthread_mutex_unlock(&gpu.lock);
    return code;
}

int cuMemHostUnregister(void *memory)
{
    int code = 713; /* not registered */
    pthread_mutex_lock(&gpu.lock);
    for (uint64_t i = gpu.performed; i < gpu.enqueued; i++)
        gpu.unpinned_in_use += gpu.copies[i % MAX_COPIES].from == memory;
    for (int i = 0; i < gpu.pinned_count && code; i++) {
        if (gpu.pinned[i] == memory) {
            gpu.pinned[i] = gpu.pinned[--gpu.pinned_count];
            code = 0;
        }
    }
    pthread_mutex_unlock(&gpu.lock);
    return code;
}

int cuEventCreate(void **event, unsigned flags)
{
    if (!current_depth)
        return 201;
    *event = calloc(1, sizeof(struct event));
    LOCKED(gpu.events++);
    return *event ? 0 : 2;
}

int cuEventQuery(void *event)
{
    int code;
    /* In the global mode, a query would invalidate a capture. */
    LOCKED(gpu.queries++; code = gpu.capturing && capture_mode != 2                ? CAPTURING
                                 : gpu.performed >= ((struct event *)event)->after ? 0
                                                                                   : NOT_READY);
    return code;
}

int cuEventDestroy_v2(void *event)
{
    free(event);
    LOCKED(gpu.events--);
    return 0;
}

/* Drivers before CUDA 12.5 have none of these functions. */
#ifndef STANDIN_OLD_DRIVER
EXPORT int cuCtxRecordEvent(void *context, void *event);

int cuCtxRecordEvent(void *context, void *event)
{
    int code;
    LOCKED(code = gpu.capturing ? CAPTURING : 0; if (!code) {
        ((struct event *)event)->after = gpu.enqueued;
        gpu.recorded++;
    });
    return code;
}
#endif

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return 0;
}
