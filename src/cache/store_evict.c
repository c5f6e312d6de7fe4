/*
 * Makes room for an item that is used sooner than others.
 *
 * Each process decides on its own, when it has read a sample: of some random items the one that is
 * used last is evicted, if that is later than the sample's own next use. What is used by several
 * orders changes its place among the others with their speeds, so no order of the items is kept,
 * and there is nothing to repair after a death.
 */
#include "cache/store_inside.h"

#include "cache/residents.h"

/* How many entries of the index are looked at for HR__RESIDENTS_DRAWN items. */
#define LOOKED_AT 256

/* How many items are evicted at most to make room for one. */
#define VICTIMS_MOST 64

/* An item that may be evicted. */
struct evict_victim {
    uint64_t index, word;
    double when; /* in how many ns it is used */
};

/* Finds an item that is used late. Returns 0 if there is none. */
static int find_victim(struct hr__store *store, struct evict_victim *out)
{
    struct hr__segment *s = store->segment;
    int found = 0;
    for (int looked = 0; looked < LOOKED_AT && found < HR__RESIDENTS_DRAWN; looked++) {
        uint64_t index = hr__random_below(&store->orders.random, s->layout.index_slots);
        uint64_t packed = atomic_load_explicit(&s->entries[index].word, memory_order_relaxed);
        struct hr__word word = hr__word_unpack(packed);
        if (word.state != HR__ENTRY_FINAL)
            continue;
        double when = hr__store_next_use(store, word.reserve - UINT64_C(1));
        if (!found++ || when > out->when)
            *out = (struct evict_victim){index, packed, when};
    }
    return found > 0;
}

/* Evicts an item if it is still the same. Returns 0 if no transaction is possible. */
static int evict(struct hr__segment *s, const struct evict_victim *victim)
{
    struct hr__found found;
    struct hr__word vacant = {.state = HR__ENTRY_VACANT};
    /* From now on, readers copy items out. */
    if (!atomic_load_explicit(&s->header->evicts, memory_order_relaxed))
        atomic_store(&s->header->evicts, 1);
    struct hr__books *books = hr__segment_begin(s);
    if (!books)
        return 0;
    if (!hr__segment_look(s, victim->index, 1, &found) ||
        hr__word_pack(&found.word) != victim->word) {
        hr__segment_abort(s);
        return 1;
    }
    hr__segment_change(s, books, victim->index);
    if (hr__blocks_free(s, books, &found)) {
        hr__segment_condemn(s, "an item's blocks are not what was noted");
        hr__segment_abort(s);
        return 0;
    }
    books->after.word = hr__word_pack(&vacant);
    books->items[found.word.form] -= books->items[found.word.form] > 0;
    books->source_bytes -=
        found.source_bytes < books->source_bytes ? found.source_bytes : books->source_bytes;
    books->evicted++;
    hr__segment_commit(s);
    return 1;
}

/* Under orders.looking. */
static int make_room(struct hr__store *store, const struct hr__store_offer *offer)
{
    struct hr__segment *s = store->segment;
    struct evict_victim victim;
    struct hr__books now = hr__segment_books(s);
    hr__store_next_begin(store);
    double next = hr__store_next_use(store, offer->sample - UINT64_C(1));
    for (int i = 0; i < VICTIMS_MOST && !hr__blocks_have(&now, offer->length); i++) {
        if (!find_victim(store, &victim) || victim.when <= next || !evict(s, &victim))
            return 0;
        now = hr__segment_books(s);
    }
    return hr__blocks_have(&now, offer->length);
}

int hr__store_make_room(struct hr__store *store, const struct hr__store_offer *offer)
{
    struct hr__store_orders *o = &store->orders;
    int made = 0;
    atomic_store_explicit(&store->is_full, 1, memory_order_relaxed);
    if (!offer->sample || !atomic_load(&store->is_asked) ||
        offer->length > store->segment->layout.arena_bytes)
        return 0;
    pthread_mutex_lock(&o->looking);
    if (o->are_several && !hr__blocks_set_up(store->segment))
        made = make_room(store, offer);
    pthread_mutex_unlock(&o->looking);
    return made;
}
