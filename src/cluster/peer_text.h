/*
 * memcached's text protocol over a link. Each call is one request on a connection that has
 * begun; on error the connection is out of step and has to be dropped.
 *
 * What a server sends is checked as anything from outside is: keys are those that were asked
 * for, each once, lengths within HR__PEER_VALUE_MAX.
 */
#ifndef HR_CLUSTER_PEER_TEXT_H
#define HR_CLUSTER_PEER_TEXT_H

#include "cluster/peer.h"
#include "cluster/peer_link.h"

/* Bytes of a user's name or password at most, with the end. */
#define HR__PEER_CREDENTIAL 256

/* Logs in to a server with an authfile (-Y). First on a connection. The user and the password
 * hold no blanks. They are sent only to a server that asks for them, and no message has them.
 * -EACCES: the server refuses them, or asks for none. */
int hr__peer_text_login(struct hr__peer_link *link, const char *user, const char *password,
                        struct hr_error *error);

int hr__peer_text_get(struct hr__peer_link *link, struct hr__blocks *blocks,
                      struct hr__peer_value *values, size_t count, struct hr_error *error);

/* Fills in each `result`; those that were not answered keep theirs. */
int hr__peer_text_put(struct hr__peer_link *link, struct hr__peer_store *stores, size_t count,
                      struct hr_error *error);

int hr__peer_text_about(struct hr__peer_link *link, struct hr__peer_about *about,
                        struct hr_error *error);

#endif
