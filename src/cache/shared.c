/*
 * The cache backing that processes share: items of a segment (store.h), in memory or on a disk,
 * found by the keys of a dataset's samples (identity.h).
 *
 * A key includes the state of the sample's file. So a hit needs a check of the file: each costs one
 * statx, and is a miss if the file has changed. The key for the last stamp is kept, so it is
 * computed again only after the file changes.
 *
 * The first question, whether another process is reading the sample, is asked without a check: the
 * key of the last check or of the scan is good enough, because a wrong answer costs one read.
 *
 * A sample is offered under the key with which its read began, and only if the file is unchanged
 * afterwards. An outdated key is replaced.
 *
 * Threads write keys without synchronisation. A key read during a write may combine halves of two
 * states of the file and then matches neither: it is a miss, and the sample read for it is not
 * admitted. `of` shows whether a key belongs to a given stamp.
 */
#include "base/error.h"
#include "base/memory.h"
#include "cache/backend.h"
#include "cache/directory.h"
#include "cache/identity.h"
#include "cache/store.h"
#include "cache/store_orders.h"
#include "cache/worth.h"
#include "dataset/dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

/* The key of a sample when this process last checked its file; both halves 0: not yet. */
struct seen {
    _Atomic uint64_t high, low;
    _Atomic uint64_t of; /* digest of the file's stamp ^ high ^ low */
};

struct shared {
    struct hr__cache cache;

    /* Constant after creation. */
    struct hr__store *store;
    struct hr_dataset *dataset; /* a reference */
    struct hr__identity identity;

    struct seen *seen; /* one per sample */

    /* The dataset has as many samples as when the segment was made: all users number them in the
     * same way, unless files were renamed, which can only cost reads. */
    int has_numbers;
};

static struct shared *of(struct hr__cache *cache)
{
    return (struct shared *)cache;
}

static void destroy(struct hr__cache *cache);
static const struct hr__cache_backend backend;

static int open_segment(struct shared *c, const struct hr__cache_spec *spec, const char *run,
                        struct hr_error *error)
{
    struct hr__segment *segment = NULL;
    struct hr__segment_wish wish = {
        .spec = spec,
        .run = run,
        .dataset = c->identity.text,
        .items = hr_dataset_count(hr__dataset_origin(c->dataset)),
    };
    memcpy(wish.identity, c->identity.digest, sizeof wish.identity);
    int r = hr__directory_open(&segment, &wish, error);
    return r ? r : hr__store_create(&c->store, segment, error);
}

int hr__cache_create_shared(struct hr__cache **out, struct hr_dataset *dataset,
                            const struct hr__cache_spec *spec, const char *run,
                            struct hr_error *error)
{
    *out = NULL;
    struct shared *c = hr__alloc(HR__TAG_CACHE, 1, sizeof *c);
    if (!c)
        return hr__fail(error, -ENOMEM, "out of memory for a cache");
    c->cache.backend = &backend;
    c->dataset = hr_dataset_ref(dataset);
    size_t samples = hr_dataset_count(dataset);
    c->seen = hr__alloc(HR__TAG_CACHE, samples ? samples : 1, sizeof *c->seen);
    int r = 0;
    if (!c->seen)
        r = hr__fail(error, -ENOMEM, "out of memory for the keys of %zu samples", samples);
    if (!r)
        r = hr__identity_make(&c->identity, dataset, error);
    if (!r && spec->variant)
        hr__identity_add(&c->identity, spec->variant, spec->variant_text);
    if (!r)
        r = open_segment(c, spec, run, error);
    if (r) {
        destroy(&c->cache);
        return r;
    }
    const struct hr__segment *segment = hr__store_segment(c->store);
    c->cache.budget_bytes = segment->layout.arena_bytes;
    c->cache.is_kept = segment->header->is_kept != 0;
    c->cache.is_disk = segment->on_disk;
    struct hr__segment_layout now;
    c->has_numbers =
        !hr__segment_plan(&now, segment->layout.arena_bytes,
                          hr_dataset_count(hr__dataset_origin(dataset)), segment->on_disk) &&
        now.index_slots == segment->layout.index_slots;
    *out = &c->cache;
    return 0;
}

