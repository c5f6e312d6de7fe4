/*
 * memcached's protocols over a link: the text protocol, and the binary one for servers that
 * ask for a user, which only that one can name (SASL). Each call is one request that has begun;
 * on error the connection is out of step and has to be dropped.
 *
 * What a server sends is checked as anything from outside is: keys are those that were asked
 * for, each once, lengths within HR__PEER_VALUE_MAX.
 */
#ifndef HR_CLUSTER_PEER_PROTOCOL_H
#define HR_CLUSTER_PEER_PROTOCOL_H

#include "cluster/peer.h"
#include "cluster/peer_link.h"

/* Bytes of a user's name or password at most. */
#define HR__PEER_CREDENTIAL 256

struct hr__peer_protocol {
    /* First on a connection; NULL: nothing is to be said. */
    int (*greet)(struct hr__peer_link *link, const char *user, const char *password,
                 struct hr_error *error);
    int (*get)(struct hr__peer_link *link, struct hr__blocks *blocks, struct hr__peer_value *values,
               size_t count, struct hr_error *error);
    /* Fills in each `result`; those that were not answered keep theirs. */
    int (*put)(struct hr__peer_link *link, struct hr__peer_store *stores, size_t count,
               struct hr_error *error);
    int (*about)(struct hr__peer_link *link, struct hr__peer_about *about, struct hr_error *error);
};

extern const struct hr__peer_protocol hr__peer_text, hr__peer_binary;

/* Room for a value; NULL: out of memory. */
uint8_t *hr__peer_value_alloc(struct hr__blocks *blocks, size_t length);

/* One statistic of a server; names that are not needed are passed over. */
void hr__peer_about_take(struct hr__peer_about *about, const char *name, const char *value);

/* A key is 1 to HR__PEER_KEY printable characters without blanks. */
int hr__peer_key_is_good(const char *key);

#endif
