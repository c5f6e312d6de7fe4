/*
 * The dependency graph of a trace ("Daydream", ATC'20): tasks on lanes, and edges between them.
 *
 * A lane is a CPU thread, a stream of a device, or a channel that a what-if adds. A CPU thread is
 * divided into tasks without gaps: an operator's or call's own time, without its children's, or
 * time in which no operator and no call runs (Python, which is "untraced"). A blocking call is
 * two tasks: its own cost, and a return of length 0, which waits for the device. On a stream each
 * kernel, copy and set is a task.
 *
 * Five kinds of edges: the order of a thread; the order of a stream; from a launch to the work it
 * launches; from work of a device to the CPU task that waited for it, or to a stream that did; and
 * between the members of a collective, or between threads that wait for each other. A lag is the
 * time between the end of an edge's source (its begin, if from_begin) and the earliest begin of
 * its target. The edge that was the last to be fulfilled has the recorded lag, others the usual
 * one. So a replay without changes differs from the record only where the edges contradict it.
 */
#ifndef HR_REPLAY_GRAPH_H
#define HR_REPLAY_GRAPH_H

#include "replay/trace.h"

#define HR__NO_TASK  UINT32_MAX
#define HR__NO_EVENT UINT32_MAX

enum hr__task_kind {
    HR__TASK_OP,       /* an operator's own time */
    HR__TASK_CALL,     /* a call of CUDA or HIP */
    HR__TASK_UNTRACED, /* neither: Python, C++ without an operator */
    HR__TASK_RETURN,   /* end of a blocking call */
    HR__TASK_KERNEL,
    HR__TASK_COPY,
    HR__TASK_SET,
    HR__TASK_COLLECTIVE, /* a kernel that communicates, or a collective of gloo */
    HR__TASK_INSERTED,   /* by a what-if */
    HR__TASK_KINDS
};

enum hr__phase {
    HR__PHASE_OTHER,
    HR__PHASE_DATA, /* waiting for the loader */
    HR__PHASE_FORWARD,
    HR__PHASE_BACKWARD,
    HR__PHASE_OPTIMIZER,
    HR__PHASES
};

struct hr__graph_task {
    int64_t begin_ns;  /* as recorded, since the window began */
    int64_t length_ns; /* its own; a what-if changes it */
    uint32_t event;    /* of its rank's trace: innermost event around it; HR__NO_EVENT: none */
    uint32_t lane;
    uint32_t launch; /* device work: the task of its launch, if known; the second half of untraced
                        time: the first half; HR__NO_TASK: none */
    uint16_t rank;
    uint8_t kind, phase;
};

enum hr__edge_kind {
    HR__EDGE_THREAD, /* order of a thread */
    HR__EDGE_STREAM, /* order of a stream */
    HR__EDGE_LAUNCH,
    HR__EDGE_SYNC,  /* a device's work to the CPU */
    HR__EDGE_EVENT, /* a device's work to another stream */
    HR__EDGE_CROSS, /* one thread waits for another */
    HR__EDGE_GROUP, /* a collective waits for another rank */
    HR__EDGE_ADDED, /* by a what-if */
    HR__EDGE_KINDS
};

struct hr__edge {
    int64_t lag_ns;
    uint32_t from, to;
    uint8_t kind, from_begin;
};

struct hr__lane {
    uint32_t rank, track; /* of the rank's trace; track UINT32_MAX: a channel of a what-if */
    uint8_t is_stream;    /* of a device */
    uint8_t is_autograd;  /* a thread of autograd, which works while others wait for it */
    uint8_t is_apart;     /* nothing waits for it, and it launches nothing: it ends no iteration */
    uint8_t is_scheduled; /* its tasks run in the order of priorities, not in the recorded one */
    uint32_t first, last; /* its tasks in the recorded order, HR__NO_TASK: none */
};

/* Events that have a correlation. */
enum hr__link { HR__LINK_CALL, HR__LINK_SYNC, HR__LINK_DEVICE, HR__LINKS };

/* What the graph knows of a rank's events besides its trace. Arrays by event. */
struct hr__rank_events {
    const struct hr__trace_data *trace;
    uint32_t *order;             /* events by track, begin, longer first */
    uint32_t *first;             /* by track: where it begins in `order`; one more at the end */
    uint32_t *parent;            /* the event around an event on its thread; HR__NO_EVENT: none */
    uint32_t *forward;           /* backward operators: the forward one; HR__NO_EVENT: none */
    uint8_t *phase;              /* enum hr__phase */
    uint32_t *task;              /* calls and device work: its first task; HR__NO_TASK: none */
    uint32_t *linked[HR__LINKS]; /* events by their correlation */
    size_t linked_count[HR__LINKS];
    int64_t begin_ns, end_ns; /* the window */
    int64_t shift_ns;         /* subtract from its clock for that of the first rank */
    uint32_t main;            /* track of the main thread */
};

struct hr__trace_window {
    const char *name; /* substring of an annotation's name; NULL: steps of the profiler */
    int instance;     /* which of these; negative: from the first to the last */
};

