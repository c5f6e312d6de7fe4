/*
 * A program's own values in a cache, and the kind of cache that is a segment; see values.h.
 *
 * Nothing here works in a forked child, whose locks and mappings are its parent's: it finds nothing
 * and stores nothing.
 */
#include "cache/values.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "cache/directory.h"
#include "cache/info.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

/* Separates the keys of values from those of samples. */
#define KEY_SEED      UINT64_C(0x76616c7565730001)
#define IDENTITY_SEED UINT64_C(0x76616c7565730002)

#define PAUSE_LEAST_NS UINT64_C(100000)
#define PAUSE_MOST_NS  UINT64_C(2000000)

#define PIECES_ON_STACK 16

/* The kind in a segment. */
struct segment_cache {
    struct hr_cache base;
    struct hr__store *store;
};

static struct hr__store *store_of(struct hr_cache *cache)
{
    return ((struct segment_cache *)cache)->store; /* base is its first member */
}

static int find(struct hr__store *store, const struct hr__key *key, struct hr_cache_value *value)
{
    struct hr__cache_item item;
    if (!hr__store_find(store, key, &item))
        return 0;
    *value = (struct hr_cache_value){.bytes = item.bytes, .length = item.length, .copy = item.copy};
    return 1;
}

/* Waits a little, longer each time. Returns 0 or -EINTR. */
static int wait_more(uint64_t *pause, uint64_t end)
{
    uint64_t now = hr__now_ns(), left = now < end ? end - now : 0;
    uint64_t ns = *pause < left ? *pause : left;
    *pause = *pause * 2 < PAUSE_MOST_NS ? *pause * 2 : PAUSE_MOST_NS;
    return nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL) ? -EINTR : 0;
}

static int segment_get(struct hr_cache *cache, const struct hr__key *key, int wait_ms,
                       struct hr_cache_value *value)
{
    struct hr__store *store = store_of(cache);
    uint64_t end = hr__now_ns() + (wait_ms > 0 ? (uint64_t)wait_ms : 0) * 1000000;
    uint64_t pause = PAUSE_LEAST_NS;
    int gone = 0; /* how often the value was there and then was not */
    for (;;) {
        if (find(store, key, value))
            return 1;
        enum hr__claim claim = hr__store_claim(store, key);
        if (claim == HR__CLAIM_YOURS || claim == HR__CLAIM_ALONE)
            return 0;
        if (hr__now_ns() >= end || (claim == HR__CLAIM_FOUND && ++gone > 2))
            return find(store, key, value);
        if (claim == HR__CLAIM_BUSY && wait_more(&pause, end))
            return -EINTR;
    }
}

static int segment_put(struct hr_cache *cache, const struct hr__key *key,
                       const struct hr__value_offer *value)
{
    struct hr__store_piece few[PIECES_ON_STACK], *copied = few;
    size_t count = value->piece_count;
    if (count > PIECES_ON_STACK)
        copied = hr__alloc(HR__TAG_CACHE, count, sizeof *copied);
    if (!copied) { /* without memory there is no room for the value */
        hr__store_unclaim(store_of(cache), key);
        return 0;
    }
    for (size_t i = 0; i < count; i++)
        copied[i] = (struct hr__store_piece){.bytes = value->pieces[i].bytes,
                                             .length = value->pieces[i].length};
    struct hr__store_offer offer = {
        .key = *key,
        .pieces = copied,
        .piece_count = count,
        .length = value->length,
        .source_bytes = value->length,
        .form = HR_FORM_ENCODED,
    };
    int r = hr__store_offer(store_of(cache), &offer);
    if (copied != few)
        hr__free(copied);
    return r;
}

static void segment_give_up(struct hr_cache *cache, const struct hr__key *key)
{
    hr__store_unclaim(store_of(cache), key);
}

static int segment_is_whole(struct hr_cache *cache, const struct hr_cache_value *value)
{
    struct hr__cache_item item = {.bytes = value->bytes, .copy = value->copy};
    return hr__store_is_whole(store_of(cache), &item);
}

static void segment_get_info(struct hr_cache *cache, struct hr_cache_info *info)
{
    hr__info_fill(info, hr__store_segment(store_of(cache)));
}

