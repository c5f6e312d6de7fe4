/*
 * The list of hosts whose memcached servers keep the items, parsed from text. The grammar is in
 * include/headrace/cache.h. Parsing is pure; finding which of the hosts is this machine asks the
 * system for its addresses.
 */
#ifndef HR_CLUSTER_HOSTS_H
#define HR_CLUSTER_HOSTS_H

#include "cache/secret.h"

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

#define HR__HOST_NAME     256
#define HR__HOST_LIST_MAX 4096 /* the same limit as in cluster/placement.h */

struct hr__host {
    char name[HR__HOST_NAME];    /* as in the list, with its port; ownership depends on it */
    char address[HR__HOST_NAME]; /* where to connect: a name, an address, or a socket's path */
    uint16_t port;               /* 0: `address` is a path */
    uint64_t budget_bytes;       /* memory for items */
};

struct hr__hosts {
    struct hr__host *hosts; /* count hosts, in the order of the text, without repeats */
    int count;
    int self;         /* index of this machine; -1: not known */
    char socket[108]; /* path of this machine's own server; "": as in the list */
    char user[128];   /* user in the servers' authfiles; "": none */
    char password_file[HR__HOST_NAME];
    char key_file[HR__KEY_FILE]; /* "": none */
    int form;                    /* enum hr_form of kept items; default HR_FORM_ENCODED */
    int with_mtime;              /* an item's key includes the modification time */
    uint32_t timeout_ms;         /* limit for one bulk request, in all; default 1000 */
    uint32_t meet_s;             /* how long to wait for all ranks; default 300 */
};

/* Parses `text`; passes over a disk before "memcached:". Errors: -EINVAL says what is wrong, where,
 * and what to write; -ENOTSUP: TLS, and protocols other than the text protocol; -ENOMEM. On failure
 * *out is empty. */
int hr__hosts_parse(struct hr__hosts *out, const char *text, struct hr_error *error);
void hr__hosts_clear(struct hr__hosts *hosts);

/* Formats the list with its budgets, for comparing it between ranks and for messages:
 * "a:11211=64GiB, b:11211=64GiB". If that does not fit, the text is cut and ends with a digest of
 * the whole, so that texts are equal if and only if the lists are. room: 64 or more. */
void hr__hosts_text(const struct hr__hosts *hosts, char *out, size_t room);

/* Finds the host that `word` names: an index, or an entry of the list with or without its port.
 * Returns -1 if there is none, or more than one. Pure. */
int hr__hosts_index(const struct hr__hosts *hosts, const char *word);

/* Digest of a host's name, for `id` of struct hr__placement_host. Pure. */
uint64_t hr__host_id(const struct hr__host *host);

/*
 * Sets `self` if the text did not. Uses HEADRACE_HOST (an index or an entry of the list), else the
 * entry with an address of this machine. If there is none, returns 0 and leaves -1: this machine
 * only fetches. Blocks for name lookups. Errors: -EINVAL: HEADRACE_HOST is not an entry; -EEXIST:
 * several entries are this machine, so HEADRACE_HOST or `self` has to choose.
 */
int hr__hosts_find_self(struct hr__hosts *hosts, struct hr_error *error);

#endif
