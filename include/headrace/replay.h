/*
 * Replay of traces and what-ifs: how long a training iteration would take with a faster kernel, a
 * fused optimizer, no waiting for data ("Daydream", ATC'20).
 *
 * A trace of PyTorch's profiler becomes a graph of tasks: on CPU threads, on the streams of
 * devices, and edges between them. A scenario is a copy of the graph with changes; its prediction
 * is the length of a replay. The replay without changes, the identity, is compared with the trace:
 * with the recorded latencies, which is nearly exact by construction, and with the usual ones,
 * which shows how well the graph explains the trace.
 *
 * All of this is computed from the trace alone: no clock, no threads, the same result everywhere.
 */
#ifndef HEADRACE_REPLAY_H
#define HEADRACE_REPLAY_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Traces that were read, and their graph. Immutable; several threads may use it. */
struct hr_replay;

struct hr_replay_options {
    size_t size;        /* sizeof, set by the caller */
    const char *window; /* replay the annotations whose names contain this; NULL (default): the
                           steps of the profiler, or else the whole trace */
    int instance;       /* which of them, from 0; -1 (default): from the first to the last */
    double limit;       /* predict nothing if the identity's error, or its error with the usual
                           latencies, is above this; default: 0.05 */
};

HR_API void hr_replay_options_init(struct hr_replay_options *options, size_t size);

static inline void hr_replay_options_default(struct hr_replay_options *options)
{
    hr_replay_options_init(options, sizeof *options);
}

/*
 * Reads traces of torch.profiler, plain or gzipped, one of each rank of one run, and builds their
 * graph. A path may be a folder, whose files *.json and *.json.gz are then read. options: NULL for
 * the defaults. On success the caller owns *out. Blocks: about 1 s per million events. Errors: of
 * the files; -EBADMSG: damaged, or no trace, with the place; -ENODATA: nothing to replay, or no
 * such window; -EINVAL: options, or ranks of different runs; -ELOOP: the trace's synchronisations
 * contradict its times; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_replay_open(struct hr_replay **out, const char *const *paths,
                                       size_t count, const struct hr_replay_options *options,
                                       struct hr_error *error);
HR_API void hr_replay_destroy(struct hr_replay **replay);

struct hr_replay_summary {
    size_t size;                   /* sizeof, set by the caller */
    uint64_t tasks, edges, events; /* events: in the files, of all kinds */
    uint32_t ranks, iterations;
    double recorded_s;              /* length of an iteration in the trace */
    double replayed_s;              /* in the identity replay */
    double error;                   /* of the identity, relative */
    double start_median, start_max; /* errors of the tasks' begins, relative to an iteration */
    double usual_error; /* likewise, if each launch and each gap between kernels took the
                           usual time instead of the recorded one */
    double unexplained; /* share of the critical path that no rule of the graph explains */
    int is_trusted;     /* both errors are within the limit */
    uint64_t checked;   /* recorded latencies that `usual_error` replaced; 0: the trace has no work
                           of a device, both errors are 0 by construction and prove nothing */
};

HR_API void hr_replay_summarise(const struct hr_replay *replay, struct hr_replay_summary *out);

/* ---- scenarios ---- */

/* A copy of a graph that can be changed. One thread at a time. */
struct hr_replay_scenario;

/* The replay must outlive it. On success the caller owns *out. Errors: -ENOTSUP: the identity's
 * error, or that with the usual latencies, is above the limit (the message says where it arises);
 * -ENOMEM. */
HR_API HR_NODISCARD int hr_replay_scenario_create(struct hr_replay_scenario **out,
                                                  const struct hr_replay *replay,
                                                  struct hr_error *error);
HR_API void hr_replay_scenario_destroy(struct hr_replay_scenario **scenario);

enum hr_replay_kind {
    HR_REPLAY_OPERATOR, /* an operator's own time on the CPU */
    HR_REPLAY_CALL,     /* a call of CUDA or HIP */
    HR_REPLAY_UNTRACED, /* CPU time without an operator or call: Python */
    HR_REPLAY_RETURN,   /* the end of a blocking call */
    HR_REPLAY_KERNEL,
    HR_REPLAY_COPY, /* by a device */
    HR_REPLAY_SET,
    HR_REPLAY_COLLECTIVE, /* a kernel that communicates */
    HR_REPLAY_INSERTED,   /* by hr_replay_insert */
    HR_REPLAY_KINDS
};

enum hr_replay_phase {
    HR_REPLAY_OTHER,
    HR_REPLAY_DATA, /* waiting for the loader */
    HR_REPLAY_FORWARD,
    HR_REPLAY_BACKWARD,
    HR_REPLAY_OPTIMIZER,
    HR_REPLAY_PHASES
};

/* Which tasks; all conditions must hold. */
struct hr_replay_selector {
    size_t size; /* sizeof, set by the caller */
    const char
        *name; /* extended regular expression (POSIX) found in the task's own name; NULL: any */
    const char
        *within; /* the same in the name of an operator, annotation or module around it, around its
                    launch, or around the forward operator of a backward one; NULL: any */
    uint32_t kinds;  /* a bit 1 << enum hr_replay_kind for each; 0 (default): any */
    uint32_t phases; /* the same of enum hr_replay_phase */
    int64_t stream;  /* of a device; -1 (default): any, and CPU threads */
    int rank;        /* -1 (default): any */
};

HR_API void hr_replay_selector_init(struct hr_replay_selector *selector, size_t size);

static inline void hr_replay_selector_default(struct hr_replay_selector *selector)
{
    hr_replay_selector_init(selector, sizeof *selector);
}

/* Finds tasks. *tasks, numbers in ascending order, belongs to the scenario until its next
 * selection. Errors: -EINVAL: no regular expression; -ENOMEM. */
