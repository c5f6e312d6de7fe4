/* A recorder, as the rest of this room sees it; the public part is in headrace/memory.h. */
#ifndef HR_MEMORY_RECORD_RECORDER_H
#define HR_MEMORY_RECORD_RECORDER_H

#include <headrace/memory.h>

/* What events' times count from: nanoseconds of the monotonic clock. */
uint64_t hr__recorder_start_ns(const struct hr_memory_recorder *recorder);

/* 0 in a child that was forked while recording: the recording is its parent's. One load. */
int hr__recorder_is_here(const struct hr_memory_recorder *recorder);

/* Of whom the record is, where that is not this process, and of now; 0: not known. */
void hr__recorder_set_origin(struct hr_memory_recorder *recorder, int64_t pid,
                             uint64_t start_unix_ns);

/* 0 where a record may be made at `path`: nothing is there, or a record. Errors: -EEXIST; of the
 * file. */
int hr__recorder_may_replace(const char *path, struct hr_error *error);

/* Negative errno of what ended the recording early; 0: nothing did. */
int hr__recorder_problem(const struct hr_memory_recorder *recorder);

#endif
