/*
 * Items that wait for conversion: makes room for them in the ring, hands them out, and settles them
 * in the arena; see store.h.
 */
#include "cache/store_inside.h"

#include "base/memory.h"

#include <errno.h>
#include <string.h>

/* Most transactions to make room for one item: one for each item that the ring can hold. */
#define MAX_SETTLED 100000

struct hr__store_staged {
    struct hr__key key;
    uint64_t index;    /* index of its entry */
    uint64_t position; /* position of its bytes in the ring */
    uint32_t length, source_bytes;
    uint64_t reserve; /* reserved bytes */
    uint32_t sample;  /* number of its sample + 1, or 0 */
    enum hr_form form;
    uint8_t *bytes; /* a copy; freed with hr__free */
};

/* Checks that entry `index` still is the item at `position` of the ring. Within a transaction. */
static int is_staged_at(struct hr__segment *s, uint64_t index, uint64_t position,
                        struct hr__found *out)
{
    return hr__segment_look(s, index, 1, out) && out->word.state == HR__ENTRY_STAGED &&
           out->word.pending && out->offset == position;
}

/* What a pending item becomes. */
struct settling {
    struct hr__store_piece piece;
    enum hr_form form;
    uint64_t checksum;
    uint32_t sample; /* number + 1, or 0 */
};

/* Updates the books and the entry when a pending item gets its final form. */
static void settle_locked(struct hr__segment *s, struct hr__books *books,
                          const struct hr__found *found, const struct settling *to)
{
    struct hr__word word = {
        .state = HR__ENTRY_FINAL, .form = (unsigned)to->form, .reserve = to->sample};
    hr__segment_change(s, books, found->index);
    books->promised -= (uint64_t)found->word.reserve * HR__SEGMENT_ALIGN;
    books->staged--;
    books->staged_bytes -= hr__store_padded(found->length);
    books->waiting -= !found->word.taken;
    books->items[found->word.form]--;
    books->items[to->form]++;
    books->after.offset = hr__store_write(s, books, &to->piece, 1, to->piece.length);
    books->after.lengths = hr__pack_lengths(to->piece.length, found->source_bytes);
    books->after.checksum = to->checksum;
    books->after.word = hr__word_pack(&word);
}

/* Checks the room for a pending item's result, which was promised together with its memory. */
static int has_room(const struct hr__segment *s, const struct hr__books *books,
                    const struct hr__found *found, uint64_t bytes, uint64_t leave_free)
{
    uint64_t reserve = (uint64_t)found->word.reserve * HR__SEGMENT_ALIGN;
    uint64_t free = hr__store_free(s, books);
    uint64_t room = reserve + (free > leave_free ? free - leave_free : 0);
    return bytes <= room && reserve <= books->promised &&
           books->arena_used + books->promised - reserve + bytes <= books->arena_allocated;
}

/*
 * Moves the tail past one item; settles it unconverted if it is pending. Returns 1, or 0 if that
 * ended the transaction. Negative: the ring is damaged, or the promised room is missing.
 */
static int pop(struct hr__segment *s, struct hr__books *books)
{
    /* The tail never reaches the head, because an item is at most a quarter of the ring. */
    uint64_t tail = atomic_load(&s->header->ring_tail), position = tail + HR__SEGMENT_ALIGN;
    struct hr__ring_header header;
    struct hr__found found;
    if (hr__ring_header_at(s, books, tail, &header))
        return -EBADMSG;
    if (header.entry == HR__RING_GAP || !is_staged_at(s, header.entry, position, &found)) {
        hr__ring_advance(s, books, tail + header.bytes);
        return 1;
    }
    if (found.length > header.bytes - HR__SEGMENT_ALIGN ||
        !has_room(s, books, &found, hr__store_padded(found.length), 0))
        return -EBADMSG;
    struct settling to = {
        .piece = {s->ring + position % s->layout.ring_bytes, found.length},
        .form = (enum hr_form)found.word.form,
        .checksum = found.checksum,
        .sample = (uint32_t)header.sample,
    };
    settle_locked(s, books, &found, &to);
    hr__segment_commit(s);
    return 0;
}

struct hr__books *hr__store_begin_staging(struct hr__store *store, uint64_t length)
{
    struct hr__segment *s = store->segment;
    for (int settled = 0; settled < MAX_SETTLED; settled++) {
        struct hr__books *books = hr__segment_begin(s);
        if (!books)
            return NULL;
        uint64_t wanted = hr__ring_wanted_tail(s, books, length);
        int r = 1;
        while (r == 1 && atomic_load(&s->header->ring_tail) < wanted)
            r = pop(s, books);
        if (r == 1)
            return books;
        if (r < 0) {
            hr__segment_condemn(s, "its staging is not what was put there");
            hr__segment_abort(s);
            return NULL;
        }
    }
    return NULL;
}

/* Finds the next pending item after the cursor that nobody converts, and moves the cursor past it.
 * Returns 1 if there is one, with its sample in *sample. Within a transaction. */
