/*
 * Shared by the files of the plan: the hosts as the plan sees them, and the scratch memory in which
 * one global batch is dealt.
 *
 * A node is where samples go: one for each host of the list, then one for each rank that is on none
 * of them. An owner is a node, nobody, or the disk of host h: node_count + h. A global batch has
 * places 0, 1, ... in the order of its positions, padding last. Loads are predicted times in an
 * arbitrary unit (scaled so that sums fit 64 bits); only comparing them is meaningful.
 */
#ifndef HR_CLUSTER_PLAN_INSIDE_H
#define HR_CLUSTER_PLAN_INSIDE_H

#include "cluster/placement.h"
#include "cluster/plan.h"

enum {
    HR__PLAN_BUCKETS = 64, /* size classes: four an octave from 1 KiB to 64 MiB */
    HR__PLAN_RANKS_MAX = 60000,
};

/* A node. The fields from `slots` on are of the current batch. */
struct hr__plan_node {
    uint32_t own, peer, storage, prepare; /* load per byte by tier, and for preparing, which is
                                             added to each */
    uint32_t ranks, first_rank;           /* its ranks are ranks_by_node[first_rank ...] */
    uint32_t slots;                       /* samples that it must take */
    uint32_t owned;                       /* samples whose items it owns, or has on its disk */
    uint32_t free;                        /* slots that have no sample yet */
    uint64_t load;                        /* of the samples it has */
    uint64_t reserve;                     /* load expected for a free slot */
};

/* Which owned samples a node gives away. */
struct hr__plan_surplus {
    uint64_t buckets; /* bit b: all of bucket b */
    uint32_t some;    /* how many, from the first, of bucket `cut` */
    uint32_t cut;
};

/* Element of a heap, which has the smallest key first, and among equal keys the lowest node. */
struct hr__plan_entry {
    int64_t key;
    uint32_t node;
};

struct hr__plan {
    enum hr__assignment assignment;
    struct hr__cut cut;
    const struct hr__order *order;
    uint32_t *facts; /* per sample: owner << 16 | size, encoded in 16 bits as in plan.c */
    int with_rates;  /* 0: cached items move only to keep batches equal */
    uint32_t node_count;
    uint32_t disk_count; /* hosts with disks: all of the list, or none */
    struct hr__plan_node *nodes;
    uint16_t *node_of_rank;  /* cut.ranks */
    uint16_t *ranks_by_node; /* cut.ranks */

    /* Scratch memory by node; the first three are by owner, indexed by hr__plan_row. */
    uint32_t *histogram; /* rows of HR__PLAN_BUCKETS: owned samples by bucket */
    uint64_t *owned_bytes;
    struct hr__plan_surplus *surplus;
    struct hr__plan_entry *heap;
    uint32_t *begins; /* node_count + 1 */

    /* Scratch memory by place. */
    uint16_t *owner;  /* node or disk that keeps it, or HR__NOBODY */
    uint16_t *node;   /* node that takes it */
    uint16_t *rank;   /* rank that takes it */
    uint32_t *cost;   /* bytes, > 0 */
    uint8_t *bucket;  /* size class of cost */
    uint32_t *misses; /* places that nobody owns, largest bucket first */
    uint32_t *moving; /* places that their owners give away, largest bucket first */
    uint32_t *list;   /* for sorting */

    /* The current batch. */
    uint32_t places, share; /* share: places of each rank */
    uint32_t miss_count, moving_count;
};

/* Assigns every place of the batch to a node, to each node as many as its slots. Needs the places'
 * owner, cost and bucket, and the nodes' histogram and owned_bytes. */
void hr__plan_deal(struct hr__plan *plan);

/* Exchanges samples between late nodes and early nodes, as long as that makes the late ones
 * earlier. */
void hr__plan_level(struct hr__plan *plan);

/* Assigns the places of `node`, ascending in list[count], to its ranks, with equal counts and
 * nearly equal loads. Overwrites the lists of misses and moving places. */
void hr__plan_deal_ranks(struct hr__plan *plan, uint32_t node, const uint32_t *list,
                         uint32_t count);

/* Sorts count places by bucket, largest first; stable. `in` NULL: all places, ascending. */
void hr__plan_sort(const struct hr__plan *plan, const uint32_t *in, uint32_t count, uint32_t *out);

/* Sorts all places by node; stable. Those of node n start at out[begins[n]]. `in`: the order in
 * which they come; NULL: ascending. */
void hr__plan_group(struct hr__plan *plan, const uint32_t *in, uint32_t *out);

/* Row of an owner in tables with a row for nobody. It has no branch, because that could not be
 * predicted. */
static inline uint32_t hr__plan_row(uint32_t owner)
{
    return (uint16_t)(owner + 1);
}

/* The number of rows of these tables. */
static inline size_t hr__plan_rows(const struct hr__plan *plan)
{
    return (size_t)plan->node_count + plan->disk_count + 1;
}

/* The node of an owner, also of a disk; HR__NOBODY of nobody. */
static inline uint32_t hr__plan_home(const struct hr__plan *plan, uint32_t owner)
{
    return owner >= plan->node_count && owner != HR__NOBODY ? owner - plan->node_count : owner;
}

/* Load of a place's sample on a node. */
static inline uint64_t hr__plan_load(const struct hr__plan *plan, uint32_t node, uint32_t place)
{
    const struct hr__plan_node *at = &plan->nodes[node];
    uint32_t owner = plan->owner[place];
    uint32_t tier = hr__plan_home(plan, owner) == node ? at->own
                    : owner >= plan->node_count        ? at->storage
                                                       : at->peer;
    return (uint64_t)(tier + at->prepare) * plan->cost[place];
}

#endif
