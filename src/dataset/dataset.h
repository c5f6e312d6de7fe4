/*
 * Inside a dataset: what the loader needs to open one and to fill in sizes.
 *
 * A dataset owns a catalog, or is a subset: a reference to a dataset with a
 * catalog and indices into it (a subset of a subset is flattened). Everything
 * is constant after creation but the sizes and times in the catalog.
 */
#ifndef HR_DATASET_DATASET_H
#define HR_DATASET_DATASET_H

#include "dataset/catalog.h"
#include "dataset/containers.h"

#include <headrace/form.h>

#include <pthread.h>
#include <stdatomic.h>

/* Work that goes on behind a dataset; made by bulk. */
struct hr__background {
    void *self; /* NULL: none */
    /* Stops the work, waits for its thread and frees self. In a forked child,
     * where the thread does not exist, only forgets it. */
    void (*stop)(void *self);
    /* Waits until the work is done: 0 or -ECANCELED. */
    int (*wait)(void *self);
};

enum hr__source_kind {
    HR__SOURCE_PATHS = 0, /* given one by one, or by what cannot be read again */
    HR__SOURCE_FOLDER,
    HR__SOURCE_LIST,
    HR__SOURCE_PACK,
    HR__SOURCE_TAR,
};

/* What a dataset was made of; see describe.h. */
struct hr__dataset_source {
    enum hr__source_kind kind;
    char *path;      /* as given to open; NULL: PATHS */
    char *directory; /* where relative paths began: the working directory when the dataset was
                        made; NULL: it had none */
    enum hr_index_policy index;
    int allow_empty_classes;
};

struct hr_dataset {
    _Atomic int64_t references;
    char *root;                        /* folder: as given to open; else "" */
    char *base;                        /* what keys are relative to; "": nothing */
    struct hr__dataset_source source;  /* of the one with the catalog */
    struct hr__catalog *catalog;       /* NULL for subsets */
    struct hr__containers *containers; /* NULL where samples are files of their own */
    struct hr_dataset *parent;         /* subsets: the one with the catalog; a reference */
    int64_t *indices;                  /* subsets: into the parent */
    size_t count;                      /* samples */
    int is_folder;                     /* non-zero: the catalog has classes */
    int from_index;                    /* non-zero: the catalog was read from an index */
    char *index_path;                  /* NULL: no index is used */
    struct hr__background background;  /* set before others see the dataset */
    pthread_mutex_t fill_lock;         /* held while sizes are filled on demand */
    _Atomic int sizes_known;
};

/*
 * Makes a dataset of a catalog, which it takes over on success. `base` is where
 * the keys' paths begin, and those of containers; `root` what hr_dataset_root
 * returns; both are copied.
 * Errors: -ENOMEM; the catalog stays the caller's.
 */
int hr__dataset_create(struct hr_dataset **out, struct hr__catalog *catalog, const char *base,
                       const char *root, struct hr_error *error);

/* The dataset with the catalog: itself, or a subset's parent. */
struct hr_dataset *hr__dataset_origin(struct hr_dataset *dataset);

/* Modification time of the file of sample `index` in ns since 1970 as the scan
 * saw it, or HR_SIZE_UNKNOWN. Any thread. */
int64_t hr__dataset_mtime_ns(const struct hr_dataset *dataset, size_t index);

/* Bytes of all samples, as the scan saw them, those that it could not look at left out;
 * HR_SIZE_UNKNOWN while it goes on. Looks at each sample. Any thread. */
int64_t hr__dataset_total_bytes(const struct hr_dataset *dataset);

/* Where the bytes of a sample are, when it is a piece of a container. */
struct hr__range {
    int fd;           /* the dataset's, open while that lives; -1: read it by `path` */
    const char *path; /* of the container; the dataset's */
    uint64_t offset;  /* of the first byte */
    uint64_t bytes;
    uint64_t checksum;     /* see hr__range_check */
    uint64_t source_bytes; /* of the image file it was made from; 0: not known */
    enum hr_form form;
    int has_checksum;
};

/*
 * Where sample `index` (< count) is: 0: in a file of its own, hr_dataset_path;
 * 1: a piece of a container, in *out. `direct`: out->fd shall have O_DIRECT; it
 * has where the file system can. Any thread, no lock; blocks when a container is
 * opened for the first time. Errors: as hr__containers_open.
 */
int hr__dataset_range(const struct hr_dataset *dataset, size_t index, int direct,
                      struct hr__range *out, struct hr_error *error);

/* Non-zero unless the range has a checksum that these bytes do not have. Pure. */
int hr__range_check(const struct hr__range *range, const void *bytes, size_t length);

/* Empty classes: how many; and the names of the first ones, printable, into
 * `names`. Zero for datasets without classes. */
size_t hr__dataset_empty_classes(const struct hr_dataset *dataset, char *names, size_t capacity);

#endif
