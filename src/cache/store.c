/*
 * Finds, claims and admits items; see store.h. Conversions are in store_staging.c, items on disk in
 * store_disk.c.
 */
#include "cache/store_inside.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "cache/directory.h"
#include "cache/segment_disk.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

/* How long to wait for a process that makes no progress, and for any single read. */
#define PATIENCE_NS UINT64_C(2000000000)
#define CLAIM_NS    UINT64_C(10000000000)
/* How long the number of other users stays valid before it is updated. */
#define OTHERS_NS UINT64_C(100000000)

/* A user that is ahead waits this long, plus a fiftieth of all time, for users behind it that have
 * moved lately, unless they are too far behind to catch up. */
#define AHEAD_NS       UINT64_C(1000000000)
#define AHEAD_SHARE    50
#define AHEAD_PAUSE_NS UINT64_C(5000000)
#define MOVED_NS       UINT64_C(200000000)
#define CATCH_UP       64

struct hr__key hr__key_of(const void *bytes, size_t length, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(bytes, length, seed);
    return (struct hr__key){.high = h.high64 ? h.high64 : 1, .low = h.low64 ? h.low64 : 1};
}

int hr__store_create(struct hr__store **out, struct hr__segment *segment, struct hr_error *error)
{
    struct hr__store *store = hr__alloc(HR__TAG_CACHE, 1, sizeof *store);
    *out = store;
    if (!store) {
        hr__directory_close(&segment);
        return hr__fail(error, -ENOMEM, "out of memory for a cache");
    }
    store->segment = segment;
    store->created_ns = hr__now_ns();
    pthread_mutex_init(&store->growing, NULL);
    hr__store_orders_init(store);
    return 0;
}

void hr__store_destroy(struct hr__store **store)
{
    if (!*store)
        return;
    hr__directory_close(&(*store)->segment);
    pthread_mutex_destroy(&(*store)->growing);
    hr__store_orders_free(*store);
    hr__free(*store);
    *store = NULL;
}

void hr__store_abandon(struct hr__store **store)
{
    if (!*store)
        return;
    hr__segment_detach(&(*store)->segment);
    hr__free(*store);
    *store = NULL;
}

struct hr__segment *hr__store_segment(struct hr__store *store)
{
    return store->segment;
}

static int is_hit(const struct hr__segment *s, const struct hr__found *found)
{
    return found->word.state == HR__ENTRY_FINAL ||
           (found->word.state == HR__ENTRY_STAGED && hr__ring_is_valid(s, found->offset));
}

int hr__store_has(struct hr__store *store, const struct hr__key *key)
{
    struct hr__found found;
    uint64_t free;
    return hr__segment_is_sound(store->segment) &&
           hr__store_search(store->segment, key, 0, &found, &free) &&
           is_hit(store->segment, &found);
}

/* Returns non-zero if the bytes of items may be replaced while they are read. */
static int evicts(const struct hr__segment *s)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&s->header->evicts, memory_order_relaxed) != 0;
}

/* Finds an item in the arena, in place. Copies it if it is in blocks or may be evicted, and with a
 * secret, so that it cannot change after the check. Returns 0 if out of memory, -EBADMSG if the
 * item is impossible. */
static int find_final(struct hr__segment *s, const struct hr__found *found,
                      struct hr__cache_item *item)
{
    uint64_t allocated = hr__segment_books(s).arena_allocated;
    uint64_t length = found->word.taken ? 1 : found->length; /* that lies together there */
    if (found->offset % HR__SEGMENT_ALIGN || found->length > s->layout.arena_bytes ||
        found->offset > s->layout.arena_bytes - length || found->offset + length > allocated)
        return -EBADMSG;
    item->bytes = s->arena + found->offset;
    if (s->secret.is_set || found->word.taken || evicts(s)) {
        item->copy = hr__alloc_aligned(HR__TAG_CACHE, hr__store_padded(found->length), 64);
        if (!item->copy)
            return 0;
        if (!hr__blocks_copy(s, found, item->copy))
            return -EBADMSG;
        item->bytes = item->copy;
    }
    return hr__store_is_right(s, found, item->bytes) ? 1 : -EBADMSG;
}

/* Returns non-zero if an entry has changed since it was found. */
static int has_changed(struct hr__segment *s, const struct hr__found *found)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load(&s->entries[found->index].word) != hr__word_pack(&found->word);
}

