/*
 * The cache backing for one process: anonymous memory.
 *
 * The arena of final items is one address range as long as the budget. It is made accessible piece
 * by piece, so a huge budget costs nothing until it is used. Staged items are in chunks. A chunk is
 * returned to the system when the last of its items has left; items leave in nearly the order in
 * which they came.
 *
 * Each sample has one entry (32 bytes), with the place of its item and the state of its file when
 * it was read: a hit checks that the file is unchanged. If it has changed, the item is dropped; its
 * place in the arena is not reused, so readers of the old bytes may continue. Readers take no lock.
 * A final item never moves. A staged item is pinned by a count in its entry: a reader raises the
 * count and then reads the entry again; a thread that moves the item changes the entry and then
 * reads the count. Both use sequentially consistent operations, so at least one of them sees the
 * other.
 *
 * The lock guards space and lists. Bytes are copied outside the lock. The page faults of the copy
 * are then the writing thread's, which allocates the memory on its own NUMA node.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/round.h"
#include "cache/backend.h"
#include "cache/capacity.h"
#include "cache/private_entry.h"
#include "dataset/stamp.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGNMENT 64u

/* How long to wait before asking for memory again after a refusal. */
#define RETRY_NS UINT64_C(5000000000)

/* The step in which the arena becomes accessible, and the size of staging chunks. */
#define ARENA_STEP  (UINT64_C(32) << 20)
#define CHUNK_BYTES (UINT64_C(8) << 20)
#define HUGE_BYTES  (UINT64_C(2) << 20)

/* An entry's word holds the item's address, whose six low bits are zero, with state and form in
 * those bits. 0: not cached. */
enum { STATE_BUSY = 1, STATE_STAGED = 2, STATE_FINAL = 3, STATE_MASK = 3 };
#define FORM_SHIFT 2
#define FORM_MASK  7u

_Static_assert(HR_FORMS <= FORM_MASK + 1, "a word has room for every form");

struct entry {
    struct hr__private_entry common;
    _Atomic uint32_t staged_length; /* written before the word becomes staged */
    _Atomic uint32_t final_length;  /* written before the word becomes final */
    _Atomic uint32_t pins;          /* on the staged bytes */
};

/* A chunk of adjacent staged items. */
struct chunk {
    uint8_t *memory; /* a mapping */
    uint64_t size;   /* of the mapping */
    uint64_t used;
    unsigned live; /* items in it that have not left yet */
    struct chunk *before, *after;
};

struct hr__cache_staged {
    uint64_t index;
    struct chunk *chunk;
    uint64_t padded;  /* bytes that it occupies in the budget */
    uint64_t reserve; /* further bytes reserved for its conversion */
    struct hr__cache_staged *next;
};

struct private
{
    struct hr__cache cache;

    /* Constant after creation. */
    struct hr_dataset *dataset; /* a reference; NULL: do not check files */
    uint64_t samples;
    uint8_t *arena; /* address space for arena_size bytes */
    uint64_t arena_size;
    struct entry *entries;

    _Atomic uint64_t waiting; /* length of the list from `first` */

    pthread_mutex_t lock;                   /* guards the members below */
    uint64_t arena_used;                    /* bytes occupied by final items */
    uint64_t arena_committed;               /* bytes made accessible */
    int is_refused;                         /* memory was refused; this has been logged */
    uint64_t refused_ns;                    /* time of the last refusal; 0: never */
    char why[HR__CAPACITY_WHY];             /* reason for the refusal */
    struct chunk *chunks;                   /* all chunks; the first is being filled */
    struct hr__cache_staged *first, **last; /* items waiting for conversion */
    struct hr__cache_staged *leaving;       /* settled items whose staged bytes are still pinned */
    struct hr__cache_counts counts;
};

static struct private *of(struct hr__cache *cache)
{
    return (struct private *)cache;
}

static const struct private *of_const(const struct hr__cache *cache)
{
    return (const struct private *)cache;
}

static const uint8_t *word_bytes(uint64_t word)
{
    return (const uint8_t *)(uintptr_t)(word & ~(uint64_t)(ALIGNMENT - 1));
}

static uint64_t make_word(const uint8_t *bytes, enum hr_form form, uint64_t state)
{
    return (uint64_t)(uintptr_t)bytes | (uint64_t)form << FORM_SHIFT | state;
}

