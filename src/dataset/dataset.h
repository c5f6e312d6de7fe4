/*
 * Internal interface of datasets: what the loader needs to open them and fill in sizes.
 *
 * A dataset owns a catalog, or is a subset: a reference to a dataset with a catalog, and indices
 * into it (subsets of subsets are flattened). A dataset with rows is a subset, too, or a pack that
 * keeps them. After creation only the sizes and times in the catalog change.
 */
#ifndef HR_DATASET_DATASET_H
#define HR_DATASET_DATASET_H

#include "dataset/catalog.h"
#include "dataset/containers.h"

#include <headrace/form.h>
#include <headrace/sound.h>

#include <pthread.h>
#include <stdatomic.h>

/* Background work for a dataset, started by bulk. */
struct hr__background {
    void *self; /* NULL: no work */
    /* Stops the work, waits for its thread and frees self. In a forked child, where the thread does
     * not exist, only resets the struct. */
    void (*stop)(void *self);
    /* Waits until the work is done. Returns 0 or -ECANCELED. */
    int (*wait)(void *self);
};

enum hr__source_kind {
    HR__SOURCE_PATHS = 0, /* a list of paths, or a source that cannot be read again */
    HR__SOURCE_FOLDER,
    HR__SOURCE_LIST,
    HR__SOURCE_PACK,
    HR__SOURCE_TAR,
    HR__SOURCE_PARQUET,
    HR__SOURCE_RANGES,   /* given ranges of files */
    HR__SOURCE_PRODUCED, /* no files: producers make the samples (headrace/producer.h) */
};

/* What a dataset was opened from; see describe.h. */
struct hr__dataset_source {
    enum hr__source_kind kind;
    char *path;      /* as passed to open; NULL: PATHS */
    char *directory; /* the working directory when the dataset was opened, to which relative paths
                      * refer; NULL: there was none */
    enum hr_index_policy index;
    enum hr_media media; /* FOLDER */
    int allow_empty_classes;
    char *label; /* TAR, PARQUET: as passed to open; NULL: not named */
    char *image; /* PARQUET: the same */
};

/* What is known of a produced dataset. It has no catalog and no subsets. */
struct hr__produced {
    uint64_t sample_bytes;
    uint8_t layout[16], digest[16]; /* as in struct hr_produced_options */
    char name[201];
};

struct hr__http_client; /* see storage/http.h */
struct hr__row_table;   /* see row_table.h */

struct hr_dataset {
    _Atomic int64_t references;
    char *root;                        /* folder: as passed to open; else "" */
    char *base;                        /* directory that keys are relative to; "": none */
    struct hr__dataset_source source;  /* for the dataset with the catalog */
    struct hr__catalog *catalog;       /* NULL for subsets and produced datasets */
    struct hr__produced *produced;     /* NULL: samples have files */
    struct hr__containers *containers; /* NULL if samples are files of their own */
    struct hr__http_client *http;      /* reads paths that are URLs; NULL: there are none */
    struct hr_dataset *parent;         /* subsets: the dataset with the catalog; a reference */
    int64_t *indices;                  /* subsets: indices in the parent; NULL: all, in order */
    struct hr__row_table *rows;        /* NULL: none; a reference */
    int64_t *row_of;                   /* subsets: samples in the table; NULL: all, in order */
    struct hr_dataset *masks;          /* sample i's is sample i; NULL: none; a reference */
    int is_paired; /* non-zero: samples 2i and 2i + 1 are an image and its mask, as in a pack */
    size_t count;  /* number of samples */
    int waveforms; /* a pack of them: their enum hr_form; 0: it is none */
    struct hr_sound_head head;        /* what they were made with */
    int is_folder;                    /* non-zero: the catalog has classes */
    int from_index;                   /* non-zero: the catalog was read from an index */
    char *index_path;                 /* NULL: no index is in use */
    struct hr__background background; /* set before other threads use the dataset */
    pthread_mutex_t fill_lock;        /* held while sizes are filled on demand */
    _Atomic int sizes_known;
};

/*
 * Makes a dataset of a catalog and takes ownership of it on success. `base` is the directory that
 * the paths of keys and containers are relative to; hr_dataset_root returns `root`; both are
 * copied. A dataset with paths that are URLs gets a client for them. Errors: -ENOMEM; those of
 * hr__http_create; the caller then keeps the catalog.
 */
int hr__dataset_create(struct hr_dataset **out, struct hr__catalog *catalog, const char *base,
                       const char *root, struct hr_error *error);

/* Makes a produced dataset of `count` samples. Copies *what. Errors: -ENOMEM. */
int hr__dataset_create_produced(struct hr_dataset **out, uint64_t count,
                                const struct hr__produced *what, struct hr_error *error);

