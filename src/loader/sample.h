/*
 * The bytes of one sample, whether they are a file of its own or a piece of a container with a
 * checksum. Shared by the loader, verification and packing.
 *
 * Use: hr__sample_aim, then a read of `read` (hr__reader_submit, or hr__sample_read for this
 * thread), then hr__sample_check.
 */
#ifndef HR_LOADER_SAMPLE_H
#define HR_LOADER_SAMPLE_H

#include "cache/cache.h"
#include "dataset/dataset.h"
#include "storage/reader.h"

/* Zero it first, then use it for one sample after the other. */
struct hr__sample {
    struct hr__read read;   /* read.user is the caller's */
    int uncached;           /* set by the caller: reads leave no pages in the page cache */
    uint64_t max_bytes;     /* set by the caller: larger files are not read; 0: no limit */
    struct hr__range range; /* used if read.is_range */
    char *path;             /* owned; buffer for hr_dataset_path */
    size_t path_capacity;
};

/*
 * Points sample->read at sample `index`. `direct`: for a reader with O_DIRECT. Blocks when a
 * container is opened for the first time. Errors: -ENOMEM; those of hr__dataset_range. On an error
 * read.result is the error too, and there are no bytes.
 */
int hr__sample_aim(struct hr__sample *sample, const struct hr_dataset *dataset, uint64_t index,
                   int direct, struct hr_error *error);

/* Points sample->read at an item on a disk of the cache. */
void hr__sample_aim_at(struct hr__sample *sample, const struct hr__cache_place *place);

/* Notes the version of an object of a list, which its read tells. Returns non-zero if it was not
 * known before: then the sample can be cached from now on, and has to be claimed again. */
int hr__sample_learn(const struct hr__sample *sample, struct hr_dataset *dataset, uint64_t index);

/*
 * Returns 0 if the read succeeded and the bytes are right, the read's error, or -EBADMSG if the
 * checksum differs; the wrong bytes are then still the caller's to free. Messages call the sample
 * "it".
 */
int hr__sample_check(const struct hr__sample *sample, struct hr_error *error);

/* Checks a read that has ended. On success read.bytes are the caller's; on failure there are
 * none. */
int hr__sample_finish(struct hr__sample *sample, struct hr_error *error);

/* Aims, reads on this thread, and checks. On success read.bytes are the caller's; on failure there
 * are none. */
int hr__sample_read(struct hr__sample *sample, const struct hr_dataset *dataset, uint64_t index,
                    struct hr_error *error);

/* Returns non-zero for errors of the sample itself, which may be skipped; zero for errors of this
 * process or machine, which may not. */
int hr__is_samples_fault(int code);

/* Frees the buffers, but not read.bytes. */
void hr__sample_clear(struct hr__sample *sample);

#endif
