/*
 * Each container has one atomic word for buffered reads and one for direct reads. Its value is "not
 * opened yet", "read by path", or the descriptor. If two threads open the same container at once,
 * both succeed; the second to finish closes its own descriptor.
 */
#include "dataset/containers.h"

#include "base/error.h"
#include "base/memory.h"
#include "storage/url.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOT_OPENED -1
#define BY_PATH    -2

/* The share of the process's descriptor limit that a dataset keeps open: a quarter, because other
 * datasets, readers, sockets and the program's own files need descriptors too. */
#define LIMIT_SHARE 4
#define KEPT_LEAST  8
#define KEPT_MOST   16384

struct container {
    char *path;       /* can be opened; owned */
    atomic_int fd[2]; /* for buffered and for direct reads */
    int given;        /* fd[0] was given: files opened later must be the same file */
    dev_t device;     /* of the given file */
    ino_t inode;      /* of the given file */
    uint64_t bytes;   /* as in the catalog; 0: unknown */
    int64_t mtime_ns; /* as in the catalog; 0: unknown */
    uint64_t change;  /* of an object: digest of its ETag; 0: unknown */
};

struct hr__containers {
    size_t count;
    int kept_most;   /* most descriptors to keep open */
    atomic_int kept; /* descriptors open or being opened */
    struct container items[];
};

/* Like os.path.join: an absolute path replaces the base; a slash is not doubled. */
static char *join(const char *base, const char *path)
{
    size_t length = strlen(base);
    if (!*path || !length || *path == '/' || hr__url_is(path))
        return hr__strdup(HR__TAG_DATASET, *path ? path : base);
    size_t bytes = length + strlen(path) + 2;
    char *joined = hr__alloc(HR__TAG_DATASET, bytes, 1);
    if (joined)
        snprintf(joined, bytes, "%s%s%s", base, base[length - 1] == '/' ? "" : "/", path);
    return joined;
}

static int keep_most(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / LIMIT_SHARE > KEPT_MOST)
        return KEPT_MOST;
    int share = (int)(limit.rlim_cur / LIMIT_SHARE);
    return share > KEPT_LEAST ? share : KEPT_LEAST;
}

int hr__containers_create(struct hr__containers **out, const struct hr__catalog *catalog,
                          const char *base)
{
    size_t count = catalog->header->containers;
    struct hr__containers *c =
        hr__alloc(HR__TAG_DATASET, 1, sizeof *c + count * sizeof(struct container));
    *out = NULL;
    if (!c)
        return -ENOMEM;
    c->count = count;
    c->kept_most = keep_most();
    for (size_t i = 0; i < count; i++) {
        const struct hr__catalog_container *from = &catalog->containers[i];
        struct container *item = &c->items[i];
        atomic_init(&item->fd[0], NOT_OPENED);
        atomic_init(&item->fd[1], NOT_OPENED);
        item->bytes = from->bytes;
        item->mtime_ns = from->mtime_ns;
        if (hr__url_is(hr__catalog_at(catalog, from->path)))
            item->change = (uint64_t)from->mtime_ns;
    }
    for (size_t i = 0; i < count; i++) {
        c->items[i].path = join(base, hr__catalog_at(catalog, catalog->containers[i].path));
        if (!c->items[i].path) {
            hr__containers_destroy(&c);
            return -ENOMEM;
        }
    }
    *out = c;
    return 0;
}

void hr__containers_destroy(struct hr__containers **containers)
{
    struct hr__containers *c = *containers;
    *containers = NULL;
    if (!c)
        return;
    for (size_t i = 0; i < c->count; i++) {
        for (int direct = 0; direct < 2; direct++) {
            int fd = atomic_load_explicit(&c->items[i].fd[direct], memory_order_relaxed);
            if (fd >= 0)
                close(fd);
        }
        hr__free(c->items[i].path);
    }
    hr__free(c);
}

void hr__containers_give(struct hr__containers *c, size_t i, int fd)
{
    struct container *item = &c->items[i];
    struct stat st;
    if (!fstat(fd, &st)) {
        item->given = 1;
        item->device = st.st_dev;
        item->inode = st.st_ino;
    }
    atomic_store_explicit(&item->fd[0], fd, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->kept, 1, memory_order_relaxed);
}

void hr__containers_know(struct hr__containers *c, size_t i, uint64_t change)
{
    c->items[i].change = change;
}

uint64_t hr__containers_change(const struct hr__containers *c, size_t i)
{
    return c->items[i].change;
}

const char *hr__containers_path(const struct hr__containers *c, size_t i)
{
    return c->items[i].path;
}

static int refuse(const struct container *item, int code, struct hr_error *error)
{
    return hr__fail(error, code, "cannot open %s: %s", item->path, hr__errno_text(code));
}

/* Checks that the open file is the one described in the catalog. */
static int check(const struct container *item, int fd, struct hr_error *error)
{
    struct stat st;
    if (fstat(fd, &st))
        return refuse(item, -errno, error);
    if (!S_ISREG(st.st_mode))
        return hr__fail(error, -ENXIO, "%s is not a regular file", item->path);
    int64_t mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    if ((item->bytes && item->bytes != (uint64_t)st.st_size) ||
        (item->mtime_ns && item->mtime_ns != mtime_ns) ||
        (item->given && (item->device != st.st_dev || item->inode != st.st_ino)))
        return hr__fail(error, -ESTALE,
                        "%s was changed or replaced after the dataset was opened: open it again",
                        item->path);
    return 0;
}

/* Opens a container. Returns a descriptor or a negative errno. */
static int open_one(const struct container *item, int direct, struct hr_error *error)
{
    /* O_NONBLOCK: do not wait if a FIFO has replaced the file */
    const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    int fd = open(item->path, flags | (direct ? O_DIRECT : 0));
    if (fd < 0 && errno == EINVAL && direct)
        fd = open(item->path, flags);
    if (fd < 0)
        return refuse(item, -errno, error);
    int r = check(item, fd, error);
    /* reads of the regular file may wait */
    if (!r && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK))
        r = refuse(item, -errno, error);
    if (!r)
        return fd;
    close(fd);
    return r;
}

int hr__containers_open(struct hr__containers *c, size_t i, int direct, int *fd,
                        struct hr_error *error)
{
    struct container *item = &c->items[i];
    atomic_int *word = &item->fd[direct != 0];
    /* acquire: see the file that the opening thread created with the number */
    int now = atomic_load_explicit(word, memory_order_acquire);
    if (now == NOT_OPENED) {
        int mine = open_one(item, direct, error);
        if (mine < 0)
            return mine;
        int keep = atomic_fetch_add_explicit(&c->kept, 1, memory_order_relaxed) < c->kept_most;
        int next = keep ? mine : BY_PATH;
        int first = atomic_compare_exchange_strong_explicit(word, &now, next, memory_order_acq_rel,
                                                            memory_order_acquire);
        if (first)
            now = next;
        if (!first || !keep) {
            atomic_fetch_sub_explicit(&c->kept, 1, memory_order_relaxed);
            close(mine);
        }
    }
    *fd = now == BY_PATH ? -1 : now;
    return 0;
}
