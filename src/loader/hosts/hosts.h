/*
 * The loader's part in a cache that lies on several hosts: meets the other ranks, has the
 * plan of each epoch, fetches items from the servers that own them, and stores what it read.
 *
 * A batch that is opened gets its samples from the plan (hosts_deal.c). Whoever opens it
 * routes its samples (hosts_route.c): those whose item has an owner wait in a queue by owner for
 * the host threads (hosts_threads.c), which ask each server for a group at once and deliver what
 * they find to the workers like a read; the others, and what is missing, wait for the fetchers
 * to be read from storage. Once a sample was prepared without an error it is stored at its
 * owner (hosts_store.c). While storage has nothing to do, samples of later batches are read
 * into their owners' servers, in the order of their use (hosts_ahead.c). So each sample is read
 * by the rank that uses it first, and by nobody else.
 *
 * Everything is guarded by the loader's lock; servers are talked to under no lock.
 */
#ifndef HR_LOADER_HOSTS_HOSTS_H
#define HR_LOADER_HOSTS_HOSTS_H

#include "cluster/hosts.h"
#include "cluster/meeting.h"
#include "cluster/peers.h"
#include "cluster/placement.h"
#include "cluster/plan.h"

#include <headrace/loader.h>

struct hr_loader;
struct hr__deal;
struct hr__epoch;
struct hr__hosting; /* all of it; hr_loader has a pointer, NULL without hosts */
struct hr__job;
struct hr__thread;

/* Where a sample's bytes came from. */
enum hr__tier {
    HR__TIER_STORAGE = 0,
    HR__TIER_OWN = 1,  /* this host's server */
    HR__TIER_PEER = 2, /* another host's */
    HR__TIERS = 3,
};

/* hosts.c: making and ending */

/* Non-zero where the options' cache is one of hosts. */
int hr__hosting_is_wanted(const struct hr_loader_options *options);

/* Of taken options: whether what is asked for goes with hosts. Errors: -ENOTSUP, -EINVAL. */
int hr__hosting_check(const struct hr_loader_options *options, struct hr_error *error);

/* Makes l->hosting; no I/O but name lookups. Errors: those of hr__hosts_parse,
 * hr__hosts_find_self and hr__peers_create. */
int hr__hosting_create(struct hr_loader *l, struct hr_error *error);

/* After the threads have ended. */
void hr__hosting_destroy(struct hr_loader *l);

/* In a child that was forked from the threads' process. */
void hr__hosting_abandon(struct hr_loader *l);

/* Starts the host threads and the dealer. Errors: -EAGAIN; then hr__hosting_join ends those that
 * were started. */
int hr__hosting_start(struct hr_loader *l, struct hr_error *error);

/* The loader stops: ends all requests and wakes all threads. */
void hr__hosting_stop_locked(struct hr_loader *l);

/* Waits for the threads. */
void hr__hosting_join(struct hr_loader *l);

/* hosts_deal.c: the plan of an epoch */

/* l->plan is another one: it is to be dealt. */
void hr__hosting_begin_locked(struct hr_loader *l);

/* The samples of this rank's batch `number`, as hr__cut_batch. Any thread. */
size_t hr__deal_batch(struct hr__deal *deal, uint64_t number, uint64_t *positions, size_t *padding);

void hr__deal_destroy(struct hr__deal **deal);

/* hosts_route.c: jobs on their way */

/* Claims what can be claimed and puts it where it belongs. `may_wait`: for a slot; as for
 * hr__claim_locked. Non-zero: there was no slot for the next batch, and this thread is to look
 * again soon. */
int hr__hosting_route_locked(struct hr_loader *l, int may_wait);

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

/* Changes what a job is charged of the staging budget; with hosts or without. */
void hr__charge_locked(struct hr_loader *l, struct hr__job *job, uint64_t bytes);

/* A fetcher's read came back, or was given up. */
void hr__hosting_landed_locked(struct hr_loader *l, const struct hr__job *job);

/* A batch is complete. */
void hr__hosting_ready_locked(struct hr_loader *l, const struct hr_batch *batch);

/* hosts_ahead.c */

/* A job for a sample of a later batch, charged as what is to be stored; NULL: none, or it would
 * be in the way. */
struct hr__job *hr__hosting_ahead_locked(struct hr_loader *l);

/* It came back, read or not. Frees the job. */
void hr__hosting_ahead_done_locked(struct hr_loader *l, struct hr__job *job);

/* hosts_store.c */

/* What a sample's owner has of it is no good: it is stored anew. */
void hr__hosting_forget(struct hr_loader *l, const struct hr__job *job, uint64_t index);

/* Non-zero while there is something to store that the next epoch should find, for some seconds
 * at most: the consumer is woken when that changes. */
int hr__hosting_is_storing_locked(struct hr_loader *l);

/* Takes the bytes of a sample that was read from storage and prepared, if its owner is to have
 * them. Blocks while too much waits to be stored, a second at most. */
void hr__hosting_offer(struct hr_loader *l, struct hr__job *job, uint64_t index);

/* hosts_rates.c */

/* A sample was prepared, in so much time. Any thread. */
void hr__hosting_prepared(struct hr_loader *l, uint64_t index, uint64_t ns);

#endif
