/* The fetchers: threads that read when reading blocks. */
#ifndef HR_LOADER_FETCHER_H
#define HR_LOADER_FETCHER_H

struct hr_batch;
struct hr__job;
struct hr_loader;

/* Fetcher threads where io_uring is refused: each has one read in flight. */
#define HR__PREAD_FETCHERS 8
/* Reads in flight of the one fetcher with io_uring. */
#define HR__FETCH_DEPTH 64

/* What a fetcher's thread runs; `arg`: its struct hr__thread. */
void *hr__fetch_main(void *arg);

/* A job that came back goes to the workers, or away when its epoch was dropped. Returns a slot
 * to be given back, or NULL. */
struct hr_batch *hr__deliver_locked(struct hr_loader *l, struct hr__job *job);

#endif
