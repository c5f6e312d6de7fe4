/*
 * The backing of a cache for one process: anonymous memory.
 *
 * The arena of final items is one range of addresses as long as the budget, made
 * usable piece by piece, so that a huge budget costs nothing until it is used.
 * Staged items lie in chunks that are given back to the system when the last of
 * their items has left; items leave in the order in which they came, nearly.
 *
 * One entry a sample (32 bytes) says where its item is, and what its file was like when it was
 * read: a hit looks whether it still is. An item of a file that has changed is dropped; its
 * place in the arena is not used again, so that whoever reads it there may go on. Readers take no
 * lock: a final item never moves, and a staged one is pinned by a count in its entry, which is
 * raised before the entry is looked at again; whoever moves the item changes the entry before
 * looking at the count. Both use sequentially consistent operations, so at least one sees the
 * other.
 *
 * The lock guards space and lists. Bytes are copied outside it; the page faults
 * of that are then the writer's own, on its own NUMA node.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/round.h"
#include "cache/backend.h"
#include "cache/capacity.h"
#include "dataset/stamp.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGNMENT 64u

/* Where memory was refused it is asked for again after so long. */
#define RETRY_NS UINT64_C(5000000000)

/* The arena becomes usable in such steps, and staging comes in such chunks. */
#define ARENA_STEP  (UINT64_C(32) << 20)
#define CHUNK_BYTES (UINT64_C(8) << 20)
#define HUGE_BYTES  (UINT64_C(2) << 20)

/* Words of an entry: the address of the item, which has six low bits to spare,
 * with its state and form in them. 0: not cached. */
enum { STATE_BUSY = 1, STATE_STAGED = 2, STATE_FINAL = 3, STATE_MASK = 3 };
#define FORM_SHIFT 2
#define FORM_MASK  3u

struct entry {
    _Atomic uint64_t word;
    _Atomic uint32_t staged_length; /* written before the word says staged */
    _Atomic uint32_t final_length;  /* written before the word says final */
    _Atomic uint32_t pins;          /* of the staged bytes */
    _Atomic uint64_t of; /* digest of the stamp of its file: of the item's, where there is one,
                            else as last seen; 0: not yet */
};

/* Staged items, one behind the other. */
struct chunk {
    uint8_t *memory; /* mapped */
    uint64_t size;   /* of the mapping */
    uint64_t used;
    unsigned live; /* items in it that have not left */
    struct chunk *before, *after;
};

struct hr__cache_staged {
    uint64_t index;
    struct chunk *chunk;
    uint64_t padded;  /* bytes of it in the budget */
    uint64_t reserve; /* more bytes that are kept free for its conversion */
    struct hr__cache_staged *next;
};

struct private
{
    struct hr__cache cache;

    /* Constant from create on. */
    struct hr_dataset *dataset; /* a reference; NULL: files are not looked at */
    uint64_t samples;
    uint8_t *arena; /* address space for arena_size bytes */
    uint64_t arena_size;
    struct entry *entries;

    _Atomic uint64_t waiting; /* items in the list of that name */

    pthread_mutex_t lock;                   /* guards everything below */
    uint64_t arena_used;                    /* bytes given to final items */
    uint64_t arena_committed;               /* bytes that may be touched */
    int is_refused;                         /* more memory; it has been logged */
    uint64_t refused_ns;                    /* when it was refused last; 0: never */
    char why[HR__CAPACITY_WHY];             /* it was */
    struct chunk *chunks;                   /* all; the first is the one that is being filled */
    struct hr__cache_staged *first, **last; /* waiting for a conversion */
    struct hr__cache_staged *leaving;       /* final now, but their staged bytes were pinned */
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
 * Address space for `bytes`, a multiple of HUGE_BYTES, and aligned to it: a fresh
 * huge page costs a fifth of as many small ones. Cached items would only make forks
 * slow, and a child must not use them.
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
    /* Half of all addresses: beyond what mmap can give, and no sum overflows. */
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
    /* Where the items were, the child may have mapped something else. */
    hr_dataset_unref(&c->dataset);
    hr__free(c->entries);
    hr__free(c);
}

static int has(struct hr__cache *cache, uint64_t index)
{
    uint64_t word = atomic_load_explicit(&of(cache)->entries[index].word, memory_order_relaxed);
    return (word & STATE_MASK) >= STATE_STAGED;
}

/* Digest of what the sample's file is like now; 0: it cannot be looked at. */
static uint64_t look(const struct private *c, uint64_t index, struct hr__stamp *stamp)
{
    if (!c->dataset)
        return 1;
    return hr__stamp_now(stamp, c->dataset, index) ? 0 : hr__stamp_digest(stamp);
}

