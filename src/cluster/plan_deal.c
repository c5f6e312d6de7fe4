/*
 * Deals a global batch's places to nodes, and a node's places to its ranks.
 *
 * A node keeps the samples it owns, up to its slots. If it owns more, the smallest move, or the
 * largest if the node is predicted to be late; those on its disk only after all others. Then
 * samples that nobody owns, and after them the moving samples, fill the free slots. Both steps are
 * list scheduling with fixed counts: every node gets exactly as many as it has slots, so only the
 * choice is free. A node's expected load is the load of what it has, plus that of an average sample
 * for each free slot. Samples larger than the average go, largest first, to the node with the least
 * expected load; smaller ones go, smallest first, to the node with the greatest. So a slow host
 * ends up with small samples.
 *
 * Sizes are compared by buckets, with a counting sort that keeps the order of places within a
 * bucket.
 */
#include "cluster/plan_inside.h"

#include <assert.h>
#include <string.h>

void hr__plan_sort(const struct hr__plan *plan, const uint32_t *in, uint32_t count, uint32_t *out)
{
    uint32_t offsets[HR__PLAN_BUCKETS] = {0}, offset = 0;
    for (uint32_t i = 0; i < count; i++)
        offsets[plan->bucket[in ? in[i] : i]]++;
    for (int b = HR__PLAN_BUCKETS - 1; b >= 0; b--) {
        uint32_t here = offsets[b];
        offsets[b] = offset;
        offset += here;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = in ? in[i] : i;
        out[offsets[plan->bucket[place]]++] = place;
    }
}

void hr__plan_group(struct hr__plan *plan, const uint32_t *in, uint32_t *out)
{
    uint32_t *begins = plan->begins, offset = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        begins[n] = offset;
        offset += plan->nodes[n].slots;
    }
    for (uint32_t i = 0; i < plan->places; i++) {
        uint32_t place = in ? in[i] : i;
        out[begins[plan->node[place]]++] = place;
    }
    /* The loop moved each beginning to that of the next node. */
    memmove(begins + 1, begins, plan->node_count * sizeof *begins);
    begins[0] = 0;
}

/* Returns 1 if a comes before b. Without branches, because they could not be predicted. */
static inline uint32_t comes_first(const struct hr__plan_entry *a, const struct hr__plan_entry *b)
{
    return (uint32_t)(a->key < b->key) | ((uint32_t)(a->key == b->key) & (a->node < b->node));
}

static void heap_down(struct hr__plan_entry *heap, uint32_t count, uint32_t at)
{
    struct hr__plan_entry moving = heap[at];
    for (uint32_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count)
            child += comes_first(&heap[child + 1], &heap[child]);
        if (comes_first(&moving, &heap[child]))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

enum { PARTS = 4 }; /* a node gets its share of a lot in about so many parts */

/* The middle of a bucket's sizes, in bytes. */
static uint64_t bucket_middle(uint32_t bucket)
{
    return (uint64_t)(9 + 2 * (bucket & 3)) << (bucket / 4 + 7);
}

/* Samples that are dealt in the same way. */
struct lot {
    const uint32_t *places; /* largest bucket first */
    uint32_t count;
    uint64_t bytes;
    int from_storage; /* non-zero: read from storage; else fetched from their owners */
};

static uint64_t load_of_byte(const struct hr__plan_node *node, const struct lot *lot)
{
    return (uint64_t)(lot->from_storage ? node->storage : node->peer) + node->prepare;
}

/* Makes a heap of the nodes with free slots, by expected load: least first (sign 1) or greatest
 * first (-1). */
static uint32_t make_heap(struct hr__plan *plan, int sign)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct hr__plan_node *node = &plan->nodes[n];
        if (!node->free)
            continue;
        uint64_t expected = node->load + node->reserve * node->free;
        plan->heap[count++] = (struct hr__plan_entry){.key = sign * (int64_t)expected, .node = n};
    }
    for (uint32_t at = count / 2; at-- > 0;)
        heap_down(plan->heap, count, at);
    return count;
}

