/*
 * Samples that are pieces of container files, such as tar files: what an index pass over each file
 * collects, and the catalog made of it.
 */
#ifndef HR_DATASET_SHARD_SAMPLES_H
#define HR_DATASET_SHARD_SAMPLES_H

#include "base/executor.h"
#include "dataset/catalog.h"
#include "dataset/names.h"
#include "dataset/progress.h"
#include "storage/source.h"

/* Of an object, as many bytes are read at once: a request for each header would take longer than
 * reading what is between them, too, unless that is large. */
#define HR__SHARD_AHEAD ((size_t)4 << 20)

/* A sample, or the member of a tar file that holds the label of one. */
struct hr__shard_sample {
    size_t name; /* offset in the file's text */
    uint64_t offset, bytes;
    uint64_t group; /* of tar files: number of the run of members with the same key, from 0 */
    int64_t label;
    int is_label; /* of tar files: holds the label of its group, and is no sample */
};

/* What one file holds. */
struct hr__shard {
    const char *path;
    size_t index; /* of the file among all */
    struct hr__progress *progress;
    uint64_t file_bytes;
    int64_t mtime_ns;
    uint64_t change; /* of an object: digest of its ETag; 0: unknown */
    struct hr__shard_sample *items;
    size_t count;
    char *text; /* names, 0-terminated */
    size_t text_bytes;
    struct hr_error error;
};

/* The files of a dataset, and who reads them. */
struct hr__shard_source {
    char *const *paths;
    size_t count;
    const char *label; /* hr_dataset_options.label; may be NULL */
    const char *image; /* hr_dataset_options.image; may be NULL */
    int is_sound;      /* tar files: members that are sounds are the samples, not images */
    const struct hr__executor *executor;
    struct hr__progress *progress;
};

/* Collects the pieces of one file or object, which is open. Returns 0 or a negative errno, with
 * file->error set. Several threads call it at once, for different files. */
typedef int (*hr__shard_fn)(void *self, struct hr__shard *file, struct hr__byte_source *source);

/*
 * Opens all files of `source` and collects their pieces, several in parallel. On success the caller
 * frees *out, an array of source->count, with hr__shard_free. Errors: those of `collect`, of the
 * first file that failed; -ECANCELED; -ENOMEM; those of open. Blocks on I/O.
 */
int hr__shard_collect(struct hr__shard **out, const struct hr__shard_source *source,
                      hr__shard_fn collect, void *self, struct hr_error *error);

/* Appends a piece; item->name is ignored. Returns 0 or -ENOMEM, with file->error set. */
int hr__shard_add(struct hr__shard *file, const char *name, const struct hr__shard_sample *item);

static inline const char *hr__shard_name(const struct hr__shard *file, size_t i)
{
    return file->text + file->items[i].name;
}

/* Makes a catalog of the samples of `count` files (at least one), in their order. `classes`: names
 * of the labels 0, 1, ...; NULL: none. On success the caller owns *out. Errors: -ENODATA: no
 * sample; -ENOMEM. */
int hr__shard_catalog(struct hr__catalog **out, const struct hr__shard *files, size_t count,
                      const struct hr__names *classes, struct hr_error *error);

/* Frees an array of `count`. Accepts NULL. */
void hr__shard_free(struct hr__shard *files, size_t count);

#endif