/* Copies an item out of the ring. Returns 0 if it is no longer there. */
static int find_staged(struct hr__segment *s, const struct hr__found *found,
                       struct hr__cache_item *item)
{
    if (!hr__ring_takes(s, found->length))
        return -EBADMSG;
    item->copy = hr__alloc_aligned(HR__TAG_CACHE, hr__store_padded(found->length), 64);
    if (!item->copy || !hr__ring_copy(s, found->offset, item->copy, found->length))
        return 0;
    item->bytes = item->copy;
    return hr__store_is_right(s, found, item->bytes) ? 1 : -EBADMSG;
}

int hr__store_find(struct hr__store *store, const struct hr__key *key, struct hr__cache_item *item)
{
    struct hr__segment *s = store->segment;
    struct hr__found found;
    uint64_t free;
    int r = 0;
    *item = (struct hr__cache_item){.copy = NULL};
    if (s->on_disk)
        return hr__store_find_on_disk(store, key, item);
    /* An item that left the ring, or was evicted, may be in the arena now, so search again. */
    for (int tries = 0; !r && tries < 3; tries++) {
        if (!hr__segment_is_sound(s) || !hr__store_search(s, key, 0, &found, &free) ||
            !is_hit(s, &found))
            return 0;
        r = found.word.state == HR__ENTRY_FINAL ? find_final(s, &found, item)
                                                : find_staged(s, &found, item);
        if (r != 1)
            hr__store_clear(item);
        /* It was evicted meanwhile: what was read was another item. */
        if (r < 0 && has_changed(s, &found))
            r = 0;
    }
    if (r < 0)
        hr__segment_reject(s);
    if (r != 1)
        return 0;
    item->length = found.length;
    item->form = (enum hr_form)found.word.form;
    atomic_fetch_add_explicit(&s->user->hits, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->user->saved_bytes, found.source_bytes, memory_order_relaxed);
    return 1;
}

int hr__store_is_whole(struct hr__store *store, const struct hr__cache_item *item)
{
    return item->copy || (!evicts(store->segment) && hr__segment_is_sound(store->segment));
}

void hr__store_clear(struct hr__cache_item *item)
{
    hr__free(item->copy);
    item->copy = NULL;
    item->bytes = NULL;
}

/* Returns the number of other users; asks the system at most ten times a second. */
static int has_others(struct hr__store *store)
{
    uint64_t now = hr__now_ns();
    uint64_t asked = atomic_load_explicit(&store->others_asked_ns, memory_order_relaxed);
    if (!asked || now - asked > OTHERS_NS) {
        atomic_store(&store->others, hr__segment_users(store->segment, NULL, 0));
        atomic_store(&store->others_asked_ns, now);
        hr__store_look_around(store, now);
    }
    return atomic_load(&store->others);
}

/* Returns non-zero while the user of a slot is alive and its reads make progress. `since_ns`: when
 * it began this read. */
static int is_getting_on(struct hr__store *store, unsigned slot, uint64_t since_ns)
{
    uint64_t now = hr__now_ns();
    if (now - since_ns > CLAIM_NS)
        return 0;
    uint64_t progress =
        atomic_load_explicit(&store->segment->header->users[slot].progress, memory_order_relaxed);
    if (!atomic_load(&store->since_ns[slot]) || atomic_load(&store->progress[slot]) != progress) {
        atomic_store(&store->progress[slot], progress);
        atomic_store(&store->since_ns[slot], now);
    } else if (now - atomic_load(&store->since_ns[slot]) > PATIENCE_NS) {
        return 0;
    }
    return hr__segment_is_alive(store->segment, slot);
}

/* Derives from an entry who reads its sample; HR__CLAIM_YOURS: nobody. */
static enum hr__claim judge(struct hr__store *store, const struct hr__found *found)
{
    struct hr__segment *s = store->segment;
    if (is_hit(s, found))
        return HR__CLAIM_FOUND;
    if (found->word.state != HR__ENTRY_CLAIMED)
        return HR__CLAIM_YOURS;
    if (found->word.owner == (unsigned)s->slot)
        return HR__CLAIM_ALONE;
    /* While it is being written, `offset` is its place. */
    uint64_t since_ns =
        found->word.pending ? hr__store_since_ns(found->word.reserve) : found->offset;
    if (is_getting_on(store, found->word.owner, since_ns))
        return HR__CLAIM_BUSY;
    return hr__segment_is_alive(s, found->word.owner) ? HR__CLAIM_ALONE : HR__CLAIM_YOURS;
}

