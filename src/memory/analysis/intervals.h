/*
 * Access time intervals (ATI): how long blocks are idle between two accesses, by behaviour (the
 * kinds of the two accesses), and which intervals are long enough to swap a block out and in again:
 * S_max = ATI / (1 / B_h2d + 1 / B_d2h) ("Pinpointing the Memory Behaviors of DNN Training",
 * ISPASS'21). Filled event by event, in constant memory.
 */
#ifndef HR_MEMORY_ANALYSIS_INTERVALS_H
#define HR_MEMORY_ANALYSIS_INTERVALS_H

#include "memory/analysis/blocks.h"

#define HR__ATI_PARTS    8 /* bins per octave */
#define HR__ATI_BINS     (44 * HR__ATI_PARTS)
#define HR__ATI_OUTLIERS 256
#define HR__ATI_SCATTER  4096

enum hr__behaviour {
    HR__READ_READ,
    HR__READ_WRITE,
    HR__WRITE_READ,
    HR__WRITE_WRITE,
    HR__BEHAVIOURS
};

/* Return the name "write-read" and the display form "write, then read"; static. */
const char *hr__behaviour_name(unsigned behaviour);
const char *hr__behaviour_title(unsigned behaviour);

/* One interval of one block. */
struct hr__interval_of {
    uint64_t begin_ns, ns;
    uint64_t bytes;
    uint32_t block;
    uint32_t op; /* id of the name of the operator that ends it */
    uint8_t behaviour;
};

struct hr__intervals {
    double h2d_bytes_per_s, d2h_bytes_per_s;
    double probe_ns; /* cost of recording one operator call; subtracted from an interval of the
                        host's times for each call within it, down to 0 */
    struct {
        uint64_t count, sum_ns, longest_ns;
        uint64_t bins[HR__ATI_BINS]; /* each spans a factor of 2^(1/8), from 1 ns on */
    } of[HR__BEHAVIOURS];
    uint64_t swappable;                                /* intervals with bytes <= S_max */
    struct hr__interval_of outliers[HR__ATI_OUTLIERS]; /* those with the largest S_max bytes */
    size_t outlier_count;
    struct hr__interval_of scatter[HR__ATI_SCATTER]; /* every stride-th of all intervals */
    size_t scatter_count;
    uint64_t stride, seen;
    uint64_t left_out; /* between a device's time and a host's: clocks differ */
};

/* Initializes; bandwidths are in bytes per second, > 0. */
void hr__intervals_init(struct hr__intervals *intervals, double h2d_bytes_per_s,
                        double d2h_bytes_per_s, double probe_ns);

/* Computes the interval that an access ends. Returns 1, or 0 if there is none: the access is the
 * first, belongs to the same operator call as the previous one, or their clocks differ. Never
 * negative, whatever the order of the times. */
int hr__interval_ns(const struct hr__intervals *intervals, const struct hr__block_event *event,
                    uint64_t *ns);

/* An hr__block_fn that adds an interval; arg: the struct. */
void hr__intervals_add(void *arg, const struct hr__blocks_found *found,
                       const struct hr__block_event *event);

/* Returns the bytes of the largest block that can be swapped out and in again within `ns`. */
double hr__swap_bytes(const struct hr__intervals *intervals, double ns);

/* Returns the quantile of a behaviour's intervals in ns, for `share` in 0..1, accurate to a bin (9
 * %). behaviour < 0: all. NaN: no intervals. */
double hr__intervals_quantile(const struct hr__intervals *intervals, int behaviour, double share);

/* The quantiles reported, with their names in JSON. */
#define HR__QUANTILES 6
struct hr__quantile {
    const char *name;
    double share;
};
extern const struct hr__quantile hr__quantiles[HR__QUANTILES];

/* Returns the number of intervals of all behaviours. */
uint64_t hr__intervals_count(const struct hr__intervals *intervals);

/* Sorts the outliers, most bytes first. */
void hr__intervals_sort(struct hr__intervals *intervals);

#endif
