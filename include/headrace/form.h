/*
 * Forms: how the bytes of a sample are stored.
 *
 * `encoded` is the image file, unchanged. `indexed` is a JPEG file, unchanged, with an
 * index that lets decoding begin inside it; it takes about 1.02 times the bytes and is
 * restored byte for byte. Only progressive files are rewritten for it, as baseline files
 * with the same coefficients and metadata, in about 1.05 times the bytes; those are what
 * is restored. `coefficients` holds the quantised
 * coefficients of a JPEG, losslessly repacked so that any region decodes several
 * times faster; it takes about 1.12 times the bytes. `planes` holds the decoded Y,
 * Cb and Cr planes at their own resolution; it decodes faster still and takes 3 to 6
 * times the bytes. It is also the only form of a PNG, whose R, G and B it holds, in twice
 * the bytes. All forms give the same pixels.
 *
 * Sounds have two forms besides `encoded`. `waveform` holds the samples of the whole sound as
 * float32, after the head of a recipe (sound.h): mixed to one channel, resampled, both or neither.
 * A recipe with the same head gives the same results from it as from the file, bit for bit.
 * `waveform16` holds them as int16 in half the bytes: within 1.5e-5 of full scale, and of a sound
 * that exceeds full scale, times the power of two that covers it. It is used only where asked for.
 *
 * Every function that takes the bytes of samples (hr_preparer_*, a loader) takes items of every
 * form and recognises the form by the first bytes.
 *
 * Only one thread at a time may use a converter.
 */
#ifndef HEADRACE_FORM_H
#define HEADRACE_FORM_H

#include <headrace/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum hr_form {
    HR_FORM_ENCODED = 0,
    HR_FORM_COEFFICIENTS = 1,
    HR_FORM_PLANES = 2,
    HR_FORM_INDEXED = 3,
    HR_FORM_WAVEFORM = 4,
    HR_FORM_WAVEFORM16 = 5,
};

/* The number of forms. */
#define HR_FORMS 6

/* In place of a form: let the library choose the form that is worth its bytes. */
#define HR_FORM_AUTO (-1)

/* "encoded", "coefficients", "planes", "indexed", "waveform", "waveform16"; NULL for another value.
 * Static storage. */
HR_API const char *hr_form_name(enum hr_form form);

/* Returns the form of these bytes: encoded, unless they begin with an item's header. */
HR_API enum hr_form hr_form_of(const void *bytes, size_t length);

struct hr_converter;

struct hr_converter_options {
    size_t size;         /* sizeof(struct hr_converter_options) */
    int trust;           /* 0 (default): decode every item and compare it with
                            libjpeg-turbo's pixels before returning it; non-zero: do not
                            check kinds of JPEG that Headrace's tests prove correct */
    double max_growth;   /* largest ratio of an item's bytes to its JPEG's; 0
                            (default): no limit */
    uint64_t max_pixels; /* of an image; 0 (default): the default of hr_recipe_options */
};
HR_API void hr_converter_options_init(struct hr_converter_options *options, size_t size);
static inline void hr_converter_options_default(struct hr_converter_options *options)
{
    hr_converter_options_init(options, sizeof *options);
}

/* One image in some form. */
struct hr_item {
    const void *bytes;
    size_t length;
    enum hr_form form;
};

/* An item in parts, which follow each other without gaps. */
#define HR_ITEM_PARTS 3
struct hr_item_part {
    const void *bytes;
    size_t length;
};

/* `options` may be NULL. On success the caller owns *out. Errors: -EINVAL, -ENOMEM. */
HR_API HR_NODISCARD int hr_converter_create(struct hr_converter **out,
                                            const struct hr_converter_options *options,
                                            struct hr_error *error);
HR_API void hr_converter_destroy(struct hr_converter **converter);

/*
 * Converts encoded bytes to `form`. *item points into the converter's memory, valid
 * until its next call; for HR_FORM_ENCODED it points to `bytes`. Waveforms are made by
 * hr_preparer_waveform (sound.h).
 * Errors: -ENOTSUP: the image has no other form; the message says why (neither
 * JPEG nor PNG, CMYK, 12 bits, arithmetic coding, an unknown sampling, or the pixels would
 * differ); -ENOSPC: larger than max_growth allows; -EBADMSG: damaged; -EFBIG: more
 * than max_pixels; -EINVAL: no such form; -ENOMEM. On error *item does not change.
 */
HR_API HR_NODISCARD int hr_converter_run(struct hr_converter *converter, enum hr_form form,
                                         const void *bytes, size_t length, struct hr_item *item,
                                         struct hr_error *error);

/*
 * Converts an item to an image file with the same pixels: `indexed` to the very file it
 * was made of (inside `bytes`), or to a baseline file with the coefficients and metadata
 * of a progressive one, `coefficients` to a JPEG with the same coefficients,
 * `planes` to a PNG, waveforms to a WAV file of float32; `encoded` bytes are returned as they are.
 * Memory as above. Keeps the EXIF orientation; `coefficients` and `planes` hold no other metadata.
 * Errors: -EBADMSG: damaged; -ENOTSUP; -EFBIG: more than max_pixels; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_converter_restore(struct hr_converter *converter, const void *bytes,
                                             size_t length, struct hr_item *item,
                                             struct hr_error *error);

/* Estimates the size of an image in a form. Reads only the header. */
struct hr_form_estimate {
    size_t size;    /* sizeof, set by the caller */
    uint64_t bytes; /* of the item: an estimate for coefficients and for progressive
                       files as indexed, exact otherwise */
    int possible;   /* 0: the header shows that the image must stay encoded */
};
HR_API HR_NODISCARD int hr_converter_estimate(struct hr_converter *converter, enum hr_form form,
                                              const void *bytes, size_t length,
                                              struct hr_form_estimate *estimate,
                                              struct hr_error *error);

/* Memory that the converter holds, in bytes. */
HR_API size_t hr_converter_memory(const struct hr_converter *converter);

#ifdef __cplusplus
}
#endif

#endif
