/*
 * The servers of a list of hosts: items in and out, whatever state they are in.
 *
 * An item travels as its bytes with a trailer behind them (form, length, the length on
 * storage, a checksum over these, the bytes and the key), so that what arrives is used where
 * it lies: the trailer's place becomes the slack that decoders may read. What does not fit
 * its checksum, its key or its length is a miss, and is told.
 *
 * A server that fails is left alone for a while that doubles from 0.5 s to 30 s, and is
 * asked again then by one request; until then all its items are misses at once. What a
 * request may take is bounded in all (struct hr__hosts, timeout_ms). Each server has a few
 * connections, as many as there are threads that use it at once.
 */
#ifndef HR_CLUSTER_PEERS_H
#define HR_CLUSTER_PEERS_H

#include "cluster/hosts.h"
#include "cluster/peer.h"

#include <headrace/form.h>

struct hr__peers;

/* The secret of the items; read by create. */
const struct hr__secret *hr__peers_secret(const struct hr__peers *peers);

/* Keeps a copy of what it needs of `hosts`. ops: &hr__peer_ops but for tests. Makes no
 * connection. On success *out is the caller's. Errors: -EINVAL, -EACCES, -ENOENT: the
 * password's file, or the key's; -ENOMEM. */
int hr__peers_create(struct hr__peers **out, const struct hr__hosts *hosts,
                     const struct hr__peer_ops *ops, struct hr_error *error);

/* No thread is in any other function by then. */
void hr__peers_destroy(struct hr__peers **peers);

/* All requests, those in progress too, end as misses from now on. Any thread. */
void hr__peers_cancel(struct hr__peers *peers);

/* An item that is asked for, or stored. */
struct hr__peer_item {
    uint64_t key[2];
    uint8_t *bytes; /* fetched: the caller's, hr__free frees; HR__PEER_SLACK zero bytes follow.
                       NULL: a miss. Stored: borrowed */
    size_t length;
    enum hr_form form;
    uint64_t source_bytes; /* that the sample has on storage. Fetched: what it is expected to have,
                              0: unknown; another length is a miss. Then what it had */
    uint64_t change, content; /* of the file that it was made of; see peer_item.h */
    int result;               /* stored: as in struct hr__peer_store */
};

/* Fetches from one host's server, in one bulk request (or a few, bounded in bytes), and
 * returns how many were found. Never fails: what is wrong is a miss. Any thread. Each bulk
 * blocks timeout_ms at most; the first in which nothing comes is the last, and none begins when
 * four times that have passed, however much a server drips: what is left is a miss. Bulks become
 * as small as a slow server or network manages in that time. */
size_t hr__peers_fetch(struct hr__peers *peers, int host, struct hr__peer_item *items,
                       size_t count);

/* Stores; returns how many were. The same. */
size_t hr__peers_store(struct hr__peers *peers, int host, struct hr__peer_item *items,
                       size_t count);

/* Non-zero where requests to a host are being made at all now. Any thread, no lock. */
int hr__peers_is_up(const struct hr__peers *peers, int host);

/* Short records beside the items (the meeting's): up to 8 KiB, of text. Found: 1 and the
 * record in *text, hr__free's; 0: none; negative: the server could not be asked. */
int hr__peers_read(struct hr__peers *peers, int host, const char *key, char **text);
int hr__peers_write(struct hr__peers *peers, int host, const char *key, const char *text,
                    uint32_t expires_s);

/* Many of them in one request: how many were found, or as above. A server that failed is asked
 * for records after a second at most, so that a meeting sees it come up. */
struct hr__peer_record {
    const char *key;
    char *text; /* out: hr__free's; NULL: none */
};

int hr__peers_read_all(struct hr__peers *peers, int host, struct hr__peer_record *records,
                       size_t count);

/* Asks even where requests are not being made. */
int hr__peers_about(struct hr__peers *peers, int host, struct hr__peer_about *about,
                    struct hr_error *error);

/* Of one host; since the beginning. */
struct hr__peers_counts {
    uint64_t fetched, missed, stored, refused, too_large;
    uint64_t fetched_bytes, stored_bytes;
    uint64_t requests, failures, damaged;
    uint64_t request_ns; /* of fetches that succeeded: with fetched_bytes the rate */
    int is_up;
    char problem[160]; /* the last failure, with its remedy; "": none */
};

void hr__peers_counts(const struct hr__peers *peers, int host, struct hr__peers_counts *counts);

#endif
