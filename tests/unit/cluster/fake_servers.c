/* See fake_servers.h. */
#include "fake_servers.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_entry {
    struct fake_entry *next;
    char key[HR__PEER_KEY + 1];
    char *text; /* zero-terminated */
    size_t length;
};

#define BUCKETS 1024

static struct {
    pthread_mutex_t lock; /* guards all members */
    struct fake_entry *buckets[BUCKETS];
    int is_down;
    struct fake_counts counts;
} servers[FAKE_SERVERS] = {[0 ... FAKE_SERVERS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

struct hr__peer_client {
    int server;
    atomic_int is_cancelled;
};

static struct fake_entry **place_of(int server, const char *key)
{
    unsigned hash = 5381;
    for (const char *at = key; *at; at++)
        hash = hash * 33 + (unsigned char)*at;
    struct fake_entry **at = &servers[server].buckets[hash % BUCKETS];
    while (*at && strcmp((*at)->key, key))
        at = &(*at)->next;
    return at;
}

static void remove_locked(struct fake_entry **at)
{
    struct fake_entry *entry = *at;
    if (!entry)
        return;
    *at = entry->next;
    free(entry->text);
    free(entry);
}

static void put_locked(int server, const char *key, const struct hr__peer_store *store)
{
    struct fake_entry **at = place_of(server, key), *entry;
    remove_locked(at);
    entry = calloc(1, sizeof *entry);
    entry->next = *at;
    *at = entry;
    snprintf(entry->key, sizeof entry->key, "%s", key);
    entry->length = store->length + store->tail_length;
    entry->text = malloc(entry->length + 1);
    memcpy(entry->text, store->bytes, store->length);
    if (store->tail_length)
        memcpy(entry->text + store->length, store->tail, store->tail_length);
    entry->text[entry->length] = 0;
}

static void empty_locked(int server)
{
    for (int i = 0; i < BUCKETS; i++)
        while (servers[server].buckets[i])
            remove_locked(&servers[server].buckets[i]);
}

void fake_server_empty(int server)
{
    pthread_mutex_lock(&servers[server].lock);
    empty_locked(server);
    pthread_mutex_unlock(&servers[server].lock);
}

void fake_servers_reset(void)
{
    for (int i = 0; i < FAKE_SERVERS; i++) {
        pthread_mutex_lock(&servers[i].lock);
        empty_locked(i);
        servers[i].is_down = 0;
        servers[i].counts = (struct fake_counts){.gets = 0};
        pthread_mutex_unlock(&servers[i].lock);
    }
}

void fake_server_set_down(int server, int is_down)
{
    pthread_mutex_lock(&servers[server].lock);
    servers[server].is_down = is_down;
    pthread_mutex_unlock(&servers[server].lock);
}

char *fake_server_get(int server, const char *key)
{
    pthread_mutex_lock(&servers[server].lock);
    struct fake_entry *entry = *place_of(server, key);
    char *text = entry ? strdup(entry->text) : NULL;
    pthread_mutex_unlock(&servers[server].lock);
    return text;
}

void fake_server_put(int server, const char *key, const char *text)
{
    pthread_mutex_lock(&servers[server].lock);
    if (text) {
        const struct hr__peer_store store = {.bytes = text, .length = strlen(text)};
        put_locked(server, key, &store);
    } else {
        remove_locked(place_of(server, key));
    }
    pthread_mutex_unlock(&servers[server].lock);
}

struct fake_counts fake_server_counts(int server)
{
    pthread_mutex_lock(&servers[server].lock);
    struct fake_counts counts = servers[server].counts;
    pthread_mutex_unlock(&servers[server].lock);
    return counts;
}

/* ---- the table ---- */

static int fake_open(struct hr__peer_client **out, const struct hr__peer_wish *wish,
                     struct hr_error *error)
{
    if (wish->port < 1 || wish->port > FAKE_SERVERS)
        return hr__fail(error, -EINVAL, "there is no server %d", wish->port);
    *out = calloc(1, sizeof **out);
    (*out)->server = wish->port - 1;
    return 0;
}

static void fake_close(struct hr__peer_client **client)
{
    free(*client);
    *client = NULL;
}

/* Returns whether the server answers a request, with its lock then held. */
static int enter(struct hr__peer_client *client, struct hr_error *error)
{
    if (atomic_load(&client->is_cancelled))
        return hr__fail(error, -ECANCELED, "cancelled");
    pthread_mutex_lock(&servers[client->server].lock);
    if (!servers[client->server].is_down)
        return 0;
    pthread_mutex_unlock(&servers[client->server].lock);
    return hr__fail(error, -ECONNREFUSED, "server %d refuses", client->server);
}

static int fake_get(struct hr__peer_client *client, struct hr__peer_value *values, size_t count,
                    uint64_t deadline_ns, struct hr_error *error)
{
    int r = enter(client, error);
    if (r)
        return r;
    servers[client->server].counts.gets++;
    servers[client->server].counts.keys += count;
    for (size_t i = 0; i < count; i++) {
        const struct fake_entry *entry = *place_of(client->server, values[i].key);
        values[i].bytes = NULL;
        if (!entry)
            continue;
        values[i].bytes = hr__alloc(HR__TAG_CACHE, entry->length + HR__PEER_SLACK, 1);
        values[i].length = entry->length;
        memcpy(values[i].bytes, entry->text, entry->length);
    }
    pthread_mutex_unlock(&servers[client->server].lock);
    return 0;
}

static int fake_put(struct hr__peer_client *client, struct hr__peer_store *stores, size_t count,
                    uint64_t deadline_ns, struct hr_error *error)
{
    int r = enter(client, error);
    if (r)
        return r;
    servers[client->server].counts.puts++;
    for (size_t i = 0; i < count; i++) {
        put_locked(client->server, stores[i].key, &stores[i]);
        stores[i].result = 0;
    }
    pthread_mutex_unlock(&servers[client->server].lock);
    return 0;
}

static int fake_about(struct hr__peer_client *client, struct hr__peer_about *about,
                      uint64_t deadline_ns, struct hr_error *error)
{
    int r = enter(client, error);
    if (r)
        return r;
    pthread_mutex_unlock(&servers[client->server].lock);
    *about = (struct hr__peer_about){.version = "fake", .item_max_bytes = 1 << 20};
    return 0;
}

static void fake_cancel(struct hr__peer_client *client)
{
    atomic_store(&client->is_cancelled, 1);
}

const struct hr__peer_ops fake_peer_ops = {.name = "fake",
                                           .open = fake_open,
                                           .close = fake_close,
                                           .get = fake_get,
                                           .put = fake_put,
                                           .about = fake_about,
                                           .cancel = fake_cancel};
