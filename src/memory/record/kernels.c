/*
 * Joins the work of CUDA devices to the operator calls that requested it.
 *
 *   call -> external id     an operator call pushes its number to CUPTI while it runs
 *   external id -> API call CUPTI records both when the thread calls CUDA
 *   API call -> work        kernels, copies and graphs carry that call's correlation id
 *
 * CUPTI delivers these as records in buffers, in no particular order and on its own thread.
 * Correlation ids increase, so tables indexed by their low bits join them in constant time and
 * bounded memory: entries a whole table older are forgotten. The times of a call are written after
 * a buffer was read. If a call's work is spread over several buffers, it is written in parts, which
 * the reader of the record joins.
 *
 * CUPTI's callbacks take no argument of ours, and a process has only one CUPTI. So a global points
 * to the current object. Its lock is never held while calling CUPTI, since CUPTI may call us while
 * holding its own locks. Lock order: join before the recorder's.
 */
#include "memory/record/cupti.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "memory/record/recorder.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define BUFFER_BYTES (1u << 20)
#define BUFFERS_MOST 64 /* at a time; beyond, CUPTI drops records and counts them */
#define FLUSH_MS     1000
#define ASKED        (1u << 16) /* API calls remembered */
#define WAITING      (1u << 14) /* work items whose API call is not known yet */
#define CALLS        (1u << 16) /* operator calls whose outer call is remembered */
#define DONE         4096u      /* calls whose times are being collected */
#define NESTED_MOST  16
#define BATCH        128

/* The relevant part of a CUPTI record. */
struct piece {
    uint32_t correlation;
    uint32_t device; /* as in events; 0: links an operator call to this API call */
    uint32_t call;
    uint64_t begin_ns, end_ns; /* on the recorder's clock */
};

/* Two clocks read at the same moment. */
struct moment {
    uint64_t cupti_ns, our_ns;
};

struct hr_memory_kernels {
    struct hr__cupti cupti;
    struct hr_memory_recorder *recorder;
    uint64_t start_ns; /* of the recording */
    uint32_t number;   /* of this object in the process, to ignore ids of others */
    void *subscriber;
    pthread_key_t calling; /* number of the call that a thread is in */
    int has_calling, has_clock;
    _Atomic uint64_t outer[CALLS]; /* by call: call << 32 | enclosing call */
    atomic_int buffers;            /* number that CUPTI has */
    _Atomic uint64_t dropped;
    atomic_int saw_graph;
    int users; /* running callbacks; guarded by `following` */

    pthread_mutex_t join; /* guards the members below */
    struct {
        uint32_t correlation, call;
    } asked[ASKED];
    struct piece waiting[WAITING];
    struct hr_memory_ran done[DONE]; /* by call and device; device 0: empty */
    struct hr_memory_ran batch[BATCH];
    size_t batched;
    struct moment before; /* last measured, if the clocks differ */
};

/* The object that receives CUPTI's callbacks. */
static struct {
    pthread_mutex_t lock; /* guards all members; never held while calling CUPTI */
    pthread_cond_t left;  /* signalled when a callback ends */
    struct hr_memory_kernels *kernels;
    uint32_t made;
} following = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = PTHREAD_COND_INITIALIZER};

static const struct hr__cupti_layout layouts[] = HR__CUPTI_LAYOUTS;

/* In the order of enabling. Some versions lack GRAPH_TRACE. */
static const int kinds[] = {HR__CUPTI_EXTERNAL, HR__CUPTI_RUNTIME, HR__CUPTI_DRIVER,
                            HR__CUPTI_KERNEL,   HR__CUPTI_MEMCPY,  HR__CUPTI_MEMCPY2,
                            HR__CUPTI_MEMSET,   HR__CUPTI_GRAPH};

#define KINDS (sizeof kinds / sizeof *kinds)

/* ---- joining ---- */

static void write_batch_locked(struct hr_memory_kernels *k)
{
    hr_memory_record_ran(k->recorder, k->batch, k->batched);
    k->batched = 0;
}

