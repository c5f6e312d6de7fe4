/*
 * What the samples are.
 *
 * A dataset is an immutable, reference-counted list of samples. Each has an
 * index (its position in the dataset, from 0), a key (its path relative to the
 * root, bytes as the file system gave them), an integer label and, once it is
 * known, a size in bytes. Sources are an image folder (root/class/...), an
 * explicit list of paths, and a pack (one file that holds all samples).
 *
 * Thread safety: every function may be called from any thread at any time on
 * a dataset that the caller holds a reference to.
 */
#ifndef HEADRACE_DATASET_H
#define HEADRACE_DATASET_H

#include <headrace/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_dataset;

/* Size of a sample that is not known yet. */
#define HR_SIZE_UNKNOWN (-1)

/* Where the index file of a folder is kept: it saves the next open the walk. */
enum hr_index_policy {
    HR_INDEX_USER_CACHE = 0,  /* $XDG_CACHE_HOME/headrace/index, or ~/.cache/... */
    HR_INDEX_BESIDE_DATA = 1, /* ROOT/.headrace-index */
    HR_INDEX_NONE = 2,        /* neither read nor written */
};

/* Progress of a long call: called on the thread that made the call, at most some
 * ten times a second and once at the end of each stage; total is 0 where it is
 * not known yet. A non-zero return cancels: the call that was given the
 * callback returns -ECANCELED. */
typedef int (*hr_progress_fn)(void *arg, uint64_t done, uint64_t total, const char *stage);

/* What becomes of samples that cannot be read or decoded. */
enum hr_on_error {
    HR_ON_ERROR_RAISE = 0, /* the call fails with the sample's error; a loader's next at the
                              turn of the sample's batch */
    HR_ON_ERROR_SKIP = 1,  /* the sample is counted and listed; a loader replaces it */
};

struct hr_dataset_options {
    size_t size; /* sizeof(struct hr_dataset_options) */
    enum hr_index_policy index;
    int threads;             /* for walking and stat; 0: 16, or the cores where they are more */
    int wait_sizes;          /* non-zero: sizes and times are known on return;
                                0: names only, sizes follow in the background */
    int allow_empty_classes; /* non-zero: a class folder without an image is
                                kept; 0: it is an error, as in torchvision */
    hr_progress_fn progress; /* may be NULL */
    void *progress_arg;
};

/* Fills in the defaults of a struct of `size` bytes, of whatever version: for
 * bindings of other languages. C programs call the next one. */
HR_API void hr_dataset_options_init(struct hr_dataset_options *options, size_t size);

static inline void hr_dataset_options_default(struct hr_dataset_options *options)
{
    hr_dataset_options_init(options, sizeof *options);
}

/*
 * Opens an image folder: one class per directory directly under `path`, in the
 * order of their names (code points, as Python sorts them), every file below it (nested folders
 * too, links followed, link loops left out) whose extension is one of torchvision's IMG_EXTENSIONS,
 * case-insensitively, in the order torchvision's ImageFolder gives. Uses and writes the index file
 * as options->index says; an index that cannot be read or written is never an error. An index is
 * believed while every directory is as it was and a spot check of files agrees; a single file that
 * was rewritten in place may keep the size and time that the index has for it.
 *
 * On success *out holds one reference. Errors: -ENOENT, -ENOTDIR, -EACCES;
 * -ENODATA: no class, no image, or an empty class; -ECANCELED; -ENOMEM.
 * Blocks on I/O.
 */
HR_API HR_NODISCARD int hr_dataset_open_folder(struct hr_dataset **out, const char *path,
                                               const struct hr_dataset_options *options,
                                               struct hr_error *error);

/*
 * Opens a list file: one sample a line, "path<TAB>label" or "path label" (the
 * last field is the label, an integer); empty lines and lines that begin with
 * '#' are passed over; relative paths are relative to the list file.
 * Errors as above; -EINVAL names file and line.
 */
HR_API HR_NODISCARD int hr_dataset_open_list(struct hr_dataset **out, const char *path,
                                             const struct hr_dataset_options *options,
                                             struct hr_error *error);

/*
 * Opens a pack (headrace/pack.h): the classes, keys, labels and order of the
 * dataset it was made from. Its catalog is read, none of its items, so this takes
 * milliseconds. options->index and threads do not matter. The file stays open
 * until the dataset ends, also when it is replaced or deleted meanwhile.
 * Errors: -ENOENT and others of open; -EBADMSG: no pack, cut or damaged;
 * -EINPROGRESS: its writing has not been finished; -ENOTSUP: of a newer version or
 * another machine; -ENOMEM. Blocks on I/O.
 */
HR_API HR_NODISCARD int hr_dataset_open_pack(struct hr_dataset **out, const char *path,
                                             const struct hr_dataset_options *options,
                                             struct hr_error *error);

/*
 * Opens tar files: `path` is one, or a pattern with braces as WebDataset and shells
 * write it, "train-{000..146}.tar". In WebDataset's layout (members of one sample
 * side by side, with the same name up to its first dot) a sample is an image and
 * a .cls with its label; where there is no .cls, an image's directory is its class, as
 * in an image folder. One pass looks through all members; images are then read at
 * random. Samples come in the order of files and members. options->index does not
 * matter. Errors name file and member: -EBADMSG: damaged or cut off; -ENOTSUP:
 * compressed, or no tar; -EINVAL: an image without a label or two of one; -ENODATA: no
 * image; -ECANCELED; -ENOMEM; those of open. Blocks on I/O.
 */
