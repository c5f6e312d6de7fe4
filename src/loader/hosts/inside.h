/*
 * Shared by the files of hosts. The loader's lock guards all of it unless noted otherwise. The
 * constant parts of a cluster live as long as there are references.
 */
#ifndef HR_LOADER_HOSTS_INSIDE_H
#define HR_LOADER_HOSTS_INSIDE_H

#include "cluster/host_key.h"
#include "cluster/hosts.h"
#include "cluster/meeting.h"
#include "cluster/peers.h"
#include "cluster/placement.h"
#include "cluster/plan.h"
#include "loader/inside.h"
#include "loader/schedule.h"

/* The most host threads, and the most items and bytes in one request. */
#define HR__HOST_THREADS 4
#define HR__GROUP_ITEMS  64
#define HR__GROUP_BYTES  (8u << 20)

/* The most bytes that wait to be stored, and how many of them may be of samples read ahead. */
#define HR__STORE_BYTES (64u << 20)
#define HR__AHEAD_BYTES (32u << 20)

/* Flags: the known state of a sample's item. */
#define HR__ITEM_THERE  1 /* it was found on its owner's server, or stored there */
#define HR__ITEM_COMING 2 /* it is being read ahead, or waits to be stored */
#define HR__ITEM_NEVER  4 /* its owner will never take it: too large */

/* A sample's bytes that are to be stored at the owner. */
struct hr__pending_store {
    struct hr__pending_store *next;
    uint64_t index;
    uint64_t seen;  /* as `seen` in struct hr__job */
    uint8_t *bytes; /* owned */
    size_t length;
};

/* The work that waits for one host. */
struct hr__host_queue {
    struct hr__job *first, *last; /* jobs to fetch, in the order of their claims */
    struct hr__pending_store *stores, *stores_last;
    uint64_t store_bytes;   /* bytes of stores, including those that threads are sending */
    int threads;            /* host threads that talk to its server */
    int is_slow;            /* its last request took long, so only one thread uses it */
    int is_logged;          /* the user was warned that its memory is full */
    uint64_t full_until_ns; /* its memory was full: store nothing until then */
    uint64_t asked, found;  /* requests in this epoch for items not known to be there */
    uint64_t lost;          /* items that had been there and no longer are */
    int refused;            /* non-zero: it has refused items since it was empty */
};

/* The digest of a file's content, from the last time it was computed. */
struct hr__content {
    _Atomic uint64_t of; /* digest of the file's stamp ^ digest; both 0: none yet */
    _Atomic uint64_t digest;
};

/* How to ask an owner about an item of a group. */
enum hr__asking {
    HR__ASK_NEVER, /* do not: the item has no key */
    HR__ASK_NOT,   /* do not: its file is unreadable or changed; read from storage */
    HR__ASK,
};

/* Items of one owner that are requested together. */
struct hr__group {
    struct hr__cluster *cluster; /* a reference */
    int owner;
    size_t count;
    struct hr__job *jobs[HR__GROUP_ITEMS];
    struct hr__peer_item items[HR__GROUP_ITEMS];
    struct hr__stamp stamps[HR__GROUP_ITEMS]; /* stamps of the files, taken just before the
                                                 request */
    enum hr__asking asking[HR__GROUP_ITEMS];
};

/* A list of hosts, and all that is derived from it. */
struct hr__cluster {
    atomic_uint refs;
    /* Constant from create on. */
    struct hr__hosts hosts;
    struct hr__peers *peers;
    uint64_t samples;
    uint64_t charge_percent; /* memory charged for an item, in percent of its sample's bytes */

    /* Set by the dealer; constant once the first deal was made. */
    struct hr__placement *placement;
    struct hr__placement *disks; /* of what has no room in memory; NULL: there are no disks */
    struct hr__host_digest digest;
    uint64_t item_max_bytes; /* the smallest limit of the servers; 0: unknown */
    uint32_t *sizes;         /* per sample, in bytes, as used for costs */
    int *host_of_rank;       /* options.world_size */
    int is_met;              /* non-zero: the ranks have met and compared inputs */
    uint64_t seed;           /* the seed that they compared */
    int shuffle;

