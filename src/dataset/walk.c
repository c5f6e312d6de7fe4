/*
 * Walks an image folder.
 *
 * The result is that of torchvision (datasets/folder.py). Classes are the sorted names of the
 * directories directly under the root. In each, sorted(os.walk(class, followlinks=True)) gives the
 * directories in the order of their whole paths, and each directory gives the sorted names of all
 * entries that are not directories and have an image extension. There are two differences. A link
 * to a directory already on the path is left out, where os.walk descends until the kernel refuses.
 * A directory that cannot be read is an error, where os.walk skips it.
 *
 * Names come from getdents64 in large pieces, with the type of each entry; only links and entries
 * of unknown type need a stat.
 */
#include "dataset/walk.h"

#include "base/error.h"
#include "base/memory.h"
#include "dataset/names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LISTING_BYTES 65536

/* A directory in the walk. */
struct node {
    char *path;          /* below the root; owned; "" for the root itself */
    struct node *parent; /* NULL for the root */
    uint32_t label;
    int (*is_sample)(const char *name, size_t length); /* a file in it; the root has none */
    uint64_t device, inode;
    int64_t mtime_ns, ctime_ns, listed_ns;
    struct hr__names files;
    struct hr__names directories;
    int untrusted; /* see hr__walk */
    int is_loop;   /* it is on its own path already: left out */
    int result;    /* result of listing it: 0 or a negative errno */
};

struct walk {
    int root_fd;
    struct node **nodes; /* the root, then the directories level by level */
    size_t count;
    size_t level; /* first node of the level being listed */
    struct hr__progress *progress;
    const char *media, *article_and_media; /* of its samples, for messages */
    int (*is_sample)(const char *name, size_t length);
};

static int64_t timespec_ns(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static void node_destroy(struct node *n)
{
    if (!n)
        return;
    hr__names_clear(&n->files);
    hr__names_clear(&n->directories);
    hr__free(n->path);
    hr__free(n);
}

/* Returns non-zero if the directory is `n` or one of its ancestors on the path. */
static int is_on_path(const struct node *n, uint64_t device, uint64_t inode)
{
    for (; n; n = n->parent)
        if (n->device == device && n->inode == inode)
            return 1;
    return 0;
}

/* Returns DT_DIR, DT_REG for anything else, or DT_WHT for an entry to leave out. */
static int resolve_type(int fd, const char *name, struct node *n)
{
    struct stat st;
    if (!fstatat(fd, name, &st, 0)) {
        if (!S_ISDIR(st.st_mode))
            return DT_REG;
        return is_on_path(n, st.st_dev, st.st_ino) ? DT_WHT : DT_DIR;
    }
    /* The link's target can change without a change of this directory's times. */
    n->untrusted = 1;
    return errno == ELOOP ? DT_WHT : DT_REG;
}

static int take_entry(struct node *n, int fd, const struct dirent64 *entry)
{
    const char *name = entry->d_name;
    int type = entry->d_type;
    if (name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])))
        return 0;
    if (type == DT_LNK || type == DT_UNKNOWN)
        type = resolve_type(fd, name, n);
    size_t length = strlen(name);
    if (type == DT_DIR)
        return hr__names_add(&n->directories, name, length);
    /* files directly in the root belong to no class */
    if (type != DT_WHT && n->parent && n->is_sample(name, length))
        return hr__names_add(&n->files, name, length);
    return 0;
}

static int list_entries(struct node *n, int fd, struct hr__progress *progress)
{
    char *buffer = hr__alloc_aligned(HR__TAG_DATASET, LISTING_BYTES, 0);
    int r = buffer ? 0 : -ENOMEM;
    while (!r) {
        size_t before = n->files.count;
        ssize_t got = syscall(SYS_getdents64, fd, buffer, LISTING_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            r = got < 0 ? -errno : 0;
            break;
        }
        for (ssize_t at = 0; at < got && !r;) {
            const struct dirent64 *entry = (const struct dirent64 *)(buffer + at);
            r = take_entry(n, fd, entry);
            at += entry->d_reclen;
        }
        if (progress) {
            hr__progress_add(progress, n->files.count - before);
            if (!r && hr__progress_cancelled(progress))
                r = -ECANCELED;
        }
    }
    hr__free(buffer);
    return r;
}

/* Stores the directory's identity and times before it is listed. A change during the listing then
 * shows as a different time at the next open. */
static int identify(struct node *n, int fd)
{
    struct stat st;
    struct timespec now;
    if (fstat(fd, &st))
        return -errno;
    clock_gettime(CLOCK_REALTIME, &now);
    n->device = st.st_dev;
    n->inode = st.st_ino;
    n->mtime_ns = timespec_ns(&st.st_mtim);
    n->ctime_ns = timespec_ns(&st.st_ctim);
    n->listed_ns = timespec_ns(&now);
    /* resolve_type detects links back into the path; this detects the root again below a link that
     * leads above it */
    n->is_loop = is_on_path(n->parent, n->device, n->inode);
    return 0;
}

