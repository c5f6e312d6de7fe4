/*
 * Versioned public structs. Their first member, `size`, is the sizeof that the calling program was
 * compiled with, so programs and libraries of different versions work together, whichever is older.
 *
 * Add new members at the end, and never in padding, which older programs leave uninitialised. The
 * functions take `known`, the sizeof in this library. They never access the caller's struct beyond
 * the size that the caller gave.
 */
#ifndef HR_BASE_VERSIONED_H
#define HR_BASE_VERSIONED_H

#include <headrace/base.h>

#include <stddef.h>

/* Fills the caller's struct of `size` bytes from the library's `defaults`. Members that this
 * library does not know become 0; the first member becomes `size`. */
void hr__versioned_default(void *out, size_t size, const void *defaults, size_t known);

/*
 * Copies the caller's struct over `out`, which holds defaults. Members that the caller's version
 * lacks keep their defaults. `name` is the struct's name, for messages. Returns -EINVAL if `size`
 * is not plausible, or if the caller has set a member that only a newer library knows.
 */
int hr__versioned_take(void *out, size_t known, const void *given, const char *name,
                       struct hr_error *error);

/* Copies the library's `result` into the caller's struct, up to the size in its first member, and
 * sets that member to the number of bytes copied. */
void hr__versioned_give(void *out, const void *result, size_t known);

#endif
