/*
 * Records events; trace_write.c converts them to text.
 *
 * A worker stores that it is in its ring (is_busy), then loads is_on. A thread that ends a
 * recording clears is_on, then waits until no worker is in its ring. Both use sequentially
 * consistent order, so at least one of them sees the other.
 */
#include "agent/server/trace_inside.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Events in all rings together, about 40 bytes each, and in one ring, at most. */
#define EVENTS_MOST ((size_t)1 << 20)
#define EVENTS_EACH ((size_t)1 << 16)

int hr__trace_create(struct hr__trace **out, int workers, struct hr_error *error)
{
    struct hr__trace *t = hr__alloc(HR__TAG_AGENT, 1, sizeof *t);
    struct hr__trace_ring *rings =
        hr__alloc_aligned(HR__TAG_AGENT, (size_t)workers * sizeof *rings, 0);
    if (!t || !rings || pthread_mutex_init(&t->lock, NULL)) {
        hr__free(t);
        hr__free(rings);
        return hr__fail(error, -ENOMEM, "out of memory for the agent's trace");
    }
    memset(rings, 0, (size_t)workers * sizeof *rings);
    t->workers = workers;
    t->rings = rings;
    t->capacity = EVENTS_EACH;
    while (t->capacity > 1024 && t->capacity * (size_t)workers > EVENTS_MOST)
        t->capacity /= 2;
    *out = t;
    return 0;
}

static void forget(struct hr__trace *t)
{
    for (int i = 0; i < t->workers; i++)
        t->rings[i].count = 0;
    hr__free(t->queues);
    hr__free(t->cursors);
    t->queues = NULL;
    t->cursors = NULL;
    t->queue_count = t->cursor_count = 0;
    t->note_count = t->lost = 0;
}

void hr__trace_destroy(struct hr__trace **trace)
{
    struct hr__trace *t = *trace;
    if (!t)
        return;
    forget(t);
    for (int i = 0; i < t->workers; i++)
        hr__free(t->rings[i].events);
    hr__free(t->rings);
    hr__free(t->notes);
    pthread_mutex_destroy(&t->lock);
    hr__free(t);
    *trace = NULL;
}

bool hr__trace_is_on(const struct hr__trace *t)
{
    return atomic_load_explicit(&t->is_on, memory_order_acquire);
}

void hr__trace_watch(void *trace, const struct hr__crew_event *event)
{
    struct hr__trace *t = trace;
    if (!hr__trace_is_on(t) || event->worker < 0 || event->worker >= t->workers)
        return;
    struct hr__trace_ring *ring = &t->rings[event->worker];
    atomic_store(&ring->is_busy, true);
    if (atomic_load(&t->is_on))
        ring->events[ring->count++ % t->capacity] = *event;
    atomic_store_explicit(&ring->is_busy, false, memory_order_release);
}

int hr__trace_start(struct hr__trace *t, struct hr_error *error)
{
    int busy = atomic_exchange(&t->is_taken, 1);
    if (busy)
        return hr__fail(error, -EBUSY,
                        "another trace of this agent is being recorded: wait until it ends");
    for (int i = 0; i < t->workers; i++)
        if (!t->rings[i].events)
            t->rings[i].events = hr__alloc(HR__TAG_AGENT, t->capacity, sizeof *t->rings[i].events);
    if (!t->notes)
        t->notes = hr__alloc(HR__TAG_AGENT, HR__TRACE_NOTES, sizeof *t->notes);
    int is_short = !t->notes;
    for (int i = 0; i < t->workers; i++)
        is_short |= !t->rings[i].events;
    if (is_short) {
        atomic_store(&t->is_taken, 0);
        return hr__fail(error, -ENOMEM, "out of memory for a trace of %d threads", t->workers);
    }
    forget(t);
    t->begin_ns = t->end_ns = hr__now_ns();
    atomic_store(&t->is_on, true);
    return 0;
}

void hr__trace_stop(struct hr__trace *t)
{
    if (!hr__trace_is_on(t))
        return;
    atomic_store(&t->is_on, false);
    for (int i = 0; i < t->workers; i++)
        while (atomic_load(&t->rings[i].is_busy))
            sched_yield();
    /* With the lock, wait until a thread that is writing a note has finished. */
    pthread_mutex_lock(&t->lock);
    t->end_ns = hr__now_ns();
    pthread_mutex_unlock(&t->lock);
}