static void write_one_locked(struct hr_memory_kernels *k, struct hr_memory_ran *ran)
{
    k->batch[k->batched++] = *ran;
    ran->device = 0;
    if (k->batched == BATCH)
        write_batch_locked(k);
}

static void write_all_locked(struct hr_memory_kernels *k)
{
    for (size_t i = 0; i < DONE; i++)
        if (k->done[i].device)
            write_one_locked(k, &k->done[i]);
    write_batch_locked(k);
}

/* Adds a work item to a call. */
static void add_locked(struct hr_memory_kernels *k, uint32_t call, const struct piece *piece)
{
    struct hr_memory_ran *ran = &k->done[(call + piece->device * 1021) % DONE];
    if (ran->device && (ran->call != call || ran->device != piece->device))
        write_one_locked(k, ran);
    if (!ran->device)
        *ran = (struct hr_memory_ran){piece->begin_ns, piece->end_ns, call, piece->device};
    ran->begin_ns = piece->begin_ns < ran->begin_ns ? piece->begin_ns : ran->begin_ns;
    ran->end_ns = piece->end_ns > ran->end_ns ? piece->end_ns : ran->end_ns;
}

/* Adds it to the call and to the calls around it. */
static void join_locked(struct hr_memory_kernels *k, uint32_t call, const struct piece *piece)
{
    for (int depth = 0; depth < NESTED_MOST; depth++) {
        add_locked(k, call, piece);
        uint64_t outer = atomic_load_explicit(&k->outer[call % CALLS], memory_order_relaxed);
        if (outer >> 32 != call || !(uint32_t)outer)
            return;
        call = (uint32_t)outer;
    }
}

static void take_piece_locked(struct hr_memory_kernels *k, const struct piece *piece)
{
    struct piece *waiting = &k->waiting[piece->correlation % WAITING];
    uint32_t i = piece->correlation % ASKED;
    if (!piece->device) {
        k->asked[i].correlation = piece->correlation;
        k->asked[i].call = piece->call;
        if (waiting->device && waiting->correlation == piece->correlation) {
            join_locked(k, piece->call, waiting);
            waiting->device = 0;
        }
    } else if (k->asked[i].correlation == piece->correlation) {
        join_locked(k, k->asked[i].call, piece);
    } else if (waiting->device == piece->device && waiting->correlation == piece->correlation) {
        waiting->end_ns = piece->end_ns > waiting->end_ns ? piece->end_ns : waiting->end_ns;
        waiting->begin_ns =
            piece->begin_ns < waiting->begin_ns ? piece->begin_ns : waiting->begin_ns;
    } else {
        *waiting = *piece;
    }
}

/* ---- records ---- */

static uint32_t u32_at(const void *record, size_t offset)
{
    uint32_t value;
    memcpy(&value, (const char *)record + offset, sizeof value);
    return value;
}

static uint64_t u64_at(const void *record, size_t offset)
{
    uint64_t value;
    memcpy(&value, (const char *)record + offset, sizeof value);
    return value;
}

/* Converts CUPTI's clock to the recorder's, linearly between two moments. */
static uint64_t our_time(const struct hr_memory_kernels *k, const struct moment *before,
                         const struct moment *now, uint64_t ns)
{
    double rate = 1;
    if (now->cupti_ns > before->cupti_ns && now->our_ns > before->our_ns)
        rate = (double)(now->our_ns - before->our_ns) / (double)(now->cupti_ns - before->cupti_ns);
    int64_t since = (int64_t)((double)(int64_t)(ns - now->cupti_ns) * rate);
    int64_t ours = (int64_t)now->our_ns + since - (int64_t)k->start_ns;
    return ours > 0 ? (uint64_t)ours : 0;
}

/* Reads a record of work; 0: another kind, or no time. */
static int read_work(const void *record, struct piece *piece)
{
    uint32_t kind = u32_at(record, 0);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const struct hr__cupti_layout *l = &layouts[i];
        if (l->kind != kind)
            continue;
        piece->begin_ns = u64_at(record, l->begin);
        piece->end_ns = u64_at(record, l->end);
        piece->correlation = u32_at(record, l->correlation);
        piece->device = 1 + u32_at(record, l->device);
        /* 0: not measured, or not finished. */
        return piece->begin_ns && piece->end_ns >= piece->begin_ns && piece->device &&
               piece->device < HR_MEMORY_LIBRARIES;
    }
    return 0;
}