/* Makes a dataset of the same samples as `parent`, with rows: a reference to `rows` is added.
 * Errors: -ENOMEM. */
int hr__dataset_create_alike(struct hr_dataset **out, struct hr_dataset *parent,
                             struct hr__row_table *rows, struct hr_error *error);

/* Makes a dataset of the files of images and masks in turn, of a dataset that has masks. Errors:
 * -ENOTSUP: they are no files of their own; -ENOMEM. */
int hr__dataset_pair(struct hr_dataset **out, struct hr_dataset *dataset, struct hr_error *error);

/* Returns the number of the image that sample `index`, or its mask, of a paired dataset is; of
 * others the index. */
static inline uint64_t hr__dataset_image_of(const struct hr_dataset *dataset, uint64_t index)
{
    return dataset->is_paired ? index / 2 : index;
}

/* Replaces a paired dataset, and its reference, by one of its images with their masks. On an error
 * *dataset stays. Errors: -ENOMEM. */
int hr__dataset_unpair(struct hr_dataset **dataset, struct hr_error *error);

/* Returns the dataset with the catalog: `dataset` itself, or a subset's parent. */
struct hr_dataset *hr__dataset_origin(struct hr_dataset *dataset);

/* Returns the index, in the dataset with the catalog, of sample `index`. */
static inline size_t hr__dataset_at(const struct hr_dataset *dataset, size_t index)
{
    return dataset->indices ? (size_t)dataset->indices[index] : index;
}

/* Returns the modification time of the file of sample `index`, in ns since 1970, as scanned; or
 * HR_SIZE_UNKNOWN. Any thread. */
int64_t hr__dataset_mtime_ns(const struct hr_dataset *dataset, size_t index);

/* Returns the total bytes of all samples as scanned, without those that could not be queried; or
 * HR_SIZE_UNKNOWN while the scan is running, and of a list of URLs until all were read. Masks count
 * as hr__dataset_kept_bytes counts them. Loops over all samples. Any thread. */
int64_t hr__dataset_total_bytes(const struct hr_dataset *dataset);

/* Returns the bytes that a sample takes when it is kept as it is: of a dataset with masks those of
 * a pair (pair.h). HR_SIZE_UNKNOWN: not known (yet). */
int64_t hr__dataset_kept_bytes(const struct hr_dataset *dataset, size_t index);

/* Position of a sample that is a piece of a container. */
struct hr__range {
    int fd; /* owned by the dataset, open while that exists; -1: read by `path` */
    struct hr__http_client
        *http;        /* `path` is a URL that this client reads; NULL: a file. The dataset's */
    uint64_t change;  /* of an object: digest of its ETag; 0: unknown */
    const char *path; /* of the container; owned by the dataset */
    uint64_t offset;  /* of the first byte */
    uint64_t bytes;
    uint64_t checksum;     /* see hr__range_check */
    uint64_t source_bytes; /* size of the image file it was made from; 0: unknown */
    enum hr_form form;
    int has_checksum;
};

/*
 * Locates sample `index` (< count). Returns 0 if it is a file of its own (hr_dataset_path), or 1 if
 * it is a piece of a container, described in *out. With `direct`, out->fd has O_DIRECT if the file
 * system supports it. Any thread, no lock; blocks when it opens a container for the first time.
 * Errors: as hr__containers_open.
 */
int hr__dataset_range(const struct hr_dataset *dataset, size_t index, int direct,
                      struct hr__range *out, struct hr_error *error);

/* Returns the client that reads `path`, one of the dataset's; NULL: it is a file. Any thread. */
struct hr__http_client *hr__dataset_http(const struct hr_dataset *dataset, const char *path);

/* Returns the digest of the ETag of the object of sample `index`, as listed; 0: unknown. Any
 * thread. */
uint64_t hr__dataset_change(const struct hr_dataset *dataset, size_t index);

/* Returns non-zero if the sample is an object of a list, whose size and ETag only its read tells.
 * Pure. */
int hr__dataset_is_unlisted(const struct hr_dataset *dataset, size_t index);

/* Notes the size and the digest of the ETag of an object that no listing told. Returns non-zero if
 * they were not known before. Any thread. */
int hr__dataset_learn(struct hr_dataset *dataset, size_t index, int64_t bytes, uint64_t change);

/* Returns zero if the range has a checksum that these bytes do not match, else non-zero. Pure. */
int hr__range_check(const struct hr__range *range, const void *bytes, size_t length);

/* Returns the number of empty classes and stores the names of the first ones, printable, in
 * `names`. Returns 0 for datasets without classes. */
size_t hr__dataset_empty_classes(const struct hr_dataset *dataset, char *names, size_t capacity);

#endif
