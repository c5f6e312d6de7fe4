/*
 * Parses the parts of a text that specifies a cache: words between separators, numbers, sizes and
 * durations.
 *
 * Sizes are written as in Python: a number, which may have a fraction, and a decimal or binary
 * unit, with optional blanks around. A piece points into the text and is not terminated. Pure.
 * Messages repeat the text, name the wrong part and say what to write.
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

/* Arguments for "%.*s"; cut short, so that the rest of the message fits too. */
#define HR__PIECE(p) (int)((p).length < 160 ? (p).length : 160), (p).at

/* More than any machine's memory; also the limit of a segment's layout. */
#define HR__SIZE_END (UINT64_C(1) << 50)

int hr__is_digit(char c);

/* Strips blanks at both ends. */
struct hr__piece hr__piece_trim(struct hr__piece p);

/* Returns the part before the first `end`, or all of it. */
struct hr__piece hr__piece_until(struct hr__piece p, char end);

/* Returns the part after `head`, which is a prefix of `p`, and the separator that follows it. */
struct hr__piece hr__piece_behind(struct hr__piece p, struct hr__piece head);

int hr__piece_equals(struct hr__piece p, const char *word);

/* A number, with or without a fraction, at the start of a piece. */
struct hr__number {
    struct hr__piece whole, fraction;
    size_t length; /* characters in all; 0: there is no number */
};

struct hr__number hr__number_find(struct hr__piece p);

/* Returns the number times `scale`, rounded down, exactly; at most HR__SIZE_END. */
uint64_t hr__number_times(const struct hr__number *n, uint64_t scale);

/* A value to parse, its name, and the whole text for messages. */
struct hr__asked {
    struct hr__piece text, value;
    const char *what;
};

/* Parses a size in bytes, in (0, HR__SIZE_END). Errors: -EINVAL. */
int hr__size_read(uint64_t *out, const struct hr__asked *asked, struct hr_error *error);

/* Parses "10ms", "1.5s", "5min" or "1h" to milliseconds in [least_ms, most_ms]. Errors: -EINVAL. */
int hr__duration_read(uint64_t *out, const struct hr__asked *asked, uint64_t least_ms,
                      uint64_t most_ms, struct hr_error *error);

/* Copies the path of a key file; `out` has HR__KEY_FILE bytes. Errors: -EINVAL. */
int hr__key_file_read(char *out, struct hr__piece text, struct hr__piece value,
                      struct hr_error *error);

/* Notes that an option was given. Errors: -EINVAL if it was given before. */
int hr__option_once(struct hr__piece text, int *seen, const char *name, struct hr_error *error);

#endif
