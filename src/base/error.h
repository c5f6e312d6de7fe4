/*
 * Error reporting (struct hr_error) and the log.
 *
 * Report every failure with hr__fail: `return hr__fail(error, -EINVAL, "...")`. A message says what
 * failed, where, and what the user can do about it. Error messages and log lines pass through
 * hr__printable, so callers may format file names into them unchanged.
 */
#ifndef HR_BASE_ERROR_H
#define HR_BASE_ERROR_H

#include <headrace/base.h>

/* Writes `code` (a negative errno) and the formatted message into *error, unless `error` is NULL.
 * Returns `code`. The arguments may point into *error. */
int hr__fail(struct hr_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the system's text for a positive or negative errno. Errors that have the same remedy
 * everywhere (too many open files) include it. The text is static or thread-local. */
const char *hr__errno_text(int code);

void hr__log(enum hr_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Copies `text` in a form safe for terminals and JSON: control bytes and invalid UTF-8 become \xHH.
 * The result is always terminated, and truncated to `capacity`. */
void hr__printable(char *out, size_t capacity, const char *text);

#endif
