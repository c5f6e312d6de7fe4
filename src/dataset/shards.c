/*
 * Finds shards; see shards.h. Braces are expanded one pair at a time: the first pair is replaced by
 * each alternative, and the results are expanded further.
 */
#include "dataset/shards.h"

#include "base/error.h"
#include "base/memory.h"
#include "dataset/names.h"
#include "storage/url.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

/* Adds the names, sorted, each after `folder`. */
static int add_sorted(struct hr__shards *s, const char *folder, struct hr__names *names,
                      struct hr_error *error)
{
    char path[PATH_MAX];
    int r = hr__names_sort(names) ? hr__fail(error, -ENOMEM, "out of memory for shards") : 0;
    for (size_t i = 0; !r && i < names->count; i++) {
        int n = snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", names->items[i]);
        r = n < 0 || n >= (int)sizeof path
                ? hr__fail(error, -ENAMETOOLONG, "the names of shards are too long: %s", folder)
                : add(s, path, error);
    }
    return r;
}

/* Refuses files whose names differ before their first digit: they belong to different splits. */
static int check_splits(const struct hr__names *names, const char *folder, const char *suffix,
                        struct hr_error *error)
{
    static const char digits[] = "0123456789";
    for (size_t i = 1; i < names->count; i++) {
        const char *a = names->items[0], *b = names->items[i];
        size_t length = strcspn(a, digits);
        if (length == strcspn(b, digits) && !memcmp(a, b, length))
            continue;
        return hr__fail(error, -EINVAL,
                        "%s holds %s and %s, which look like different splits: name the files of "
                        "one, \"%s/%.*s*%s\" for example",
                        folder, a, b, folder, (int)length, a, suffix);
    }
    return 0;
}

static int find_in_folder(struct hr__shards *s, const char *folder, const char *suffix,
                          struct hr_error *error)
{
    struct hr__names names = {0};
    DIR *directory = opendir(folder);
    struct dirent *entry;
    int r = 0;
    if (!directory)
        return hr__fail(error, -errno, "cannot list %s: %s", folder, hr__errno_text(-errno));
    while (!r && (entry = readdir(directory))) {
        size_t length = strlen(entry->d_name), end = strlen(suffix);
        if (*entry->d_name != '.' && length > end && !strcmp(entry->d_name + length - end, suffix))
            r = hr__names_add(&names, entry->d_name, length);
    }
    closedir(directory);
    if (r)
        hr__fail(error, r, "out of memory for the names in %s", folder);
    else if (!names.count)
        r = hr__fail(error, -ENOENT, "no file *%s in %s", suffix, folder);
    if (!r)
        r = add_sorted(s, folder, &names, error);
    if (!r)
        r = check_splits(&names, folder, suffix, error);
    hr__names_clear(&names);
    return r;
}

static int find_pattern(struct hr__shards *s, const char *pattern, struct hr_error *error)
{
    struct hr__names names = {0};
    glob_t found = {0};
    int r = glob(pattern, GLOB_NOSORT, NULL, &found);
    r = r == GLOB_NOSPACE ? -ENOMEM : 0;
    for (size_t i = 0; !r && i < found.gl_pathc; i++)
        r = hr__names_add(&names, found.gl_pathv[i], strlen(found.gl_pathv[i]));
    globfree(&found);
    if (r)
        hr__fail(error, r, "out of memory for the files of %s", pattern);
    else if (!names.count)
        r = hr__fail(error, -ENOENT, "no file matches %s", pattern);
    if (!r)
        r = add_sorted(s, "", &names, error);
    hr__names_clear(&names);
    return r;
}

int hr__shards_find(struct hr__shards *shards, const char *path, const char *suffix,
                    struct hr_error *error)
{
    struct stat st;
    struct hr__url url;
    int is_url = hr__url_is(path), r = is_url ? hr__url_parse(&url, path, error) : 0;
    if (r)
        return r;
    if (is_url && strpbrk(path, "*?["))
        return hr__fail(error, -ENOTSUP,
                        "%s: patterns with * are not looked up at URLs: name the shards with "
                        "braces, as in {000..146}",
                        path);
    if (is_url && suffix && path[strlen(path) - 1] == '/')
        return hr__fail(error, -ENOTSUP,
                        "%s: a folder of tables is not looked up at URLs: name the tables with "
                        "braces, as in %strain-{00000..00041}-of-00042%s",
                        path, path, suffix);
    int exists = !stat(path, &st);
    if (exists && S_ISDIR(st.st_mode) && suffix)
        return find_in_folder(shards, path, suffix, error);
    if (exists)
        return add(shards, path, error);
    if (strpbrk(path, "*?["))
        return find_pattern(shards, path, error);
    return expand(shards, path, 0, error);
}

void hr__shards_clear(struct hr__shards *shards)
{
    for (size_t i = 0; i < shards->count; i++)
        hr__free(shards->paths[i]);
    hr__free(shards->paths);
    *shards = (struct hr__shards){0};
}
