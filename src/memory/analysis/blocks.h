/*
 * Joins the events of a record into blocks, by address and generation.
 *
 * A block begins with ALLOC or PRESENT, or with the first access to an address where no block lives
 * (then it existed before recording began but was not reported: `is_ghost`). It ends with FREE, or
 * with the record. Pure functions except for reading the record; one pass.
 *
 * Source: "Pinpointing the Memory Behaviors of DNN Training" (ISPASS'21): block, access, ATI.
 */
#ifndef HR_MEMORY_ANALYSIS_BLOCKS_H
#define HR_MEMORY_ANALYSIS_BLOCKS_H

#include "memory/record/record.h"

#include <headrace/memory.h>

#define HR__STILL_LIVE UINT64_MAX

struct hr__block {
    uint64_t address, bytes;
    uint64_t alloc_ns;          /* 0 if is_ghost or PRESENT: before the record began */
    uint64_t free_ns;           /* HR__STILL_LIVE: not freed in the record */
    uint64_t first_ns, last_ns; /* first and last access; 0: none */
    uint32_t reads, writes;
    uint32_t stack;     /* of its allocation; 0: unknown */
    uint32_t name;      /* "shape dtype"; 0: no description */
    uint32_t first_op;  /* name of the operator of its first access; 0: none */
    uint32_t part;      /* name of the part of the model; 0: unknown */
    uint32_t iteration; /* of its allocation; 0: before the first */
    uint32_t last_call; /* operator call of its last access */
    uint8_t category;   /* enum hr_memory_category */
    uint8_t device;
    uint8_t phase;  /* of its allocation */
    uint8_t phases; /* bit p: accessed in phase p */
    uint8_t is_ghost : 1, was_present : 1;
    uint8_t is_passed_on : 1; /* freed in a later iteration */
};

/* The clock that gave the time of an access. */
enum hr__clock {
    HR__CLOCK_EVENT,  /* the event's time is that of the access */
    HR__CLOCK_CALL,   /* the event's time is that of the host's call: the accelerator works later */
    HR__CLOCK_DEVICE, /* the accelerator reported the time */
};

/*
 * One event and its block. Blocks are joined in the host's order, in which addresses are reused;
 * intervals are computed from at_ns and before_ns.
 */
struct hr__block_event {
    const struct hr_memory_event *event;
    uint32_t block;           /* index; HR__NO_BLOCK: none */
    uint8_t before;           /* kind of the previous access; 0: none */
    uint8_t clock;            /* enum hr__clock of at_ns and end_ns */
    uint8_t before_clock;     /* of before_ns */
    uint32_t before_call;     /* operator call of the previous access; 0: not counted */
    uint64_t at_ns, end_ns;   /* begin and end of an access */
    uint64_t before_ns;       /* end of the previous access */
    uint64_t before_event_ns; /* time of the previous access's event */
};

#define HR__NO_BLOCK UINT32_MAX

struct hr__blocks_found {
    struct hr__block *blocks; /* in order of allocation */
    uint32_t count;
    uint32_t *freed; /* indices, in order of their ends */
    uint32_t freed_count;
    uint64_t begin_ns, end_ns; /* of all events */
    uint64_t events, accesses;
    uint64_t odd_frees;    /* of addresses without a live block */
    uint64_t odd_allocs;   /* at an address of a live block, which counts as freed then */
    uint64_t failed;       /* failed allocations */
    uint64_t failed_bytes; /* of the largest failed one */
    uint64_t failed_ns;    /* of the first failed one */
    uint8_t failed_phase;  /* of the first failed one */
    uint8_t last_phase;    /* of the last event with a phase */
    uint32_t iterations;
    struct {
        uint64_t accesses;
        uint64_t host_timed; /* on an accelerator, timed by the host's call only */
    } of_device[256];
};

/* Returns non-zero if a device's intervals are unreliable: more than a hundredth of its accesses
 * have only the host's times. */
int hr__blocks_host_timed(const struct hr__blocks_found *found, int device);

/* Called for each event in order of time, after its block was updated; may be NULL. */
typedef void (*hr__block_fn)(void *arg, const struct hr__blocks_found *found,
                             const struct hr__block_event *event);

/* Reads the record from its beginning. The caller clears *out. Infers the category of blocks
 * without description (categories.h). Errors: -EOVERFLOW: more than 2^32 blocks; -EIO, -ENOMEM. */
int hr__blocks_find(struct hr__blocks_found *out, struct hr__record *record, hr__block_fn fn,
                    void *arg, struct hr_error *error);
void hr__blocks_found_clear(struct hr__blocks_found *found);

#endif