/* Reads a record of a correlation or of work; 0: neither. */
static int read_record(struct hr_memory_kernels *k, const void *record, struct piece *piece)
{
    uint32_t kind = u32_at(record, 0);
    if (kind != HR__CUPTI_EXTERNAL) {
        if (kind == HR__CUPTI_GRAPH)
            atomic_store_explicit(&k->saw_graph, 1, memory_order_relaxed);
        return read_work(record, piece);
    }
    uint64_t id = u64_at(record, HR__CUPTI_EXTERNAL_ID);
    *piece = (struct piece){
        .correlation = u32_at(record, HR__CUPTI_EXTERNAL_CORRELATION),
        .call = (uint32_t)id,
    };
    return u32_at(record, HR__CUPTI_EXTERNAL_KIND) == HR__CUPTI_CORRELATION &&
           id >> 32 == k->number;
}

static struct moment measure(struct hr_memory_kernels *k)
{
    struct moment best = {0, 0};
    uint64_t least = UINT64_MAX;
    /* The fastest of the calls is the most accurate. */
    for (int i = 0; i < 3; i++) {
        uint64_t ns = 0, begin = hr__now_ns();
        if (k->has_clock || k->cupti.timestamp(&ns))
            ns = begin;
        uint64_t took = hr__now_ns() - begin;
        if (took < least)
            best = (struct moment){ns, begin + (k->has_clock ? 0 : took / 2)};
        least = took < least ? took : least;
    }
    return best;
}

static void read_buffer(struct hr_memory_kernels *k, uint8_t *buffer, size_t bytes)
{
    struct piece pieces[BATCH];
    struct moment now = measure(k);
    void *record = NULL;
    int more = 1;
    pthread_mutex_lock(&k->join);
    struct moment before = k->before;
    pthread_mutex_unlock(&k->join);
    while (more) {
        size_t count = 0;
        while (count < BATCH && (more = !k->cupti.next_record(buffer, bytes, &record)))
            count += (size_t)read_record(k, record, &pieces[count]);
        pthread_mutex_lock(&k->join);
        for (size_t i = 0; i < count; i++) {
            if (pieces[i].device) {
                pieces[i].begin_ns = our_time(k, &before, &now, pieces[i].begin_ns);
                pieces[i].end_ns = our_time(k, &before, &now, pieces[i].end_ns);
            }
            take_piece_locked(k, &pieces[i]);
        }
        pthread_mutex_unlock(&k->join);
    }
    pthread_mutex_lock(&k->join);
    write_all_locked(k);
    if (now.our_ns > k->before.our_ns)
        k->before = now;
    pthread_mutex_unlock(&k->join);
}

/* ---- CUPTI's callbacks ---- */

/* Returns the current object and counts a callback, which must end with leave; NULL: none. */
static struct hr_memory_kernels *enter(void)
{
    pthread_mutex_lock(&following.lock);
    struct hr_memory_kernels *k = following.kernels;
    if (k)
        k->users++;
    pthread_mutex_unlock(&following.lock);
    return k;
}

static void leave(struct hr_memory_kernels *k)
{
    pthread_mutex_lock(&following.lock);
    if (!--k->users)
        pthread_cond_broadcast(&following.left);
    pthread_mutex_unlock(&following.lock);
}

static void buffer_requested(uint8_t **buffer, size_t *bytes, size_t *records)
{
    struct hr_memory_kernels *k = enter();
    *buffer = NULL;
    *bytes = 0;
    *records = 0; /* no limit */
    if (!k)
        return;
    if (atomic_fetch_add(&k->buffers, 1) < BUFFERS_MOST)
        *buffer = hr__alloc_aligned(HR__TAG_MEMORY, BUFFER_BYTES, 0);
    if (*buffer)
        *bytes = BUFFER_BYTES;
    else
        atomic_fetch_sub(&k->buffers, 1);
    leave(k);
}

