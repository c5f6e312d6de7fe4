/* Reads a file, plain or gzipped; see input.h. */
#include "base/input.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define BUFFER_BYTES (256u << 10)

int hr__input_open(struct hr__input *in, const char *path, struct hr_error *error)
{
    struct stat status = {0};
    *in = (struct hr__input){.name = path};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return hr__fail(error, -errno, "%s: %s", path, hr__errno_text(errno));
    if (fstat(fd, &status) || !S_ISREG(status.st_mode)) {
        close(fd);
        if (S_ISDIR(status.st_mode))
            return hr__fail(error, -EISDIR, "%s is a folder: give the name of a file", path);
        return hr__fail(error, -EINVAL, "%s is not a regular file", path);
    }
    in->length = (uint64_t)status.st_size;
    in->buffer = hr__alloc(HR__TAG_BASE, 1, BUFFER_BYTES);
    in->file = in->buffer ? gzdopen(fd, "rb") : NULL;
    if (!in->file) {
        close(fd);
        hr__input_close(in);
        return hr__fail(error, -ENOMEM, "out of memory while reading %s", path);
    }
    /* On failure zlib uses its smaller default buffer. */
    gzbuffer(in->file, BUFFER_BYTES);
    return 0;
}

void hr__input_memory(struct hr__input *in, const char *name, const void *bytes, size_t length)
{
    const uint8_t *first = bytes;
    *in = (struct hr__input){.name = name,
                             .next = first,
                             .end = first ? first + length : first,
                             .passed = length,
                             .length = length};
}

void hr__input_close(struct hr__input *in)
{
    if (in->file)
        gzclose(in->file);
    hr__free(in->buffer);
    *in = (struct hr__input){.name = in->name};
}

/* Notes why zlib returned no more bytes; the end of the file is no failure. */
static void note_failure(struct hr__input *in)
{
    int number = Z_OK;
    const char *words = gzerror(in->file, &number);
    if (number == Z_OK || number == Z_STREAM_END)
        return;
    if (number == Z_ERRNO)
        in->code = errno ? -errno : -EIO;
    else
        in->code = number == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
    if (number == Z_BUF_ERROR)
        snprintf(in->what, sizeof in->what, "the gzipped file is cut off");
    else if (number == Z_ERRNO)
        snprintf(in->what, sizeof in->what, "%s", hr__errno_text(in->code));
    else
        snprintf(in->what, sizeof in->what, "cannot be unpacked: %s", words);
}

int hr__input_fill(struct hr__input *in)
{
    if (!in->file || in->code)
        return 0;
    errno = 0;
    int got = gzread(in->file, in->buffer, BUFFER_BYTES);
    if (got <= 0) {
        note_failure(in);
        return 0;
    }
    if (!in->passed && !gzdirect(in->file))
        in->length = 0;
    in->next = in->buffer;
    in->end = in->buffer + got;
    in->passed += (uint64_t)got;
    return 1;
}

int hr__input_read(struct hr__input *in, void *out, size_t length)
{
    uint8_t *to = out;
    while (length) {
        if (in->next == in->end && !hr__input_fill(in))
            return 0;
        size_t there = (size_t)(in->end - in->next), n = there < length ? there : length;
        memcpy(to, in->next, n);
        in->next += n;
        to += n;
        length -= n;
    }
    return 1;
}

int hr__input_ended(const struct hr__input *in, const char *what, struct hr_error *error)
{
    if (in->code)
        return hr__fail(error, in->code, "%s: byte %" PRIu64 ": %s", in->name, hr__input_at(in),
                        in->what);
    return hr__fail(error, -EBADMSG, "%s: byte %" PRIu64 ": the file ends within %s", in->name,
                    hr__input_at(in), what);
}
