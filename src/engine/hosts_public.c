/* What callers ask of a loader's hosts, and what they set. */
#include "base/error.h"
#include "base/versioned.h"
#include "engine/loader.h"

#include <errno.h>

static int without_hosts(struct hr_error *error)
{
    return hr__fail(error, -EINVAL,
                    "this loader has no hosts: make it with a cache of \"memcached:...\"");
}

int hr_loader_get_rates(const struct hr_loader *loader, struct hr_loader_rates *rates,
                        struct hr_error *error)
{
    (void)loader;
    (void)rates;
    return without_hosts(error);
}

int hr_loader_set_rates(struct hr_loader *loader, uint64_t epoch,
                        const struct hr_loader_rates *ranks, int count, struct hr_error *error)
{
    (void)loader;
    (void)epoch;
    (void)ranks;
    (void)count;
    return without_hosts(error);
}

int hr_loader_set_hosts(struct hr_loader *loader, uint64_t epoch, const char *cache,
                        struct hr_error *error)
{
    (void)loader;
    (void)epoch;
    (void)cache;
    return without_hosts(error);
}

int hr_loader_host_count(const struct hr_loader *loader)
{
    (void)loader;
    return 0;
}

int hr_loader_host_get(const struct hr_loader *loader, int i, struct hr_loader_host *out)
{
    (void)loader;
    (void)i;
    (void)out;
    return -ERANGE;
}
