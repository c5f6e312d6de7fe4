/*
 * Datasets: lists of samples.
 *
 * A dataset is an immutable, reference-counted list of samples. Each sample has an
 * index (its position in the dataset, from 0), a key (its path relative to the
 * root, the bytes that the file system gave), an integer label and, once it is
 * known, a size in bytes. A dataset comes from an image folder (root/class/...), an
 * explicit list of paths, tar files, Parquet tables, or a pack (one file that holds
 * all samples).
 *
 * Where a function takes a path, a URL will do: "s3://bucket/key" and "gs://bucket/key" for
 * folders, lists, tar files and packs, "https://host/path" for all of them but folders. Credentials
 * and endpoints are those of AWS's tools (docs/object-storage.md). Besides the errors below there
 * are -ENOTSUP: built without libcurl; -EACCES; -ESTALE: an object was replaced after it was
 * listed; -ETIMEDOUT, -EBUSY and others of the network, after retries.
 *
 * Thread safety: any thread may call any function at any time on a dataset that
 * the caller holds a reference to.
 */
#ifndef HEADRACE_DATASET_H
#define HEADRACE_DATASET_H

#include <headrace/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_dataset;

/* Size of a sample whose size is not known yet. */
#define HR_SIZE_UNKNOWN (-1)

/* Where to keep the index file of a folder. With an index, the next open need not walk the tree. */
enum hr_index_policy {
    HR_INDEX_USER_CACHE = 0,  /* $XDG_CACHE_HOME/headrace/index, or ~/.cache/... */
    HR_INDEX_BESIDE_DATA = 1, /* ROOT/.headrace-index */
    HR_INDEX_NONE = 2,        /* neither read nor written */
};

/* Reports the progress of a long call, on the thread that made the call: at most about
 * ten times a second, and once at the end of each stage. `total` is 0 while it is
 * not known. A non-zero return value cancels the long call, which then returns
 * -ECANCELED. */
typedef int (*hr_progress_fn)(void *arg, uint64_t done, uint64_t total, const char *stage);

/* How to handle samples that cannot be read or decoded. */
enum hr_on_error {
    HR_ON_ERROR_RAISE = 0, /* the call fails with the sample's error; hr_loader_next fails when
                              the sample's batch is due */
    HR_ON_ERROR_SKIP = 1,  /* the sample is counted and listed; a loader replaces it */
};

/* What the samples of a dataset are. It decides which files of a folder belong to it. */
enum hr_media {
    HR_MEDIA_IMAGES = 0,
    HR_MEDIA_SOUNDS = 1, /* .wav, .flac, .mp3, .ogg, .oga and, to be refused by name, .opus, .m4a,
                            .aac, .aiff, .aif, .wma */
    HR_MEDIA_ANY = 2,    /* images; without any, sounds */
};

/* Returns what the samples are, by the name of the first one: HR_MEDIA_IMAGES or HR_MEDIA_SOUNDS.
 */
HR_API enum hr_media hr_dataset_media(const struct hr_dataset *dataset);

struct hr_dataset_options {
    size_t size; /* sizeof(struct hr_dataset_options) */
    enum hr_index_policy index;
    int threads;             /* for walking and stat; 0: 16, or the number of cores if larger */
    int wait_sizes;          /* non-zero: sizes and times are known on return;
                                0: only names are, sizes follow in the background */
    int allow_empty_classes; /* non-zero: a class folder without images is kept;
                                0: it is an error, as in torchvision */
    hr_progress_fn progress; /* may be NULL */
    void *progress_arg;
    const char *label;   /* of tar files and Parquet tables: where labels are; NULL: see
                            hr_dataset_open_tar and hr_dataset_open_parquet */
    const char *image;   /* of Parquet tables: the column of images; NULL: see
                            hr_dataset_open_parquet */
    enum hr_media media; /* of folders and tar files; lists and packs have any file */
};

/* Sets the defaults of a struct of `size` bytes, of any version. Meant for bindings
 * of other languages; C programs call the next function. */
HR_API void hr_dataset_options_init(struct hr_dataset_options *options, size_t size);

