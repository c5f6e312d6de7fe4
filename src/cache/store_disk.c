/*
 * Items of segments on disk: finding, reading, checking, writing. See store.h.
 *
 * An item whose bytes are wrong, or cannot be read, is dropped: its space is freed and its sample
 * read from its source again. One bad sector must not cost the rest of the cache.
 */
#include "cache/store_inside.h"

#include "base/error.h"
#include "base/memory.h"
#include "cache/segment_disk.h"

#include <errno.h>
#include <string.h>

#define RETRY (-EAGAIN)

/* ---- finding and checking ---- */

/* Returns non-zero if the entry is of an item that can be read. */
static int is_readable(const struct hr__found *found)
{
    return found->word.state == HR__ENTRY_FINAL && found->word.form < HR_FORMS &&
           hr__disk_is_place(found->offset, found->length);
}

static struct hr__cache_place place_of(const struct hr__segment *s, const struct hr__found *found)
{
    return (struct hr__cache_place){
        .fd = s->items.fd,
        .is_direct = s->is_direct,
        .path = s->path,
        .offset = s->layout.arena_offset + found->offset,
        .length = found->length,
        .source_bytes = found->source_bytes,
        .form = (enum hr_form)found->word.form,
        .key = {found->key.high, found->key.low},
        .checksum = found->checksum,
    };
}

int hr__store_locate(struct hr__store *store, const struct hr__key *key,
                     struct hr__cache_place *place)
{
    struct hr__segment *s = store->segment;
    struct hr__found found;
    uint64_t free;
    if (!s->on_disk || !hr__segment_is_sound(s) || !hr__store_search(s, key, 0, &found, &free) ||
        !is_readable(&found))
        return 0;
    *place = place_of(s, &found);
    return 1;
}

/* Returns non-zero if an entry is of the item that was found at a place. */
static int is_same(const struct hr__segment *s, const struct hr__found *found,
                   const struct hr__cache_place *place)
{
    return found->word.state == HR__ENTRY_FINAL && found->checksum == place->checksum &&
           s->layout.arena_offset + found->offset == place->offset &&
           found->length == place->length;
}

/* Drops an item. Its space stays taken until the next first user counts anew: if it is the entry
 * that is wrong, the space may be another item's. */
static void drop(struct hr__segment *s, const struct hr__cache_place *place)
{
    struct hr__key key = {place->key[0], place->key[1]};
    struct hr__word vacant = {.state = HR__ENTRY_VACANT};
    uint64_t free;
    struct hr__found found;
    struct hr__books *books = hr__segment_begin(s);
    if (!books)
        return;
    if (!hr__store_search(s, &key, 1, &found, &free) || !is_same(s, &found, place)) {
        hr__segment_abort(s); /* another process was first */
        return;
    }
    hr__segment_change(s, books, found.index);
    books->after.word = hr__word_pack(&vacant);
    books->items[found.word.form] -= books->items[found.word.form] > 0;
    books->source_bytes -=
        found.source_bytes < books->source_bytes ? found.source_bytes : books->source_bytes;
    hr__segment_commit(s);
}

static void reject(struct hr__segment *s, const struct hr__cache_place *place, int was_read)
{
    drop(s, place);
    atomic_fetch_add_explicit(&s->header->foreign, 1, memory_order_relaxed);
    if (!atomic_exchange(&s->has_foreign, 1))
        hr__log(HR_LOG_WARNING,
                "the cache %s has an item that %s: it is dropped, and read from its source again. "
                "Check the disk; `headrace cache verify` reads all items",
                s->path, was_read ? "is not what was written" : "cannot be read");
}

/* Returns non-zero if the bytes are the item's; else drops it. */
static int is_right(struct hr__segment *s, const struct hr__cache_place *place, const void *bytes,
                    size_t length)
{
    struct hr__key key = {place->key[0], place->key[1]};
    if (!hr__segment_is_sound(s))
        return 0;
    if (bytes && length == place->length &&
        hr__store_checksum(s, &key, place->form, bytes, length) == place->checksum)
        return 1;
    reject(s, place, bytes != NULL);
    return 0;
}

