/* Traces written by hand, for the tests of replay. Times are microseconds. */
#ifndef HR_TEST_TRACES_H
#define HR_TEST_TRACES_H

#include "replay/scenario.h"

/* A trace that grows; at most 64 KiB. */
struct trace_text {
    char text[65536];
    size_t length;
};

/* Adds an event. `args`: "" or members of args, with a comma between them. */
void trace_add(struct trace_text *t, const char *category, const char *name, const char *thread,
               double begin_us, double length_us, const char *args);

/* On the CPU thread 1. */
void trace_op(struct trace_text *t, const char *name, double begin_us, double length_us);
void trace_call(struct trace_text *t, const char *name, int correlation, double begin_us,
                double length_us);
/* On stream 7 of device 0. */
void trace_kernel(struct trace_text *t, const char *name, int correlation, double begin_us,
                  double length_us);

/* Ends and parses the trace. */
void trace_parse(struct trace_text *t, struct hr__trace_data *out);

/* A GPU training step: two operators launch a kernel each; the second one waits for the first one;
 * the CPU waits for both. The window is [0, 200]. */
void trace_step(struct trace_text *t);

/* Ends, writes and opens a trace, which is freed; the caller destroys the replay. */
struct hr_replay *trace_open(struct trace_text *t, double limit);

/* Predicts an iteration, in microseconds, with what-ifs one upon the other; NULL ends them. */
double trace_predict_us(const struct hr_replay *of, const char *const *what_ifs);

/* Parses, builds and replays; the caller clears both. */
void trace_replay(struct trace_text *t, struct hr__trace_data *trace, struct hr__graph *graph,
                  struct hr__replay_schedule *schedule);

#endif
