/*
 * Finds the iterative pattern: training repeats the same behaviours on blocks of the same sizes in
 * every iteration ("Pinpointing the Memory Behaviors of DNN Training", ISPASS'21). Reports how long
 * an iteration is, how stable it is, and where one differs.
 *
 * A behaviour is (kind, bytes, operator) of an allocation, a free, a read or a write.
 *
 * If optimizers step, iterations are their steps, or several steps if several optimizers take
 * turns; the most frequent iteration is the pattern, and each one is compared with it. Other marks
 * are used in the same way, if most of the marked iterations are alike. Otherwise the period is the
 * smallest p for which a stretch of at least 2 p of the sequence repeats after p (Knuth, Morris and
 * Pratt's prefix function); the longest such stretch counts, of at least 64 behaviours. From there,
 * iterations are followed in both directions; the behaviours between two regular iterations form
 * one that differs.
 */
#ifndef HR_MEMORY_ANALYSIS_PERIOD_H
#define HR_MEMORY_ANALYSIS_PERIOD_H

#include "memory/analysis/blocks.h"

/* The sequence of behaviours. Initialize with zeros. */
struct hr__behaviours {
    uint32_t *tokens; /* digests */
    uint64_t *times_ns;
    size_t count;
    size_t *marks; /* where marks begin iterations */
    size_t mark_count;
    uint32_t iterations; /* marks so far */
    size_t last_busy;    /* behaviours since the last mark, without frees */
    int has_steps;       /* some behaviours are of an optimizer's step */
    int last_has_steps;  /* likewise, since the last mark */
    int code;            /* -ENOMEM, sticky: the sequence ends there */
};

/* An hr__block_fn that adds a behaviour; arg: the struct. */
void hr__behaviours_add(void *arg, const struct hr__blocks_found *found,
                        const struct hr__block_event *event);
void hr__behaviours_clear(struct hr__behaviours *behaviours);

struct hr__iteration {
    size_t begin, end; /* indices in the sequence */
    uint64_t begin_ns, end_ns;
    int is_same;
    size_t differs_at;   /* in an irregular one: the first behaviour that differs */
    uint64_t blocks;     /* allocated in it, on all devices */
    uint64_t peak_bytes; /* of live blocks, on the analysed device */
};

struct hr__period {
    size_t behaviours; /* per iteration; 0: no repetition, but there may be marks */
    int by_marks;      /* marks define the iterations */
    struct hr__iteration *iterations;
    size_t count, same;
};

/* The caller clears *out. Errors: -ENOMEM. */
int hr__period_find(struct hr__period *out, const struct hr__behaviours *behaviours,
                    struct hr_error *error);
/* Fills `blocks` of each iteration. */
void hr__period_count(struct hr__period *period, const struct hr__blocks_found *found);

/* Computes the medians over regular iterations, or over all if none is regular; 0: no iterations.
 * Returns 0 or -ENOMEM. */
int hr__period_medians(const struct hr__period *period, uint64_t *ns, uint64_t *blocks);

void hr__period_clear(struct hr__period *period);

#endif
