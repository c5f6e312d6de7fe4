/*
 * Clients of memcached servers.
 *
 * libmemcached is not used: 1.1.4 writes past its buffers if a server answers with a long key or a
 * length near 2^64, in gets and sets alike, and its time limits apply to single polls
 * (docs/design.md). A request that fails because the server had closed an idle connection is
 * repeated once on a new one.
 */
#include "cluster/peer.h"

#include "cluster/peer_text.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <string.h>

struct hr__peer_client {
    struct hr__peer_link link;
    struct hr__blocks *blocks;
    char user[HR__PEER_CREDENTIAL], password[HR__PEER_CREDENTIAL]; /* "": no user */
};

/* Returns non-zero if a key is valid: 1 to HR__PEER_KEY printable characters without blanks. */
static int is_good_key(const char *key)
{
    size_t n = 0;
    for (; key[n]; n++)
        if (n == HR__PEER_KEY || key[n] <= ' ' || key[n] > '~')
            return 0;
    return n > 0;
}

static void client_close(struct hr__peer_client **client)
{
    if (!*client)
        return;
    hr__peer_link_close(&(*client)->link);
    explicit_bzero((*client)->password, sizeof(*client)->password);
    hr__free(*client);
    *client = NULL;
}

static int client_open(struct hr__peer_client **out, const struct hr__peer_wish *wish,
                       struct hr_error *error)
{
    *out = NULL;
    if (wish->user && (strlen(wish->user) >= HR__PEER_CREDENTIAL ||
                       strlen(wish->password) >= HR__PEER_CREDENTIAL))
        return hr__fail(error, -EINVAL, "a user's name and password have at most %d bytes",
                        HR__PEER_CREDENTIAL - 1);
    struct hr__peer_client *client = hr__alloc(HR__TAG_CACHE, 1, sizeof *client);
    if (!client)
        return hr__fail(error, -ENOMEM, "out of memory for a connection");
    if (wish->user) {
        strcpy(client->user, wish->user);
        strcpy(client->password, wish->password);
    }
    client->blocks = wish->blocks;
    int r = hr__peer_link_open(&client->link, wish->address, wish->port, error);
    if (r) {
        client_close(&client);
        return r;
    }
    *out = client;
    return 0;
}

/* Begins a request; logs in first if needed. */
static int begin(struct hr__peer_client *client, uint64_t deadline_ns, struct hr_error *error)
{
    struct hr__peer_link *link = &client->link;
    int r = hr__peer_link_begin(link, deadline_ns, error);
    if (!r && client->user[0] && !link->is_logged_in) {
        r = hr__peer_text_login(link, client->user, client->password, error);
        link->is_logged_in = !r;
    }
    return r;
}

static int client_get(struct hr__peer_client *client, struct hr__peer_value *values, size_t count,
                      uint64_t deadline_ns, struct hr_error *error)
{
    if (!count)
        return 0;
    for (size_t i = 0; i < count; i++) {
        values[i].bytes = NULL;
        values[i].length = 0;
        if (!is_good_key(values[i].key))
            return hr__fail(error, -EINVAL, "a key for memcached is wrong");
    }
    for (int is_again = 0;; is_again = 1) {
        int r = begin(client, deadline_ns, error);
        if (!r)
            r = hr__peer_text_get(&client->link, client->blocks, values, count, error);
        if (!hr__peer_link_end(&client->link, r) || is_again)
            return r;
    }
}

static int client_put(struct hr__peer_client *client, struct hr__peer_store *stores, size_t count,
                      uint64_t deadline_ns, struct hr_error *error)
{
    if (!count)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (!is_good_key(stores[i].key))
            return hr__fail(error, -EINVAL, "a key for memcached is wrong");
    for (int is_again = 0;; is_again = 1) {
        for (size_t i = 0; i < count; i++)
            stores[i].result = -EINPROGRESS;
        int r = begin(client, deadline_ns, error);
        if (!r)
            r = hr__peer_text_put(&client->link, stores, count, error);
        for (size_t i = 0; i < count; i++)
            if (stores[i].result == -EINPROGRESS)
                stores[i].result = r;
        if (!hr__peer_link_end(&client->link, r) || is_again)
            return r;
    }
}

static int client_about(struct hr__peer_client *client, struct hr__peer_about *about,
                        uint64_t deadline_ns, struct hr_error *error)
{
    for (int is_again = 0;; is_again = 1) {
        *about = (struct hr__peer_about){.evicts = 1};
        int r = begin(client, deadline_ns, error);
        if (!r)
            r = hr__peer_text_about(&client->link, about, error);
        if (!hr__peer_link_end(&client->link, r) || is_again)
            return r;
    }
}

static void client_cancel(struct hr__peer_client *client)
{
    hr__peer_link_cancel(&client->link);
}

const struct hr__peer_ops hr__peer_ops = {
    .name = "memcached",
    .open = client_open,
    .close = client_close,
    .get = client_get,
    .put = client_put,
    .about = client_about,
    .cancel = client_cancel,
};
