/*
 * In-memory servers for tests of clients of several servers: addressed by port, shared by all
 * clients, with the faults of real servers.
 */
#ifndef HR_TEST_FAKE_SERVERS_H
#define HR_TEST_FAKE_SERVERS_H

#include "cluster/peer.h"

#include <stdatomic.h>

#define FAKE_SERVERS 8

/* The table for hr__peers_create. The port of a server is its number plus one. */
extern const struct hr__peer_ops fake_peer_ops;

/* Makes all servers empty and available. */
void fake_servers_reset(void);

/* Empties a server, as a restart does. */
void fake_server_empty(int server);

/* Makes a server refuse connections, or accept them again. */
void fake_server_set_down(int server, int is_down);

/* Get: returns a copy of the value under a key, for free(), or NULL. Set: stores a value; NULL
 * removes it. */
char *fake_server_get(int server, const char *key);
void fake_server_put(int server, const char *key, const char *text);

/* Numbers of requests, and of their keys, since the reset. */
struct fake_counts {
    uint64_t gets, keys, puts;
};

struct fake_counts fake_server_counts(int server);

#endif
