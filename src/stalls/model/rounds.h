/*
 * Computes shares of time from rounds. Both the schedule (to know when intervals are narrow enough)
 * and the analysis (for the result) use this arithmetic.
 *
 * A round holds one segment of each phase, run close together. Differences are taken within a
 * round, so that drift between rounds cancels (paired differences).
 */
#ifndef HR_STALLS_MODEL_ROUNDS_H
#define HR_STALLS_MODEL_ROUNDS_H

#include "stalls/model/interval.h"

/* Phases of a round, each adding one cost to the one before. */
#define HR__ROUND_PHASES 4

/* Seconds of a batch by phase (enum hr_stalls_phase up to COLD); NaN: not measured. */
struct hr__round {
    double seconds[HR__ROUND_PHASES];
};

/*
 * Splits the time of phase `of` over the phases in the bits of `phases`, which include `of`:
 * share[p] is what p adds to the phase before it in `phases`, over the time of `of`. The first
 * phase's share is its whole time. Rounds that lack one of the phases do not count.
 *
 * Values are means over rounds. A negative value is set to 0 (its low too; high stays at what the
 * interval allows, at least 0). To compensate, the phase before is limited to the time of the one
 * after, so that the values sum to 1 exactly: they are multiples of 2^-40, whose sums need no
 * rounding. Shares of phases not in `phases` are all NaN; all shares are NaN if no round counts.
 * Returns the number of rounds that count.
 */
int hr__rounds_share(const struct hr__round *rounds, int count, int phases, enum hr_stalls_phase of,
                     struct hr_interval share[HR__ROUND_PHASES]);

#endif
