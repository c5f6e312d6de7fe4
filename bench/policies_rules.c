/*
 * The policies that the simulator compares (policies.h).
 *
 * Each has the state that it needs; what all share is which slots are cached and the bytes that are
 * free on each host.
 */
#include "policies.h"

#include "base/memory.h"
#include "base/recency.h"
#include "cache/future.h"
#include "cache/residents.h"
#include "storage/page_lists.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t slot_bytes(const struct caches *c, uint32_t slot)
{
    return c->stream->size[c->stream->sample[slot]];
}

static void admit(struct caches *c, uint32_t host, uint32_t slot)
{
    c->cached[slot] = 1;
    c->free[host] -= slot_bytes(c, slot);
    c->copies[c->stream->sample[slot]]++;
}

static void evict(struct caches *c, uint32_t host, uint32_t slot)
{
    c->cached[slot] = 0;
    c->free[host] += slot_bytes(c, slot);
    c->copies[c->stream->sample[slot]]--;
}

static void stop(struct caches *c)
{
    hr__free(c->own);
}

/* ---- never evict ---- */

static void never_start(struct caches *c)
{
    (void)c;
}

static void never_use(struct caches *c, uint64_t use, uint32_t host)
{
    uint32_t slot = c->stream->slot[use];
    if (!c->cached[slot] && slot_bytes(c, slot) <= c->free[host])
        admit(c, host, slot);
}

/* ---- LRU ---- */

struct lru {
    struct hr__recency_links *links; /* by slot */
    struct hr__recency *lists;       /* by host */
};

static void lru_start(struct caches *c)
{
    struct lru *l = policies_array(1, sizeof *l);
    l->links = policies_array(c->stream->slots, sizeof *l->links);
    l->lists = policies_array(c->stream->wish.hosts, sizeof *l->lists);
    for (uint32_t host = 0; host < c->stream->wish.hosts; host++)
        hr__recency_init(&l->lists[host]);
    c->own = l;
}

static void lru_stop(struct caches *c)
{
    struct lru *l = c->own;
    hr__free(l->links);
    hr__free(l->lists);
    hr__free(l);
}

static void lru_use(struct caches *c, uint64_t use, uint32_t host)
{
    struct lru *l = c->own;
    uint32_t slot = c->stream->slot[use];
    struct hr__recency *list = &l->lists[host];
    if (c->cached[slot])
        hr__recency_pull(list, l->links, slot);
    while (!c->cached[slot] && c->free[host] < slot_bytes(c, slot) &&
           list->oldest != HR__NO_ENTRY) {
        uint32_t old = list->oldest;
        hr__recency_pull(list, l->links, old);
        evict(c, host, old);
    }
    if (!c->cached[slot]) {
        if (c->free[host] < slot_bytes(c, slot))
            return;
        admit(c, host, slot);
    }
    hr__recency_push(list, l->links, slot);
}

/* ---- the kernel's page cache (storage/page_lists.h) ---- */

struct page_host {
    struct hr__page_lists *lists;
    struct caches *caches;
    uint32_t host;
};

static void page_start(struct caches *c)
{
    const struct policies_stream *s = c->stream;
    struct page_host *hosts = policies_array(s->wish.hosts, sizeof *hosts);
    for (uint32_t host = 0; host < s->wish.hosts; host++) {
        hosts[host] = (struct page_host){.caches = c, .host = host};
        if (hr__page_lists_create(&hosts[host].lists,
                                  (uint32_t)(s->first[host + 1] - s->first[host]), c->free[host]))
            policies_die("out of memory");
    }
    c->own = hosts;
}

static void page_stop(struct caches *c)
{
    struct page_host *hosts = c->own;
    for (uint32_t host = 0; host < c->stream->wish.hosts; host++)
        hr__page_lists_destroy(&hosts[host].lists);
    hr__free(hosts);
}

static void page_evicted(void *context, uint32_t file)
{
    const struct page_host *of = context;
    evict(of->caches, of->host, file + (uint32_t)of->caches->stream->first[of->host]);
}

