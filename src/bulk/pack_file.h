/*
 * The file of a pack that is being written: PATH.partial, its lock, its end, and
 * what of it is safe.
 *
 * Items are appended in the order of the samples, so that a pack is a function of
 * its samples and "what is done" is a prefix of them. A commit first brings items
 * to storage and then their entries in the catalog at the front; whatever lies
 * behind the last committed item after a kill is cut off and written again.
 *
 * One thread uses a pack file. Private to this room.
 */
#ifndef HR_BULK_PACK_FILE_H
#define HR_BULK_PACK_FILE_H

#include "dataset/dataset.h"
#include "dataset/pack.h"
#include "dataset/progress.h"

#include <headrace/pack.h>

struct hr__pack_file {
    int fd;                           /* of the partial file, locked; -1: none */
    char *path, *partial, *directory; /* owned; directory: of both */
    struct hr__pack_superblock super;
    struct hr__catalog *catalog; /* as it will be; entries up to `done` are filled in */
    uint64_t done;               /* samples appended */
    uint64_t safe;               /* samples committed */
    uint64_t continued;          /* samples that were there when it was opened */
    uint64_t end;                /* bytes of the file up to here are items and padding */
    uint64_t uncommitted_bytes;  /* since the last commit */
    uint64_t commit_bytes;       /* after which a commit is due */
    uint64_t committed_ns;       /* when the last one was */
};

/* One sample to append. */
struct hr__pack_entry {
    const void *bytes;
    size_t length;
    uint64_t checksum;     /* XXH3-64 of them */
    uint64_t source_bytes; /* of the image file; 0: not known */
    int64_t mtime_ns;      /* of the image file, or HR_SIZE_UNKNOWN */
    enum hr_form form;
    enum hr_pack_kept kept;
};

/*
 * Opens the pack that shall be at `path`, of `dataset`: continues the unfinished one
 * beside it (unless options->restart), or begins one. `options` are checked already;
 * `digest` is of those that decide about the bytes of items. On success *out is the
 * caller's; samples before out->done are in the file, made of the files as they were
 * then (see hr__pack_check_sources).
 * Errors: as hr_pack_write. Blocks.
 */
int hr__pack_file_open(struct hr__pack_file **out, struct hr_dataset *dataset, const char *path,
                       const struct hr_pack_options *options, uint64_t digest,
                       struct hr_error *error);

/*
 * pack_sources.c: refuses to continue when files have changed that an earlier run has
 * packed: compares sizes and times, on many threads. Blocks on I/O.
 * Errors: -ESTALE names the first one; -ECANCELED by the progress; -ENOMEM.
 */
int hr__pack_check_sources(const struct hr__pack_file *file, const struct hr_dataset *dataset,
                           struct hr__progress *progress, struct hr_error *error);

/* Appends the next sample. After an error the file is as before, and the caller commits
 * what is there. Blocks. */
int hr__pack_file_append(struct hr__pack_file *file, const struct hr__pack_entry *entry,
                         struct hr_error *error);

/* Non-zero when a commit is due: many bytes, or some time. */
int hr__pack_file_is_due(const struct hr__pack_file *file);

/* Makes what was appended safe. Blocks on storage. */
int hr__pack_file_commit(struct hr__pack_file *file, struct hr_error *error);

/* After the last sample: seals the file and gives it its name; `overwrite`: over
 * whatever has it. Blocks on storage. Errors: -EEXIST; those of storage. */
int hr__pack_file_finish(struct hr__pack_file *file, int overwrite, struct hr_error *error);

/* Closes it; what is committed stays. Accepts NULL. */
void hr__pack_file_close(struct hr__pack_file **file);

/* As hr_pack_write checks its options: defaults for what is not given. */
int hr__pack_take_options(struct hr_pack_options *out, const struct hr_pack_options *options,
                          struct hr_error *error);

/* How a sample of a pack was kept, from its entry. */
static inline enum hr_pack_kept hr__range_kept(const struct hr__catalog_range *range)
{
    return (enum hr_pack_kept)(range->flags >> HR__RANGE_KEPT_SHIFT);
}

/* Counts the samples before `count` of a pack's catalog into *result. */
void hr__pack_count(const struct hr__catalog *catalog, uint64_t count,
                    struct hr_pack_result *result);

#endif