/* Claims a key: records in its entry that this user reads the sample. */
static enum hr__claim claim(struct hr__store *store, const struct hr__key *key)
{
    struct hr__segment *s = store->segment;
    struct hr__books *books = hr__segment_begin(s);
    struct hr__found found;
    uint64_t free;
    if (!books)
        return HR__CLAIM_ALONE;
    enum hr__claim answer = HR__CLAIM_YOURS;
    if (hr__store_search(s, key, 1, &found, &free)) {
        answer = judge(store, &found);
        free = found.index;
    }
    if (answer != HR__CLAIM_YOURS || free == UINT64_MAX) {
        hr__segment_abort(s);
        return answer == HR__CLAIM_YOURS ? HR__CLAIM_ALONE : answer;
    }
    struct hr__word word = {.state = HR__ENTRY_CLAIMED, .owner = (unsigned)s->slot};
    hr__segment_change(s, books, free);
    hr__segment_give_back(s, books, &books->after);
    books->after = (struct hr__entry_value){
        .word = hr__word_pack(&word),
        .key_high = key->high,
        .key_low = key->low,
        .offset = hr__now_ns(),
    };
    atomic_fetch_add(&s->user->open, 1);
    hr__segment_commit(s);
    return HR__CLAIM_YOURS;
}

/* Returns zero if a claim is useless: no user could wait for it, and later ones would not find the
 * item either. */
static int is_of_use(struct hr__store *store)
{
    return !atomic_load_explicit(&store->crowded, memory_order_relaxed) || has_others(store);
}

void hr__store_note_place(struct hr__store *store, const struct hr__cache_progress *at)
{
    struct hr__segment_user *user = store->segment->user;
    if (!hr__segment_is_sound(store->segment))
        return;
    atomic_store_explicit(&user->order, at->order, memory_order_relaxed);
    atomic_store_explicit(&user->stream, at->stream, memory_order_relaxed);
    atomic_store_explicit(&user->samples, at->samples, memory_order_relaxed);
    atomic_store_explicit(&user->repeats, (uint64_t)(at->repeats != 0), memory_order_relaxed);
    atomic_store_explicit(&user->position, at->position, memory_order_relaxed);
}

/* Returns how many positions of an order have items that fill half of the ring; UINT64_MAX if
 * unknown. */
static uint64_t window_of(const struct hr__segment *s)
{
    struct hr__books now = hr__segment_books(s);
    uint64_t items = hr__all_items(now.items);
    uint64_t all = s->layout.index_slots / 5 * 4; /* samples of the dataset, roughly */
    if (!items || items >= all)
        return UINT64_MAX;
    double bytes = (double)now.source_bytes / (double)items; /* per sample */
    double passing = bytes * (double)(all - items) / (double)all;
    return passing < 1 ? UINT64_MAX : (uint64_t)((double)s->layout.ring_bytes / 2 / passing);
}

/* Returns non-zero if another user has moved in its order lately. */
static int is_moving(struct hr__store *store, unsigned slot, uint64_t position, uint64_t now_ns)
{
    if (atomic_load(&store->place[slot]) != position || !atomic_load(&store->place_ns[slot])) {
        atomic_store(&store->place[slot], position);
        atomic_store(&store->place_ns[slot], now_ns);
        return 1;
    }
    return now_ns - atomic_load(&store->place_ns[slot]) < MOVED_NS;
}

/* Returns non-zero if a user with the same order is so far behind that the ring will have lost the
 * items read now when it needs them. */
static int leads(struct hr__store *store, uint64_t now_ns)
{
    struct hr__segment *s = store->segment;
    uint64_t order = atomic_load_explicit(&s->user->order, memory_order_relaxed);
    uint64_t here = atomic_load_explicit(&s->user->position, memory_order_relaxed);
    uint64_t window = window_of(s);
    int others = atomic_load(&store->others);
    if (!order || window > UINT64_MAX / CATCH_UP)
        return 0;
    for (unsigned slot = 0; others > 0 && slot < HR__SEGMENT_USERS; slot++) {
        struct hr__segment_user *user = &s->header->users[slot];
        if (user == s->user || !atomic_load_explicit(&user->pid, memory_order_relaxed))
            continue;
        others--;
        uint64_t there = atomic_load_explicit(&user->position, memory_order_relaxed);
        if (atomic_load_explicit(&user->order, memory_order_relaxed) == order && there < here &&
            here - there > window && here - there <= CATCH_UP * window &&
            is_moving(store, slot, there, now_ns))
            return 1;
    }
    return 0;
}

