/* Predictions of scenarios. */
#include "replay/path.h"
#include "replay/scenario.h"

#include "base/error.h"
#include "base/versioned.h"

int hr_replay_predict(struct hr_replay_scenario *s, struct hr_replay_prediction *out,
                      struct hr_error *error)
{
    struct hr__replay_schedule schedule;
    struct hr__shares shares;
    int code = hr__scenario_simulate(&schedule, s, error);
    if (!code) {
        struct hr_replay_prediction result = {
            .iteration_s = (double)schedule.length_ns / 1e9 / s->graph.iterations,
            .recorded_s = (double)s->graph.recorded_ns / 1e9 / s->graph.iterations};
        hr__path_shares(&shares, &s->graph, &schedule);
        for (int k = 0; k < HR_REPLAY_KINDS; k++)
            result.kind[k] = shares.kind[k];
        result.latency = shares.latency;
        hr__versioned_give(out, &result, sizeof result);
    }
    hr__schedule_clear(&schedule);
    return code;
}
