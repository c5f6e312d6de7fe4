/*
 * What the files that make a result share: its life, its reading, its parts' joining, and
 * the steps of what is derived. result.h is what other rooms see.
 */
#ifndef HR_STALLS_MODEL_INSIDE_H
#define HR_STALLS_MODEL_INSIDE_H

#include "stalls/model/result.h"
#include "stalls/model/rounds.h"

/* ---- life (result.c) ---- */

/* Empty; NULL: out of memory. */
struct hr_stalls *hr__stalls_create(void);
/* What the struct owns, not itself. */
void hr__texts_destroy(char **texts, size_t count);
void hr__stalls_drop_derived(struct hr_stalls *stalls);
/* What was recorded, without what is derived. Errors: -ENOMEM. */
HR_NODISCARD int hr__stalls_copy(struct hr_stalls **out, const struct hr_stalls *from,
                                 struct hr_error *error);

/* ---- reading and joining ---- */

/* A record as a result of one rank, nothing derived (record_json.c). Errors: -EINVAL,
 * -ENOTSUP, a version that is not known, -ENOMEM. */
HR_NODISCARD int hr__stalls_read_record(struct hr_stalls **out, const char *text, size_t length,
                                        const char *where, struct hr_error *error);

/* Moves what `parts` hold into one result, nothing derived (merge.c); they can then only
 * be destroyed. `kind` is what they are in messages: "record 2". Errors: -EINVAL, -ENOMEM. */
HR_NODISCARD int hr__stalls_join(struct hr_stalls **out, struct hr_stalls **parts, int count,
                                 const char *kind, struct hr_error *error);

/* ---- deriving ---- */

/* Segments of all ranks, joined: the k-th of every rank is the same segment. */
struct hr__joined {
    size_t segments;         /* that every rank has */
    int rounds;              /* length of the next three, at least 1 */
    struct hr__round *round; /* seconds of a global batch: that of the slowest rank; NaN where
                                there is none, or it does not count */
    double *samples[HR__ROUND_PHASES]; /* of a global batch, by round; NaN as above */
    double scale;                      /* ranks of the run over those that are here */
};
/* Errors: -EINVAL, ranks did not run the same segments; -ENOMEM. Fills in
 * summary.measured and phase_reason too. */
HR_NODISCARD int hr__joined_make(struct hr__joined *joined, struct hr_stalls *stalls,
                                 struct hr_error *error);
void hr__joined_destroy(struct hr__joined *joined);

/* G is a phase's rate; P, F and CPU times (rates.c). */
void hr__derive_rates(struct hr_stalls *stalls, double scale);

/* Cross-checks of what was measured: phases that fail are not measured (checks.c). */
void hr__derive_checks(struct hr_stalls *stalls);

/* waiting, straggles and alone_s, whose arrays are there (ranks.c). Errors: -ENOMEM. */
HR_NODISCARD int hr__derive_ranks(struct hr_stalls *stalls, const struct hr__joined *joined,
                                  struct hr_error *error);

/* Share of an epoch's time, its batches loaded as in `phase`, that passes before its first batch;
 * 0: not each epoch has such a wait, or it is not worth a word. */
double hr__epoch_start_share(const struct hr_stalls *stalls, enum hr_stalls_phase phase);

/* The sentence out of everything else (sentence.c). Errors: -ENOMEM. */
HR_NODISCARD int hr__derive_sentence(struct hr_stalls *stalls, struct hr_error *error);

/* Asks the model what would remove the stall and says it in the sentence (advise.c): of a
 * result just analysed. May take seconds. Errors: -ENOMEM. */
HR_NODISCARD int hr__stalls_advise(struct hr_stalls *stalls, struct hr_error *error);

/* Bytes of a sample's file, on average; and of all samples' files; NaN: not known. */
double hr__mean_bytes(const struct hr_stalls *stalls);
double hr__dataset_bytes(const struct hr_stalls *stalls);

/* Reads in flight of the loader on a host (of its ranks that are here). */
int hr__loader_depth(const struct hr_stalls *stalls, const struct hr__host_record *host);

#endif
