/*
 * The plan of an epoch, batch by batch: makes the plan, and returns a batch's places.
 *
 * A batch is planned when it is requested, from its own samples only, so any rank can plan any
 * batch by itself. Padding is dealt like everything else: its places repeat samples from the start
 * of the order, have owners, and fill slots.
 *
 * Most of the cost is looking up owners and sizes at random places of tables larger than the
 * processor's caches. So both are stored in one table when the plan is made, 4 bytes a sample, and
 * entries are prefetched some places ahead.
 */
#include "cluster/plan.h"

#include "base/error.h"
#include "base/memory.h"
#include "cluster/placement.h"
#include "cluster/plan_inside.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum {
    CHUNK = 64,          /* places whose facts are prefetched together */
    TYPICAL = 128 << 10, /* assumed size of a sample of unknown size, in bytes */
    RATE_BITS = 16,      /* bits of a node's rates */
};

/* Rates to use if no host knows its own, in nanoseconds per KiB: memory, a 10 Gbit/s network, a
 * network drive, some CPU cores. Only their order matters. */
static const struct hr__plan_rates usual = {
    .own_ns = 250, .peer_ns = 1000, .storage_ns = 5000, .prepare_ns = 5000};

/*
 * Encodes a size in 16 bits, so that a sample's owner and size fit into one word of one table: 5
 * bits for the octave, 11 for the position in it, rounded down. So sizes are exact to 1/2048, and
 * the top bits give the bucket.
 */
static uint32_t size_of(uint32_t bytes)
{
    uint32_t octave = 31 - (uint32_t)__builtin_clz(bytes);
    uint32_t within = (uint32_t)(((uint64_t)bytes << 11 >> octave) & 2047);
    return octave << 11 | within;
}

static uint32_t bytes_of(uint32_t size)
{
    return (uint32_t)((uint64_t)(2048 | (size & 2047)) << (size >> 11) >> 11);
}

/* The bucket of an encoded size: four per octave, from 1 KiB = 2^10 on. */
static uint32_t bucket_of(uint32_t size)
{
    int bucket = (int)(size >> 9) - 10 * 4;
    bucket = bucket < 0 ? 0 : bucket;
    return (uint32_t)(bucket < HR__PLAN_BUCKETS ? bucket : HR__PLAN_BUCKETS - 1);
}

/* Stores owners and sizes in one table. */
static int gather_facts(struct hr__plan *plan, const struct hr__plan_wish *wish)
{
    uint64_t samples = wish->cut.samples;
    plan->facts = hr__alloc(HR__TAG_ORDER, samples ? samples : 1, sizeof *plan->facts);
    if (!plan->facts)
        return -ENOMEM;
    for (uint64_t i = 0; i < samples; i++) {
        uint32_t bytes = wish->bytes && wish->bytes[i] ? wish->bytes[i] : TYPICAL;
        uint32_t owner = wish->owners[i];
        if (owner == HR__NOBODY && wish->disks && wish->disks[i] != HR__NOBODY)
            owner = plan->node_count + wish->disks[i];
        plan->facts[i] = owner << 16 | size_of(bytes);
    }
    return 0;
}

/* Splits rates into an array: the tiers, then preparing. */
static void split_rates(const struct hr__plan_rates *rates, uint32_t split[4])
{
    split[0] = rates->own_ns;
    split[1] = rates->peer_ns;
    split[2] = rates->storage_ns;
    split[3] = rates->prepare_ns;
}

/* Sets the nodes' rates, in a unit in which the greatest has RATE_BITS bits. An unknown rate is the
 * mean of the hosts that know theirs. */
static void scale_rates(struct hr__plan *plan, const struct hr__plan_wish *wish)
{
    uint32_t fallback[4], rates[4];
    uint64_t sum[4] = {0}, known[4] = {0}, greatest = 0;
    split_rates(&usual, fallback);
    for (int h = 0; wish->rates && h < wish->host_count; h++) {
        split_rates(&wish->rates[h], rates);
        for (int k = 0; k < 4; k++) {
            sum[k] += rates[k];
            known[k] += rates[k] != 0;
            greatest = rates[k] > greatest ? rates[k] : greatest;
        }
    }
    for (int k = 0; k < 4; k++) {
        if (known[k])
            fallback[k] = (uint32_t)(sum[k] / known[k]);
        greatest = fallback[k] > greatest ? fallback[k] : greatest;
    }
    int shift = 0;
    while (greatest >> shift >> RATE_BITS)
        shift++;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        memset(rates, 0, sizeof rates);
        if (wish->rates && n < (uint32_t)wish->host_count)
            split_rates(&wish->rates[n], rates);
        for (int k = 0; k < 4; k++) {
            rates[k] = (rates[k] ? rates[k] : fallback[k]) >> shift;
            rates[k] += rates[k] == 0;
        }
        plan->nodes[n].own = rates[0];
        plan->nodes[n].peer = rates[1];
        plan->nodes[n].storage = rates[2];
        plan->nodes[n].prepare = rates[3];
    }
}

