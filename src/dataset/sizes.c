/*
 * Queries sizes in chunks of samples, one chunk per thread at a time. Files are looked up by name
 * below their directory's descriptor, so the kernel resolves one component per file instead of the
 * whole path.
 */
#include "dataset/sizes.h"

#include "base/clock.h"
#include "dataset/stamp.h"
#include "storage/url.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#define CHUNK_SAMPLES 256

struct fill {
    struct hr__catalog *catalog;
    int base_fd; /* or AT_FDCWD */
    int is_url;  /* the base is a URL */
    struct hr__progress *progress;
};

/* Opens a directory. Returns base_fd itself for the path "". */
static int open_directory(const struct fill *f, uint64_t directory)
{
    const char *path = hr__catalog_at(f->catalog, f->catalog->directories[directory].path);
    return *path ? openat(f->base_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC) : f->base_fd;
}

/* Errors from a temporary lack of resources say nothing about the file and must not be stored in an
 * index. */
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

static void fill_chunk(void *arg, size_t chunk)
{
    struct fill *f = arg;
    struct hr__catalog *c = f->catalog;
    uint64_t i = (uint64_t)chunk * CHUNK_SAMPLES, end = i + CHUNK_SAMPLES;
    uint32_t open_now = UINT32_MAX;
    int fd = -1, result = 0; /* result of opening the directory */
    if (hr__progress_cancelled(f->progress))
        return;
    if (end > c->header->samples)
        end = c->header->samples;
    uint64_t count = end - i;
    for (; i < end; i++) {
        struct hr__stamp now;
        /* a URL in a list: its size comes with its bytes */
        if (f->is_url || (c->labels && hr__url_is(hr__catalog_at(c, c->names[i]))))
            continue;
        if (c->sample_directory[i] != open_now) {
            close_directory(f, fd);
            open_now = c->sample_directory[i];
            fd = open_directory(f, open_now);
            result = fd == -1 ? -errno : 0;
        }
        int r = result ? result : hr__stamp_look(&now, c, fd, hr__catalog_at(c, c->names[i]));
        if (is_lack(r))
            __atomic_store_n(&c->untrusted, 1, __ATOMIC_RELAXED);
        if (r)
            continue;
        hr__catalog_store(&c->mtimes_ns[i], now.mtime_ns);
        if (c->changes)
            __atomic_store_n(&c->changes[i], now.change, __ATOMIC_RELAXED);
        hr__catalog_store(&c->sizes[i], now.bytes);
    }
    close_directory(f, fd);
    hr__progress_add(f->progress, count);
}

int hr__sizes_fill(struct hr__catalog *catalog, const char *base,
                   const struct hr__executor *executor, struct hr__progress *progress)
{
    uint64_t samples = catalog->header->samples;
    struct fill f = {.catalog = catalog, .is_url = hr__url_is(base), .progress = progress};
    f.base_fd = f.is_url ? AT_FDCWD : open_base(base);
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

/* Returns a random number below `end`. */
static uint64_t draw(uint64_t end)
{
    uint64_t bits;
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits)
        bits = hr__now_ns() * UINT64_C(0x9e3779b97f4a7c15);
    return (uint64_t)((unsigned __int128)bits * end >> 64);
}

/* Returns non-zero if the file of sample `i` matches the catalog, or still cannot be queried. */
static int is_same(const struct fill *f, uint64_t i)
{
    struct hr__catalog *c = f->catalog;
    struct hr__stamp now;
    int fd = open_directory(f, c->sample_directory[i]);
    if (fd == -1)
        return 0;
    int r = hr__stamp_look(&now, c, fd, hr__catalog_at(c, c->names[i]));
    close_directory(f, fd);
    if (r)
        return c->sizes[i] == HR_SIZE_UNKNOWN && c->mtimes_ns[i] == HR_SIZE_UNKNOWN;
    return now.bytes == c->sizes[i] && now.mtime_ns == c->mtimes_ns[i] &&
           (!c->changes || now.change == c->changes[i]);
}

int hr__sizes_spot_check(struct hr__catalog *catalog, const char *base, uint64_t count)
{
    struct fill f = {.catalog = catalog, .base_fd = open_base(base)};
    uint64_t samples = catalog->header->samples;
    int same = f.base_fd >= 0 || f.base_fd == AT_FDCWD;
    if (count > samples)
        count = samples;
    /* Checks one random file in each of `count` equal stretches: all files of a small dataset. */
    for (uint64_t k = 0; same && k < count; k++) {
        uint64_t from = (uint64_t)((unsigned __int128)k * samples / count);
        uint64_t end = (uint64_t)((unsigned __int128)(k + 1) * samples / count);
        same = is_same(&f, from + draw(end - from));
    }
    if (f.base_fd >= 0)
        close(f.base_fd);
    return same;
}
