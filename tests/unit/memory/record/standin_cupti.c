/*
 * A stand-in for NVIDIA's CUPTI and the part of the driver that is used with it.
 *
 * It makes activity records with the sizes and layouts of CUDA 12.9 (CUpti_ActivityKernel9,
 * Memcpy6, MemcpyPtoP4, Memset4, GraphTrace2, ExternalCorrelation, API) and delivers them in
 * buffers that it requests, as the reference documents: the record of an API call contains the
 * external id that its thread has pushed, the record of work the number of its API call. Functions
 * that begin with standin_ let a test choose when buffers are full, the order of records, which
 * records are dropped, and the clock. Built with STANDIN_OLD, it has no function to register a
 * clock and no flush period.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define EXPORT  __attribute__((visibility("default")))
#define KINDS   6 /* of external ids */
#define DEPTH   32
#define LATER   4096
#define BUFFERS 128

enum { MEMCPY = 1, MEMSET = 2, RUNTIME = 5, KERNEL = 10, MEMCPY2 = 22, EXTERNAL = 39, GRAPH = 51 };

struct work {
    int kind;
    uint32_t correlation, device;
    uint64_t begin, end;
};

struct buffer {
    uint8_t *bytes;
    size_t size, used;
};

static struct {
    pthread_mutex_t lock; /* guards all members */
    void (*requested)(uint8_t **, size_t *, size_t *);
    void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t);
    uint64_t (*clock)(void);
    struct buffer now;
    struct buffer held[BUFFERS]; /* full ones that were not delivered yet */
    int held_count, is_holding;
    size_t limit; /* bytes of a buffer that are used; 0: all */
    struct work later[LATER];
    int later_count;
    uint32_t correlation;
    size_t dropped;
    int subscribers, other_subscriber, enable_result, refused_kind;
    uint64_t enabled; /* bits of kinds */
    uint32_t version;
    int64_t clock_ahead;
    double clock_rate;
    int waits; /* for the device */
} cupti = {.lock = PTHREAD_MUTEX_INITIALIZER, .version = 28, .clock_rate = 1};

static _Thread_local struct {
    uint64_t ids[DEPTH];
    int count;
} ids[KINDS];

