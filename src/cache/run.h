/*
 * The run a process belongs to: the process that started it, or itself, identified by pid and start
 * time, so that a reused pid is another run. The name also distinguishes machines, and containers
 * that share /dev/shm but not their pids.
 */
#ifndef HR_CACHE_RUN_H
#define HR_CACHE_RUN_H

#include <stdint.h>

/* Returns when a process began, in ticks since boot, from the text of its /proc/PID/stat; 0 if it
 * cannot be parsed. Pure. */
uint64_t hr__run_started(const char *stat);

/* Returns non-zero if a text is a valid name of a run. Pure. */
int hr__run_is_valid(const char *run);

#endif
