/*
 * Analyses a record: everything that a report shows. Memory use does not grow with the record,
 * except by its blocks and behaviours. It takes two passes over the record. The first joins events
 * to blocks and fills the intervals and the sequence of behaviours. The second, when the peaks are
 * known, fetches the intervals that span them and the accesses of the blocks that are drawn.
 */
#ifndef HR_MEMORY_ANALYSIS_ANALYSIS_H
#define HR_MEMORY_ANALYSIS_ANALYSIS_H

#include "memory/analysis/fit.h"
#include "memory/analysis/intervals.h"
#include "memory/analysis/period.h"
#include "memory/analysis/segments.h"
#include "memory/analysis/timeline.h"

#define HR__DEVICES_MOST 18 /* host memory, 16 accelerators, and host memory of libraries */
#define HR__GROUPS_MOST  64
#define HR__PARTS_MOST   256
#define HR__DRAWN_MOST   1200  /* blocks in the lifetime chart */
#define HR__MARKS_MOST   60000 /* accesses in that chart */
#define HR__ADVICE_MOST  40
#define HR__NOTES_MOST   100

/* Blocks at the peak that share category, operator, description and line of code. */
struct hr__peak_group {
    uint8_t category;
    uint32_t op, name, stack;
    uint64_t blocks, bytes;
};

/* Memory of one part of the model at the peak. */
struct hr__part_memory {
    uint32_t part; /* id of its name; 0: no part */
    uint64_t blocks, bytes[HR__CATEGORIES];
};

struct hr__device_memory {
    int device;
    uint64_t blocks, bytes_allocated; /* over the whole record */
    struct hr__timeline timeline;
    struct hr__backward backward; /* the same, replayed from the record's end */
    uint32_t *living;             /* blocks live at the peak, oldest first */
    size_t living_count;
    uint32_t running_call; /* last operator call recorded before the peak; 0: none */
    int host_timed;        /* completion times of its work are unknown: no advice from intervals */
    struct hr__peak_group groups[HR__GROUPS_MOST]; /* largest first */
    size_t group_count;
    uint64_t other_bytes;          /* at the peak, in groups beyond these */
    struct hr__part_memory *parts; /* at the peak, largest first */
    size_t part_count;
    struct hr__segments segments; /* memory the allocator took from the device */
    struct hr__fit_point point;   /* of this record; batch NaN: unknown */
    double capacity_bytes;        /* NaN: unknown */
    struct hr__fit fit;           /* from this record alone */
};

/* An access of a drawn block. */
struct hr__drawn_access {
    uint64_t time_ns;
    uint32_t drawn, op;
    uint8_t kind;
};

/* The access interval that contains the peak, of a block live at its device's peak. */
struct hr__peak_span {
    uint32_t block;
    uint32_t begin_call, end_call; /* of the two accesses */
    uint64_t begin_ns, ns;
};

enum hr__advice_kind {
    HR__ADVICE_SWAP,      /* could be swapped out during the peak */
    HR__ADVICE_UNTOUCHED, /* live at the peak but never accessed */
    HR__ADVICE_LATE_FREE, /* live at the peak although its last access was in an earlier call */
    HR__ADVICE_RECOMPUTE, /* an activation that is idle during the peak and cheap to recompute */
    HR__ADVICE_KINDS
};

/* Returns the name used in JSON: "swap", "late free", ...; static. */
const char *hr__advice_name(enum hr__advice_kind kind);

struct hr__advice {
    enum hr__advice_kind kind;
    uint32_t block;    /* an example */
    uint64_t blocks;   /* number of similar ones: same bytes, operator and description */
    uint64_t bytes;    /* of all of them at the peak: the possible saving */
    uint64_t begin_ns; /* of `block`: when it becomes unneeded */
    uint64_t ns;       /* for how long */
    double cost_ns;    /* estimated; RECOMPUTE: to recompute all; SWAP: both copies */
};

struct hr__memory_wish {
    double h2d_bytes_per_s, d2h_bytes_per_s; /* 0: as recorded, else 12e9 */
    size_t points;                           /* in a timeline; 0: 1000 */
};

struct hr__memory {
    struct hr__record_about about;
    struct hr__record_damage damage;
    struct hr__blocks_found found;
    struct hr__intervals intervals;
    struct hr__period period;
    struct hr__device_memory devices[HR__DEVICES_MOST];
    size_t device_count;
    uint32_t drawn[HR__DRAWN_MOST]; /* blocks, in order of allocation */
    size_t drawn_count;
    uint64_t drawn_begin_ns, drawn_end_ns; /* the period that is drawn */
    size_t drawn_first, drawn_rounds;      /* its iterations, as indices of the period's */
    struct hr__drawn_access *accesses;
    size_t access_count;
    struct hr__advice advice[HR__ADVICE_MOST]; /* largest first */
    size_t advice_count;
    uint64_t iteration_ns, iteration_blocks; /* medians, hr__period_medians */
    int no_swap_advice;                      /* times on an accelerator are unknown */
    int is_device_clock;                     /* times of all accelerators present are known */
    size_t main_device;      /* index in `devices`: accelerator with the highest peak, else
                                the host */
    double batch_size;       /* a fact of the run; NaN: unknown */
    double fixed_bytes;      /* main device at the peak: parameters, gradients, optimizer state */
    double bytes_per_sample; /* the rest of the peak over the batch size; NaN */
    double capacity_bytes;   /* NaN: unknown */
    double batch_that_fits;  /* NaN: unknown */
    char *notes[HR__NOTES_MOST]; /* sentences: limits of what this record can show */
    size_t note_count;
};

/* The caller destroys *out. Errors: those of reading the record; -ENODATA: it has no events;
 * -ENOMEM. */
int hr__memory_analyse(struct hr__memory **out, struct hr__record *record,
                       const struct hr__memory_wish *wish, struct hr_error *error);
void hr__memory_destroy(struct hr__memory **memory);

/* peak.c: fills living, groups, other_bytes and parts of a device whose timeline exists. Errors:
 * -ENOMEM. */
int hr__memory_explain_peak(struct hr__device_memory *device, const struct hr__blocks_found *found);

/* advice.c: fills advice. `op_ns`: typical duration of an operator call, by the id of the
 * operator's name; `spans` may be of any device. Errors: -ENOMEM. */
int hr__memory_advise(struct hr__memory *memory, const struct hr__peak_span *spans, size_t count,
                      const double *op_ns, uint32_t ops);

/* notes.c: fills notes with the record's own and with those of the analysis. Errors: -ENOMEM. */
int hr__memory_note(struct hr__memory *memory, const struct hr__record *record);

/* facts.c: returns a numeric fact of the record; NaN: not recorded. */
double hr__memory_fact(const struct hr__record *record, const char *name);

/* facts.c: determines the main device, batch size, capacities and the batch that fits. The capacity
 * of a device is the fact "capacity bytes DEVICE" ("cuda:0"); for the main device also "capacity
 * bytes". */
void hr__memory_project(struct hr__memory *memory, const struct hr__record *record);

#endif
