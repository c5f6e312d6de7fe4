/*
 * Stores a program's own values in a segment, by key; see include/headrace/cache.h.
 *
 * Nothing here works in a forked child, whose locks and mappings are its parent's: it finds nothing
 * and stores nothing.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "cache/directory.h"
#include "cache/info.h"
#include "cache/run.h"
#include "cache/store.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

/* Separates the keys of values from those of samples. */
#define KEY_SEED      UINT64_C(0x76616c7565730001)
#define IDENTITY_SEED UINT64_C(0x76616c7565730002)

#define PAUSE_LEAST_NS UINT64_C(100000)
#define PAUSE_MOST_NS  UINT64_C(2000000)

#define PIECES_ON_STACK 16

struct hr_cache {
    struct hr__store *store;
    pid_t pid; /* of the process that opened it */
};

void hr_cache_options_init(struct hr_cache_options *options, size_t size)
{
    static const struct hr_cache_options defaults = {.items = 0};
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

static int check_options(const struct hr_cache_options *o, struct hr_error *error)
{
    if (!o->spec)
        return hr__fail(error, -EINVAL,
                        "hr_cache_options.spec is not set: write 64GiB, or shm:NAME?size=64GiB");
    if (!o->identity || !*o->identity)
        return hr__fail(error, -EINVAL,
                        "hr_cache_options.identity is not set: it distinguishes these values from "
                        "others under the same name");
    if (!o->items)
        return hr__fail(error, -EINVAL,
                        "hr_cache_options.items is not set: it is the largest number of items");
    if (o->run && !hr__run_is_valid(o->run))
        return hr__fail(error, -EINVAL, "hr_cache_options.run is none: take it from hr_cache_run");
    return 0;
}

int hr_cache_open(struct hr_cache **out, const struct hr_cache_options *options,
                  struct hr_error *error)
{
    *out = NULL;
    struct hr_cache_options o = {.items = 0};
    struct hr__cache_spec spec;
    char run[HR_CACHE_RUN];
    int r = hr__versioned_take(&o, sizeof o, options, "hr_cache_options", error);
    if (!r)
        r = check_options(&o, error);
    if (!r)
        r = hr__cache_spec_parse(&spec, o.spec, error);
    if (r)
        return r;
    struct hr_cache *cache = hr__alloc(HR__TAG_CACHE, 1, sizeof *cache);
    if (!cache)
        return hr__fail(error, -ENOMEM, "out of memory for a cache");
    hr_cache_run(run, 1);
    struct hr__segment *segment = NULL;
    struct hr__segment_wish wish = {
        .spec = &spec,
        .run = o.run ? o.run : run,
        .dataset = o.identity,
        .items = o.items,
    };
    XXH128_hash_t digest = XXH3_128bits_withSeed(o.identity, strlen(o.identity), IDENTITY_SEED);
    memcpy(wish.identity, &digest, sizeof wish.identity);
    r = hr__directory_open(&segment, &wish, error);
    if (!r)
        r = hr__store_create(&cache->store, segment, error);
    if (r) {
        hr__free(cache);
        return r;
    }
    cache->pid = getpid();
    *out = cache;
    return 0;
}

static int is_inherited(const struct hr_cache *cache)
{
    return cache->pid != getpid();
}

void hr_cache_close(struct hr_cache **cache)
{
    struct hr_cache *c = *cache;
    if (!c)
        return;
    *cache = NULL;
    if (is_inherited(c))
        hr__store_abandon(&c->store);
    else
        hr__store_destroy(&c->store);
    hr__free(c);
}

static int find(struct hr_cache *cache, const struct hr__key *key, struct hr_cache_value *value)
{
    struct hr__cache_item item;
    if (!hr__store_find(cache->store, key, &item))
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

int hr_cache_get(struct hr_cache *cache, const void *key, size_t key_length, int wait_ms,
                 struct hr_cache_value *value)
{
    *value = (struct hr_cache_value){.length = 0};
    if (is_inherited(cache))
        return 0;
    struct hr__key k = hr__key_of(key, key_length, KEY_SEED);
    uint64_t end = hr__now_ns() + (wait_ms > 0 ? (uint64_t)wait_ms : 0) * 1000000;
    uint64_t pause = PAUSE_LEAST_NS;
    int gone = 0; /* how often the value was there and then was not */
    for (;;) {
        if (find(cache, &k, value))
            return 1;
        enum hr__claim claim = hr__store_claim(cache->store, &k);
        if (claim == HR__CLAIM_YOURS || claim == HR__CLAIM_ALONE)
            return 0;
        if (hr__now_ns() >= end || (claim == HR__CLAIM_FOUND && ++gone > 2))
            return find(cache, &k, value);
        if (claim == HR__CLAIM_BUSY && wait_more(&pause, end))
            return -EINTR;
    }
}

int hr_cache_value_is_whole(struct hr_cache *cache, const struct hr_cache_value *value)
{
    struct hr__cache_item item = {.bytes = value->bytes, .copy = value->copy};
    return hr__store_is_whole(cache->store, &item);
}

void hr_cache_value_clear(struct hr_cache_value *value)
{
    struct hr__cache_item item = {.bytes = value->bytes, .copy = value->copy};
    hr__store_clear(&item);
    *value = (struct hr_cache_value){.length = 0};
}

static int sum_up(const struct hr_cache_piece *pieces, size_t count, size_t *length)
{
    *length = 0;
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].length > UINT32_MAX - *length)
            return -EFBIG;
        *length += pieces[i].length;
    }
    return 0;
}

int hr_cache_put(struct hr_cache *cache, const void *key, size_t key_length,
                 const struct hr_cache_piece *pieces, size_t piece_count)
{
    struct hr__store_piece few[PIECES_ON_STACK], *copied = few;
    size_t length;
    if (is_inherited(cache))
        return 0;
    int r = sum_up(pieces, piece_count, &length);
    if (!r && piece_count > PIECES_ON_STACK) {
        copied = hr__alloc(HR__TAG_CACHE, piece_count, sizeof *copied);
        r = copied ? 0 : -ENOMEM;
    }
    if (r) {
        hr_cache_give_up(cache, key, key_length);
        return r == -ENOMEM ? 0 : r; /* without memory there is no room for the value */
    }
    for (size_t i = 0; i < piece_count; i++)
        copied[i] = (struct hr__store_piece){.bytes = pieces[i].bytes, .length = pieces[i].length};
    struct hr__store_offer offer = {
        .key = hr__key_of(key, key_length, KEY_SEED),
        .pieces = copied,
        .piece_count = piece_count,
        .length = length,
        .source_bytes = length,
        .form = HR_FORM_ENCODED,
    };
    r = hr__store_offer(cache->store, &offer);
    if (copied != few)
        hr__free(copied);
    return r;
}

void hr_cache_give_up(struct hr_cache *cache, const void *key, size_t key_length)
{
    if (is_inherited(cache))
        return;
    struct hr__key k = hr__key_of(key, key_length, KEY_SEED);
    hr__store_unclaim(cache->store, &k);
}

void hr_cache_get_info(struct hr_cache *cache, struct hr_cache_info *info)
{
    struct hr_cache_info now = {.size = sizeof now};
    if (!is_inherited(cache))
        hr__info_fill(&now, hr__store_segment(cache->store));
    hr__versioned_give(info, &now, sizeof now);
}
