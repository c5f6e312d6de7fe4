/*
 * How many reads to keep in flight: the fewest that reach 95 % of the bandwidth
 * that the device gives at any depth. More would only wait longer in its queue, with
 * their buffers; fewer leave it idle.
 *
 * A pure function of what is noted: no clock, no memory, no threads. A search
 * begins at the deepest and goes down a ladder of depths (1, 2, 3, 4, 6, 8, 12, ...)
 * for as long as bandwidth stays. Each step is a duel in windows of some
 * tens of milliseconds, in the order ABBA, between the best depth so far and the
 * one tried, so that a device that drifts, or another job on it, does not decide.
 * Then what was found is kept for a while: seconds, in the end a minute, or until the
 * bandwidth is suddenly another one; and the search begins anew.
 *
 * Time counts only while as many reads are in flight as are allowed: otherwise it is
 * the demand that is measured and not the device. Where demand is the lower of the two,
 * nothing is learnt and nothing changes.
 *
 * Depth bounds reads, not bytes: who submits them bounds those (the loader by its
 * staging budget).
 */
#ifndef HR_STORAGE_DEPTH_H
#define HR_STORAGE_DEPTH_H

#include <stdint.h>

/* What came back in some time. */
struct hr__depth_sum {
    uint64_t bytes;
    uint64_t ns;
    unsigned reads;
};

/* For one thread. */
struct hr__depth {
    unsigned most; /* reads in flight at most */
    unsigned top;  /* the ladder's highest rung, which is `most` */
    unsigned now;  /* reads in flight that are allowed now */
    int searching; /* or resting */

    unsigned chosen;              /* rung: the lowest of which is known that it suffices */
    unsigned previous;            /* rung that the last search chose */
    unsigned best;                /* rung with the most bandwidth so far in this search */
    unsigned trial;               /* rung that is compared with it */
    unsigned step;                /* rungs down to the next trial: 2, and 1 at last */
    unsigned windows;             /* of this duel that have been measured */
    struct hr__depth_sum duel[2]; /* of `best` and of `trial` */

    struct hr__depth_sum window; /* being measured; at rest, a longer one */
    unsigned turnover;           /* reads to come back before it counts: they were
                                    submitted at another depth */
    uint64_t noted_ns;           /* time of the last note; 0: none */
    double rest_rate;            /* bytes per ns at this rest's beginning; 0: not known */
    uint64_t rested_ns, rest_ns; /* so far, and until the next search */
};

/* `most`: 1 to 1024. Begins at it; with 1 there is nothing to find. */
void hr__depth_init(struct hr__depth *depth, unsigned most);

/* Since the last note `reads` have come back, with `bytes` in all, and `in_flight` were
 * in flight before the first of them. Time in which nobody wanted to read ends with
 * a note of no reads and none in flight. now_ns: a clock that does not go back;
 * what it says in between does not matter. */
void hr__depth_note(struct hr__depth *depth, unsigned in_flight, unsigned reads, uint64_t bytes,
                    uint64_t now_ns);

/* Reads in flight that are allowed, 1 to `most`. Where more are, submit none
 * until enough have come back. */
static inline unsigned hr__depth_now(const struct hr__depth *depth)
{
    return depth->now;
}

#endif