int hr__store_verify(struct hr__store *store, const struct hr__cache_place *place,
                     const void *bytes, size_t length)
{
    struct hr__segment_user *user = store->segment->user;
    if (!is_right(store->segment, place, bytes, length))
        return 0;
    atomic_fetch_add_explicit(&user->hits, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&user->saved_bytes, place->source_bytes, memory_order_relaxed);
    return 1;
}

/* Reads an item. On success the caller owns *out. Errors: -ENOMEM; those of reading. */
static int read_item(const struct hr__segment *s, const struct hr__cache_place *place,
                     uint8_t **out)
{
    *out = hr__alloc_aligned_to(HR__TAG_CACHE, hr__disk_padded(place->length), 0, HR__DISK_ALIGN);
    if (!*out)
        return -ENOMEM;
    int r = hr__segment_disk_read(s, place->offset - s->layout.arena_offset, *out, place->length);
    if (!r)
        return 0;
    hr__free(*out);
    *out = NULL;
    return r;
}

int hr__store_find_on_disk(struct hr__store *store, const struct hr__key *key,
                           struct hr__cache_item *item)
{
    struct hr__cache_place place;
    uint8_t *bytes;
    if (!hr__store_locate(store, key, &place) ||
        read_item(store->segment, &place, &bytes) == -ENOMEM)
        return 0;
    if (!hr__store_verify(store, &place, bytes, place.length)) {
        hr__free(bytes);
        return 0;
    }
    *item = (struct hr__cache_item){
        .bytes = bytes, .length = place.length, .form = place.form, .copy = bytes};
    return 1;
}

int64_t hr__store_check(struct hr__store *store, uint64_t index)
{
    struct hr__segment *s = store->segment;
    struct hr__found found;
    uint8_t *bytes;
    if (!hr__segment_is_sound(s) || !hr__segment_look(s, index, 0, &found) || !is_readable(&found))
        return 0;
    struct hr__cache_place place = place_of(s, &found);
    if (read_item(s, &place, &bytes) == -ENOMEM)
        return -ENOMEM;
    int is = is_right(s, &place, bytes, place.length);
    hr__free(bytes);
    return is ? (int64_t)place.length : -EBADMSG;
}

/* ---- admitting ---- */

/* Counts an offer that is not stored, and ends its claim. */
static int refuse(struct hr__store *store, const struct hr__store_offer *offer)
{
    atomic_fetch_add_explicit(&store->segment->user->refused, 1, memory_order_relaxed);
    hr__store_unclaim(store, &offer->key);
    return 0;
}

/* Returns non-zero if another thread or process is writing the item. */
static int is_being_written(const struct hr__segment *s, const struct hr__found *found)
{
    return found->word.state == HR__ENTRY_CLAIMED && found->word.pending &&
           (found->word.owner == (unsigned)s->slot || hr__segment_is_alive(s, found->word.owner));
}

/*
 * Takes a place for an offer. Returns 1 with the entry in *index and the place in *offset; 0 if it
 * is not to be stored; or RETRY, if others took the room.
 */
static int take_place(struct hr__store *store, const struct hr__store_offer *offer,
                      uint64_t checksum, struct hr__found *out)
{
    struct hr__segment *s = store->segment;
    struct hr__books *books = hr__segment_begin(s);
    struct hr__found found;
    uint64_t free, bytes = hr__disk_padded(offer->length);
    if (!books)
        return 0;
    int known = hr__store_search(s, &offer->key, 1, &found, &free);
    if (known)
        free = found.index;
    int is_there = known && (is_readable(&found) || is_being_written(s, &found));
    int fits = hr__disk_is_place(books->end, offer->length);
    if (is_there || free == UINT64_MAX || !fits ||
        books->arena_used + bytes > books->arena_allocated) {
        hr__segment_abort(s);
        return !is_there && free != UINT64_MAX && fits ? RETRY : 0;
    }
    uint64_t source_bytes = offer->source_bytes < UINT32_MAX ? offer->source_bytes : UINT32_MAX;
    struct hr__word word = {.state = HR__ENTRY_CLAIMED,
                            .owner = (unsigned)s->slot,
                            .form = (unsigned)offer->form,
                            .pending = 1,
                            .reserve = hr__store_moment()};
    int was_mine = known && hr__store_is_mine(s, &found);
    hr__segment_change(s, books, free);
    hr__segment_give_back(s, books, &books->after);
    books->after = (struct hr__entry_value){
        .word = hr__word_pack(&word),
        .key_high = offer->key.high,
        .key_low = offer->key.low,
        .offset = books->end,
        .lengths = hr__pack_lengths(offer->length, source_bytes),
        .checksum = checksum,
    };
    *out = (struct hr__found){.index = free, .offset = books->end};
    books->end += bytes;
    books->arena_used += bytes;
    if (!was_mine)
        atomic_fetch_add(&s->user->open, 1);
    hr__segment_commit(s);
    return 1;
}

