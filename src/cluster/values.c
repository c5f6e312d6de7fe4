/*
 * Opens a cache for a program's own values (include/headrace/cache.h), and is the kind of them that
 * keeps values on the servers of several hosts.
 *
 * Which server owns a value follows from its key, the list of hosts and their budgets, by the
 * placement that loaders use: of a fixed number of slots, since neither the number of values nor
 * their sizes are known. So what a loader knows in advance, a server is asked for: how much it
 * holds, from time to time, and how large an item may be. A value that would exceed either is not
 * stored.
 *
 * Nobody claims a value that is to be made, as nobody is told which values other hosts make.
 */
#include "cache/values.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "cache/run.h"
#include "cache/spec.h"
#include "cluster/hosts.h"
#include "cluster/peer_item.h"
#include "cluster/peers.h"
#include "cluster/placement.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* Increment it when the making of keys changes: old values are then not found. */
#define KEY_VERSION 1
/* Separates the keys of values from those of samples. */
#define KEY_SEED UINT64_C(0x76616c7565730003)

/* Keys are spread over so many slots, each of which one host owns: more than hosts there may be. */
#define SLOTS (1u << 16)

/* A server is asked so often, at the most, how much it holds. */
#define ASK_NS UINT64_C(1000000000)

/* What is known of a server. */
struct value_server {
    _Atomic uint64_t asked_ns; /* 0: never */
    _Atomic uint64_t used_bytes, item_max_bytes;
};

struct hosts_cache {
    struct hr_cache base;
    struct hr__hosts hosts;
    struct hr__peers *peers;
    struct hr__placement *placement; /* of the slots */
    uint64_t identity[2];
    char dataset[512]; /* the identity, for people to read */
    struct value_server *servers;
    _Atomic uint64_t hits, misses, refused;
};

static struct hosts_cache *hosts_of(struct hr_cache *cache)
{
    return (struct hosts_cache *)cache; /* base is its first member */
}

