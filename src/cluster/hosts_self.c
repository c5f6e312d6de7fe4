/*
 * Finds which host of a list this machine is (hosts.h).
 *
 * An entry is this machine if one of the addresses of its name belongs to an interface here, or is
 * a loopback address. Names that cannot be looked up are taken for other machines. If name servers
 * do not answer, lookups stop, so that a thousand names do not mean a thousand timeouts.
 */
#include "cluster/hosts.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* After so many lookups without an answer, the remaining entries are only compared with this
 * machine's own name. */
#define UNANSWERED_MAX 2

/* Converts an address to 16 bytes; IPv4 addresses are mapped. Returns 0 for other families. */
static int to_address(struct in6_addr *out, const struct sockaddr *from)
{
    if (!from)
        return 0;
    if (from->sa_family == AF_INET6) {
        *out = ((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
        return 1;
    }
    if (from->sa_family != AF_INET)
        return 0;
    const struct in_addr v4 = ((const struct sockaddr_in *)(const void *)from)->sin_addr;
    memset(out, 0, sizeof *out);
    out->s6_addr[10] = out->s6_addr[11] = 0xff;
    memcpy(&out->s6_addr[12], &v4, 4);
    return 1;
}

static int is_here(const struct in6_addr *address, const struct ifaddrs *interfaces)
{
    struct in6_addr other;
    if (IN6_IS_ADDR_LOOPBACK(address) ||
        (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127))
        return 1;
    for (const struct ifaddrs *at = interfaces; at; at = at->ifa_next)
        if (to_address(&other, at->ifa_addr) && !memcmp(&other, address, sizeof other))
            return 1;
    return 0;
}

/* Returns non-zero if a name is this machine's host name, or the first part of it. */
static int is_own_name(const char *name)
{
    char own[256];
    if (gethostname(own, sizeof own))
        return 0;
    own[sizeof own - 1] = 0;
    size_t first = strcspn(own, ".");
    return !strcasecmp(name, own) || (!strncasecmp(name, own, first) && !name[first]);
}

static int is_self(const struct hr__host *host, const struct ifaddrs *interfaces, int *unanswered)
{
    struct addrinfo *list = NULL, hints = {.ai_socktype = SOCK_STREAM};
    struct in6_addr address;
    int found = 0;
    if (!host->port)
        return 1;
    if (*unanswered >= UNANSWERED_MAX)
        hints.ai_flags = AI_NUMERICHOST;
    int r = getaddrinfo(host->address, NULL, &hints, &list);
    *unanswered += r == EAI_AGAIN;
    if (r)
        return is_own_name(host->address);
    for (const struct addrinfo *at = list; !found && at; at = at->ai_next)
        found = to_address(&address, at->ai_addr) && is_here(&address, interfaces);
    freeaddrinfo(list);
    return found;
}

static int find_named(struct hr__hosts *hosts, const char *word, struct hr_error *error)
{
    char text[512];
    hosts->self = hr__hosts_index(hosts, word);
    if (hosts->self >= 0)
        return 0;
    hr__hosts_text(hosts, text, sizeof text);
    return hr__fail(error, -EINVAL,
                    "HEADRACE_HOST=%.100s is none of the %d hosts %s: give it an index from 0 to "
                    "%d, or an entry of the list",
                    word, hosts->count, text, hosts->count - 1);
}

int hr__hosts_find_self(struct hr__hosts *hosts, struct hr_error *error)
{
    const char *word = getenv("HEADRACE_HOST");
    struct ifaddrs *interfaces = NULL;
    int unanswered = 0, found = -1, failed = 0;
    if (hosts->self >= 0)
        return 0;
    if (word && *word)
        return find_named(hosts, word, error);
    if (getifaddrs(&interfaces))
        interfaces = NULL; /* loopback addresses and paths still work */
    for (int i = 0; !failed && i < hosts->count; i++) {
        if (!is_self(&hosts->hosts[i], interfaces, &unanswered))
            continue;
        if (found >= 0)
            failed = hr__fail(error, -EEXIST,
                              "hosts %s and %s are both this machine: choose one for each process, "
                              "by HEADRACE_HOST=%d or HEADRACE_HOST=%d in its "
                              "environment, or &self= in the cache's text",
                              hosts->hosts[found].name, hosts->hosts[i].name, found, i);
        else
            found = i;
    }
    if (interfaces)
        freeifaddrs(interfaces);
    if (!failed)
        hosts->self = found;
    return failed;
}
