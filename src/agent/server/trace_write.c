/*
 * Writes a recording as Chrome JSON ("Trace Event Format").
 *
 * The agent is one process of the trace. Each worker is a thread of it; its slices are samples,
 * and within them the reads that the worker did itself. Each queue is a track with the chunks
 * that it published. Each cursor is a thread of its job's process: slices for waits, marks for
 * takes and releases, counters for samples ready and held. Times are microseconds since the
 * recording began. Control blocks are read every HR__TRACE_LOOK_MS, so what jobs did may be shown
 * that much late.
 */
#include "agent/server/trace_inside.h"
#include "report/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* Thread numbers in the agent's process, and for cursors in a job's. */
enum { TRACK_WORKERS = 1, TRACK_QUEUES = 100000, TRACK_CURSORS = 1 };

struct writer {
    struct hr__events e;
    const struct hr__trace *trace;
};

static uint64_t since_begin(const struct writer *w, uint64_t at_ns)
{
    return at_ns > w->trace->begin_ns ? at_ns - w->trace->begin_ns : 0;
}

/* Begins a slice. The caller adds members of "args" and closes both objects. */
static void begin_slice(struct writer *w, int process, uint64_t thread, uint64_t begin_ns,
                        uint64_t end_ns)
{
    uint64_t begin = since_begin(w, begin_ns), end = since_begin(w, end_ns);
    hr__event_begin(&w->e, "X", process, thread);
    hr__event_time_ns(&w->e, "ts", begin);
    hr__event_time_ns(&w->e, "dur", end > begin ? end - begin : 0);
}

/* Finds the queue whose loader had that address then; NULL: unknown. */
static const struct hr__trace_queue *find_queue(const struct hr__trace *t,
                                                const struct hr__crew_event *e)
{
    const struct hr__trace_queue *found = NULL;
    for (size_t i = 0; i < t->queue_count; i++)
        if (t->queues[i].loader == e->loader && (!found || t->queues[i].since_ns <= e->end_ns))
            found = &t->queues[i];
    return found;
}

static void add_sample(struct writer *w, const struct hr__crew_event *e)
{
    const struct hr__trace_queue *queue = find_queue(w->trace, e);
    int agent = (int)getpid();
    uint64_t track = TRACK_WORKERS + (uint64_t)e->worker;
    begin_slice(w, agent, track, e->begin_ns, e->end_ns);
    hr__draft_print(&w->e.draft, ",\"name\":\"sample\",\"args\":{\"index\":%" PRIu64, e->index);
    if (queue)
        hr__draft_print(&w->e.draft, ",\"queue\":%" PRIu64, queue->number);
    hr__draft_put(&w->e.draft, "}}");
    if (!e->read_ns)
        return;
    uint64_t length = e->end_ns - e->begin_ns;
    begin_slice(w, agent, track, e->begin_ns,
                e->begin_ns + (e->read_ns < length ? e->read_ns : length));
    hr__draft_put(&w->e.draft, ",\"name\":\"read\"}");
}

/* Writes the newest events of one worker, oldest first. Returns how many older ones are lost. */
static uint64_t add_worker(struct writer *w, int worker)
{
    const struct hr__trace *t = w->trace;
    const struct hr__trace_ring *ring = &t->rings[worker];
    uint64_t lost = ring->count > t->capacity ? ring->count - t->capacity : 0;
    for (uint64_t i = lost; i < ring->count && !w->e.draft.failed; i++)
        add_sample(w, &ring->events[i % t->capacity]);
    return lost;
}

static void add_mark(struct writer *w, const struct hr__trace_note *n, const char *name,
                     int process, uint64_t track)
{
    hr__event_begin(&w->e, "i", process, track);
    hr__event_time_ns(&w->e, "ts", since_begin(w, n->at_ns));
    hr__draft_print(&w->e.draft,
                    ",\"s\":\"t\",\"name\":\"%s\",\"args\":{\"samples\":%" PRIu64
                    ",\"sequence\":%" PRIu64 "}}",
                    name, n->samples, n->sequence);
}

