/*
 * Index files: finding them, reading with validation, and writing atomically.
 *
 * The file is read into memory, not mapped, because another process may replace or truncate it at
 * any time. The root directory's own times are not compared: writing an index beside the data
 * changes them. Instead the root is listed again, which costs one directory of class names.
 */
#include "dataset/index.h"

#include "base/files.h"
#include "base/memory.h"
#include "dataset/objects.h"
#include "dataset/sizes.h"
#include "dataset/walk.h"
#include "storage/url.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define BESIDE_NAME         ".headrace-index"
#define SPOT_CHECK_FILES    64
#define DIRECTORIES_A_CHUNK 64

/* The flags of an index: of a folder and complete. */
#define FLAGS (HR__CATALOG_SIZES | HR__CATALOG_CHANGES)

static int join(char **out, const char *format, const char *a, const char *b)
{
    int n = snprintf(NULL, 0, format, a, b);
    *out = n < 0 ? NULL : hr__alloc(HR__TAG_DATASET, (size_t)n + 1, 1);
    if (!*out)
        return -ENOMEM;
    snprintf(*out, (size_t)n + 1, format, a, b);
    return 0;
}

/* Finds the root's path without links, or its URL; the caller frees *out with hr__free. */
static int canonical_root(char **out, const char *root)
{
    char *path = hr__url_is(root) ? NULL : realpath(root, NULL);
    *out = NULL;
    if (!path && !hr__url_is(root))
        return -errno;
    *out = path ? hr__strdup(HR__TAG_DATASET, path) : hr__objects_root(root);
    free(path);
    return *out ? 0 : -ENOMEM;
}

int hr__user_cache(char **path, const char *name)
{
    /* ignore a relative XDG_CACHE_HOME (XDG Base Directory 0.8) */
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *path = NULL;
    if (cache && *cache == '/')
        return join(path, "%s/headrace/%s", cache, name);
    return home && *home == '/' ? join(path, "%s/.cache/headrace/%s", home, name) : -ENOENT;
}

int hr__index_locate(char **path, const char *root, enum hr_index_policy policy)
{
    *path = NULL;
    /* nothing is written into a bucket that data is read from */
    if (policy == HR_INDEX_NONE || (policy == HR_INDEX_BESIDE_DATA && hr__url_is(root)))
        return -ENOENT;
    char *canonical;
    int r = canonical_root(&canonical, root);
    if (r)
        return r;
    if (policy == HR_INDEX_BESIDE_DATA) {
        r = join(path, "%s/%s", canonical, BESIDE_NAME);
    } else {
        XXH128_hash_t h = XXH3_128bits(canonical, strlen(canonical));
        char name[64];
        snprintf(name, sizeof name, "index/%016llx%016llx.idx", (unsigned long long)h.high64,
                 (unsigned long long)h.low64);
        r = hr__user_cache(path, name);
    }
    hr__free(canonical);
    return r;
}

static int read_index(struct hr__catalog **out, const char *path)
{
    struct stat st;
    /* O_NONBLOCK: do not wait if a FIFO has replaced the file */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    char *block = NULL;
    int r = fstat(fd, &st) ? -errno : 0;
    if (!r && (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct hr__catalog_header)))
        r = -EBADMSG;
    if (!r && st.st_uid != geteuid() && st.st_uid != 0)
        r = -EPERM;
    if (!r && !(block = hr__alloc_aligned(HR__TAG_DATASET, (size_t)st.st_size, 0)))
        r = -ENOMEM;
    if (!r)
        r = hr__read_exactly(fd, block, (size_t)st.st_size, 0);
    if (!r)
        r = ((struct hr__catalog_header *)block)->flags == FLAGS
                ? hr__catalog_adopt(out, block, (size_t)st.st_size)
                : -EBADMSG; /* not a folder's index */
    if (r)
        hr__free(block);
    close(fd);
    return r;
}

struct validation {
    const struct hr__catalog *catalog;
    int root_fd;
    _Atomic int stale;
};

