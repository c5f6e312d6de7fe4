/* A client of an endpoint of this process, for tests. */
#ifndef HR_TEST_METRICS_CLIENT_H
#define HR_TEST_METRICS_CLIENT_H

#include <stddef.h>

/* Connects to a port of the loopback interface; fails the test if that fails. */
int client_connect(int port);

/* Sends a request of any bytes and stores the whole answer, until the server closes. */
void client_request(int port, const char *text, size_t length, char *answer, size_t capacity);

/* Stores the answer to GET /metrics. */
void client_get(int port, char *answer, size_t capacity);

/* Returns the port that a socket of this process listens on; 0: none. */
int client_listening_port(void);

#endif
