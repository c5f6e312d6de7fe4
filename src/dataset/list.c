/*
 * Parses list files in two passes: the first checks every line and counts, so that the second can
 * write directly into a catalog of the right size.
 */
#include "dataset/list.h"

#include "base/error.h"
#include "base/memory.h"
#include "storage/http.h"
#include "storage/url.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct line {
    const char *path;
    size_t path_length;
    int64_t label;
};

/* Parses a whole signed decimal number. Returns 0 or -EINVAL. */
static int parse_label(const char *text, size_t length, int64_t *label)
{
    int64_t value = 0;
    size_t i = 0;
    int negative = length && text[0] == '-';
    if (length && (text[0] == '-' || text[0] == '+'))
        i++;
    if (i == length)
        return -EINVAL;
    for (; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -EINVAL;
        int digit = text[i] - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, negative ? -digit : digit, &value))
            return -EINVAL;
    }
    *label = value;
    return 0;
}

static int is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Parses a line. Returns 1 and its fields, 0 if the line is to be ignored, or -EINVAL with what is
 * wrong in *wrong. */
static int parse_line(const char *text, size_t length, struct line *out, const char **wrong)
{
    while (length && (is_blank(text[length - 1]) || text[length - 1] == '\r'))
        length--;
    if (!length || text[0] == '#')
        return 0;
    *wrong = "it has a zero byte";
    if (memchr(text, 0, length))
        return -EINVAL;
    size_t at = length;
    while (at && !is_blank(text[at - 1]))
        at--;
    *wrong = "it has one field; write the path, a tab and the label";
    if (!at)
        return -EINVAL;
    *wrong = "its last field is not an integer label";
    if (parse_label(text + at, length - at, &out->label))
        return -EINVAL;
    int tab = text[--at] == '\t';
    while (!tab && at && is_blank(text[at - 1]))
        at--;
    *wrong = "its path is empty";
    if (!at)
        return -EINVAL;
    out->path = text;
    out->path_length = at;
    return 1;
}

struct cursor {
    const char *at, *end;
    uint64_t line; /* number of the last line returned, from 1 */
};

static void cursor_begin(struct cursor *c, const char *text, size_t length)
{
    int mark = length >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3);
    *c = (struct cursor){text + (mark ? 3 : 0), text + length, 0};
}

/* Gets the next sample. Returns 1, 0 at the end, or -EINVAL. */
static int cursor_next(struct cursor *c, struct line *line, const char **wrong)
{
    while (c->at < c->end) {
        const char *newline = memchr(c->at, '\n', (size_t)(c->end - c->at));
        const char *stop = newline ? newline : c->end;
        const char *begin = c->at;
        c->at = newline ? newline + 1 : c->end;
        c->line++;
        int r = parse_line(begin, (size_t)(stop - begin), line, wrong);
        if (r)
            return r;
    }
    return 0;
}

/* Creates a catalog with one directory, with the path "", that has all samples. */
static int create(struct hr__catalog **out, uint64_t samples, uint64_t text_bytes,
                  struct hr_error *error)
{
    struct hr__catalog_shape shape = {.directories = 1,
                                      .samples = samples,
                                      .arena_bytes = text_bytes + 1,
                                      .labels = 1,
                                      .changes = 1};
    int r = hr__catalog_create(out, &shape);
    if (r)
        return hr__fail(error, r, "out of memory for %" PRIu64 " paths", samples);
    (*out)->directories[0].path = hr__catalog_text(*out, "", 0);
    (*out)->header->root = (*out)->directories[0].path;
    (*out)->directories[0].count = samples;
    (*out)->untrusted = 1;
    return 0;
}

int hr__list_parse(struct hr__catalog **out, const char *text, size_t length, const char *name,
                   struct hr_error *error)
{
    struct cursor c;
    struct line line;
    const char *wrong = "";
    uint64_t samples = 0, text_bytes = 0;
    int r;
    *out = NULL;
    cursor_begin(&c, text, length);
    while ((r = cursor_next(&c, &line, &wrong)) > 0) {
        samples++;
        text_bytes += line.path_length + 1;
    }
    if (r < 0)
        return hr__fail(error, r, "%s, line %" PRIu64 ": %s", name, c.line, wrong);
    if (!samples)
        return hr__fail(error, -ENODATA, "the list %s names no sample", name);
    r = create(out, samples, text_bytes, error);
    if (r)
        return r;
    cursor_begin(&c, text, length);
    for (uint64_t i = 0; cursor_next(&c, &line, &wrong) > 0; i++) {
        (*out)->names[i] = hr__catalog_text(*out, line.path, line.path_length);
        (*out)->labels[i] = line.label;
    }
    return 0;
}