    struct hr__host_queue *queues; /* hosts.count */
    struct hr__peer_about *abouts; /* hosts.count; limit_bytes 0: the server was not asked */
    uint8_t *known;                /* per sample: HR__ITEM_... flags */
    struct hr__content *contents;  /* per sample; not guarded by a lock */
};

/* The plan of an epoch, with references to what it uses. */
struct hr__host_deal {
    struct hr__deal deal;        /* must be first: the core sees only this */
    struct hr__cluster *cluster; /* a reference */
    const uint16_t *owners;      /* per sample */
    struct hr__plan *plan;
    pthread_mutex_t lock; /* guards the plan's scratch memory; a leaf */
};

/* The deal of a plan, which must have one. */
static inline struct hr__host_deal *hr__deal_of(const struct hr__epoch *plan)
{
    return (struct hr__host_deal *)(void *)plan->deal;
}

/* Recent speed of a tier: bytes over the time during which any request to it was in progress. Also
 * fits a line to bytes and time of single requests: its slope is the cost of one more byte, which
 * counts where requests are small and mostly wait. */
struct hr__tier_meter {
    unsigned busy; /* requests in progress */
    uint64_t since_ns;
    double bytes, ns;
    double n, x, y, xx, xy; /* sums over requests: number, bytes (x), time in ns (y), products */
};

/* Rates set for an epoch. */
struct hr__rates_set {
    uint64_t epoch;
    struct hr_loader_rates *ranks; /* options.world_size rates; NULL: none */
};

struct hr__hosting {
    /* Constant. */
    unsigned number;          /* number of this loader among its rank's loaders in this process */
    struct hr__keeper keeper; /* the loader's, of both memory and disk */
    const struct hr__keeper *disk; /* keeps samples on this host's disk; NULL: there is none */

    struct hr__cluster *cluster; /* a reference */
    struct hr__cluster *next;    /* replaces cluster from next_epoch on; NULL: no change */
    uint64_t next_epoch;
    struct hr__rates_set rates[2]; /* the newest first */
    uint64_t generation;           /* how many clusters this loader had before */
    unsigned meetings;             /* number of meetings so far, the same on all ranks */
    int is_logged;                 /* the log has explained local assignment */

    atomic_int halt; /* non-zero ends the meeting in progress */
    int is_dealing;
    uint64_t begun_ns;      /* when the epoch's deal was made */
    int has_run;            /* an epoch of this cluster has ended here */
    pthread_cond_t dealing; /* the dealer waits: an epoch to deal, a batch to look into */
    pthread_cond_t work;    /* host threads wait: something to fetch or store */
    pthread_cond_t space;   /* workers wait: room for bytes to store */
    struct hr__thread dealer;
    int has_dealer;
    struct hr__thread threads[HR__HOST_THREADS];
    struct hr__group *groups; /* HR__HOST_THREADS, one for each thread */
    int thread_count;
    int idle, fetching; /* numbers of host threads */
    int slow;           /* host threads busy with a slow host */
    int allowed;        /* how many host threads may fetch at once */

    uint64_t turn;                      /* turn of the next job claimed */
    uint64_t queued;                    /* jobs waiting for host threads */
    struct hr__job *reads, *reads_last; /* to read from storage, sorted by turn */
    struct hr__job *held;               /* jobs whose samples are already coming */
    uint64_t store_bytes;               /* bytes waiting to be stored or being sent */
    uint64_t stores;                    /* number of these items */
    int store_next;                     /* the host to look at first */
    int trying;                         /* host threads looking for jobs to claim */
    uint64_t drain_ns;                  /* the epoch's end waits for stores until then; 0: no */
    uint64_t ahead_bytes;               /* bytes being read ahead */