static uint64_t monotonic(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t to_clock(uint64_t ns)
{
    return cupti.clock ? ns
                       : (uint64_t)((double)ns * cupti.clock_rate) + (uint64_t)cupti.clock_ahead;
}

static size_t size_of(uint32_t kind)
{
    switch (kind) {
    case MEMCPY:
    case MEMCPY2:
        return 96;
    case MEMSET:
        return 88;
    case RUNTIME:
        return 40;
    case KERNEL:
        return 208;
    case EXTERNAL:
        return 24;
    case GRAPH:
        return 56;
    default:
        return 0;
    }
}

/* ---- buffers ---- */

/* Delivers full buffers, without the lock, because callbacks come from no thread of the program. */
static void hand_over(struct buffer buffer)
{
    if (buffer.bytes)
        cupti.completed(NULL, 0, buffer.bytes, buffer.size, buffer.used);
}

/* Replaces the full buffer and returns it; empty: it is held. */
static struct buffer turn_locked(void)
{
    struct buffer full = cupti.now;
    size_t records;
    cupti.now = (struct buffer){NULL, 0, 0};
    if (cupti.requested)
        cupti.requested(&cupti.now.bytes, &cupti.now.size, &records);
    if (cupti.is_holding && full.bytes && cupti.held_count < BUFFERS) {
        cupti.held[cupti.held_count++] = full;
        full = (struct buffer){NULL, 0, 0};
    }
    return full;
}

static void put(const void *record, size_t bytes)
{
    struct buffer full = {NULL, 0, 0};
    pthread_mutex_lock(&cupti.lock);
    size_t room = cupti.limit && cupti.limit < cupti.now.size ? cupti.limit : cupti.now.size;
    if (!cupti.now.bytes || cupti.now.used + bytes > room)
        full = turn_locked();
    if (cupti.now.bytes) {
        memcpy(cupti.now.bytes + cupti.now.used, record, bytes);
        cupti.now.used += bytes;
    } else {
        cupti.dropped++;
    }
    pthread_mutex_unlock(&cupti.lock);
    hand_over(full);
}

static void set(uint8_t *record, size_t offset, uint64_t value, size_t bytes)
{
    memcpy(record + offset, &value, bytes);
}

static void put_work(const struct work *w)
{
    uint8_t record[208];
    memset(record, 0xa5, sizeof record); /* unset members are not zero */
    set(record, 0, (uint64_t)w->kind, 4);
    int is_graph = w->kind == GRAPH;
    set(record, is_graph ? 8 : 16, w->begin ? to_clock(w->begin) : 0, 8);
    set(record, is_graph ? 16 : 24, w->end ? to_clock(w->end) : 0, 8);
    set(record, is_graph ? 24 : w->kind == KERNEL ? 40 : 32, w->device, 4);
    size_t at = is_graph ? 4 : w->kind == KERNEL ? 92 : w->kind == MEMCPY2 ? 60 : 44;
    set(record, at, w->correlation, 4);
    put(record, size_of((uint32_t)w->kind));
}

/* ---- for tests ---- */

/* Makes an API call in this thread; returns its number. */
EXPORT uint32_t standin_api(void);
EXPORT uint32_t standin_api(void)
{
    uint8_t record[40] = {0};
    uint32_t correlation = __atomic_add_fetch(&cupti.correlation, 1, __ATOMIC_RELAXED);
    for (int kind = 0; kind < KINDS; kind++) {
        if (!ids[kind].count)
            continue;
        set(record, 0, EXTERNAL, 4);
        set(record, 4, (uint64_t)kind, 4);
        set(record, 8, ids[kind].ids[ids[kind].count - 1], 8);
        set(record, 16, correlation, 8);
        put(record, 24);
    }
    set(record, 0, RUNTIME, 4);
    set(record, 32, correlation, 4);
    put(record, 40);
    return correlation;
}

/* Work of an API call, on device `device` from 0; times by the monotonic clock. */
EXPORT void standin_work(int kind, uint32_t correlation, uint32_t device, uint64_t begin,
                         uint64_t end);
EXPORT void standin_work(int kind, uint32_t correlation, uint32_t device, uint64_t begin,
                         uint64_t end)
{
    struct work work = {kind, correlation, device, begin, end};
    put_work(&work);
}

/* The same, but it ends only when the program waits for the device. */
EXPORT void standin_later(uint32_t correlation, uint64_t begin, uint64_t end);
EXPORT void standin_later(uint32_t correlation, uint64_t begin, uint64_t end)
{
    cupti.later[cupti.later_count++] = (struct work){KERNEL, correlation, 0, begin, end};
}

/* Delivers all buffers; held ones from the last to the first. */
EXPORT void standin_turn(void);
EXPORT void standin_turn(void)
{
    pthread_mutex_lock(&cupti.lock);
    struct buffer full = cupti.now;
    cupti.now = (struct buffer){NULL, 0, 0};
    pthread_mutex_unlock(&cupti.lock);
    hand_over(full);
    while (cupti.held_count)
        hand_over(cupti.held[--cupti.held_count]);
}

EXPORT void standin_hold(int is_holding, size_t limit);
EXPORT void standin_hold(int is_holding, size_t limit)
{
    cupti.is_holding = is_holding;
    cupti.limit = limit;
}

EXPORT void standin_set(int other_subscriber, int enable_result, int refused_kind,
                        uint32_t version);
EXPORT void standin_set(int other_subscriber, int enable_result, int refused_kind, uint32_t version)
{
    cupti.other_subscriber = other_subscriber;
    cupti.enable_result = enable_result;
    cupti.refused_kind = refused_kind;
    cupti.version = version;
}

EXPORT void standin_clock(int64_t ahead_ns, double rate);
EXPORT void standin_clock(int64_t ahead_ns, double rate)
{
    cupti.clock_ahead = ahead_ns;
    cupti.clock_rate = rate;
}

/* Returns the number of subscribers, enabled kinds, ids pushed by this thread, and waits for the
 * device. */
EXPORT void standin_state(int *subscribers, int *enabled, int *pushed, int *waits);
EXPORT void standin_state(int *subscribers, int *enabled, int *pushed, int *waits)
{
    *subscribers = cupti.subscribers;
    *enabled = __builtin_popcountll(cupti.enabled);
    *pushed = 0;
    for (int i = 0; i < KINDS; i++)
        *pushed += ids[i].count;
    *waits = cupti.waits;
}

/* ---- CUPTI ---- */

EXPORT int cuptiGetVersion(uint32_t *version);
EXPORT int cuptiGetVersion(uint32_t *version)
{
    *version = cupti.version;
    return 0;
}

EXPORT int cuptiGetResultString(int result, const char **text);
EXPORT int cuptiGetResultString(int result, const char **text)
{
    *text = result == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_UNKNOWN";
    return 0;
}

EXPORT int cuptiSubscribe(void **subscriber, void (*callback)(void), void *data);
EXPORT int cuptiSubscribe(void **subscriber, void (*callback)(void), void *data)
{
    if (cupti.other_subscriber || cupti.subscribers)
        return 39;
    cupti.subscribers++;
    *subscriber = &cupti;
    return 0;
}

EXPORT int cuptiUnsubscribe(void *subscriber);
EXPORT int cuptiUnsubscribe(void *subscriber)
{
    cupti.subscribers--;
    cupti.clock = NULL;
    return subscriber != &cupti;
}

EXPORT int cuptiActivityRegisterCallbacks(void (*requested)(uint8_t **, size_t *, size_t *),
                                          void (*completed)(void *, uint32_t, uint8_t *, size_t,
                                                            size_t));
EXPORT int cuptiActivityRegisterCallbacks(void (*requested)(uint8_t **, size_t *, size_t *),
                                          void (*completed)(void *, uint32_t, uint8_t *, size_t,
                                                            size_t))
{
    cupti.requested = requested;
    cupti.completed = completed;
    return 0;
}

EXPORT int cuptiActivityEnable(int kind);
EXPORT int cuptiActivityEnable(int kind)
{
    if (cupti.enable_result && kind == cupti.refused_kind)
        return cupti.enable_result;
    cupti.enabled |= UINT64_C(1) << kind;
    return 0;
}

EXPORT int cuptiActivityDisable(int kind);
EXPORT int cuptiActivityDisable(int kind)
{
    cupti.enabled &= ~(UINT64_C(1) << kind);
    return 0;
}

EXPORT int cuptiActivityFlushAll(uint32_t flags);
EXPORT int cuptiActivityFlushAll(uint32_t flags)
{
    standin_turn();
    return 0;
}

EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, void **record);
EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, void **record)
{
    uint8_t *last = *record;
    uint32_t kind;
    size_t at = 0;
    if (last) {
        memcpy(&kind, last, sizeof kind);
        at = (size_t)(last - buffer) + size_of(kind);
    }
    if (at >= bytes)
        return 12; /* MAX_LIMIT_REACHED */
    *record = buffer + at;
    return 0;
}

EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count);
EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
    pthread_mutex_lock(&cupti.lock);
    *count = cupti.dropped;
    cupti.dropped = 0;
    pthread_mutex_unlock(&cupti.lock);
    return 0;
}

EXPORT int cuptiActivityPushExternalCorrelationId(int kind, uint64_t id);
EXPORT int cuptiActivityPushExternalCorrelationId(int kind, uint64_t id)
{
    if (kind <= 0 || kind >= KINDS || ids[kind].count == DEPTH)
        return 1;
    ids[kind].ids[ids[kind].count++] = id;
    return 0;
}

EXPORT int cuptiActivityPopExternalCorrelationId(int kind, uint64_t *last);
EXPORT int cuptiActivityPopExternalCorrelationId(int kind, uint64_t *last)
{
    if (kind <= 0 || kind >= KINDS)
        return 1;
    if (!ids[kind].count)
        return 18; /* QUEUE_EMPTY */
    *last = ids[kind].ids[--ids[kind].count];
    return 0;
}

EXPORT int cuptiGetTimestamp(uint64_t *ns);
EXPORT int cuptiGetTimestamp(uint64_t *ns)
{
    *ns = to_clock(monotonic());
    return 0;
}

#ifndef STANDIN_OLD
EXPORT int cuptiActivityFlushPeriod(uint32_t ms);
EXPORT int cuptiActivityFlushPeriod(uint32_t ms)
{
    return 0;
}

EXPORT int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void));
EXPORT int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void))
{
    cupti.clock = clock;
    return 0;
}
#endif

/* ---- the driver: one device ---- */

EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}

EXPORT int cuDeviceGet(int *device, int ordinal);
EXPORT int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal + 70;
    return ordinal ? 101 : 0;
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active);
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active)
{
    *flags = 0;
    *is_active = 1;
    return device == 70 ? 0 : 101;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device);
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &cupti;
    return 0;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device);
EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
    return 0;
}

EXPORT int cuCtxPushCurrent_v2(void *context);
EXPORT int cuCtxPushCurrent_v2(void *context)
{
    return context != &cupti;
}

EXPORT int cuCtxPopCurrent_v2(void **context);
EXPORT int cuCtxPopCurrent_v2(void **context)
{
    return 0;
}

EXPORT int cuCtxSynchronize(void);
EXPORT int cuCtxSynchronize(void)
{
    for (int i = 0; i < cupti.later_count; i++)
        put_work(&cupti.later[i]);
    cupti.later_count = 0;
    cupti.waits++;
    return 0;
}