static void add_one(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* Makes the item's key and returns its host; HR__NOBODY: no host has room for anything. */
static int find_place(const struct hosts_cache *c, const struct hr__key *key, uint64_t item[2])
{
    const uint64_t place[] = {htole64(KEY_VERSION), htole64(c->identity[0]),
                              htole64(c->identity[1]), htole64(key->high), htole64(key->low)};
    XXH128_hash_t hash = XXH3_128bits_withSeed(place, sizeof place, KEY_SEED);
    item[0] = hash.low64;
    item[1] = hash.high64;
    return hr__placement_owners(c->placement)[hash.low64 % SLOTS];
}

static int hosts_get(struct hr_cache *cache, const struct hr__key *key, int wait_ms,
                     struct hr_cache_value *value)
{
    struct hosts_cache *c = hosts_of(cache);
    struct hr__peer_item item = {.length = 0};
    int host = find_place(c, key, item.key);
    if (host == HR__NOBODY || !hr__peers_fetch(c->peers, host, &item, 1)) {
        add_one(&c->misses);
        return 0;
    }
    add_one(&c->hits);
    *value =
        (struct hr_cache_value){.bytes = item.bytes, .length = item.length, .copy = item.bytes};
    return 1;
}

static void ask_server(struct hosts_cache *c, int host)
{
    struct value_server *server = &c->servers[host];
    struct hr__peer_about about;
    if (hr__peers_about(c->peers, host, &about, NULL))
        return;
    atomic_store(&server->used_bytes, about.used_bytes);
    atomic_store(&server->item_max_bytes, about.item_max_bytes);
}

/* Returns 1 if a server may get a value of so many bytes; 0: it would hold more than its budget;
 * -EFBIG: its items may not be so large. */
static int check_room(struct hosts_cache *c, int host, uint64_t length)
{
    struct value_server *server = &c->servers[host];
    uint64_t asked = atomic_load(&server->asked_ns), now = hr__now_ns();
    if ((!asked || now - asked >= ASK_NS) &&
        atomic_compare_exchange_strong(&server->asked_ns, &asked, now))
        ask_server(c, host);
    uint64_t largest = atomic_load(&server->item_max_bytes);
    if (largest && length + HR__PEER_ITEM_ROOM > largest)
        return -EFBIG;
    uint64_t used = atomic_load(&server->used_bytes), budget = c->hosts.hosts[host].budget_bytes;
    return used < budget && length <= budget - used;
}

static void copy_pieces(uint8_t *out, const struct hr__value_offer *offer)
{
    for (size_t i = 0; i < offer->piece_count; i++) {
        if (offer->pieces[i].length)
            memcpy(out, offer->pieces[i].bytes, offer->pieces[i].length);
        out += offer->pieces[i].length;
    }
}

static int hosts_put(struct hr_cache *cache, const struct hr__key *key,
                     const struct hr__value_offer *offer)
{
    struct hosts_cache *c = hosts_of(cache);
    struct hr__peer_item item = {
        .length = offer->length, .form = HR_FORM_ENCODED, .source_bytes = offer->length};
    int host = find_place(c, key, item.key);
    if (host == HR__NOBODY || !offer->length || !hr__peers_is_up(c->peers, host))
        return 0;
    int r = check_room(c, host, offer->length);
    if (r <= 0) {
        add_one(&c->refused);
        return r;
    }
    item.bytes = hr__alloc(HR__TAG_CACHE, offer->length, 1);
    if (!item.bytes)
        return 0; /* without memory there is no room for the value */
    copy_pieces(item.bytes, offer);
    hr__peers_store(c->peers, host, &item, 1);
    hr__free(item.bytes);
    if (item.result == -ENOSPC || item.result == -E2BIG)
        add_one(&c->refused);
    if (!item.result)
        atomic_fetch_add(&c->servers[host].used_bytes, offer->length);
    return item.result == -E2BIG ? -EFBIG : !item.result;
}

/* Nobody waits for a value. */
static void hosts_give_up(struct hr_cache *cache, const struct hr__key *key)
{
}

/* Every value is a copy of this process's own. */
static int hosts_is_whole(struct hr_cache *cache, const struct hr_cache_value *value)
{
    return 1;
}

static void hosts_get_info(struct hr_cache *cache, struct hr_cache_info *info)
{
    struct hosts_cache *c = hosts_of(cache);
    snprintf(info->name, sizeof info->name, "memcached");
    memcpy(info->dataset, c->dataset, sizeof info->dataset);
    for (int i = 0; i < c->hosts.count; i++) {
        struct hr__peer_about about = {.used_bytes = 0};
        struct hr__peers_counts counts;
        info->budget_bytes += c->hosts.hosts[i].budget_bytes;
        hr__peers_counts(c->peers, i, &counts);
        info->saved_bytes += counts.fetched_bytes;
        info->foreign += hr__peers_secret(c->peers)->is_set ? counts.damaged : 0;
        if (!counts.is_up || hr__peers_about(c->peers, i, &about, NULL))
            continue;
        info->used_bytes += about.used_bytes;
        info->size_bytes += about.limit_bytes;
        info->forms[HR_FORM_ENCODED].items += about.items;
    }
    info->items[0] = info->forms[HR_FORM_ENCODED].items;
    info->hits = atomic_load(&c->hits);
    info->misses = atomic_load(&c->misses);
    info->refused = atomic_load(&c->refused);
}

static void hosts_close(struct hr_cache *cache)
{
    struct hosts_cache *c = hosts_of(cache);
    hr__peers_destroy(&c->peers);
    hr__placement_destroy(&c->placement);
    hr__free(c->servers);
    hr__hosts_clear(&c->hosts);
    hr__free(c);
}

static int place_slots(struct hosts_cache *c, struct hr_error *error)
{
    size_t count = (size_t)c->hosts.count;
    struct hr__placement_host *hosts = hr__alloc(HR__TAG_CACHE, count, sizeof *hosts);
    uint32_t *bytes = hr__alloc(HR__TAG_CACHE, SLOTS, sizeof *bytes);
    int r = -ENOMEM;
    for (size_t i = 0; hosts && i < count; i++)
        hosts[i] = (struct hr__placement_host){.id = hr__host_id(&c->hosts.hosts[i]),
                                               .budget_bytes = c->hosts.hosts[i].budget_bytes};
    for (size_t i = 0; bytes && i < SLOTS; i++)
        bytes[i] = 1; /* which no budget is too small for */
    const struct hr__placement_wish wish = {
        .hosts = hosts, .host_count = c->hosts.count, .samples = SLOTS, .bytes = bytes};
    if (hosts && bytes)
        r = hr__placement_create(&c->placement, &wish, error);
    else
        hr__fail(error, r, "out of memory for a cache on %zu hosts", count);
    hr__free(hosts);
    hr__free(bytes);
    return r;
}

/* Refuses what only loaders can do. */
static int check_hosts(const struct hr__hosts *hosts, struct hr_error *error)
{
    const char *option = hosts->form != HR_FORM_ENCODED ? "form="
                         : !hosts->with_mtime           ? "mtime=no"
                                                        : NULL;
    return option ? hr__fail(error, -EINVAL,
                             "a cache on several hosts for a program's own values, which are kept "
                             "as they are, has no %s: leave it out",
                             option)
                  : 0;
}

static int open_hosts(struct hr_cache **out, const struct hr_cache_options *options,
                      struct hr_error *error)
{
    static const struct hr__values_kind kind = {
        .close = hosts_close,
        .get = hosts_get,
        .put = hosts_put,
        .give_up = hosts_give_up,
        .is_whole = hosts_is_whole,
        .get_info = hosts_get_info,
    };
    struct hosts_cache *c = hr__alloc(HR__TAG_CACHE, 1, sizeof *c);
    if (!c)
        return hr__fail(error, -ENOMEM, "out of memory for a cache");
    c->base = (struct hr_cache){.kind = &kind, .pid = getpid()};
    XXH128_hash_t digest =
        XXH3_128bits_withSeed(options->identity, strlen(options->identity), KEY_SEED);
    c->identity[0] = digest.low64;
    c->identity[1] = digest.high64;
    snprintf(c->dataset, sizeof c->dataset, "%s", options->identity);
    int r = hr__hosts_parse(&c->hosts, options->spec, error);
    if (!r)
        r = check_hosts(&c->hosts, error);
    if (!r && c->hosts.socket[0]) /* of which host it is the socket */
        r = hr__hosts_find_self(&c->hosts, error);
    if (!r)
        r = hr__peers_create(&c->peers, &c->hosts, &hr__peer_ops, error);
    if (!r)
        hr__peers_set_source(c->peers, "are made anew");
    if (!r)
        r = place_slots(c, error);
    if (!r) {
        c->servers = hr__alloc(HR__TAG_CACHE, (size_t)c->hosts.count, sizeof *c->servers);
        r = c->servers ? 0 : hr__fail(error, -ENOMEM, "out of memory for a cache");
    }
    if (r) {
        hosts_close(&c->base);
        return r;
    }
    *out = &c->base;
    return 0;
}

/* Opening any kind */

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
    struct hr_cache_options o = {.items = 0};
    *out = NULL;
    int r = hr__versioned_take(&o, sizeof o, options, "hr_cache_options", error);
    if (!r)
        r = check_options(&o, error);
    if (r)
        return r;
    if (hr__hosts_is(o.spec) && hr__cache_spec_is_disk(o.spec))
        return hr__fail(error, -ENOTSUP,
                        "cache \"%.200s\": a disk before memcached: is for loaders; here write one "
                        "of them",
                        o.spec);
    return hr__hosts_is(o.spec) ? open_hosts(out, &o, error) : hr__values_open(out, &o, error);
}
