/*
 * Detects the format of another tool's file by its first bytes, not its name, and imports it; see
 * import.h.
 */
#include "memory/import/import.h"

#include "base/error.h"
#include "base/memory.h"
#include "memory/record/format.h"
#include "memory/record/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum file_kind { FILE_OTHER, FILE_RECORD, FILE_SNAPSHOT, FILE_KINETO, FILE_TIMELINE, FILE_PAGE };

/* ---- detecting the format ---- */

static const uint8_t *skip_spaces(const uint8_t *at, const uint8_t *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

static int begins(const uint8_t *at, const uint8_t *end, const char *with)
{
    size_t length = strlen(with);
    return (size_t)(end - at) >= length && !strncasecmp((const char *)at, with, length);
}

static enum file_kind kind_of(struct hr__input *in)
{
    if (hr__input_peek(in) < 0)
        return FILE_OTHER;
    const uint8_t *at = in->next, *end = in->end;
    if (begins(at, end, HR__RECORD_MAGIC))
        return FILE_RECORD;
    /* A pickle of protocol 2 or later; or a list or dict of an earlier one, which the reader
     * rejects with a clear message. */
    if (end - at >= 2 &&
        ((*at == 0x80 && at[1] <= 5) || begins(at, end, "}q") || begins(at, end, "]q") ||
         begins(at, end, "(dp") || begins(at, end, "(lp")))
        return FILE_SNAPSHOT;
    at = skip_spaces(at, end);
    if (begins(at, end, "<!doctype") || begins(at, end, "<html"))
        return FILE_PAGE;
    if (begins(at, end, "{"))
        return FILE_KINETO;
    if (!begins(at, end, "["))
        return FILE_OTHER;
    at = skip_spaces(at + 1, end);
    return begins(at, end, "{")                           ? FILE_KINETO
           : begins(at, end, "[") || begins(at, end, "]") ? FILE_TIMELINE
                                                          : FILE_OTHER;
}

static int refuse(const struct hr__input *in, enum file_kind kind, struct hr_error *error)
{
    if (in->code)
        return hr__input_ended(in, "its first bytes", error);
    if (kind == FILE_PAGE)
        return hr__fail(error, -EBADMSG,
                        "%s is a page, and no memory record: its data is elsewhere; let "
                        "export_memory_timeline write a file whose name ends in .raw.json.gz",
                        in->name);
    return hr__fail(error, -EBADMSG,
                    "%s is no memory record (headrace memory record makes one), and nothing that "
                    "can be imported, gzipped or not: a snapshot of PyTorch's allocator "
                    "(torch.cuda.memory._dump_snapshot), a Kineto trace with [memory] events "
                    "(torch.profiler with profile_memory=True), a raw memory timeline "
                    "(export_memory_timeline with .raw.json.gz)",
                    in->name);
}

/* ---- importing ---- */

static int read_kind(struct hr__import *im)
{
    enum file_kind kind = kind_of(im->in);
    switch (kind) {
    case FILE_SNAPSHOT:
        return hr__import_snapshot(im);
    case FILE_KINETO:
        return hr__import_kineto(im);
    case FILE_TIMELINE:
        return hr__import_timeline(im);
    case FILE_RECORD:
        return hr__fail(im->error, -EBADMSG,
                        "%s is a memory record already: headrace memory report reads it",
                        im->in->name);
    default:
        return refuse(im->in, kind, im->error);
    }
}

/* Reads im->in by its format. On failure there is no record. */
static int read_in(struct hr__import *im)
{
    int code = read_kind(im);
    if (!im->recorder)
        return code;
    uint64_t recorded, lost;
    hr_memory_counts(im->recorder, &recorded, &lost);
    int problem = hr__recorder_problem(im->recorder);
    hr_memory_recorder_destroy(&im->recorder);
    if (!code && (lost || problem))
        code = hr__fail(im->error, problem ? problem : -EIO, "%s: cannot be written: %s", im->to,
                        hr__errno_text(problem ? problem : -EIO));
    if (code)
        unlink(im->to);
    return code;
}

int hr__import_read(struct hr__input *in, const char *to, struct hr_error *error)
{
    struct hr__import im = {.in = in, .to = to, .fd = -1, .error = error};
    return read_in(&im);
}

int hr_memory_import(const char *from, const char *to, struct hr_error *error)
{
    struct hr__input in = {.name = from};
    char path[4096];
    /* Keep the existing file until the import is complete. */
    int n = snprintf(path, sizeof path, "%s.importing", to);
    if (n < 0 || (size_t)n >= sizeof path)
        return hr__fail(error, -ENAMETOOLONG, "%s: its name is too long", to);
    int code = hr__recorder_may_replace(to, error);
    if (!code)
        code = hr__input_open(&in, from, error);
    if (!code)
        code = hr__import_read(&in, path, error);
    if (!code && rename(path, to)) {
        code = hr__fail(error, -errno, "%s: cannot be replaced: %s", to, hr__errno_text(errno));
        unlink(path);
    }
    hr__input_close(&in);
    return code;
}

/* Imports into an unlinked temporary file, and opens it. */
static int open_imported(struct hr__record **out, struct hr__input *in, struct hr_error *error)
{
    const char *folder = getenv("TMPDIR");
    char path[4096], to[sizeof path + 8];
    int n = snprintf(path, sizeof path, "%s/headrace-import-XXXXXX",
                     folder && *folder ? folder : "/tmp");
    if (n < 0 || (size_t)n >= sizeof path)
        return hr__fail(error, -ENAMETOOLONG, "TMPDIR names a folder with too long a name");
    if (!mkdtemp(path))
        return hr__fail(error, -errno, "%s: no folder can be made there to import %s into: %s",
                        path, in->name, hr__errno_text(errno));
    snprintf(to, sizeof to, "%s/record", path);
    struct hr__import im = {.in = in, .to = to, .folder = path, .fd = -1, .error = error};
    int code = read_in(&im);
    if (!code && im.fd < 0)
        code = hr__fail(error, -EIO, "%s: the record that was made there cannot be read", path);
    if (!code) {
        snprintf(to, sizeof to, "/proc/self/fd/%d", im.fd);
        code = hr__record_open(out, to, error);
    }
    if (im.fd >= 0)
        close(im.fd);
    rmdir(path); /* if no record was begun */
    return code;
}

int hr__import_open(struct hr__record **out, const char *path, struct hr_error *error)
{
    struct hr__input in = {.name = path};
    *out = NULL;
    /* The record reader reports unreadable files too. */
    if (hr__input_open(&in, path, NULL))
        return hr__record_open(out, path, error);
    enum file_kind kind = kind_of(&in);
    int code;
    if (kind == FILE_RECORD)
        code = hr__record_open(out, path, error);
    else
        code = kind == FILE_OTHER || kind == FILE_PAGE ? refuse(&in, kind, error)
                                                       : open_imported(out, &in, error);
    hr__input_close(&in);
    return code;
}
