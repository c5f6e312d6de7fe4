/*
 * Packs: a dataset in one file, with items in a form that decodes fast.
 *
 * A pack holds the classes, keys, labels, rows, masks and order of the dataset it was made
 * from, and gives the same batches as that dataset, bit for bit. Open it with
 * hr_dataset_open (or hr_dataset_open_pack) like any other dataset.
 *
 * Thread safety: only one call at a time may work on a file (a second writer of the
 * same pack gets an error). Calls on different files are independent.
 */
#ifndef HEADRACE_PACK_H
#define HEADRACE_PACK_H

#include <headrace/base.h>
#include <headrace/dataset.h>
#include <headrace/form.h>
#include <headrace/sound.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * HR_FORM_AUTO chooses for each image the form that is worth its bytes: a form is
 * chosen over the next smaller one if it saves HR_PACK_NS_PER_BYTE of decoding a
 * training crop for every additional byte. Times come from a fixed model of
 * bytes and pixels (docs/packs.md), not from a clock, so that the same images always
 * give the same pack.
 */
#define HR_PACK_NS_PER_BYTE 5

/* Why a sample is stored unchanged (encoded) in the pack. */
enum hr_pack_kept {
    HR_PACK_CONVERTED = 0,   /* it is not encoded: it was converted */
    HR_PACK_KEPT_ASKED = 1,  /* the caller asked for the form `encoded` */
    HR_PACK_KEPT_FORMAT = 2, /* not a JPEG, nor a PNG as planes */
    HR_PACK_KEPT_KIND = 3,   /* a JPEG of a kind that has no other form (CMYK, 12 bits, ...) */
    HR_PACK_KEPT_GROWTH = 4, /* the item would be larger than max_growth allows */
    HR_PACK_KEPT_WORTH = 5,  /* HR_FORM_AUTO: no other form is worth its bytes */
    HR_PACK_KEPT_BAD = 6,    /* it cannot be read or decoded (on_error = skip) */
    HR_PACK_KEPT_COUNT = 7
};

/* "not a JPEG" and so on, for people to read; NULL for another value. Static storage. */
HR_API const char *hr_pack_kept_text(enum hr_pack_kept kept);

/* Reports a sample that was stored unchanged although another form was asked for, or, with
 * HR_PACK_CONVERTED, a progressive file of which `indexed` holds a baseline one (form.h).
 * Called in the order of samples, on the thread that made the call. `sample` is valid
 * during the call. Of samples that an earlier, unfinished run wrote, reports only bad
 * ones. */
typedef void (*hr_pack_notice_fn)(void *arg, const struct hr_bad_sample *sample,
                                  enum hr_pack_kept kept);

struct hr_pack_options {
    size_t size;               /* sizeof(struct hr_pack_options) */
    int form;                  /* enum hr_form, default coefficients; or HR_FORM_AUTO */
    int threads;               /* that convert; 0 (default): the cores of this process */
    int trust;                 /* as hr_converter_options.trust; non-zero also skips decoding
                                  encoded samples to find bad ones */
    double max_growth;         /* as hr_converter_options.max_growth */
    int restart;               /* non-zero: discard an unfinished pack beside `path`
                                  instead of continuing it */
    int overwrite;             /* non-zero: replace an existing pack at `path` once the
                                  new one is complete */
    enum hr_on_error on_error; /* for a sample that cannot be read or decoded: raise
                                  (default), or skip: store it unchanged (empty if it
                                  cannot be read) and report it */
    hr_progress_fn progress;   /* counts samples */
    void *progress_arg;
    hr_pack_notice_fn notice; /* may be NULL */
    void *notice_arg;
    uint64_t commit_bytes;     /* write: sync finished samples to storage after this many bytes, or
                                  after two seconds; 0 (default) and maximum: 64 MiB */
    struct hr_sound_head head; /* waveforms: what they are made with; the recipes that use the pack
                                  have to begin with it. All zero (default): each sound as it is */
    const char *staging; /* write to a URL: the directory for what is not sent yet; NULL (default):
                            headrace/upload in the user's cache directory */
    uint64_t part_bytes; /* write to a URL: of the parts that are sent; 0 (default): 16 MiB, or as
                            many as let 10,000 parts suffice. Stores want 5 MiB at least */
};
HR_API void hr_pack_options_init(struct hr_pack_options *options, size_t size);
static inline void hr_pack_options_default(struct hr_pack_options *options)
{
    hr_pack_options_init(options, sizeof *options);
}

