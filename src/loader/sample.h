/*
 * One sample's bytes, wherever they are: in a file of its own, or a piece of a
 * container with a checksum. What the loader, verification and packing share.
 *
 * Use: hr__sample_aim, then a read of `read` (hr__reader_submit, or
 * hr__sample_read for this thread), then hr__sample_check.
 */
#ifndef HR_LOADER_SAMPLE_H
#define HR_LOADER_SAMPLE_H

#include "dataset/dataset.h"
#include "storage/reader.h"

/* Zeroed at first, then used for one sample after the other. */
struct hr__sample {
    struct hr__read read;   /* read.user is the caller's */
    int uncached;           /* the caller's: reads leave nothing in the page cache */
    struct hr__range range; /* where read.is_range */
    char *path;             /* buffer of hr_dataset_path; owned */
    size_t path_capacity;
};

/*
 * Points sample->read at sample `index`; `direct`: for a reader with O_DIRECT.
 * Blocks when a container is opened for the first time. Errors: -ENOMEM; as
 * hr__dataset_range; then read.result is the error and there are no bytes.
 */
int hr__sample_aim(struct hr__sample *sample, const struct hr_dataset *dataset, uint64_t index,
                   int direct, struct hr_error *error);

/*
 * What became of the read: 0 and the bytes are right, or its error, or -EBADMSG
 * where the checksum differs; bytes that are wrong stay the caller's to free.
 * Messages are about "it", the sample.
 */
int hr__sample_check(const struct hr__sample *sample, struct hr_error *error);

/* aim, read on this thread, check. On success read.bytes are the caller's; on
 * failure there are none. */
int hr__sample_read(struct hr__sample *sample, const struct hr_dataset *dataset, uint64_t index,
                    struct hr_error *error);

/* Non-zero for failures of the sample, which may be skipped; zero for those of this
 * process or machine, which may not. */
int hr__is_samples_fault(int code);

/* Frees its buffers, not read.bytes. */
void hr__sample_clear(struct hr__sample *sample);

#endif
