/*
 * Exchanges samples between late and early nodes after a batch was dealt.
 *
 * A late node gives its largest sample that it does not own, and takes the early node's smallest.
 * That is a sample that nobody owns, an item of a third node, or one that the early node owns,
 * which then has to be transferred. The last case is allowed only with measured rates, in exchange
 * for a sample that nobody owns, and only if the late node's network brings it faster than its
 * storage would have brought the other. After each exchange both nodes are earlier than the late
 * one was, so the largest load never grows. Counts do not change. What the early node has on its
 * disk stays there.
 *
 * Nodes are paired from the two ends of their order by load, until one of a pair reaches the mean
 * or has nothing left to exchange. The time is linear in places and nodes, except for the sort.
 */
#include "cluster/plan_inside.h"

#include <stdlib.h>

enum {
    ROUNDS = 3,
    TOLERANCE = 16, /* a load up to 1/16 above the mean is not late */
};

/* A node in a round, and the range of its places not yet considered; largest bucket first. */
struct side {
    uint32_t node;
    uint32_t begin, end; /* in the list of places */
};

static int by_rising_load(const void *a, const void *b)
{
    const struct hr__plan_entry *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

/* Sorts nodes with slots by load, least first, into the heap's memory; returns how many. *mean is
 * the mean of their loads. */
static uint32_t order_nodes(struct hr__plan *plan, uint64_t *mean, uint64_t *largest)
{
    uint32_t count = 0;
    uint64_t sum = 0;
    *largest = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        uint64_t load = plan->nodes[n].load;
        if (!plan->nodes[n].slots)
            continue;
        plan->heap[count++] = (struct hr__plan_entry){.key = (int64_t)load, .node = n};
        sum += load;
        *largest = load > *largest ? load : *largest;
    }
    *mean = count ? sum / count : 0;
    return count;
}

/* NOT_GIVEN: it would make the early node late; NOT_TAKEN: the sample may not move, or nothing is
 * gained. */
enum outcome { DONE, NOT_GIVEN, NOT_TAKEN };

static enum outcome exchange(struct hr__plan *plan, uint32_t late, uint32_t early, uint32_t given,
                             uint32_t taken)
{
    struct hr__plan_node *from = &plan->nodes[late], *to = &plan->nodes[early];
    if (plan->owner[taken] != early && hr__plan_home(plan, plan->owner[taken]) == early)
        return NOT_TAKEN;
    if (plan->owner[taken] == early) {
        uint64_t saved = (uint64_t)from->storage * plan->cost[given];
        if (!plan->with_rates || plan->owner[given] != HR__NOBODY ||
            (uint64_t)from->peer * plan->cost[taken] >= saved)
            return NOT_TAKEN;
    }
    uint64_t from_load =
        from->load - hr__plan_load(plan, late, given) + hr__plan_load(plan, late, taken);
    uint64_t to_load =
        to->load - hr__plan_load(plan, early, taken) + hr__plan_load(plan, early, given);
    if (from_load >= from->load)
        return NOT_TAKEN;
    if (to_load >= from->load)
        return NOT_GIVEN;
    from->load = from_load;
    to->load = to_load;
    plan->node[given] = (uint16_t)early;
    plan->node[taken] = (uint16_t)late;
    return DONE;
}

/* Makes the exchanges of one pair. Exchanged samples are not considered again in this round, so
 * their places in the list need not be updated. */
static int level_pair(struct hr__plan *plan, struct side *late, struct side *early, uint64_t mean)
{
    const uint32_t *places = plan->list;
    int exchanged = 0;
    while (plan->nodes[late->node].load > mean && plan->nodes[early->node].load < mean &&
           late->begin < late->end && early->begin < early->end) {
        uint32_t given = places[late->begin], taken = places[early->end - 1];
        if (hr__plan_home(plan, plan->owner[given]) == late->node) {
            late->begin++;
            continue;
        }
        enum outcome outcome = exchange(plan, late->node, early->node, given, taken);
        late->begin += outcome == DONE || outcome == NOT_GIVEN;
        early->end -= outcome == DONE || outcome == NOT_TAKEN;
        exchanged += outcome == DONE;
    }
    return exchanged;
}

/* The node that is number `at` by load, with all its places. */
static struct side side_of(const struct hr__plan *plan, uint32_t at)
{
    uint32_t node = plan->heap[at].node;
    return (struct side){node, plan->begins[node], plan->begins[node + 1]};
}

static int level_once(struct hr__plan *plan, uint32_t count, uint64_t mean)
{
    int exchanged = 0;
    qsort(plan->heap, count, sizeof *plan->heap, by_rising_load);
    hr__plan_sort(plan, NULL, plan->places, plan->misses);
    hr__plan_group(plan, plan->misses, plan->list);
    uint32_t first = 0, last = count - 1;
    struct side early = side_of(plan, first), late = side_of(plan, last);
    while (first < last) {
        exchanged += level_pair(plan, &late, &early, mean);
        int late_is_done = plan->nodes[late.node].load <= mean || late.begin == late.end;
        if (late_is_done)
            late = side_of(plan, --last);
        else
            early = side_of(plan, ++first);
    }
    return exchanged;
}

void hr__plan_level(struct hr__plan *plan)
{
    if (!plan->miss_count)
        return;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t mean, largest;
        uint32_t count = order_nodes(plan, &mean, &largest);
        if (largest <= mean + mean / TOLERANCE || !level_once(plan, count, mean))
            return;
    }
}