static void seat_ranks(struct hr__plan *plan, const struct hr__plan_wish *wish)
{
    uint32_t alone = (uint32_t)wish->host_count;
    for (uint64_t r = 0; r < plan->cut.ranks; r++) {
        int host = wish->host_of_rank[r];
        plan->node_of_rank[r] = (uint16_t)(host < 0 ? alone++ : (uint32_t)host);
        plan->nodes[plan->node_of_rank[r]].ranks++;
    }
    uint32_t first = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        plan->nodes[n].first_rank = first;
        first += plan->nodes[n].ranks;
        plan->nodes[n].ranks = 0;
    }
    for (uint64_t r = 0; r < plan->cut.ranks; r++) {
        struct hr__plan_node *node = &plan->nodes[plan->node_of_rank[r]];
        plan->ranks_by_node[node->first_rank + node->ranks++] = (uint16_t)r;
    }
}

/* Number of places of each rank in the global batch `number`. */
static uint64_t share_of(const struct hr__cut *cut, uint64_t number)
{
    uint64_t left = cut->samples - hr__cut_position(cut, number);
    uint64_t share = left / cut->ranks + (left % cut->ranks != 0);
    return share < cut->batch_size ? share : cut->batch_size;
}

static int allocate(struct hr__plan *plan)
{
    size_t nodes = plan->node_count, ranks = plan->cut.ranks, rows = hr__plan_rows(plan);
    size_t places = hr__cut_batches(&plan->cut) ? share_of(&plan->cut, 0) * ranks : 1;
    plan->nodes = hr__alloc(HR__TAG_ORDER, nodes, sizeof *plan->nodes);
    plan->node_of_rank = hr__alloc(HR__TAG_ORDER, ranks, sizeof *plan->node_of_rank);
    plan->ranks_by_node = hr__alloc(HR__TAG_ORDER, ranks, sizeof *plan->ranks_by_node);
    plan->histogram = hr__alloc(HR__TAG_ORDER, rows, HR__PLAN_BUCKETS * sizeof *plan->histogram);
    plan->owned_bytes = hr__alloc(HR__TAG_ORDER, rows, sizeof *plan->owned_bytes);
    plan->surplus = hr__alloc(HR__TAG_ORDER, rows, sizeof *plan->surplus);
    plan->heap = hr__alloc(HR__TAG_ORDER, nodes, sizeof *plan->heap);
    plan->begins = hr__alloc(HR__TAG_ORDER, nodes + 1, sizeof *plan->begins);
    plan->owner = hr__alloc(HR__TAG_ORDER, places, sizeof *plan->owner);
    plan->node = hr__alloc(HR__TAG_ORDER, places, sizeof *plan->node);
    plan->rank = hr__alloc(HR__TAG_ORDER, places, sizeof *plan->rank);
    plan->cost = hr__alloc(HR__TAG_ORDER, places, sizeof *plan->cost);
    plan->bucket = hr__alloc(HR__TAG_ORDER, places, sizeof *plan->bucket);
    plan->misses = hr__alloc(HR__TAG_ORDER, places, sizeof *plan->misses);
    plan->moving = hr__alloc(HR__TAG_ORDER, places, sizeof *plan->moving);
    plan->list = hr__alloc(HR__TAG_ORDER, places, sizeof *plan->list);
    int all = plan->nodes && plan->node_of_rank && plan->ranks_by_node && plan->histogram &&
              plan->owned_bytes && plan->surplus && plan->heap && plan->begins && plan->owner &&
              plan->node && plan->rank && plan->cost && plan->bucket && plan->misses &&
              plan->moving && plan->list;
    return all ? 0 : -ENOMEM;
}

