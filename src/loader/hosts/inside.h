/*
 * What the files of hosts share. All of it is guarded by the loader's lock but for what says
 * otherwise; a cluster's constant parts live as long as somebody has a reference.
 */
#ifndef HR_LOADER_HOSTS_INSIDE_H
#define HR_LOADER_HOSTS_INSIDE_H

#include "cluster/host_key.h"
#include "cluster/hosts.h"
#include "cluster/meeting.h"
#include "cluster/peers.h"
#include "cluster/placement.h"
#include "cluster/plan.h"
#include "loader/loader.h"
#include "loader/schedule.h"

/* Host threads at most, and what one request is for at most. */
#define HR__HOST_THREADS 4
#define HR__GROUP_ITEMS  64
#define HR__GROUP_BYTES  (8u << 20)

/* Bytes that wait to be stored, at most; of them those of samples that were read ahead. */
#define HR__STORE_BYTES (64u << 20)
#define HR__AHEAD_BYTES (32u << 20)

/* What is known of a sample's item. */
#define HR__ITEM_THERE  1 /* was found on its owner's server, or stored there */
#define HR__ITEM_COMING 2 /* is being read ahead, or waits to be stored */
#define HR__ITEM_NEVER  4 /* its owner never takes it: too large */

/* Bytes that are to be stored at their owner. */
struct hr__pending_store {
    struct hr__pending_store *next;
    uint64_t index;
    uint64_t seen;  /* struct hr__job, seen */
    uint8_t *bytes; /* owned */
    size_t length;
};

/* What waits for one host. */
struct hr__host_queue {
    struct hr__job *first, *last; /* to be fetched, in the order of their claims */
    struct hr__pending_store *stores, *stores_last;
    uint64_t store_bytes;   /* of stores, those in threads' hands too */
    int threads;            /* that talk to its server */
    int is_slow;            /* its last request took long: one thread is enough for it */
    int is_told;            /* that its memory is full */
    uint64_t full_until_ns; /* its memory was full: nothing is stored until then */
    uint64_t asked, found;  /* in this epoch, of what was not known to be there */
    uint64_t lost;          /* items that had been there and are not any more */
    int refused;            /* it has not taken all, since it was empty */
};

/* The digest of a file's content, as it was last looked at. */
struct hr__content {
    _Atomic uint64_t of; /* digest of the file's stamp ^ digest; both 0: not yet */
    _Atomic uint64_t digest;
};

/* What is to be asked of an owner about an item of a group. */
enum hr__asking {
    HR__ASK_NEVER, /* it has no key */
    HR__ASK_NOT,   /* its file cannot be looked at, or has changed: it is read from storage */
    HR__ASK,
};

/* Items of one owner that are asked for at once. */
struct hr__group {
    struct hr__cluster *cluster; /* a reference */
    int owner;
    size_t count;
    struct hr__job *jobs[HR__GROUP_ITEMS];
    struct hr__peer_item items[HR__GROUP_ITEMS];
    struct hr__stamp stamps[HR__GROUP_ITEMS]; /* of files, just before they are asked for */
    enum hr__asking asking[HR__GROUP_ITEMS];
};

/* A list of hosts, and what follows from it. */
struct hr__cluster {
    atomic_uint refs;
    /* Constant from create on. */
    struct hr__hosts hosts;
    struct hr__peers *peers;
    uint64_t samples;
    uint64_t charge_percent; /* that an item is charged, of its sample's bytes */

    /* The dealer's; constant once the first deal was made. */
    struct hr__placement *placement;
    struct hr__host_digest digest;
    uint64_t item_max_bytes; /* of the servers that answered; 0: not known */
    uint32_t *sizes;         /* of samples, as they are told apart by cost */
    int *host_of_rank;       /* options.world_size */
    int is_met;              /* the ranks have compared */
    uint64_t seed;           /* that they compared */
    int shuffle;

    struct hr__host_queue *queues; /* hosts.count */
    struct hr__peer_about *abouts; /* hosts.count; limit_bytes 0: was not asked */
    uint8_t *known;                /* samples: HR__ITEM_... */
    struct hr__content *contents;  /* samples; no lock */
};

/* The plan of an epoch, with what it borrows from. */
struct hr__host_deal {
    struct hr__deal deal;        /* the first: what the core knows of it */
    struct hr__cluster *cluster; /* a reference */
    const uint16_t *owners;      /* per sample */
    struct hr__plan *plan;
    pthread_mutex_t lock; /* guards the plan's scratch memory; a leaf */
};

/* The deal of a plan that has one. */
static inline struct hr__host_deal *hr__deal_of(const struct hr__epoch *plan)
{
    return (struct hr__host_deal *)(void *)plan->deal;
}

/* How fast a tier is, of late: bytes over the time in which anything was asked of it; and what
 * a byte more adds to a request, which tells where little is asked for and requests are
 * mostly waiting. */
struct hr__meter {
    unsigned busy; /* requests in progress */
    uint64_t since_ns;
    double bytes, ns;
    double n, x, y, xx, xy; /* sums over requests: bytes, their time in ns, and products */
};

