/*
 * The public calls that make, copy, read and write results. Records are read (record_json.c) and
 * joined (merge.c), and figures are derived once (derive.c).
 */
#include "stalls/model/inside.h"

#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "stalls/model/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Larger than any result: 4096 ranks take some 200 MB. */
#define MOST_BYTES ((off_t)1 << 31)

/* Replaces *block, which is shared, by a copy; an empty one by NULL. */
static bool own(void *block, size_t count, size_t size)
{
    void *from, *to = NULL;
    memcpy(&from, block, sizeof from);
    if (count && from) {
        to = hr__alloc(HR__TAG_STALLS, count, size);
        if (to)
            memcpy(to, from, count * size);
    }
    memcpy(block, &to, sizeof to);
    return to || !count || !from;
}

static bool own_text(char **text)
{
    return own(text, *text ? strlen(*text) + 1 : 0, 1);
}

/* Copies what was recorded, not what is derived. A copy first shares every pointer. Each is then
 * replaced by a copy, or by NULL if memory runs out, so that the copy can be destroyed at any point
 * afterwards. */
static int copy_result(struct hr_stalls **out, const struct hr_stalls *from, struct hr_error *error)
{
    struct hr_stalls *s = *out = hr__stalls_create();
    if (!s)
        return hr__fail(error, -ENOMEM, "out of memory for a copy of a result");
    *s = *from;
    s->suggestions = NULL;
    s->suggestion_count = 0;
    s->has_suggestions = false;
    s->alone_s = s->waiting = NULL;
    s->straggles = NULL;
    s->sentence = NULL;
    bool ok = own_text(&s->command);
    ok &= own_text(&s->started);
    ok &= own_text(&s->ended);
    ok &= hr__own_run(s);
    ok &= own(&s->ranks, (size_t)s->rank_count, sizeof *s->ranks);
    if (!s->ranks)
        s->rank_count = 0;
    for (int i = 0; i < s->rank_count; i++)
        ok &= hr__fields_own(hr__rank_fields, &s->ranks[i]);
    ok &= own(&s->hosts, (size_t)s->host_count, sizeof *s->hosts);
    if (!s->hosts)
        s->host_count = 0;
    for (int i = 0; i < s->host_count; i++)
        ok &= hr__fields_own(hr__host_fields, &s->hosts[i]);
    if (ok)
        return 0;
    hr_stalls_destroy(out);
    return hr__fail(error, -ENOMEM, "out of memory for a copy of a result of %d ranks",
                    from->rank_count);
}

/* Joins parts and derives figures. Consumes and destroys the parts, on failure too. */
static int join_and_derive(struct hr_stalls **out, struct hr_stalls **parts, int count,
                           const char *kind, struct hr_error *error)
{
    struct hr_stalls *s = NULL;
    int r = hr__stalls_join(&s, parts, count, kind, error);
    for (int i = 0; i < count; i++)
        hr_stalls_destroy(&parts[i]);
    hr__free(parts);
    if (!r)
        r = hr__stalls_derive(s, error);
    if (!r)
        r = hr__stalls_advise(s, error);
    if (r)
        hr_stalls_destroy(&s);
    *out = s;
    return r;
}

static int check_count(int count, const char *kind, struct hr_error *error)
{
    if (count < 1 || count > HR__STALLS_MAX_RANKS)
        return hr__fail(error, -EINVAL, "there are %d %ss; give 1 to %d, one of each", count, kind,
                        HR__STALLS_MAX_RANKS);
    return 0;
}

int hr_stalls_analyse(struct hr_stalls **out, const char *const *records, const size_t *lengths,
                      int count, struct hr_error *error)
{
    *out = NULL;
    int r = check_count(count, "record", error);
    if (r)
        return r;
    struct hr_stalls **parts = hr__alloc(HR__TAG_STALLS, (size_t)count, sizeof(struct hr_stalls *));
    if (!parts)
        return hr__fail(error, -ENOMEM, "out of memory for %d records", count);
    for (int i = 0; i < count && !r; i++) {
        char where[48];
        snprintf(where, sizeof where, "record %d", i + 1);
        r = hr__stalls_read_record(&parts[i], records[i], lengths[i], where, error);
    }
    if (!r)
        return join_and_derive(out, parts, count, "record", error);
    for (int i = 0; i < count; i++)
        hr_stalls_destroy(&parts[i]);
    hr__free(parts);
    return r;
}

int hr_stalls_merge(struct hr_stalls **out, const struct hr_stalls *const *parts, int count,
                    struct hr_error *error)
{
    *out = NULL;
    int r = check_count(count, "result", error);
    if (r)
        return r;
    struct hr_stalls **copies =
        hr__alloc(HR__TAG_STALLS, (size_t)count, sizeof(struct hr_stalls *));
    if (!copies)
        return hr__fail(error, -ENOMEM, "out of memory for %d results", count);
    for (int i = 0; i < count && !r; i++)
        r = copy_result(&copies[i], parts[i], error);
    if (!r)
        return join_and_derive(out, copies, count, "result", error);
    for (int i = 0; i < count; i++)
        hr_stalls_destroy(&copies[i]);
    hr__free(copies);
    return r;
}

/* Reads a whole file into allocated memory. */
static int read_file(const char *path, char **text, size_t *length, struct hr_error *error)
{
    struct stat st;
    int r = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    *text = NULL;
    *length = 0;
    if (fd < 0 || fstat(fd, &st)) {
        r = hr__fail(error, -errno, "%s could not be read: %s", path, hr__errno_text(errno));
    } else if (!S_ISREG(st.st_mode) || st.st_size > MOST_BYTES) {
        r = hr__fail(error, S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL,
                     "%s is no stalls.json: give the file that headrace stalls wrote", path);
    } else if (!(*text = hr__alloc(HR__TAG_STALLS, (size_t)st.st_size + 1, 1))) {
        r = hr__fail(error, -ENOMEM, "out of memory for the %lld bytes of %s",
                     (long long)st.st_size, path);
    }
    if (!r) {
        int64_t got = hr__read_at(fd, *text, (size_t)st.st_size, 0);
        if (got < 0)
            r = hr__fail(error, (int)got, "%s could not be read: %s", path,
                         hr__errno_text((int)got));
        else
            *length = (size_t)got;
    }
    if (fd >= 0)
        close(fd);
    if (r) {
        hr__free(*text);
        *text = NULL;
    }
    return r;
}

int hr_stalls_read(struct hr_stalls **out, const char *path, struct hr_error *error)
{
    char *text;
    size_t length;
    *out = NULL;
    int r = read_file(path, &text, &length, error);
    if (r)
        return r;
    r = hr__stalls_from_json(out, text, length, path, error);
    hr__free(text);
    return r;
}

int hr_stalls_write(const struct hr_stalls *result, const char *path, struct hr_error *error)
{
    char *text;
    size_t length;
    int r = hr__stalls_to_json(result, &text, &length, error);
    if (r)
        return r;
    r = hr__write_file(path, text, length, error);
    hr__free(text);
    return r;
}

int hr_stalls_get_summary(const struct hr_stalls *result, struct hr_stalls_summary *summary,
                          struct hr_error *error)
{
    if (summary->size < sizeof summary->size)
        return hr__fail(error, -EINVAL,
                        "summary->size is %zu: set it to sizeof(struct hr_stalls_summary)",
                        summary->size);
    hr__versioned_give(summary, &result->summary, sizeof result->summary);
    return 0;
}

const char *hr_stalls_sentence(const struct hr_stalls *result)
{
    return result->sentence;
}
