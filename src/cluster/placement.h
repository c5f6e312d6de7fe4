/*
 * Who owns which item: rendezvous hashing over hosts, weighted by their budgets.
 *
 * Every host computes the same table from the same inputs and needs no directory: the
 * host with the best score for a sample owns its item; samples are admitted in the order
 * of their index, and one whose host is full goes to the next host in its own order of
 * scores that has room, or to nobody. Nothing here knows who is alive: an owner that is
 * down keeps its place and is a miss.
 *
 * Pure: integers only, so that all machines agree; no clock, I/O or threads.
 * Source of the scores: weighted rendezvous hashing (Thaler and Ravishankar, 1998; the
 * weights as in Schindelhauer and Schomaker, 2005).
 */
#ifndef HR_CLUSTER_PLACEMENT_H
#define HR_CLUSTER_PLACEMENT_H

#include <headrace/base.h>

#include <stdint.h>

#define HR__HOSTS_MAX 4096
#define HR__NOBODY    UINT16_MAX

struct hr__placement_host {
    uint64_t id;           /* digest of the name that the list has for it; unique */
    uint64_t budget_bytes; /* of items; 0: it owns none */
};

struct hr__placement_wish {
    const struct hr__placement_host *hosts; /* in the order of the list */
    int host_count;                         /* 1..HR__HOSTS_MAX */
    uint64_t samples;
    const uint32_t *bytes; /* samples: what an item is charged, overheads included; 0: it is not
                              to be kept (too large for a server, unknown) */
    uint64_t digest;       /* of the dataset and the seed */
};

struct hr__placement;

/* Takes time in proportion to samples x hosts; 2 bytes of memory a sample. On success *out is
 * the caller's. Errors: -EINVAL, -ENOMEM. */
int hr__placement_create(struct hr__placement **out, const struct hr__placement_wish *wish,
                         struct hr_error *error);
void hr__placement_destroy(struct hr__placement **placement);

/* Per sample: index of its owner in the list, or HR__NOBODY. */
const uint16_t *hr__placement_owners(const struct hr__placement *placement);

/* What one host owns. */
struct hr__placement_share {
    uint64_t items, bytes;
};

struct hr__placement_share hr__placement_share(const struct hr__placement *placement, int host);

#endif
