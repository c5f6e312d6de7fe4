/*
 * Pieces of the text that asks for a cache: words between marks, numbers, sizes, durations.
 *
 * Sizes are those of the Python face: a number, which may have a fraction, and a unit of
 * thousands or of 1024, blanks around. A piece points into the text and has no end mark.
 * Pure. Messages repeat the text, name the part that is wrong and say what to write.
 */
#ifndef HR_CACHE_TEXT_H
#define HR_CACHE_TEXT_H

#include <headrace/base.h>

#include <stddef.h>
#include <stdint.h>

struct hr__piece {
    const char *at;
    size_t length;
};

/* For "%.*s"; so short that what is said about it has room too. */
#define HR__PIECE(p) (int)((p).length < 160 ? (p).length : 160), (p).at

/* More memory than machines have; also what a segment can be laid out for. */
#define HR__SIZE_END (UINT64_C(1) << 50)

int hr__is_digit(char c);

/* Without blanks around. */
struct hr__piece hr__piece_trim(struct hr__piece p);

/* Up to the first `end`, or all of it. */
struct hr__piece hr__piece_until(struct hr__piece p, char end);

/* What follows `head`, a beginning of `p`, and the character behind it. */
struct hr__piece hr__piece_behind(struct hr__piece p, struct hr__piece head);

int hr__piece_equals(struct hr__piece p, const char *word);

/* A number with or without a fraction at the beginning of a piece. */
struct hr__number {
    struct hr__piece whole, fraction;
    size_t length; /* in all; 0: there is none */
};

struct hr__number hr__number_find(struct hr__piece p);

/* The number times `scale`, rounded down, exactly; at most HR__SIZE_END. */
uint64_t hr__number_times(const struct hr__number *n, uint64_t scale);

/* What is being read: a value, what it is called, and the text around it for messages. */
struct hr__asked {
    struct hr__piece text, value;
    const char *what;
};

/* Bytes, in (0, HR__SIZE_END). Errors: -EINVAL. */
int hr__size_read(uint64_t *out, const struct hr__asked *asked, struct hr_error *error);

/* Milliseconds of "10ms", "1.5s", "5min" or "1h", in [least_ms, most_ms]. Errors: -EINVAL. */
int hr__duration_read(uint64_t *out, const struct hr__asked *asked, uint64_t least_ms,
                      uint64_t most_ms, struct hr_error *error);

/* The path of a key file, of `room` HR__KEY_FILE. Errors: -EINVAL. */
int hr__key_file_read(char *out, struct hr__piece text, struct hr__piece value,
                      struct hr_error *error);

/* Counts that an option was seen. Errors: -EINVAL: before, too. */
int hr__option_once(struct hr__piece text, int *seen, const char *name, struct hr_error *error);

#endif
