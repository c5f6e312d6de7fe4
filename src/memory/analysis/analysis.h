/*
 * A record, analysed: all that a report tells of it, in memory that does not grow with the
 * record but for its blocks and behaviours. Two passes over the record: one joins events to
 * blocks and fills intervals and the sequence of behaviours; one, when the peaks are known,
 * fetches the intervals that span them and the accesses of the blocks that are drawn.
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
#define HR__DRAWN_MOST   1200  /* blocks of the chart of lifetimes */
#define HR__MARKS_MOST   60000 /* accesses on them */
#define HR__ADVICE_MOST  40
#define HR__NOTES_MOST   100

/* Blocks at the peak that have category, operator, description and line of code in common. */
struct hr__peak_group {
    uint8_t category;
    uint32_t op, name, stack;
    uint64_t blocks, bytes;
};

/* A part of the model at the peak. */
struct hr__part_memory {
    uint32_t part; /* name; 0: of none */
    uint64_t blocks, bytes[HR__CATEGORIES];
};

struct hr__device_memory {
    int device;
    uint64_t blocks, bytes_allocated; /* all that there ever were */
    struct hr__timeline timeline;
    struct hr__backward backward; /* the same from the record's end */
    uint32_t *living;             /* blocks that live at the peak, in the order of beginning */
    size_t living_count;
    uint32_t running_call; /* the operator's call that was told last at the peak; 0: none */
    int host_timed;        /* when its work was done is not known: no advice by intervals */
    struct hr__peak_group groups[HR__GROUPS_MOST]; /* the most bytes first */
    size_t group_count;
    uint64_t other_bytes;          /* at the peak, of groups beyond these */
    struct hr__part_memory *parts; /* at the peak, the most bytes first */
    size_t part_count;
    struct hr__segments segments; /* what the allocator took from the device */
    struct hr__fit_point point;   /* of this record; batch NaN: not said */
    double capacity_bytes;        /* NaN: not said */
    struct hr__fit fit;           /* of this record alone */
};

/* An access of a block that is drawn. */
struct hr__drawn_access {
    uint64_t time_ns;
    uint32_t drawn, op;
    uint8_t kind;
};

/* The interval of a block that lives at its device's peak which the peak lies in. */
struct hr__peak_span {
    uint32_t block;
    uint32_t begin_call, end_call; /* of the two accesses */
    uint64_t begin_ns, ns;
};

enum hr__advice_kind {
    HR__ADVICE_SWAP,      /* could be away while the peak is reached */
    HR__ADVICE_UNTOUCHED, /* lives at the peak and is never accessed */
    HR__ADVICE_LATE_FREE, /* lives at the peak after its last access, by an earlier call */
    HR__ADVICE_RECOMPUTE, /* an activation that waits over the peak, and is cheap to make again */
    HR__ADVICE_KINDS
};

/* "swap", "late free", ...: as in JSON; static. */
const char *hr__advice_name(enum hr__advice_kind kind);

struct hr__advice {
    enum hr__advice_kind kind;
    uint32_t block;    /* one of them */
    uint64_t blocks;   /* alike: same bytes, operator and description */
    uint64_t bytes;    /* of all at the peak: what it would save there */
    uint64_t begin_ns; /* of the one: since when it is not needed */
    uint64_t ns;       /* how long */
    double cost_ns;    /* RECOMPUTE: of making them again, about; SWAP: of both copies */
};

struct hr__memory_wish {
    double h2d_bytes_per_s, d2h_bytes_per_s; /* 0: what the record says, else 12e9 */
    size_t points;                           /* of a timeline; 0: 1000 */
};

struct hr__memory {
    struct hr__record_about about;
    struct hr__record_damage damage;
    struct hr__blocks_found found;
    struct hr__intervals intervals;
    struct hr__period period;
    struct hr__device_memory devices[HR__DEVICES_MOST];
    size_t device_count;
    uint32_t drawn[HR__DRAWN_MOST]; /* blocks, in the order of their beginning */
    size_t drawn_count;
    uint64_t drawn_begin_ns, drawn_end_ns; /* the part of the time that is drawn */
    size_t drawn_first, drawn_rounds;      /* its iterations, of the period's */
    struct hr__drawn_access *accesses;
    size_t access_count;
    struct hr__advice advice[HR__ADVICE_MOST]; /* the most bytes first */
    size_t advice_count;
    uint64_t iteration_ns, iteration_blocks; /* medians, hr__period_medians */
    int no_swap_advice;                      /* times on an accelerator are not known */
    int is_device_clock;                     /* they are, of all accelerators that there are */
    size_t main_device; /* of `devices`: the accelerator of the highest peak, else host memory */
    double batch_size;  /* a fact of the run; NaN: not said */
    double fixed_bytes; /* of the main device: parameters, gradients, optimizer state at the peak */
    double bytes_per_sample;     /* all else at the peak, over the batch size; NaN */
    double capacity_bytes;       /* NaN: not said */
    double batch_that_fits;      /* NaN: not known */
    char *notes[HR__NOTES_MOST]; /* what cannot be seen in this record, in sentences */
    size_t note_count;
};

/* On success *out is to be destroyed. Errors: those of the record's; -ENODATA: it has no
 * events; -ENOMEM. */
int hr__memory_analyse(struct hr__memory **out, struct hr__record *record,
                       const struct hr__memory_wish *wish, struct hr_error *error);
void hr__memory_destroy(struct hr__memory **memory);

/* peak.c: fills living, groups, other_bytes and parts of a device whose timeline is made.
 * Errors: -ENOMEM. */
int hr__memory_explain_peak(struct hr__device_memory *device, const struct hr__blocks_found *found);

/* advice.c: fills advice; `op_ns`: of an operator's call, by the id of its name, about; spans
 * of any device. Errors: -ENOMEM. */
int hr__memory_advise(struct hr__memory *memory, const struct hr__peak_span *spans, size_t count,
                      const double *op_ns, uint32_t ops);

/* notes.c: fills notes: the record's, and what the analysis itself has to say. Errors:
 * -ENOMEM. */
int hr__memory_note(struct hr__memory *memory, const struct hr__record *record);

/* facts.c: a number that the record tells; NaN. */
double hr__memory_fact(const struct hr__record *record, const char *name);

/* facts.c: which device is the main one, batch size, capacities and what would fit. The
 * capacity of a device is the fact "capacity bytes DEVICE" ("cuda:0"), of the main one also
 * "capacity bytes". */
void hr__memory_project(struct hr__memory *memory, const struct hr__record *record);

#endif
