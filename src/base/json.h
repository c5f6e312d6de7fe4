/*
 * Reading JSON from outside, strictly, and writing it.
 *
 * A reader remembers the first thing that is wrong and where, so that a parser reads
 * member after member and asks once at the end. After that first failure the getters
 * still return something harmless. Messages name the text, the path in it, what is there
 * and what belongs there: "record 3: segments[4].elapsed_s is a text; write a number from
 * 0 to 1e+09".
 *
 * An absent member and null are the same: not known.
 */
#ifndef HR_BASE_JSON_H
#define HR_BASE_JSON_H

#include <headrace/base.h>

#include <jansson.h>
#include <stdbool.h>

struct hr__json {
    const char *where; /* names the text */
    char path[256];    /* of the object being read: "segments[4]", "" the whole */
    int code;          /* of the first failure, or 0 */
    struct hr_error *error;
};

/* The text as an object, the caller's reference; NULL on failure (syntax, another type,
 * members twice). */
json_t *hr__json_parse(struct hr__json *reader, const char *text, size_t length);

/* Fails at member `name` of the current object ("" itself). Returns the code. */
int hr__json_fail(struct hr__json *reader, int code, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Out of memory, unless it failed before. */
void hr__json_no_memory(struct hr__json *reader);

/* Goes into member `name`, an object, or into element `index` of array `name` (>= 0), and
 * back to the path returned by the call. */
size_t hr__json_enter(struct hr__json *reader, const char *name, long index);
void hr__json_leave(struct hr__json *reader, size_t mark);

/* A member, borrowed; NULL where it is absent. */
json_t *hr__json_object(struct hr__json *reader, const json_t *parent, const char *name);
json_t *hr__json_array(struct hr__json *reader, const json_t *parent, const char *name,
                       size_t most);
/* An element that must be an object; NULL on failure. */
json_t *hr__json_element(struct hr__json *reader, const json_t *array, const char *name, size_t i);

struct hr__json_range {
    double low, high;
    double absent; /* what an absent member gives; INFINITY: it must be there */
};
#define HR__REQUIRED (__builtin_inf())

double hr__json_number(struct hr__json *reader, const json_t *parent, const char *name,
                       struct hr__json_range range);
/* A whole number; reals without a fraction count. Ranges within +-2^53. */
int64_t hr__json_integer(struct hr__json *reader, const json_t *parent, const char *name,
                         struct hr__json_range range);
/* 1, 0, or `absent`. */
int hr__json_bool(struct hr__json *reader, const json_t *parent, const char *name, int absent);

/* The index in `words`, ended by NULL; absent fails. */
int hr__json_word(struct hr__json *reader, const json_t *parent, const char *name,
                  const char *const *words);

/* Into out[capacity]: longer texts are cut before a character that does not fit. Absent:
 * "". */
void hr__json_text(struct hr__json *reader, const json_t *parent, const char *name, char *out,
                   size_t capacity);
/* The same, but what identifies something: it must be there, not empty, and fit. */
void hr__json_name(struct hr__json *reader, const json_t *parent, const char *name, char *out,
                   size_t capacity);

/* All numbers of an array of exactly `count` (SIZE_MAX: as many as it has, up to `most`);
 * *out is the caller's (hr__free), NULL where absent or empty. Returns how many. */
size_t hr__json_numbers(struct hr__json *reader, const json_t *parent, const char *name,
                        size_t count, size_t most, double **out);

/* All texts of an array; each and the array the caller's. */
size_t hr__json_texts(struct hr__json *reader, const json_t *parent, const char *name, size_t most,
                      char ***out);

/* ---- writing: json_t of values, NULL when out of memory (which json_*_new passes on) ---- */

/* null where it is not finite; whole numbers without a point. */
json_t *hr__json_real(double value);
/* A text of any bytes: those that are not UTF-8 become \xHH. */
json_t *hr__json_string(const char *text);

#endif
