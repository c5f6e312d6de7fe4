/*
 * Reading what a cache is asked for with; the grammar is in include/headrace/cache.h.
 *
 * Sizes are those of the Python face: a number, which may have a fraction, and a unit
 * of thousands or of 1024, blanks around. Messages repeat the text, name the part that
 * is wrong and say what to write.
 */
#include "cache/spec.h"

#include "base/error.h"

#include <headrace/form.h>

#include <errno.h>
#include <string.h>
#include <strings.h>

/* More memory than machines have; also what a segment can be laid out for. */
#define SIZE_END (UINT64_C(1) << 50)

/* A piece of the text: not terminated. */
struct piece {
    const char *at;
    size_t length;
};

/* What is being read, for messages. */
struct reader {
    struct piece text; /* all of it, without blanks around */
    struct hr__cache_spec *out;
    struct hr_error *error;
    int seen_size, seen_share, seen_group, seen_form;
    struct piece share; /* applied when the size is known, wherever it stands */
};

/* For "%.*s"; so short that what is said about it has room too. */
#define TEXT(r)  PIECE((r)->text)
#define PIECE(p) (int)((p).length < 160 ? (p).length : 160), (p).at

static int is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static struct piece trim(struct piece p)
{
    while (p.length && is_blank(p.at[0]))
        p.at++, p.length--;
    while (p.length && is_blank(p.at[p.length - 1]))
        p.length--;
    return p;
}

static struct piece until(struct piece p, char end)
{
    const char *at = memchr(p.at, end, p.length);
    return (struct piece){p.at, at ? (size_t)(at - p.at) : p.length};
}

/* What follows `head`, a beginning of `p`, and the character behind it. */
static struct piece behind(struct piece p, struct piece head)
{
    size_t skip = head.length < p.length ? head.length + 1 : p.length;
    return (struct piece){p.at + skip, p.length - skip};
}

static int equals(struct piece p, const char *word)
{
    return p.length == strlen(word) && !memcmp(p.at, word, p.length);
}

static size_t digits(struct piece p)
{
    size_t n = 0;
    while (n < p.length && is_digit(p.at[n]))
        n++;
    return n;
}

/* A number with or without a fraction at the beginning of a piece. */
struct number {
    struct piece whole, fraction;
    size_t length; /* in all; 0: there is none */
};

static struct number find_number(struct piece p)
{
    struct number n = {.whole = {p.at, digits(p)}};
    n.length = n.whole.length;
    if (n.length < p.length && p.at[n.length] == '.') {
        struct piece rest = {p.at + n.length + 1, p.length - n.length - 1};
        n.fraction = (struct piece){rest.at, digits(rest)};
        if (n.fraction.length)
            n.length += 1 + n.fraction.length;
    }
    return n;
}

/* The number times `scale`, rounded down, exactly; at most SIZE_END. */
static uint64_t times(const struct number *n, uint64_t scale)
{
    uint64_t whole = 0, fraction = 0;
    for (size_t i = 0; i < n->whole.length && whole < SIZE_END; i++)
        whole = whole * 10 + (uint64_t)(n->whole.at[i] - '0');
    /* From the last digit on: rounding down at each step is rounding down once. */
    for (size_t i = n->fraction.length; i--;)
        fraction = ((uint64_t)(n->fraction.at[i] - '0') * scale + fraction) / 10;
    if (whole > SIZE_END / scale)
        return SIZE_END;
    uint64_t result = whole * scale + fraction;
    return result < SIZE_END ? result : SIZE_END;
}

/* Bytes of a unit; 0: it is none. */
static uint64_t unit_bytes(struct piece unit)
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

static int read_size(struct reader *r, struct piece value, const char *what)
{
    struct piece p = trim(value);
    struct number number = find_number(p);
    struct piece unit = trim((struct piece){p.at + number.length, p.length - number.length});
    uint64_t scale = unit_bytes(unit);
    if (!number.whole.length || !number.length || !scale) {
        int is_letter = number.length && unit.length == 1 && strchr("kmgtKMGT", unit.at[0]);
        if (is_letter)
            return hr__fail(r->error, -EINVAL,
                            "cache \"%.*s\": %s %.*s has no unit: write %.*s%ciB", TEXT(r), what,
                            PIECE(p), (int)number.length, p.at, unit.at[0] & ~0x20);
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": %s \"%.*s\" is none: write a number and a unit, such as "
                        "64GiB or 500MB",
                        TEXT(r), what, PIECE(p));
    }
    uint64_t bytes = times(&number, scale);
    if (!bytes)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": a size of 0 keeps nothing: write one such as 64GiB",
                        TEXT(r));
    if (bytes >= SIZE_END)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": %s %.*s is more memory than any machine has", TEXT(r),
                        what, PIECE(p));
    r->out->size_bytes = bytes;
    return 0;
}

static int apply_share(struct reader *r)
{
    uint64_t size = r->out->size_bytes;
    r->out->share_bytes = size;
    if (!r->seen_share)
        return 0;
    struct piece p = trim(r->share);
    struct number number = find_number(p);
    uint64_t bytes = number.length == p.length && p.length ? times(&number, size) : 0;
    /* In (0, 1]: 1.00000000000000001 is not, whatever it rounds to. */
    int one = number.whole.length && times(&(struct number){.whole = number.whole}, 1) == 1;
    int more = number.whole.length && times(&(struct number){.whole = number.whole}, 1) > 1;
    for (size_t i = 0; one && i < number.fraction.length; i++)
        more |= number.fraction.at[i] != '0';
    if (more || !bytes)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": share \"%.*s\" must be a number above 0 and at most 1, "
                        "such as share=0.9",
                        TEXT(r), PIECE(p));
    r->out->share_bytes = bytes;
    return 0;
}