/* Like leads, but only while there is waiting time left. */
static int must_wait(struct hr__store *store)
{
    uint64_t now = hr__now_ns(), waited = atomic_load(&store->waited_ns);
    if (waited > AHEAD_NS + (now - store->created_ns) / AHEAD_SHARE || !leads(store, now))
        return 0;
    uint64_t before = atomic_exchange(&store->waiting_ns, now);
    if (now > before && now - before < AHEAD_PAUSE_NS)
        atomic_fetch_add(&store->waited_ns, now - before);
    return 1;
}

enum hr__claim hr__store_claim(struct hr__store *store, const struct hr__key *key)
{
    struct hr__segment *s = store->segment;
    struct hr__found found;
    uint64_t free;
    if (!hr__segment_is_sound(s))
        return HR__CLAIM_ALONE;
    enum hr__claim answer = HR__CLAIM_YOURS;
    if (hr__store_search(s, key, 0, &found, &free))
        answer = judge(store, &found);
    if (answer == HR__CLAIM_YOURS && !is_of_use(store))
        answer = HR__CLAIM_ALONE;
    else if (answer == HR__CLAIM_YOURS)
        answer = atomic_load_explicit(&store->crowded, memory_order_relaxed) && must_wait(store)
                     ? HR__CLAIM_BUSY
                     : claim(store, key);
    if (answer == HR__CLAIM_YOURS || answer == HR__CLAIM_ALONE)
        atomic_fetch_add_explicit(&s->user->misses, 1, memory_order_relaxed);
    return answer;
}

/* How an offer is stored. SHORT: other threads have used the memory that was there for it. */
enum store_way { REFUSED, PASSES, STAGED, ADMITTED, IN_BLOCKS, SHORT };

/* Returns the bytes of the arena that an offer occupies or reserves for its conversion. */
static uint64_t room_for(const struct hr__store_offer *offer)
{
    uint64_t bytes = hr__store_padded(offer->length), reserve = hr__store_padded(offer->reserve);
    return offer->convert && reserve > bytes ? reserve : bytes;
}

/* Decides how to store an offer. `grown`: the result of hr__store_grow; `staging`: the transaction
 * has made room in the ring. The free space of the arena may have shrunk since then. */
static enum store_way way_of(const struct hr__segment *s, const struct hr__books *books,
                             const struct hr__store_offer *offer, int grown, int staging,
                             int others)
{
    uint64_t bytes = hr__store_padded(offer->length), free = hr__store_free(s, books);
    uint64_t room = room_for(offer), allocated = books->arena_allocated - books->arena_used;
    allocated = allocated > books->promised ? allocated - books->promised : 0;
    if (grown && room <= free && room > allocated)
        return SHORT;
    if (offer->convert && staging && room <= free && room <= allocated)
        return STAGED;
    if (bytes <= free && bytes <= allocated)
        return ADMITTED;
    if (hr__blocks_have(books, offer->length))
        return IN_BLOCKS;
    return others && staging ? PASSES : REFUSED;
}

static void enter(struct hr__books *books, const struct hr__store_offer *offer)
{
    books->items[offer->form]++;
    books->source_bytes += offer->source_bytes;
}

/* Writes an offer to its place, and records it in the books and the entry. Returns 0, or -EBADMSG:
 * the free blocks are damaged. */
static int place(struct hr__segment *s, struct hr__books *books,
                 const struct hr__store_offer *offer, enum store_way way)
{
    struct hr__entry_value *after = &books->after;
    struct hr__word word = {.form = (unsigned)offer->form};
    uint64_t bytes = hr__store_padded(offer->length), reserve = room_for(offer);
    if (way == ADMITTED || way == IN_BLOCKS) {
        word.state = HR__ENTRY_FINAL;
        word.reserve = offer->sample;
        word.taken = way == IN_BLOCKS;
        if (way == ADMITTED)
            after->offset =
                hr__store_write(s, books, offer->pieces, offer->piece_count, offer->length);
        else if (hr__blocks_write(s, books, offer, &after->offset))
            return -EBADMSG;
        enter(books, offer);
    } else {
        word.state = HR__ENTRY_STAGED;
        after->offset = hr__ring_write(s, books, books->change - 1, offer);
    }
    if (way == STAGED) {
        word.pending = 1;
        word.reserve = (uint32_t)(reserve / HR__SEGMENT_ALIGN);
        books->promised += reserve;
        books->staged++;
        books->waiting++;
        books->staged_bytes += bytes;
        enter(books, offer);
    }
    after->word = hr__word_pack(&word);
    return 0;
}

/* An offer in progress. */
struct offering {
    const struct hr__store_offer *offer;
    int has_checksum;
    uint64_t checksum;
    int grown, staging; /* see way_of */
};