static void free_all(struct shared *c)
{
    hr_dataset_unref(&c->dataset);
    hr__free(c->seen);
    hr__free(c);
}

static void log_kept(struct hr__cache *cache)
{
    struct shared *c = of(cache);
    struct hr__cache_counts now;
    if (!cache->is_kept || cache->is_disk)
        return;
    struct hr__segment *segment = hr__store_segment(c->store);
    /* After a forced drop the name is gone, and the last user frees the memory. */
    struct stat st;
    if (fstat(segment->own.fd, &st) || !st.st_nlink)
        return;
    hr__store_get_counts(c->store, &now);
    uint64_t items = hr__all_items(now.items);
    if (!items || !hr__segment_is_sound(segment) || hr__segment_users(segment, NULL, 0))
        return;
    hr__log(HR_LOG_WARNING,
            "the cache %s keeps %" PRIu64 " items of %s, %.1f MiB of memory, for the next run; "
            "`headrace cache drop %s` frees it",
            segment->header->name, items, c->identity.text, (double)now.bytes / (1 << 20),
            segment->header->name);
}

static void destroy(struct hr__cache *cache)
{
    struct shared *c = of(cache);
    hr__store_destroy(&c->store);
    free_all(c);
}

static void abandon(struct hr__cache *cache)
{
    struct shared *c = of(cache);
    hr__store_abandon(&c->store);
    free_all(c);
}

/* In a child that inherited it the cache is empty; the segment reports this. */
static int is_usable(const struct shared *c)
{
    return !hr__segment_is_broken(hr__store_segment(c->store));
}

static void remember(struct shared *c, uint64_t index, const struct hr__key *key,
                     const struct hr__stamp *stamp)
{
    struct seen *seen = &c->seen[index];
    atomic_store_explicit(&seen->high, key->high, memory_order_relaxed);
    atomic_store_explicit(&seen->low, key->low, memory_order_relaxed);
    atomic_store_explicit(&seen->of, hr__stamp_digest(stamp) ^ key->high ^ key->low,
                          memory_order_relaxed);
}

/* Gets the key of the last check, whatever the file's present state. */
static int recall(const struct shared *c, uint64_t index, struct hr__key *key)
{
    key->high = atomic_load_explicit(&c->seen[index].high, memory_order_relaxed);
    key->low = atomic_load_explicit(&c->seen[index].low, memory_order_relaxed);
    return key->high && key->low;
}

static int is_of(const struct shared *c, uint64_t index, const struct hr__key *key,
                 const struct hr__stamp *stamp)
{
    uint64_t of = atomic_load_explicit(&c->seen[index].of, memory_order_relaxed);
    return of == (hr__stamp_digest(stamp) ^ key->high ^ key->low);
}

/* Checks the file: gets its present key and stamp. Returns 0 or -errno. */
static int look(struct shared *c, uint64_t index, struct hr__key *key, struct hr__stamp *stamp)
{
    int r = hr__stamp_now(stamp, c->dataset, index);
    if (r || (recall(c, index, key) && is_of(c, index, key, stamp)))
        return r;
    r = hr__identity_key(key, &c->identity, c->dataset, index, stamp);
    if (!r)
        remember(c, index, key, stamp);
    return r;
}

/* Gets a key without a check, from the last check or the scan. Returns 1, or 0 if there is none. */
static int guessed_key(struct shared *c, uint64_t index, struct hr__key *key)
{
    struct hr__stamp stamp;
    if (recall(c, index, key))
        return 1;
    if (hr__stamp_believed(&stamp, c->dataset, index) && stamp.change)
        return !hr__identity_key(key, &c->identity, c->dataset, index, &stamp);
    return !look(c, index, key, &stamp);
}

static int find(struct hr__cache *cache, uint64_t index, struct hr__cache_item *item)
{
    struct shared *c = of(cache);
    struct hr__stamp stamp;
    struct hr__key key;
    if (cache->is_disk || !is_usable(c) || look(c, index, &key, &stamp) ||
        !hr__store_find(c->store, &key, item))
        return 0;
    item->index = index;
    return 1;
}

