/* Parses numbers, sizes and durations; see text.h. */
#include "cache/text.h"

#include "cache/secret.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static int is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

int hr__is_digit(char c)
{
    return c >= '0' && c <= '9';
}

struct hr__piece hr__piece_trim(struct hr__piece p)
{
    while (p.length && is_blank(p.at[0]))
        p.at++, p.length--;
    while (p.length && is_blank(p.at[p.length - 1]))
        p.length--;
    return p;
}

struct hr__piece hr__piece_until(struct hr__piece p, char end)
{
    const char *at = memchr(p.at, end, p.length);
    return (struct hr__piece){p.at, at ? (size_t)(at - p.at) : p.length};
}

struct hr__piece hr__piece_behind(struct hr__piece p, struct hr__piece head)
{
    size_t skip = head.length < p.length ? head.length + 1 : p.length;
    return (struct hr__piece){p.at + skip, p.length - skip};
}

int hr__piece_equals(struct hr__piece p, const char *word)
{
    return p.length == strlen(word) && !memcmp(p.at, word, p.length);
}

static size_t digits(struct hr__piece p)
{
    size_t n = 0;
    while (n < p.length && hr__is_digit(p.at[n]))
        n++;
    return n;
}

struct hr__number hr__number_find(struct hr__piece p)
{
    struct hr__number n = {.whole = {p.at, digits(p)}};
    n.length = n.whole.length;
    if (n.length < p.length && p.at[n.length] == '.') {
        struct hr__piece rest = {p.at + n.length + 1, p.length - n.length - 1};
        n.fraction = (struct hr__piece){rest.at, digits(rest)};
        if (n.fraction.length)
            n.length += 1 + n.fraction.length;
    }
    return n;
}

uint64_t hr__number_times(const struct hr__number *n, uint64_t scale)
{
    uint64_t whole = 0, fraction = 0;
    for (size_t i = 0; i < n->whole.length && whole < HR__SIZE_END; i++)
        whole = whole * 10 + (uint64_t)(n->whole.at[i] - '0');
    /* Start from the last digit: rounding down at each step equals rounding down once. */
    for (size_t i = n->fraction.length; i--;)
        fraction = ((uint64_t)(n->fraction.at[i] - '0') * scale + fraction) / 10;
    if (whole > HR__SIZE_END / scale)
        return HR__SIZE_END;
    uint64_t result = whole * scale + fraction;
    return result < HR__SIZE_END ? result : HR__SIZE_END;
}

/* Returns the bytes of a unit; 0 if it is not a unit. */
static uint64_t unit_bytes(struct hr__piece unit)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {
        {"", 1},
        {"b", 1},
        {"kb", 1000},
        {"mb", 1000000},
        {"gb", 1000000000},
        {"tb", UINT64_C(1000000000000)},
        {"kib", UINT64_C(1) << 10},
        {"mib", UINT64_C(1) << 20},
        {"gib", UINT64_C(1) << 30},
        {"tib", UINT64_C(1) << 40},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (unit.length == strlen(units[i].name) &&
            !strncasecmp(unit.at, units[i].name, unit.length))
            return units[i].bytes;
    return 0;
}

int hr__size_read(uint64_t *out, const struct hr__asked *asked, struct hr_error *error)
{
    struct hr__piece p = hr__piece_trim(asked->value);
    struct hr__number number = hr__number_find(p);
    struct hr__piece unit =
        hr__piece_trim((struct hr__piece){p.at + number.length, p.length - number.length});
    uint64_t scale = unit_bytes(unit);
    if (!number.whole.length || !number.length || !scale) {
        int is_letter = number.length && unit.length == 1 && strchr("kmgtKMGT", unit.at[0]);
        if (is_letter)
            return hr__fail(error, -EINVAL, "cache \"%.*s\": %s %.*s has no unit: write %.*s%ciB",
                            HR__PIECE(asked->text), asked->what, HR__PIECE(p), (int)number.length,
                            p.at, unit.at[0] & ~0x20);
        return hr__fail(error, -EINVAL,
                        "cache \"%.*s\": %s \"%.*s\" is none: write a number and a unit, such as "
                        "64GiB or 500MB",
                        HR__PIECE(asked->text), asked->what, HR__PIECE(p));
    }
    uint64_t bytes = hr__number_times(&number, scale);
    if (!bytes)
        return hr__fail(error, -EINVAL,
                        "cache \"%.*s\": a size of 0 keeps nothing: write one such as 64GiB",
                        HR__PIECE(asked->text));
    if (bytes >= HR__SIZE_END)
        return hr__fail(error, -EINVAL,
                        "cache \"%.*s\": %s %.*s is more memory than any machine has",
                        HR__PIECE(asked->text), asked->what, HR__PIECE(p));
    *out = bytes;
    return 0;
}

/* Formats "300s" and so on, in the largest unit that divides it. */
static const char *duration_text(char out[32], uint64_t ms)
{
    if (ms % 1000)
        snprintf(out, 32, "%" PRIu64 "ms", ms);
    else
        snprintf(out, 32, "%" PRIu64 "s", ms / 1000);
    return out;
}

int hr__duration_read(uint64_t *out, const struct hr__asked *asked, uint64_t least_ms,
                      uint64_t most_ms, struct hr_error *error)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}};
    struct hr__piece p = hr__piece_trim(asked->value);
    struct hr__number number = hr__number_find(p);
    struct hr__piece unit =
        hr__piece_trim((struct hr__piece){p.at + number.length, p.length - number.length});
    char least[32], most[32];
    uint64_t ms = 0;
    int known = 0;
    for (size_t i = 0; number.whole.length && i < sizeof units / sizeof *units; i++)
        if (hr__piece_equals(unit, units[i].name)) {
            ms = hr__number_times(&number, units[i].ms);
            known = 1;
        }
    if (!known || ms < least_ms || ms > most_ms)
        return hr__fail(error, -EINVAL,
                        "cache \"%.*s\": %s \"%.*s\" must be a time from %s to %s: write a number "
                        "and ms, s, min or h",
                        HR__PIECE(asked->text), asked->what, HR__PIECE(p),
                        duration_text(least, least_ms), duration_text(most, most_ms));
    *out = ms;
    return 0;
}

int hr__option_once(struct hr__piece text, int *seen, const char *name, struct hr_error *error)
{
    if ((*seen)++)
        return hr__fail(error, -EINVAL, "cache \"%.*s\": %s is there twice: write it once",
                        HR__PIECE(text), name);
    return 0;
}

int hr__key_file_read(char *out, struct hr__piece text, struct hr__piece value,
                      struct hr_error *error)
{
    if (!value.length || value.length >= HR__KEY_FILE)
        return hr__fail(
            error, -EINVAL,
            "cache \"%.*s\": key_file \"%.*s\" must be the path of a file, of at most %d "
            "bytes",
            HR__PIECE(text), HR__PIECE(value), HR__KEY_FILE - 1);
    memcpy(out, value.at, value.length);
    out[value.length] = 0;
    return 0;
}
