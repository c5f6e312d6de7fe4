/* A recorder, as the rest of this room sees it; the public part is in headrace/memory.h. */
#ifndef HR_MEMORY_RECORDER_H
#define HR_MEMORY_RECORDER_H

#include <headrace/memory.h>

/* What events' times count from: nanoseconds of the monotonic clock. */
uint64_t hr__recorder_start_ns(const struct hr_memory_recorder *recorder);

/* 0 in a child that was forked while recording: the recording is its parent's. One load. */
int hr__recorder_is_here(const struct hr_memory_recorder *recorder);

#endif
