/*
 * Internals shared by the files that make a result: creating, reading and joining it, and the steps
 * that derive figures. result.h is the interface for other directories.
 */
#ifndef HR_STALLS_MODEL_INSIDE_H
#define HR_STALLS_MODEL_INSIDE_H

#include "stalls/model/result.h"
#include "stalls/model/rounds.h"

/* ---- life (life.c) ---- */

/* Creates an empty result; NULL: out of memory. */
struct hr_stalls *hr__stalls_create(void);
/* Free what the struct owns, but not the struct. */
void hr__texts_destroy(char **texts, size_t count);
void hr__stalls_drop_derived(struct hr_stalls *stalls);

/* ---- reading and joining ---- */

/* Reads a record as a result of one rank, nothing derived (record_json.c). Errors: -EINVAL;
 * -ENOTSUP, an unknown version; -ENOMEM. */
HR_NODISCARD int hr__stalls_read_record(struct hr_stalls **out, const char *text, size_t length,
                                        const char *where, struct hr_error *error);

/* Moves the contents of `parts` into one result, nothing derived (merge.c); after that `parts` can
 * only be destroyed. `kind` names a part in messages: "record 2". Errors: -EINVAL, -ENOMEM. */
HR_NODISCARD int hr__stalls_join(struct hr_stalls **out, struct hr_stalls **parts, int count,
                                 const char *kind, struct hr_error *error);

/* ---- deriving ---- */

/* Segments of all ranks, joined: the k-th segment of every rank is the same one. */
struct hr__joined {
    size_t segments;         /* number that every rank has */
    int rounds;              /* number of entries in the next three members, at least 1 */
    struct hr__round *round; /* seconds of a global batch, of the slowest rank; NaN: no such
                                segment, or it does not count */
    double *samples[HR__ROUND_PHASES]; /* of a global batch, by round; NaN as above */
    double scale;                      /* ranks of the run over ranks present */
};
/* Also fills summary.measured and phase_reason. Errors: -EINVAL if ranks did not run the same
 * segments; -ENOMEM. */
HR_NODISCARD int hr__joined_make(struct hr__joined *joined, struct hr_stalls *stalls,
                                 struct hr_error *error);
void hr__joined_destroy(struct hr__joined *joined);

/* Derives the rates: G per phase, P, F and CPU times (rates.c). */
void hr__derive_rates(struct hr_stalls *stalls, double scale);

/* Cross-checks the measurements: a phase that fails counts as not measured (checks.c). */
void hr__derive_checks(struct hr_stalls *stalls);

/* Derives waiting, straggles and alone_s, whose arrays exist (ranks.c). Errors: -ENOMEM. */
HR_NODISCARD int hr__derive_ranks(struct hr_stalls *stalls, const struct hr__joined *joined,
                                  struct hr_error *error);

/* Returns the share of an epoch's time that passes before its first batch, if batches load as in
 * `phase`. 0: not every epoch has such a wait, or it is negligible. */
double hr__epoch_start_share(const struct hr_stalls *stalls, enum hr_stalls_phase phase);

/* Writes the sentence from everything else (sentence.c). Errors: -ENOMEM. */
HR_NODISCARD int hr__derive_sentence(struct hr_stalls *stalls, struct hr_error *error);

/* Searches with the model for what would remove the stall and adds it to the sentence of a freshly
 * analysed result (advise.c). May take seconds. Errors: -ENOMEM. */
HR_NODISCARD int hr__stalls_advise(struct hr_stalls *stalls, struct hr_error *error);

/* Average bytes of a sample's file; bytes of all samples' files. NaN: unknown. */
double hr__mean_bytes(const struct hr_stalls *stalls);
double hr__dataset_bytes(const struct hr_stalls *stalls);

/* Returns whether the samples are at URLs: no memory of this machine keeps them, but a loader's
 * cache (rates.c). */
bool hr__is_at_urls(const struct hr_stalls *stalls);

/* Returns the most reads that one rank of Headrace's loader keeps in flight (rates.c). */
int hr__headrace_depth(const struct hr_stalls *stalls);

#endif
