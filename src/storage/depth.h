/*
 * Finds how many reads to keep in flight: the lowest depth that reaches 95 % of the best bandwidth
 * the device gives at any depth. At a higher depth, reads only wait longer in the device's queue
 * and occupy buffers; at a lower one, the device idles.
 *
 * The result depends only on the calls of hr__depth_note: no clock, no allocation, no threads. A
 * search starts at the highest depth and goes down a ladder of depths (1, 2, 3, 4, 6, 8, 12, ...)
 * while the bandwidth holds. Each step compares the best depth so far with a trial depth. It
 * measures them alternately, in the order ABBA, in windows of some tens of milliseconds, so that
 * drift of the device or another job on it does not bias the result. The depth found is then kept
 * for a while: seconds at first, up to a minute later, or until the bandwidth changes abruptly.
 * Then the next search begins.
 *
 * Only time with nearly all allowed reads in flight counts; otherwise demand would be measured, not
 * the device. If demand stays below the allowed depth, nothing is measured and nothing changes.
 *
 * Depth limits the number of reads, not bytes. The caller that submits reads limits their bytes
 * (the loader does so with its staging budget).
 */
#ifndef HR_STORAGE_DEPTH_H
#define HR_STORAGE_DEPTH_H

#include <stdint.h>

/* What completed within a period. */
struct hr__depth_sum {
    uint64_t bytes;
    uint64_t ns;
    unsigned reads;
};

/* State of the search. Used by one thread. */
struct hr__depth {
    unsigned most; /* highest depth allowed */
    unsigned top;  /* the ladder's highest rung; its depth is `most` */
    unsigned now;  /* reads in flight allowed now */
    int searching; /* 0: resting */

    unsigned chosen;              /* rung: the lowest known to suffice */
    unsigned previous;            /* rung that the previous search chose */
    unsigned best;                /* rung with the most bandwidth so far in this search */
    unsigned trial;               /* rung compared with `best` */
    unsigned step;                /* rungs down to the next trial: 2, finally 1 */
    unsigned windows;             /* windows of this comparison measured so far */
    struct hr__depth_sum duel[2]; /* sums for `best` and for `trial` */

    struct hr__depth_sum window; /* the current window; longer at rest */
    unsigned turnover;           /* reads that must complete before the window counts, because they
                                  * were submitted at another depth */
    uint64_t noted_ns;           /* time of the last note; 0: none */
    double rest_rate;            /* bytes per ns at the start of this rest; 0: unknown */
    uint64_t rested_ns, rest_ns; /* rest so far, and its length */
};

/* Initialises the search at depth `most` (1 to 1024). With 1 there is nothing to search for. */
void hr__depth_init(struct hr__depth *depth, unsigned most);

/* Notes that since the last call `reads` reads completed, with `bytes` bytes in all. `in_flight`
 * reads were in flight before the first of them completed. To end a period without demand, call it
 * with no reads and none in flight. now_ns: the time by any clock that does not go back. */
void hr__depth_note(struct hr__depth *depth, unsigned in_flight, unsigned reads, uint64_t bytes,
                    uint64_t now_ns);

/* Returns the number of reads allowed in flight, 1 to `most`. While more are in flight, submit
 * none. */
static inline unsigned hr__depth_now(const struct hr__depth *depth)
{
    return depth->now;
}

#endif