/* Counts for the notes of a report. */
struct hr__graph_counts {
    uint64_t kernels, launches;
    uint64_t unlaunched; /* device work without a call that launched it */
    uint64_t waits,
        guessed;         /* blocking calls that waited; by the end of work before their return */
    uint64_t unresolved; /* waits of a stream for an event whose record is unknown */
    uint64_t polled;     /* threads that only poll, left out */
    uint64_t apart;      /* threads that nothing waits for */
    uint64_t loose;      /* threads that launch work, and of which no wait is known */
    uint64_t far;        /* device work more than a year from the window: damaged, left out */
    uint64_t overlaps;   /* slices of a thread that overlap without being nested */
    uint64_t collectives, joined; /* kernels that communicate; joined with other ranks' */
    uint64_t many;                /* kernels of launches of several (CUDA graphs) */
    uint64_t skewed;              /* device work that begins before its launch */
};

struct hr__graph {
    struct hr__rank_events *ranks;
    size_t rank_count;
    struct hr__graph_task *tasks;
    size_t task_count;
    struct hr__edge *edges;
    size_t edge_count;
    struct hr__lane *lanes;
    size_t lane_count;
    int64_t origin_ns;   /* the window's begin on the first rank's clock */
    int64_t recorded_ns; /* from the window's begin to the last task's end */
    int64_t middle_ns;   /* where the iteration in the middle begins, since the window began */
    int64_t shortest_ns, longest_ns; /* iteration on the first rank's main thread; 0: only one */
    int64_t tail_ns;                 /* of this, after the window's end: the device's work */
    int64_t launch_ns, gap_ns; /* usual: from a launch's begin to its kernel on an idle stream; from
                                  a kernel to the next one */
    uint32_t iterations;       /* in the window; at least 1 */
    char window[160];          /* how it was chosen */
    struct hr__graph_counts counts;
    int is_whole;  /* the window is the whole trace */
    int no_memory; /* sticky; hr__graph_build reports it */
};

/*
 * Builds the graph of the traces of one or several ranks, which must live as long as it. The
 * caller clears *out, also after an error. Errors: -ENODATA: nothing in the window, or no such
 * window; -EINVAL: ranks of different runs; -ENOMEM; -E2BIG: more than 2^32 tasks.
 */
HR_NODISCARD int hr__graph_build(struct hr__graph *out, const struct hr__trace_data *traces,
                                 size_t count, const struct hr__trace_window *window,
                                 struct hr_error *error);
void hr__graph_clear(struct hr__graph *graph);

/* ---- parts of the builder ---- */

/* Return the new index; 0 and no_memory after a failure. */
uint32_t hr__graph_add_task(struct hr__graph *graph, struct hr__graph_task task);
uint32_t hr__graph_add_lane(struct hr__graph *graph, struct hr__lane lane);
void hr__graph_add_edge(struct hr__graph *graph, struct hr__edge edge);

/* graph_events.c: sorts a rank's events and finds their parents, phases and forward operators. */
int hr__rank_events_make(struct hr__rank_events *out, const struct hr__trace_data *trace);
/* Returns the first event of a kind with this correlation; HR__NO_EVENT: none. */
uint32_t hr__rank_events_find(const struct hr__rank_events *events, enum hr__link link,
                              int64_t correlation);
void hr__rank_events_clear(struct hr__rank_events *events);

/* graph_window.c: the part of a trace to replay, in iterations. */
int hr__graph_find_window(struct hr__graph *graph, size_t rank,
                          const struct hr__trace_window *window, struct hr_error *error);

/* graph_threads.c: tasks of a rank's CPU threads, and waits between threads. */
void hr__graph_add_threads(struct hr__graph *graph, size_t rank);
void hr__graph_join_threads(struct hr__graph *graph, size_t rank);

/* graph_gloo.c: tasks of gloo's collectives on threads of a CPU, and waits for them. */
void hr__graph_add_gloo(struct hr__graph *graph, size_t rank);
/* Returns whether a slice is such a collective. */
int hr__trace_is_gloo(const struct hr__trace_data *trace, const struct hr__trace_event *event);

/* graph_streams.c: tasks of a rank's devices, and their launches. */
void hr__graph_add_streams(struct hr__graph *graph, size_t rank);

/* graph_sync.c: what calls and streams waited for; then the lags of a rank's device work. */
void hr__graph_add_syncs(struct hr__graph *graph, size_t rank);
void hr__graph_set_lags(struct hr__graph *graph, size_t rank);

/* graph_ranks.c: the clocks of ranks, and their collectives. */
int hr__graph_align(struct hr__graph *graph, struct hr_error *error);
void hr__graph_join_ranks(struct hr__graph *graph);

/* Returns what a call of CUDA or HIP waits for, by its name. */
enum hr__wait { HR__WAIT_NONE, HR__WAIT_DEVICE, HR__WAIT_STREAM, HR__WAIT_EVENT, HR__WAIT_COPY };
enum hr__wait hr__call_waits(const char *name);

/* Converts a time of a rank's trace to one since the window began. */
static inline int64_t hr__graph_time(const struct hr__graph *graph, size_t rank, int64_t ns)
{
    return ns - graph->ranks[rank].shift_ns - graph->origin_ns;
}

/* Returns the name of a task's event; "": none. */
const char *hr__graph_name(const struct hr__graph *graph, const struct hr__graph_task *task);

static inline const struct hr__trace_event *hr__graph_event(const struct hr__graph *graph,
                                                            const struct hr__graph_task *task)
{
    return &graph->ranks[task->rank].trace->events[task->event];
}

static inline int hr__task_is_device(const struct hr__graph_task *task)
{
    return task->kind >= HR__TASK_KERNEL && task->kind <= HR__TASK_COLLECTIVE;
}

#endif
