/*
 * Which sample is worked on next: claims, the window, and who is woken.
 *
 * `_locked`: the caller holds the loader's lock, and it is held all the time. `_unlocking`: the
 * caller holds it too; the function may release it for a while and takes it again.
 */
#ifndef HR_LOADER_SCHEDULE_H
#define HR_LOADER_SCHEDULE_H

#include "loader/job.h"

struct hr_batch;
struct hr_loader;

/* Score at which fetchers take over: about three blocked reads in a row, or a
 * third of all reads blocking. */
#define HR__BLOCKED_LIMIT 12
#define HR__BLOCKED_STEP  4

/* A job that is nobody's, or NULL: out of memory; and its end. */
struct hr__job *hr__take_job_locked(struct hr_loader *l);
void hr__free_job_locked(struct hr_loader *l, struct hr__job *job);

/* The next sample to read, in order, or NULL. Opens a batch when need be. `may_wait`: for a slot
 * that others give back; not for a caller on whose jobs they may depend. */
struct hr__job *hr__claim_unlocking(struct hr_loader *l, int may_wait);

/* Changes what a job is charged of the staging budget. */
void hr__charge_locked(struct hr_loader *l, struct hr__job *job, uint64_t bytes);

/* Non-zero where a claim may succeed now. */
int hr__can_claim_locked(const struct hr_loader *l);

/* Bytes that a sample's file is expected to have. */
uint64_t hr__size_of(const struct hr_loader *l, const struct hr_batch *batch, size_t place);

/* The same for what the next claim will give. */
uint64_t hr__next_size_locked(const struct hr_loader *l);

/* A job with its bytes read (or `unread`) becomes a worker's. */
void hr__stage_locked(struct hr_loader *l, struct hr__job *job);

/* The oldest staged job of the earliest batch, or NULL. */
struct hr__job *hr__take_staged_locked(struct hr_loader *l);

/* A job whose sample another process reads waits until it is to be asked for again.
 * A job of a dropped epoch is not for this. */
void hr__delay_locked(struct hr_loader *l, struct hr__job *job);

/* The first of those that wait, if it is due, or NULL. */
struct hr__job *hr__take_delayed_locked(struct hr_loader *l);

/* Sets when a job is to be asked for again; `waiting` others are, too. */
void hr__job_wait(struct hr__job *job, uint64_t waiting);

/* The job is done: its outcome goes to its batch, the job to the free ones.
 * Returns a slot that the caller gives back to the ring, unlocked, or NULL. */
struct hr_batch *hr__finish_locked(struct hr_loader *l, struct hr__job *job,
                                   struct hr__outcome *outcome);

/* Drops the window. Returns slots, linked by next, that the caller gives back to
 * the ring, unlocked. */
struct hr_batch *hr__cancel_locked(struct hr_loader *l);

/* Takes the first batch out of the window. */
struct hr_batch *hr__window_pop_locked(struct hr_loader *l);

/* Counts a read that has come back, and its bytes as staged. Any thread. */
void hr__account_read(struct hr_loader *l, const struct hr__read *read, uint64_t ns);

/* Frees what a read brought, if it is still there. Any thread. */
void hr__drop_bytes(struct hr_loader *l, struct hr__read *read);

/* Lets workers read their own samples, on trial. */
void hr__let_workers_read_locked(struct hr_loader *l);

/* Wakes who can go on when samples have become claimable. */
void hr__wake_claimers_locked(struct hr_loader *l);

/* Wakes a worker that is idle, or as many as are. */
void hr__wake_worker_locked(struct hr_loader *l);
void hr__wake_workers_locked(struct hr_loader *l);

/* The first batch of the window may be complete, or nothing may come of it. */
void hr__wake_consumer_locked(struct hr_loader *l);

/* Gives back a list of slots. */
void hr__return_slots(struct hr_batch *list);

/* Forgets what a batch's samples left behind. */
void hr__batch_reset(struct hr_batch *batch);

#endif
