/* The fetchers: threads that read samples ahead when workers' reads block. */
#ifndef HR_LOADER_FETCHER_H
#define HR_LOADER_FETCHER_H

#include "storage/http.h"

struct hr_batch;
struct hr__job;
struct hr_loader;

/* Number of fetcher threads if io_uring is refused: each has one read in flight. */
#define HR__PREAD_FETCHERS 8
/* Reads in flight of the single fetcher that uses io_uring, and of one that reads objects, of which
 * each takes long. */
#define HR__FETCH_DEPTH   64
#define HR__OBJECTS_DEPTH HR__HTTP_MOST

/* The main function of a fetcher's thread; `arg` is its struct hr__thread. */
void *hr__fetch_main(void *arg);

/* Passes a job that was read to the workers, or drops it if its epoch was dropped. Returns a slot
 * to give back to the ring, or NULL. */
struct hr_batch *hr__deliver_locked(struct hr_loader *l, struct hr__job *job);

#endif
