/*
 * A loader's part in the balance between the ranks of a machine (balance.h): says on the board how
 * it stands, and decides now and then, on whichever of its threads comes by, how many workers and
 * reads it uses.
 *
 * It has more workers than it began with, asleep on a condition of their own until the balance
 * gives them to it; so have fetchers beyond what is allowed. A thread that is to stand by passes on
 * the wake-up that it may have got: those who work never miss one.
 *
 * All of it is guarded by the loader's lock. A loader without a board (a lone rank; an agent's
 * lane; no shared memory) uses what it was given.
 */
#ifndef HR_LOADER_BALANCING_H
#define HR_LOADER_BALANCING_H

#include <headrace/loader.h>

struct hr_loader;
struct hr__balancing;

/* Before the workers start: joins the others on the board, if there are others on this machine.
 * Failures are logged, and leave the loader by itself. Blocks for moments. */
void hr__balancing_start(struct hr_loader *l);

/* After the threads have ended, or in a child that was forked from them. */
void hr__balancing_end(struct hr_loader *l);

/* Workers that may be needed at most: the threads to start. The consumer's thread. */
int hr__balancing_most(const struct hr_loader *l);

/* Workers that there are, once they have been started. */
void hr__balancing_started_locked(struct hr_loader *l, int workers);

/* Workers that may work now. */
int hr__balancing_workers_locked(const struct hr_loader *l);

/* Of `limit` reads or threads that read, how many may be used now: at least one. */
int hr__balancing_limit_locked(const struct hr_loader *l, int limit);

/* Times that the former changed. */
uint64_t hr__balancing_changes_locked(const struct hr_loader *l);

/* Decides if it is time to; called by whoever comes by. A look at the clock, and a microsecond or
 * two every HR__BALANCE_NS. */
void hr__balancing_pass_locked(struct hr_loader *l);

/* A worker had a sample in hand for so long. */
void hr__balancing_worked_locked(struct hr_loader *l, uint64_t ns);

/* The consumer took a batch; begins or ends waiting for one; has left its epoch. */
void hr__balancing_took_locked(struct hr_loader *l);
void hr__balancing_waits_locked(struct hr_loader *l, int waits);
void hr__balancing_rests_locked(struct hr_loader *l);

/* Sleeps where worker or fetcher `number` is not to work now: non-zero if it did. */
int hr__balancing_worker_stands_by_locked(struct hr_loader *l, int number);
int hr__balancing_fetcher_stands_by_locked(struct hr_loader *l, int number);

/* Wakes those that stand by: the loader stops. */
void hr__balancing_stop_locked(struct hr_loader *l);

#endif
