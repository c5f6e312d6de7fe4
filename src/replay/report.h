/* What a report on a replay says: found once, written as JSON and as text. */
#ifndef HR_REPLAY_REPORT_H
#define HR_REPLAY_REPORT_H

#include "base/draft.h"
#include "replay/path.h"
#include "replay/scenario.h"

/* The outcome of a what-if. */
struct hr__replay_outcome {
    const char *text;               /* as it was asked for; borrowed */
    const struct hr__what_if *what; /* its entry of the table */
    double iteration_s;
    struct hr__shares shares; /* of the critical path after it */
};

struct hr__report {
    const struct hr_replay *replay;
    struct hr_replay_summary summary;
    struct hr__shares shares;
    int is_ranked; /* all that apply, the best first; else one after the other */
    struct hr__replay_outcome *outcomes;
    size_t count;
    struct hr__draft notes; /* lines */
};

/* The caller clears *out, also after an error. Errors: those of hr_replay_report_json. */
HR_NODISCARD int hr__report_make(struct hr__report *out, const struct hr_replay *replay,
                                 const char *const *what_ifs, size_t count, struct hr_error *error);
void hr__report_clear(struct hr__report *report);

/* Where time goes, for people: the kinds of a critical path with the largest shares, at most
 * `most`: "kernels 63 %, CUDA calls 22 %". */
void hr__report_shares(struct hr__draft *draft, const struct hr__shares *shares, int most);

/* Returns the words for a kind of task; HR__TASK_KINDS: latencies, HR__TASK_KINDS + 1: data. */
const char *hr__report_kind(int kind);

/* Returns the share of such a kind; waiting for data is divided from the rest of the CPU's time. */
double hr__report_share(const struct hr__shares *shares, int kind);

/* One plain sentence: where an iteration's time goes, and what would change it most. */
void hr__report_sentence(struct hr__draft *draft, const struct hr__report *report);

#endif