    /* The batch that is being searched for samples to read ahead. */
    uint64_t *ahead_positions; /* batch_size; used by the dealer */
    int64_t *ahead;            /* batch_size: indices of samples */
    size_t ahead_count, ahead_at;
    uint64_t ahead_number; /* number of that batch */
    uint64_t ahead_next;   /* number of the next batch to search */
    atomic_int is_warned;  /* of objects without versions */
    uint64_t missed;       /* items of this epoch that servers did not have */

    struct hr__tier_meter meters[HR__TIERS];
    _Atomic uint64_t prepared_bytes, prepared_ns;
    double ready_s;
    uint64_t wait_before_ns; /* counters.wait_ns at the start of this epoch */
    double wait_s;           /* of the previous epoch; < 0: none */
};

/* cluster.c */
struct hr__cluster *hr__cluster_ref(struct hr__cluster *cluster);
void hr__cluster_unref(struct hr__cluster **cluster);

/* Makes the cluster that `text` describes. Errors: as hr__hosting_create. */
int hr__cluster_create(struct hr__cluster **out, const struct hr_loader *l, const char *text,
                       struct hr_error *error);

/* deal.c: the main function of the dealer's thread. */
void *hr__deal_main(void *arg);

/* meet.c */

/* Meets the other ranks and computes which host owns which item. Errors: those of
 * hr__meeting_run. */
int hr__cluster_meet(struct hr_loader *l, struct hr__cluster *cluster, const struct hr__epoch *plan,
                     struct hr_error *error);

/* Asks some of the servers how much memory they use. */
void hr__cluster_ask(struct hr_loader *l, struct hr__cluster *cluster);

/* believe.c */

/* Returns how to ask for sample `index`: looks at its file, and fills in item->key and the sample's
 * size on storage. Any thread, without the lock. Blocks. */
enum hr__asking hr__hosting_look(const struct hr_loader *l, const struct hr__cluster *cluster,
                                 uint64_t index, struct hr__stamp *stamp,
                                 struct hr__peer_item *item);

/* Notes the version of an object of a list that was just read. Warns of the first that has none. */
void hr__hosting_learn(struct hr_loader *l, const struct hr__job *job, uint64_t index);

/* Returns non-zero if an item that was found was made from the file as it is now. `stamp` is the
 * one of the lookup. Without the lock; may read part of the file. */
int hr__hosting_is_believed(const struct hr_loader *l, struct hr__cluster *cluster, uint64_t index,
                            const struct hr__stamp *stamp, const struct hr__peer_item *item);

/* Prepares bytes that were just read as an item to store. Returns 0; -ESTALE if the file is not as
 * it was when it was `seen` (0: by the scan), or was being written; -ENAMETOOLONG. Without the
 * lock. Blocks. */
int hr__hosting_seal(const struct hr_loader *l, const struct hr__cluster *cluster,
                     const struct hr__pending_store *store, struct hr__peer_item *item);

/* deal.c: the plan of an epoch */

/* Called when l->plan was replaced: it has to be dealt. */
void hr__hosting_begin_locked(struct hr_loader *l);

/* route.c: sends jobs where they belong */

/* Claims all samples it can and queues each where it belongs. `may_wait`: as for
 * hr__claim_unlocking. Returns non-zero if no slot was free for the next batch: the caller tries
 * again soon. */
int hr__hosting_deal_unlocking(struct hr_loader *l, int may_wait);

/* Takes the next job to read from storage, charged to the staging budget; NULL: none, or no
 * room. */
struct hr__job *hr__hosting_read_locked(struct hr_loader *l);

/* Returns non-zero if hr__hosting_read_locked would return a job. */
int hr__hosting_has_read_locked(const struct hr_loader *l);

/* Wakes host threads: staging has room again, or samples can be claimed. */
void hr__hosting_wake_locked(struct hr_loader *l);

/* No fetcher is left: workers read from now on. */
void hr__hosting_readers_gone_locked(struct hr_loader *l);

/* Takes back the window's jobs that no thread is working on. */
void hr__hosting_cancel_locked(struct hr_loader *l);

/* A read from storage has ended. */
void hr__hosting_read_ended_locked(struct hr_loader *l, const struct hr__job *job);

/* A batch is complete. */
void hr__hosting_ready_locked(struct hr_loader *l, const struct hr_batch *batch);

