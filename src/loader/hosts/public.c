/* Public functions about a loader's hosts: statistics, and what callers set. */
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "cache/spec.h"
#include "loader/hosts/inside.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int check_hosting(const struct hr_loader *l, struct hr_error *error)
{
    if (hr__in_child(l))
        return hr__fail(error, -ECHILD, "this loader is process %d's: make a new one here",
                        atomic_load(&l->pid));
    if (!l->hosting)
        return hr__fail(error, -EINVAL,
                        "this loader has no hosts: make it with a cache of \"memcached:...\"");
    return 0;
}

int hr_loader_get_rates(const struct hr_loader *loader, struct hr_loader_rates *rates,
                        struct hr_error *error)
{
    struct hr_loader *l = (struct hr_loader *)loader;
    struct hr_loader_rates now;
    int r = check_hosting(l, error);
    if (r)
        return r;
    pthread_mutex_lock(&l->lock);
    hr__hosting_get_rates_locked(l, &now);
    pthread_mutex_unlock(&l->lock);
    hr__versioned_give(rates, &now, sizeof now);
    return 0;
}

/* Copies the ranks' rates; each is of the size that the caller's version has. */
static int copy_rates(const struct hr_loader *l, struct hr_loader_rates *copy,
                      const struct hr_loader_rates *ranks, struct hr_error *error)
{
    const char *at = (const char *)ranks;
    for (int i = 0; i < l->options.world_size; i++, at += ranks->size) {
        copy[i].size = sizeof *copy;
        int r = hr__versioned_take(&copy[i], sizeof *copy, at, "hr_loader_rates", error);
        if (r)
            return r;
    }
    return 0;
}

int hr_loader_set_rates(struct hr_loader *loader, uint64_t epoch,
                        const struct hr_loader_rates *ranks, int count, struct hr_error *error)
{
    struct hr_loader *l = loader;
    int r = check_hosting(l, error);
    if (r)
        return r;
    if (count != l->options.world_size)
        return hr__fail(error, -EINVAL, "rates of %d ranks: the world has %d", count,
                        l->options.world_size);
    struct hr_loader_rates *copy = hr__alloc(HR__TAG_LOADER, (size_t)count, sizeof *copy);
    if (!copy)
        return hr__fail(error, -ENOMEM, "out of memory for the rates of %d ranks", count);
    r = copy_rates(l, copy, ranks, error);
    if (r) {
        hr__free(copy);
        return r;
    }
    struct hr__rates_set *rates = l->hosting->rates;
    pthread_mutex_lock(&l->lock);
    struct hr_loader_rates *gone = rates[0].ranks;
    if (rates[0].ranks && rates[0].epoch < epoch) {
        gone = rates[1].ranks;
        rates[1] = rates[0];
    }
    rates[0] = (struct hr__rates_set){.epoch = epoch, .ranks = copy};
    pthread_mutex_unlock(&l->lock);
    hr__free(gone);
    return 0;
}

int hr_loader_set_hosts(struct hr_loader *loader, uint64_t epoch, const char *cache,
                        struct hr_error *error)
{
    struct hr_loader *l = loader;
    struct hr__cluster *next;
    int r = check_hosting(l, error);
    if (r)
        return r;
    if (!cache || !hr__hosts_is(cache))
        return hr__fail(error, -EINVAL, "\"%.100s\" is not a list of hosts (\"memcached:...\")",
                        cache ? cache : "");
    if (hr__cache_spec_is_disk(cache))
        return hr__fail(error, -EINVAL,
                        "\"%.100s\": the disk stays as it is: write the list of hosts alone, from "
                        "memcached: on",
                        cache);
    r = hr__cluster_create(&next, l, cache, error);
    if (r)
        return r;
    pthread_mutex_lock(&l->lock);
    struct hr__cluster *before = l->hosting->next;
    l->hosting->next = next;
    l->hosting->next_epoch = epoch;
    pthread_mutex_unlock(&l->lock);
    hr__cluster_unref(&before);
    return 0;
}

int hr_loader_host_count(const struct hr_loader *loader)
{
    struct hr_loader *l = (struct hr_loader *)loader;
    if (check_hosting(l, NULL))
        return 0;
    pthread_mutex_lock(&l->lock);
    int count = l->hosting->cluster->hosts.count;
    pthread_mutex_unlock(&l->lock);
    return count;
}

static void describe_locked(const struct hr_loader *l, const struct hr__cluster *c, int i,
                            struct hr_loader_host *out)
{
    const struct hr__host *host = &c->hosts.hosts[i];
    out->is_self = i == c->hosts.self;
    out->budget_bytes = host->budget_bytes;
    out->limit_bytes = c->abouts[i].limit_bytes;
    out->used_bytes = c->abouts[i].used_bytes;
    if (c->placement) {
        struct hr__placement_share share = hr__placement_share(c->placement, i);
        out->planned_items = share.items;
        out->planned_bytes = share.bytes;
    }
    for (int rank = 0; c->host_of_rank && rank < l->options.world_size; rank++)
        out->ranks += c->host_of_rank[rank] == i;
    snprintf(out->name, sizeof out->name, "%s", host->name);
}

int hr_loader_host_get(const struct hr_loader *loader, int i, struct hr_loader_host *out)
{
    struct hr_loader *l = (struct hr_loader *)loader;
    struct hr_loader_host host = {0};
    if (i < 0 || i >= hr_loader_host_count(l))
        return -ERANGE;
    pthread_mutex_lock(&l->lock);
    struct hr__cluster *c = hr__cluster_ref(l->hosting->cluster);
    int is_there = i < c->hosts.count;
    if (is_there)
        describe_locked(l, c, i, &host);
    pthread_mutex_unlock(&l->lock);
    if (is_there) {
        struct hr__peers_counts counts;
        hr__peers_counts(c->peers, i, &counts);
        host.is_up = counts.is_up;
        host.fetched = counts.fetched;
        host.fetched_bytes = counts.fetched_bytes;
        host.missed = counts.missed;
        host.stored = counts.stored;
        host.stored_bytes = counts.stored_bytes;
        host.refused = counts.refused + counts.too_large;
        host.failures = counts.failures;
        snprintf(host.problem, sizeof host.problem, "%s", counts.problem);
        hr__versioned_give(out, &host, sizeof host);
    }
    hr__cluster_unref(&c);
    return is_there ? 0 : -ERANGE;
}
