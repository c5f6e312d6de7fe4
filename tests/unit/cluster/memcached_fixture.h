/*
 * Real memcached servers for tests: started on a Unix socket or on a free port of the loopback
 * device, and ended by stop() or, however the test ends, by a guard process that outlives it.
 */
#ifndef HR_TEST_MEMCACHED_FIXTURE_H
#define HR_TEST_MEMCACHED_FIXTURE_H

#include <stdint.h>
#include <sys/types.h>

struct memcached {
    pid_t pid;            /* 0: not running */
    pid_t guard;          /* kills it when this process ends; 0: none */
    int leash;            /* a pipe to the guard: a byte releases it */
    char folder[64];      /* folder of the socket */
    char address[108];    /* the socket's path, or the loopback's */
    uint16_t port;        /* 0: a socket */
    int mebibytes;        /* -m */
    const char *item_max; /* -I */
    const char *extra;    /* an additional option; NULL: none */
};

/* Starts a server. is_tcp: 0: on a socket; 6: on ::1. Returns 0, or -1 if this machine has no
 * memcached or no such address. Fails the test if the server does not start. */
int memcached_start(struct memcached *server, int is_tcp, int mebibytes);

/* The same, with an additional option. */
int memcached_start_with(struct memcached *server, int is_tcp, int mebibytes, const char *extra);

/* Starts it again at the same address. */
void memcached_restart(struct memcached *server);

void memcached_kill(struct memcached *server, int signal);

/* Ends it and removes its socket. */
void memcached_stop(struct memcached *server);

#endif
