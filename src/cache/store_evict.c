/*
 * Makes room for an item that is used sooner than others.
 *
 * Each process decides on its own, when it has read a sample: of some random items, and the latest
 * of those that it looked at before, the one that is used last is evicted, if that is later than
 * the sample's own next use. What is used by several orders changes its place among the others with
 * their speeds, so no order of all items is kept, and there is nothing to repair after a death.
 */
#include "cache/store_inside.h"

#include "base/error.h"

#include <errno.h>

/* How many items a decision adds at least to those that earlier ones found to be used late,
 * and how many entries of the index it looks at for them at most. */
#define DRAWN     8
#define LOOKED_AT 64
#define AT_ONCE   20 /* of these */

/* How many items are evicted at most to make room for one. */
#define VICTIMS_MOST 64

/* Returns in how many ns an item is used; less than 0: it is not there any more. */
static double when_used(const struct hr__store *store, const struct hr__victim *item)
{
    uint64_t word =
        atomic_load_explicit(&store->segment->entries[item->index].word, memory_order_relaxed);
    struct hr__word now = hr__word_unpack(word);
    return word == item->word && now.state == HR__ENTRY_FINAL
               ? hr__store_next_use(store, now.reserve - UINT64_C(1))
               : -1;
}

/* Notes an item in place of the one that is used soonest, if there is no room. */
static void note_victim(struct hr__store_orders *o, const struct hr__victim *item)
{
    unsigned soonest = 0;
    for (unsigned i = 1; i < HR__VICTIMS; i++)
        if (o->victims[i].when < o->victims[soonest].when)
            soonest = i;
    if (o->victims[soonest].when < item->when)
        o->victims[soonest] = *item;
}

/* Looks at some entries that follow a random one, and notes their items. Returns how many there
 * were. The items of neighbours in the index are as random as any. Entries are fetched into the
 * processor's caches when the decision before this one ends, and next uses for all items at once.
 */
static int look_at_some(struct hr__store *store)
{
    struct hr__store_orders *o = &store->orders;
    const struct hr__segment *s = store->segment;
    struct hr__victim items[AT_ONCE];
    uint64_t index = o->from;
    int count = 0;
    for (int i = 0; i < AT_ONCE; i++, index = index + 1 == s->layout.index_slots ? 0 : index + 1) {
        uint64_t word = atomic_load_explicit(&s->entries[index].word, memory_order_relaxed);
        struct hr__word now = hr__word_unpack(word);
        if (now.state != HR__ENTRY_FINAL)
            continue;
        items[count++] = (struct hr__victim){.index = index, .word = word};
        for (unsigned j = 0; now.reserve && now.reserve <= s->layout.index_slots && j < o->count;
             j++)
            __builtin_prefetch((const void *)&o->counted[j].next[now.reserve - 1]);
    }
    o->from = (uint64_t)hr__random_u32(&o->random) * s->layout.index_slots >> 32;
    for (uint64_t i = 0; i < AT_ONCE && o->from + i < s->layout.index_slots; i++)
        __builtin_prefetch(&s->entries[o->from + i]);
    for (int i = 0; i < count; i++) {
        items[i].when = when_used(store, &items[i]);
        note_victim(o, &items[i]);
    }
    return count;
}

int hr__store_find_victim(struct hr__store *store, struct hr__victim *out)
{
    struct hr__store_orders *o = &store->orders;
    for (unsigned i = 0; i < HR__VICTIMS; i++)
        o->victims[i].when = when_used(store, &o->victims[i]);
    for (int looked = 0, found = 0; looked < LOOKED_AT && found < DRAWN; looked += AT_ONCE)
        found += look_at_some(store);
    *out = o->victims[0];
    for (unsigned i = 1; i < HR__VICTIMS; i++)
        if (o->victims[i].when > out->when)
            *out = o->victims[i];
    return out->when >= 0;
}

/* Evicts an item if it is still the same. Returns 0 if no transaction is possible. */
static int evict(struct hr__segment *s, const struct hr__victim *victim)
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
    if (found.word.form >= HR_FORMS || hr__blocks_free(s, books, &found)) {
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
    struct hr__victim victim;
    struct hr__books now = hr__segment_books(s);
    hr__store_next_begin(store);
    double next = hr__store_next_use(store, offer->sample - UINT64_C(1));
    for (int i = 0; i < VICTIMS_MOST && !hr__blocks_have(&now, offer->length); i++) {
        if (!hr__store_find_victim(store, &victim) || victim.when <= next || !evict(s, &victim))
            return 0;
        now = hr__segment_books(s);
    }
    return hr__blocks_have(&now, offer->length);
}

int hr__store_make_room(struct hr__store *store, const struct hr__store_offer *offer)
{
    struct hr__store_orders *o = &store->orders;
    struct hr__segment *s = store->segment;
    char why[HR__CAPACITY_WHY];
    int made = 0, is_news = 0;
    atomic_store_explicit(&store->is_full, 1, memory_order_relaxed);
    if (!offer->sample || !atomic_load(&store->is_asked) || offer->length > s->layout.arena_bytes)
        return 0;
    pthread_mutex_lock(&o->looking);
    if (o->evicting && (!o->no_blocks_ns || hr__now_ns() - o->no_blocks_ns > HR__REFUSED_NS)) {
        int r = hr__blocks_set_up(s, why);
        int is_refused = r == -ENOSPC || r == -ENOMEM || r == -EOVERFLOW;
        o->no_blocks_ns = is_refused ? hr__now_ns() : 0;
        is_news = is_refused && *why && !o->is_warned;
        o->is_warned |= is_news;
        made = !r && make_room(store, offer);
    }
    pthread_mutex_unlock(&o->looking);
    if (is_news)
        hr__log(
            HR_LOG_WARNING,
            "the cache of %s evicts nothing, though jobs use it in orders of their own: %s; the "
            "rest is read from storage",
            s->header->dataset, why);
    return made;
}
