/*
 * Brace expansion, one pair at a time: replaces the first pair of braces by each alternative and
 * expands the results further.
 */
#include "dataset/shards.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARDS_MOST 1000000

/* Most pairs of braces in a pattern. Each pair is one level of recursion, with a path on the
 * stack. */
#define BRACES_MOST 16

static int add(struct hr__shards *s, const char *path, struct hr_error *error)
{
    if (s->count == SHARDS_MOST)
        return hr__fail(error, -EINVAL, "the pattern stands for more than %d shards", SHARDS_MOST);
    char *copy = hr__strdup(HR__TAG_DATASET, path);
    if (!copy || hr__reserve(HR__TAG_DATASET, &s->paths, s->count + 1)) {
        hr__free(copy);
        return hr__fail(error, -ENOMEM, "out of memory for the names of %zu shards", s->count + 1);
    }
    s->paths[s->count++] = copy;
    return 0;
}

/* Parses one bound of a range. */
static int number(const char *text, size_t length, long *value)
{
    char digits[20];
    if (!length || length >= sizeof digits - 1 || strspn(text, "0123456789") < length)
        return 0;
    memcpy(digits, text, length);
    digits[length] = 0;
    *value = strtol(digits, NULL, 10);
    return 1;
}

static int expand(struct hr__shards *s, const char *pattern, int depth, struct hr_error *error);

/* A pattern and the position of its first pair of braces. */
struct braces {
    const char *pattern, *open, *close;
};

static int replace(struct hr__shards *s, const struct braces *b, const char *with, size_t length,
                   int depth, struct hr_error *error)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%.*s%.*s%s", (int)(b->open - b->pattern), b->pattern,
                     (int)length, with, b->close + 1);
    if (n < 0 || n >= (int)sizeof path)
        return hr__fail(error, -ENAMETOOLONG, "the names of shards are too long: %s", b->pattern);
    return expand(s, path, depth + 1, error);
}

static int count_up(struct hr__shards *s, const struct braces *b, const char *dots, int depth,
                    struct hr_error *error)
{
    long from, to;
    const char *second = dots + 2;
    size_t digits[2] = {(size_t)(dots - b->open) - 1, (size_t)(b->close - second)};
    if (!number(b->open + 1, digits[0], &from) || !number(second, digits[1], &to) || from > to)
        return hr__fail(error, -EINVAL, "{%.*s} of %s is no range of numbers, as {000..146} is one",
                        (int)(b->close - b->open) - 1, b->open + 1, b->pattern);
    int width = (int)(digits[0] > digits[1] ? digits[0] : digits[1]);
    int r = 0;
    if (digits[0] != digits[1]) /* no leading zeros */
        width = 1;
    for (long i = from; !r && i <= to; i++) {
        char text[32];
        int n = snprintf(text, sizeof text, "%0*ld", width, i);
        r = replace(s, b, text, (size_t)n, depth, error);
    }
    return r;
}

static int expand(struct hr__shards *s, const char *pattern, int depth, struct hr_error *error)
{
    struct braces b = {pattern, strchr(pattern, '{'), NULL};
    if (!b.open)
        return add(s, pattern, error);
    b.close = strchr(b.open, '}');
    if (!b.close || depth >= BRACES_MOST)
        return hr__fail(error, -EINVAL, "%s: a brace without its partner, or too many of them",
                        pattern);
    const char *dots = strstr(b.open, "..");
    if (dots && dots < b.close)
        return count_up(s, &b, dots, depth, error);
    int r = 0;
    for (const char *at = b.open + 1; !r && at <= b.close;) {
        size_t length = strcspn(at, ",}");
        r = replace(s, &b, at, length, depth, error);
        at += length + 1;
    }
    return r;
}

int hr__shards_expand(struct hr__shards *shards, const char *pattern, struct hr_error *error)
{
    *shards = (struct hr__shards){0};
    int r = expand(shards, pattern, 0, error);
    if (r)
        hr__shards_clear(shards);
    return r;
}

void hr__shards_clear(struct hr__shards *shards)
{
    for (size_t i = 0; i < shards->count; i++)
        hr__free(shards->paths[i]);
    hr__free(shards->paths);
    *shards = (struct hr__shards){0};
}