/* ahead.c */

/* Returns a job that reads a sample of a later batch, charged to the bytes to be stored; NULL:
 * there is none, or it would be in the way of other work. */
struct hr__job *hr__hosting_ahead_locked(struct hr_loader *l);

/* A fetcher's read came back, or was given up. Returns non-zero if it was a read ahead; the job is
 * then done. */
int hr__hosting_landed_locked(struct hr_loader *l, struct hr__job *job);

/* store.c */

/* Marks the owner's copy of a job's sample as no good, so that it is stored again. */
void hr__hosting_forget(struct hr_loader *l, const struct hr__job *job, uint64_t index);

/* Returns non-zero while something waits to be stored that the next epoch should find, for some
 * seconds at most. The consumer is woken when that changes. */
int hr__hosting_is_storing_locked(struct hr_loader *l);

/* Takes over the bytes of a sample that was read from storage and prepared, if its owner is to have
 * them. Blocks while too many bytes wait to be stored, a second at most. */
void hr__hosting_offer(struct hr__thread *self, struct hr__job *job, uint64_t index,
                       const struct hr__cost *cost);

/* rates.c */

/* Reports how long preparing a sample took. Any thread. */
void hr__hosting_prepared(struct hr_loader *l, uint64_t index, uint64_t ns);

/* threads.c: the main function of a host thread. */
void *hr__host_main(void *arg);

/* route.c */

/* Expected size of an item, as charged to the staging budget. */
uint64_t hr__item_size(const struct hr_loader *l, const struct hr__job *job);

/* Queues a job to be read from storage, sorted by turn; gives it to the workers if nobody else
 * reads. */
void hr__hosting_to_read_locked(struct hr_loader *l, struct hr__job *job);

/* Gives a job whose bytes were read from storage to the workers. */
void hr__hosting_hand_over_locked(struct hr_loader *l, struct hr__job *job);

/* Sends the jobs that are held for a sample where they belong, because it is not coming any
 * more. */
void hr__hosting_release_locked(struct hr_loader *l, uint64_t index);

/* Takes out the first job that is held for a sample; NULL: none. */
struct hr__job *hr__hosting_unhold_locked(struct hr_loader *l, uint64_t index);

/* Moves the jobs queued for a host that is down to the reads from storage. */
void hr__hosting_reroute_locked(struct hr_loader *l, int host);

/* ahead.c */

/* Notes whether an owner had an item that it was asked for. */
void hr__hosting_note_locked(struct hr_loader *l, struct hr__cluster *cluster, int owner,
                             uint64_t index, int is_found);

/* Whether the dealer is to search the next batch for samples to read ahead; and doing so. */
int hr__hosting_wants_look_locked(const struct hr_loader *l);
void hr__hosting_look_unlocking(struct hr_loader *l);

/* store.c */

/* Appends to the list of bytes to store at the sample's owner. */
void hr__hosting_push_store_locked(struct hr_loader *l, struct hr__pending_store *store);

/* Stores a group of items at one host. Returns 0 if there is nothing to store. */
int hr__hosting_store_unlocking(struct hr__thread *self);

/* Drops all bytes that wait to be stored. */
void hr__hosting_drop_stores_locked(struct hr_loader *l, struct hr__cluster *cluster);

/* rates.c */
void hr__tier_meter_note_locked(struct hr__tier_meter *meter, uint64_t bytes, uint64_t ns);
void hr__tier_meter_begin_locked(struct hr__tier_meter *meter, uint64_t now_ns);
void hr__tier_meter_end_locked(struct hr__tier_meter *meter, uint64_t now_ns, uint64_t bytes);

void hr__hosting_get_rates_locked(const struct hr_loader *l, struct hr_loader_rates *rates);

/* Gets the rates of an epoch by host, into rates[]. Returns 0 if none are set. */
int hr__hosting_rates_locked(const struct hr_loader *l, const struct hr__cluster *cluster,
                             uint64_t epoch, struct hr__plan_rates *rates);

#endif