/* Checks what every plan needs, then what a local one needs too. Returns 0 or -EINVAL. */
static int check(const struct hr__plan_wish *wish, struct hr_error *error)
{
    const struct hr__cut *cut = &wish->cut;
    if (!cut->batch_size || !cut->ranks || cut->rank >= cut->ranks ||
        cut->ranks > HR__PLAN_RANKS_MAX)
        return hr__fail(error, -EINVAL,
                        "a plan for rank %" PRIu64 " of %" PRIu64 " with batches of %" PRIu64
                        ": 1 to %d ranks and batches of at least 1 are possible",
                        cut->rank, cut->ranks, cut->batch_size, HR__PLAN_RANKS_MAX);
    if (wish->assignment == HR__ASSIGNMENT_EXACT)
        return 0;
    if (wish->host_count < 1 || wish->host_count > HR__HOSTS_MAX)
        return hr__fail(error, -EINVAL,
                        "a plan for %d hosts: 1 to %d are possible; shorten the list of hosts",
                        wish->host_count, HR__HOSTS_MAX);
    for (uint64_t r = 0; r < cut->ranks; r++)
        if (wish->host_of_rank[r] < -1 || wish->host_of_rank[r] >= wish->host_count)
            return hr__fail(error, -EINVAL,
                            "rank %" PRIu64 " is said to be on host %d of %d; give each rank one "
                            "of the list, or -1",
                            r, wish->host_of_rank[r], wish->host_count);
    if (cut->ranks + 2 * (uint64_t)wish->host_count >= HR__NOBODY)
        return hr__fail(error, -EINVAL,
                        "a plan for %" PRIu64 " ranks and the memory and disks of %d hosts: "
                        "together there may be %d",
                        cut->ranks, wish->host_count, HR__NOBODY - 1);
    if (hr__cut_batches(cut) && share_of(cut, 0) > INT32_MAX / cut->ranks)
        return hr__fail(error, -EINVAL,
                        "a global batch of %" PRIu64 " x %" PRIu64 " samples is too large for a "
                        "plan (at most %d); make batch_size smaller",
                        share_of(cut, 0), cut->ranks, INT32_MAX);
    return 0;
}

int hr__plan_create(struct hr__plan **out, const struct hr__plan_wish *wish, struct hr_error *error)
{
    struct hr__plan *plan = NULL;
    int rc = check(wish, error);
    if (rc)
        return rc;
    plan = hr__alloc(HR__TAG_ORDER, 1, sizeof *plan);
    if (!plan)
        goto fail;
    plan->assignment = wish->assignment;
    plan->cut = wish->cut;
    plan->order = wish->order;
    plan->with_rates = wish->rates != NULL;
    if (wish->assignment == HR__ASSIGNMENT_LOCAL) {
        plan->node_count = (uint32_t)wish->host_count;
        for (uint64_t r = 0; r < wish->cut.ranks; r++)
            plan->node_count += wish->host_of_rank[r] < 0;
        plan->disk_count = wish->disks ? (uint32_t)wish->host_count : 0;
        if (allocate(plan) || gather_facts(plan, wish))
            goto fail;
        scale_rates(plan, wish);
        seat_ranks(plan, wish);
    }
    *out = plan;
    return 0;

fail:
    hr__plan_destroy(&plan);
    return hr__fail(error, -ENOMEM,
                    "no memory for the plan of %" PRIu64 " samples in batches of %" PRIu64
                    " x %" PRIu64 ": 4 bytes for each sample and about 25 for each of a global "
                    "batch are needed; free memory on this host or make batch_size smaller",
                    wish->cut.samples, wish->cut.batch_size, wish->cut.ranks);
}

void hr__plan_destroy(struct hr__plan **plan)
{
    struct hr__plan *p = *plan;
    if (!p)
        return;
    hr__free(p->facts);
    hr__free(p->nodes);
    hr__free(p->node_of_rank);
    hr__free(p->ranks_by_node);
    hr__free(p->histogram);
    hr__free(p->owned_bytes);
    hr__free(p->surplus);
    hr__free(p->heap);
    hr__free(p->begins);
    hr__free(p->owner);
    hr__free(p->node);
    hr__free(p->rank);
    hr__free(p->cost);
    hr__free(p->bucket);
    hr__free(p->misses);
    hr__free(p->moving);
    hr__free(p->list);
    hr__free(p);
    *plan = NULL;
}

/* Position of a place of the batch that begins at `first`, with `left` positions left in the
 * order. */
static inline uint64_t position_of(uint64_t place, uint64_t first, uint64_t left, uint64_t samples)
{
    return place < left ? first + place : (place - left) % samples;
}

/* Gets the samples of places [from, to), and prefetches their facts. */
static void ask(const struct hr__plan *plan, uint64_t first, uint32_t from, uint32_t to,
                uint64_t samples[CHUNK])
{
    uint64_t left = plan->cut.samples - first;
    for (uint32_t i = from; i < to; i++) {
        uint64_t position = position_of(i, first, left, plan->cut.samples);
        uint64_t sample = hr__order_at(plan->order, position);
        __builtin_prefetch(&plan->facts[sample]);
        samples[i - from] = sample;
    }
}

