/*
 * Plans of pipelines: how to divide a network into stages, with how many replicas, which
 * microbatch and which schedule, so that given GPUs train it fastest (PipeDream-2BW, ICML'21).
 *
 * A profile has the times and bytes of each layer (docs/pipelines.md). A plan is a pure function of
 * the profile and the options.
 */
#ifndef HEADRACE_PLAN_H
#define HEADRACE_PLAN_H

#include <headrace/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order in which the stages of a pipeline run the microbatches of a batch. */
enum hr_plan_schedule {
    HR_PLAN_GPIPE = 0,       /* all forward passes, then all backward passes; then a flush */
    HR_PLAN_1F1B = 1,        /* forward and backward passes by turns; then a flush */
    HR_PLAN_INTERLEAVED = 2, /* the same, with several parts of the network on each GPU */
    HR_PLAN_2BW = 3,         /* as 1F1B without a flush: two versions of the weights */
};

#define HR_PLAN_SCHEDULES 4
#define HR_PLAN_ANY       (-1)

/* "gpipe", "1f1b", "interleaved", "2bw"; NULL: no such schedule. */
HR_API const char *hr_plan_schedule_name(enum hr_plan_schedule schedule);

struct hr_plan_options {
    size_t size;                /* sizeof, set by the caller */
    int gpus;                   /* at most so many; required */
    int gpus_per_server;        /* 0 (default): all are in one server */
    int batch;                  /* most samples of a batch, over all replicas; required */
    uint64_t memory_bytes;      /* of each GPU; 0 (default): unlimited */
    double link_bytes_per_s;    /* of each GPU's link within a server; 0 (default): transfers take
                                   no time */
    double network_bytes_per_s; /* between servers; 0 (default): as within one */
    double state_ratio;         /* bytes of the optimizer's state over those of the weights;
                                   default: 2, Adam's */
    double gradient_ratio;      /* bytes of gradients over those of the weights; default: 1 */
    int rows;                   /* most plans in the result; default: 10 */

    /* What is given; HR_PLAN_ANY (default): what is fastest. */
    int schedule; /* enum hr_plan_schedule */
    int stages, replicas;
    int microbatch; /* samples; one of the profile's */
    int recompute;  /* 1: keep a stage's input only, and run its forward pass again before its
                       backward pass; 0: keep everything */
    int chunks;     /* parts of the network on each GPU, of the interleaved schedule */
};

HR_API void hr_plan_options_init(struct hr_plan_options *options, size_t size);

static inline void hr_plan_options_default(struct hr_plan_options *options)
{
    hr_plan_options_init(options, sizeof *options);
}

/* Plans, the fastest first. Immutable; several threads may use it. */
struct hr_plan;

/*
 * Reads a profile (JSON of `length` bytes; `name` is what messages call it) and plans. A profile
 * for which nothing fits gives a result without plans that says why. On success the caller owns
 * *out. Any thread. Errors: -EINVAL: the profile or the options, with the place; -ENOTSUP: a
 * profile of another version; -E2BIG: too many microbatches to simulate; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_plan_make(struct hr_plan **out, const char *text, size_t length,
                                     const char *name, const struct hr_plan_options *options,
                                     struct hr_error *error);
HR_API void hr_plan_destroy(struct hr_plan **plan);

/* Returns how many plans there are: 0: nothing fits. */
HR_API int hr_plan_count(const struct hr_plan *plan);

/* The whole result as JSON (docs/pipelines.md); the plan owns the text. */
HR_API const char *hr_plan_json(const struct hr_plan *plan);

/* Write the result as text of at most `columns` (40 to 160) columns, as one HTML page that needs no
 * network, or the first plan's run as a trace for Perfetto. path: "-" is standard output. Errors:
 * of the file; -ENODATA: a trace of no plan; -ENOMEM. */
HR_API HR_NODISCARD int hr_plan_write_text(const struct hr_plan *plan, const char *path,
                                           int columns, struct hr_error *error);
HR_API HR_NODISCARD int hr_plan_write_page(const struct hr_plan *plan, const char *path,
                                           struct hr_error *error);
HR_API HR_NODISCARD int hr_plan_write_trace(const struct hr_plan *plan, const char *path,
                                            struct hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
