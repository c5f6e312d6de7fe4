/*
 * Weighted rendezvous hashing in integers.
 *
 * A host's score for a sample is -log2(u) / budget, where u in (0, 1) is hashed from both. The
 * lowest score wins, so host h wins with probability budget_h / sum of budgets. Among hosts with
 * equal budgets, the greatest u wins. So hosts are grouped by budget: only one logarithm per group
 * is needed (fixed point, from a table that is also made with integers), and scores are compared by
 * cross-multiplication in 128 bits, without division.
 *
 * The first host with room in a sample's order of scores is simply the best of the hosts with room.
 * So hosts without room for even the smallest item leave the lists. If the best host is full, the
 * search is repeated among hosts with room. An item larger than the room of every host has no
 * owner, without a search.
 */
#include "cluster/placement.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

enum {
    LOG_STEPS = 4096,  /* entries of the table; log2 of it is a constant in distance_of */
    LOG_FRACTION = 48, /* bits after the binary point */
    NONE = UINT16_MAX, /* no candidate */
};

/* A host that may still get items. Its hashed id, which scores need, is in `keys`. */
struct placement_candidate {
    uint64_t id, weight; /* weight: its budget */
    uint64_t room;       /* in bytes */
    uint16_t host;       /* index in the list */
};

/* Candidates [begin, end) have the same weight; sorted by id. */
struct placement_group {
    uint64_t weight;
    int begin, end;
};

struct hr__placement {
    uint16_t *owners;                   /* samples entries */
    struct hr__placement_share *shares; /* host_count entries */
    int host_count;
};

/* Needed only while the placement is made. */
struct making {
    struct placement_candidate *candidates; /* by weight, largest first, then by id */
    uint64_t *keys;                         /* hashed id of each candidate */
    struct placement_group *groups;
    uint64_t *logs; /* LOG_STEPS + 1: log2(1 + i / LOG_STEPS); NULL: only one group, not needed */
    int candidate_count, group_count;
    uint64_t least; /* bytes of the smallest item */
    uint64_t most;  /* upper bound of every candidate's room, in bytes */
};

/* The finalizer of MurmurHash3 (Appleby, public domain): each bit of the result depends on all bits
 * of x. */
static inline uint64_t mixed(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    x ^= x >> 33;
    return x;
}

/* log2 of x / 2^63, for x >= 2^63, bit by bit: squaring doubles the logarithm. */
static uint64_t log_of(uint64_t x)
{
    uint64_t log = 0;
    for (int bit = 0; bit < LOG_FRACTION; bit++) {
        unsigned __int128 square = (unsigned __int128)x * x >> 63;
        int two = square >> 64 != 0;
        log = log << 1 | (uint64_t)two;
        x = (uint64_t)(square >> two);
    }
    return log;
}

static int make_logs(struct making *m)
{
    m->logs = hr__alloc(HR__TAG_ORDER, LOG_STEPS + 1, sizeof *m->logs);
    if (!m->logs)
        return -ENOMEM;
    for (uint64_t i = 0; i < LOG_STEPS; i++)
        m->logs[i] = log_of((UINT64_C(1) << 63) + (i << 51));
    m->logs[LOG_STEPS] = UINT64_C(1) << LOG_FRACTION;
    return 0;
}

/* -log2(hash / 2^64), interpolated linearly between the table's entries; hash > 0. */
static inline uint64_t distance_of(const uint64_t *logs, uint64_t hash)
{
    int zeros = __builtin_clzll(hash);
    uint64_t mantissa = hash << zeros;
    uint64_t entry = (mantissa >> 51) & (LOG_STEPS - 1),
             rest = mantissa >> 25 & UINT64_C(0x3ffffff);
    /* A step is less than 2^37, so the product does not overflow. */
    uint64_t log = logs[entry] + ((logs[entry + 1] - logs[entry]) * rest >> 26);
    return ((uint64_t)(zeros + 1) << LOG_FRACTION) - log;
}

/* Returns the candidate of `group` with the greatest hash for the sample of `key`; NONE: there is
 * none. If `check_room`, only candidates with room for `bytes`. Inlined for both cases, because
 * this loop takes most of the time. */
