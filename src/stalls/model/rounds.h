/*
 * Shares of time out of rounds: the arithmetic that the schedule (to know when it is
 * narrow enough) and the analysis (to say what it is) have in common.
 *
 * A round holds one segment of each phase, run close together, so that differences are
 * taken within a round: what drifts between rounds cancels (paired differences).
 */
#ifndef HR_STALLS_MODEL_ROUNDS_H
#define HR_STALLS_MODEL_ROUNDS_H

#include "stalls/model/interval.h"

/* Phases of a round, in the order in which each adds to the one before. */
#define HR__ROUND_PHASES 4

/* Seconds of a batch by phase (enum hr_stalls_phase up to COLD); NaN: not measured. */
struct hr__round {
    double seconds[HR__ROUND_PHASES];
};

/*
 * Splits the time of phase `of` over the phases in the bits of `phases`, `of` included:
 * share[p] is what p adds to the phase before it in `phases`, over the time of `of`; the
 * first one's is its whole time. Rounds that lack one of the phases do not count.
 *
 * Values are the mean over rounds. A negative one is set to 0 (its low too; high stays at
 * what the interval allows, at least 0), and what it took away is made up by limiting the
 * phase before to the time of the one after, so the values sum to 1 exactly: they are
 * multiples of 2^-40, of which sums have no rounding. Shares of phases not in `phases`
 * are all NaN; all are where no round counts. Returns the number of rounds that count.
 */
int hr__rounds_share(const struct hr__round *rounds, int count, int phases, enum hr_stalls_phase of,
                     struct hr_interval share[HR__ROUND_PHASES]);

#endif
