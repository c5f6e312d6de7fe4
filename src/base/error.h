/*
 * Filling in struct hr_error, and the log.
 *
 * hr__fail is the one way to report a failure: `return hr__fail(error, -EINVAL,
 * "...")`. Messages say what failed, where, and what to do. They and the lines of
 * the log come out as hr__printable makes them, so names of files may go into
 * them as they are.
 */
#ifndef HR_BASE_ERROR_H
#define HR_BASE_ERROR_H

#include <headrace/base.h>

/* Writes code (a negative errno) and the formatted message into *error, unless
 * it is NULL, and returns code. The arguments may lie in *error. */
int hr__fail(struct hr_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The system's words for a positive or negative errno, with the remedy where that is
 * the same everywhere (too many open files); static or thread-local. */
const char *hr__errno_text(int code);

void hr__log(enum hr_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Copies `text` so that a terminal and JSON can show it: control bytes, and
 * bytes that are not UTF-8, become \xHH. Always terminated; cut to capacity. */
void hr__printable(char *out, size_t capacity, const char *text);

#endif
