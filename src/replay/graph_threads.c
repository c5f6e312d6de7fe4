/*
 * Divides CPU threads into tasks, and finds where one thread waits for another: backward() on the
 * main thread for the threads of autograd, and these for the next backward(). See graph.h.
 */
#include "replay/graph.h"

#include <string.h>

#define DEPTH_MOST    4096
#define CLIPPED_NS    1000  /* times are rounded: an overlap up to this is none */
#define WAIT_LEAST_NS 20000 /* a wait for another thread is longer: it wakes up first */

enum hr__wait hr__call_waits(const char *name)
{
    static const struct {
        const char *name;
        enum hr__wait wait;
    } calls[] = {
        {"DeviceSynchronize", HR__WAIT_DEVICE},
        {"CtxSynchronize", HR__WAIT_DEVICE},
        {"StreamSynchronize", HR__WAIT_STREAM},
        {"EventSynchronize", HR__WAIT_EVENT},
        {"Memcpy", HR__WAIT_COPY},
    };
    if (strncmp(name, "cu", 2) && strncmp(name, "hip", 3))
        return HR__WAIT_NONE;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strstr(name, calls[i].name))
            return calls[i].wait;
    return HR__WAIT_NONE;
}

/* ---- one thread ---- */

struct open_event {
    uint32_t event;
    int64_t end_ns; /* not after that of the event around it */
};

struct thread_builder {
    struct hr__graph *g;
    struct hr__rank_events *r;
    uint32_t rank, lane;
    int64_t at_ns; /* the thread is divided up to here */
    size_t depth;
    int is_autograd;
    struct open_event open[DEPTH_MOST];
};

/* Adds a task after the thread's last one. */
static uint32_t append(struct thread_builder *b, struct hr__graph_task task)
{
    struct hr__lane *lane = &b->g->lanes[b->lane];
    uint32_t last = lane->last;
    task.lane = b->lane;
    task.rank = (uint16_t)b->rank;
    uint32_t at = hr__graph_add_task(b->g, task);
    if (last == HR__NO_TASK)
        lane->first = at;
    else
        hr__graph_add_edge(b->g,
                           (struct hr__edge){.from = last, .to = at, .kind = HR__EDGE_THREAD});
    lane->last = at;
    return at;
}

static uint8_t kind_of(const struct hr__trace_event *e)
{
    if (e && e->kind == HR__TRACE_OP)
        return HR__TASK_OP;
    return e && e->kind == HR__TRACE_RUNTIME ? HR__TASK_CALL : HR__TASK_UNTRACED;
}

/* Adds the time up to `ns`, which belongs to the innermost open event. */
static void advance(struct thread_builder *b, int64_t ns)
{
    uint32_t event = b->depth ? b->open[b->depth - 1].event : HR__NO_EVENT;
    const struct hr__trace_event *e = b->depth ? &b->r->trace->events[event] : NULL;
    int64_t from = b->at_ns;
    int is_call = e && e->kind == HR__TRACE_RUNTIME && b->r->task[event] == HR__NO_TASK;
    if (ns <= from && !is_call)
        return;
    struct hr__graph_task task = {
        .begin_ns = hr__graph_time(b->g, b->rank, from),
        .length_ns = ns > from ? ns - from : 0,
        .event = event,
        .launch = HR__NO_TASK,
        .kind = kind_of(e),
        .phase = e ? b->r->phase[event] : HR__PHASE_OTHER,
    };
    uint32_t at = append(b, task);
    if (is_call)
        b->r->task[event] = at;
    b->at_ns = ns > from ? ns : from;
    /* what may be a wait has a second half, which join_threads uses */
    if (task.kind == HR__TASK_UNTRACED && task.length_ns >= WAIT_LEAST_NS && !b->is_autograd) {
        task.begin_ns += task.length_ns;
        task.length_ns = 0;
        task.launch = at;
        append(b, task);
    }
}

static void close_until(struct thread_builder *b, int64_t ns)
{
    while (b->depth && b->open[b->depth - 1].end_ns <= ns) {
        const struct open_event top = b->open[b->depth - 1];
        const struct hr__trace_event *e = &b->r->trace->events[top.event];
        advance(b, top.end_ns);
        b->depth--;
        if (e->kind == HR__TRACE_RUNTIME && b->r->task[top.event] != HR__NO_TASK &&
            hr__call_waits(hr__trace_name(b->r->trace, e->name)) != HR__WAIT_NONE)
            append(b, (struct hr__graph_task){.begin_ns = hr__graph_time(b->g, b->rank, b->at_ns),
                                              .event = top.event,
                                              .launch = HR__NO_TASK,
                                              .kind = HR__TASK_RETURN,
                                              .phase = b->r->phase[top.event]});
    }
}

