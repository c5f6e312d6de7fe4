/*
 * The iterative pattern: training repeats the same behaviours on blocks of the same sizes in
 * every iteration ("Pinpointing the Memory Behaviors of DNN Training", ISPASS'21). How long is
 * an iteration, how stable is it, and where does one differ?
 *
 * A behaviour is (kind, bytes, operator) of an allocation, a free, a read or a write. Where
 * optimizers step, iterations are their steps, or several steps where several optimizers take
 * turns: one is what most of them are, and each is compared with it. So they are by other marks, if
 * most of the marked ones are alike. Otherwise the period is the smallest p for which a stretch of
 * at least 2 p of the sequence repeats after p (Knuth, Morris and Pratt's prefix function), the one
 * whose stretch is the longest, 64 behaviours at least. From there iterations are followed in both
 * directions; what lies between two that are as they should be is one that differs.
 */
#ifndef HR_MEMORY_ANALYSIS_PERIOD_H
#define HR_MEMORY_ANALYSIS_PERIOD_H

#include "memory/analysis/blocks.h"

/* The sequence. Zeroed: empty. */
struct hr__behaviours {
    uint32_t *tokens; /* digests */
    uint64_t *times_ns;
    size_t count, room;
    size_t *marks; /* where iterations begin, by marks */
    size_t mark_count, mark_room;
    uint32_t iterations; /* marks so far */
    size_t last_busy;    /* behaviours since the last mark, but for frees */
    int has_steps;       /* some are of an optimizer's step */
    int last_has_steps;  /* since the last mark */
    int code;            /* -ENOMEM, sticky: the sequence ends there */
};

/* An hr__block_fn; arg: the struct. */
void hr__behaviours_add(void *arg, const struct hr__blocks_found *found,
                        const struct hr__block_event *event);
void hr__behaviours_clear(struct hr__behaviours *behaviours);

struct hr__iteration {
    size_t begin, end; /* of the sequence */
    uint64_t begin_ns, end_ns;
    int is_same;
    size_t differs_at;   /* of one that differs: the first behaviour that does */
    uint64_t blocks;     /* that were allocated in it, on all devices */
    uint64_t peak_bytes; /* the most that lived at once in it, on the device of the analysis */
};

struct hr__period {
    size_t behaviours; /* of an iteration; 0: nothing repeats, there may be marked ones */
    int by_marks;      /* iterations are those that marks tell of */
    struct hr__iteration *iterations;
    size_t count, same;
};

/* On success *out is to be cleared. Errors: -ENOMEM. */
int hr__period_find(struct hr__period *out, const struct hr__behaviours *behaviours,
                    struct hr_error *error);
/* Fills `blocks` of the iterations. */
void hr__period_count(struct hr__period *period, const struct hr__blocks_found *found);

/* The medians of the iterations that are the same, or of all where none is; 0: there are none.
 * On success 0, or -ENOMEM. */
int hr__period_medians(const struct hr__period *period, uint64_t *ns, uint64_t *blocks);

void hr__period_clear(struct hr__period *period);

#endif