static void segment_close(struct hr_cache *cache)
{
    struct segment_cache *c = (struct segment_cache *)cache;
    if (hr__values_are_inherited(cache))
        hr__store_abandon(&c->store);
    else
        hr__store_destroy(&c->store);
    hr__free(c);
}

int hr__values_open(struct hr_cache **out, const struct hr_cache_options *options,
                    struct hr_error *error)
{
    static const struct hr__values_kind kind = {
        .close = segment_close,
        .get = segment_get,
        .put = segment_put,
        .give_up = segment_give_up,
        .is_whole = segment_is_whole,
        .get_info = segment_get_info,
    };
    struct hr__cache_spec spec;
    char run[HR_CACHE_RUN];
    int r = hr__cache_spec_parse(&spec, options->spec, error);
    if (r)
        return r;
    struct segment_cache *cache = hr__alloc(HR__TAG_CACHE, 1, sizeof *cache);
    if (!cache)
        return hr__fail(error, -ENOMEM, "out of memory for a cache");
    hr_cache_run(run, 1);
    struct hr__segment *segment = NULL;
    struct hr__segment_wish wish = {
        .spec = &spec,
        .run = options->run ? options->run : run,
        .dataset = options->identity,
        .items = options->items,
    };
    XXH128_hash_t digest =
        XXH3_128bits_withSeed(options->identity, strlen(options->identity), IDENTITY_SEED);
    memcpy(wish.identity, &digest, sizeof wish.identity);
    r = hr__directory_open(&segment, &wish, error);
    if (!r)
        r = hr__store_create(&cache->store, segment, error);
    if (r) {
        hr__free(cache);
        return r;
    }
    cache->base = (struct hr_cache){.kind = &kind, .pid = getpid()};
    *out = &cache->base;
    return 0;
}

/* Every kind */

void hr_cache_close(struct hr_cache **cache)
{
    struct hr_cache *c = *cache;
    *cache = NULL;
    if (c)
        c->kind->close(c);
}

int hr_cache_get(struct hr_cache *cache, const void *key, size_t key_length, int wait_ms,
                 struct hr_cache_value *value)
{
    *value = (struct hr_cache_value){.length = 0};
    if (hr__values_are_inherited(cache))
        return 0;
    struct hr__key k = hr__key_of(key, key_length, KEY_SEED);
    return cache->kind->get(cache, &k, wait_ms, value);
}

int hr_cache_value_is_whole(struct hr_cache *cache, const struct hr_cache_value *value)
{
    return cache->kind->is_whole(cache, value);
}

void hr_cache_value_clear(struct hr_cache_value *value)
{
    struct hr__cache_item item = {.bytes = value->bytes, .copy = value->copy};
    hr__store_clear(&item);
    *value = (struct hr_cache_value){.length = 0};
}

int hr_cache_put(struct hr_cache *cache, const void *key, size_t key_length,
                 const struct hr_cache_piece *pieces, size_t piece_count)
{
    struct hr__value_offer offer = {.pieces = pieces, .piece_count = piece_count};
    if (hr__values_are_inherited(cache))
        return 0;
    struct hr__key k = hr__key_of(key, key_length, KEY_SEED);
    for (size_t i = 0; i < piece_count; i++) {
        if (pieces[i].length > UINT32_MAX - offer.length) {
            cache->kind->give_up(cache, &k);
            return -EFBIG;
        }
        offer.length += pieces[i].length;
    }
    return cache->kind->put(cache, &k, &offer);
}

void hr_cache_give_up(struct hr_cache *cache, const void *key, size_t key_length)
{
    if (hr__values_are_inherited(cache))
        return;
    struct hr__key k = hr__key_of(key, key_length, KEY_SEED);
    cache->kind->give_up(cache, &k);
}

void hr_cache_get_info(struct hr_cache *cache, struct hr_cache_info *info)
{
    struct hr_cache_info now = {.size = sizeof now};
    if (!hr__values_are_inherited(cache))
        cache->kind->get_info(cache, &now);
    hr__versioned_give(info, &now, sizeof now);
}
