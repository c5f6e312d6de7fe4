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
 */
#ifndef HEADRACE_FORM_H
#define HEADRACE_FORM_H

#include <headrace/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum hr_form { HR_FORM_ENCODED = 0, HR_FORM_COEFFICIENTS = 1, HR_FORM_PLANES = 2 };

/* "encoded", "coefficients", "planes"; NULL for another value. Static storage. */
HR_API const char *hr_form_name(enum hr_form form);

/* The form of these bytes: encoded unless they begin as an item does. */
HR_API enum hr_form hr_form_of(const void *bytes, size_t length);

#ifdef __cplusplus
}
#endif

#endif