static int list_open(struct node *n, int fd, struct hr__progress *progress)
{
    int r = identify(n, fd);
    if (!r && !n->is_loop)
        r = list_entries(n, fd, progress);
    if (!r)
        r = hr__names_sort(&n->files);
    if (!r)
        r = hr__names_sort(&n->directories);
    return r;
}

/* Lists one directory of the current level; runs on any thread. */
static void list_node(void *arg, size_t i)
{
    struct walk *w = arg;
    struct node *n = w->nodes[w->level + i];
    if (hr__progress_cancelled(w->progress)) {
        n->result = -ECANCELED;
        return;
    }
    int fd = openat(w->root_fd, n->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        n->result = -errno;
        return;
    }
    n->result = list_open(n, fd, w->progress);
    close(fd);
}

static int append(struct walk *w, struct node *parent, const char *name, uint32_t label)
{
    if (hr__reserve(HR__TAG_DATASET, &w->nodes, w->count + 1))
        return -ENOMEM;
    struct node *n = hr__alloc(HR__TAG_DATASET, 1, sizeof *n);
    size_t above = parent ? strlen(parent->path) : 0, length = strlen(name);
    if (n)
        n->path = hr__alloc(HR__TAG_DATASET, above + 1 + length + 1, 1);
    if (!n || !n->path) {
        node_destroy(n);
        return -ENOMEM;
    }
    if (above) {
        memcpy(n->path, parent->path, above);
        n->path[above++] = '/';
    }
    memcpy(n->path + above, name, length);
    n->parent = parent;
    n->is_sample = w->is_sample;
    n->label = label;
    w->nodes[w->count++] = n;
    return 0;
}

/* Appends the subdirectories found in the current level and makes them the next level. */
static int descend(struct walk *w, const char *root, struct hr_error *error)
{
    size_t end = w->count;
    for (size_t i = w->level; i < end; i++) {
        struct node *n = w->nodes[i];
        if (n->result == -ECANCELED)
            return hr__fail(error, -ECANCELED, "listing %s was cancelled", root);
        if (n->result == -ENOMEM)
            return hr__fail(error, -ENOMEM, "out of memory while listing %s", root);
        if (n->result == -EMFILE || n->result == -ENFILE)
            return hr__fail(error, n->result, "cannot list the directory %s/%s: %s", root, n->path,
                            hr__errno_text(n->result));
        if (n->result)
            return hr__fail(error, n->result,
                            "cannot list the directory %s/%s: %s; make it readable or move it "
                            "out of the dataset",
                            root, n->path, hr__errno_text(n->result));
        for (size_t k = 0; k < n->directories.count; k++)
            if (append(w, n, n->directories.items[k], n->parent ? n->label : (uint32_t)k))
                return hr__fail(error, -ENOMEM, "out of memory while listing %s", root);
        /* class names are needed to the end, other names only here */
        if (n->parent)
            hr__names_clear(&n->directories);
    }
    w->level = end;
    return 0;
}

static int compare_nodes(const void *a, const void *b)
{
    const struct node *x = *(struct node *const *)a, *y = *(struct node *const *)b;
    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    return hr__name_compare(x->path, y->path);
}

/* Removes loops and puts all nodes but the root in dataset order. */
static void arrange(struct walk *w)
{
    size_t kept = 1;
    for (size_t i = 1; i < w->count; i++) {
        struct node *n = w->nodes[i];
        /* a loop was not listed, so it has no children */
        if (n->is_loop)
            node_destroy(n);
        else
            w->nodes[kept++] = n;
    }
    w->count = kept;
    qsort(w->nodes + 1, w->count - 1, sizeof *w->nodes, compare_nodes);
}

static void fill_directory(struct hr__catalog *c, uint64_t i, struct node *n, uint64_t first)
{
    struct hr__catalog_directory *d = &c->directories[i];
    d->path = hr__catalog_text(c, n->path, strlen(n->path));
    d->label = n->label;
    d->first = first;
    d->count = n->files.count;
    d->inode = n->inode;
    d->mtime_ns = n->mtime_ns;
    d->ctime_ns = n->ctime_ns;
    d->listed_ns = n->listed_ns;
    for (uint64_t k = 0; k < d->count; k++) {
        const char *name = n->files.items[k];
        c->names[first + k] = hr__catalog_text(c, name, strlen(name));
        c->sample_directory[first + k] = (uint32_t)i;
    }
    int64_t changed = n->mtime_ns > n->ctime_ns ? n->mtime_ns : n->ctime_ns;
    if (n->untrusted || changed > n->listed_ns - HR__RACY_NS)
        c->untrusted = 1;
    hr__names_clear(&n->files);
}

