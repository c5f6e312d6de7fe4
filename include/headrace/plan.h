/*
 * Plans of pipelines: how to divide a network into stages, with how many replicas, which
 * microbatch and which schedule, so that given GPUs train it fastest (PipeDream-2BW, ICML'21).
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

/* "gpipe", "1f1b", "interleaved", "2bw"; NULL: no such schedule. */
HR_API const char *hr_plan_schedule_name(enum hr_plan_schedule schedule);

#ifdef __cplusplus
}
#endif

#endif
