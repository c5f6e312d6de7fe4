/*
 * memcached's text protocol over a link. Each call is one request on a link that has begun one.
 * After an error the connection is out of step and must be closed.
 *
 * What a server sends is untrusted: each key must be one that was requested, and come only once,
 * and lengths must be within HR__PEER_VALUE_MAX.
 */
#ifndef HR_CLUSTER_PEER_TEXT_H
#define HR_CLUSTER_PEER_TEXT_H

#include "cluster/peer.h"
#include "cluster/peer_link.h"

/* Size limit of a user's name or password, with the terminator. */
#define HR__PEER_CREDENTIAL 256

/* Logs in to a server with an authfile (-Y); must be the first request of a connection. User and
 * password contain no blanks. They are sent only to a server that asks for them, and never appear
 * in messages. -EACCES: the server refuses them, or does not ask for any. */
int hr__peer_text_login(struct hr__peer_link *link, const char *user, const char *password,
                        struct hr_error *error);

int hr__peer_text_get(struct hr__peer_link *link, struct hr__blocks *blocks,
                      struct hr__peer_value *values, size_t count, struct hr_error *error);

/* Sets each `result`; stores that were not answered keep theirs. */
int hr__peer_text_put(struct hr__peer_link *link, struct hr__peer_store *stores, size_t count,
                      struct hr_error *error);

int hr__peer_text_about(struct hr__peer_link *link, struct hr__peer_about *about,
                        struct hr_error *error);

#endif
