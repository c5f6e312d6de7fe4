/* A copy of a graph that what-ifs change; see include/headrace/replay.h. */
#ifndef HR_REPLAY_SCENARIO_H
#define HR_REPLAY_SCENARIO_H

#include "replay/simulate.h"

#include <headrace/replay.h>

struct hr_replay {
    struct hr__trace_data *traces;
    size_t trace_count;
    struct hr__graph graph;
    struct hr__replay_schedule schedule; /* the identity's */
    struct hr__replay_identity identity;
    double limit;
};

/* A channel that was inserted. */
struct hr__replay_channel {
    char *name;
    uint32_t lane;
};

/* How gradients are exchanged and applied in a scenario; see what_if_exchange.c. */
struct hr__exchange {
    int is_made;
    double fixed_s, byte_s;           /* of an all-reduce: its latency, and each byte */
    double first_bytes, bucket_bytes; /* of the first bucket, of the others */
    double ratio, codec_bytes_per_s;  /* compressed bytes over all; 0: compressing is free */
    double rounds;                    /* all-reduces of a bucket, one after the other */
    double ranks, link_bytes_per_s;   /* of ddp; 0: the trace's own exchange */
    double latency_s;                 /* of ddp */
    double slice_bytes;               /* priorities: of a slice; 0: buckets in their order */
    int64_t *update_ns;               /* by pass: of the optimizer, while gradients are exchanged;
                                         NULL: after all of them; owned */
    uint32_t *tasks;                  /* that were inserted; owned */
    size_t task_count;
};

struct hr_replay_scenario {
    const struct hr_replay *replay;
    struct hr__graph graph; /* tasks, edges and lanes are its own; ranks are the replay's */
    int32_t *priority;      /* by task; NULL: all 0; owned */
    size_t priority_count;
    uint32_t *selected; /* of the last selection */
    struct hr__replay_channel *channels;
    size_t channel_count;
    struct hr__exchange exchange;
    double packets_most; /* that loss-tolerance may simulate */
    int is_on_network; /* loss-tolerance was applied: later changes of the exchange would undo it */
};

/* The tasks that a selection marks: a byte per task. */
struct hr__task_marks {
    uint8_t *is_marked;
    size_t count; /* marked ones */
};

/* Marks tasks; the caller frees is_marked. Errors: those of hr_replay_select. */
HR_NODISCARD int hr__select(struct hr__task_marks *out, const struct hr__graph *graph,
                            const struct hr_replay_selector *selector, struct hr_error *error);

/* Change marked tasks. */
void hr__scale(struct hr__graph *graph, const uint8_t *is_marked, double factor);
void hr__remove(struct hr__graph *graph, uint8_t *is_marked);

/* Inserts a task on the lane of `after`, right after it. Errors: -ENOMEM. */
HR_NODISCARD int hr__insert_after(struct hr__graph *graph, uint32_t after,
                                  struct hr__graph_task task, uint32_t *out);

/* Replays a scenario. The caller clears *out, also after an error. */
HR_NODISCARD int hr__scenario_simulate(struct hr__replay_schedule *out,
                                       struct hr_replay_scenario *scenario, struct hr_error *error);

/* Names a lane for people. */
void hr__scenario_lane_name(const struct hr_replay_scenario *scenario, uint32_t lane, char *out,
                            size_t capacity);

/* A what-if of the table. */
struct hr__what_if {
    const char *name;     /* "amp"; after "kernels:" and "bucket=" more follows */
    const char *example;  /* with its arguments */
    const char *assumes;  /* what a prediction takes for granted */
    const char *source;   /* of that: a paper, documentation, or that it is a definition */
    const char *tried[2]; /* as advice tries it without being asked; NULL: not so */
    const char *needs;    /* what a user must say where advice does not try it */
    int needs_factor;     /* "x2" */
    int (*apply)(struct hr_replay_scenario *scenario, const char *pattern, double factor,
                 struct hr_error *error);
    const char *keys; /* of its arguments, " ranks= link="; NULL: it takes none */
};

/* The what-if fused-optimizer; see what_if_optimizer.c. */
int hr__apply_optimizer(struct hr_replay_scenario *scenario, const char *pattern, double factor,
                        struct hr_error *error);

/* The what-ifs about the exchange of gradients; see what_if_exchange.c. */
int hr__apply_ddp(struct hr_replay_scenario *scenario, const char *pattern, double factor,
                  struct hr_error *error);
int hr__apply_bucket(struct hr_replay_scenario *scenario, const char *pattern, double factor,
                     struct hr_error *error);
int hr__apply_compress(struct hr_replay_scenario *scenario, const char *pattern, double factor,
                       struct hr_error *error);
int hr__apply_priority(struct hr_replay_scenario *scenario, const char *pattern, double factor,
                       struct hr_error *error);
int hr__apply_overlap(struct hr_replay_scenario *scenario, const char *pattern, double factor,
                      struct hr_error *error);

/* The what-if loss-tolerance; see what_if_network.c. */
int hr__apply_network(struct hr_replay_scenario *scenario, const char *pattern, double factor,
                      struct hr_error *error);

/* The what-ifs about memory; see what_if_memory.c. */
int hr__apply_offload(struct hr_replay_scenario *scenario, const char *pattern, double factor,
                      struct hr_error *error);
int hr__apply_recompute(struct hr_replay_scenario *scenario, const char *pattern, double factor,
                        struct hr_error *error);

/* An argument of a what-if, "ranks=16". */
enum hr__argument_kind {
    HR__ARGUMENT_COUNT,
    HR__ARGUMENT_REAL,
    HR__ARGUMENT_BYTES,
    HR__ARGUMENT_SPEED,
    HR__ARGUMENT_TIME,
    HR__ARGUMENT_TEXT
};

struct hr__argument {
    const char *key;
    enum hr__argument_kind kind;
    int is_needed, is_given;
    double value; /* bytes, bytes per second, seconds; preset: the default */
    char text[256];
};

/* Takes the words of a what-if, "ranks=16 link=25Gbit/s". Errors: -EINVAL. */
HR_NODISCARD int hr__arguments_take(struct hr__argument *arguments, size_t count, const char *words,
                                    struct hr_error *error);

extern const struct hr__what_if hr__what_ifs[];
extern const size_t hr__what_if_count;

/* Finds the what-if that a text names; NULL with a message. */
const struct hr__what_if *hr__what_if_find(const char *text, struct hr_error *error);

#endif
