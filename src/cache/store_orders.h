/*
 * When the users of a segment use its items next.
 *
 * A user tells its uses in shared memory: for each sample the number of its next use, and how many
 * uses it has had. The other users read these numbers without a lock; a wrong one can only cost
 * reads. Nothing follows from a seed, so any order can be told: shuffles, ranks, subsets, and
 * samplers as far as they are known.
 *
 * Nobody tells anything as long as all users follow one order that uses each sample once an epoch,
 * or everything fits. Users with the same stream (seed, samples, ranks, or what a sampler drew) are
 * one order while they are less than an epoch apart.
 *
 * A user counts while it is alive and moves. Its speed, the mean time between two uses, converts
 * numbers of uses to time, in which the orders are compared.
 */
#ifndef HR_CACHE_STORE_ORDERS_H
#define HR_CACHE_STORE_ORDERS_H

#include "base/random.h"
#include "cache/future.h"
#include "cache/segment.h"

struct hr__store;

/* A user that tells its uses, as this process sees it. */
struct hr__teller {
    unsigned slot;
    int is_known;         /* its speed is */
    uint64_t used;        /* when it was last looked at */
    uint64_t moved_ns;    /* when that was last found changed */
    double uses, time_ns; /* of late; older ones count less */
};

/* A user that counts, at the moment of a decision. */
struct hr__counted {
    const _Atomic uint32_t *next; /* by sample: number of its next use; 0: none is known */
    double use_ns;                /* between two uses */
    unsigned slot;
    uint32_t used, known;
    uint32_t samples;
};

/* An item that may be evicted. Zeroed: none. */
struct hr__victim {
    uint64_t index, word; /* its entry */
    double when;          /* in how many ns it is used */
};

#define HR__VICTIMS 8

/* After so long, memory that was refused is asked for again. */
#define HR__REFUSED_NS UINT64_C(5000000000)
#define HR__MUTE       UINT64_MAX

struct hr__store_orders {
    pthread_mutex_t telling; /* guards the future of this user; before the directory's */
    struct hr__future future;
    struct hr__future_order *own;
    uint32_t base;            /* number of the first use of this epoch */
    _Atomic uint64_t mute_ns; /* when there was no memory for it; 0: there was; HR__MUTE: there is
                                 no place for this user, ever */

    pthread_mutex_t looking; /* guards what is below; before the lock of transactions */
    uint64_t looked_ns;
    struct hr__teller tellers[HR__SEGMENT_TELLERS];
    struct hr__counted counted[HR__SEGMENT_TELLERS];
    unsigned count;        /* of `counted` */
    int evicting;          /* they have more than one order, or one that repeats samples */
    uint64_t no_blocks_ns; /* when there was no memory for their numbers, without which nothing is
                              evicted; 0: there was */
    int is_warned;         /* of that */
    struct hr__random random;
    uint64_t from;                          /* the entry at which the next look begins */
    struct hr__victim victims[HR__VICTIMS]; /* the latest of those that were looked at */
};

void hr__store_orders_init(struct hr__store *store);
void hr__store_orders_free(struct hr__store *store);

/* Looks who is there, counts and how fast. Any thread; called some times a second. */
void hr__store_look_around(struct hr__store *store, uint64_t now_ns);

/* Returns over how many orders' next uses its users evict; 0: they do not. */
unsigned hr__segment_orders(const struct hr__segment *segment);

/* Under orders.looking: `begin` takes what the users have used; `next` returns in how many
 * nanoseconds one of them uses a sample, from 0 on. */
void hr__store_next_begin(struct hr__store *store);
double hr__store_next_use(const struct hr__store *store, uint64_t sample);

/* store_evict.c: finds an item that is used late. Returns 0 if there is none. Under
 * orders.looking, after hr__store_next_begin. */
int hr__store_find_victim(struct hr__store *store, struct hr__victim *out);

/* Returns non-zero if this user is to tell its uses; if it does so. */
int hr__store_asks(const struct hr__store *store);
int hr__store_tells(const struct hr__store *store);

/* See hr__cache_begin_uses. Samples have numbers of the segment's dataset. */
void hr__store_begin_uses(struct hr__store *store);
void hr__store_add_use(struct hr__store *store, uint64_t sample);
void hr__store_end_uses(struct hr__store *store);
void hr__store_use(struct hr__store *store, uint64_t sample);

#endif