static int locate(struct hr__cache *cache, uint64_t index, struct hr__cache_place *place)
{
    struct shared *c = of(cache);
    struct hr__stamp stamp;
    struct hr__key key;
    return cache->is_disk && is_usable(c) && !look(c, index, &key, &stamp) &&
           hr__store_locate(c->store, &key, place);
}

static int verify(struct hr__cache *cache, const struct hr__cache_place *place, const void *bytes,
                  size_t length)
{
    return is_usable(of(cache)) && hr__store_verify(of(cache)->store, place, bytes, length);
}

static int unpin(struct hr__cache *cache, const struct hr__cache_item *item)
{
    struct hr__cache_item copy = *item;
    int is_whole = hr__store_is_whole(of(cache)->store, item);
    hr__store_clear(&copy);
    return is_whole;
}

static int has(struct hr__cache *cache, uint64_t index)
{
    struct shared *c = of(cache);
    struct hr__key key;
    return is_usable(c) && guessed_key(c, index, &key) && hr__store_has(c->store, &key);
}

/* Returns the number of a sample among those of the segment. */
static uint64_t number_of(const struct shared *c, uint64_t index)
{
    return c->dataset->indices ? (uint64_t)c->dataset->indices[index] : index;
}

static int note_place(struct hr__cache *cache, const struct hr__cache_progress *at)
{
    struct shared *c = of(cache);
    if (!is_usable(c) || cache->is_disk)
        return 0;
    struct hr__cache_progress place = *at;
    place.stream = c->has_numbers ? at->stream : 0;
    hr__store_note_place(c->store, &place);
    return hr__store_asks(c->store) && !hr__store_tells(c->store);
}

static int evicts(const struct hr__cache *cache)
{
    const struct shared *c = (const struct shared *)cache;
    return is_usable(c) && hr__store_asks(c->store);
}

static void begin_uses(struct hr__cache *cache)
{
    hr__store_begin_uses(of(cache)->store);
}

static void add_uses(struct hr__cache *cache, const int64_t *indices, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hr__store_add_use(of(cache)->store, number_of(of(cache), (uint64_t)indices[i]));
}

static void end_uses(struct hr__cache *cache)
{
    hr__store_end_uses(of(cache)->store);
}

static void use(struct hr__cache *cache, uint64_t index)
{
    hr__store_use(of(cache)->store, number_of(of(cache), index));
}

static enum hr__claim claim(struct hr__cache *cache, uint64_t index,
                            struct hr__cache_ticket *ticket)
{
    struct shared *c = of(cache);
    struct hr__key key;
    *ticket = (struct hr__cache_ticket){.is_claimed = 0};
    /* If the file cannot be queried, let the caller read it and get the error. */
    if (!is_usable(c) || !guessed_key(c, index, &key))
        return HR__CLAIM_ALONE;
    enum hr__claim answer = hr__store_claim(c->store, &key);
    if (cache->is_disk && answer == HR__CLAIM_FOUND)
        answer = HR__CLAIM_ALONE;
    ticket->key[0] = key.high;
    ticket->key[1] = key.low;
    ticket->is_claimed = answer == HR__CLAIM_YOURS;
    return answer;
}

static struct hr__key ticket_key(const struct hr__cache_ticket *ticket)
{
    return (struct hr__key){.high = ticket->key[0], .low = ticket->key[1]};
}

static void unclaim(struct hr__cache *cache, struct hr__cache_ticket *ticket)
{
    struct hr__key key = ticket_key(ticket);
    if (is_usable(of(cache)))
        hr__store_unclaim(of(cache)->store, &key);
}

/* Returns non-zero if the file is the same as when its read began and was not being written
 * then. */
static int is_unchanged(struct shared *c, uint64_t index, const struct hr__key *key)
{
    struct hr__stamp stamp;
    struct hr__key now;
    if (!key->high || look(c, index, &now, &stamp))
        return 0;
    return now.high == key->high && now.low == key->low && !hr__stamp_is_fresh(&stamp);
}