/* Gives up to `count` places, from `at` on in steps of `sign`, to the first node of the heap, as
 * far as it has slots. Returns how many. */
static uint32_t give(struct hr__plan *plan, const struct lot *lot, uint32_t at, uint32_t count,
                     int sign)
{
    uint32_t first = plan->heap[0].node;
    struct hr__plan_node *node = &plan->nodes[first];
    uint64_t bytes = 0;
    count = count < node->free ? count : node->free;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = lot->places[at];
        plan->node[place] = (uint16_t)first;
        bytes += plan->cost[place];
        at += (uint32_t)sign;
    }
    uint64_t load = bytes * load_of_byte(node, lot);
    node->load += load;
    node->free -= count;
    plan->heap[0].key += sign * ((int64_t)load - (int64_t)(node->reserve * count));
    return count;
}

/*
 * Gives away the places [next, last), from the front (sign 1) or from the back (-1). Gives many at
 * a time while many are left, which saves heap operations. The last ones are of nearly average
 * size, so they even out what the first ones left uneven.
 */
static void give_all(struct hr__plan *plan, const struct lot *lot, uint32_t next, uint32_t last,
                     int sign)
{
    uint32_t count = make_heap(plan, sign);
    if (next == last)
        return;
    int shift = 64 - __builtin_clzll((uint64_t)count * PARTS);
    while (next < last) {
        uint32_t some = 1 + ((last - next) >> shift);
        uint32_t given = give(plan, lot, sign > 0 ? next : last - 1, some, sign);
        next += sign > 0 ? given : 0;
        last -= sign > 0 ? 0 : given;
        if (!plan->nodes[plan->heap[0].node].free)
            plan->heap[0] = plan->heap[--count];
        if (count)
            heap_down(plan->heap, count, 0);
    }
}

/* Deals `lot`. The slots that are free afterwards are for `later`. */
static void deal(struct hr__plan *plan, const struct lot *lot, const struct lot *later)
{
    uint64_t slots = (uint64_t)lot->count + later->count, rates = 0, reserves = 0;
    if (!lot->count)
        return;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        struct hr__plan_node *node = &plan->nodes[n];
        if (!node->free)
            continue;
        uint64_t rate = load_of_byte(node, lot);
        node->reserve = (lot->bytes * rate + later->bytes * load_of_byte(node, later)) / slots;
        rates += rate;
        reserves += node->reserve;
    }
    /* Binary search: samples before `large` are larger than what is expected for a slot, over all
     * nodes with free slots. */
    uint32_t large = 0, end = lot->count;
    while (large < end) {
        uint32_t middle = large + (end - large) / 2;
        if (bucket_middle(plan->bucket[lot->places[middle]]) * rates >= reserves)
            large = middle + 1;
        else
            end = middle;
    }
    give_all(plan, lot, 0, large, 1);
    give_all(plan, lot, large, lot->count, -1);
}

/* Histogram of an owner. */
static const uint32_t *row_of(const struct hr__plan *plan, uint32_t owner)
{
    return plan->histogram + (size_t)hr__plan_row(owner) * HR__PLAN_BUCKETS;
}

static uint32_t count_of(const uint32_t *row)
{
    uint32_t count = 0;
    for (int b = 0; b < HR__PLAN_BUCKETS; b++)
        count += row[b];
    return count;
}

/* The disk of node n, as an owner; nobody, if it has none. */
static uint32_t disk_of(const struct hr__plan *plan, uint32_t n)
{
    return n < plan->disk_count ? plan->node_count + n : HR__NOBODY;
}