static void open_event(struct thread_builder *b, uint32_t event)
{
    const struct hr__trace_event *e = &b->r->trace->events[event];
    int64_t end = hr__trace_end(e) < b->r->end_ns ? hr__trace_end(e) : b->r->end_ns;
    int64_t begin = e->begin_ns > b->r->begin_ns ? e->begin_ns : b->r->begin_ns;
    close_until(b, begin);
    if (b->at_ns == INT64_MIN)
        b->at_ns = begin;
    advance(b, begin);
    if (b->depth && end > b->open[b->depth - 1].end_ns) {
        b->g->counts.overlaps += end - b->open[b->depth - 1].end_ns > CLIPPED_NS;
        end = b->open[b->depth - 1].end_ns;
    }
    if (b->depth < DEPTH_MOST)
        b->open[b->depth++] = (struct open_event){event, end};
}

/* A thread that only asks whether events have happened (NCCL's watchdog) waits for nobody, and
 * nobody for it; left in, it would fix the end of every prediction. */
static int is_polling(const struct hr__rank_events *r, uint32_t track)
{
    int polls = 0;
    for (uint32_t i = r->first[track]; i < r->first[track + 1]; i++) {
        const struct hr__trace_event *e = &r->trace->events[r->order[i]];
        const char *name = hr__trace_name(r->trace, e->name);
        if (e->kind == HR__TRACE_OP)
            return 0;
        if (e->kind != HR__TRACE_RUNTIME)
            continue;
        if (!strstr(name, "Query") && !strstr(name, "IsCapturing") &&
            !strstr(name, "ThreadExchangeStreamCaptureMode"))
            return 0;
        polls = 1;
    }
    return polls;
}

/* Returns whether a thread has work in the window; *is_autograd: a thread of autograd. */
static int has_work(const struct hr__rank_events *r, uint32_t track, int *is_autograd)
{
    int has = track == r->main;
    *is_autograd = 0;
    for (uint32_t i = r->first[track]; i < r->first[track + 1]; i++) {
        const struct hr__trace_event *e = &r->trace->events[r->order[i]];
        if (e->begin_ns >= r->end_ns || hr__trace_end(e) <= r->begin_ns)
            continue;
        has |= e->kind == HR__TRACE_OP || e->kind == HR__TRACE_RUNTIME;
        *is_autograd |= track != r->main && e->kind == HR__TRACE_OP &&
                        r->phase[r->order[i]] == HR__PHASE_BACKWARD;
    }
    return has;
}

static void add_thread(struct thread_builder *b, uint32_t track)
{
    struct hr__rank_events *r = b->r;
    b->depth = 0;
    b->lane = hr__graph_add_lane(b->g, (struct hr__lane){.rank = b->rank,
                                                         .track = track,
                                                         .is_autograd = (uint8_t)b->is_autograd,
                                                         .first = HR__NO_TASK,
                                                         .last = HR__NO_TASK});
    if (b->g->no_memory)
        return;
    b->at_ns = track == r->main ? r->begin_ns : INT64_MIN;
    for (uint32_t i = r->first[track]; i < r->first[track + 1] && !b->g->no_memory; i++) {
        const struct hr__trace_event *e = &r->trace->events[r->order[i]];
        if (e->begin_ns < r->end_ns && hr__trace_end(e) > r->begin_ns)
            open_event(b, r->order[i]);
    }
    close_until(b, r->end_ns);
    if (track == r->main)
        advance(b, r->end_ns);
}

void hr__graph_add_threads(struct hr__graph *g, size_t rank)
{
    struct thread_builder b = {.g = g, .r = &g->ranks[rank], .rank = (uint32_t)rank};
    for (uint32_t track = 0; track < b.r->trace->track_count && !g->no_memory; track++) {
        if (b.r->trace->tracks[track].is_stream || !has_work(b.r, track, &b.is_autograd))
            continue;
        if (is_polling(b.r, track))
            g->counts.polled++;
        else
            add_thread(&b, track);
    }
}

