/*
 * Fetches and stores items on the servers of a list of hosts, whatever state they are in.
 *
 * An item is transferred as its bytes followed by a trailer (form, length, length on storage, and a
 * checksum over these, the bytes and the key). The bytes are used where they were received: the
 * trailer's place becomes the slack that decoders may read. An item whose checksum, key or length
 * is wrong is a miss, and is logged.
 *
 * A server that fails gets no requests for a while, which doubles from 0.5 s to 30 s; then one
 * request tries it again. Until then all its items are immediate misses. The total time of a
 * request is bounded (struct hr__hosts, timeout_ms). Each server has as many connections as there
 * are threads that use it at once.
 */
#ifndef HR_CLUSTER_PEERS_H
#define HR_CLUSTER_PEERS_H

#include "cluster/hosts.h"
#include "cluster/peer.h"

#include <headrace/form.h>

struct hr__peers;

/* The secret that signs items; create reads it. */
const struct hr__secret *hr__peers_secret(const struct hr__peers *peers);

/* Copies what it needs of `hosts`. ops: &hr__peer_ops except in tests. Makes no connection. On
 * success *out is the caller's. Errors: -EINVAL, -EACCES, -ENOENT: the password's file, or the
 * key's; -ENOMEM. */
int hr__peers_create(struct hr__peers **out, const struct hr__hosts *hosts,
                     const struct hr__peer_ops *ops, struct hr_error *error);

/* Says what happens to the items of a server that does not answer, for the message about it: a
 * constant text. Without this call they "come from storage". Before other threads use the peers. */
void hr__peers_set_source(struct hr__peers *peers, const char *source);

/* No other thread may still be using them. */
void hr__peers_destroy(struct hr__peers **peers);

/* Ends all requests as misses from now on, those in progress too. Any thread. */
void hr__peers_cancel(struct hr__peers *peers);

/* An item to fetch or to store. */
struct hr__peer_item {
    uint64_t key[2];
    uint8_t *bytes; /* fetched: the caller's, free with hr__free; HR__PEER_SLACK zero bytes follow.
                       NULL: a miss. Stored: borrowed */
    size_t length;
    enum hr_form form;
    uint64_t source_bytes;    /* size of the sample on storage. Fetch, in: the expected size, 0:
                                 unknown; an item with another one is a miss. Fetch, out: the actual
                                 one */
    uint64_t change, content; /* of the file that it was made from; see peer_item.h */
    int result;               /* after storing: as in struct hr__peer_store */
};

/* Fetches items from one host's server and returns how many were found. It makes one bulk request,
 * or a few that are bounded in bytes. Never fails: anything wrong is a miss. Any thread. Each bulk
 * request blocks for at most timeout_ms. After one in which nothing arrived, or after four times
 * timeout_ms in all, no further one begins, and all remaining items are misses. Bulk requests
 * shrink to what a slow server or network manages in timeout_ms. */
size_t hr__peers_fetch(struct hr__peers *peers, int host, struct hr__peer_item *items,
                       size_t count);

/* Stores items and returns how many were stored. Otherwise as hr__peers_fetch. */
size_t hr__peers_store(struct hr__peers *peers, int host, struct hr__peer_item *items,
                       size_t count);

/* Returns non-zero if requests are currently sent to the host. Any thread, no lock. */
int hr__peers_is_up(const struct hr__peers *peers, int host);

/* Read and write short text records (of the meeting), up to 8 KiB. read returns 1 with the
 * record in *text, to be freed with hr__free; 0: there is none; negative: the server could not
 * be asked. */
int hr__peers_read(struct hr__peers *peers, int host, const char *key, char **text);
int hr__peers_write(struct hr__peers *peers, int host, const char *key, const char *text,
                    uint32_t expires_s);

/* Reads many records in one request and returns how many were found, or an error as above. A server
 * that failed is tried again for records after a second at most, so that a meeting notices when it
 * comes up. */
struct hr__peer_record {
    const char *key;
    char *text; /* out: free with hr__free; NULL: none */
};

int hr__peers_read_all(struct hr__peers *peers, int host, struct hr__peer_record *records,
                       size_t count);

/* Asks a server about itself, even if requests to it are suspended. */
int hr__peers_about(struct hr__peers *peers, int host, struct hr__peer_about *about,
                    struct hr_error *error);

/* Counters of one host, since create. */
struct hr__peers_counts {
    uint64_t fetched, missed, stored, refused, too_large;
    uint64_t fetched_bytes, stored_bytes;
    uint64_t requests, failures, damaged;
    uint64_t request_ns; /* time of the fetches that succeeded; with fetched_bytes it gives the
                            rate */
    int is_up;
    char problem[160]; /* the last failure and its remedy; "": none */
};

void hr__peers_counts(const struct hr__peers *peers, int host, struct hr__peers_counts *counts);

#endif
