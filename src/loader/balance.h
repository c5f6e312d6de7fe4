/*
 * How the ranks of a machine share it: what each should use of threads and reads, from what all of
 * them say of themselves.
 *
 * The ranks of synchronous training wait for the slowest of them, so what a rank has in stock
 * beyond the others' is of no use to anybody. Each rank says how many batches it has ready, how
 * often its consumer takes one, and since when that waits. From this follows its slack: the time
 * for which its stock lasts, negative while its consumer waits. Smoothed over some batches, slacks
 * are compared: a rank whose slack is greater than the most urgent one's by more than a batch's
 * time, while that one runs short, is ahead. It halves its reads in flight, and gives up a worker,
 * which the most urgent rank takes: only if it would still prepare a batch clearly sooner than the
 * other does now, by the work that their batches take, so that the longest time becomes shorter
 * with each worker that moves and none moves to and fro; and one in a batch's time, so that its
 * effect is seen first. A rank is no longer ahead when the difference has fallen to half of that.
 * Between ranks with equal work no worker ever moves.
 *
 * Nobody decides for others: each rank does for itself, every HR__BALANCE_NS. Sums are kept by
 * counting: a worker is taken only where all ranks together have fewer than they began with, and
 * given back where they have more (two may take the same one; somebody may have died).
 *
 * Pure: no clock, no I/O, no memory but the caller's. What comes from shared memory is clamped.
 */
#ifndef HR_LOADER_BALANCE_H
#define HR_LOADER_BALANCE_H

#include <stdint.h>

/* Ranks that are looked at, at most: loaders of one run on one machine. */
#define HR__BALANCE_RANKS 64

/* Time from one decision of a rank to the next, at least. */
#define HR__BALANCE_NS UINT64_C(10000000)

/* A rank that has said nothing for so long is not waited for; its workers still count. */
#define HR__BALANCE_STALE_NS UINT64_C(2000000000)

/* A rank has as many workers as it began with times this, at most. */
#define HR__BALANCE_MOST 4

/* Reads in flight are shifted right by this at most, where a rank is ahead. */
#define HR__BALANCE_SHIFT 3

/* What one rank says of itself. Times are of CLOCK_MONOTONIC. */
struct hr__balance_rank {
    uint64_t updated_ns; /* when it said so; 0: there is nobody */
    uint64_t taken_ns;   /* when its consumer last took a batch; 0: not in this epoch */
    uint64_t waits_ns;   /* since when its consumer waits; 0: it does not */
    uint64_t period_ns;  /* mean time from one batch that its consumer took to the next; 0: not
                            known */
    uint64_t stock;      /* samples that are ready, in thousandths of a batch */
    uint64_t work_ns;    /* time of workers that a batch takes; 0: not known */
    uint64_t cores;      /* digest of the cores that it may use: workers are moved between equals */
    uint32_t base;       /* workers that it began with */
    uint32_t active;     /* that it has now */
};

/* A rank's own state. All 0 but `active` at the beginning. */
struct hr__balance {
    int active; /* workers that may work */
    int shift;  /* reads in flight are halved so many times */
    int is_ahead;
    uint64_t since_ns;   /* since when it is ahead, or when it last gave up a worker */
    uint64_t decided_ns; /* when; 0: never */
    double slack_ns[HR__BALANCE_RANKS];  /* smoothed */
    uint8_t is_known[HR__BALANCE_RANKS]; /* the rank has a slack */
};

/* Non-zero where a rank takes part: it has said something of late, and its consumer is in an
 * epoch. */
int hr__balance_is_present(const struct hr__balance_rank *rank, uint64_t now_ns);

/* How long a present rank's stock lasts; negative: its consumer waits, or soon will. */
double hr__balance_slack_ns(const struct hr__balance_rank *rank, uint64_t now_ns);

/*
 * Sets balance->active, ->shift and ->is_ahead of rank `self` of `count` (HR__BALANCE_RANKS at
 * most); `most`: workers that it can have. Returns non-zero where active or shift changed.
 */
int hr__balance_decide(struct hr__balance *balance, const struct hr__balance_rank *ranks, int count,
                       int self, int most, uint64_t now_ns);

#endif