static void buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes,
                             size_t valid)
{
    struct hr_memory_kernels *k = enter();
    size_t dropped = 0;
    if (k) {
        if (buffer && valid)
            read_buffer(k, buffer, valid);
        if (!k->cupti.dropped(NULL, 0, &dropped))
            atomic_fetch_add(&k->dropped, dropped);
        atomic_fetch_sub(&k->buffers, 1);
        leave(k);
    }
    hr__free(buffer);
}

/* Makes CUPTI use our clock, so that no conversion is needed. */
static uint64_t clock_asked(void)
{
    return hr__now_ns();
}

/* A subscription keeps other users away from CUPTI; no callback is enabled. */
static void nothing_asked(void *data, int domain, uint32_t id, const void *info)
{
}

/* ---- calls ---- */

void hr_memory_kernels_call(struct hr_memory_kernels *k, uint32_t call)
{
    if (!hr__recorder_is_here(k->recorder))
        return;
    uint32_t outer = (uint32_t)(uintptr_t)pthread_getspecific(k->calling);
    atomic_store_explicit(&k->outer[call % CALLS], (uint64_t)call << 32 | outer,
                          memory_order_relaxed);
    pthread_setspecific(k->calling, (void *)(uintptr_t)call);
    k->cupti.push(HR__CUPTI_CORRELATION, (uint64_t)k->number << 32 | call);
}

void hr_memory_kernels_called(struct hr_memory_kernels *k)
{
    uint64_t id = 0;
    if (!hr__recorder_is_here(k->recorder))
        return;
    /* Fails if the push failed, but the thread has left the call in any case. */
    k->cupti.pop(HR__CUPTI_CORRELATION, &id);
    uint32_t call = (uint32_t)(uintptr_t)pthread_getspecific(k->calling);
    uint64_t outer = atomic_load_explicit(&k->outer[call % CALLS], memory_order_relaxed);
    if (outer >> 32 != call)
        outer = 0; /* forgotten: more calls than the table holds have begun since */
    pthread_setspecific(k->calling, (void *)(uintptr_t)(uint32_t)outer);
}

/* ---- creation and destruction ---- */

static void disable_all(struct hr_memory_kernels *k)
{
    for (size_t i = KINDS; i--;)
        k->cupti.disable(kinds[i]);
}

static int enable_all(struct hr_memory_kernels *k, struct hr_error *error)
{
    for (size_t i = 0; i < KINDS; i++) {
        int result = k->cupti.enable(kinds[i]);
        if (!result || kinds[i] == HR__CUPTI_GRAPH)
            continue;
        while (i--)
            k->cupti.disable(kinds[i]);
        return hr__fail(
            error, -ENOTSUP,
            "CUPTI cannot follow this machine's devices (%s): accelerators' times are "
            "not known%s",
            hr__cupti_text(&k->cupti, result),
            result == HR__CUPTI_INSUFFICIENT_RIGHTS
                ? "; the administrator may allow it (NVreg_RestrictProfilingToAdminUsers=0)"
                : "");
    }
    return 0;
}

static int begin(struct hr_memory_kernels *k, struct hr_error *error)
{
    int result = k->cupti.subscribe(&k->subscriber, nothing_asked, NULL);
    if (result) {
        k->subscriber = NULL;
        if (result == HR__CUPTI_OTHER_SUBSCRIBER)
            return hr__fail(error, -ENOTSUP,
                            "another tool follows this process's devices already (a profiler, or a "
                            "program that was started by one): accelerators' times are not known; "
                            "record without it");
        return hr__fail(error, -ENOTSUP,
                        "CUPTI cannot be used here (%s): accelerators' times are not known",
                        hr__cupti_text(&k->cupti, result));
    }
    k->has_clock = k->cupti.register_clock && !k->cupti.register_clock(clock_asked);
    k->before = measure(k);
    result = k->cupti.register_buffers(buffer_requested, buffer_completed);
    if (result)
        return hr__fail(error, -ENOTSUP,
                        "CUPTI takes no buffers (%s): accelerators' times are not known",
                        hr__cupti_text(&k->cupti, result));
    int code = enable_all(k, error);
    if (!code && k->cupti.flush_period)
        k->cupti.flush_period(FLUSH_MS);
    return code;
}

