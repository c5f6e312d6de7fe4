/*
 * Default options of headrace/stalls.h.
 */
#include "base/versioned.h"
#include "stalls/model/result.h"

#include <math.h>

void hr_stalls_change_init(struct hr_stalls_change *change, size_t size)
{
    static const struct hr_stalls_change defaults = {
        .size = sizeof defaults,
        .cache_share = -1,
        .loader = HR_STALLS_LOADER_SAME,
        .form = HR_FORM_AUTO,
    };
    hr__versioned_default(change, size, &defaults, sizeof defaults);
}

void hr_stalls_schedule_options_init(struct hr_stalls_schedule_options *options, size_t size)
{
    static const struct hr_stalls_schedule_options defaults = {
        .size = sizeof defaults,
        .ranks = 1,
        .batches = 20,
        .settle = 2,
        .max_s = 150,
        .precision = 0.02,
    };
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

void hr_stalls_pace_init(struct hr_stalls_pace *pace, size_t size)
{
    static const struct hr_stalls_pace defaults = {
        .size = sizeof defaults,
        .segment_s = 3,
        .batches = 8,
        .unit = 1,
    };
    hr__versioned_default(pace, size, &defaults, sizeof defaults);
}

void hr_stalls_evidence_init(struct hr_stalls_evidence *evidence, size_t size)
{
    static const struct hr_stalls_evidence defaults = {
        .size = sizeof defaults,
        .read_bytes = NAN,
        .expected_bytes = NAN,
        .cold_bytes = NAN,
        .bytes = NAN,
        .resident_bytes = NAN,
        .busy_s = NAN,
        .steal_s = NAN,
        .run_s = NAN,
        .run_delay_s = NAN,
        .throttled_s = NAN,
        .elapsed_s = NAN,
        .all_s = NAN,
        .waited_s = NAN,
        .queue_ahead = NAN,
        .queue_end = NAN,
        .tries = 1,
        .verified = -1,
        .others = NAN,
    };
    hr__versioned_default(evidence, size, &defaults, sizeof defaults);
}

void hr_stalls_watch_options_init(struct hr_stalls_watch_options *options, size_t size)
{
    static const struct hr_stalls_watch_options defaults = {
        .size = sizeof defaults,
        .warm_up = 5,
        .time_s = 150,
        .precision = 0.02,
        .threads_of_training = 1,
    };
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}
