/*
 * Packs: a dataset in one file, its items in a form that decodes fast.
 *
 * A pack holds the classes, keys, labels and order of the dataset it was made
 * from, and gives the same batches, bit for bit, as that dataset. It is opened
 * with hr_dataset_open (or hr_dataset_open_pack) like any other.
 *
 * Thread safety: one call works on one file at a time (a second writer of the
 * same pack is refused); calls on different files are independent.
 */
#ifndef HEADRACE_PACK_H
#define HEADRACE_PACK_H

#include <headrace/base.h>
#include <headrace/dataset.h>
#include <headrace/form.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * With HR_FORM_AUTO each image gets the form that is worth its bytes. A form is worth
 * them when it saves HR_PACK_NS_PER_BYTE of decoding a training crop for every byte
 * that it takes more than the next smaller form. Times come from a fixed model of
 * bytes and pixels (docs/packs.md), not from a clock, so that the same images always
 * give the same pack.
 */
#define HR_PACK_NS_PER_BYTE 5

/* Why a sample is in the pack as it came, encoded. */
enum hr_pack_kept {
    HR_PACK_CONVERTED = 0,   /* it is not */
    HR_PACK_KEPT_ASKED = 1,  /* the form `encoded` was asked for */
    HR_PACK_KEPT_FORMAT = 2, /* not a JPEG */
    HR_PACK_KEPT_KIND = 3,   /* a JPEG of a kind that has no other form (CMYK, 12 bits, ...) */
    HR_PACK_KEPT_GROWTH = 4, /* the form would take more than max_growth */
    HR_PACK_KEPT_WORTH = 5,  /* HR_FORM_AUTO: no other form is worth its bytes */
    HR_PACK_KEPT_BAD = 6,    /* it cannot be read or decoded (on_error = skip) */
    HR_PACK_KEPT_COUNT = 7
};

/* "not a JPEG" and so on, for people; NULL for another value. Static storage. */
HR_API const char *hr_pack_kept_text(enum hr_pack_kept kept);

/* Tells of a sample that is kept as it came although another form was asked for, in
 * order of the samples, on the thread that made the call. `sample` is valid during
 * the call. An earlier, unfinished run's samples are told of only if they are bad. */
typedef void (*hr_pack_notice_fn)(void *arg, const struct hr_bad_sample *sample,
                                  enum hr_pack_kept kept);

struct hr_pack_options {
    size_t size;               /* sizeof(struct hr_pack_options) */
    int form;                  /* enum hr_form, default coefficients; or HR_FORM_AUTO */
    int threads;               /* that convert; 0 (default): the cores of this process */
    int trust;                 /* as hr_converter_options.trust; encoded samples are not
                                  decoded to find the bad ones either */
    double max_growth;         /* as hr_converter_options.max_growth */
    int restart;               /* non-zero: an unfinished pack beside `path` is thrown away
                                  instead of being continued */
    int overwrite;             /* non-zero: an existing pack at `path` is replaced when the
                                  new one is complete */
    enum hr_on_error on_error; /* a sample that cannot be read or decoded: raise
                                  (default), or skip: it is kept as it is (empty where it
                                  cannot be read), and told of */
    hr_progress_fn progress;   /* counts samples */
    void *progress_arg;
    hr_pack_notice_fn notice; /* may be NULL */
    void *notice_arg;
    uint64_t commit_bytes; /* write: what is done is made safe on storage after so many bytes,
                              and after two seconds; 0 (default), and at most: 64 MiB */
};
HR_API void hr_pack_options_init(struct hr_pack_options *options, size_t size);
static inline void hr_pack_options_default(struct hr_pack_options *options)
{
    hr_pack_options_init(options, sizeof *options);
}

/* What is in a pack, or came of writing or unpacking one. */
struct hr_pack_result {
    size_t size; /* sizeof, set by the caller */
    uint64_t samples;
    uint64_t samples_of_form[3];               /* by enum hr_form */
    uint64_t bytes_of_form[3];                 /* of the items, likewise */
    uint64_t samples_kept[HR_PACK_KEPT_COUNT]; /* by enum hr_pack_kept */
    uint64_t source_bytes;                     /* of the image files */
    uint64_t pack_bytes; /* of the pack's file; unpack: of the files written */
    uint64_t continued;  /* samples that an earlier, unfinished run had done */
    uint64_t bad;        /* on_error = skip: kept as they are, or left out */
};

/*
 * Writes `dataset` to a pack at `path`. It grows beside it, as PATH.partial, and
 * takes its name when it is complete and on storage; after a kill the same call
 * continues it. The file depends on the samples and the options only: not on the
 * number of threads, nor on how often it was continued. `options` may be NULL, and
 * so may `result`.
 * Errors: -EEXIST: there is something at `path`; -ENOSPC and other errors of
 * storage (what is done is kept); with raise, the error of a sample, whose message
 * names its path; -ESTALE: the unfinished pack is of another dataset, of other
 * options, or of files that have changed since; -EBUSY: another process is writing
 * it; -ECANCELED (what is done is kept); -EINVAL names the option; -ENOMEM. Blocks.
 */
HR_API HR_NODISCARD int hr_pack_write(struct hr_dataset *dataset, const char *path,
                                      const struct hr_pack_options *options,
                                      struct hr_pack_result *result, struct hr_error *error);

/*
 * What a pack holds, from its index; reads no item.
 * Errors: -EBADMSG: not a pack, or its index is damaged; those of open and read;
 * -ENOMEM. Blocks.
 */
HR_API HR_NODISCARD int hr_pack_inspect(const char *path, struct hr_pack_result *result,
                                        struct hr_error *error);

/*
 * Checks a pack: its index, every item's checksum, and that every item decodes.
 * Bad samples are a success, in *out as of hr_dataset_verify. `threads` 0: the cores
 * of this process.
 * Errors: as hr_pack_inspect; -ECANCELED. Blocks.
 */
HR_API HR_NODISCARD int hr_pack_verify(const char *path, int threads, hr_progress_fn progress,
                                       void *progress_arg, struct hr_verify_report **out,
                                       struct hr_error *error);

/*
 * Writes every sample of a pack as an image file below `directory` (made if need
 * be), at its key, with the time of the file that it came from: `coefficients` as
 * JPEG with the very coefficients, `encoded` as it was, `planes` as PNG (its name
 * gets ".png"). Of a pack without classes the file list.txt there tells the labels.
 * Existing files are not replaced (-EEXIST) unless options->overwrite; no link below
 * `directory` is followed, and a key that leads out of it is refused (-EINVAL).
 * Of the options threads, overwrite, on_error, progress and notice count. With
 * on_error = skip, samples that are damaged in the pack are left out and told of as
 * HR_PACK_KEPT_BAD. Errors: as hr_pack_inspect and of storage; -ECANCELED. Blocks.
 */
HR_API HR_NODISCARD int hr_pack_unpack(const char *path, const char *directory,
                                       const struct hr_pack_options *options,
                                       struct hr_pack_result *result, struct hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