/* Makes an object the current one. Returns 0 if there was none. */
static int become_followed(struct hr_memory_kernels *k, struct hr_error *error)
{
    pthread_mutex_lock(&following.lock);
    int is_free = !following.kernels;
    if (is_free) {
        following.kernels = k;
        k->number = ++following.made;
    }
    pthread_mutex_unlock(&following.lock);
    return is_free ? 0
                   : hr__fail(error, -ENOTSUP,
                              "another recording of this process follows its devices already: "
                              "accelerators' times are in that one");
}

/* Waits for running callbacks; no further callback will use this object. */
static void stop_following(struct hr_memory_kernels *k)
{
    pthread_mutex_lock(&following.lock);
    if (following.kernels == k)
        following.kernels = NULL;
    while (k->users)
        pthread_cond_wait(&following.left, &following.lock);
    pthread_mutex_unlock(&following.lock);
}

static void release(struct hr_memory_kernels *k)
{
    if (k->subscriber)
        k->cupti.unsubscribe(k->subscriber);
    stop_following(k);
    if (k->has_calling)
        pthread_key_delete(k->calling);
    pthread_mutex_destroy(&k->join);
    hr__free(k);
}

int hr_memory_kernels_open(struct hr_memory_kernels **out, struct hr_memory_recorder *recorder,
                           struct hr_error *error)
{
    *out = NULL;
    struct hr_memory_kernels *k = hr__alloc(HR__TAG_MEMORY, 1, sizeof *k);
    if (!k)
        return hr__fail(error, -ENOMEM, "out of memory for accelerators' times");
    k->recorder = recorder;
    k->start_ns = hr__recorder_start_ns(recorder);
    pthread_mutex_init(&k->join, NULL);
    int code = hr__cupti_load(&k->cupti, error);
    if (!code && (code = -pthread_key_create(&k->calling, NULL)))
        hr__fail(error, code, "no thread-specific key is left for accelerators' times");
    k->has_calling = !code;
    if (!code)
        code = become_followed(k, error);
    if (!code)
        code = begin(k, error);
    if (code) {
        release(k);
        return code;
    }
    *out = k;
    return 0;
}

/* Notes what the record cannot show. */
static void record_notes(struct hr_memory_kernels *k)
{
    char text[160];
    uint64_t dropped = atomic_load(&k->dropped);
    if (dropped) {
        snprintf(text, sizeof text,
                 "CUPTI dropped %" PRIu64 " records of what devices ran: the times of some calls "
                 "are the host's.",
                 dropped);
        hr_memory_fact(k->recorder, "note accelerator records", text);
    }
    if (atomic_load(&k->saw_graph))
        hr_memory_fact(
            k->recorder, "note CUDA graphs",
            "CUDA graphs ran: each launch is recorded as one, and the accesses within it "
            "are not seen.");
}

void hr_memory_kernels_close(struct hr_memory_kernels **kernels)
{
    struct hr_memory_kernels *k = kernels ? *kernels : NULL;
    if (!k)
        return;
    *kernels = NULL;
    /* In a child, CUDA and its locks are in the state of the fork: leave them alone. */
    if (!hr__recorder_is_here(k->recorder)) {
        hr__free(k);
        return;
    }
    hr__cupti_wait_for_devices();
    k->cupti.flush(0);
    disable_all(k);
    k->cupti.flush(HR__CUPTI_FLUSH_FORCED);
    if (k->cupti.flush_period)
        k->cupti.flush_period(0);
    stop_following(k);
    pthread_mutex_lock(&k->join);
    write_all_locked(k);
    pthread_mutex_unlock(&k->join);
    record_notes(k);
    release(k);
}