/* Reads the whole file into *text (free with hr__free), even if its size is not known in advance (a
 * pipe, /dev/stdin). */
static int read_text(int fd, char **text, size_t *length)
{
    struct stat st;
    size_t capacity = 65536;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && (size_t)st.st_size >= capacity)
        capacity = (size_t)st.st_size + 1; /* one more byte, so that the last read finds the end */
    *length = 0;
    *text = hr__alloc(HR__TAG_DATASET, capacity, 1);
    while (*text) {
        ssize_t got = read(fd, *text + *length, capacity - *length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? -errno : 0;
        *length += (size_t)got;
        if (*length < capacity)
            continue;
        char *more = hr__realloc(HR__TAG_DATASET, *text, capacity, 2);
        if (!more)
            break;
        *text = more;
        capacity *= 2;
    }
    return -ENOMEM;
}

/* Refuses paths of this machine in a list that another one wrote. */
static int check_names(const struct hr__catalog *c, const char *path, struct hr_error *error)
{
    char printable[256];
    for (uint64_t i = 0; i < c->header->samples; i++) {
        const char *name = hr__catalog_at(c, c->names[i]);
        if (*name != '/')
            continue;
        hr__printable(printable, sizeof printable, name);
        return hr__fail(error, -EPERM,
                        "the list %s names a file of this machine, %s: a list at a URL may name "
                        "URLs, and objects relative to itself; copy the list to a disk if it is "
                        "yours",
                        path, printable);
    }
    return 0;
}

/* Reads and parses a list at a URL. */
static int read_object(struct hr__catalog **out, const char *path, struct hr_error *error)
{
    struct hr__http_client *http = NULL;
    struct hr__read read = {.path = path, .expected = -1, .fd = -1};
    struct hr__url url; /* a wrong one must not get into a message: it may have a secret */
    int r = hr__url_parse(&url, path, error);
    if (!r)
        r = hr__http_create(&http, error);
    if (r)
        return r;
    read.http = http;
    r = hr__read_file(&read, 0);
    if (r)
        hr__fail(error, r, "cannot read the list %s: %s", path,
                 read.reason ? read.reason : hr__errno_text(r));
    else
        r = hr__list_parse(out, (const char *)read.bytes, read.length, path, error);
    if (!r && (r = check_names(*out, path, error)))
        hr__catalog_destroy(out);
    hr__read_drop(&read);
    hr__http_unref(&http);
    return r;
}

int hr__list_read(struct hr__catalog **out, const char *path, struct hr_error *error)
{
    char *text = NULL;
    size_t length = 0;
    *out = NULL;
    if (hr__url_is(path))
        return read_object(out, path, error);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int r = fd < 0 ? -errno : read_text(fd, &text, &length);
    if (fd >= 0)
        close(fd);
    if (r)
        hr__fail(error, r, "cannot read the list %s: %s", path, hr__errno_text(r));
    else
        r = hr__list_parse(out, text, length, path, error);
    hr__free(text);
    return r;
}

int hr__list_from_paths(struct hr__catalog **out, const char *const *paths, const int64_t *labels,
                        size_t count, struct hr_error *error)
{
    uint64_t text_bytes = 0;
    *out = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!paths[i] || !*paths[i])
            return hr__fail(error, -EINVAL, "path %zu is empty", i);
        text_bytes += strlen(paths[i]) + 1;
    }
    int r = create(out, count, text_bytes, error);
    if (r)
        return r;
    for (size_t i = 0; i < count; i++) {
        (*out)->names[i] = hr__catalog_text(*out, paths[i], strlen(paths[i]));
        (*out)->labels[i] = labels ? labels[i] : 0;
    }
    return 0;
}