/* The samples that a pack holds in one form. */
struct hr_pack_form {
    uint64_t samples;
    uint64_t bytes; /* of the items */
};

/* The contents of a pack, or the result of writing or unpacking one. */
struct hr_pack_result {
    size_t size; /* sizeof, set by the caller */
    uint64_t samples;
    uint64_t samples_of_form[3];               /* as in `forms`, of the first three */
    uint64_t bytes_of_form[3];                 /* likewise */
    uint64_t samples_kept[HR_PACK_KEPT_COUNT]; /* by enum hr_pack_kept */
    uint64_t source_bytes;                     /* of the image files */
    uint64_t pack_bytes; /* size of the pack's file; unpack: size of the files written */
    uint64_t continued;  /* samples that an earlier, unfinished run had written */
    uint64_t bad;        /* on_error = skip: samples stored unchanged, or left out */
    struct hr_pack_form forms[HR_FORMS]; /* by enum hr_form */
    uint64_t rows_bytes;       /* of the rows that the pack has (headrace/rows.h); 0: none */
    struct hr_sound_head head; /* of waveforms */
    enum hr_media media;       /* of the samples, by the name of the first one */
    uint64_t masks;            /* how many of the samples are masks (headrace/masks.h) */
};

/*
 * Writes `dataset` to a pack at `path`. The pack is written to PATH.partial and renamed
 * to `path` once it is complete and on storage. If the process is killed, the same call
 * continues it. The file depends only on the samples and the options, not on the
 * number of threads or on how often it was continued. `options` and `result` may be
 * NULL.
 * `path` may be a URL, s3://BUCKET/KEY or gs://BUCKET/KEY: the pack is sent in parts while
 * it is written, and is there once it is complete. This machine keeps what is not sent yet
 * (options->staging: the index and up to some 400 MB); the same call there continues it.
 * Errors: -EEXIST: `path` exists; -ENOSPC and other errors of storage (finished
 * samples are kept); with raise, the error of a sample, whose message names its path;
 * -ESTALE: the unfinished pack was made from another dataset, with other options, or
 * from files that have changed since; -EBUSY: another process is writing it;
 * -ECANCELED (finished samples are kept); -EINVAL names the option; -ENOTSUP: a produced dataset,
 * or one with masks whose images or masks are no files of their own; -ENOMEM. Blocks.
 */
HR_API HR_NODISCARD int hr_pack_write(struct hr_dataset *dataset, const char *path,
                                      const struct hr_pack_options *options,
                                      struct hr_pack_result *result, struct hr_error *error);

/*
 * Describes the contents of a pack, from its index; reads no item.
 * Errors: -EBADMSG: not a pack, or its index is damaged; those of open and read;
 * -ENOMEM. Blocks.
 */
HR_API HR_NODISCARD int hr_pack_inspect(const char *path, struct hr_pack_result *result,
                                        struct hr_error *error);

/*
 * Checks a pack: its index, every item's checksum, and that every item decodes.
 * Bad samples do not make the call fail; *out lists them as hr_dataset_verify does.
 * `threads` 0: the cores of this process.
 * Errors: as hr_pack_inspect; -ECANCELED. Blocks.
 */
HR_API HR_NODISCARD int hr_pack_verify(const char *path, int threads, hr_progress_fn progress,
                                       void *progress_arg, struct hr_verify_report **out,
                                       struct hr_error *error);

/*
 * Writes every sample of a pack as an image file below `directory` (made if it does not
 * exist), at the path given by its key, with its source file's modification time:
 * `encoded` and `indexed` as the very file that was packed, `coefficients` as a JPEG with
 * the same coefficients, `planes` as a PNG (".png" is appended to its name). If the files are not
 * in directories of their classes, writes the labels to a file list.txt there. Existing files are
 * not replaced (-EEXIST) unless options->overwrite is set. Links below `directory` are not
 * followed, and a key that leads out of it is refused (-EINVAL). Uses only these options: threads,
 * overwrite, on_error, progress and notice. With on_error = skip, samples that are damaged in the
 * pack are left out and reported as HR_PACK_KEPT_BAD. Errors: as hr_pack_inspect and of storage;
 * -ECANCELED. Blocks.
 */
HR_API HR_NODISCARD int hr_pack_unpack(const char *path, const char *directory,
                                       const struct hr_pack_options *options,
                                       struct hr_pack_result *result, struct hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
