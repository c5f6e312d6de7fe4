/*
 * A private cache that evicts (evicting.h).
 *
 * An entry's word holds the address of its item's bytes, with state and form in its low bits. It is
 * changed with sequentially consistent operations, as is the count of its pins: a reader raises the
 * count and then reads the word again; a thread that removes the item clears the word and then
 * reads the count. So at least one of them sees the other, and space is given back only when nobody
 * reads it.
 *
 * The pool's lock guards space, future and counts. Bytes are copied outside of it, but where items
 * move together to make room: a reader that comes meanwhile misses the item.
 */
#include "cache/evicting.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/round.h"
#include "cache/backend.h"
#include "cache/capacity.h"
#include "cache/future.h"
#include "cache/private_entry.h"
#include "cache/residents.h"
#include "cache/space.h"
#include "dataset/stamp.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

/* The step in which memory becomes accessible, and how long to wait after a refusal. */
#define STEP_BYTES (UINT64_C(32) << 20)
#define RETRY_NS   UINT64_C(5000000000)

/* How many items at most are chosen to make room for one. */
#define VICTIMS_MOST 64

enum { WORD_BUSY = 1, WORD_THERE = 2, WORD_STATE = 3, WORD_FORM_SHIFT = 2, WORD_FORM_MASK = 7 };

struct evicting_entry {
    struct hr__private_entry common;
    _Atomic uint32_t length; /* written before the word */
    _Atomic uint32_t pins;
};

struct evicting;

struct evicting_pool {
    uint64_t budget_bytes;
    uint64_t mapped;

    pthread_mutex_t lock; /* guards the members below */
    struct hr__space space;
    struct hr__future future;
    struct evicting *members;
    struct hr__space_block *leaving; /* of removed items that were pinned */
    uint64_t refused_ns;             /* time of the last refusal of memory; 0: never */
    int is_refused;                  /* this has been logged */
    char why[HR__CAPACITY_WHY];
};

struct evicting {
    struct hr__cache cache;
    struct evicting_pool *pool;
    struct evicting *next_member; /* guarded by the pool's lock */
    struct hr_dataset *dataset;   /* NULL: do not check files */
    uint64_t samples;
    struct evicting_entry *entries;
    struct hr__future_order *order;
    struct hr__cache_counts counts; /* guarded by the pool's lock */
};

static struct evicting *of(struct hr__cache *cache)
{
    return (struct evicting *)cache;
}

static uint8_t *word_bytes(uint64_t word)
{
    return (uint8_t *)(uintptr_t)(word & ~(uint64_t)(HR__SPACE_UNIT - 1));
}

static enum hr_form word_form(uint64_t word)
{
    return (enum hr_form)(word >> WORD_FORM_SHIFT & WORD_FORM_MASK);
}

/* ---- the pool ---- */

static void destroy_pool(struct evicting_pool *pool)
{
    if (pool->space.base)
        munmap(pool->space.base, pool->mapped);
    pthread_mutex_destroy(&pool->lock);
    hr__free(pool);
}