HR_API HR_NODISCARD int hr_replay_select(struct hr_replay_scenario *scenario,
                                         const struct hr_replay_selector *selector,
                                         const uint32_t **tasks, size_t *count,
                                         struct hr_error *error);

struct hr_replay_task {
    size_t size;      /* sizeof, set by the caller */
    const char *name; /* of the scenario's; "": none */
    int kind, phase;  /* enum hr_replay_kind, enum hr_replay_phase */
    int rank;
    uint32_t lane;    /* number of its thread, stream or channel */
    int64_t begin_ns; /* as recorded, since the window began */
    int64_t length_ns;
    int64_t bytes; /* that a copy or collective moves; operators: of their first input, if shapes
                      were recorded; -1: unknown */
};

/* Describes a task. Errors: -EINVAL: there is none. */
HR_API HR_NODISCARD int hr_replay_task_get(const struct hr_replay_scenario *scenario, uint32_t task,
                                           struct hr_replay_task *out);

/* Multiplies the lengths of tasks. Errors: -EINVAL: a task, or a factor not from 0 to 1e6. */
HR_API HR_NODISCARD int hr_replay_scale(struct hr_replay_scenario *scenario, const uint32_t *tasks,
                                        size_t count, double factor, struct hr_error *error);

/* Removes tasks, and the work on devices that removed calls launched. What waited for them waits
 * for what they waited for. Errors: -EINVAL: a task; -ENOMEM. */
HR_API HR_NODISCARD int hr_replay_remove(struct hr_replay_scenario *scenario, const uint32_t *tasks,
                                         size_t count, struct hr_error *error);

/* A task to insert. */
struct hr_replay_insertion {
    size_t size;         /* sizeof, set by the caller */
    const char *channel; /* runs on this channel, which is made at its first use; NULL: on the
                            thread or stream of after[0], right after it */
    int64_t length_ns;
    const uint32_t *after, *before; /* tasks that it waits for, and that wait for it */
    size_t after_count, before_count;
    int32_t priority; /* on a channel: higher ones run first */
};

/* Inserts a task. Tasks of a channel run one at a time, by priority, then as they are ready.
 * Errors: -EINVAL; -ENOMEM. */
HR_API HR_NODISCARD int hr_replay_insert(struct hr_replay_scenario *scenario,
                                         const struct hr_replay_insertion *insertion,
                                         uint32_t *task, struct hr_error *error);

/* Replaces the schedule of a lane: its tasks run one at a time by priority (of `priorities`, in the
 * order of `tasks`; others 0), no longer in the recorded order. Errors: -EINVAL: no such lane or
 * task; -ENOMEM. */
HR_API HR_NODISCARD int hr_replay_reschedule(struct hr_replay_scenario *scenario, uint32_t lane,
                                             const uint32_t *tasks, const int32_t *priorities,
                                             size_t count, struct hr_error *error);

/*
 * Applies a what-if by its name: "gpu x2", "amp", "remove:relu", "ddp ranks=16 link=25Gbit/s"
 * (headrace-replay(1) lists them). Errors: -EINVAL: unknown, or with wrong arguments; -ENODATA: the
 * trace has nothing that it would change, or lacks what it needs; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_replay_apply(struct hr_replay_scenario *scenario, const char *what_if,
                                        struct hr_error *error);

/* Return whether a text names a what-if ("amp", "kernels:gemm x2"), and whether a word of a command
 * line is an argument of the what-if before it: "x2" of "gpu", "ranks=16" of "ddp". */
HR_API int hr_replay_is_what_if(const char *text);
HR_API int hr_replay_is_argument(const char *what_if, const char *word);

struct hr_replay_prediction {
    size_t size;        /* sizeof, set by the caller */
    double iteration_s; /* predicted */
    double recorded_s;  /* in the trace */
    /* Share of the critical path by kind of task, and of latencies between tasks. */
    double kind[HR_REPLAY_KINDS], latency;
};

/* Replays the scenario. Errors: -ELOOP: the changes make tasks wait for each other; -ERANGE: tasks
 * of more than 100 years; -ENOMEM. */
HR_API HR_NODISCARD int hr_replay_predict(struct hr_replay_scenario *scenario,
                                          struct hr_replay_prediction *out, struct hr_error *error);

/* ---- reports ---- */

/*
 * Makes a report: the identity, where the time of an iteration goes, and what the what-ifs would
 * bring. `what_ifs` are applied one after the other, each on top of those before it. Without any,
 * all that apply are tried one by one and ranked. The caller frees *out with hr_replay_free.
 * JSON: docs/replay.md describes it. Errors: those of hr_replay_apply and hr_replay_predict.
 */
HR_API HR_NODISCARD int hr_replay_report_json(const struct hr_replay *replay,
                                              const char *const *what_ifs, size_t count, char **out,
                                              struct hr_error *error);
HR_API HR_NODISCARD int hr_replay_report_text(const struct hr_replay *replay,
                                              const char *const *what_ifs, size_t count,
                                              int columns, char **out, struct hr_error *error);
HR_API void hr_replay_free(char *text);

/* Writes the same report as one HTML file that needs no network, with an iteration before and after
 * over time. Its size is bounded, whatever the trace's. path: "-" is standard output. Errors: those
 * of hr_replay_report_json; of the file. */
HR_API HR_NODISCARD int hr_replay_write_page(const struct hr_replay *replay,
                                             const char *const *what_ifs, size_t count,
                                             const char *path, struct hr_error *error);

/* Writes the predicted run as a trace in Chrome's JSON, which Perfetto opens. path: "-" is standard
 * output. Errors: those of hr_replay_predict; of the file. */
HR_API HR_NODISCARD int hr_replay_write_trace(struct hr_replay_scenario *scenario, const char *path,
                                              struct hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