static int next_waiting(struct hr__segment *s, struct hr__books *books, struct hr__found *out,
                        uint32_t *sample)
{
    uint64_t tail = atomic_load(&s->header->ring_tail);
    struct hr__ring_header header;
    if (books->ring_cursor < tail)
        books->ring_cursor = tail;
    while (books->ring_cursor < books->ring_head) {
        uint64_t at = books->ring_cursor;
        if (hr__ring_header_at(s, books, at, &header)) {
            hr__segment_condemn(s, "its staging is not what was put there");
            return 0;
        }
        books->ring_cursor = at + header.bytes;
        *sample = (uint32_t)header.sample;
        if (header.entry != HR__RING_GAP &&
            is_staged_at(s, header.entry, at + HR__SEGMENT_ALIGN, out) && !out->word.taken &&
            out->length <= header.bytes - HR__SEGMENT_ALIGN)
            return 1;
    }
    return 0;
}

uint64_t hr__store_waiting(const struct hr__store *store)
{
    struct hr__segment *s = store->segment;
    if (atomic_load_explicit(&s->stuck, memory_order_relaxed) || !hr__segment_is_sound(s))
        return 0;
    return hr__segment_books(s).waiting;
}

/* Frees an item that was handed out and that this user has finished. */
static void free_staged(struct hr__segment *s, struct hr__store_staged *staged)
{
    if (hr__segment_is_sound(s))
        atomic_fetch_sub(&s->user->open, 1);
    hr__free(staged->bytes);
    hr__free(staged);
}

struct hr__store_staged *hr__store_take(struct hr__store *store, struct hr__cache_item *item)
{
    struct hr__segment *s = store->segment;
    struct hr__found found;
    if (!hr__store_waiting(store))
        return NULL;
    struct hr__store_staged *staged = hr__alloc(HR__TAG_CACHE, 1, sizeof *staged);
    struct hr__books *books = staged ? hr__segment_begin(s) : NULL;
    if (!books) {
        hr__free(staged);
        return NULL;
    }
    uint32_t sample = 0;
    if (next_waiting(s, books, &found, &sample))
        staged->bytes =
            hr__alloc_aligned(HR__TAG_CACHE, hr__store_padded(found.length), HR__SEGMENT_ALIGN);
    else
        books->waiting = 0; /* there is none, whatever was counted */
    if (!staged->bytes) {
        hr__segment_commit(s);
        hr__free(staged);
        return NULL;
    }
    struct hr__word word = found.word;
    word.taken = 1;
    word.owner = (unsigned)s->slot;
    hr__segment_change(s, books, found.index);
    books->after.word = hr__word_pack(&word);
    books->waiting -= books->waiting > 0;
    atomic_fetch_add(&s->user->open, 1);
    hr__segment_commit(s);
    *staged = (struct hr__store_staged){
        .key = found.key,
        .index = found.index,
        .position = found.offset,
        .length = found.length,
        .source_bytes = found.source_bytes,
        .reserve = (uint64_t)found.word.reserve * HR__SEGMENT_ALIGN,
        .sample = sample,
        .form = (enum hr_form)found.word.form,
        .bytes = staged->bytes,
    };
    if (!hr__ring_copy(s, staged->position, staged->bytes, staged->length)) {
        /* The ring reached the item, so it was settled meanwhile. */
        free_staged(s, staged);
        return NULL;
    }
    /* The converted item gets a new checksum, so damage has to be detected here. */
    if (!hr__store_is_right(s, &found, staged->bytes)) {
        hr__segment_reject(s);
        free_staged(s, staged);
        return NULL;
    }
    *item = (struct hr__cache_item){
        .bytes = staged->bytes, .length = staged->length, .form = staged->form};
    return staged;
}

/* Begins a transaction if a taken item is still unchanged. Returns NULL if it is not. */
static struct hr__books *begin_with(struct hr__segment *s, const struct hr__store_staged *staged,
                                    struct hr__found *found)
{
    struct hr__books *books = hr__segment_begin(s);
    if (!books)
        return NULL;
    if (is_staged_at(s, staged->index, staged->position, found) && found->word.taken &&
        found->word.owner == (unsigned)s->slot)
        return books;
    hr__segment_abort(s);
    return NULL;
}

uint64_t hr__store_room(struct hr__store *store, const struct hr__store_staged *staged,
                        uint64_t leave_free)
{
    if (!hr__segment_is_sound(store->segment))
        return 0;
    struct hr__books now = hr__segment_books(store->segment);
    uint64_t free = hr__store_free(store->segment, &now);
    return staged->reserve + (free > leave_free ? free - leave_free : 0);
}

int hr__store_settle(struct hr__store *store, struct hr__store_staged *staged,
                     const struct hr__cache_final *final)
{
    struct hr__segment *s = store->segment;
    struct hr__found found;
    uint64_t bytes = hr__store_padded(final->length);
    int converted = final->bytes && final->length && final->length <= UINT32_MAX;
    uint64_t checksum =
        converted ? hr__store_checksum(s, &staged->key, final->form, final->bytes, final->length)
                  : 0;
    if (converted && bytes > staged->reserve && hr__segment_is_sound(s))
        hr__store_grow(store, bytes - staged->reserve);
    struct hr__books *books = begin_with(s, staged, &found);
    if (!books) {
        free_staged(s, staged);
        return 0;
    }
    converted = converted && has_room(s, books, &found, bytes, final->leave_free);
    if (converted) {
        settle_locked(s, books, &found,
                      &(struct settling){
                          {final->bytes, final->length}, final->form, checksum, staged->sample});
    } else if (has_room(s, books, &found, hr__store_padded(found.length), 0)) {
        settle_locked(
            s, books, &found,
            &(struct settling){
                {staged->bytes, staged->length}, staged->form, found.checksum, staged->sample});
    }
    hr__segment_commit(s);
    free_staged(s, staged);
    return converted;
}
