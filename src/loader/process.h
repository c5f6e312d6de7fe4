/* A worker's turn with one sample, without the loader's lock. */
#ifndef HR_LOADER_PROCESS_H
#define HR_LOADER_PROCESS_H

struct hr__job;
struct hr__outcome;
struct hr__thread;

/* Obtains the bytes of a sample, prepares it in its place of the batch, and offers the bytes to the
 * cache. */
void hr__process(struct hr__thread *self, struct hr__job *job, struct hr__outcome *outcome);

#endif
