/* Answers what a cache's text says, without opening the cache (include/headrace/cache.h). */
#include "base/error.h"
#include "cache/spec.h"
#include "cluster/hosts.h"

#include <headrace/cache.h>

enum hr_cache_kind hr_cache_kind(const char *text)
{
    if (hr__hosts_is(text))
        return HR_CACHE_HOSTS;
    if (hr__cache_spec_is_disk(text))
        return HR_CACHE_DISK;
    return hr__cache_spec_is_kept(text) ? HR_CACHE_KEPT : HR_CACHE_PRIVATE;
}

int hr_cache_bytes(const char *text, uint64_t *bytes, struct hr_error *error)
{
    struct hr__cache_tiers tiers;
    struct hr__cache_spec before;
    struct hr__hosts hosts;
    *bytes = 0;
    if (!hr__hosts_is(text)) {
        int r = hr__cache_tiers_parse(&tiers, text, error);
        uint64_t memory = tiers.first.share_bytes, disk = tiers.disk.share_bytes;
        /* What is in private memory is on the disk, too. */
        int is_twice = !*tiers.first.name;
        *bytes = r ? 0 : !is_twice ? memory + disk : memory > disk ? memory : disk;
        return r;
    }
    int r = hr__hosts_disk_parse(&before, text, error);
    if (!r)
        r = hr__hosts_parse(&hosts, text, error);
    if (r)
        return r;
    for (int i = 0; i < hosts.count; i++)
        *bytes += hosts.hosts[i].budget_bytes + before.share_bytes;
    hr__hosts_clear(&hosts);
    return 0;
}