/* ---- waits between threads ---- */

/* The work of a thread of autograd within a gap of another thread. */
struct autograd_run {
    uint32_t before, first, last; /* tasks; before: the untraced one in front of it, or NO_TASK */
};

/* Finds the work of `lane` that lies within a gap, and that a gap of its own precedes. `*from` is
 * where to begin; gaps come in the order of time. Returns 0 if there is none. */
static int find_run(const struct hr__graph *g, const struct hr__lane *lane, int64_t begin,
                    int64_t end, uint32_t *from, struct autograd_run *run)
{
    uint32_t i = *from;
    run->first = run->last = run->before = HR__NO_TASK;
    while (i <= lane->last &&
           (g->tasks[i].kind == HR__TASK_UNTRACED || g->tasks[i].begin_ns < begin - CLIPPED_NS))
        i++;
    *from = i;
    if (i > lane->last)
        return 0;
    for (uint32_t k = i; k <= lane->last; k++) {
        const struct hr__graph_task *task = &g->tasks[k];
        if (task->begin_ns + task->length_ns > end + CLIPPED_NS)
            break;
        if (task->kind != HR__TASK_UNTRACED)
            run->last = k;
    }
    if (run->last == HR__NO_TASK)
        return 0;
    run->first = i;
    if (i > lane->first) {
        run->before = i - 1;
        /* it worked already when the gap began: it did not wait for this thread */
        if (g->tasks[i - 1].kind != HR__TASK_UNTRACED ||
            g->tasks[i - 1].begin_ns > begin + CLIPPED_NS)
            return 0;
    }
    return 1;
}

/* Makes both threads wait: the run for what precedes the gap, what follows it for the run. */
static void join(struct hr__graph *g, uint32_t gap, const struct autograd_run *run)
{
    struct hr__graph_task *signal = &g->tasks[gap], *rest = &g->tasks[gap + 1];
    int64_t end = signal->begin_ns + signal->length_ns + rest->length_ns;
    int64_t first = g->tasks[run->first].begin_ns;
    int64_t last = g->tasks[run->last].begin_ns + g->tasks[run->last].length_ns;
    int64_t length = first > signal->begin_ns ? first - signal->begin_ns : 0;
    int64_t after = end > last ? end - last : 0;
    if (rest->length_ns) { /* another thread's run is joined to this gap already */
        length = length < signal->length_ns ? length : signal->length_ns;
        after = after < rest->length_ns ? after : rest->length_ns;
    }
    signal->length_ns = length;
    rest->length_ns = after;
    rest->begin_ns = end - after;
    if (run->before != HR__NO_TASK)
        g->tasks[run->before].length_ns = 0;
    hr__graph_add_edge(g, (struct hr__edge){.from = gap,
                                            .to = run->first,
                                            .kind = HR__EDGE_CROSS,
                                            .lag_ns = first - signal->begin_ns - length});
    hr__graph_add_edge(g, (struct hr__edge){.from = run->last,
                                            .to = gap + 1,
                                            .kind = HR__EDGE_CROSS,
                                            .lag_ns = rest->begin_ns - last});
}

static void join_lanes(struct hr__graph *g, const struct hr__lane *waits,
                       const struct hr__lane *works)
{
    uint32_t from = works->first;
    for (uint32_t i = waits->first; i < waits->last; i++) {
        const struct hr__graph_task *gap = &g->tasks[i], *rest = gap + 1;
        struct autograd_run run;
        if (rest->kind != HR__TASK_UNTRACED || rest->launch != i)
            continue;
        int64_t end = rest->begin_ns + rest->length_ns;
        if (end - gap->begin_ns >= WAIT_LEAST_NS &&
            find_run(g, works, gap->begin_ns, end, &from, &run))
            join(g, i, &run);
    }
}

void hr__graph_join_threads(struct hr__graph *g, size_t rank)
{
    size_t lanes = g->lane_count;
    for (size_t a = 0; a < lanes; a++)
        for (size_t b = 0; b < lanes; b++) {
            const struct hr__lane *waits = &g->lanes[a], *works = &g->lanes[b];
            if (waits->rank == rank && works->rank == rank && !waits->is_stream &&
                !waits->is_autograd && works->is_autograd && waits->first != HR__NO_TASK &&
                works->first != HR__NO_TASK)
                join_lanes(g, waits, works);
        }
}