/* Drops the item of a file that has changed. One that is staged stays until it is final: it is
 * a miss till then. */
static void drop(struct private *c, uint64_t index, uint64_t word, uint64_t now)
{
    struct entry *e = &c->entries[index];
    if ((word & STATE_MASK) != STATE_FINAL ||
        !atomic_compare_exchange_strong(&e->word, &word, STATE_BUSY))
        return;
    atomic_store_explicit(&e->of, now, memory_order_release);
    atomic_store(&e->word, 0);
    pthread_mutex_lock(&c->lock);
    c->counts.items[word >> FORM_SHIFT & FORM_MASK]--;
    pthread_mutex_unlock(&c->lock);
}

/* Pins what an entry has now: 1; 0: nothing; -EAGAIN: that was replaced meanwhile. */
static int pin(struct entry *e, struct hr__cache_item *item)
{
    uint64_t word = atomic_load_explicit(&e->word, memory_order_acquire);
    item->pinned = 0;
    if ((word & STATE_MASK) == STATE_STAGED) {
        atomic_fetch_add(&e->pins, 1);
        word = atomic_load(&e->word);
        item->pinned = (word & STATE_MASK) == STATE_STAGED;
        if (!item->pinned)
            atomic_fetch_sub(&e->pins, 1);
    }
    if ((word & STATE_MASK) < STATE_STAGED)
        return 0;
    item->bytes = word_bytes(word);
    item->length = item->pinned ? e->staged_length : e->final_length;
    item->form = (enum hr_form)(word >> FORM_SHIFT & FORM_MASK);
    /* The length may be that of an item that has come in its place. */
    if (atomic_load_explicit(&e->word, memory_order_relaxed) == word)
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
    uint64_t first = atomic_load_explicit(&e->word, memory_order_acquire);
    if ((first & STATE_MASK) < STATE_STAGED)
        return 0;
    uint64_t now = look(c, index, &stamp);
    if (now != atomic_load_explicit(&e->of, memory_order_acquire)) {
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
    /* Release: the reads of the bytes come before whoever sees 0 frees them. */
    if (item->pinned)
        atomic_fetch_sub(&of(cache)->entries[item->index].pins, 1);
    return 1;
}

/* The bytes of a staged item that left are free. The chunk that is being filled
 * stays, and begins anew when it is empty. */
static void unstage_locked(struct private *c, struct chunk *chunk)
{
    if (--chunk->live)
        return;
    if (chunk == c->chunks)
        chunk->used = 0;
    else
        free_chunk(c, chunk);
}

/* Frees what was still being read when it left. */
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

/* Whether space for `padded` bytes, staged or in the arena, takes more memory. Where that was
 * refused it is asked for again after a while. */
static int must_grow_locked(const struct private *c, uint64_t padded, int is_staged)
{
    const struct chunk *chunk = c->chunks;
    if (c->refused_ns && hr__now_ns() - c->refused_ns < RETRY_NS)
        return 0;
    return is_staged ? !chunk || chunk->size - chunk->used < padded
                     : c->arena_used + padded > c->arena_committed;
}

/* Locks before space for `padded` bytes is taken. Where that takes more memory, what the system has
 * is read first, without the lock, for it takes many microseconds: returns `now`, else NULL. */
static const struct hr__capacity *lock_for(struct private *c, uint64_t padded, int is_staged,
                                           struct hr__capacity *now)
{
    pthread_mutex_lock(&c->lock);
    reclaim_locked(c);
    if (!must_grow_locked(c, padded, is_staged))
        return NULL;
    pthread_mutex_unlock(&c->lock);
    hr__capacity_read(now, -1);
    pthread_mutex_lock(&c->lock);
    return now;
}

/* How much of `wanted` bytes there is memory for: all, `least`, or 0. now: of lock_for. */
static uint64_t allowed_locked(struct private *c, const struct hr__capacity *now, uint64_t least,
                               uint64_t wanted)
{
    if (!now)
        return 0;
    uint64_t bytes = hr__capacity_grants(now, wanted, c->why)  ? wanted
                     : hr__capacity_grants(now, least, c->why) ? least
                                                               : 0;
    c->refused_ns = bytes ? 0 : hr__now_ns();
    return bytes;
}

/* Space for `padded` bytes in the arena, or NULL. */
static uint8_t *arena_take_locked(struct private *c, uint64_t padded,
                                  const struct hr__capacity *now)
{
    uint64_t end = c->arena_used + padded;
    if (end > c->arena_size)
        return NULL;
    if (end > c->arena_committed) {
        /* Under strict overcommit this is where memory is granted or refused. */
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

/* A chunk with room for `padded` bytes, or NULL. */
static struct chunk *chunk_with_room_locked(struct private *c, uint64_t padded,
                                            const struct hr__capacity *now)
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
                             const struct hr__capacity *now)
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

static void tell_refused(struct private *c)
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

/* Space for an offer, within the budget; NULL: refused. */
static uint8_t *admit(struct private *c, const struct hr__cache_offer *offer,
                      struct hr__cache_staged *staged, uint64_t padded, uint64_t reserve)
{
    int tell = 0;
    uint8_t *space = NULL;
    struct hr__capacity found;
    const struct hr__capacity *now = lock_for(c, padded, staged != NULL, &found);
    if (padded + reserve <= c->cache.budget_bytes - c->counts.reserved) {
        space = staged ? stage_locked(c, staged, now) : arena_take_locked(c, padded, now);
        tell = !space && c->refused_ns && !c->is_refused;
        c->is_refused |= tell;
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
    if (tell)
        tell_refused(c);
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

/* Makes an empty entry this thread's: non-zero where the file is as it was when its read
 * began, and was not being written then. What it is like now is remembered. */
static int take_entry(struct private *c, const struct hr__cache_offer *given)
{
    struct entry *e = &c->entries[given->index];
    struct hr__stamp stamp = {.bytes = 0};
    uint64_t none = 0, now = look(c, given->index, &stamp);
    if (!atomic_compare_exchange_strong(&e->word, &none, STATE_BUSY))
        return 0;
    atomic_store_explicit(&e->of, now, memory_order_release);
    if (!c->dataset ||
        (now && given->ticket && now == given->ticket->key[0] && !hr__stamp_is_fresh(&stamp)))
        return 1;
    atomic_store(&e->word, 0);
    return 0;
}

static int offer(struct hr__cache *cache, const struct hr__cache_offer *given)
{
    struct private *c = of(cache);
    struct entry *e = &c->entries[given->index];
    if (!given->length || given->length > UINT32_MAX || !take_entry(c, given))
        return 0;
    uint64_t padded = hr__round_up(given->length, ALIGNMENT), reserve = 0;
    struct hr__cache_staged *staged = NULL;
    if (given->convert) {
        staged = hr__alloc(HR__TAG_CACHE, 1, sizeof *staged);
        if (!staged) {
            atomic_store(&e->word, 0);
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
        atomic_store(&e->word, 0);
        return 0;
    }
    memcpy(space, given->bytes, given->length);
    if (staged)
        e->staged_length = (uint32_t)given->length;
    else
        e->final_length = (uint32_t)given->length;
    atomic_store(&e->word, make_word(space, given->form, staged ? STATE_STAGED : STATE_FINAL));
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
    uint64_t word = atomic_load_explicit(&e->word, memory_order_acquire);
    *item = (struct hr__cache_item){
        .bytes = word_bytes(word),
        .length = e->staged_length,
        .form = (enum hr_form)(word >> FORM_SHIFT & FORM_MASK),
        .index = staged->index,
    };
    return staged;
}

/* Bytes that a staged item may become: its own and what was kept for it, and of
 * the free ones those above `leave_free`. */
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

/* Space in the arena for what a staged item becomes, with the books brought up
 * to date; NULL: no room. */
static uint8_t *replace_locked(struct private *c, const struct hr__cache_staged *staged,
                               uint64_t padded, uint64_t leave_free, const struct hr__capacity *now)
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

/* Gives up what was kept for the conversion of an item that stays in staging
 * because the arena has no memory for it. */
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
    uint64_t word = atomic_load_explicit(&e->word, memory_order_acquire);
    enum hr_form from = (enum hr_form)(word >> FORM_SHIFT & FORM_MASK), to = from;
    const void *bytes = word_bytes(word);
    uint8_t *space = NULL;
    size_t length = e->staged_length;
    uint64_t padded = 0;
    if (final->bytes && final->length && final->length <= UINT32_MAX)
        padded = hr__round_up(final->length, ALIGNMENT);
    struct hr__capacity found;
    const struct hr__capacity *now =
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
    atomic_store(&e->word, make_word(space, to, STATE_FINAL));
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
    struct hr__stamp stamp;
    *ticket = (struct hr__cache_ticket){.is_claimed = 0};
    if (has(cache, index))
        return HR__CLAIM_FOUND;
    uint64_t seen = atomic_load_explicit(&c->entries[index].of, memory_order_relaxed);
    if (!seen && c->dataset)
        seen = hr__stamp_believed(&stamp, c->dataset, index) ? hr__stamp_digest(&stamp)
                                                             : look(c, index, &stamp);
    ticket->key[0] = seen;
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
