/*
 * A small thread pool behind struct hr__executor, for work on many items: walking folders,
 * looking at files, verifying. The calling thread works too. The pool's threads block all signals,
 * so that Ctrl-C reaches the program's own threads.
 */
#ifndef HR_BULK_POOL_H
#define HR_BULK_POOL_H

#include "base/executor.h"

#include <headrace/base.h>

struct hr__pool;

/*
 * Makes a pool that runs up to `threads` calls at once, the caller's included (0: the number of
 * cores that this process may use). If the system refuses threads, the pool has fewer; results
 * never depend on the number. On success *out is the caller's. Errors: -ENOMEM.
 */
int hr__pool_create(struct hr__pool **out, int threads, struct hr_error *error);

/* The pool as an executor; valid as long as the pool. One run at a time, from one thread. run
 * returns when all calls that began have returned. */
const struct hr__executor *hr__pool_executor(struct hr__pool *pool);

/* Waits for the threads to end and frees the pool. Not during a run. Accepts NULL. */
void hr__pool_destroy(struct hr__pool **pool);

#endif