/* Returns a small number for the cursor's track: viewers keep track numbers in 32 bits. */
static uint64_t track_of(const struct writer *w, const struct hr__trace_known *cursor)
{
    return TRACK_CURSORS + (uint64_t)(cursor - w->trace->cursors);
}

static void add_queue(struct writer *w, const struct hr__trace_note *n,
                      const struct hr__trace_known *cursor)
{
    uint64_t track = track_of(w, cursor);
    hr__event_begin(&w->e, "C", cursor->pid, track);
    hr__event_time_ns(&w->e, "ts", since_begin(w, n->at_ns));
    hr__draft_print(&w->e.draft,
                    ",\"name\":\"cursor %" PRIu64 "\",\"args\":{\"ready\":%" PRIu64
                    ",\"held\":%" PRIu64 "}}",
                    track, n->samples, n->sequence);
}

static void add_note(struct writer *w, const struct hr__trace_note *n)
{
    if (n->what == HR__TRACE_PUBLISHED) {
        add_mark(w, n, "ready", (int)getpid(), TRACK_QUEUES + n->who);
        return;
    }
    const struct hr__trace_known *cursor = hr__trace_find(w->trace, n->who);
    if (!cursor)
        return;
    uint64_t track = track_of(w, cursor);
    switch (n->what) {
    case HR__TRACE_TOOK:
        add_mark(w, n, "takes", cursor->pid, track);
        break;
    case HR__TRACE_RELEASED:
        add_mark(w, n, "releases", cursor->pid, track);
        break;
    case HR__TRACE_WAITED:
        begin_slice(w, cursor->pid, track, n->at_ns > n->length_ns ? n->at_ns - n->length_ns : 0,
                    n->at_ns);
        hr__draft_put(&w->e.draft, ",\"name\":\"waits\"}");
        break;
    default:
        add_queue(w, n, cursor);
    }
}

static void add_names(struct writer *w)
{
    const struct hr__trace *t = w->trace;
    char name[256];
    int agent = (int)getpid();
    hr__event_name(&w->e, "process_name", agent, 0, "headrace agent");
    for (int i = 0; i < t->workers; i++) {
        snprintf(name, sizeof name, "worker %d", i);
        hr__event_name(&w->e, "thread_name", agent, TRACK_WORKERS + (uint64_t)i, name);
    }
    for (size_t i = 0; i < t->queue_count; i++) {
        const struct hr__trace_queue *l = &t->queues[i];
        snprintf(name, sizeof name, "queue %" PRIu64 ": %s", l->number, l->title);
        hr__event_name(&w->e, "thread_name", agent, TRACK_QUEUES + l->number, name);
    }
    for (size_t i = 0; i < t->cursor_count; i++) {
        const struct hr__trace_known *k = &t->cursors[i];
        hr__event_name(&w->e, "process_name", k->pid, 0, k->program);
        snprintf(name, sizeof name, "cursor %" PRIu64 ": queue %" PRIu64 ", rank %d",
                 track_of(w, k), k->queue, k->rank);
        hr__event_name(&w->e, "thread_name", k->pid, track_of(w, k), name);
    }
}

int hr__trace_text(const struct hr__trace *t, char **json, struct hr_error *error)
{
    struct writer w = {.trace = t};
    uint64_t lost = 0;
    hr__draft_put(&w.e.draft, "{\"displayTimeUnit\":\"ms\",\n\"traceEvents\":[\n");
    add_names(&w);
    for (int i = 0; i < t->workers; i++)
        lost += add_worker(&w, i);
    for (size_t i = 0; i < t->note_count && !w.e.draft.failed; i++)
        add_note(&w, &t->notes[i]);
    hr__draft_print(&w.e.draft, "\n],\n\"otherData\":{\"made by\":\"headrace %s\"", hr_version());
    hr__event_time_ns(&w.e, "length_us", t->end_ns - t->begin_ns);
    hr__draft_print(&w.e.draft, ",\"lost samples\":%" PRIu64 ",\"lost notes\":%" PRIu64 "}}\n",
                    lost, t->lost);
    return hr__draft_finish(&w.e.draft, json, error);
}