static inline void hr_dataset_options_default(struct hr_dataset_options *options)
{
    hr_dataset_options_init(options, sizeof *options);
}

/*
 * Opens an image folder in the same order as torchvision's ImageFolder. Each directory directly
 * under `path` is a class; classes are sorted by name (by code point, as Python does). A class has
 * every file below its directory whose extension is one of torchvision's IMG_EXTENSIONS (any case);
 * with options->media, one of sounds.
 * Nested folders are included and links are followed, except for link loops.
 *
 * Reads and writes the index file as options->index says; an index that cannot be read or written
 * is never an error. The index is used if no directory has changed and a spot check of files
 * agrees. If a single file was rewritten in place, the dataset may report its old size and time.
 *
 * On success *out holds one reference. Errors: -ENOENT, -ENOTDIR, -EACCES;
 * -ENODATA: no class, no image, or an empty class; -ECANCELED; -ENOMEM.
 * Blocks on I/O.
 */
HR_API HR_NODISCARD int hr_dataset_open_folder(struct hr_dataset **out, const char *path,
                                               const struct hr_dataset_options *options,
                                               struct hr_error *error);

/*
 * Opens a list file. Each line is one sample, "path<TAB>label" or "path label" (the
 * last field is the label, an integer). Empty lines and lines that begin with
 * '#' are ignored. Relative paths are relative to the list file.
 * Errors: as above; -EINVAL names the file and line.
 */
HR_API HR_NODISCARD int hr_dataset_open_list(struct hr_dataset **out, const char *path,
                                             const struct hr_dataset_options *options,
                                             struct hr_error *error);

/*
 * Opens a pack (headrace/pack.h). It has the classes, keys, labels and order of the
 * dataset it was made from. Reads the catalog but no items, which takes milliseconds.
 * options->index and threads are ignored. The file stays open as long as the dataset
 * lives, even if the file is replaced or deleted meanwhile.
 * Errors: -ENOENT and others of open; -EBADMSG: not a pack, truncated or damaged;
 * -EINPROGRESS: the pack was not written to its end; -ENOTSUP: made by a newer version
 * or on a different kind of machine; -ENOMEM. Blocks on I/O.
 */
HR_API HR_NODISCARD int hr_dataset_open_pack(struct hr_dataset **out, const char *path,
                                             const struct hr_dataset_options *options,
                                             struct hr_error *error);

/*
 * Opens tar files. `path` is one file, or a brace pattern as WebDataset and shells
 * use it, "train-{000..146}.tar". In WebDataset's layout (the members of a sample are
 * adjacent and share their name up to its first dot) a sample is an image and a .cls
 * member with its label. Without .cls members, an image's directory is its class, as
 * in an image folder. options->label names another member with the label: "FIELD", the
 * rest of the member's name, holds a whole number; "json:class_id" is the member class_id
 * of the JSON object in the field json; with "none" every label is 0. Opening scans all members
 * once; images are then read at random. Samples keep the order of files and members. options->index
 * is ignored, options->image refused. Errors name the file and member: -EBADMSG: damaged or
 * truncated; -ENOTSUP: compressed, or not a tar file; -EINVAL: an image without a label, or two
 * images with one label; -ENODATA: no image; -ECANCELED; -ENOMEM; those of open. Blocks on I/O.
 */
HR_API HR_NODISCARD int hr_dataset_open_tar(struct hr_dataset **out, const char *path,
                                            const struct hr_dataset_options *options,
                                            struct hr_error *error);

/*
 * Opens Parquet tables, as Hugging Face's `datasets` writes them. Each of the `count` paths is a
 * file, a directory (all files *.parquet in it, of one split), a pattern with * or ?, or a brace
 * pattern. A sample is a row with the bytes of an image. options->image names their column, which
 * has bytes or structs with a member "bytes"; NULL: the only feature Image of `datasets`, or the
 * only such column; if there are several, the one named "image". options->label names the column
 * with the label, a whole number; NULL: the only ClassLabel of `datasets`, or the column "label";
 * with "none" every label is 0. The classes of a ClassLabel have names, unless some label is
 * outside them.
 *
 * Opening reads the footers and the lengths of images once; images are then read at random, so
 * their column must not be compressed, as `datasets` 5 writes it. A row whose image is null is a
 * bad sample. Errors name the file and the column: -EBADMSG: damaged or truncated; -ENOTSUP: images
 * that are compressed, an encrypted or no Parquet file; -EINVAL: no such column, a label that is
 * null, or tables of different columns or classes; -ENODATA: no image; -ECANCELED; -ENOMEM; those
 * of open. Blocks on I/O.
 */
