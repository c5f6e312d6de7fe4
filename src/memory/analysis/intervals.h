/*
 * Access time intervals (ATI): how long blocks are left alone between two accesses, by
 * behaviour (what the two were), and which of these times would do to swap a block out and in
 * again: S_max = ATI / (1 / B_h2d + 1 / B_d2h) ("Pinpointing the Memory Behaviors of DNN
 * Training", ISPASS'21). Filled event by event, in memory that does not grow.
 */
#ifndef HR_MEMORY_ANALYSIS_INTERVALS_H
#define HR_MEMORY_ANALYSIS_INTERVALS_H

#include "memory/analysis/blocks.h"

#define HR__ATI_PARTS    8 /* of an octave */
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

/* "write-read"; static. And as people say it: "write, then read". */
const char *hr__behaviour_name(unsigned behaviour);
const char *hr__behaviour_title(unsigned behaviour);

/* One interval of one block. */
struct hr__interval_of {
    uint64_t begin_ns, ns;
    uint64_t bytes;
    uint32_t block;
    uint32_t op; /* name of the operator that ends it */
    uint8_t behaviour;
};

struct hr__intervals {
    double h2d_bytes_per_s, d2h_bytes_per_s;
    double probe_ns; /* of recording one operator call: taken off intervals of the host's times for
                        each call within them, as far as there is something left */
    struct {
        uint64_t count, sum_ns, longest_ns;
        uint64_t bins[HR__ATI_BINS]; /* of 2^(1/8) each, from 1 ns on */
    } of[HR__BEHAVIOURS];
    uint64_t swappable;                                /* intervals with bytes <= S_max */
    struct hr__interval_of outliers[HR__ATI_OUTLIERS]; /* the most bytes that S_max allows */
    size_t outlier_count;
    struct hr__interval_of scatter[HR__ATI_SCATTER]; /* every stride-th of all */
    size_t scatter_count;
    uint64_t stride, seen;
    uint64_t left_out; /* between a device's time and a host's: not of one clock */
};

/* Bandwidths in bytes per second, > 0. */
void hr__intervals_init(struct hr__intervals *intervals, double h2d_bytes_per_s,
                        double d2h_bytes_per_s, double probe_ns);

/* The interval that an access ends: 1, or 0 where there is none: it is the first, or of the same
 * operator call as the one before, or their times are of two clocks. Never below 0, whatever
 * the order of the times. */
int hr__interval_ns(const struct hr__intervals *intervals, const struct hr__block_event *event,
                    uint64_t *ns);

/* An hr__block_fn; arg: the struct. */
void hr__intervals_add(void *arg, const struct hr__blocks_found *found,
                       const struct hr__block_event *event);

/* The largest block, in bytes, that can leave and return in so long. */
double hr__swap_bytes(const struct hr__intervals *intervals, double ns);

/* The length that a share (0..1) of a behaviour's intervals do not exceed, in ns: within a bin,
 * 9 %; behaviour < 0: of all. NaN: there are none. */
double hr__intervals_quantile(const struct hr__intervals *intervals, int behaviour, double share);

/* The quantiles that are told of intervals, by the names that they have in JSON. */
#define HR__QUANTILES 6
struct hr__quantile {
    const char *name;
    double share;
};
extern const struct hr__quantile hr__quantiles[HR__QUANTILES];

/* Of all behaviours. */
uint64_t hr__intervals_count(const struct hr__intervals *intervals);

/* Outliers, the most bytes first. */
void hr__intervals_sort(struct hr__intervals *intervals);

#endif
