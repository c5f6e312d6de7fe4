/* Reads files and objects at random; see source.h. */
#include "storage/source.h"

#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "storage/http.h"
#include "storage/url.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AHEAD_BYTES ((size_t)64 << 10)

static int open_object(struct hr__byte_source *s, struct hr_error *error)
{
    const struct hr__http_piece piece = {.http = s->http, .url = s->path};
    struct hr__object object = {.bytes = -1};
    s->ahead = AHEAD_BYTES;
    s->window = hr__alloc(HR__TAG_STORAGE, AHEAD_BYTES, 1);
    s->capacity = AHEAD_BYTES;
    int r = !s->window ? hr__fail(error, -ENOMEM, "out of memory to read %s", s->path) : 0;
    if (!r)
        r = hr__http_piece(&piece, s->window, s->capacity, &s->length, &object, error);
    if (!r && object.bytes < 0)
        r = hr__fail(error, -ENOTSUP,
                     "the server of %s does not say how large it is: use one that does, or copy "
                     "the file to a disk",
                     s->path);
    s->bytes = r ? 0 : (uint64_t)object.bytes;
    s->mtime_ns = object.mtime_ns;
    s->change = object.change;
    if (r)
        hr__source_close(s);
    return r;
}

int hr__source_open(struct hr__byte_source *out, const char *path, struct hr__http_client *http,
                    struct hr_error *error)
{
    *out = (struct hr__byte_source){.path = path, .fd = -1};
    if (hr__url_is(path)) {
        struct hr__url
            url; /* a wrong one must not get into the messages below: it may have a secret */
        int r = hr__url_parse(&url, path, error);
        if (!r && http)
            out->http = hr__http_ref(http);
        else if (!r)
            r = hr__http_create(&out->http, error);
        return r ? r : open_object(out, error);
    }
    /* O_NONBLOCK: do not wait if a FIFO has replaced the file */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    int r = fd < 0 ? -errno : fstat(fd, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -ENOTSUP;
    if (!r)
        r = hr__source_of_file(out, path, fd);
    if (r && fd >= 0)
        close(fd);
    return r == -ENOTSUP ? hr__fail(error, r, "%s is not a regular file", path)
           : r           ? hr__fail(error, r, "cannot open %s: %s", path, hr__errno_text(r))
                         : 0;
}

int hr__source_of_file(struct hr__byte_source *out, const char *path, int fd)
{
    struct stat st;
    *out = (struct hr__byte_source){.path = path, .fd = -1};
    if (fstat(fd, &st))
        return -errno;
    out->fd = fd;
    out->bytes = (uint64_t)st.st_size;
    out->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return 0;
}

/* Reads `length` bytes, which are there, past the window. */
static int read_directly(struct hr__byte_source *s, void *out, size_t length, uint64_t offset,
                         struct hr_error *error)
{
    const struct hr__http_piece piece = {
        .http = s->http, .url = s->path, .offset = offset, .change = s->change};
    size_t got;
    int r = hr__http_piece(&piece, out, length, &got, NULL, error);
    return !r && got < length
               ? hr__fail(error, -ESTALE, "%s was replaced by a shorter one meanwhile", s->path)
               : r;
}

/* Moves the window to `offset`. */
static int move_window(struct hr__byte_source *s, uint64_t offset, struct hr_error *error)
{
    uint64_t left = s->bytes - offset;
    size_t length = left < s->ahead ? (size_t)left : s->ahead;
    s->length = 0;
    if (length > s->capacity) {
        uint8_t *window = hr__alloc_aligned(HR__TAG_STORAGE, length, 0);
        if (!window)
            return hr__fail(error, -ENOMEM, "out of memory to read %s", s->path);
        hr__free(s->window);
        s->window = window;
        s->capacity = length;
    }
    int r = read_directly(s, s->window, length, offset, error);
    s->at = offset;
    s->length = r ? 0 : length;
    return r;
}

static int read_object(struct hr__byte_source *s, uint8_t *out, size_t length, uint64_t offset,
                       struct hr_error *error)
{
    while (length) {
        if (offset >= s->at && offset - s->at < s->length) {
            size_t from = (size_t)(offset - s->at), n = s->length - from;
            n = n < length ? n : length;
            memcpy(out, s->window + from, n);
            out += n;
            offset += n;
            length -= n;
            continue;
        }
        if (length >= s->ahead)
            return read_directly(s, out, length, offset, error);
        int r = move_window(s, offset, error);
        if (r)
            return r;
    }
    return 0;
}

int64_t hr__source_read_at(struct hr__byte_source *s, void *out, size_t length, uint64_t offset,
                           struct hr_error *error)
{
    if (s->fd >= 0) {
        int64_t got = hr__read_at(s->fd, out, length, offset);
        return got < 0 ? hr__fail(error, (int)got, "cannot read %s: %s", s->path,
                                  hr__errno_text((int)got))
                       : got;
    }
    if (offset >= s->bytes)
        return 0;
    if (length > s->bytes - offset)
        length = (size_t)(s->bytes - offset);
    int r = read_object(s, out, length, offset, error);
    return r ? r : (int64_t)length;
}

int hr__source_read(struct hr__byte_source *s, void *out, size_t length, uint64_t offset,
                    struct hr_error *error)
{
    int64_t got = hr__source_read_at(s, out, length, offset, error);
    if (got < 0)
        return (int)got;
    return (uint64_t)got < length ? hr__fail(error, -ENODATA, "%s ends before it should", s->path)
                                  : 0;
}

void hr__source_close(struct hr__byte_source *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    hr__free(s->window);
    s->window = NULL;
    hr__http_unref(&s->http);
}
