/* Files with the status of loaders; see status_file.h. */
#include "metrics/status_file.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"

#include <headrace/loader.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC   "HRLOADER"
#define VERSION 1
/* Files that a reader or a sweep looks at, so that a full directory costs no minutes. */
#define FILES_MOST 4096
/* Attempts to read a file between two writes, and to make one that no sweep removes. */
#define TRIES 4

static void place_of(char *out, size_t capacity)
{
    const char *place = getenv("HEADRACE_SHM");
    snprintf(out, capacity, "%s/headrace-%u-loaders", place && *place ? place : "/dev/shm",
             (unsigned)geteuid());
}

/* Opens the directory if it belongs to this user alone. Returns a descriptor or a negative errno.
 */
static int open_place(const char *path, int make)
{
    struct stat st;
    if (make && mkdir(path, 0700) && errno != EEXIST)
        return -errno;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (!fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & 077))
        return fd;
    close(fd);
    return -EACCES;
}

/* Locks the file. Returns 0; 1: another open file has it locked; or a negative errno. */
static int lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (!fcntl(fd, F_OFD_SETLK, &whole))
        return 0;
    return errno == EAGAIN || errno == EACCES ? 1 : -errno;
}

/* Returns 1 if another open file has the file locked; 0; or a negative errno. */
static int is_locked(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_GETLK, &whole))
        return -errno;
    return whole.l_type != F_UNLCK;
}

typedef int (*visit_fn)(void *arg, int place, const char *name, int fd);

/* Calls `visit` for the files of the directory until it returns non-zero. Returns that, or 0. */
static int each_file(int place, visit_fn visit, void *arg)
{
    int again = openat(place, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = again < 0 ? NULL : fdopendir(again);
    if (!entries) {
        if (again >= 0)
            close(again);
        return 0;
    }
    int left = FILES_MOST, r = 0;
    for (struct dirent *e; !r && left && (e = readdir(entries));) {
        if (*e->d_name == '.')
            continue;
        left--;
        int fd = openat(place, e->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
            continue;
        r = visit(arg, place, e->d_name, fd);
        close(fd);
    }
    closedir(entries);
    return r;
}

static int remove_stale(void *arg, int place, const char *name, int fd)
{
    struct stat st;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && !lock(fd))
        unlinkat(place, name, 0);
    return 0;
}

/* Makes a file and locks it. Returns 0; 1: a sweep of another process took it; or an error. */
static int make(struct hr__status_file *file, int number)
{
    struct stat st;
    place_of(file->place, sizeof file->place);
    int place = open_place(file->place, 1);
    if (place < 0)
        return place == -ENOENT ? 1 : place; /* it was removed again, being empty */
    each_file(place, remove_stale, NULL);
    snprintf(file->name, sizeof file->name, "%d.%d.%" PRIx64, (int)getpid(), number, hr__now_ns());
    int r = hr__own_fd_open(&file->own, place, file->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW,
                            0600);
    if (!r)
        r = lock(file->own.fd);
    if (!r && (fstat(file->own.fd, &st) || !st.st_nlink))
        r = 1;
    if (r && file->own.fd >= 0) {
        unlinkat(place, file->name, 0);
        hr__own_fd_close(&file->own);
    }
    close(place);
    return r == -ENOENT ? 1 : r;
}

void hr__status_file_open(struct hr__status_file *file, int number)
{
    int r = 1;
    for (int i = 0; r == 1 && i < TRIES; i++)
        r = make(file, number);
}

void hr__status_file_write(struct hr__status_file *file, const char *text, size_t length)
{
    struct {
        struct hr__status_header header;
        char text[HR__STATUS_BYTES];
    } all;
    if (file->own.fd < 0 || length > sizeof all.text)
        return;
    all.header = (struct hr__status_header){
        .version = VERSION, .length = (uint32_t)length, .digest = XXH3_64bits(text, length)};
    memcpy(all.header.magic, MAGIC, sizeof all.header.magic);
    memcpy(all.text, text, length);
    ssize_t n = pwrite(file->own.fd, &all, sizeof all.header + length, 0);
    (void)n; /* full: what was written before stays, or a reader finds it torn */
}

void hr__status_file_close(struct hr__status_file *file)
{
    if (file->own.fd < 0)
        return;
    int place = open_place(file->place, 0);
    if (place >= 0) {
        unlinkat(place, file->name, 0);
        close(place);
        rmdir(file->place);
    }
    hr__own_fd_close(&file->own);
}

json_t *hr__status_parse(const void *bytes, size_t length)
{
    struct hr__status_header header;
    if (length < sizeof header)
        return NULL;
    memcpy(&header, bytes, sizeof header);
    const char *text = (const char *)bytes + sizeof header;
    if (memcmp(header.magic, MAGIC, sizeof header.magic) != 0 || header.version != VERSION ||
        header.length > HR__STATUS_BYTES || header.length > length - sizeof header ||
        XXH3_64bits(text, header.length) != header.digest)
        return NULL;
    json_t *json = json_loadb(text, header.length, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(json))
        return json;
    json_decref(json);
    return NULL;
}

static int read_status(void *arg, int place, const char *name, int fd)
{
    char bytes[sizeof(struct hr__status_header) + HR__STATUS_BYTES];
    json_t *array = arg, *json = NULL;
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || is_locked(fd) != 1)
        return 0;
    for (int i = 0; !json && i < TRIES; i++) {
        int64_t got = hr__read_at(fd, bytes, sizeof bytes, 0);
        json = got > 0 ? hr__status_parse(bytes, (size_t)got) : NULL;
    }
    return json ? json_array_append_new(array, json) : 0;
}

int hr__status_files_read(json_t *array)
{
    char path[256];
    place_of(path, sizeof path);
    int place = open_place(path, 0);
    if (place < 0)
        return 0;
    int r = each_file(place, read_status, array);
    close(place);
    return r ? -ENOMEM : 0;
}

int hr_loaders_status(char **json, struct hr_error *error)
{
    json_t *loaders = json_array();
    if (loaders && hr__status_files_read(loaders)) {
        json_decref(loaders);
        loaders = NULL;
    }
    json_t *root = loaders ? json_pack("{s:i, s:o}", "version", 1, "loaders", loaders) : NULL;
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    *json = text ? hr__strdup(HR__TAG_METRICS, text) : NULL;
    free(text);
    json_decref(root);
    return *json ? 0 : hr__fail(error, -ENOMEM, "out of memory for the status of loaders");
}
