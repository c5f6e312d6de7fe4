/*
 * The file of a pack that is being written: PATH.partial, its lock, its end, and how much of it is
 * committed.
 *
 * Items are appended in the order of the samples. So a pack is a function of its samples, and the
 * finished part is always a prefix of them. A commit first flushes items to storage, then their
 * entries in the catalog at the front of the file. If the program is killed, the next run cuts off
 * all that lies after the last committed item and writes it again.
 *
 * The file of a pack that goes to a bucket is in a directory of this machine, and what is committed
 * is sent from there (pack_upload.h).
 *
 * One thread uses a pack file. Private to this room.
 */
#ifndef HR_BULK_PACK_FILE_H
#define HR_BULK_PACK_FILE_H

#include "bulk/pack_upload.h"
#include "dataset/dataset.h"
#include "dataset/pack.h"
#include "dataset/progress.h"

#include <headrace/pack.h>

struct hr__pack_file {
    int fd;                           /* the partial file, locked; -1: none */
    char *path, *partial, *directory; /* owned; directory: the one of both files */
    struct hr__pack_upload *upload;   /* `path` is a URL; NULL: a file */
    struct hr__pack_superblock super;
    struct hr__catalog *catalog; /* the finished pack's catalog; entries before `done` are filled
                                    in */
    void *rows;                  /* the block of rows, super.rows_bytes; NULL: none */
    uint64_t done;               /* number of samples appended */
    uint64_t safe;               /* number of samples committed */
    uint64_t continued;          /* number of samples found when it was opened */
    uint64_t end;                /* where the next item goes: all bytes before it are items and
                                    padding */
    uint64_t uncommitted_bytes;  /* bytes appended since the last commit */
    uint64_t commit_bytes;       /* a commit is due after so many bytes */
    uint64_t committed_ns;       /* time of the last commit */
};

/* One sample to append. */
struct hr__pack_entry {
    const void *bytes;
    size_t length;
    uint64_t checksum;     /* XXH3-64 of the bytes */
    uint64_t source_bytes; /* of the image file; 0: not known */
    int64_t mtime_ns;      /* of the image file, or HR_SIZE_UNKNOWN */
    enum hr_form form;
    enum hr_pack_kept kept;
};

/*
 * Opens the pack that shall be at `path`, of `dataset`: continues the unfinished file beside it
 * (unless options->restart), or begins one. `options` are checked already; `digest` is the digest
 * of those that affect the bytes of items. On success *out is the caller's. Samples before
 * out->done are in the file, made from the files as they were then (see hr__pack_check_sources).
 * Errors: as hr_pack_write. Blocks.
 */
int hr__pack_file_open(struct hr__pack_file **out, struct hr_dataset *dataset, const char *path,
                       const struct hr_pack_options *options, uint64_t digest,
                       struct hr_error *error);

/*
 * pack_sources.c: refuses to continue if files that an earlier run packed have changed since.
 * Compares sizes and times, on many threads. Blocks on I/O. Errors: -ESTALE names the first such
 * file; -ECANCELED by the progress; -ENOMEM.
 */
int hr__pack_check_sources(const struct hr__pack_file *file, const struct hr_dataset *dataset,
                           struct hr__progress *progress, struct hr_error *error);

/* Appends the next sample. An error leaves the file as before; the caller then commits what is
 * there. Blocks. */
int hr__pack_file_append(struct hr__pack_file *file, const struct hr__pack_entry *entry,
                         struct hr_error *error);

/* Returns non-zero if a commit is due, because of bytes or time since the last. */
int hr__pack_file_is_due(const struct hr__pack_file *file);

/* Commits what was appended. Blocks on storage. */
int hr__pack_file_commit(struct hr__pack_file *file, struct hr_error *error);

/* Call after the last sample: seals the file and renames it to its final name, replacing a file of
 * that name if `overwrite`; or sends the rest of it, counting parts. Blocks on storage. Errors:
 * -EEXIST; those of storage; -ECANCELED. */
int hr__pack_file_finish(struct hr__pack_file *file, int overwrite, struct hr__progress *progress,
                         struct hr_error *error);

/* Closes the file. Committed samples stay in it. Accepts NULL. */
void hr__pack_file_close(struct hr__pack_file **file);

/* Checks options as hr_pack_write does, and fills in defaults. */
int hr__pack_take_options(struct hr_pack_options *out, const struct hr_pack_options *options,
                          struct hr_error *error);

/* How a pack kept a sample, from the sample's catalog entry. */
static inline enum hr_pack_kept hr__range_kept(const struct hr__catalog_range *range)
{
    return (enum hr_pack_kept)(range->flags >> HR__RANGE_KEPT_SHIFT);
}

/* Counts one sample of a pack, whose item has `bytes` bytes. */
void hr__pack_count_item(struct hr_pack_result *result, enum hr_form form, uint64_t bytes);

/* Counts the first `count` samples of a pack's catalog into *result. */
void hr__pack_count(const struct hr__catalog *catalog, uint64_t count,
                    struct hr_pack_result *result);

#endif