static int64_t timespec_ns(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static void validate_chunk(void *arg, size_t chunk)
{
    struct validation *v = arg;
    const struct hr__catalog *c = v->catalog;
    uint64_t i = (uint64_t)chunk * DIRECTORIES_A_CHUNK, end = i + DIRECTORIES_A_CHUNK;
    for (; i < end && i < c->header->directories; i++) {
        const struct hr__catalog_directory *d = &c->directories[i];
        struct stat st;
        if (atomic_load_explicit(&v->stale, memory_order_relaxed))
            return;
        if (fstatat(v->root_fd, hr__catalog_at(c, d->path), &st, 0) || !S_ISDIR(st.st_mode) ||
            st.st_ino != d->inode || timespec_ns(&st.st_mtim) != d->mtime_ns ||
            timespec_ns(&st.st_ctim) != d->ctime_ns)
            atomic_store_explicit(&v->stale, 1, memory_order_relaxed);
    }
}

static int validate(struct hr__catalog *c, const char *root, const struct hr__executor *executor)
{
    struct validation v = {.catalog = c};
    v.root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (v.root_fd < 0)
        return -errno;
    if (!hr__walk_same_classes(v.root_fd, c))
        v.stale = 1;
    else
        executor->run(executor->self,
                      (c->header->directories + DIRECTORIES_A_CHUNK - 1) / DIRECTORIES_A_CHUNK,
                      validate_chunk, &v);
    close(v.root_fd);
    if (v.stale || !hr__sizes_spot_check(c, root, SPOT_CHECK_FILES))
        return -ESTALE;
    return 0;
}

int hr__index_load_objects(struct hr__catalog **out, const char *path,
                           const struct hr__objects_folder *folder)
{
    struct hr__catalog *c = NULL;
    char *root = NULL;
    *out = NULL;
    int r = read_index(&c, path);
    if (r)
        return r;
    r = canonical_root(&root, folder->url);
    if (!r && (strcmp(root, hr__catalog_at(c, c->header->root)) || !hr__objects_same(c, folder)))
        r = -ESTALE;
    hr__free(root);
    if (r)
        hr__catalog_destroy(&c);
    *out = c;
    return r;
}

int hr__index_load(struct hr__catalog **out, const char *path, const char *root,
                   enum hr_index_policy policy, const struct hr__executor *executor)
{
    struct hr__catalog *c = NULL;
    *out = NULL;
    int r = read_index(&c, path);
    if (r)
        return r;
    /* An index beside the data may have moved together with the root. In the user cache, another
     * root under the same name is a hash collision. */
    if (policy == HR_INDEX_USER_CACHE) {
        char *canonical = NULL;
        if (canonical_root(&canonical, root) ||
            strcmp(canonical, hr__catalog_at(c, c->header->root)))
            r = -ESTALE;
        hr__free(canonical);
    }
    if (!r)
        r = validate(c, root, executor);
    if (r)
        hr__catalog_destroy(&c);
    *out = c;
    return r;
}

int hr__make_parents(const char *path)
{
    char *copy = hr__strdup(HR__TAG_DATASET, path);
    int r = copy ? 0 : -ENOMEM;
    for (char *slash = copy ? strchr(copy + 1, '/') : NULL; slash && !r;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(copy, 0700) && errno != EEXIST && access(copy, F_OK))
            r = -errno;
        *slash = '/';
    }
    hr__free(copy);
    return r;
}

int hr__index_save(struct hr__catalog *catalog, const char *path, enum hr_index_policy policy)
{
    struct hr__catalog_header *h = catalog->header;
    if (catalog->untrusted || h->flags != FLAGS)
        return -ESTALE;
    int r = policy == HR_INDEX_USER_CACHE ? hr__make_parents(path) : 0;
    if (r)
        return r;
    h->checksum = hr__catalog_checksum(h);
    return hr__replace_file(path, h, h->bytes, 0600);
}
