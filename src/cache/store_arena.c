/*
 * Items in the arena: their checksums, memory for more of them, writing. See store.h.
 */
#include "cache/store_inside.h"

#include "base/error.h"
#include "cache/directory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <xxhash.h>

/* The step in which the arena grows. */
#define GROWTH (UINT64_C(32) << 20)

static uint64_t checksum_seed(const struct hr__key *key, enum hr_form form)
{
    return key->low + (uint64_t)form;
}

/* Starts an item's tag with its key, form and length. */
static void begin_tag(struct hr__mac *tag, const struct hr__segment *s, const struct hr__key *key,
                      const uint64_t about[2])
{
    const uint64_t head[4] = {key->high, key->low, about[0], about[1]};
    hr__mac_begin(tag, &s->secret);
    hr__mac_add(tag, head, sizeof head);
}

uint64_t hr__store_checksum(const struct hr__segment *s, const struct hr__key *key,
                            enum hr_form form, const void *bytes, size_t length)
{
    if (s->secret.is_set) {
        struct hr__mac tag;
        begin_tag(&tag, s, key, (const uint64_t[]){form, length});
        hr__mac_add(&tag, bytes, length);
        return hr__mac_end(&tag);
    }
    return XXH3_64bits_withSeed(bytes, length, checksum_seed(key, form));
}

int hr__store_is_right(const struct hr__segment *s, const struct hr__found *found,
                       const uint8_t *bytes)
{
    return hr__store_checksum(s, &found->key, (enum hr_form)found->word.form, bytes,
                              found->length) == found->checksum;
}

int hr__store_checksum_offer(const struct hr__segment *s, const struct hr__store_offer *offer,
                             uint64_t *out)
{
    if (s->secret.is_set) {
        struct hr__mac tag;
        begin_tag(&tag, s, &offer->key, (const uint64_t[]){offer->form, offer->length});
        for (size_t i = 0; i < offer->piece_count; i++)
            hr__mac_add(&tag, offer->pieces[i].bytes, offer->pieces[i].length);
        *out = hr__mac_end(&tag);
        return 0;
    }
    if (offer->piece_count == 1) {
        *out =
            hr__store_checksum(s, &offer->key, offer->form, offer->pieces[0].bytes, offer->length);
        return 0;
    }
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return -ENOMEM;
    XXH3_64bits_reset_withSeed(state, checksum_seed(&offer->key, offer->form));
    for (size_t i = 0; i < offer->piece_count; i++)
        XXH3_64bits_update(state, offer->pieces[i].bytes, offer->pieces[i].length);
    *out = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return 0;
}

/* How far the arena should grow, and why it did not. */
struct growth {
    uint64_t to;
    char why[HR__CAPACITY_WHY]; /* "": the size of its name is used up */
};

/* Checks whether the disk has room for `bytes` more. */
static int check_disk(const struct hr__segment *s, uint64_t bytes, char why[HR__CAPACITY_WHY])
{
    struct statvfs fs;
    if (fstatvfs(s->own.fd, &fs) || bytes <= (uint64_t)fs.f_bavail * fs.f_frsize)
        return 0;
    snprintf(why, HR__CAPACITY_WHY, "the disk is full; free some of it");
    return -ENOSPC;
}

/* Called by hr__directory_make_room; `arg` is a struct growth. */
static int take_memory(struct hr__segment *s, void *arg)
{
    struct growth *growth = arg;
    uint64_t to = growth->to;
    /* Refused memory is freed from `from` on, so it must be correct even if a process was killed
     * before publishing its books. A transaction gives the correct value. */
    const struct hr__books *now = hr__segment_begin(s);
    if (!now)
        return -EAGAIN;
    uint64_t from = now->arena_allocated;
    hr__segment_abort(s);
    if (to <= from)
        return 0;
    int r = s->on_disk
                ? check_disk(s, to - from, growth->why)
                : hr__segment_populate(s, s->layout.arena_offset + from, to - from, growth->why);
    if (r)
        return r;
    struct hr__books *books = hr__segment_begin(s);
    if (!books)
        return -EAGAIN;
    if (books->arena_allocated < to)
        books->arena_allocated = to;
    hr__segment_commit(s);
    return 0;
}

static uint64_t at_most(uint64_t n, uint64_t most)
{
    return n < most ? n : most;
}

/* Grows the arena. `drop`: other segments of the name may be dropped for it. */
static int grow_to(struct hr__segment *s, struct growth *growth, int drop)
{
    uint64_t from = hr__segment_books(s).arena_allocated, to = growth->to;
    return to > from ? hr__directory_make_room(s, to - from, drop, take_memory, growth) : 0;
}

/* Returns non-zero if the arena has memory for `bytes` more. */
static int is_enough(const struct hr__books *now, uint64_t bytes)
{
    return now->arena_used + now->promised + bytes <= now->arena_allocated;
}

int hr__store_grow(struct hr__store *store, uint64_t bytes)
{
    struct hr__segment *s = store->segment;
    struct hr__books now = hr__segment_books(s);
    uint64_t need = now.arena_used + now.promised + bytes, limit = s->layout.arena_bytes;
    if (is_enough(&now, bytes))
        return 1;
    if (need > limit || atomic_load(&s->full))
        return 0;
    pthread_mutex_lock(&store->growing);
    now = hr__segment_books(s);
    if (need > now.arena_allocated && !atomic_load(&s->full) && hr__segment_is_sound(s)) {
        struct growth growth = {.to = at_most(need + GROWTH, limit)};
        int r = grow_to(s, &growth, 0);
        growth.to = need;
        if (r == -ENOSPC || r == -ENOMEM)
            r = grow_to(s, &growth, 1);
        /* For a truncated file, another log line gives the reason. */
        if ((r == -ENOSPC || r == -ENOMEM) && hr__segment_is_sound(s) &&
            !atomic_exchange(&s->full, 1))
            hr__log(HR_LOG_WARNING,
                    "the cache of %s stays at %" PRIu64 " of %" PRIu64
                    " bytes: %s; the rest is read from storage",
                    s->header->dataset, hr__segment_books(s).arena_allocated, limit,
                    *growth.why ? growth.why : "its name's size is used up");
    }
    pthread_mutex_unlock(&store->growing);
    now = hr__segment_books(s);
    return need <= now.arena_allocated;
}

uint64_t hr__store_write(struct hr__segment *s, struct hr__books *books,
                         const struct hr__store_piece *pieces, size_t piece_count, uint64_t length)
{
    uint64_t offset = books->arena_used;
    uint8_t *to = s->arena + offset;
    for (size_t i = 0; i < piece_count; i++) {
        memcpy(to, pieces[i].bytes, pieces[i].length);
        to += pieces[i].length;
    }
    books->arena_used += hr__store_padded(length);
    hr__segment_step(HR__STEP_BYTES);
    return offset;
}