HR_API HR_NODISCARD int hr_dataset_open_tar(struct hr_dataset **out, const char *path,
                                            const struct hr_dataset_options *options,
                                            struct hr_error *error);

/* Opens what `path` is: a directory as a folder, a file by its content as a pack, a
 * tar file or a list, and a pattern with braces that is no file as tar files. */
HR_API HR_NODISCARD int hr_dataset_open(struct hr_dataset **out, const char *path,
                                        const struct hr_dataset_options *options,
                                        struct hr_error *error);

/*
 * A dataset of `count` samples given by the caller; both arrays are copied.
 * `labels` may be NULL: every label is 0. The index is not used.
 */
HR_API HR_NODISCARD int hr_dataset_from_paths(struct hr_dataset **out, const char *const *paths,
                                              const int64_t *labels, size_t count,
                                              struct hr_error *error);

/*
 * The samples of `parent` at `indices`, in that order, with repeats allowed;
 * sample i of the result is sample indices[i] of the parent. Holds a reference
 * to the parent. Errors: -ERANGE names the index.
 */
HR_API HR_NODISCARD int hr_dataset_subset(struct hr_dataset **out, struct hr_dataset *parent,
                                          const int64_t *indices, size_t count,
                                          struct hr_error *error);

/* Takes one more reference; returns its argument. */
HR_API struct hr_dataset *hr_dataset_ref(struct hr_dataset *dataset);

/* Gives one reference back and sets *dataset to NULL. Accepts NULL. The last
 * one stops background work and frees the dataset. */
HR_API void hr_dataset_unref(struct hr_dataset **dataset);

HR_API size_t hr_dataset_count(const struct hr_dataset *dataset);

/* Classes; 0 for a dataset without names (lists). */
HR_API size_t hr_dataset_class_count(const struct hr_dataset *dataset);

/* Name of class `label`; owned by the dataset; NULL out of range. */
HR_API const char *hr_dataset_class_name(const struct hr_dataset *dataset, size_t label);

/* Label of sample `index`, which must be < count. */
HR_API int64_t hr_dataset_label(const struct hr_dataset *dataset, size_t index);

/* Bytes of sample `index`, or HR_SIZE_UNKNOWN while the background has not
 * come to it. What a file has on storage when it is read may differ. */
HR_API int64_t hr_dataset_sample_bytes(const struct hr_dataset *dataset, size_t index);

/* The key of sample `index`: path relative to the root. Writes at most
 * `capacity` bytes with the terminating zero; returns the length without it,
 * as snprintf does. */
HR_API size_t hr_dataset_key(const struct hr_dataset *dataset, size_t index, char *buffer,
                             size_t capacity);

/* The same, but a path that can be opened; of a sample that is a piece of a
 * container file (a pack, a tar), "CONTAINER:KEY", for people to read. */
HR_API size_t hr_dataset_path(const struct hr_dataset *dataset, size_t index, char *buffer,
                              size_t capacity);

/*
 * Which samples these are: a digest (XXH3-128) of their names and labels in their order, to
 * keep beside a struct hr_loader_state and to compare before it is restored. Of names, that is
 * without the directories that all files of a list are below; contents, sizes and times have
 * no part in it. A folder, a pack of it and a copy elsewhere have the same one. Any thread.
 * Looks at each sample: about 0.1 s for a million.
 */
HR_API void hr_dataset_names_digest(const struct hr_dataset *dataset, uint8_t digest[16]);

/* The directory a folder dataset was opened at, as given; "" otherwise. */
HR_API const char *hr_dataset_root(const struct hr_dataset *dataset);

/*
 * Reads sample `index` (< count), wherever it is: the bytes of its file, or of its
 * item in a pack, whose checksum is verified; in whatever form they are
 * (headrace/form.h; hr_preparer_* takes them all). On success *bytes, `length` of
 * them, 64-byte aligned, is the caller's, freed with hr_bytes_free. Errors: those
 * of open and read; -EFBIG: more than 2 GiB; -EBADMSG: damaged in its pack;
 * -ENODATA: the container ends before; -EMFILE, -ENOMEM. Blocks on I/O.
 */
HR_API HR_NODISCARD int hr_dataset_read(const struct hr_dataset *dataset, size_t index,
                                        void **bytes, size_t *length, struct hr_error *error);

/* Frees what hr_dataset_read gave. Accepts NULL. */
HR_API void hr_bytes_free(void *bytes);

/* Waits until every size is known. Errors: -EINTR-free; -ECANCELED when the
 * background was stopped. Files that could not be read keep HR_SIZE_UNKNOWN. */
HR_API HR_NODISCARD int hr_dataset_wait_sizes(struct hr_dataset *dataset);

/* How the dataset came to be, for people who wonder about the time it took. */
struct hr_dataset_info {
    size_t size;           /* sizeof, set by the caller */
    int from_index;        /* non-zero: names came from a valid index file */
    uint64_t directories;  /* walked or validated */
    uint64_t memory_bytes; /* resident bytes of names, labels and sizes */
    char index_path[1024]; /* "" when none is used */
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
 * counts samples. On success *out is the caller's, to be destroyed with
 * hr_verify_report_destroy; bad samples are a success. Errors: -ECANCELED,
 * -ENOMEM. Blocks.
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