/* Sets owner, cost and bucket of places [from, to), and counts them by owner. In two passes,
 * because the dependent increments of the counts would keep the loads of the first pass from
 * overlapping. */
static void take(struct hr__plan *plan, uint32_t from, uint32_t to, const uint64_t samples[CHUNK])
{
    const uint32_t *facts = plan->facts;
    uint64_t *restrict owned_bytes = plan->owned_bytes;
    uint32_t *restrict histogram = plan->histogram;
    uint32_t *restrict costs = plan->cost;
    uint16_t *restrict owner_of = plan->owner;
    uint8_t *restrict buckets = plan->bucket;
    for (uint32_t i = from; i < to; i++) {
        uint32_t fact = facts[samples[i - from]], size = fact & UINT16_MAX;
        owner_of[i] = (uint16_t)(fact >> 16);
        costs[i] = bytes_of(size);
        buckets[i] = (uint8_t)bucket_of(size);
    }
    for (uint32_t i = from; i < to; i++) {
        uint32_t row = hr__plan_row(owner_of[i]);
        owned_bytes[row] += costs[i];
        histogram[row * HR__PLAN_BUCKETS + buckets[i]]++;
    }
}

/* Plans the global batch `number`, up to the nodes. */
static void plan_nodes(struct hr__plan *plan, uint64_t number)
{
    uint64_t first = hr__cut_position(&plan->cut, number);
    uint64_t samples[2][CHUNK];
    size_t rows = hr__plan_rows(plan);
    plan->share = (uint32_t)share_of(&plan->cut, number);
    plan->places = plan->share * (uint32_t)plan->cut.ranks;
    memset(plan->histogram, 0, rows * HR__PLAN_BUCKETS * sizeof *plan->histogram);
    memset(plan->owned_bytes, 0, rows * sizeof *plan->owned_bytes);
    uint32_t asked = plan->places < CHUNK ? plan->places : CHUNK, taken = 0;
    ask(plan, first, 0, asked, samples[0]);
    for (int turn = 0; taken < plan->places; turn = !turn) {
        uint32_t next = plan->places - asked < CHUNK ? plan->places : asked + CHUNK;
        ask(plan, first, asked, next, samples[!turn]);
        take(plan, taken, asked, samples[turn]);
        taken = asked;
        asked = next;
    }
    hr__plan_deal(plan);
    hr__plan_level(plan);
}

size_t hr__plan_batch(struct hr__plan *plan, uint64_t number, uint64_t *positions, size_t *padding)
{
    if (plan->assignment == HR__ASSIGNMENT_EXACT)
        return hr__cut_batch(&plan->cut, number, positions, padding);
    assert(number < hr__cut_batches(&plan->cut));
    plan_nodes(plan, number);
    uint32_t node = plan->node_of_rank[plan->cut.rank], found = 0;
    int shared = plan->nodes[node].ranks > 1;
    /* Writes every place to the list but advances only for ours: branches would be mispredicted. */
    for (uint32_t i = 0; i < plan->places; i++) {
        plan->list[found] = i;
        found += plan->node[i] == node;
    }
    if (shared)
        hr__plan_deal_ranks(plan, node, plan->list, found);
    uint64_t first = hr__cut_position(&plan->cut, number);
    uint64_t left = plan->cut.samples - first;
    size_t count = 0, pads = 0;
    for (uint32_t i = 0; i < found; i++) {
        uint32_t place = plan->list[i];
        if (shared && plan->rank[place] != plan->cut.rank)
            continue;
        assert(count < plan->share);
        positions[count++] = position_of(place, first, left, plan->cut.samples);
        pads += place >= left;
    }
    assert(count == plan->share);
    *padding = pads;
    return count;
}

size_t hr__plan_ranks(struct hr__plan *plan, uint64_t number, uint16_t *ranks)
{
    assert(number < hr__cut_batches(&plan->cut));
    size_t places = (size_t)(share_of(&plan->cut, number) * plan->cut.ranks);
    if (plan->assignment == HR__ASSIGNMENT_EXACT) {
        for (size_t i = 0; i < places; i++)
            ranks[i] = (uint16_t)(i % plan->cut.ranks);
        return places;
    }
    plan_nodes(plan, number);
    hr__plan_group(plan, NULL, plan->list);
    for (uint32_t n = 0; n < plan->node_count; n++)
        if (plan->nodes[n].ranks)
            hr__plan_deal_ranks(plan, n, plan->list + plan->begins[n],
                                plan->begins[n + 1] - plan->begins[n]);
    memcpy(ranks, plan->rank, places * sizeof *ranks);
    return places;
}
