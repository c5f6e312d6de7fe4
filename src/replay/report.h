/* What a report on a replay says: found once, written as JSON and as text. */
#ifndef HR_REPLAY_REPORT_H
#define HR_REPLAY_REPORT_H

#include "base/draft.h"
#include "replay/path.h"
#include "replay/scenario.h"
#include "report/table.h"

/* What holds an iteration back most: the kind of time with the largest share of its critical path,
 * and the name with the largest share of that kind. */
struct hr__bottleneck {
    int kind; /* as for hr__report_kind */
    double share;
    struct hr__path_name name; /* name.name NULL: none */
};

/* The outcome of a what-if. */
struct hr__replay_outcome {
    const char *text;               /* as it was asked for; borrowed */
    const struct hr__what_if *what; /* its entry of the table */
    double iteration_s;
    struct hr__shares shares; /* of the critical path after it */
    struct hr__bottleneck bottleneck;
};

/* A what-if that was not tried. */
struct hr__replay_untried {
    const char *text; /* of the table */
    char *why;        /* owned */
};

struct hr__report {
    const struct hr_replay *replay;
    struct hr_replay_summary summary;
    struct hr__shares shares; /* of the critical path without a change */
    struct hr__bottleneck bottleneck;
    struct hr__path_name *names; /* of that path */
    size_t name_count;
    int is_ranked; /* all that apply, the best first; else one after the other */
    struct hr__replay_outcome *outcomes;
    size_t count;
    struct hr__replay_untried *untried; /* if all that apply were tried */
    size_t untried_count;
    struct hr__draft notes; /* lines */
};

/* The caller clears *out, also after an error. Errors: those of hr_replay_report_json. */
HR_NODISCARD int hr__report_make(struct hr__report *out, const struct hr_replay *replay,
                                 const char *const *what_ifs, size_t count, struct hr_error *error);
void hr__report_clear(struct hr__report *report);

/* Adds a name for people, one that C++ has made long is cut. */
void hr__report_name(struct hr__draft *draft, const char *name);

/* Adds a bottleneck for people: "CUDA calls 67 % (cudaLaunchKernel)". */
void hr__report_bottleneck(struct hr__draft *draft, const struct hr__bottleneck *bottleneck);

/* Returns the outcome that a picture shows: the best one, if it is worth it, or the last one in a
 * row; NULL: none. */
const struct hr__replay_outcome *hr__report_shown(const struct hr__report *report);

/* Where time goes, for people: the kinds of a critical path with the largest shares, at most
 * `most`: "kernels 63 % (gemm), CUDA calls 22 %". name: what most of the first one is; NULL: not
 * said. */
void hr__report_shares(struct hr__draft *draft, const struct hr__shares *shares, int most,
                       const char *name);

/* Returns the words for a kind of task; HR__TASK_KINDS: latencies, HR__TASK_KINDS + 1: data. */
const char *hr__report_kind(int kind);

/* Returns the share of such a kind; waiting for data is divided from the rest of the CPU's time. */
double hr__report_share(const struct hr__shares *shares, int kind);

/* One plain sentence: where an iteration's time goes, and what would change it most. */
void hr__report_sentence(struct hr__draft *draft, const struct hr__report *report);

enum hr__replay_table {
    HR__REPORT_PATH,     /* the critical path by kind of time */
    HR__REPORT_NAMES,    /* its names with the largest shares */
    HR__REPORT_OUTCOMES, /* of the what-ifs */
    HR__REPORT_TABLES
};

/* Adds what an outcome changes: "-17.1 %". */
void hr__report_change(struct hr__draft *draft, const struct hr__report *report,
                       const struct hr__replay_outcome *outcome);

/* Makes a table; `is_whole`: with the whole bottlenecks, which are too wide for a terminal. The
 * caller clears *out. */
void hr__report_table(struct hr__table *out, enum hr__replay_table which,
                      const struct hr__report *report, bool is_whole);

/* Adds the critical path and the bottleneck after a what-if, as a sentence. */
void hr__report_after(struct hr__draft *draft, const struct hr__replay_outcome *outcome);

/* Adds what a what-if assumes, and its source, as sentences. */
void hr__report_basis(struct hr__draft *draft, const struct hr__what_if *what);

/* Adds the i-th what-if that was not tried, with all others that were not for the same reason, as a
 * sentence. Returns false, and adds nothing, if an earlier one has told it. */
bool hr__report_untried(struct hr__draft *draft, const struct hr__report *report, size_t i);

/* Adds how far to trust the replay, as one paragraph. */
void hr__report_identity(struct hr__draft *draft, const struct hr__report *report);

#endif
