/* Reads and writes files; see files.h. */
#include "base/files.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t hr__read_text(const char *path, char *out, size_t capacity)
{
    size_t length = 0;
    ssize_t n = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), code = 0;
    while (fd >= 0 &&
           ((n = read(fd, out + length, capacity - 1 - length)) > 0 || (n < 0 && errno == EINTR)))
        length += n > 0 ? (size_t)n : 0;
    if (n < 0)
        code = -errno;
    if (fd >= 0)
        close(fd);
    out[code ? 0 : length] = 0;
    return code ? code : (ssize_t)length;
}

void hr__program_text(char *out, size_t capacity)
{
    char raw[256];
    ssize_t n = hr__read_text("/proc/self/cmdline", raw, sizeof raw);
    for (ssize_t i = 0; i + 1 < n; i++)
        if (!raw[i])
            raw[i] = ' ';
    size_t word = strcspn(raw, " "), name = 0;
    for (size_t i = 0; i < word; i++)
        if (raw[i] == '/')
            name = i + 1;
    hr__printable(out, capacity, raw + name);
}

int64_t hr__read_at(int fd, void *out, size_t length, uint64_t offset)
{
    size_t got = 0;
    while (got < length) {
        ssize_t n = pread(fd, (char *)out + got, length - got, (off_t)(offset + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (!n)
            break;
        got += (size_t)n;
    }
    return (int64_t)got;
}

int hr__read_exactly(int fd, void *out, size_t length, uint64_t offset)
{
    int64_t got = hr__read_at(fd, out, length, offset);
    return got < 0 ? (int)got : (uint64_t)got < length ? -ENODATA : 0;
}

int hr__write_all(int fd, const void *bytes, size_t length)
{
    const char *from = bytes;
    while (length) {
        ssize_t n = write(fd, from, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? -errno : -EIO;
        from += n;
        length -= (size_t)n;
    }
    return 0;
}

static int write_in_place(const char *path, const char *text, size_t length)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    int r = hr__write_all(fd, text, length);
    if (close(fd) && !r)
        r = -errno;
    return r;
}

/* Opens a file without a name beside `path`. Returns -1 if that is impossible, or if the file could
 * not be given a name later. */
static int open_unnamed(const char *path, mode_t mode)
{
    const char *slash = strrchr(path, '/');
    char *folder = hr__strdup(HR__TAG_STORAGE, slash ? path : ".");
    if (folder && slash)
        folder[slash == path ? 1 : slash - path] = 0;
    int fd = folder && !access("/proc/self/fd", X_OK)
                 ? open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode)
                 : -1;
    hr__free(folder);
    return fd;
}

static int give_name(int fd, const char *name)
{
    char from[64];
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, from, AT_FDCWD, name, AT_SYMLINK_FOLLOW) ? -errno : 0;
}

int hr__replace_file(const char *path, const void *bytes, size_t length, mode_t mode)
{
    size_t capacity = strlen(path) + 48;
    char *temporary = hr__alloc(HR__TAG_STORAGE, capacity, 1);
    if (!temporary)
        return -ENOMEM;
    snprintf(temporary, capacity, "%s.%ld-%" PRIu64, path, (long)getpid(), hr__now_ns());
    int fd = open_unnamed(path, mode), is_named = fd < 0;
    if (is_named)
        fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    int r = fd < 0 ? -errno : hr__write_all(fd, bytes, length);
    if (!r && fsync(fd))
        r = -errno;
    if (!r && !is_named) {
        r = give_name(fd, temporary);
        is_named = !r;
    }
    if (fd >= 0 && close(fd) && !r)
        r = -errno;
    if (!r && rename(temporary, path))
        r = -errno;
    if (r && fd >= 0 && is_named)
        unlink(temporary);
    hr__free(temporary);
    return r;
}

int hr__write_file(const char *path, const char *text, size_t length, struct hr_error *error)
{
    struct stat st;
    int r;
    if (!strcmp(path, "-")) {
        /* Flush what the program has already printed, to keep the order. */
        fflush(stdout);
        r = hr__write_all(STDOUT_FILENO, text, length);
        return r ? hr__fail(error, r, "standard output: %s", hr__errno_text(r)) : 0;
    }
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) {
        r = S_ISDIR(st.st_mode) ? -EISDIR : write_in_place(path, text, length);
    } else {
        char *target = realpath(path, NULL);
        r = hr__replace_file(target ? target : path, text, length, 0666);
        free(target);
    }
    if (r)
        return hr__fail(error, r, "%s could not be written: %s%s", path, hr__errno_text(r),
                        r == -ENOENT ? ": create its directory first" : "");
    return 0;
}