static int offer(struct hr__cache *cache, const struct hr__cache_offer *given)
{
    struct shared *c = of(cache);
    if (!given->ticket || !is_usable(c) || (cache->is_disk && given->is_on_disk))
        return 0;
    struct hr__key key = ticket_key(given->ticket);
    struct hr__store_piece pieces[HR_ITEM_PARTS] = {{given->bytes, given->length}};
    for (int i = 0; given->parts && i < HR_ITEM_PARTS; i++)
        pieces[i] = (struct hr__store_piece){given->parts[i].bytes, given->parts[i].length};
    struct hr__store_offer offer = {
        .key = key,
        .pieces = pieces,
        .piece_count = given->parts ? HR_ITEM_PARTS : 1,
        .length = given->length,
        .source_bytes = given->source_bytes ? given->source_bytes : given->length,
        .form = given->form,
        .convert = given->convert,
        .reserve = given->reserve,
        .sample = c->has_numbers ? (uint32_t)number_of(c, given->index) + 1 : 0,
    };
    if (is_unchanged(c, given->index, &key))
        return hr__store_offer(c->store, &offer);
    if (given->ticket->is_claimed)
        hr__store_unclaim(c->store, &key);
    return 0;
}

static struct hr__cache_staged *take(struct hr__cache *cache, struct hr__cache_item *item)
{
    struct shared *c = of(cache);
    return is_usable(c) ? (struct hr__cache_staged *)hr__store_take(c->store, item) : NULL;
}

static uint64_t room(struct hr__cache *cache, const struct hr__cache_staged *staged,
                     uint64_t leave_free)
{
    return hr__store_room(of(cache)->store, (const struct hr__store_staged *)staged, leave_free);
}

static int settle(struct hr__cache *cache, struct hr__cache_staged *staged,
                  const struct hr__cache_final *final)
{
    return hr__store_settle(of(cache)->store, (struct hr__store_staged *)staged, final);
}

static void get_counts(struct hr__cache *cache, struct hr__cache_counts *counts)
{
    struct shared *c = of(cache);
    memset(counts, 0, sizeof *counts);
    if (is_usable(c))
        hr__store_get_counts(c->store, counts);
}

static void get_disk_counts(struct hr__cache *cache, struct hr__cache_counts *counts)
{
    if (cache->is_disk)
        get_counts(cache, counts);
}

static uint64_t waiting(const struct hr__cache *cache)
{
    return hr__store_waiting(((const struct shared *)cache)->store);
}

static uint64_t rounded(double value)
{
    return value > 0 ? (uint64_t)(value + 0.5) : 0;
}

static void publish_mean(_Atomic uint64_t *out, const struct hr__mean *mean, double unit)
{
    if (mean->count)
        atomic_store_explicit(out, rounded(mean->value * unit), memory_order_relaxed);
}

static void publish(struct hr__cache *cache, const struct hr__worth *worth, enum hr_form form,
                    int asked)
{
    struct shared *c = of(cache);
    if (!hr__segment_is_sound(hr__store_segment(c->store)))
        return;
    struct hr__segment_costs *costs = &hr__store_segment(c->store)->header->costs;
    atomic_store_explicit(&costs->form, form, memory_order_relaxed);
    atomic_store_explicit(&costs->form_asked, asked, memory_order_relaxed);
    for (int f = 0; f < HR_FORMS; f++) {
        publish_mean(&costs->prepare_ns[f], &worth->prepare_ns[f], 1);
        publish_mean(&costs->convert_ns[f], &worth->convert_ns[f], 1);
        publish_mean(&costs->growth_ppm[f], &worth->growth[f], 1e6);
    }
    publish_mean(&costs->read_ns, &worth->read_ns, 1);
}

static const struct hr__cache_backend backend = {
    .destroy = destroy,
    .abandon = abandon,
    .find = find,
    .unpin = unpin,
    .locate = locate,
    .verify = verify,
    .has = has,
    .note_place = note_place,
    .claim = claim,
    .unclaim = unclaim,
    .offer = offer,
    .take = take,
    .room = room,
    .settle = settle,
    .get_counts = get_counts,
    .get_disk_counts = get_disk_counts,
    .waiting = waiting,
    .publish = publish,
    .evicts = evicts,
    .begin_uses = begin_uses,
    .add_uses = add_uses,
    .end_uses = end_uses,
    .use = use,
    .log_kept = log_kept,
};
