/*
 * The hosts whose memcached servers keep the items, as a text; the grammar is in
 * include/headrace/cache.h. Reading it is pure; finding out which of them this one is asks
 * the system for its addresses.
 */
#ifndef HR_CLUSTER_HOSTS_H
#define HR_CLUSTER_HOSTS_H

#include "cache/secret.h"

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

#define HR__HOST_NAME     256
#define HR__HOST_LIST_MAX 4096 /* as many as a placement has (cluster/placement.h) */

struct hr__host {
    char name[HR__HOST_NAME];    /* as in the list, with its port: what ownership goes by */
    char address[HR__HOST_NAME]; /* to connect to: a name, an address, or a socket's path */
    uint16_t port;               /* 0: `address` is a path */
    uint64_t budget_bytes;       /* of items */
};

struct hr__hosts {
    struct hr__host *hosts; /* count, in the order of the text, each once */
    int count;
    int self;         /* index of this machine; -1: said by nobody yet */
    char socket[108]; /* how this machine's own server is reached; "": as in the list */
    char user[128];   /* of the servers' authfiles; "": none */
    char password_file[HR__HOST_NAME];
    char key_file[HR__KEY_FILE]; /* "": none */
    int form;                    /* enum hr_form of what is kept; HR_FORM_ENCODED unless said */
    int with_mtime;              /* modification times are part of an item's key */
    uint32_t timeout_ms;         /* of one bulk request, in all; default 1000 */
    uint32_t meet_s;             /* until all ranks are there; default 300 */
};

/* Errors: -EINVAL says what is wrong with `text`, where, and what to write; -ENOTSUP: tls,
 * and protocols but the text protocol; -ENOMEM. On failure *out is empty. */
int hr__hosts_parse(struct hr__hosts *out, const char *text, struct hr_error *error);
void hr__hosts_clear(struct hr__hosts *hosts);

/* The list with its budgets, as it is compared between ranks and shown in messages:
 * "a:11211=64GiB, b:11211=64GiB"; where that has no room it is cut, and a digest of all of it
 * stands at the end, so that texts are equal where the lists are. room: 64 or more. */
void hr__hosts_text(const struct hr__hosts *hosts, char *out, size_t room);

/* The host that `word` names: an index, or an entry of the list with or without its port;
 * -1: none does, or several. Pure. */
int hr__hosts_index(const struct hr__hosts *hosts, const char *word);

/* Digest of a host's name: struct hr__placement_host, id. Pure. */
uint64_t hr__host_id(const struct hr__host *host);

/*
 * Fills `self` where the text did not say it: HEADRACE_HOST (an index or an entry of the
 * list), else the entry whose address this machine has. Stays -1, with 0, where it has none:
 * a machine that only fetches. Blocks for name lookups. Errors: -EINVAL: HEADRACE_HOST is no
 * entry; -EEXIST: several are this machine, which has to be told by HEADRACE_HOST or `self`.
 */
int hr__hosts_find_self(struct hr__hosts *hosts, struct hr_error *error);

#endif