/* Rates that were set. */
struct hr__rates_set {
    uint64_t epoch;
    struct hr_loader_rates *ranks; /* options.world_size; NULL: none */
};

struct hr__hosting {
    /* Constant. */
    unsigned number; /* of this loader among those of its rank in this process */

    struct hr__cluster *cluster; /* a reference */
    struct hr__cluster *next;    /* from next_epoch on; NULL: no change */
    uint64_t next_epoch;
    struct hr__rates_set rates[2]; /* the newest first */
    uint64_t generation;           /* of the cluster: how many there were before */
    unsigned meetings;             /* that all ranks had */
    int is_told;                   /* what local assignment means */

    atomic_int halt; /* ends the meeting in progress */
    int is_dealing;
    uint64_t begun_ns;      /* when the epoch's deal was made */
    int has_run;            /* an epoch of this cluster came to its end here */
    pthread_cond_t dealing; /* the dealer: an epoch to deal, a batch to look into */
    pthread_cond_t work;    /* host threads: something to fetch or to store */
    pthread_cond_t space;   /* workers: to store */
    struct hr__thread dealer;
    int has_dealer;
    struct hr__thread threads[HR__HOST_THREADS];
    struct hr__group *groups; /* HR__HOST_THREADS, a thread's own */
    int thread_count;
    int idle, fetching; /* host threads */
    int slow;           /* those that are at a slow host */
    int allowed;        /* of them, that may fetch at once */

    uint64_t turn;                      /* of the next job */
    uint64_t queued;                    /* jobs that wait for host threads */
    struct hr__job *reads, *reads_last; /* to be read from storage, in order of their turns */
    struct hr__job *held;               /* whose samples are coming */
    uint64_t store_bytes;               /* that wait to be stored, and those in threads' hands */
    uint64_t stores;                    /* the same, items */
    int store_next;                     /* host that is looked at first */
    int trying;                         /* host threads that look for jobs to claim */
    uint64_t drain_ns;                  /* the epoch's end waits for them until then; 0: no */
    uint64_t ahead_bytes;               /* being read ahead */

    /* The batch that is being looked into for samples to read ahead. */
    uint64_t *ahead_positions; /* batch_size; the dealer's */
    int64_t *ahead;            /* batch_size: samples */
    size_t ahead_count, ahead_at;
    uint64_t ahead_number; /* of that batch */
    uint64_t ahead_next;   /* the next one to look into */
    uint64_t missed;       /* items in this epoch that servers had not */

    struct hr__meter meters[HR__TIERS];
    _Atomic uint64_t prepared_bytes, prepared_ns;
    double ready_s;
    uint64_t wait_before_ns; /* counters.wait_ns when this epoch began */
    double wait_s;           /* in the epoch before; < 0: none */
};

/* hosts.c */
struct hr__cluster *hr__cluster_ref(struct hr__cluster *cluster);
void hr__cluster_unref(struct hr__cluster **cluster);

/* The cluster of a text. Errors: as hr__hosting_create. */
int hr__cluster_create(struct hr__cluster **out, const struct hr_loader *l, const char *text,
                       struct hr_error *error);

/* deal.c: what the dealer's thread runs. */
void *hr__deal_main(void *arg);

/* meet.c */

/* Meets the other ranks and determines who owns what. Errors: those of hr__meeting_run. */
int hr__cluster_meet(struct hr_loader *l, struct hr__cluster *cluster, const struct hr__epoch *plan,
                     struct hr_error *error);

/* Asks some of the servers how much memory they use. */
void hr__cluster_ask(struct hr_loader *l, struct hr__cluster *cluster);

/* believe.c */

/* What is to be asked for sample `index`: looks at its file, and fills in item->key and what the
 * sample has on storage. Any thread, without the lock. Blocks. */
enum hr__asking hr__hosting_look(const struct hr_loader *l, const struct hr__cluster *cluster,
                                 uint64_t index, struct hr__stamp *stamp,
                                 struct hr__peer_item *item);

/* Non-zero where an item that was found was made of the file as it is. `stamp` is what it was
 * looked up with. Without the lock; may read some of the file. */
int hr__hosting_is_believed(const struct hr_loader *l, struct hr__cluster *cluster, uint64_t index,
                            const struct hr__stamp *stamp, const struct hr__peer_item *item);

/* Prepares an item to be stored of bytes that were just read: 0; -ESTALE where the file is not
 * as it was when it was `seen` (0: by the scan), or was being written; -ENAMETOOLONG. Without
 * the lock. Blocks. */
int hr__hosting_seal(const struct hr_loader *l, const struct hr__cluster *cluster,
                     const struct hr__pending_store *store, struct hr__peer_item *item);

/* deal.c: the plan of an epoch */

/* l->plan is another one: it is to be dealt. */
void hr__hosting_begin_locked(struct hr_loader *l);

/* route.c: jobs on their way */