__attribute__((always_inline)) static inline int best_of_group(const struct making *m,
                                                               const struct placement_group *group,
                                                               uint64_t key, uint64_t bytes,
                                                               uint64_t *hash, int check_room)
{
    uint64_t greatest = 0;
    int at = NONE;
    for (int i = group->begin; i < group->end; i++) {
        /*  1 because the logarithm of 0 is undefined; 63 bits remain. */
        uint64_t h = mixed(key ^ m->keys[i]) | 1;
        if (h > greatest && (!check_room || m->candidates[i].room >= bytes)) {
            greatest = h;
            at = i;
        }
    }
    *hash = greatest;
    return at;
}

__attribute__((always_inline)) static inline int best_of_all(const struct making *m, uint64_t key,
                                                             uint64_t bytes, int check_room)
{
    int best = NONE;
    uint64_t best_distance = 0, best_hash = 0, hash;
    if (m->group_count == 1)
        return best_of_group(m, m->groups, key, bytes, &hash, check_room);
    for (int g = 0; g < m->group_count; g++) {
        int at = best_of_group(m, &m->groups[g], key, bytes, &hash, check_room);
        /* Weights fall from group to group, so a later group needs a greater hash to win. */
        if (at == NONE || hash < best_hash)
            continue;
        uint64_t distance = distance_of(m->logs, hash);
        if (best != NONE) {
            unsigned __int128 ours = (unsigned __int128)distance * m->candidates[best].weight;
            unsigned __int128 theirs = (unsigned __int128)best_distance * m->candidates[at].weight;
            if (ours > theirs || (ours == theirs && m->candidates[at].id > m->candidates[best].id))
                continue;
        }
        best = at;
        best_distance = distance;
        best_hash = hash;
    }
    return best;
}