/* Sets slots, owned samples and loads of the nodes; counts the samples that move. */
static void count_nodes(struct hr__plan *plan)
{
    plan->moving_count = 0;
    plan->miss_count = count_of(row_of(plan, HR__NOBODY));
    for (uint32_t n = 0; n < plan->node_count; n++) {
        uint32_t owned = count_of(row_of(plan, n)), disk = disk_of(plan, n);
        uint64_t bytes = plan->owned_bytes[hr__plan_row(n)];
        struct hr__plan_node *node = &plan->nodes[n];
        if (disk != HR__NOBODY) {
            owned += count_of(row_of(plan, disk));
            bytes += plan->owned_bytes[hr__plan_row(disk)];
        }
        node->owned = owned;
        node->slots = plan->share * node->ranks;
        node->free = node->slots > owned ? node->slots - owned : 0;
        node->load = bytes * (node->own + node->prepare);
        plan->moving_count += owned > node->slots ? owned - node->slots : 0;
    }
}

/* Predicts the load of a node, assuming that the samples it keeps and gets are of average size. */
static uint64_t predict(const struct hr__plan *plan, const struct hr__plan_node *node,
                        uint64_t mean_bytes)
{
    uint64_t loose = (uint64_t)plan->miss_count + plan->moving_count;
    if (!node->free)
        return node->owned ? node->load / node->owned * node->slots : 0;
    uint64_t per_byte =
        ((uint64_t)plan->miss_count * node->storage + (uint64_t)plan->moving_count * node->peer) /
            loose +
        node->prepare;
    return node->load + node->free * mean_bytes * per_byte;
}

/* Chooses up to `most` samples of an owner to be given away. Returns how many it lacks. */
static uint32_t choose_surplus(struct hr__plan *plan, uint32_t owner, uint32_t most, int late)
{
    const uint32_t *row = row_of(plan, owner);
    struct hr__plan_surplus *surplus = &plan->surplus[hr__plan_row(owner)];
    uint32_t has = count_of(row), rest = has < most ? has : most, lacks = most - rest;
    uint32_t bucket = late ? HR__PLAN_BUCKETS - 1 : 0;
    if (!rest)
        return lacks;
    while (row[bucket] <= rest) {
        surplus->buckets |= UINT64_C(1) << bucket;
        rest -= row[bucket];
        if (!rest)
            break;
        bucket = late ? bucket - 1 : bucket + 1;
    }
    surplus->some = rest;
    surplus->cut = rest ? bucket : HR__PLAN_BUCKETS;
    return lacks;
}

static void choose_all_surplus(struct hr__plan *plan)
{
    uint64_t mean = 0, with_slots = 0, bytes = 0;
    if (plan->with_rates) {
        for (size_t row = 0; row < hr__plan_rows(plan); row++)
            bytes += plan->owned_bytes[row];
        for (uint32_t n = 0; n < plan->node_count; n++) {
            if (!plan->nodes[n].slots)
                continue;
            mean += predict(plan, &plan->nodes[n], bytes / plan->places);
            with_slots++;
        }
        mean /= with_slots;
    }
    for (size_t row = 0; row < hr__plan_rows(plan); row++)
        plan->surplus[row] = (struct hr__plan_surplus){.cut = HR__PLAN_BUCKETS};
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct hr__plan_node *node = &plan->nodes[n];
        if (node->owned <= node->slots)
            continue;
        int late = plan->with_rates && node->slots &&
                   predict(plan, node, bytes / plan->places) > mean + mean / 4;
        uint32_t lacks = choose_surplus(plan, n, node->owned - node->slots, late);
        if (lacks)
            choose_surplus(plan, disk_of(plan, n), lacks, late);
    }
    plan->surplus[hr__plan_row(HR__NOBODY)] =
        (struct hr__plan_surplus){.buckets = UINT64_MAX, .cut = HR__PLAN_BUCKETS};
}

/* Gives every place to its owner, except misses and surplus, which go to the list. Returns how many
 * those are. Without branches on the kind of a place, because they could not be predicted. */