/* Completes an offer in the given transaction, and ends that. Returns -EAGAIN to retry. */
static int offer_locked(struct hr__store *store, struct hr__books *books,
                        const struct offering *making)
{
    const struct hr__store_offer *offer = making->offer;
    struct hr__segment *s = store->segment;
    struct hr__found found;
    uint64_t free;
    int known = hr__store_search(s, &offer->key, 1, &found, &free);
    enum store_way way =
        way_of(s, books, offer, making->grown, making->staging, atomic_load(&store->others));
    int is_known_hit = known && is_hit(s, &found);
    if (is_known_hit || way == SHORT) {
        hr__segment_abort(s);
        return is_known_hit ? 0 : -EAGAIN;
    }
    if (known)
        free = found.index;
    if (way <= PASSES)
        atomic_fetch_add_explicit(&s->user->refused, 1, memory_order_relaxed);
    if (way == REFUSED || free == UINT64_MAX) {
        if (known && hr__store_is_mine(s, &found))
            hr__store_vacate(s, books, &found);
        else
            hr__segment_abort(s);
        return 0;
    }
    uint64_t source_bytes = offer->source_bytes < UINT32_MAX ? offer->source_bytes : UINT32_MAX;
    books->change = free + 1;
    books->after = (struct hr__entry_value){
        .key_high = offer->key.high,
        .key_low = offer->key.low,
        .lengths = hr__pack_lengths(offer->length, source_bytes),
        .checksum = making->checksum,
    };
    if (place(s, books, offer, way)) {
        hr__segment_condemn(s, "its free space is not what was noted");
        hr__segment_abort(s);
        return 0;
    }
    hr__segment_commit(s);
    if (known && hr__store_is_mine(s, &found))
        atomic_fetch_sub(&s->user->open, 1);
    return way != PASSES;
}

/* Makes room for an offer and stores it. Returns -EAGAIN to retry if others took the room. */
static int make_offer(struct hr__store *store, struct offering *making, int others)
{
    struct hr__segment *s = store->segment;
    const struct hr__store_offer *offer = making->offer;
    making->grown = hr__store_grow(store, room_for(offer));
    struct hr__books now = hr__segment_books(s);
    int fits = hr__store_padded(offer->length) <= hr__store_free(s, &now) ||
               hr__blocks_have(&now, offer->length) || hr__store_make_room(store, offer);
    atomic_store_explicit(&store->crowded, !fits, memory_order_relaxed);
    /* No process could find it, now or later. */
    if (!fits && !others) {
        atomic_fetch_add_explicit(&s->user->refused, 1, memory_order_relaxed);
        hr__store_unclaim(store, &offer->key);
        return 0;
    }
    if (!making->has_checksum && hr__store_checksum_offer(s, offer, &making->checksum)) {
        hr__store_unclaim(store, &offer->key);
        return 0;
    }
    making->has_checksum = 1;
    hr__store_note_progress(s);
    making->staging =
        hr__ring_takes(s, offer->length) && (offer->convert || !fits) && !hr__ring_allocate(s);
    struct hr__books *books =
        making->staging ? hr__store_begin_staging(store, offer->length) : hr__segment_begin(s);
    return books ? offer_locked(store, books, making) : 0;
}

int hr__store_offer(struct hr__store *store, const struct hr__store_offer *offer)
{
    struct offering making = {.offer = offer};
    if (!offer->length || offer->length > UINT32_MAX || offer->reserve > UINT32_MAX ||
        !hr__segment_is_sound(store->segment)) {
        hr__store_unclaim(store, &offer->key);
        return 0;
    }
    if (store->segment->on_disk)
        return hr__store_offer_to_disk(store, offer);
    int others = has_others(store), r;
    /* Every repetition means that another process has stored an item meanwhile. */
    do {
        r = make_offer(store, &making, others);
    } while (r == -EAGAIN);
    return r;
}

void hr__store_get_counts(struct hr__store *store, struct hr__cache_counts *counts)
{
    struct hr__segment *s = store->segment;
    *counts = (struct hr__cache_counts){.bytes = 0};
    if (!hr__segment_is_sound(s))
        return;
    struct hr__books now = hr__segment_books(s);
    *counts = (struct hr__cache_counts){
        .bytes = hr__store_used(&now) + now.staged_bytes,
        .reserved = hr__store_used(&now) + now.promised,
        .source_bytes = now.source_bytes,
        .staged = now.staged,
        .staged_bytes = now.staged_bytes,
        .refused = atomic_load_explicit(&s->user->refused, memory_order_relaxed),
    };
    memcpy(counts->items, now.items, sizeof counts->items);
}