HR_API HR_NODISCARD int hr_dataset_open_parquet(struct hr_dataset **out, const char *const *paths,
                                                size_t count,
                                                const struct hr_dataset_options *options,
                                                struct hr_error *error);

/* Opens a dataset of any kind: a directory as an image folder, or as Parquet tables if it holds
 * such files and no directory; a file as a pack, a tar file, a Parquet table or a list, by its
 * content; a pattern that is not a file ("x-{000..146}.tar", "x-*.parquet") as Parquet tables or
 * tar files. */
HR_API HR_NODISCARD int hr_dataset_open(struct hr_dataset **out, const char *path,
                                        const struct hr_dataset_options *options,
                                        struct hr_error *error);

/*
 * Makes a dataset of `count` paths. Copies both arrays.
 * `labels` may be NULL: every label is then 0. Uses no index file.
 */
HR_API HR_NODISCARD int hr_dataset_from_paths(struct hr_dataset **out, const char *const *paths,
                                              const int64_t *labels, size_t count,
                                              struct hr_error *error);

/* Bytes of a file that are one sample. */
struct hr_dataset_range {
    uint64_t file; /* index into hr_dataset_ranges.files */
    uint64_t offset, bytes;
    int64_t label;
};

struct hr_dataset_ranges {
    size_t size; /* sizeof(struct hr_dataset_ranges) */
    const char *const *files;
    size_t file_count;
    const struct hr_dataset_range *ranges;
    size_t count;
};

/*
 * Makes a dataset of samples that are ranges of files, such as an archive of your own or the Arrow
 * files of Hugging Face's `datasets`. Copies everything. A sample's key is the name of its file and
 * the sample's index: "data/000017". A file that changes later is noticed by its size and time.
 * Errors: -EINVAL: a range outside its file; -ENODATA: no range; -ENOTSUP: no regular file; those
 * of stat; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_dataset_from_ranges(struct hr_dataset **out,
                                               const struct hr_dataset_ranges *ranges,
                                               struct hr_error *error);

/*
 * Makes a subset: sample i is sample indices[i] of `parent`. Indices may repeat.
 * Holds a reference to the parent. Errors: -ERANGE names the index.
 */
HR_API HR_NODISCARD int hr_dataset_subset(struct hr_dataset **out, struct hr_dataset *parent,
                                          const int64_t *indices, size_t count,
                                          struct hr_error *error);

/* Adds a reference; returns its argument. */
HR_API struct hr_dataset *hr_dataset_ref(struct hr_dataset *dataset);

/* Drops a reference and sets *dataset to NULL. Accepts NULL. Dropping the last
 * reference stops background work and frees the dataset. */
HR_API void hr_dataset_unref(struct hr_dataset **dataset);

HR_API size_t hr_dataset_count(const struct hr_dataset *dataset);

/* Number of classes; 0 for a dataset without class names (lists). */
HR_API size_t hr_dataset_class_count(const struct hr_dataset *dataset);

/* Name of class `label`, owned by the dataset; NULL if out of range. */
HR_API const char *hr_dataset_class_name(const struct hr_dataset *dataset, size_t label);

/* Label of sample `index`, which must be < count. */
HR_API int64_t hr_dataset_label(const struct hr_dataset *dataset, size_t index);

/* Size of sample `index` in bytes, or HR_SIZE_UNKNOWN if the background scan has not
 * reached it yet. The file may have another size by the time it is read. */
HR_API int64_t hr_dataset_sample_bytes(const struct hr_dataset *dataset, size_t index);

/* Writes the key of sample `index` (its path relative to the root): at most
 * `capacity` bytes with the terminating zero. Returns the length without it,
 * as snprintf does. */