static void page_use(struct caches *c, uint64_t use, uint32_t host)
{
    struct page_host *of = &((struct page_host *)c->own)[host];
    uint32_t slot = c->stream->slot[use], file = slot - (uint32_t)c->stream->first[host];
    if (!hr__page_lists_read(of->lists, file, slot_bytes(c, slot), page_evicted, of) &&
        hr__page_lists_has(of->lists, file))
        admit(c, host, slot);
}

/* ---- Lobster: reuse count and reuse distance, with the cluster's last copy kept ---- */

static void lobster_use(struct caches *c, uint64_t use, uint32_t host)
{
    const struct policies_stream *s = c->stream;
    uint32_t slot = s->slot[use], next = s->next[use];
    const struct phase *last = c->phase + (c->phase + 1 < s->phases + s->phase_count);
    int is_useful = next != NO_NEXT && next < last->ends;
    uint16_t copies = c->copies[s->sample[slot]];
    if (c->cached[slot] && !is_useful && copies > 1)
        evict(c, host, slot);
    else if (!c->cached[slot] && (is_useful || !copies) && slot_bytes(c, slot) <= c->free[host])
        admit(c, host, slot);
}

/* ---- NoPFS: each host keeps what it will use most often, and never changes that ---- */

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void nopfs_start(struct caches *c)
{
    const struct policies_stream *s = c->stream;
    uint8_t *placed = policies_array(s->slots, 1);
    uint64_t *key = policies_array(s->slots, sizeof *key);
    /* Slots of a host are numbered by their first uses. */
    for (uint64_t slot = 0; slot < s->slots; slot++)
        key[slot] = (uint64_t)UINT32_MAX << 32 | slot;
    for (uint64_t use = 0; use < s->uses; use++)
        key[s->slot[use]] -= UINT64_C(1) << 32;
    for (uint32_t host = 0; host < s->wish.hosts; host++) {
        uint64_t from = s->first[host], to = s->first[host + 1], left = c->free[host];
        qsort(key + from, to - from, sizeof *key, compare_keys);
        for (uint64_t i = from; i < to; i++) {
            uint32_t slot = (uint32_t)key[i];
            if (slot_bytes(c, slot) > left)
                continue;
            left -= slot_bytes(c, slot);
            placed[slot] = 1;
        }
    }
    hr__free(key);
    c->own = placed;
}

static void nopfs_use(struct caches *c, uint64_t use, uint32_t host)
{
    uint32_t slot = c->stream->slot[use];
    if (!c->cached[slot] && ((uint8_t *)c->own)[slot])
        admit(c, host, slot);
}

/* ---- Belady, with bypass: all uses of the run are known ---- */

/* A heap for each host, the furthest use first. Entries of earlier uses are skipped. */
struct belady_entry {
    uint32_t next, slot;
};

struct belady_heap {
    struct belady_entry *entries;
    uint64_t count;
};

struct belady {
    struct belady_heap *heaps; /* by host */
    uint32_t *next;            /* by slot */
};

static void belady_start(struct caches *c)
{
    struct belady *b = policies_array(1, sizeof *b);
    b->heaps = policies_array(c->stream->wish.hosts, sizeof *b->heaps);
    b->next = policies_array(c->stream->slots, sizeof *b->next);
    c->own = b;
}

