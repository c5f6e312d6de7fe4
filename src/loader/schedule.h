/*
 * Chooses the sample to work on next: claims, the window, and which threads to wake.
 *
 * `_locked`: the caller holds the loader's lock, and the function keeps it. `_unlocking`: the
 * caller holds the lock; the function may release it for a while and takes it again.
 */
#ifndef HR_LOADER_SCHEDULE_H
#define HR_LOADER_SCHEDULE_H

#include "loader/job.h"

struct hr_batch;
struct hr_loader;

/* Score at which fetchers take over: about three blocked reads in a row, or a third of all reads
 * blocking. */
#define HR__BLOCKED_LIMIT 12
#define HR__BLOCKED_STEP  4

/* Takes a job from the free list, or makes one; NULL: out of memory. hr__free_job_locked puts it
 * back. */
struct hr__job *hr__take_job_locked(struct hr_loader *l);
void hr__free_job_locked(struct hr_loader *l, struct hr__job *job);

/* Claims the next sample to read, in order; NULL: none. Opens a batch if needed. `may_wait`: may
 * wait for another thread to give back a slot; 0 for a caller that itself holds jobs which that
 * thread may be waiting for. */
struct hr__job *hr__claim_unlocking(struct hr_loader *l, int may_wait);

/* Changes how many bytes of the staging budget a job is charged. */
void hr__charge_locked(struct hr_loader *l, struct hr__job *job, uint64_t bytes);

/* Returns non-zero if a claim may succeed now. */
int hr__can_claim_locked(const struct hr_loader *l);

/* Expected size of a sample's file, in bytes. */
uint64_t hr__size_of(const struct hr_loader *l, const struct hr_batch *batch, size_t place);

/* The same for the sample that the next claim will return. */
uint64_t hr__next_size_locked(const struct hr_loader *l);

/* Queues a job for the workers, with its bytes read or marked `unread`. */
void hr__stage_locked(struct hr_loader *l, struct hr__job *job);

/* Takes the oldest staged job of the earliest batch; NULL: none. */
struct hr__job *hr__take_staged_locked(struct hr_loader *l);

/* Puts aside a job whose sample another process is reading, until it is time to ask again. Not for
 * jobs of a dropped epoch. */
void hr__delay_locked(struct hr_loader *l, struct hr__job *job);

/* Takes the first of the jobs put aside, if it is due; NULL otherwise. */
struct hr__job *hr__take_delayed_locked(struct hr_loader *l);

/* Sets when to ask again for a job's sample. `waiting`: how many other jobs are waiting too. */
void hr__job_wait(struct hr__job *job, uint64_t waiting);

/* Ends a job: passes its outcome to its batch and puts the job on the free list. Returns a slot
 * that the caller gives back to the ring after unlocking, or NULL. */
struct hr_batch *hr__finish_locked(struct hr_loader *l, struct hr__job *job,
                                   struct hr__outcome *outcome);

/* Drops the window. Returns a list of slots, linked by next, that the caller gives back to the ring
 * after unlocking. */
struct hr_batch *hr__cancel_locked(struct hr_loader *l);

/* Takes the first batch out of the window. */
struct hr_batch *hr__window_pop_locked(struct hr_loader *l);

/* Counts a read that has come back, and its bytes as staged. `from`: HR__TIER_DISK or else. Any
 * thread. */
void hr__account_read(struct hr_loader *l, const struct hr__read *read, enum hr__tier from,
                      uint64_t ns);

/* Frees the bytes of a read, if there are any. Any thread. */
void hr__drop_bytes(struct hr_loader *l, struct hr__read *read);

/* Makes a pair of the image and the mask that were read for a job, if there is a mask: the bytes
 * that are kept for the sample. Returns 0, or -ENOMEM; then they stay as they are. */
int hr__job_join(struct hr_loader *l, struct hr__job *job);

/* Frees the bytes of a job's mask, if it was read. */
void hr__drop_mask(struct hr_loader *l, struct hr__job *job);

/* Lets workers read their own samples, on trial. */
void hr__let_workers_read_locked(struct hr_loader *l);

/* Wakes the threads that can continue when samples have become claimable. */
void hr__wake_claimers_locked(struct hr_loader *l);

/* Wakes one idle worker. */
void hr__wake_worker_locked(struct hr_loader *l);

/* Wakes the consumer: the first batch of the window may be complete, or none will come. */
void hr__wake_consumer_locked(struct hr_loader *l);

/* Gives back a list of slots. */
void hr__return_slots(struct hr_batch *list);

/* Frees and clears what the batch's samples left in it. */
void hr__batch_reset(struct hr_batch *batch);

#endif