HR_API size_t hr_dataset_key(const struct hr_dataset *dataset, size_t index, char *buffer,
                             size_t capacity);

/* Like hr_dataset_key, but writes a path that can be opened. For a sample inside a
 * container file (a pack, a tar), writes "CONTAINER:KEY", for people to read. */
HR_API size_t hr_dataset_path(const struct hr_dataset *dataset, size_t index, char *buffer,
                              size_t capacity);

/*
 * Computes a digest (XXH3-128) of the names, labels and rows of all samples, in order. Keep it
 * beside a struct hr_loader_state and compare it before restoring that state. The digest ignores
 * the directories that all files of a list have in common, and contents, sizes and times: a folder,
 * a pack made from it and a copy of it elsewhere have the same digest. Any thread.
 * Visits every sample: about 0.1 s for a million.
 */
HR_API void hr_dataset_names_digest(const struct hr_dataset *dataset, uint8_t digest[16]);

/* The directory that a folder dataset was opened with, as given; "" for other datasets. */
HR_API const char *hr_dataset_root(const struct hr_dataset *dataset);

/*
 * Reads sample `index` (< count): the bytes of its file, or of its item in a pack, whose
 * checksum is verified. The bytes may be in any form (headrace/form.h); hr_preparer_*
 * accepts all of them. On success the caller owns *bytes (`length` bytes, 64-byte
 * aligned) and frees it with hr_bytes_free. Errors: those of open and read; -EFBIG: more
 * than 2 GiB; -EBADMSG: damaged in its pack; -ENODATA: the container ends before the
 * sample does; -EMFILE, -ENOMEM. Blocks on I/O.
 */
HR_API HR_NODISCARD int hr_dataset_read(const struct hr_dataset *dataset, size_t index,
                                        void **bytes, size_t *length, struct hr_error *error);

/* Frees bytes that hr_dataset_read returned. Accepts NULL. */
HR_API void hr_bytes_free(void *bytes);

/* Waits until every size is known, of masks too. Never fails with -EINTR. Errors: -ECANCELED: the
 * background scan was stopped. Files that could not be read keep HR_SIZE_UNKNOWN. */
HR_API HR_NODISCARD int hr_dataset_wait_sizes(struct hr_dataset *dataset);

/* How the dataset was opened, to explain the time it took. */
struct hr_dataset_info {
    size_t size;           /* sizeof, set by the caller */
    int from_index;        /* non-zero: names came from a valid index file */
    uint64_t directories;  /* walked or validated */
    uint64_t memory_bytes; /* resident bytes of names, labels, sizes and rows */
    char index_path[1024]; /* "" when none is used */
    /* Of a dataset at URLs since it was opened; else 0. */
    uint64_t object_requests, object_lists; /* all; those that list */
    double object_cost_usd; /* an estimate, with HEADRACE_OBJECT_PRICES (docs/object-storage.md) */
};

HR_API void hr_dataset_get_info(const struct hr_dataset *dataset, struct hr_dataset_info *info);

/* One sample that could not be decoded. */
struct hr_bad_sample {
    uint64_t index;
    const char *path;   /* owned by the report */
    const char *reason; /* owned by the report */
};

struct hr_verify_report;

/*
 * Reads and decodes every sample (whole images) on `threads` threads (0: the
 * cores of this process) and collects those that fail, by index. Progress
 * counts samples. On success the caller owns *out and destroys it with
 * hr_verify_report_destroy. Bad samples do not make the call fail. Errors:
 * -ECANCELED, -ENOMEM. Blocks.
 */
HR_API HR_NODISCARD int hr_dataset_verify(struct hr_dataset *dataset, int threads,
                                          hr_progress_fn progress, void *progress_arg,
                                          struct hr_verify_report **out, struct hr_error *error);

HR_API size_t hr_verify_report_count(const struct hr_verify_report *report);
HR_API void hr_verify_report_get(const struct hr_verify_report *report, size_t i,
                                 struct hr_bad_sample *sample);
HR_API void hr_verify_report_destroy(struct hr_verify_report **report);

#ifdef __cplusplus
}
#endif

#endif