static int read_group(struct reader *r, struct piece value)
{
    struct piece p = trim(value);
    if (!p.length || p.length >= sizeof r->out->group)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": group \"%.*s\" must be the name of a Unix group, of at "
                        "most %zu bytes",
                        TEXT(r), PIECE(p), sizeof r->out->group - 1);
    memcpy(r->out->group, p.at, p.length);
    return 0;
}

static int read_form(struct reader *r, struct piece value)
{
    struct piece p = trim(value);
    if (equals(p, "auto")) {
        r->out->form = HR_FORM_AUTO;
        return 0;
    }
    for (int form = HR_FORM_ENCODED; form <= HR_FORM_PLANES; form++)
        if (equals(p, hr_form_name((enum hr_form)form))) {
            r->out->form = form;
            return 0;
        }
    return hr__fail(r->error, -EINVAL,
                    "cache \"%.*s\": form \"%.*s\" is none: write auto, encoded, coefficients or "
                    "planes",
                    TEXT(r), PIECE(p));
}

static int once(struct reader *r, int *seen, const char *name)
{
    if ((*seen)++)
        return hr__fail(r->error, -EINVAL, "cache \"%.*s\": %s is there twice: write it once",
                        TEXT(r), name);
    return 0;
}

static int read_option(struct reader *r, struct piece option)
{
    struct piece name = until(option, '='), value = behind(option, name);
    int has_value = name.length < option.length;
    name = trim(name);
    int failed;
    if (!has_value)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": \"%.*s\" is no option: they are size=, share=, group= and "
                        "form=, with & between them",
                        TEXT(r), PIECE(name));
    if (equals(name, "size")) {
        failed = once(r, &r->seen_size, "size");
        return failed ? failed : read_size(r, value, "size");
    }
    if (equals(name, "share")) {
        r->share = value;
        return once(r, &r->seen_share, "share");
    }
    if (equals(name, "group")) {
        failed = once(r, &r->seen_group, "group");
        return failed ? failed : read_group(r, value);
    }
    if (equals(name, "form")) {
        failed = once(r, &r->seen_form, "form");
        return failed ? failed : read_form(r, value);
    }
    return hr__fail(r->error, -EINVAL,
                    "cache \"%.*s\": option \"%.*s\" is unknown: there are size, share, group and "
                    "form",
                    TEXT(r), PIECE(name));
}

static int read_name(struct reader *r, struct piece name)
{
    if (!name.length)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": it needs a name: write shm:NAME?size=64GiB", TEXT(r));
    if (name.length >= sizeof r->out->name)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": its name is too long: write at most %zu characters",
                        TEXT(r), sizeof r->out->name - 1);
    for (size_t i = 0; i < name.length; i++) {
        char c = name.at[i];
        int letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
        if (!letter && !is_digit(c) && c != '-' && c != '_')
            return hr__fail(r->error, -EINVAL,
                            "cache \"%.*s\": the name \"%.*s\" may have letters, digits, '-' and "
                            "'_' only",
                            TEXT(r), PIECE(name));
    }
    memcpy(r->out->name, name.at, name.length);
    return 0;
}

static int read_kept(struct reader *r, struct piece text)
{
    struct piece name = until(text, '?'), rest = behind(text, name);
    int failed = read_name(r, trim(name));
    while (!failed && rest.length) {
        struct piece option = until(rest, '&');
        rest = behind(rest, option);
        failed = read_option(r, option);
    }
    if (failed)
        return failed;
    if (!r->seen_size)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": shm:NAME needs a size: write shm:%s?size=64GiB", TEXT(r),
                        r->out->name);
    return apply_share(r);
}

static int read_private(struct reader *r)
{
    struct piece options = until(r->text, '?');
    if (options.length < r->text.length)
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\": a private cache is a size alone, %.*s; options are for "
                        "kept ones: shm:NAME?size=%.*s&...",
                        TEXT(r), PIECE(options), PIECE(options));
    if (!r->text.length || (!is_digit(r->text.at[0]) && r->text.at[0] != '.'))
        return hr__fail(r->error, -EINVAL,
                        "cache \"%.*s\" is neither a size nor the name of a kept one: write 64GiB, "
                        "or shm:NAME?size=64GiB",
                        TEXT(r));
    int failed = read_size(r, r->text, "size");
    return failed ? failed : apply_share(r);
}

int hr__cache_spec_parse(struct hr__cache_spec *out, const char *text, struct hr_error *error)
{
    static const char scheme[] = "shm:";
    memset(out, 0, sizeof *out);
    out->form = HR__FORM_UNSAID;
    struct reader r = {
        .text = trim((struct piece){text, strlen(text)}), .out = out, .error = error};
    struct piece head = {r.text.at, sizeof scheme - 1};
    if (r.text.length < head.length || !equals(head, scheme))
        return read_private(&r);
    return read_kept(&r, (struct piece){head.at + head.length, r.text.length - head.length});
}
