/*
 * Sizes: samples are looked at in pieces of one thread's work, by name below
 * their directory's descriptor, so that the kernel resolves one component per
 * file and not the whole path.
 */
#include "dataset/sizes.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_SAMPLES 256

struct fill {
    struct hr__catalog *catalog;
    int base_fd; /* or AT_FDCWD */
    struct hr__progress *progress;
};

/* A directory's descriptor to look below; <base_fd> itself for the path "". */
static int open_directory(const struct fill *f, uint64_t directory)
{
    const char *path = hr__catalog_at(f->catalog, f->catalog->directories[directory].path);
    return *path ? openat(f->base_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC) : f->base_fd;
}

/* What this process lacks for a moment says nothing about the files, and must
 * not be kept in an index. */
static int is_lack(int code)
{
    return code == -EMFILE || code == -ENFILE || code == -ENOMEM;
}

static void close_directory(const struct fill *f, int fd)
{
    if (fd >= 0 && fd != f->base_fd)
        close(fd);
}

static int open_base(const char *base)
{
    return *base ? open(base, O_PATH | O_DIRECTORY | O_CLOEXEC) : AT_FDCWD;
}

/* Size and time of a sample's file; 0 or a negative errno. */
static int look_at(const struct fill *f, int fd, uint64_t sample, int64_t *bytes, int64_t *mtime_ns)
{
    struct statx st;
    const char *name = hr__catalog_at(f->catalog, f->catalog->names[sample]);
    if (statx(fd, name, 0, STATX_TYPE | STATX_SIZE | STATX_MTIME, &st))
        return -errno;
    if (S_ISDIR(st.stx_mode))
        return -EISDIR;
    *bytes = (int64_t)st.stx_size;
    *mtime_ns = (int64_t)st.stx_mtime.tv_sec * 1000000000 + st.stx_mtime.tv_nsec;
    return 0;
}

static void fill_chunk(void *arg, size_t chunk)
{
    struct fill *f = arg;
    struct hr__catalog *c = f->catalog;
    uint64_t i = (uint64_t)chunk * CHUNK_SAMPLES, end = i + CHUNK_SAMPLES;
    uint32_t open_now = UINT32_MAX;
    int fd = -1, result = 0; /* of opening the directory */
    if (hr__progress_cancelled(f->progress))
        return;
    if (end > c->header->samples)
        end = c->header->samples;
    uint64_t count = end - i;
    for (; i < end; i++) {
        int64_t bytes, mtime_ns;
        if (c->sample_directory[i] != open_now) {
            close_directory(f, fd);
            open_now = c->sample_directory[i];
            fd = open_directory(f, open_now);
            result = fd == -1 ? -errno : 0;
        }
        int r = result ? result : look_at(f, fd, i, &bytes, &mtime_ns);
        if (is_lack(r))
            __atomic_store_n(&c->untrusted, 1, __ATOMIC_RELAXED);
        if (r)
            continue;
        hr__catalog_store(&c->mtimes_ns[i], mtime_ns);
        hr__catalog_store(&c->sizes[i], bytes);
    }
    close_directory(f, fd);
    hr__progress_add(f->progress, count);
}

int hr__sizes_fill(struct hr__catalog *catalog, const char *base,
                   const struct hr__executor *executor, struct hr__progress *progress)
{
    uint64_t samples = catalog->header->samples;
    struct fill f = {catalog, open_base(base), progress};
    hr__progress_stage(progress, "sizes", samples);
    if (f.base_fd == -1)
        catalog->untrusted |= is_lack(-errno);
    else
        executor->run(executor->self, (samples + CHUNK_SAMPLES - 1) / CHUNK_SAMPLES, fill_chunk,
                      &f);
    if (f.base_fd >= 0)
        close(f.base_fd);
    if (hr__progress_end(progress))
        return -ECANCELED;
    catalog->header->flags |= HR__CATALOG_SIZES;
    return 0;
}

int hr__sizes_spot_check(const struct hr__catalog *catalog, const char *base, uint64_t count)
{
    /* the catalog is only read through `f` here */
    struct fill f = {(struct hr__catalog *)catalog, open_base(base), NULL};
    uint64_t samples = catalog->header->samples;
    int same = f.base_fd >= 0 || f.base_fd == AT_FDCWD;
    if (count > samples)
        count = samples;
    for (uint64_t k = 0; same && k < count; k++) {
        uint64_t i = (uint64_t)((unsigned __int128)k * samples / count);
        int64_t bytes = HR_SIZE_UNKNOWN, mtime_ns = HR_SIZE_UNKNOWN;
        int fd = open_directory(&f, catalog->sample_directory[i]);
        if (fd != -1 && look_at(&f, fd, i, &bytes, &mtime_ns))
            bytes = mtime_ns = HR_SIZE_UNKNOWN;
        same = fd != -1 && bytes == catalog->sizes[i] && mtime_ns == catalog->mtimes_ns[i];
        close_directory(&f, fd);
    }
    if (f.base_fd >= 0)
        close(f.base_fd);
    return same;
}
