/*
 * Reads JSON (RFC 8259) as a stream, for files that are too large to be held as a tree. Memory is a
 * fixed buffer, whatever the file's length. Files may be gzipped. Python's NaN, Infinity and
 * -Infinity are numbers here.
 *
 * The caller walks through the values in their order:
 *
 *     hr__json_reader_object(s);
 *     while (hr__json_reader_key(s, key, sizeof key))
 *         if (!strcmp(key, "id"))
 *             hr__json_reader_number(s, &id);
 *         else
 *             hr__json_reader_skip(s);
 *     if (hr__json_reader_error(s)) ...
 *
 * The first error sticks: after it every call does nothing and returns 0. So callers look at it
 * where they use what they read. Nesting is limited to HR__JSON_DEPTH.
 */
#ifndef HR_BASE_JSON_READER_H
#define HR_BASE_JSON_READER_H

#include "base/input.h"

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

#define HR__JSON_DEPTH 64

struct hr__json_reader;

struct hr__json_number {
    double real;     /* NaN and infinities: as in Python's JSON */
    int64_t integer; /* if is_integer */
    int is_integer;  /* it has neither point nor exponent, and fits into 53 bits and a sign */
};

/* Opens a file, plain or gzipped. Errors: those of hr__input_open. Errors name the path. */
int hr__json_reader_open(struct hr__json_reader **out, const char *path, struct hr_error *error);

/* Reads from memory, which must live as long as the stream; `name` is what errors name. Errors:
 * -ENOMEM. */
int hr__json_reader_of(struct hr__json_reader **out, const void *bytes, size_t length,
                       const char *name, struct hr_error *error);

/* Goes on reading an opened input, which is borrowed. Errors: -ENOMEM. */
int hr__json_reader_on(struct hr__json_reader **out, struct hr__input *in, struct hr_error *error);

void hr__json_reader_close(struct hr__json_reader **stream);

/* Returns the path or name that errors name. */
const char *hr__json_reader_name(const struct hr__json_reader *s);

/* Returns 0, or the first error: -EBADMSG and the place in the file: the text is no JSON, or not
 * what was asked for; -EFBIG: too deep, or a text too long; that of a read. */
int hr__json_reader_error(const struct hr__json_reader *s, struct hr_error *error);

/* Returns the first byte of the next value: one of {["tfn-NI and digits; 0 after an error. */
int hr__json_reader_peek(struct hr__json_reader *s);

/* Begins an object or an array. Returns non-zero if it is one. */
int hr__json_reader_object(struct hr__json_reader *s);
int hr__json_reader_array(struct hr__json_reader *s);

/* Goes to the next member of an object and reads its key, in UTF-8; a key that does not fit becomes
 * "". Returns 0 at the end of the object, which is then left. */
int hr__json_reader_key(struct hr__json_reader *s, char *key, size_t capacity);

/* Goes to the next element of an array. Returns 0 at the end of the array, which is then left. */
int hr__json_reader_more(struct hr__json_reader *s);

/* Reads a text, in UTF-8. Its length is at most capacity - 1. Zero bytes in it are an error. */
int hr__json_reader_text(struct hr__json_reader *s, char *text, size_t capacity);

/* Likewise, but leaves out what does not fit. */
int hr__json_reader_text_cut(struct hr__json_reader *s, char *text, size_t capacity);

int hr__json_reader_number(struct hr__json_reader *s, struct hr__json_number *number);

/* Reads a number without an exponent as a whole number of 10^-decimals, rounded half away from
 * zero: exact where a double is not (microseconds since 1970 with a fraction). Saturates at
 * +-(2^63 - 1). */
int hr__json_reader_fixed(struct hr__json_reader *s, int decimals, int64_t *value);

/* Reads true, false, 0 or 1. */
int hr__json_reader_flag(struct hr__json_reader *s, int *flag);

/* Skips a value of any kind. Of what it skips it checks texts and brackets only. */
int hr__json_reader_skip(struct hr__json_reader *s);

/* Checks that nothing follows the value at the top. */
int hr__json_reader_end(struct hr__json_reader *s);

/* Returns how many bytes were read, after decompression, and in *length how many there are; 0:
 * unknown. */
uint64_t hr__json_reader_place(const struct hr__json_reader *s, uint64_t *length);

#endif