static int build(struct hr__catalog **out, struct walk *w, const char *canonical)
{
    const struct node *root = w->nodes[0];
    struct hr__catalog_shape shape = {
        .classes = root->directories.count,
        .directories = w->count - 1,
        .changes = 1,
        .arena_bytes = strlen(canonical) + 1 + root->directories.bytes,
    };
    for (size_t i = 1; i < w->count; i++) {
        shape.samples += w->nodes[i]->files.count;
        shape.arena_bytes += strlen(w->nodes[i]->path) + 1 + w->nodes[i]->files.bytes;
    }
    int r = hr__catalog_create(out, &shape);
    if (r)
        return r;
    struct hr__catalog *c = *out;
    c->header->root = hr__catalog_text(c, canonical, strlen(canonical));
    c->untrusted = root->untrusted;
    for (size_t i = 0; i < shape.classes; i++) {
        const char *name = root->directories.items[i];
        c->class_names[i] = hr__catalog_text(c, name, strlen(name));
    }
    uint64_t first = 0;
    for (size_t i = 1; i < w->count; i++) {
        fill_directory(c, i - 1, w->nodes[i], first);
        first += c->directories[i - 1].count;
    }
    return 0;
}

static int walk_levels(struct walk *w, const char *root, const struct hr__executor *executor,
                       struct hr_error *error)
{
    if (append(w, NULL, "", 0))
        return hr__fail(error, -ENOMEM, "out of memory while listing %s", root);
    w->nodes[0]->result = list_open(w->nodes[0], w->root_fd, w->progress);
    int r = descend(w, root, error);
    if (!r && w->count == 1)
        return hr__fail(error, -ENODATA,
                        "no class directory in %s: %s folder has one directory per class "
                        "directly under its root",
                        root, w->article_and_media);
    while (!r && w->level < w->count) {
        executor->run(executor->self, w->count - w->level, list_node, w);
        r = descend(w, root, error);
    }
    return r;
}

/* Walks with the walk's progress and names. */
static int walk_folder(struct hr__catalog **out, struct walk *w, const char *path,
                       const struct hr__executor *executor, struct hr_error *error)
{
    char *canonical = NULL;
    *out = NULL;
    hr__progress_stage(w->progress, "listing", 0);
    w->root_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->root_fd < 0) {
        int code = -errno;
        return hr__fail(error, code, "cannot open the %s folder %s: %s", w->media, path,
                        hr__errno_text(code));
    }
    int r = walk_levels(w, path, executor, error);
    if (r)
        goto fail;
    canonical = realpath(path, NULL);
    if (!canonical) {
        r = -errno;
        hr__fail(error, r, "cannot resolve the path %s: %s", path, hr__errno_text(r));
        goto fail;
    }
    arrange(w);
    r = build(out, w, canonical);
    if (r)
        hr__fail(error, r, "out of memory for the names of %s", path);
    else if (hr__progress_end(w->progress)) {
        hr__catalog_destroy(out);
        r = hr__fail(error, -ECANCELED, "listing %s was cancelled", path);
    }
fail:
    for (size_t i = 0; i < w->count; i++)
        node_destroy(w->nodes[i]);
    hr__free(w->nodes);
    free(canonical);
    close(w->root_fd);
    return r;
}

int hr__walk(struct hr__catalog **out, const char *path, const struct hr__executor *executor,
             struct hr__progress *progress, struct hr_error *error)
{
    struct walk w = {.progress = progress,
                     .media = "image",
                     .article_and_media = "an image",
                     .is_sample = hr__name_is_image};
    return walk_folder(out, &w, path, executor, error);
}

int hr__walk_sounds(struct hr__catalog **out, const char *path, const struct hr__executor *executor,
                    struct hr__progress *progress, struct hr_error *error)
{
    struct walk w = {.progress = progress,
                     .media = "sound",
                     .article_and_media = "a sound",
                     .is_sample = hr__name_is_sound};
    return walk_folder(out, &w, path, executor, error);
}

int hr__walk_same_classes(int fd, const struct hr__catalog *catalog)
{
    struct node root = {0};
    int same = 0;
    if (identify(&root, fd) || list_entries(&root, fd, NULL) || hr__names_sort(&root.directories))
        goto done;
    same = root.directories.count == catalog->header->classes && !root.untrusted;
    for (size_t i = 0; same && i < root.directories.count; i++)
        same = !strcmp(root.directories.items[i], hr__catalog_at(catalog, catalog->class_names[i]));
done:
    hr__names_clear(&root.files);
    hr__names_clear(&root.directories);
    return same;
}