/*
 * Maps `bytes`, a multiple of HUGE_BYTES, aligned to it: a fresh huge page costs a fifth of the
 * small ones it replaces. The mapping is excluded from forked children, which must not use cached
 * items; copying their page tables would only slow forks.
 */
static void *map(uint64_t bytes, int protection)
{
    uint8_t *memory = mmap(NULL, bytes + HUGE_BYTES, protection,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    uint64_t before = hr__round_up((uintptr_t)memory, HUGE_BYTES) - (uintptr_t)memory;
    if (before)
        munmap(memory, before);
    if (before < HUGE_BYTES)
        munmap(memory + before + bytes, HUGE_BYTES - before);
    memory += before;
    madvise(memory, bytes, MADV_DONTFORK);
    madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static const struct hr__cache_backend backend;
static void destroy(struct hr__cache *cache);

int hr__cache_create(struct hr__cache **out, const struct hr__cache_options *options,
                     struct hr_error *error)
{
    *out = NULL;
    if (!options->budget_bytes)
        return hr__fail(error, -EINVAL, "a cache of 0 bytes");
    struct private *c = hr__alloc(HR__TAG_CACHE, 1, sizeof *c);
    if (!c)
        return hr__fail(error, -ENOMEM, "out of memory for a cache");
    c->cache.backend = &backend;
    pthread_mutex_init(&c->lock, NULL);
    c->last = &c->first;
    c->dataset = options->dataset ? hr_dataset_ref(options->dataset) : NULL;
    c->samples = options->samples;
    c->cache.budget_bytes = options->budget_bytes;
    c->entries = hr__alloc(HR__TAG_CACHE, options->samples, sizeof *c->entries);
    /* A limit far beyond what mmap can provide, so that no sum overflows. */
    if (options->budget_bytes < UINT64_C(1) << 62) {
        c->arena_size = hr__round_up(options->budget_bytes, ARENA_STEP);
        c->arena = map(c->arena_size, PROT_NONE);
    }
    int r = 0;
    if (!c->entries)
        r = hr__fail(error, -ENOMEM, "out of memory for a cache's index of %" PRIu64 " samples",
                     options->samples);
    else if (!c->arena)
        r = hr__fail(error, -ENOMEM,
                     "the system gives no address space for a cache of %" PRIu64
                     " bytes: make the cache smaller, or raise the limit (ulimit -v)",
                     options->budget_bytes);
    if (r) {
        destroy(&c->cache);
        return r;
    }
    *out = &c->cache;
    return 0;
}

static void free_list(struct hr__cache_staged *list)
{
    while (list) {
        struct hr__cache_staged *next = list->next;
        hr__free(list);
        list = next;
    }
}

static void free_chunk(struct private *c, struct chunk *chunk)
{
    if (chunk->before)
        chunk->before->after = chunk->after;
    else
        c->chunks = chunk->after;
    if (chunk->after)
        chunk->after->before = chunk->before;
    munmap(chunk->memory, chunk->size);
    hr__free(chunk);
}

static void destroy(struct hr__cache *cache)
{
    struct private *c = of(cache);
    free_list(c->first);
    free_list(c->leaving);
    while (c->chunks)
        free_chunk(c, c->chunks);
    if (c->arena)
        munmap(c->arena, c->arena_size);
    hr_dataset_unref(&c->dataset);
    hr__free(c->entries);
    pthread_mutex_destroy(&c->lock);
    hr__free(c);
}

static void abandon(struct hr__cache *cache)
{
    struct private *c = of(cache);
    /* The child may have mapped something else at these addresses, so unmap nothing. */
    hr_dataset_unref(&c->dataset);
    hr__free(c->entries);
    hr__free(c);
}

static int has(struct hr__cache *cache, uint64_t index)
{
    uint64_t word =
        atomic_load_explicit(&of(cache)->entries[index].common.word, memory_order_relaxed);
    return (word & STATE_MASK) >= STATE_STAGED;
}

/* Drops the item of a file that has changed. A staged item stays until it is final, and is a miss
 * until then. */
static void drop(struct private *c, uint64_t index, uint64_t word, uint64_t now)
{
    struct entry *e = &c->entries[index];
    if ((word & STATE_MASK) != STATE_FINAL ||
        !atomic_compare_exchange_strong(&e->common.word, &word, STATE_BUSY))
        return;
    atomic_store_explicit(&e->common.of, now, memory_order_release);
    atomic_store(&e->common.word, 0);
    pthread_mutex_lock(&c->lock);
    c->counts.items[word >> FORM_SHIFT & FORM_MASK]--;
    pthread_mutex_unlock(&c->lock);
}

/* Pins the item of an entry. Returns 1; 0 if there is none; -EAGAIN if it was replaced
 * meanwhile. */
static int pin(struct entry *e, struct hr__cache_item *item)
{
    uint64_t word = atomic_load_explicit(&e->common.word, memory_order_acquire);
    item->pinned = 0;
    if ((word & STATE_MASK) == STATE_STAGED) {
        atomic_fetch_add(&e->pins, 1);
        word = atomic_load(&e->common.word);
        item->pinned = (word & STATE_MASK) == STATE_STAGED;
        if (!item->pinned)
            atomic_fetch_sub(&e->pins, 1);
    }
    if ((word & STATE_MASK) < STATE_STAGED)
        return 0;
    item->bytes = word_bytes(word);
    item->length = item->pinned ? e->staged_length : e->final_length;
    item->form = (enum hr_form)(word >> FORM_SHIFT & FORM_MASK);
    /* The length could belong to a newer item, so check that the word is unchanged. */
    if (atomic_load_explicit(&e->common.word, memory_order_relaxed) == word)
        return 1;
    if (item->pinned)
        atomic_fetch_sub(&e->pins, 1);
    return -EAGAIN;
}

static int find(struct hr__cache *cache, uint64_t index, struct hr__cache_item *item)
{
    struct private *c = of(cache);
    struct entry *e = &c->entries[index];
    struct hr__stamp stamp;
    uint64_t first = atomic_load_explicit(&e->common.word, memory_order_acquire);
    if ((first & STATE_MASK) < STATE_STAGED)
        return 0;
    uint64_t now = hr__private_look(c->dataset, index, &stamp);
    if (now != atomic_load_explicit(&e->common.of, memory_order_acquire)) {
        if (now)
            drop(c, index, first, now);
        return 0;
    }
    int r;
    item->index = index;
    do
        r = pin(e, item);
    while (r == -EAGAIN);
    return r;
}

static int unpin(struct hr__cache *cache, const struct hr__cache_item *item)
{
    /* Release: the reads of the bytes precede the decrement after which they may be freed. */
    if (item->pinned)
        atomic_fetch_sub(&of(cache)->entries[item->index].pins, 1);
    return 1;
}

/* Marks the bytes of a staged item that left as free. The chunk being filled is kept, and starts
 * again from its beginning when empty. */
static void unstage_locked(struct private *c, struct chunk *chunk)
{
    if (--chunk->live)
        return;
    if (chunk == c->chunks)
        chunk->used = 0;
    else
        free_chunk(c, chunk);
}

/* Frees items that were still being read when they left. */
static void reclaim_locked(struct private *c)
{
    struct hr__cache_staged **at = &c->leaving;
    while (*at) {
        struct hr__cache_staged *staged = *at;
        if (atomic_load(&c->entries[staged->index].pins)) {
            at = &staged->next;
            continue;
        }
        *at = staged->next;
        unstage_locked(c, staged->chunk);
        hr__free(staged);
    }
}

static void refuse_locked(struct private *c)
{
    c->refused_ns = hr__now_ns();
    snprintf(c->why, sizeof c->why,
             "the system refuses it; make the cache smaller, or give the process more memory");
}

/* Returns whether space for `padded` bytes, staged or in the arena, needs more memory. After a
 * refusal, waits a while before asking again. */
static int must_grow_locked(const struct private *c, uint64_t padded, int is_staged)
{
    const struct chunk *chunk = c->chunks;
    if (c->refused_ns && hr__now_ns() - c->refused_ns < RETRY_NS)
        return 0;
    return is_staged ? !chunk || chunk->size - chunk->used < padded
                     : c->arena_used + padded > c->arena_committed;
}

/* Takes the lock before space for `padded` bytes is taken. If that needs more memory, first reads
 * the system's limits without the lock, because this takes many microseconds; then returns `now`,
 * else NULL. */
static const struct hr__memory_limits *lock_for(struct private *c, uint64_t padded, int is_staged,
                                                struct hr__memory_limits *now)
{
    pthread_mutex_lock(&c->lock);
    reclaim_locked(c);
    if (!must_grow_locked(c, padded, is_staged))
        return NULL;
    pthread_mutex_unlock(&c->lock);
    hr__memory_limits_read(now, "", -1);
    pthread_mutex_lock(&c->lock);
    return now;
}

/* Returns how many of `wanted` bytes there is memory for: all, `least`, or 0. now: from
 * lock_for. */
static uint64_t allowed_locked(struct private *c, const struct hr__memory_limits *now,
                               uint64_t least, uint64_t wanted)
{
    if (!now)
        return 0;
    uint64_t bytes = hr__capacity_grants(now, wanted, c->why)  ? wanted
                     : hr__capacity_grants(now, least, c->why) ? least
                                                               : 0;
    c->refused_ns = bytes ? 0 : hr__now_ns();
    return bytes;
}

/* Takes space for `padded` bytes in the arena. Returns NULL if there is none. */
static uint8_t *arena_take_locked(struct private *c, uint64_t padded,
                                  const struct hr__memory_limits *now)
{
    uint64_t end = c->arena_used + padded;
    if (end > c->arena_size)
        return NULL;
    if (end > c->arena_committed) {
        /* With strict overcommit, the kernel grants or refuses memory here. */
        uint64_t from = c->arena_committed;
        uint64_t more = allowed_locked(c, now, hr__round_up(end, HUGE_BYTES) - from,
                                       hr__round_up(end, ARENA_STEP) - from);
        if (!more)
            return NULL;
        if (mprotect(c->arena + from, more, PROT_READ | PROT_WRITE)) {
            refuse_locked(c);
            return NULL;
        }
        c->arena_committed += more;
    }
    uint8_t *space = c->arena + c->arena_used;
    c->arena_used = end;
    return space;
}

/* Returns a chunk with room for `padded` bytes, or NULL. */
static struct chunk *chunk_with_room_locked(struct private *c, uint64_t padded,
                                            const struct hr__memory_limits *now)
{
    struct chunk *chunk = c->chunks;
    if (chunk && chunk->size - chunk->used >= padded)
        return chunk;
    uint64_t size = padded > CHUNK_BYTES ? hr__round_up(padded, HUGE_BYTES) : CHUNK_BYTES;
    if (!allowed_locked(c, now, size, size))
        return NULL;
    chunk = hr__alloc(HR__TAG_CACHE, 1, sizeof *chunk);
    if (!chunk)
        return NULL;
    chunk->size = size;
    chunk->memory = map(chunk->size, PROT_READ | PROT_WRITE);
    if (!chunk->memory) {
        refuse_locked(c);
        hr__free(chunk);
        return NULL;
    }
    struct chunk *filled = c->chunks;
    chunk->after = filled;
    if (filled)
        filled->before = chunk;
    c->chunks = chunk;
    if (filled && !filled->live)
        free_chunk(c, filled);
    return chunk;
}

static uint8_t *stage_locked(struct private *c, struct hr__cache_staged *staged,
                             const struct hr__memory_limits *now)
{
    struct chunk *chunk = chunk_with_room_locked(c, staged->padded, now);
    if (!chunk)
        return NULL;
    uint8_t *space = chunk->memory + chunk->used;
    chunk->used += staged->padded;
    chunk->live++;
    staged->chunk = chunk;
    return space;
}

static void log_refused(struct private *c)
{
    struct hr__cache_counts now;
    char why[sizeof c->why];
    pthread_mutex_lock(&c->lock);
    now = c->counts;
    memcpy(why, c->why, sizeof why);
    pthread_mutex_unlock(&c->lock);
    hr__log(HR_LOG_WARNING,
            "the cache stays at %" PRIu64 " of %" PRIu64
            " bytes: %s; the rest is read from storage",
            now.bytes, c->cache.budget_bytes, why);
}

/* Takes space for an offer within the budget. Returns NULL if it is refused. */
static uint8_t *admit(struct private *c, const struct hr__cache_offer *offer,
                      struct hr__cache_staged *staged, uint64_t padded, uint64_t reserve)
{
    int is_news = 0;
    uint8_t *space = NULL;
    struct hr__memory_limits found;
    const struct hr__memory_limits *now = lock_for(c, padded, staged != NULL, &found);
    if (padded + reserve <= c->cache.budget_bytes - c->counts.reserved) {
        space = staged ? stage_locked(c, staged, now) : arena_take_locked(c, padded, now);
        is_news = !space && c->refused_ns && !c->is_refused;
        c->is_refused |= is_news;
    }
    if (space) {
        c->counts.reserved += padded + reserve;
        c->counts.bytes += padded;
        c->counts.source_bytes += offer->source_bytes ? offer->source_bytes : offer->length;
        c->counts.items[offer->form]++;
        c->counts.staged += staged != NULL;
        c->counts.staged_bytes += staged ? padded : 0;
    } else {
        c->counts.refused++;
    }
    pthread_mutex_unlock(&c->lock);
    if (is_news)
        log_refused(c);
    return space;
}

static void wait_for_conversion(struct private *c, struct hr__cache_staged *staged)
{
    pthread_mutex_lock(&c->lock);
    *c->last = staged;
    c->last = &staged->next;
    atomic_fetch_add_explicit(&c->waiting, 1, memory_order_relaxed);
    pthread_mutex_unlock(&c->lock);
}

static int offer(struct hr__cache *cache, const struct hr__cache_offer *given)
{
    struct private *c = of(cache);
    struct entry *e = &c->entries[given->index];
    if (!given->length || given->length > UINT32_MAX ||
        !hr__private_take(&e->common, c->dataset, given, STATE_BUSY))
        return 0;
    uint64_t padded = hr__round_up(given->length, ALIGNMENT), reserve = 0;
    struct hr__cache_staged *staged = NULL;
    if (given->convert) {
        staged = hr__alloc(HR__TAG_CACHE, 1, sizeof *staged);
        if (!staged) {
            atomic_store(&e->common.word, 0);
            return 0;
        }
        if (given->reserve > padded)
            reserve = hr__round_up(given->reserve, ALIGNMENT) - padded;
        *staged =
            (struct hr__cache_staged){.index = given->index, .padded = padded, .reserve = reserve};
    }
    uint8_t *space = admit(c, given, staged, padded, reserve);
    if (!space) {
        hr__free(staged);
        atomic_store(&e->common.word, 0);
        return 0;
    }
    hr__private_copy(space, given);
    if (staged)
        e->staged_length = (uint32_t)given->length;
    else
        e->final_length = (uint32_t)given->length;
    atomic_store(&e->common.word,
                 make_word(space, given->form, staged ? STATE_STAGED : STATE_FINAL));
    if (staged)
        wait_for_conversion(c, staged);
    return 1;
}

static uint64_t waiting(const struct hr__cache *cache)
{
    const struct private *c = of_const(cache);
    return atomic_load_explicit(&c->waiting, memory_order_relaxed);
}

static struct hr__cache_staged *take(struct hr__cache *cache, struct hr__cache_item *item)
{
    struct private *c = of(cache);
    if (!waiting(cache))
        return NULL;
    pthread_mutex_lock(&c->lock);
    struct hr__cache_staged *staged = c->first;
    if (staged) {
        c->first = staged->next;
        if (!c->first)
            c->last = &c->first;
        staged->next = NULL;
        atomic_fetch_sub_explicit(&c->waiting, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&c->lock);
    if (!staged)
        return NULL;
    struct entry *e = &c->entries[staged->index];
    uint64_t word = atomic_load_explicit(&e->common.word, memory_order_acquire);
    *item = (struct hr__cache_item){
        .bytes = word_bytes(word),
        .length = e->staged_length,
        .form = (enum hr_form)(word >> FORM_SHIFT & FORM_MASK),
        .index = staged->index,
    };
    return staged;
}

/* Returns how many bytes a staged item may become: its own, those reserved for it, and the free
 * ones beyond `leave_free`. */
static uint64_t room_locked(const struct private *c, const struct hr__cache_staged *staged,
                            uint64_t leave_free)
{
    uint64_t own = staged->padded + staged->reserve;
    uint64_t free = c->cache.budget_bytes - c->counts.reserved;
    return own + (free > leave_free ? free - leave_free : 0);
}

static uint64_t room(struct hr__cache *cache, const struct hr__cache_staged *staged,
                     uint64_t leave_free)
{
    struct private *c = of(cache);
    pthread_mutex_lock(&c->lock);
    uint64_t room = room_locked(c, staged, leave_free);
    pthread_mutex_unlock(&c->lock);
    return room;
}

/* Takes space in the arena for a converted item and updates the counts. Returns NULL if there is no
 * room. */
static uint8_t *replace_locked(struct private *c, const struct hr__cache_staged *staged,
                               uint64_t padded, uint64_t leave_free,
                               const struct hr__memory_limits *now)
{
    uint8_t *space = NULL;
    if (padded <= room_locked(c, staged, leave_free))
        space = arena_take_locked(c, padded, now);
    if (!space)
        return NULL;
    c->counts.reserved += padded - staged->padded - staged->reserve;
    c->counts.bytes += padded - staged->padded;
    c->counts.staged--;
    c->counts.staged_bytes -= staged->padded;
    return space;
}

/* Releases what was reserved for the conversion of an item that stays in staging because there is
 * no memory for it in the arena. */
static void keep_staged_locked(struct private *c, struct hr__cache_staged *staged)
{
    c->counts.reserved -= staged->reserve;
    c->counts.staged--;
    c->counts.staged_bytes -= staged->padded;
}

static int settle(struct hr__cache *cache, struct hr__cache_staged *staged,
                  const struct hr__cache_final *final)
{
    struct private *c = of(cache);
    struct entry *e = &c->entries[staged->index];
    uint64_t word = atomic_load_explicit(&e->common.word, memory_order_acquire);
    enum hr_form from = (enum hr_form)(word >> FORM_SHIFT & FORM_MASK), to = from;
    const void *bytes = word_bytes(word);
    uint8_t *space = NULL;
    size_t length = e->staged_length;
    uint64_t padded = 0;
    if (final->bytes && final->length && final->length <= UINT32_MAX)
        padded = hr__round_up(final->length, ALIGNMENT);
    struct hr__memory_limits found;
    const struct hr__memory_limits *now =
        lock_for(c, padded > staged->padded ? padded : staged->padded, 0, &found);
    if (padded)
        space = replace_locked(c, staged, padded, final->leave_free, now);
    int converted = space != NULL;
    if (converted) {
        bytes = final->bytes;
        length = final->length;
        to = final->form;
        c->counts.items[from]--;
        c->counts.items[to]++;
    } else {
        space = replace_locked(c, staged, staged->padded, 0, now);
    }
    if (!space)
        keep_staged_locked(c, staged);
    pthread_mutex_unlock(&c->lock);
    if (!space) {
        hr__free(staged);
        return 0;
    }
    memcpy(space, bytes, length);
    e->final_length = (uint32_t)length;
    atomic_store(&e->common.word, make_word(space, to, STATE_FINAL));
    pthread_mutex_lock(&c->lock);
    staged->next = c->leaving;
    c->leaving = staged;
    reclaim_locked(c);
    pthread_mutex_unlock(&c->lock);
    return converted;
}

static void get_counts(struct hr__cache *cache, struct hr__cache_counts *counts)
{
    struct private *c = of(cache);
    pthread_mutex_lock(&c->lock);
    *counts = c->counts;
    pthread_mutex_unlock(&c->lock);
}

static enum hr__claim claim(struct hr__cache *cache, uint64_t index,
                            struct hr__cache_ticket *ticket)
{
    struct private *c = of(cache);
    *ticket = (struct hr__cache_ticket){.is_claimed = 0};
    if (has(cache, index))
        return HR__CLAIM_FOUND;
    hr__private_claim(&c->entries[index].common, c->dataset, index, ticket);
    return HR__CLAIM_ALONE;
}

static void unclaim(struct hr__cache *cache, struct hr__cache_ticket *ticket)
{
}

static void publish(struct hr__cache *cache, const struct hr__worth *worth, enum hr_form form,
                    int asked)
{
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
    .room = room,
    .settle = settle,
    .get_counts = get_counts,
    .waiting = waiting,
    .publish = publish,
};
