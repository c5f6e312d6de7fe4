/*
 * The blocks of a record: events joined by address and generation.
 *
 * A block begins with ALLOC or PRESENT, or with the first access to an address at which none
 * lives (then it was there before recording began and nobody told: `is_ghost`); it ends with
 * FREE, or with the record. Pure but for the reading of the record; one pass.
 *
 * Source: "Pinpointing the Memory Behaviors of DNN Training" (ISPASS'21): block, access,
 * ATI.
 */
#ifndef HR_MEMORY_ANALYSIS_BLOCKS_H
#define HR_MEMORY_ANALYSIS_BLOCKS_H

#include "memory/record/record.h"

#include <headrace/memory.h>

#define HR__STILL_LIVE UINT64_MAX

struct hr__block {
    uint64_t address, bytes;
    uint64_t alloc_ns;          /* 0 with is_ghost or PRESENT: before the record began */
    uint64_t free_ns;           /* HR__STILL_LIVE: not in the record */
    uint64_t first_ns, last_ns; /* accesses; 0: none */
    uint32_t reads, writes;
    uint32_t stack;     /* of its allocation; 0: not known */
    uint32_t name;      /* "shape dtype"; 0: not described */
    uint32_t first_op;  /* name of the operator that accessed it first; 0: none */
    uint32_t part;      /* name of the part of the model; 0: not known */
    uint32_t iteration; /* in which it was allocated; 0: before the first */
    uint32_t last_call; /* the operator's call that accessed it last */
    uint8_t category;   /* enum hr_memory_category */
    uint8_t device;
    uint8_t phase;  /* of its allocation */
    uint8_t phases; /* bit p: it is accessed in phase p */
    uint8_t is_ghost : 1, was_present : 1;
    uint8_t is_passed_on : 1; /* it is freed in a later iteration */
};

/* Whose clock the time of an access is. */
enum hr__clock {
    HR__CLOCK_EVENT,  /* the event's: the access took place then */
    HR__CLOCK_CALL,   /* the event's, but that is the host's call: the accelerator works later */
    HR__CLOCK_DEVICE, /* the accelerator's, as it told */
};

/*
 * One event, and what it happened to. Blocks are joined in the order of the host's times, in
 * which addresses are used again; intervals are made of at_ns and before_ns.
 */
struct hr__block_event {
    const struct hr_memory_event *event;
    uint32_t block;           /* index; HR__NO_BLOCK: of none */
    uint8_t before;           /* kind of the access before this one; 0: it is the first, or none */
    uint8_t clock;            /* enum hr__clock: of at_ns and end_ns */
    uint8_t before_clock;     /* of before_ns */
    uint32_t before_call;     /* the operator's call that it was of; 0: not counted */
    uint64_t at_ns, end_ns;   /* of an access: when it began and when it was over */
    uint64_t before_ns;       /* when the one before was over */
    uint64_t before_event_ns; /* time of its event */
};

#define HR__NO_BLOCK UINT32_MAX

struct hr__blocks_found {
    struct hr__block *blocks; /* in the order of their beginning */
    uint32_t count;
    uint32_t *freed; /* indices, in the order of their ends */
    uint32_t freed_count;
    uint64_t begin_ns, end_ns; /* of the events */
    uint64_t events, accesses;
    uint64_t odd_frees;    /* of addresses at which nothing lived */
    uint64_t odd_allocs;   /* of addresses at which something lived: taken as freed then */
    uint64_t failed;       /* refused allocations */
    uint64_t failed_bytes; /* of the largest */
    uint64_t failed_ns;    /* of the first */
    uint8_t failed_phase;  /* of the first */
    uint8_t last_phase;    /* of the last event that has one */
    uint32_t iterations;
    struct {
        uint64_t accesses;
        uint64_t host_timed; /* of them: on an accelerator, known by the host's call only */
    } of_device[256];
};

/* Non-zero where intervals on a device are not to be believed: more than a hundredth of its
 * accesses have the host's times only. */
int hr__blocks_host_timed(const struct hr__blocks_found *found, int device);

/* Called for each event in the order of time, after it was taken in; may be NULL. */
typedef void (*hr__block_fn)(void *arg, const struct hr__blocks_found *found,
                             const struct hr__block_event *event);

/* Reads the record from its beginning. On success *out is to be cleared. Blocks that nobody
 * described get their category (categories.h). Errors: -EOVERFLOW: more than 2^32 blocks; -EIO,
 * -ENOMEM. */
int hr__blocks_find(struct hr__blocks_found *out, struct hr__record *record, hr__block_fn fn,
                    void *arg, struct hr_error *error);
void hr__blocks_found_clear(struct hr__blocks_found *found);

#endif
