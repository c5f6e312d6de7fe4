/*
 * Searches the index, and ends claims; see store.h.
 *
 * The index is searched linearly from a start that the key determines. Entries are never removed,
 * so a search ends at the first unused one.
 */
#include "cache/store_inside.h"

/* Most entries per search, so that a full index is not searched completely. */
#define MAX_PROBES 4096u

/* Returns non-zero if an entry may be reused for another key: it has no item, or its staged item
 * was overwritten in the ring. */
static int is_free(const struct hr__segment *s, const struct hr__found *found)
{
    return found->word.state == HR__ENTRY_VACANT ||
           (found->word.state == HR__ENTRY_STAGED && !hr__ring_is_valid(s, found->offset));
}

int hr__store_search(struct hr__segment *s, const struct hr__key *key, int locked,
                     struct hr__found *out, uint64_t *free)
{
    uint64_t slots = s->layout.index_slots, index = key->low % slots;
    *free = UINT64_MAX;
    for (uint64_t i = 0; i < slots && i < MAX_PROBES;
         i++, index = index + 1 == slots ? 0 : index + 1) {
        if (!atomic_load_explicit(&s->entries[index].word, memory_order_acquire)) {
            if (*free == UINT64_MAX)
                *free = index;
            return 0;
        }
        if (!hr__segment_look(s, index, locked, out))
            continue;
        if (out->key.high == key->high && out->key.low == key->low)
            return 1;
        if (*free == UINT64_MAX && is_free(s, out))
            *free = index;
    }
    return 0;
}

int hr__store_is_mine(const struct hr__segment *s, const struct hr__found *found)
{
    return found->word.state == HR__ENTRY_CLAIMED && !found->word.pending &&
           found->word.owner == (unsigned)s->slot;
}

void hr__store_vacate(struct hr__segment *s, struct hr__books *books, const struct hr__found *found)
{
    struct hr__word word = {.state = HR__ENTRY_VACANT};
    hr__segment_change(s, books, found->index);
    books->after.word = hr__word_pack(&word);
    hr__segment_commit(s);
    atomic_fetch_sub(&s->user->open, 1);
}

void hr__store_note_progress(struct hr__segment *s)
{
    atomic_fetch_add_explicit(&s->user->progress, 1, memory_order_relaxed);
}

void hr__store_unclaim(struct hr__store *store, const struct hr__key *key)
{
    struct hr__segment *s = store->segment;
    struct hr__found found;
    uint64_t free;
    if (!hr__segment_is_sound(s))
        return;
    hr__store_note_progress(s);
    if (!hr__store_search(s, key, 0, &found, &free) || !hr__store_is_mine(s, &found))
        return;
    struct hr__books *books = hr__segment_begin(s);
    if (!books)
        return;
    if (hr__store_search(s, key, 1, &found, &free) && hr__store_is_mine(s, &found))
        hr__store_vacate(s, books, &found);
    else
        hr__segment_abort(s);
}
