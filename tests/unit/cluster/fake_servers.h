/*
 * In-memory servers for tests of clients of several servers: addressed by port, shared by all
 * clients, with the faults of real servers.
 */
#ifndef HR_TEST_FAKE_SERVERS_H
#define HR_TEST_FAKE_SERVERS_H

#include "cluster/peer.h"

#include <stdatomic.h>

#define FAKE_SERVERS 8

/* The table that hr__peers_create is given; a wish's port is the server's number, plus one. */
extern const struct hr__peer_ops fake_peer_ops;

/* All of them empty and well. */
void fake_servers_reset(void);

/* As a server that is restarted. */
void fake_server_empty(int server);

/* Refuses connections from now on, or no longer. */
void fake_server_set_down(int server, int is_down);

/* What is there under a key, a copy for free(); NULL: nothing. Stores it, NULL removes it. */
char *fake_server_get(int server, const char *key);
void fake_server_put(int server, const char *key, const char *text);

/* Requests and keys of them since the reset. */
struct fake_counts {
    uint64_t gets, keys, puts;
};

struct fake_counts fake_server_counts(int server);

#endif