static void heap_push(struct belady_heap *heap, struct belady_entry entry)
{
    if (hr__reserve(HR__TAG_ORDER, &heap->entries, heap->count + 1))
        policies_die("out of memory");
    uint64_t at = heap->count++;
    while (at && heap->entries[(at - 1) / 2].next < entry.next) {
        heap->entries[at] = heap->entries[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->entries[at] = entry;
}

static void heap_pop(struct belady_heap *heap)
{
    struct belady_entry last = heap->entries[--heap->count];
    uint64_t at = 0, child;
    while ((child = 2 * at + 1) < heap->count) {
        child +=
            child + 1 < heap->count && heap->entries[child + 1].next > heap->entries[child].next;
        if (heap->entries[child].next <= last.next)
            break;
        heap->entries[at] = heap->entries[child];
        at = child;
    }
    heap->entries[at] = last;
}

static void belady_use(struct caches *c, uint64_t use, uint32_t host)
{
    struct belady *b = c->own;
    struct belady_heap *heap = &b->heaps[host];
    uint32_t slot = c->stream->slot[use], next = c->stream->next[use];
    while (!c->cached[slot] && c->free[host] < slot_bytes(c, slot) && heap->count) {
        struct belady_entry top = heap->entries[0];
        int is_current = c->cached[top.slot] && b->next[top.slot] == top.next;
        if (is_current && top.next <= next)
            return;
        heap_pop(heap);
        if (is_current)
            evict(c, host, top.slot);
    }
    if (!c->cached[slot]) {
        if (next == NO_NEXT || c->free[host] < slot_bytes(c, slot))
            return;
        admit(c, host, slot);
    }
    b->next[slot] = next;
    heap_push(heap, (struct belady_entry){next, slot});
}

static void belady_stop(struct caches *c)
{
    struct belady *b = c->own;
    for (uint32_t host = 0; host < c->stream->wish.hosts; host++)
        hr__free(b->heaps[host].entries);
    hr__free(b->heaps);
    hr__free(b->next);
    hr__free(b);
}

/* ---- ours: next use over all orders as far as it is known ---- */

/* Where several jobs share the samples, some of the cached items are compared; else each order
 * knows which of its samples is used last. */

struct ours_state {
    struct hr__future *futures;       /* by host */
    struct hr__future_order **orders; /* by host and order; the last one is the validation's */
    uint32_t per_host;                /* orders */
    struct hr__residents *cached;     /* by host: its slots, from 0; NULL: one job */
};

/* A host's view of the caches. */
struct ours_view {
    const struct caches *caches;
    uint32_t host;
};

static void ours_start(struct caches *c)
{
    const struct policies_stream *s = c->stream;
    struct hr_error error;
    struct ours_state *o = policies_array(1, sizeof *o);
    o->per_host = s->wish.jobs + 1;
    o->futures = policies_array(s->wish.hosts, sizeof *o->futures);
    o->orders = policies_array((uint64_t)s->wish.hosts * o->per_host, sizeof(void *));
    if (s->wish.jobs > 1)
        o->cached = policies_array(s->wish.hosts, sizeof *o->cached);
    for (uint32_t host = 0; host < s->wish.hosts; host++) {
        uint64_t slots = s->first[host + 1] - s->first[host];
        for (uint32_t i = 0; i < s->wish.jobs + (s->wish.validation > 0); i++)
            if (hr__future_order_create(&o->orders[host * o->per_host + i], &o->futures[host],
                                        slots, &error))
                policies_die(error.message);
        if (!o->cached)
            continue;
        hr__residents_init(&o->cached[host]);
        o->cached[host].drawn = s->wish.drawn;
        if (hr__residents_reserve(&o->cached[host], (uint32_t)slots))
            policies_die("out of memory");
    }
    c->own = o;
}

static void ours_stop(struct caches *c)
{
    struct ours_state *o = c->own;
    for (uint64_t i = 0; i < (uint64_t)c->stream->wish.hosts * o->per_host; i++)
        hr__future_order_destroy(&o->orders[i]);
    for (uint32_t host = 0; o->cached && host < c->stream->wish.hosts; host++)
        hr__residents_clear(&o->cached[host]);
    hr__free(o->futures);
    hr__free(o->orders);
    hr__free(o->cached);
    hr__free(o);
}

static struct hr__future_order *order_of(const struct ours_state *o, uint32_t host,
                                         const struct phase *phase, uint32_t job)
{
    return o->orders[host * o->per_host + (phase->is_validation ? o->per_host - 1 : job)];
}

static void add_uses(struct caches *c, const struct phase *of, const struct phase *uses)
{
    const struct policies_stream *s = c->stream;
    for (uint64_t use = uses->begins; use < uses->ends; use++) {
        uint32_t host = stream_host(s, uses, use);
        if (hr__future_add(order_of(c->own, host, of, stream_job(s, uses, use)),
                           s->slot[use] - s->first[host]))
            policies_die("out of memory");
    }
}

/* What is known: `known` epochs of each job, with this one, and the next validation. */
static void ours_begin(struct caches *c)
{
    const struct policies_stream *s = c->stream;
    const struct phase *now = c->phase, *next = now + 1, *end = s->phases + s->phase_count;
    for (uint32_t host = 0; host < s->wish.hosts; host++)
        for (uint32_t job = 0; job < now->jobs; job++)
            hr__future_begin(order_of(c->own, host, now, job));
    add_uses(c, now, now);
    for (uint32_t host = 0; host < s->wish.hosts; host++)
        for (uint32_t job = 0; job < now->jobs; job++)
            hr__future_end_epoch(order_of(c->own, host, now, job));
    if (now->is_validation)
        add_uses(c, now, now);
    for (uint32_t ahead = 1; !now->is_validation && ahead < s->wish.known && next < end; next++)
        if (!next->is_validation) {
            add_uses(c, now, next);
            ahead++;
        }
}

static double ours_next(const void *context, uint32_t index)
{
    const struct ours_view *view = context;
    const struct policies_stream *s = view->caches->stream;
    const struct ours_state *o = view->caches->own;
    struct hr__future_order *const *orders = &o->orders[view->host * o->per_host];
    if (s->sample[s->first[view->host] + index] >= s->wish.samples)
        return hr__future_next(orders[s->wish.jobs], index);
    double soonest = HUGE_VAL;
    for (uint32_t job = 0; job < s->wish.jobs; job++) {
        double next = hr__future_next(orders[job], index);
        soonest = next < soonest ? next : soonest;
    }
    return soonest;
}

/* Returns the order of a host's slot, where there is one job. */
static struct hr__future_order *only_order(const struct caches *c, uint32_t host, uint32_t index)
{
    const struct policies_stream *s = c->stream;
    const struct ours_state *o = c->own;
    int is_validation = s->sample[s->first[host] + index] >= s->wish.samples;
    return o->orders[host * o->per_host + (uint32_t)is_validation];
}

/* Returns the slot of a host that is used last, and stores in how many ticks. */
static uint32_t ours_furthest(const struct caches *c, uint32_t host, double *when)
{
    const struct ours_view view = {c, host};
    const struct ours_state *o = c->own;
    uint32_t furthest = HR__NO_RESIDENT;
    if (o->cached)
        return hr__residents_furthest(&o->cached[host], ours_next, &view, when);
    *when = 0;
    for (uint32_t i = 0; i < 1 + (c->stream->wish.validation > 0); i++) {
        double then;
        uint32_t one = hr__future_furthest(o->orders[host * o->per_host + i], &then);
        if (one == HR__NO_RESIDENT || (furthest != HR__NO_RESIDENT && then <= *when))
            continue;
        furthest = one;
        *when = then;
    }
    return furthest;
}

static void ours_evict(struct caches *c, uint32_t host, uint32_t index)
{
    struct ours_state *o = c->own;
    evict(c, host, index + (uint32_t)c->stream->first[host]);
    if (o->cached)
        hr__residents_remove(&o->cached[host], index);
    else
        hr__future_drop(only_order(c, host, index), index);
}

static void ours_use(struct caches *c, uint64_t use, uint32_t host)
{
    const struct policies_stream *s = c->stream;
    const struct ours_view view = {c, host};
    struct ours_state *o = c->own;
    uint32_t slot = s->slot[use], index = slot - (uint32_t)s->first[host];
    hr__future_use(order_of(o, host, c->phase, stream_job(s, c->phase, use)), index);
    if (c->cached[slot])
        return;
    double next = ours_next(&view, index), furthest;
    while (c->free[host] < slot_bytes(c, slot)) {
        uint32_t victim = ours_furthest(c, host, &furthest);
        if (victim == HR__NO_RESIDENT || furthest <= next)
            return;
        ours_evict(c, host, victim);
    }
    admit(c, host, slot);
    if (o->cached)
        hr__residents_add(&o->cached[host], index);
    else
        hr__future_keep(only_order(c, host, index), index);
}

const struct policy_rule policy_rules[] = {
    {"lru", lru_start, NULL, lru_use, lru_stop},
    {"page cache", page_start, NULL, page_use, page_stop},
    {"never evict", never_start, NULL, never_use, stop},
    {"lobster", never_start, NULL, lobster_use, stop},
    {"nopfs", nopfs_start, NULL, nopfs_use, stop},
    {"ours", ours_start, ours_begin, ours_use, ours_stop},
    {"belady", belady_start, NULL, belady_use, belady_stop},
    {NULL, NULL, NULL, NULL, NULL},
};
