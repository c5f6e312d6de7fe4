/*
 * Reads JSON from outside strictly, and writes JSON.
 *
 * A reader remembers the first error and its place, so that a parser reads member after member and
 * checks once at the end. After the first error the getters still return something harmless.
 * Messages name the text, the path in it, the value found and the value expected: "record 3:
 * segments[4].elapsed_s is a text; write a number from 0 to 1e+09".
 *
 * An absent member and null mean the same: unknown.
 */
#ifndef HR_BASE_JSON_H
#define HR_BASE_JSON_H

#include <headrace/base.h>

#include <jansson.h>
#include <stdbool.h>

struct hr__json {
    const char *where; /* name of the text, for messages */
    char path[256];    /* of the current object: "segments[4]"; "": the whole */
    int code;          /* of the first error, or 0 */
    struct hr_error *error;
};

/* Parses the text as an object; the caller owns the reference. NULL on failure (syntax, another
 * type, duplicate members). */
json_t *hr__json_parse(struct hr__json *reader, const char *text, size_t length);

/* Reports an error at member `name` of the current object ("": the object itself). Returns the
 * code. */
int hr__json_fail(struct hr__json *reader, int code, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Reports -ENOMEM, unless an error came before. */
void hr__json_no_memory(struct hr__json *reader);

/* Enters member `name`, an object, or element `index` (>= 0) of array `name`. Pass the returned
 * mark to hr__json_leave to go back. */
size_t hr__json_enter(struct hr__json *reader, const char *name, long index);
void hr__json_leave(struct hr__json *reader, size_t mark);

/* Return a member, borrowed; NULL if it is absent. */
json_t *hr__json_object(struct hr__json *reader, const json_t *parent, const char *name);
json_t *hr__json_array(struct hr__json *reader, const json_t *parent, const char *name,
                       size_t most);
/* Returns an element, which must be an object; NULL on failure. */
json_t *hr__json_element(struct hr__json *reader, const json_t *array, const char *name, size_t i);

struct hr__json_range {
    double low, high;
    double absent; /* value of an absent member; INFINITY: it is required */
};
#define HR__REQUIRED (__builtin_inf())

double hr__json_number(struct hr__json *reader, const json_t *parent, const char *name,
                       struct hr__json_range range);
/* Reads a whole number; reals without a fraction are accepted. Ranges lie within +-2^53. */
int64_t hr__json_integer(struct hr__json *reader, const json_t *parent, const char *name,
                         struct hr__json_range range);
/* Returns 1, 0, or `absent`. */
int hr__json_bool(struct hr__json *reader, const json_t *parent, const char *name, int absent);

/* Returns the index in `words`, which NULL ends; an absent member is an error. */
int hr__json_word(struct hr__json *reader, const json_t *parent, const char *name,
                  const char *const *words);

/* Copies into out[capacity]; cuts a longer text at a character boundary. Absent: "". */
void hr__json_text(struct hr__json *reader, const json_t *parent, const char *name, char *out,
                   size_t capacity);
/* Likewise for an identifier: it is required, must not be empty and must fit. */
void hr__json_name(struct hr__json *reader, const json_t *parent, const char *name, char *out,
                   size_t capacity);

/* Reads all numbers of an array of exactly `count` elements (SIZE_MAX: any number up to `most`).
 * The caller frees *out with hr__free; NULL if absent or empty. Returns the length. */
size_t hr__json_numbers(struct hr__json *reader, const json_t *parent, const char *name,
                        size_t count, size_t most, double **out);

/* Reads all texts of an array; the caller owns each text and the array. */
size_t hr__json_texts(struct hr__json *reader, const json_t *parent, const char *name, size_t most,
                      char ***out);

/* ---- writing: values as json_t; NULL: out of memory (json_*_new pass NULL on) ---- */

/* Returns null for a value that is not finite; writes whole numbers without a point. */
json_t *hr__json_real(double value);
/* Returns a string from any bytes: those that are not UTF-8 become \xHH. */
json_t *hr__json_string(const char *text);

#endif