static uint32_t keep_owned(struct hr__plan *plan)
{
    const uint8_t *buckets = plan->bucket;
    const uint16_t *owners = plan->owner;
    uint16_t *nodes = plan->node;
    uint32_t *list = plan->list, loose = 0, count = plan->node_count;
    for (uint32_t i = 0; i < plan->places; i++) {
        struct hr__plan_surplus *surplus = &plan->surplus[hr__plan_row(owners[i])];
        uint32_t bucket = buckets[i], moves = surplus->buckets >> bucket & 1;
        nodes[i] = (uint16_t)(owners[i] - (owners[i] >= count ? count : 0));
        if (surplus->cut == bucket && surplus->some) {
            surplus->some--;
            moves = 1;
        }
        list[loose] = i;
        loose += moves;
    }
    return loose;
}

/* Sorts the `count` places of the list, which no node keeps, into misses and moving places. Returns
 * the bytes of the moving ones. */
static uint64_t sort_loose(struct hr__plan *plan, uint32_t count)
{
    const uint32_t *row = row_of(plan, HR__NOBODY);
    uint32_t offsets[HR__PLAN_BUCKETS], offset = 0, moving = 0;
    uint64_t bytes = 0;
    for (int b = HR__PLAN_BUCKETS - 1; b >= 0; b--) {
        offsets[b] = offset;
        offset += row[b];
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = plan->list[i], owner = plan->owner[place];
        if (owner == HR__NOBODY) {
            plan->misses[offsets[plan->bucket[place]]++] = place;
            continue;
        }
        struct hr__plan_node *node = &plan->nodes[hr__plan_home(plan, owner)];
        /* Writes into the list being read: moving <= i. */
        plan->list[moving++] = place;
        bytes += plan->cost[place];
        node->load -= (uint64_t)plan->cost[place] * (node->own + node->prepare);
    }
    assert(moving == plan->moving_count);
    hr__plan_sort(plan, plan->list, moving, plan->moving);
    return bytes;
}

void hr__plan_deal(struct hr__plan *plan)
{
    count_nodes(plan);
    choose_all_surplus(plan);
    struct lot moving = {.places = plan->moving, .count = plan->moving_count};
    moving.bytes = sort_loose(plan, keep_owned(plan));
    struct lot misses = {.places = plan->misses,
                         .count = plan->miss_count,
                         .bytes = plan->owned_bytes[hr__plan_row(HR__NOBODY)],
                         .from_storage = 1};
    deal(plan, &misses, &moving);
    deal(plan, &moving, &(struct lot){0});
}

/* The bucket of a load: four per octave. */
static uint32_t load_bucket(uint64_t load)
{
    uint64_t x = load < 4 ? 4 : load;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(x);
    return octave * 4 + (uint32_t)(x >> (octave - 2) & 3);
}

/*
 * Goes over the ranks forth and back, by falling load. After each pair of rounds a rank has had as
 * many first as last choices. Counts are equal because the node's slots are a multiple of its
 * ranks.
 */
void hr__plan_deal_ranks(struct hr__plan *plan, uint32_t node, const uint32_t *list, uint32_t count)
{
    const uint16_t *ranks = plan->ranks_by_node + plan->nodes[node].first_rank;
    uint32_t rank_count = plan->nodes[node].ranks, offsets[256] = {0}, offset = 0;
    if (rank_count == 1) {
        for (uint32_t i = 0; i < count; i++)
            plan->rank[list[i]] = ranks[0];
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        plan->misses[i] = load_bucket(hr__plan_load(plan, node, list[i]));
        offsets[plan->misses[i]]++;
    }
    for (int b = 255; b >= 0; b--) {
        uint32_t here = offsets[b];
        offsets[b] = offset;
        offset += here;
    }
    for (uint32_t i = 0; i < count; i++)
        plan->moving[offsets[plan->misses[i]]++] = list[i];
    uint32_t at = 0, back = 0;
    for (uint32_t i = 0; i < count; i++) {
        plan->rank[plan->moving[i]] = ranks[back ? rank_count - 1 - at : at];
        if (++at == rank_count) {
            at = 0;
            back = !back;
        }
    }
}
