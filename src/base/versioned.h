/*
 * Public structs that may grow: their first member is `size`, the sizeof that
 * the calling program was compiled with. A program and the library that it
 * finds at run time may be of different ages in both directions.
 *
 * New members go behind all others, and not into padding, which older programs
 * leave as it was. Functions here get `known`, the sizeof of the library's own version. None
 * reads or writes the caller's struct beyond the size that the caller gave.
 */
#ifndef HR_BASE_VERSIONED_H
#define HR_BASE_VERSIONED_H

#include <headrace/base.h>

#include <stddef.h>

/* Fills the caller's struct of `size` bytes from the library's `defaults`:
 * members that this library does not know become 0, the first one `size`. */
void hr__versioned_default(void *out, size_t size, const void *defaults, size_t known);

/*
 * Takes the caller's struct over `out`, which holds defaults: members that the
 * caller does not know keep them. `name` is the struct's, for messages. Errors:
 * -EINVAL: the size is none, or the caller has set something that only a newer
 * library knows.
 */
int hr__versioned_take(void *out, size_t known, const void *given, const char *name,
                       struct hr_error *error);

/* Gives the library's `result` to the caller's struct, whose first member says
 * how much of it there is; it then says how much was given. */
void hr__versioned_give(void *out, const void *result, size_t known);

#endif
