/*
 * Forms: how the bytes of a sample are kept.
 *
 * `encoded` is the image file as it lies on storage. `coefficients` holds the
 * quantised coefficients of a JPEG, losslessly repacked so that any region
 * decodes several times faster, for about 1.35 times the bytes. `planes` holds
 * the decoded Y, Cb and Cr at their own resolution: faster again, for 3 to 6
 * times the bytes. Pixels are the same in all of them, and whoever takes image
 * bytes (hr_preparer_*, a loader) takes items of every form and tells them by
 * their first bytes.
 *
 * A converter is used by one thread at a time.
 */
#ifndef HEADRACE_FORM_H
#define HEADRACE_FORM_H

#include <headrace/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum hr_form { HR_FORM_ENCODED = 0, HR_FORM_COEFFICIENTS = 1, HR_FORM_PLANES = 2 };

/* Where a form is asked for: the one that is worth its bytes, chosen by whoever is
 * asked. */
#define HR_FORM_AUTO (-1)

/* "encoded", "coefficients", "planes"; NULL for another value. Static storage. */
HR_API const char *hr_form_name(enum hr_form form);

/* The form of these bytes: encoded unless they begin as an item does. */
HR_API enum hr_form hr_form_of(const void *bytes, size_t length);

struct hr_converter;

struct hr_converter_options {
    size_t size;         /* sizeof(struct hr_converter_options) */
    int trust;           /* 0 (default): every item is decoded and compared with
                            libjpeg-turbo's pixels before it is given out; non-zero:
                            kinds that Headrace's tests prove are taken as they are */
    double max_growth;   /* largest bytes of an item over those of its JPEG; 0
                            (default): any */
    uint64_t max_pixels; /* of an image; 0 (default): that of hr_recipe_options */
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

/* `options` may be NULL. On success *out is the caller's. Errors: -EINVAL, -ENOMEM. */
HR_API HR_NODISCARD int hr_converter_create(struct hr_converter **out,
                                            const struct hr_converter_options *options,
                                            struct hr_error *error);
HR_API void hr_converter_destroy(struct hr_converter **converter);

/*
 * Converts encoded bytes to `form`. *item points into memory of the converter,
 * valid until its next call; for HR_FORM_ENCODED, at `bytes`.
 * Errors: -ENOTSUP: an image that stays encoded, and why (not a JPEG, CMYK,
 * 12 bits, arithmetic coding, a sampling that is not known, pixels that would
 * differ); -ENOSPC: beyond max_growth; -EBADMSG: damaged; -EFBIG: more than
 * max_pixels; -EINVAL: no such form; -ENOMEM. *item is then untouched.
 */
HR_API HR_NODISCARD int hr_converter_run(struct hr_converter *converter, enum hr_form form,
                                         const void *bytes, size_t length, struct hr_item *item,
                                         struct hr_error *error);

/*
 * An image file with the pixels of an item: of coefficients a JPEG with the very
 * coefficients, of planes a PNG, of encoded bytes themselves. Memory as above.
 * EXIF orientation is kept, other metadata is not in the item any more.
 * Errors: -EBADMSG: damaged; -ENOTSUP; -EFBIG: more than max_pixels; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_converter_restore(struct hr_converter *converter, const void *bytes,
                                             size_t length, struct hr_item *item,
                                             struct hr_error *error);

/* What an image would take in a form. Reads the header only. */
struct hr_form_estimate {
    size_t size;    /* sizeof, set by the caller */
    uint64_t bytes; /* of the item: exact for encoded and planes, else expected */
    int possible;   /* 0: it stays encoded, as far as the header tells */
};
HR_API HR_NODISCARD int hr_converter_estimate(struct hr_converter *converter, enum hr_form form,
                                              const void *bytes, size_t length,
                                              struct hr_form_estimate *estimate,
                                              struct hr_error *error);

HR_API size_t hr_converter_memory(const struct hr_converter *converter);

#ifdef __cplusplus
}
#endif

#endif