/* Makes a written item a hit, or frees its place if `failed`. */
static int end_writing(struct hr__store *store, const struct hr__store_offer *offer,
                       const struct hr__found *at, int failed)
{
    struct hr__segment *s = store->segment;
    struct hr__found found;
    if (failed)
        hr__segment_punch(s, at->offset, offer->length);
    struct hr__books *books = hr__segment_begin(s);
    if (!books)
        return 0; /* the entry is left as if this process had been killed */
    int is_ours = hr__segment_look(s, at->index, 1, &found) && is_being_written(s, &found) &&
                  found.offset == at->offset;
    struct hr__word word = {.state = failed ? HR__ENTRY_VACANT : HR__ENTRY_FINAL,
                            .form = (unsigned)offer->form};
    if (is_ours) {
        hr__segment_change(s, books, at->index);
        books->after.word = hr__word_pack(&word);
    }
    if (is_ours && !failed) {
        books->items[offer->form]++;
        books->source_bytes += found.source_bytes;
    } else if (is_ours) { /* else somebody gave it back */
        uint64_t bytes = hr__disk_padded(offer->length);
        books->arena_used -= bytes < books->arena_used ? bytes : books->arena_used;
    }
    hr__segment_commit(s);
    atomic_fetch_sub(&s->user->open, 1);
    return is_ours && !failed;
}

/* Writes an item, with zeros up to the end of its place: the page cache would keep a page that is
 * written in part. */
static int write_item(struct hr__segment *s, const struct hr__store_offer *offer, uint64_t offset)
{
    static const uint8_t zeros[HR__DISK_ALIGN];
    struct iovec few[8], *pieces = few;
    size_t count = offer->piece_count;
    if (count + 1 > sizeof few / sizeof *few)
        pieces = hr__alloc(HR__TAG_CACHE, count + 1, sizeof *pieces);
    if (!pieces)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        pieces[i].iov_base = (void *)(uintptr_t)offer->pieces[i].bytes;
        pieces[i].iov_len = offer->pieces[i].length;
    }
    pieces[count].iov_base = (void *)(uintptr_t)zeros;
    pieces[count].iov_len = hr__disk_padded(offer->length) - offer->length;
    hr__segment_step(HR__STEP_RESERVED);
    int r = hr__segment_disk_write(s, offset, pieces, (int)count + 1);
    hr__segment_step(HR__STEP_BYTES);
    if (pieces != few)
        hr__free(pieces);
    return r;
}

/* Stops admitting items if the disk has no room for them. */
static void note_failure(struct hr__segment *s, int code)
{
    if (!atomic_exchange(&s->full, 1))
        hr__log(HR_LOG_WARNING,
                "the cache %s cannot be written to (%s): it stays as it is, and the rest is read "
                "from its source; free some of the disk, and start again",
                s->path, hr__errno_text(code));
}

int hr__store_offer_to_disk(struct hr__store *store, const struct hr__store_offer *offer)
{
    struct hr__segment *s = store->segment;
    struct hr__found at;
    uint64_t checksum;
    int r = RETRY;
    hr__store_note_progress(s);
    if (hr__store_checksum_offer(s, offer, &checksum))
        return refuse(store, offer);
    while (r == RETRY) {
        int grown = !atomic_load_explicit(&s->full, memory_order_relaxed) &&
                    hr__store_grow(store, hr__disk_padded(offer->length));
        atomic_store_explicit(&store->crowded, !grown, memory_order_relaxed);
        if (!grown)
            return refuse(store, offer);
        r = take_place(store, offer, checksum, &at);
    }
    if (!r) {
        hr__store_unclaim(store, &offer->key);
        return 0;
    }
    r = write_item(s, offer, at.offset);
    if (r)
        note_failure(s, r);
    return end_writing(store, offer, &at, r != 0);
}