static int by_weight_and_id(const void *a, const void *b)
{
    const struct placement_candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b)
{
    const struct placement_candidate *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Removes candidates without room for any item, and groups the others. */
static void regroup(struct making *m)
{
    int kept = 0;
    m->group_count = 0;
    for (int i = 0; i < m->candidate_count; i++) {
        if (m->candidates[i].room < m->least)
            continue;
        m->candidates[kept] = m->candidates[i];
        m->keys[kept] = mixed(m->candidates[i].id);
        struct placement_group *last = m->group_count ? &m->groups[m->group_count - 1] : NULL;
        if (!last || last->weight != m->candidates[i].weight)
            m->groups[m->group_count++] = (struct placement_group){
                .weight = m->candidates[i].weight, .begin = kept, .end = kept + 1};
        else
            last->end = kept + 1;
        kept++;
    }
    m->candidate_count = kept;
}

/* Returns the candidate that gets the item; NONE: it fits nowhere. */
static int owner_of(struct making *m, uint64_t key, uint64_t bytes)
{
    if (bytes == 0 || bytes > m->most)
        return NONE;
    int at = best_of_all(m, key, bytes, 0);
    if (at != NONE && m->candidates[at].room < bytes)
        at = best_of_all(m, key, bytes, 1);
    if (at == NONE) {
        m->most = 0;
        for (int i = 0; i < m->candidate_count; i++)
            if (m->candidates[i].room > m->most)
                m->most = m->candidates[i].room;
    }
    return at;
}

static void admit(struct hr__placement *placement, struct making *m,
                  const struct hr__placement_wish *wish)
{
    uint64_t salt = mixed(wish->digest + UINT64_C(0x9e3779b97f4a7c15));
    for (uint64_t sample = 0; sample < wish->samples; sample++) {
        uint64_t bytes = wish->bytes[sample];
        int at = owner_of(m, mixed(sample ^ salt), bytes);
        placement->owners[sample] = at == NONE ? HR__NOBODY : m->candidates[at].host;
        if (at == NONE)
            continue;
        struct placement_candidate *owner = &m->candidates[at];
        owner->room -= bytes;
        placement->shares[owner->host].items++;
        placement->shares[owner->host].bytes += bytes;
        if (owner->room < m->least)
            regroup(m);
    }
}

static int start_making(struct making *m, const struct hr__placement_wish *wish)
{
    int hosts = wish->host_count;
    m->candidates = hr__alloc(HR__TAG_ORDER, (size_t)hosts, sizeof *m->candidates);
    m->keys = hr__alloc(HR__TAG_ORDER, (size_t)hosts, sizeof *m->keys);
    m->groups = hr__alloc(HR__TAG_ORDER, (size_t)hosts, sizeof *m->groups);
    if (!m->candidates || !m->keys || !m->groups)
        return -ENOMEM;
    for (int i = 0; i < hosts; i++) {
        const struct hr__placement_host *host = &wish->hosts[i];
        m->candidates[i] = (struct placement_candidate){.id = host->id,
                                                        .weight = host->budget_bytes,
                                                        .room = host->budget_bytes,
                                                        .host = (uint16_t)i};
        if (host->budget_bytes > m->most)
            m->most = host->budget_bytes;
    }
    m->candidate_count = hosts;
    qsort(m->candidates, (size_t)hosts, sizeof *m->candidates, by_id);
    for (int i = 1; i < hosts; i++)
        if (m->candidates[i].id == m->candidates[i - 1].id)
            return -EEXIST;
    /* Samples of 0 bytes are not kept. So `least` > 0, and hosts without a budget are removed
     * too. */
    m->least = UINT64_MAX;
    for (uint64_t i = 0; i < wish->samples; i++)
        if (wish->bytes[i] && wish->bytes[i] < m->least)
            m->least = wish->bytes[i];
    qsort(m->candidates, (size_t)hosts, sizeof *m->candidates, by_weight_and_id);
    regroup(m);
    return m->group_count > 1 ? make_logs(m) : 0;
}

static void end_making(struct making *m)
{
    hr__free(m->candidates);
    hr__free(m->keys);
    hr__free(m->groups);
    hr__free(m->logs);
}

int hr__placement_create(struct hr__placement **out, const struct hr__placement_wish *wish,
                         struct hr_error *error)
{
    struct hr__placement *placement = NULL;
    struct making making = {0};
    int rc = -ENOMEM;
    if (wish->host_count < 1 || wish->host_count > HR__HOSTS_MAX)
        return hr__fail(error, -EINVAL,
                        "a placement on %d hosts: 1 to %d are possible; shorten the list of hosts",
                        wish->host_count, HR__HOSTS_MAX);
    placement = hr__alloc(HR__TAG_ORDER, 1, sizeof *placement);
    if (!placement)
        goto fail;
    placement->host_count = wish->host_count;
    placement->shares =
        hr__alloc(HR__TAG_ORDER, (size_t)wish->host_count, sizeof *placement->shares);
    placement->owners =
        hr__alloc(HR__TAG_ORDER, wish->samples ? wish->samples : 1, sizeof *placement->owners);
    if (!placement->shares || !placement->owners)
        goto fail;
    rc = start_making(&making, wish);
    if (rc)
        goto fail;
    admit(placement, &making, wish);
    end_making(&making);
    *out = placement;
    return 0;

fail:
    end_making(&making);
    hr__placement_destroy(&placement);
    if (rc == -EEXIST)
        return hr__fail(error, -EINVAL,
                        "two of the %d hosts of the placement have one id; name each host once",
                        wish->host_count);
    return hr__fail(error, rc,
                    "no memory for the owners of %" PRIu64 " samples: 2 bytes for each are "
                    "needed; free memory on this host or use fewer samples",
                    wish->samples);
}

void hr__placement_destroy(struct hr__placement **placement)
{
    if (!*placement)
        return;
    hr__free((*placement)->owners);
    hr__free((*placement)->shares);
    hr__free(*placement);
    *placement = NULL;
}

const uint16_t *hr__placement_owners(const struct hr__placement *placement)
{
    return placement->owners;
}

struct hr__placement_share hr__placement_share(const struct hr__placement *placement, int host)
{
    if (host < 0 || host >= placement->host_count)
        return (struct hr__placement_share){0};
    return placement->shares[host];
}
