/* Reads a record (one rank's measurements) as a result of that rank alone: docs/stalls-format.md,
 * version 1. */
#include "base/error.h"
#include "base/memory.h"
#include "stalls/model/inside.h"
#include "stalls/model/parts.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define VERSION 1
/* Most words of a command; more would not help the reader. */
#define MOST_WORDS 10000

/* Returns whether a shell takes the word literally. */
static bool plain(const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "-_=+/.,:@%^";
    return *word && !word[strspn(word, safe)];
}

static size_t append(char *out, size_t at, const char *text, size_t length)
{
    memcpy(out + at, text, length);
    return at + length;
}

/* Joins the words of a command into one line, quoted for a shell. */
static char *quoted_line(char *const *words, size_t count)
{
    size_t most = 1;
    for (size_t i = 0; i < count; i++)
        most += 4 * strlen(words[i]) + 3;
    char *line = hr__alloc(HR__TAG_STALLS, most, 1);
    size_t at = 0;
    for (size_t i = 0; line && i < count; i++) {
        if (i)
            line[at++] = ' ';
        if (plain(words[i])) {
            at = append(line, at, words[i], strlen(words[i]));
            continue;
        }
        line[at++] = '\'';
        for (const char *c = words[i]; *c; c++)
            at = *c == '\'' ? append(line, at, "'\\''", 4) : append(line, at, c, 1);
        line[at++] = '\'';
    }
    return line;
}

static void check_version(struct hr__json *reader, const json_t *root)
{
    if (!json_object_get(root, "headrace_stalls_record")) {
        hr__json_fail(reader, -EINVAL, "", "%s",
                      json_object_get(root, "headrace_stalls")
                          ? "is a result, not a record: headrace stalls merge joins results"
                          : "is no record: it lacks headrace_stalls_record");
        return;
    }
    int64_t version = hr__json_integer(reader, root, "headrace_stalls_record",
                                       (struct hr__json_range){0, 1e6, HR__REQUIRED});
    if (version != VERSION)
        hr__json_fail(reader, -ENOTSUP, "headrace_stalls_record",
                      "is %" PRId64 "; headrace %s reads version %d: use the headrace that the "
                      "record was made with",
                      version, hr_version(), VERSION);
}

static void read_all(struct hr__json *reader, const json_t *root, struct hr_stalls *s)
{
    char **words;
    check_version(reader, root);
    if (reader->code)
        return;
    s->ranks = hr__alloc(HR__TAG_STALLS, 1, sizeof *s->ranks);
    s->rank_count = s->ranks != NULL;
    s->hosts = hr__alloc(HR__TAG_STALLS, 1, sizeof *s->hosts);
    s->host_count = s->hosts != NULL;
    if (!s->ranks || !s->hosts) {
        hr__json_no_memory(reader);
        return;
    }
    hr__read_run(reader, root, s);
    hr__fields_read(reader, root, hr__rank_fields, s->ranks);
    hr__fields_read(reader, root, hr__host_fields, s->hosts);
    size_t count = hr__json_texts(reader, root, "command", MOST_WORDS, &words);
    if (!reader->code && !(s->command = quoted_line(words, count)))
        hr__json_no_memory(reader);
    hr__texts_destroy(words, count);
    if (s->ranks->rank >= s->world_size)
        hr__json_fail(reader, -EINVAL, "rank", "is %d of a world_size of %d; write 0 to %d",
                      s->ranks->rank, s->world_size, s->world_size - 1);
}

int hr__stalls_read_record(struct hr_stalls **out, const char *text, size_t length,
                           const char *where, struct hr_error *error)
{
    struct hr__json reader = {.where = where, .error = error};
    *out = NULL;
    json_t *root = hr__json_parse(&reader, text, length);
    if (!root)
        return reader.code;
    *out = hr__stalls_create();
    if (*out)
        read_all(&reader, root, *out);
    else
        hr__json_no_memory(&reader);
    json_decref(root);
    if (reader.code)
        hr_stalls_destroy(out);
    return reader.code;
}