int hr__trace_write(struct hr__trace *t, char **json, struct hr_error *error)
{
    int r = hr__trace_text(t, json, error);
    hr__trace_cancel(t);
    return r;
}

void hr__trace_cancel(struct hr__trace *t)
{
    if (!atomic_load(&t->is_taken))
        return;
    hr__trace_stop(t);
    forget(t);
    atomic_store(&t->is_taken, 0);
}

void hr__trace_queue(struct hr__trace *t, const struct hr_loader *loader, uint64_t queue,
                     const char *title)
{
    if (!hr__trace_is_on(t))
        return;
    pthread_mutex_lock(&t->lock);
    if (hr__trace_is_on(t) && !hr__reserve(HR__TAG_AGENT, &t->queues, t->queue_count + 1)) {
        struct hr__trace_queue *l = &t->queues[t->queue_count++];
        l->loader = loader;
        l->number = queue;
        l->since_ns = hr__now_ns();
        hr__printable(l->title, sizeof l->title, title);
    }
    pthread_mutex_unlock(&t->lock);
}

static void note_locked(struct hr__trace *t, const struct hr__trace_note *note)
{
    if (t->note_count == HR__TRACE_NOTES)
        t->lost++;
    else
        t->notes[t->note_count++] = *note;
}

void hr__trace_published(struct hr__trace *t, uint64_t queue, uint64_t sequence, uint64_t count)
{
    if (!hr__trace_is_on(t))
        return;
    pthread_mutex_lock(&t->lock);
    if (hr__trace_is_on(t))
        note_locked(t, &(struct hr__trace_note){.what = HR__TRACE_PUBLISHED,
                                                .at_ns = hr__now_ns(),
                                                .who = queue,
                                                .samples = count,
                                                .sequence = sequence});
    pthread_mutex_unlock(&t->lock);
}

static void add_cursor_locked(struct hr__trace *t, const struct hr__trace_cursor *cursor)
{
    if (hr__reserve(HR__TAG_AGENT, &t->cursors, t->cursor_count + 1)) {
        t->lost++;
        return;
    }
    struct hr__trace_known *k = &t->cursors[t->cursor_count++];
    *k = (struct hr__trace_known){.number = cursor->number,
                                  .queue = cursor->queue,
                                  .pid = cursor->pid,
                                  .rank = cursor->rank,
                                  .mark = cursor->mark,
                                  .next = cursor->next,
                                  .wait_ns = cursor->wait_ns};
    hr__printable(k->program, sizeof k->program, cursor->program);
}

/* Notes what `cursor` did since its last reading. */
static void compare_locked(struct hr__trace *t, struct hr__trace_known *k,
                           const struct hr__trace_cursor *cursor)
{
    struct hr__trace_note note = {.at_ns = hr__now_ns(), .who = cursor->number};
    if (cursor->wait_ns > k->wait_ns) {
        note.what = HR__TRACE_WAITED;
        note.length_ns = cursor->wait_ns - k->wait_ns;
        note_locked(t, &note);
    }
    note.length_ns = 0;
    if (cursor->next > k->next) {
        note.what = HR__TRACE_TOOK;
        note.samples = cursor->next - k->next;
        note.sequence = k->next;
        note_locked(t, &note);
    }
    if (cursor->mark > k->mark) {
        note.what = HR__TRACE_RELEASED;
        note.samples = cursor->mark - k->mark;
        note.sequence = k->mark;
        note_locked(t, &note);
    }
    uint64_t ready = cursor->head > cursor->next ? cursor->head - cursor->next : 0;
    uint64_t held = cursor->next > cursor->mark ? cursor->next - cursor->mark : 0;
    if (ready != k->ready || held != k->held) {
        note.what = HR__TRACE_QUEUE;
        note.samples = ready;
        note.sequence = held;
        note_locked(t, &note);
    }
    k->mark = cursor->mark;
    k->next = cursor->next;
    k->wait_ns = cursor->wait_ns;
    k->ready = ready;
    k->held = held;
}

void hr__trace_cursor(struct hr__trace *t, const struct hr__trace_cursor *cursor)
{
    if (!hr__trace_is_on(t))
        return;
    pthread_mutex_lock(&t->lock);
    if (hr__trace_is_on(t)) {
        struct hr__trace_known *k = hr__trace_find(t, cursor->number);
        if (k)
            compare_locked(t, k, cursor);
        else
            add_cursor_locked(t, cursor);
    }
    pthread_mutex_unlock(&t->lock);
}