/* Claims what can be claimed and puts it where it belongs. `may_wait`: for a slot; as for
 * hr__claim_unlocking. Non-zero: there was no slot for the next batch, and this thread is to look
 * again soon. */
int hr__hosting_deal_unlocking(struct hr_loader *l, int may_wait);

/* The next job that is to be read from storage, charged to the staging budget, or NULL: none,
 * or no room. */
struct hr__job *hr__hosting_read_locked(struct hr_loader *l);

/* Non-zero where the former would give one. */
int hr__hosting_has_read_locked(const struct hr_loader *l);

/* Staging has room again, or jobs can be claimed: wakes host threads. */
void hr__hosting_wake_locked(struct hr_loader *l);

/* No fetcher is left: workers read what is to be read. */
void hr__hosting_readers_gone_locked(struct hr_loader *l);

/* Takes back the jobs of the window that are in no thread's hands. */
void hr__hosting_cancel_locked(struct hr_loader *l);

/* A fetcher's read came back, or was given up. Non-zero: it was read ahead, and the job is done. */
int hr__hosting_landed_locked(struct hr_loader *l, struct hr__job *job);

/* A read from storage has ended. */
void hr__hosting_read_ended_locked(struct hr_loader *l, const struct hr__job *job);

/* A batch is complete. */
void hr__hosting_ready_locked(struct hr_loader *l, const struct hr_batch *batch);

/* ahead.c */

/* A job for a sample of a later batch, charged as what is to be stored; NULL: none, or it would
 * be in the way. */
struct hr__job *hr__hosting_ahead_locked(struct hr_loader *l);

/* It came back, read or not. Frees the job. */
void hr__hosting_ahead_done_locked(struct hr_loader *l, struct hr__job *job);

/* store.c */

/* What a sample's owner has of it is no good: it is stored anew. */
void hr__hosting_forget(struct hr_loader *l, const struct hr__job *job, uint64_t index);

/* Non-zero while there is something to store that the next epoch should find, for some seconds
 * at most: the consumer is woken when that changes. */
int hr__hosting_is_storing_locked(struct hr_loader *l);

/* Takes the bytes of a sample that was read from storage and prepared, if its owner is to have
 * them. Blocks while too much waits to be stored, a second at most. */
void hr__hosting_offer(struct hr_loader *l, struct hr__job *job, uint64_t index,
                       const struct hr__cost *cost);

/* rates.c */

/* A sample was prepared, in so much time. Any thread. */
void hr__hosting_prepared(struct hr_loader *l, uint64_t index, uint64_t ns);

/* threads.c: what a host thread runs. */
void *hr__host_main(void *arg);

/* route.c */

/* What an item is expected to have, as it is charged to the staging budget. */
uint64_t hr__item_size(const struct hr_loader *l, const struct hr__job *job);

/* Puts a job among the reads in order, or makes it a worker's where nobody else reads. */
void hr__hosting_to_read_locked(struct hr_loader *l, struct hr__job *job);

/* A job that has its sample's bytes, read from storage, goes to the workers. */
void hr__hosting_hand_over_locked(struct hr_loader *l, struct hr__job *job);

/* Those that are held for a sample, which is not coming any more, go where they belong. */
void hr__hosting_release_locked(struct hr_loader *l, uint64_t index);

/* The first of those that are held for a sample, if any, taken out. */
struct hr__job *hr__hosting_unhold_locked(struct hr_loader *l, uint64_t index);

/* Moves what is to be fetched from a host that is down to the reads. */
void hr__hosting_reroute_locked(struct hr_loader *l, int host);

/* ahead.c */

/* An owner was asked for an item. */
void hr__hosting_note_locked(struct hr_loader *l, struct hr__cluster *cluster, int owner,
                             uint64_t index, int is_found);

/* The dealer looks into the next batch. */
int hr__hosting_wants_look_locked(const struct hr_loader *l);
void hr__hosting_look_unlocking(struct hr_loader *l);

/* store.c */

/* Appends to what waits for the sample's owner. */
void hr__hosting_push_store_locked(struct hr_loader *l, struct hr__pending_store *store);

/* Stores a group at some host: 0 where there is nothing to store. */
int hr__hosting_store_unlocking(struct hr__thread *self);

/* Drops what waits to be stored. */
void hr__hosting_drop_stores_locked(struct hr_loader *l, struct hr__cluster *cluster);

/* rates.c */
void hr__meter_note_locked(struct hr__meter *meter, uint64_t bytes, uint64_t ns);
void hr__meter_begin_locked(struct hr__meter *meter, uint64_t now_ns);
void hr__meter_end_locked(struct hr__meter *meter, uint64_t now_ns, uint64_t bytes);

void hr__hosting_get_rates_locked(const struct hr_loader *l, struct hr_loader_rates *rates);

/* Rates of an epoch by host, into rates[]; 0 where none are set. */
int hr__hosting_rates_locked(const struct hr_loader *l, const struct hr__cluster *cluster,
                             uint64_t epoch, struct hr__plan_rates *rates);

#endif
