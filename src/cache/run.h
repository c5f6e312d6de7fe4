/*
 * Which run a process belongs to: the process that started it, or itself, by pid and
 * the time it began, so that a number that is used again is another run. Two machines,
 * or containers that share /dev/shm but not their pids, are told apart as well.
 */
#ifndef HR_CACHE_RUN_H
#define HR_CACHE_RUN_H

#include <stdint.h>

/* When a process began, in ticks since boot, out of its /proc/PID/stat; 0: not to be read.
 * Pure. */
uint64_t hr__run_started(const char *stat);

/* Non-zero where a text can be the name of a run. Pure. */
int hr__run_is_valid(const char *run);

#endif
