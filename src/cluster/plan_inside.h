/*
 * What the files of the plan share: the hosts as the plan sees them, and the scratch memory
 * in which one global batch is dealt.
 *
 * Node: where samples go to; one for each host of the list, then one for each rank that is on
 * none of them. A global batch has places, 0, 1, ... in the order of its positions, padding
 * last. Loads are predicted times in a unit of the plan's own (scaled so that sums of 64 bits
 * have room), which only comparing has use for.
 */
#ifndef HR_CLUSTER_PLAN_INSIDE_H
#define HR_CLUSTER_PLAN_INSIDE_H

#include "cluster/placement.h"
#include "cluster/plan.h"

enum {
    HR__PLAN_BUCKETS = 64, /* of sizes: four an octave from 1 KiB to 64 MiB */
    HR__PLAN_RANKS_MAX = 60000,
};

/* A node. From `slots` on: of the batch at hand. */
struct hr__plan_node {
    uint32_t own, peer, storage, prepare; /* load of a byte, by tier; preparing comes on top */
    uint32_t ranks, first_rank;           /* its ranks are ranks_by_node[first_rank ...] */
    uint32_t slots;                       /* samples that it takes */
    uint32_t owned;                       /* samples whose items it owns */
    uint32_t free;                        /* slots without a sample */
    uint64_t load;                        /* of the samples that it has */
    uint64_t reserve;                     /* load that is expected of a free slot */
};

/* Which owned samples a node gives away. */
struct hr__plan_surplus {
    uint64_t buckets; /* bit b: all of bucket b */
    uint32_t some;    /* that many, the first ones, of bucket `cut` */
    uint32_t cut;
};

/* Element of a heap: the node with the least key first, of equal ones the first node. */
struct hr__plan_entry {
    int64_t key;
    uint32_t node;
};

struct hr__plan {
    enum hr__assignment assignment;
    struct hr__cut cut;
    const struct hr__order *order;
    uint32_t *facts; /* per sample: owner << 16 | size, that in 16 bits as plan.c has it */
    int with_rates;  /* else cached items move only to keep batches equal */
    uint32_t node_count;
    struct hr__plan_node *nodes;
    uint16_t *node_of_rank;  /* cut.ranks */
    uint16_t *ranks_by_node; /* cut.ranks */

    /* Scratch by node; the first three by hr__plan_row, with one for nobody. */
    uint32_t *histogram; /* rows of HR__PLAN_BUCKETS: owned samples by bucket */
    uint64_t *owned_bytes;
    struct hr__plan_surplus *surplus;
    struct hr__plan_entry *heap;
    uint32_t *begins; /* node_count + 1 */

    /* Scratch by place. */
    uint16_t *owner;  /* node that owns it, or HR__NOBODY */
    uint16_t *node;   /* node that takes it */
    uint16_t *rank;   /* rank that takes it */
    uint32_t *cost;   /* bytes, > 0 */
    uint8_t *bucket;  /* of cost */
    uint32_t *misses; /* places that nobody owns, by falling bucket */
    uint32_t *moving; /* places that their owners give away, by falling bucket */
    uint32_t *list;   /* for sorting */

    /* The batch at hand. */
    uint32_t places, share; /* share: places of each rank */
    uint32_t miss_count, moving_count;
};

/* Gives every place of the batch, whose owner, cost, bucket, histogram and owned_bytes are
 * there, to a node, each node as many as its slots. */
void hr__plan_deal(struct hr__plan *plan);

/* Exchanges samples between nodes that are late and nodes that are early, as long as that
 * makes the late ones earlier. */
void hr__plan_level(struct hr__plan *plan);

/* Deals the places of `node`, ascending in list[count], to its ranks: counts equal, loads
 * nearly. Uses the lists of misses and of what moves. */
void hr__plan_deal_ranks(struct hr__plan *plan, uint32_t node, const uint32_t *list,
                         uint32_t count);

/* Sorts count places by falling bucket, stable; NULL: all places, ascending. */
void hr__plan_sort(const struct hr__plan *plan, const uint32_t *in, uint32_t count, uint32_t *out);

/* Sorts all places by their nodes, stable: those of node n are out[begins[n]] and on. `in`: in
 * which order they come; NULL: ascending. */
void hr__plan_group(struct hr__plan *plan, const uint32_t *in, uint32_t *out);

/* Row of an owner in tables that have one for nobody: without a branch, which could not be
 * predicted. */
static inline uint32_t hr__plan_row(uint32_t owner)
{
    return (uint16_t)(owner + 1);
}

/* Load of a place's sample on a node. */
static inline uint64_t hr__plan_load(const struct hr__plan *plan, uint32_t node, uint32_t place)
{
    const struct hr__plan_node *at = &plan->nodes[node];
    uint32_t owner = plan->owner[place];
    uint32_t tier = owner == node ? at->own : owner == HR__NOBODY ? at->storage : at->peer;
    return (uint64_t)(tier + at->prepare) * plan->cost[place];
}

#endif
