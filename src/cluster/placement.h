/*
 * Decides which host owns which item: rendezvous hashing over hosts, weighted by their budgets.
 *
 * Every host computes the same table from the same inputs, so no directory is needed. The host with
 * the best score for a sample owns its item. Samples are admitted in the order of their index; if
 * the best host is full, the item goes to the next host with room in the sample's order of scores,
 * or to nobody. The placement does not know which hosts are up: an owner that is down keeps its
 * items, and they are misses.
 *
 * Pure: integers only, so that all machines agree; no clock, I/O or threads. Source of the scores:
 * weighted rendezvous hashing (Thaler and Ravishankar, 1998; the weights as in Schindelhauer and
 * Schomaker, 2005).
 */
#ifndef HR_CLUSTER_PLACEMENT_H
#define HR_CLUSTER_PLACEMENT_H

#include <headrace/base.h>

#include <stdint.h>

#define HR__HOSTS_MAX 4096
#define HR__NOBODY    UINT16_MAX

struct hr__placement_host {
    uint64_t id;           /* digest of its name in the list; unique */
    uint64_t budget_bytes; /* memory for items; 0: it owns none */
};

struct hr__placement_wish {
    const struct hr__placement_host *hosts; /* in the order of the list */
    int host_count;                         /* 1..HR__HOSTS_MAX */
    uint64_t samples;
    const uint32_t *bytes; /* per sample: bytes charged for its item, overheads included; 0: not to
                              be kept (too large for a server, or unknown) */
    uint64_t digest;       /* of the dataset and the seed */
};

struct hr__placement;

/* Takes time in proportion to samples x hosts, and 2 bytes of memory per sample. On success *out is
 * the caller's. Errors: -EINVAL, -ENOMEM. */
int hr__placement_create(struct hr__placement **out, const struct hr__placement_wish *wish,
                         struct hr_error *error);
void hr__placement_destroy(struct hr__placement **placement);

/* Returns per sample the index of its owner in the list, or HR__NOBODY. */
const uint16_t *hr__placement_owners(const struct hr__placement *placement);

/* How much one host owns. */
struct hr__placement_share {
    uint64_t items, bytes;
};

struct hr__placement_share hr__placement_share(const struct hr__placement *placement, int host);

#endif