static int make_pool(struct evicting_pool **out, uint64_t budget_bytes, struct hr_error *error)
{
    if (!budget_bytes)
        return hr__fail(error, -EINVAL, "a cache of 0 bytes");
    struct evicting_pool *pool = hr__alloc(HR__TAG_CACHE, 1, sizeof *pool);
    if (!pool)
        return hr__fail(error, -ENOMEM, "out of memory for a cache");
    pthread_mutex_init(&pool->lock, NULL);
    pool->budget_bytes = budget_bytes;
    void *memory = MAP_FAILED;
    /* A limit far beyond what mmap can provide, so that no sum overflows. */
    if (budget_bytes < UINT64_C(1) << 62) {
        pool->mapped = hr__round_up(budget_bytes, STEP_BYTES);
        memory =
            mmap(NULL, pool->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (memory == MAP_FAILED) {
        destroy_pool(pool);
        return hr__fail(error, -ENOMEM,
                        "the system gives no address space for a cache of %" PRIu64
                        " bytes: make the cache smaller, or raise the limit (ulimit -v)",
                        budget_bytes);
    }
    pool->space.base = memory;
    madvise(memory, pool->mapped, MADV_DONTFORK);
    madvise(memory, pool->mapped, MADV_HUGEPAGE);
    *out = pool;
    return 0;
}

/* ---- removing items ---- */

/* Gives the space of removed items back that nobody reads any more. */
static void reclaim_locked(struct evicting_pool *pool)
{
    struct hr__space_block **at = &pool->leaving;
    while (*at) {
        struct hr__space_block *block = *at;
        const struct evicting_entry *entry = block->owner_entry;
        if (atomic_load(&entry->pins)) {
            at = &block->next;
            continue;
        }
        *at = block->next;
        hr__space_give_back(&pool->space, block);
    }
}

/* Removes an item whose word the caller has taken from its entry. */
static void remove_locked(struct evicting *c, uint64_t index, uint64_t word)
{
    struct evicting_pool *pool = c->pool;
    struct hr__space_block *block = hr__space_block_of(word_bytes(word));
    hr__future_drop(c->order, index);
    c->counts.items[word_form(word)]--;
    c->counts.bytes -= block->bytes;
    c->counts.source_bytes -= block->owner_bytes;
    block->may_move = 0;
    block->next = pool->leaving;
    pool->leaving = block;
    reclaim_locked(pool);
}

/* Evicts an item that is used later than in `sooner` ticks. Returns 0 if none was found. */
static int evict_locked(struct evicting_pool *pool, double sooner)
{
    struct evicting *c = NULL;
    uint32_t index = HR__NO_RESIDENT;
    for (struct evicting *member = pool->members; member; member = member->next_member) {
        double when;
        uint32_t furthest = hr__future_furthest(member->order, &when);
        if (furthest == HR__NO_RESIDENT || when <= sooner)
            continue;
        c = member;
        index = furthest;
        sooner = when;
    }
    if (!c)
        return 0;
    struct evicting_entry *entry = &c->entries[index];
    uint64_t word = atomic_load(&entry->common.word);
    if ((word & WORD_STATE) == WORD_THERE &&
        atomic_compare_exchange_strong(&entry->common.word, &word, 0))
        remove_locked(c, index, word);
    else /* the thread that is just dropping it waits for the lock */
        hr__future_drop(c->order, index);
    return 1;
}

/* Drops the item of a file that has changed. */
static void drop(struct evicting *c, uint64_t index, uint64_t word, uint64_t now)
{
    struct evicting_entry *entry = &c->entries[index];
    if ((word & WORD_STATE) != WORD_THERE ||
        !atomic_compare_exchange_strong(&entry->common.word, &word, WORD_BUSY))
        return;
    atomic_store_explicit(&entry->common.of, now, memory_order_release);
    pthread_mutex_lock(&c->pool->lock);
    remove_locked(c, index, word);
    pthread_mutex_unlock(&c->pool->lock);
    atomic_store(&entry->common.word, 0);
}

/* ---- members ---- */

static const struct hr__cache_backend backend;

static void free_member(struct evicting *c)
{
    hr__future_order_destroy(&c->order);
    hr_dataset_unref(&c->dataset);
    hr__free(c->entries);
    hr__free(c);
}

static int make_member(struct evicting **out, struct evicting_pool *pool,
                       const struct hr__cache_options *options, struct hr_error *error)
{
    struct evicting *c = hr__alloc(HR__TAG_CACHE, 1, sizeof *c);
    if (!c)
        return hr__fail(error, -ENOMEM, "out of memory for a cache");
    c->cache.backend = &backend;
    c->cache.budget_bytes = pool->budget_bytes;
    c->pool = pool;
    c->samples = options->samples;
    c->dataset = options->dataset ? hr_dataset_ref(options->dataset) : NULL;
    c->entries = hr__alloc(HR__TAG_CACHE, c->samples + !c->samples, sizeof *c->entries);
    int r = c->entries
                ? 0
                : hr__fail(error, -ENOMEM,
                           "out of memory for a cache's index of %" PRIu64 " samples", c->samples);
    pthread_mutex_lock(&pool->lock);
    if (!r)
        r = hr__future_order_create(&c->order, &pool->future, c->samples, error);
    if (!r) {
        c->next_member = pool->members;
        pool->members = c;
    }
    pthread_mutex_unlock(&pool->lock);
    if (r) {
        free_member(c);
        return r;
    }
    *out = c;
    return 0;
}

int hr__cache_create_evicting(struct hr__cache **out, const struct hr__cache_options *options,
                              struct hr_error *error)
{
    struct evicting_pool *pool = NULL;
    struct evicting *c;
    *out = NULL;
    int r = make_pool(&pool, options->budget_bytes, error);
    if (r)
        return r;
    r = make_member(&c, pool, options, error);
    if (r) {
        destroy_pool(pool);
        return r;
    }
    *out = &c->cache;
    return 0;
}

int hr__cache_join_evicting(struct hr__cache **out, struct hr__cache *beside,
                            const struct hr__cache_options *options, struct hr_error *error)
{
    struct evicting *c;
    *out = NULL;
    if (beside->backend != &backend)
        return hr__fail(error, -EINVAL,
                        "the other loader's cache evicts nothing and takes no second loader");
    int r = make_member(&c, of(beside)->pool, options, error);
    if (!r)
        *out = &c->cache;
    return r;
}

static void destroy(struct hr__cache *cache)
{
    struct evicting *c = of(cache);
    struct evicting_pool *pool = c->pool;
    pthread_mutex_lock(&pool->lock);
    for (uint64_t i = 0; i < c->samples; i++) {
        uint64_t word = atomic_exchange(&c->entries[i].common.word, 0);
        if ((word & WORD_STATE) == WORD_THERE)
            remove_locked(c, i, word);
    }
    struct evicting **at = &pool->members;
    while (*at != c)
        at = &(*at)->next_member;
    *at = c->next_member;
    reclaim_locked(pool); /* what waits for this member's readers, who have ended */
    int was_last = !pool->members;
    pthread_mutex_unlock(&pool->lock);
    free_member(c);
    if (was_last)
        destroy_pool(pool);
}

static void abandon(struct hr__cache *cache)
{
    /* The child may have mapped something else at the pool's addresses, and its lock and lists may
     * be in the middle of a change: they stay as they are. */
    struct evicting *c = of(cache);
    hr_dataset_unref(&c->dataset);
    hr__free(c->entries);
    hr__free(c);
}

/* ---- looking up ---- */

static int has(struct hr__cache *cache, uint64_t index)
{
    uint64_t word =
        atomic_load_explicit(&of(cache)->entries[index].common.word, memory_order_relaxed);
    return (word & WORD_STATE) == WORD_THERE;
}

static int find(struct hr__cache *cache, uint64_t index, struct hr__cache_item *item)
{
    struct evicting *c = of(cache);
    struct evicting_entry *entry = &c->entries[index];
    struct hr__stamp stamp;
    uint64_t word = atomic_load(&entry->common.word);
    if ((word & WORD_STATE) != WORD_THERE)
        return 0;
    uint64_t now = hr__private_look(c->dataset, index, &stamp);
    if (now != atomic_load_explicit(&entry->common.of, memory_order_acquire)) {
        if (now)
            drop(c, index, word, now);
        return 0;
    }
    atomic_fetch_add(&entry->pins, 1);
    do {
        word = atomic_load(&entry->common.word);
        item->length = atomic_load(&entry->length);
        /* The length could belong to a newer item. */
    } while (word != atomic_load(&entry->common.word));
    if ((word & WORD_STATE) != WORD_THERE) {
        atomic_fetch_sub(&entry->pins, 1);
        return 0;
    }
    item->bytes = word_bytes(word);
    item->form = word_form(word);
    item->index = index;
    item->pinned = 1;
    return 1;
}

static int unpin(struct hr__cache *cache, const struct hr__cache_item *item)
{
    atomic_fetch_sub(&of(cache)->entries[item->index].pins, 1);
    return 1;
}

/* ---- admitting ---- */

/* Makes more memory accessible, if the budget and the system allow it. `now`: limits read for this,
 * or NULL. */
static int grow_locked(struct evicting_pool *pool, const struct hr__memory_limits *now,
                       uint64_t bytes)
{
    uint64_t there = pool->space.size, least = hr__round_up(bytes + HR__SPACE_UNIT, STEP_BYTES);
    uint64_t budget = pool->budget_bytes / HR__SPACE_UNIT * HR__SPACE_UNIT;
    uint64_t more = budget - there < least ? budget - there : least;
    if (!more || !now)
        return 0;
    int is_granted = hr__capacity_grants(now, more, pool->why);
    uint64_t from = there / 4096 * 4096;
    if (is_granted && mprotect(pool->space.base + from, hr__round_up(there + more - from, 4096),
                               PROT_READ | PROT_WRITE)) {
        is_granted = 0;
        strcpy(pool->why, "the system refuses it; make the cache smaller, or give the process more "
                          "memory");
    }
    pool->refused_ns = is_granted ? 0 : hr__now_ns();
    if (is_granted)
        hr__space_extend(&pool->space, more);
    return is_granted;
}

/* Returns non-zero if the pool could grow. */
static int may_grow_locked(const struct evicting_pool *pool)
{
    return pool->space.size < pool->budget_bytes / HR__SPACE_UNIT * HR__SPACE_UNIT &&
           (!pool->refused_ns || hr__now_ns() - pool->refused_ns >= RETRY_NS);
}

/* The word of the item that is being moved. */
struct evicting_move {
    uint64_t word;
};

static int hold(void *context, struct hr__space_block *block)
{
    struct evicting_move *move = context;
    struct evicting_entry *entry = block->owner_entry;
    move->word = atomic_load(&entry->common.word);
    /* The thread that is just dropping it waits for the lock. */
    if ((move->word & WORD_STATE) != WORD_THERE ||
        !atomic_compare_exchange_strong(&entry->common.word, &move->word, WORD_BUSY))
        return 0;
    if (!atomic_load(&entry->pins))
        return 1;
    atomic_store(&entry->common.word, move->word);
    return 0;
}

static void moved(void *context, struct hr__space_block *block)
{
    const struct evicting_move *move = context;
    struct evicting_entry *entry = block->owner_entry;
    uint64_t low = move->word & (HR__SPACE_UNIT - 1);
    atomic_store(&entry->common.word, (uint64_t)(uintptr_t)hr__space_bytes(block) | low);
}

static struct hr__space_block *take_locked(struct evicting_pool *pool, uint64_t bytes)
{
    struct hr__space_block *block = hr__space_take(&pool->space, bytes);
    struct evicting_move move;
    const struct hr__space_mover mover = {hold, moved, &move};
    if (!block && hr__space_gather(&pool->space, bytes, &mover))
        block = hr__space_take(&pool->space, bytes);
    return block;
}

/* Takes space for a sample, evicting others that are used later. Returns NULL if it is not kept. */
static struct hr__space_block *make_room_locked(struct evicting *c, uint64_t index, uint64_t bytes)
{
    struct evicting_pool *pool = c->pool;
    struct hr__space_block *block;
    double next = hr__future_next(c->order, index);
    for (int i = 0; !(block = take_locked(pool, bytes)); i++)
        if (i >= VICTIMS_MOST || !evict_locked(pool, next))
            return NULL;
    return block;
}

/* Takes space for an offer. Returns NULL if it is refused. */
static struct hr__space_block *admit(struct evicting *c, const struct hr__cache_offer *given)
{
    struct evicting_pool *pool = c->pool;
    struct hr__memory_limits limits;
    int is_news = 0;
    char why[sizeof pool->why];
    pthread_mutex_lock(&pool->lock);
    reclaim_locked(pool);
    struct hr__space_block *block = hr__space_take(&pool->space, given->length);
    if (!block && may_grow_locked(pool)) {
        /* Reading the limits takes many microseconds. */
        pthread_mutex_unlock(&pool->lock);
        hr__memory_limits_read(&limits, "", -1);
        pthread_mutex_lock(&pool->lock);
        if (!grow_locked(pool, &limits, given->length)) {
            is_news = pool->refused_ns && !pool->is_refused;
            pool->is_refused |= is_news;
            memcpy(why, pool->why, sizeof why);
        }
    }
    if (!block)
        block = make_room_locked(c, given->index, given->length);
    if (block) {
        block->owner_entry = &c->entries[given->index];
        block->owner_bytes = given->source_bytes ? given->source_bytes : given->length;
        c->counts.bytes += block->bytes;
        c->counts.source_bytes += block->owner_bytes;
        c->counts.items[given->form]++;
    } else {
        c->counts.refused++;
    }
    pthread_mutex_unlock(&pool->lock);
    if (is_news)
        hr__log(HR_LOG_WARNING, "the cache grows no further: %s; the rest is read from storage",
                why);
    return block;
}

static int offer(struct hr__cache *cache, const struct hr__cache_offer *given)
{
    struct evicting *c = of(cache);
    struct evicting_entry *entry = &c->entries[given->index];
    if (!given->length || given->length > UINT32_MAX ||
        !hr__private_take(&entry->common, c->dataset, given, WORD_BUSY))
        return 0;
    struct hr__space_block *block = admit(c, given);
    if (!block) {
        atomic_store(&entry->common.word, 0);
        return 0;
    }
    uint8_t *bytes = hr__space_bytes(block);
    hr__private_copy(bytes, given);
    atomic_store(&entry->length, (uint32_t)given->length);
    pthread_mutex_lock(&c->pool->lock);
    block->may_move = 1;
    hr__future_keep(c->order, given->index);
    atomic_store(&entry->common.word, (uint64_t)(uintptr_t)bytes |
                                          (uint64_t)given->form << WORD_FORM_SHIFT | WORD_THERE);
    pthread_mutex_unlock(&c->pool->lock);
    return 1;
}

static enum hr__claim claim(struct hr__cache *cache, uint64_t index,
                            struct hr__cache_ticket *ticket)
{
    struct evicting *c = of(cache);
    *ticket = (struct hr__cache_ticket){.is_claimed = 0};
    if (has(cache, index))
        return HR__CLAIM_FOUND;
    hr__private_claim(&c->entries[index].common, c->dataset, index, ticket);
    return HR__CLAIM_ALONE;
}

static void unclaim(struct hr__cache *cache, struct hr__cache_ticket *ticket)
{
}

static uint64_t waiting(const struct hr__cache *cache)
{
    return 0;
}

static struct hr__cache_staged *take(struct hr__cache *cache, struct hr__cache_item *item)
{
    return NULL;
}

static void get_counts(struct hr__cache *cache, struct hr__cache_counts *counts)
{
    struct evicting *c = of(cache);
    pthread_mutex_lock(&c->pool->lock);
    *counts = c->counts;
    counts->reserved = c->pool->space.used;
    pthread_mutex_unlock(&c->pool->lock);
}

static void publish(struct hr__cache *cache, const struct hr__worth *worth, enum hr_form form,
                    int asked)
{
}

/* ---- the future ---- */

static int evicts(const struct hr__cache *cache)
{
    return 1;
}

static void begin_uses(struct hr__cache *cache)
{
    struct evicting *c = of(cache);
    pthread_mutex_lock(&c->pool->lock);
    hr__future_begin(c->order);
    pthread_mutex_unlock(&c->pool->lock);
}

static void add_uses(struct hr__cache *cache, const int64_t *indices, size_t count)
{
    struct evicting *c = of(cache);
    pthread_mutex_lock(&c->pool->lock);
    /* If memory is short, the future is known less far. */
    for (size_t i = 0; i < count; i++)
        if (hr__future_add(c->order, (uint64_t)indices[i]))
            break;
    pthread_mutex_unlock(&c->pool->lock);
}

static void end_uses(struct hr__cache *cache)
{
    struct evicting *c = of(cache);
    pthread_mutex_lock(&c->pool->lock);
    hr__future_end_epoch(c->order);
    pthread_mutex_unlock(&c->pool->lock);
}

static void use(struct hr__cache *cache, uint64_t index)
{
    struct evicting *c = of(cache);
    pthread_mutex_lock(&c->pool->lock);
    hr__future_use(c->order, index);
    pthread_mutex_unlock(&c->pool->lock);
}

static const struct hr__cache_backend backend = {
    .destroy = destroy,
    .abandon = abandon,
    .find = find,
    .unpin = unpin,
    .has = has,
    .claim = claim,
    .unclaim = unclaim,
    .offer = offer,
    .take = take,
    .get_counts = get_counts,
    .waiting = waiting,
    .publish = publish,
    .evicts = evicts,
    .begin_uses = begin_uses,
    .add_uses = add_uses,
    .end_uses = end_uses,
    .use = use,
};
