/* The recorder's internal interface; the public part is in headrace/memory.h. */
#ifndef HR_MEMORY_RECORD_RECORDER_H
#define HR_MEMORY_RECORD_RECORDER_H

#include <headrace/memory.h>

/* Returns the origin of event times: nanoseconds of the monotonic clock. */
uint64_t hr__recorder_start_ns(const struct hr_memory_recorder *recorder);

/* Returns 0 in a child forked while recording: the recording belongs to its parent. One load. */
int hr__recorder_is_here(const struct hr_memory_recorder *recorder);

/* Sets the process and time that the record describes, if not this process and now; 0: unknown. */
void hr__recorder_set_origin(struct hr_memory_recorder *recorder, int64_t pid,
                             uint64_t start_unix_ns);

/* Returns 0 if a record may be created at `path`: nothing is there, or a record is. Errors:
 * -EEXIST; those of the file. */
int hr__recorder_may_replace(const char *path, struct hr_error *error);

/* Returns the negative errno that ended the recording early; 0: none. */
int hr__recorder_problem(const struct hr_memory_recorder *recorder);

#endif
