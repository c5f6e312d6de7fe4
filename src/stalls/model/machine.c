/*
 * Simulates a host's cores, storage and clock; see machine.h.
 */
#include "stalls/model/machine.h"

#include "base/heap.h"
#include "base/memory.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

static int is_before(const void *one, const void *other)
{
    const struct hr__mark *a = one, *b = other;
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void push(struct hr__marks *heap, struct hr__mark mark)
{
    hr__heap_push(heap->marks, &heap->count, &mark, sizeof mark, is_before);
}

static struct hr__mark pop(struct hr__marks *heap)
{
    struct hr__mark first;
    hr__heap_pop(heap->marks, &heap->count, &first, sizeof first, is_before);
    return first;
}

int hr__machine_init(struct hr__machine *m, const struct hr__system *system, size_t runners,
                     size_t reads)
{
    *m = (struct hr__machine){.system = system, .read_capacity = reads + 1};
    m->threads.marks = hr__alloc(HR__TAG_STALLS, runners + 1, sizeof *m->threads.marks);
    m->steps.marks = hr__alloc(HR__TAG_STALLS, runners + 1, sizeof *m->steps.marks);
    m->waits.marks = hr__alloc(HR__TAG_STALLS, runners + 1, sizeof *m->waits.marks);
    m->reads = hr__alloc(HR__TAG_STALLS, m->read_capacity, sizeof *m->reads);
    if (m->threads.marks && m->steps.marks && m->waits.marks && m->reads)
        return 0;
    hr__machine_clear(m);
    return -ENOMEM;
}

void hr__machine_clear(struct hr__machine *m)
{
    hr__free(m->threads.marks);
    hr__free(m->steps.marks);
    hr__free(m->waits.marks);
    hr__free(m->reads);
    *m = (struct hr__machine){.system = NULL};
}

static struct hr__mark mark(struct hr__machine *m, double at, uint32_t id)
{
    return (struct hr__mark){.at = at, .order = m->order++, .id = id};
}

void hr__machine_run(struct hr__machine *m, uint32_t id, double work_s)
{
    push(&m->threads, mark(m, m->threads.time + work_s, id));
}

void hr__machine_step(struct hr__machine *m, uint32_t id, double work_s, int threads)
{
    struct hr__mark step = mark(m, m->steps.time + work_s, id);
    step.threads = (uint32_t)threads;
    m->step_threads += threads;
    push(&m->steps, step);
}

void hr__machine_wait(struct hr__machine *m, uint32_t id, double wait_s)
{
    push(&m->waits, mark(m, m->now + wait_s, id));
}

void hr__machine_read(struct hr__machine *m, uint32_t id, double bytes)
{
    const struct hr__system *s = m->system;
    assert(m->read_count < m->read_capacity);
    m->storage_free = fmax(m->storage_free, m->now - s->storage_saved_s);
    if (bytes > 0)
        m->storage_free += bytes / s->storage_bytes_per_s;
    double at = fmax(m->now, m->storage_free) + s->storage_latency_s;
    m->reads[(m->read_first + m->read_count++) % m->read_capacity] = mark(m, at, id);
}

/* Current speeds, in virtual seconds per second. */
struct pace {
    double threads, steps;
    double busy; /* busy cores */
};

static struct pace pace(const struct hr__machine *m)
{
    const struct hr__system *s = m->system;
    double runnable = (double)m->threads.count + m->step_threads, cores = s->cores;
    double busy = fmin(runnable, cores), bound = s->contention_cores;
    double crowded = bound > 0 ? fmin(busy, bound) : busy;
    double slowed = 1 + (crowded > 1 ? s->contention * (crowded - 1) : 0);
    struct pace p = {.busy = busy, .threads = runnable > 0 ? busy / runnable / slowed : 1};
    bool shared = runnable > cores && m->threads.count;
    p.threads /= shared ? 1 + s->crowding : 1;
    p.steps = shared ? p.threads / (1 + s->sharing) : p.threads;
    p.steps /= runnable > 0 ? 1 + s->disturbance * busy * (double)m->threads.count / runnable : 1;
    return p;
}

static double left(const struct hr__marks *heap, double speed)
{
    return heap->count ? fmax(0, heap->marks[0].at - heap->time) / speed : INFINITY;
}

static double until(const struct hr__machine *m, const struct hr__mark *mark, size_t count)
{
    return count ? fmax(0, mark->at - m->now) : INFINITY;
}

uint32_t hr__machine_next(struct hr__machine *m)
{
    struct pace p = pace(m);
    double threads = left(&m->threads, p.threads), steps = left(&m->steps, p.steps);
    double waits = until(m, m->waits.marks, m->waits.count);
    double reads = until(m, &m->reads[m->read_first], m->read_count);
    double passed = fmin(fmin(threads, steps), fmin(waits, reads));
    assert(passed < INFINITY);
    m->now += passed;
    m->busy_core_s += passed * p.busy;
    m->threads.time += passed * p.threads;
    m->steps.time += passed * p.steps;
    /* Set the time to the mark of what ended, so that rounding errors do not add up. */
    if (threads <= passed) {
        m->threads.time = m->threads.marks[0].at;
        return pop(&m->threads).id;
    }
    if (steps <= passed) {
        struct hr__mark step = pop(&m->steps);
        m->steps.time = step.at;
        m->step_threads -= (int)step.threads;
        return step.id;
    }
    if (waits <= passed) {
        m->now = fmax(m->now, m->waits.marks[0].at);
        return pop(&m->waits).id;
    }
    struct hr__mark read = m->reads[m->read_first];
    m->now = fmax(m->now, read.at);
    m->read_first = (m->read_first + 1) % m->read_capacity;
    m->read_count--;
    return read.id;
}
