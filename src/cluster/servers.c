/* Asks the servers of a list of hosts about themselves, for headrace/cache.h. */
#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "cluster/hosts.h"
#include "cluster/peers.h"

#include <headrace/cache.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct hr_cache_servers {
    struct hr_cache_server *servers; /* count */
    size_t count;
    char self_problem[HR_ERROR_MESSAGE_BYTES];
};

static void ask(struct hr__peers *peers, int host, struct hr_cache_server *server)
{
    struct hr__peer_about about = {.version = ""};
    struct hr_error error = {0};
    if (hr__peers_about(peers, host, &about, &error)) {
        snprintf(server->problem, sizeof server->problem, "%.*s", (int)sizeof server->problem - 1,
                 error.message);
        return;
    }
    server->is_up = 1;
    memcpy(server->version, about.version, sizeof server->version);
    server->version[sizeof server->version - 1] = 0;
    server->limit_bytes = about.limit_bytes;
    server->used_bytes = about.used_bytes;
    server->items = about.items;
    server->evictions = about.evictions;
    server->evicts = about.evicts;
    server->item_max_bytes = about.item_max_bytes;
    server->uptime_s = about.uptime_s;
}

static int ask_all(struct hr_cache_servers *s, struct hr__hosts *hosts, struct hr_error *error)
{
    struct hr__peers *peers = NULL;
    struct hr_error self_error = {0};
    if (hr__hosts_find_self(hosts, &self_error))
        memcpy(s->self_problem, self_error.message, sizeof s->self_problem);
    int r = hr__peers_create(&peers, hosts, &hr__peer_ops, error);
    if (r)
        return r;
    for (int i = 0; i < hosts->count; i++) {
        struct hr_cache_server *server = &s->servers[i];
        memcpy(server->name, hosts->hosts[i].name, sizeof server->name);
        server->is_self = i == hosts->self;
        server->budget_bytes = hosts->hosts[i].budget_bytes;
        ask(peers, i, server);
    }
    hr__peers_destroy(&peers);
    return 0;
}

int hr_cache_servers_create(struct hr_cache_servers **out, const char *text, struct hr_error *error)
{
    struct hr__hosts hosts;
    struct hr_cache_servers *s;
    *out = NULL;
    int r = hr__hosts_parse(&hosts, text, error);
    if (r)
        return r;
    s = hr__alloc(HR__TAG_CACHE, 1, sizeof *s);
    if (s)
        s->servers = hr__alloc(HR__TAG_CACHE, (size_t)hosts.count, sizeof *s->servers);
    if (!s || !s->servers)
        r = hr__fail(error, -ENOMEM, "out of memory for %d servers", hosts.count);
    else
        s->count = (size_t)hosts.count;
    if (!r)
        r = ask_all(s, &hosts, error);
    hr__hosts_clear(&hosts);
    if (r)
        hr_cache_servers_destroy(&s);
    *out = s;
    return r;
}

size_t hr_cache_servers_count(const struct hr_cache_servers *servers)
{
    return servers->count;
}

void hr_cache_servers_get(const struct hr_cache_servers *servers, size_t i,
                          struct hr_cache_server *server)
{
    hr__versioned_give(server, &servers->servers[i], sizeof *server);
}

const char *hr_cache_servers_self_problem(const struct hr_cache_servers *servers)
{
    return servers->self_problem;
}

void hr_cache_servers_destroy(struct hr_cache_servers **servers)
{
    struct hr_cache_servers *s = *servers;
    if (!s)
        return;
    hr__free(s->servers);
    hr__free(s);
    *servers = NULL;
}
