/*
 * Opens, creates and drops segments in their directory; see directory.h.
 *
 * Everything here runs under the directory's lock. A file is in use if a process holds one of its
 * locks; this also works for damaged files and those of other versions.
 */
#include "cache/directory.h"

#include "base/error.h"
#include "base/memory.h"
#include "cache/capacity.h"
#include "cache/segment_inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#define RUN_PREFIX "run+"
#define DIGEST     32 /* number of digits */

/* ---- file names ---- */

/* Writes the digits that end a file's name. */
static void digest_text(char out[DIGEST + 1], const uint8_t identity[16],
                        const struct hr__secret *secret)
{
    struct {
        uint8_t identity[16];
        uint32_t version;
    } what = {.version = HR__SEGMENT_VERSION};
    memcpy(what.identity, identity, sizeof what.identity);
    /* Processes with another secret, or none, cannot use its items, so they get another file. */
    XXH128_hash_t digest = XXH3_128bits_withSeed(&what, sizeof what, hr__secret_mark(secret));
    snprintf(out, DIGEST + 1, "%016" PRIx64 "%016" PRIx64, (uint64_t)digest.high64,
             (uint64_t)digest.low64);
}

static void name_file(char out[128], const struct hr__segment_wish *wish,
                      const struct hr__secret *secret)
{
    char digest[DIGEST + 1];
    const char *name = wish->spec->name;
    digest_text(digest, wish->identity, secret);
    snprintf(out, 128, "%s%s.%s", *name ? "" : RUN_PREFIX, *name ? name : wish->run, digest);
}

int hr__directory_is_secret(const struct hr__segment *s, const struct hr__secret *secret)
{
    char digest[DIGEST + 1];
    const char *dot = strrchr(s->file, '.');
    digest_text(digest, s->header->identity, secret);
    return dot && !strcmp(dot + 1, digest);
}

/* Returns non-zero if `file` is a segment's name and, unless `name` is NULL, of that kept name. */
static int is_segment(const char *file, const char *name)
{
    const char *dot = strrchr(file, '.');
    if (!dot || dot == file || strlen(file) >= 128 || strlen(dot + 1) != DIGEST ||
        strspn(dot + 1, "0123456789abcdef") != DIGEST)
        return 0;
    size_t length = (size_t)(dot - file);
    return !name || (strlen(name) == length && !memcmp(file, name, length));
}

static int is_private(const char *file)
{
    return !strncmp(file, RUN_PREFIX, strlen(RUN_PREFIX));
}

/* ---- existing files ---- */

/* Counts a file's users by its locks. */
static int count_users(int fd)
{
    uint64_t from = HR__SEGMENT_USER_LOCK, end = from + HR__SEGMENT_USERS, found = 0;
    int count = 0;
    while (from < end &&
           hr__segment_lock_byte(fd, F_OFD_GETLK, F_WRLCK, from, end - from, &found) == 1) {
        count++;
        from = found + 1;
    }
    return count;
}

/* Returns non-zero if the file is at fault, and not this process's memory or limits. */
static int is_damage(int code)
{
    return code == -EBADMSG || code == -EPROTO || code == -EACCES || code == -ELOOP ||
           code == -EISDIR || code == -ENXIO;
}

/* Fills in all but the name. Returns 0 or a negative errno; -ENOENT: the file does not exist. */
static int look_at(struct hr__directory *d, struct hr__directory_file *f)
{
    struct stat st;
    if (fstatat(d->own.fd, f->file, &st, AT_SYMLINK_NOFOLLOW))
        return -errno;
    f->device = st.st_dev;
    f->inode = st.st_ino;
    f->memory = (uint64_t)st.st_blocks * 512;
    f->is_private = is_private(f->file);
    struct hr__segment *s;
    struct hr_error error = {.code = 0};
    f->code = hr__segment_attach(&s, d->own.fd, f->file, 0, &error);
    if (!f->code) {
        f->users = hr__segment_users(s, NULL, 0);
        f->last_use = atomic_load(&s->header->last_use);
        f->items = hr__segment_books(s).arena_allocated;
        memcpy(f->dataset, s->header->dataset, sizeof f->dataset);
        f->dataset[sizeof f->dataset - 1] = 0;
        hr__segment_detach(&s);
        return 0;
    }
    if (!is_damage(f->code))
        return f->code;
    snprintf(f->problem, sizeof f->problem, "%.*s", (int)sizeof f->problem - 1, error.message);
    f->items = f->memory;
    int fd = openat(d->own.fd, f->file, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0) {
        f->users = count_users(fd);
        close(fd);
    }
    return 0;
}

static int by_file(const void *a, const void *b)
{
    return strcmp(((const struct hr__directory_file *)a)->file,
                  ((const struct hr__directory_file *)b)->file);
}

int hr__directory_files(struct hr__directory *d, const char *name,
                        struct hr__directory_file **files, size_t *count)
{
    *files = NULL;
    *count = 0;
    int fd = openat(d->own.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        r = -errno;
        if (fd >= 0)
            close(fd);
        return r;
    }
    for (struct dirent *e; !r && (e = readdir(entries));) {
        if (!is_segment(e->d_name, name))
            continue;
        r = hr__reserve(HR__TAG_CACHE, files, *count + 1);
        if (r)
            break;
        struct hr__directory_file *f = &(*files)[*count];
        memset(f, 0, sizeof *f);
        snprintf(f->file, sizeof f->file, "%.*s", (int)sizeof f->file - 1, e->d_name);
        r = look_at(d, f);
        *count += !r;
        r = r == -ENOENT ? 0 : r;
    }
    closedir(entries);
    if (r) {
        hr__free(*files);
        *files = NULL;
        *count = 0;
    } else if (*count) {
        qsort(*files, *count, sizeof **files, by_file);
    }
    return r;
}

int hr__directory_remove(struct hr__directory *d, const struct hr__directory_file *file,
                         const char *why)
{
    if (unlinkat(d->own.fd, file->file, 0))
        return -errno;
    if (why)
        hr__directory_note(d, file->is_private ? HR_LOG_INFO : HR_LOG_WARNING,
                           "dropped the cache's segment %s/%s%s%s, %" PRIu64 " bytes: %s", d->path,
                           file->file, *file->dataset ? " of " : "", file->dataset, file->memory,
                           why);
    return 0;
}

void hr__directory_sweep_locked(struct hr__directory *d)
{
    struct hr__directory_file *files;
    size_t count;
    if (hr__directory_files(d, NULL, &files, &count))
        return;
    for (size_t i = 0; i < count; i++)
        if (files[i].is_private && !files[i].users)
            hr__directory_remove(d, &files[i], "its run has ended");
    hr__free(files);
}

void hr__directory_sweep(void)
{
    struct hr__directory d;
    const struct hr__directory_where where = {.group = HR__DIRECTORY_OWN, .disk = ""};
    if (hr__directory_lock(&d, &where, 0, NULL))
        return; /* usually because the directory does not exist */
    hr__directory_sweep_locked(&d);
    hr__directory_unlock(&d);
}

/* ---- room within a name's size ---- */

/* The segments of a name and their memory. */
struct name_use {
    struct hr__directory_file *files;
    size_t count;
    uint64_t items;  /* memory of all */
    uint64_t in_use; /* memory of those that cannot be dropped */
};

/* Reads all segments of the name except the file `except`. */
static int read_name(struct name_use *use, struct hr__directory *d, const char *name,
                     const char *except)
{
    *use = (struct name_use){.count = 0};
    int r = hr__directory_files(d, name, &use->files, &use->count);
    if (r)
        return r;
    size_t kept = 0;
    for (size_t i = 0; i < use->count; i++) {
        const struct hr__directory_file *f = &use->files[i];
        if (!strcmp(f->file, except))
            continue;
        use->items += f->items;
        use->in_use += f->users ? f->items : 0;
        use->files[kept++] = *f;
    }
    use->count = kept;
    return 0;
}

/* Returns the unused segment with the oldest last use, or NULL. */
static struct hr__directory_file *oldest(struct name_use *use)
{
    struct hr__directory_file *found = NULL;
    for (size_t i = 0; i < use->count; i++) {
        struct hr__directory_file *f = &use->files[i];
        if (!f->users && *f->file && (!found || f->last_use < found->last_use))
            found = f;
    }
    return found;
}

/* Drops segments until the rest have at most `most` bytes. With `dry`, only adds up the memory that
 * this would free. */
static int shrink_name(struct name_use *use, struct hr__directory *d, uint64_t most, uint64_t *dry)
{
    while (use->items > most) {
        struct hr__directory_file *f = oldest(use);
        if (!f)
            return -ENOSPC;
        int r = dry ? 0
                    : hr__directory_remove(d, f,
                                           "its name's size is used up, no process uses this "
                                           "segment, and it is the least recently used one");
        if (r)
            return r;
        if (dry)
            *dry += f->memory;
        use->items -= f->items;
        *f->file = 0;
    }
    return 0;
}

/* Returns non-zero if the directory no longer has this segment's file under its name. */
static int is_dropped(const struct hr__directory *d, const struct hr__segment *s)
{
    struct stat ours, there;
    return fstat(s->own.fd, &ours) || fstatat(d->own.fd, s->file, &there, AT_SYMLINK_NOFOLLOW) ||
           ours.st_dev != there.st_dev || ours.st_ino != there.st_ino;
}

static int make_room_locked(struct hr__directory *d, struct hr__segment *s, uint64_t bytes,
                            int drop)
{
    if (is_dropped(d, s))
        return -ENOSPC;
    /* Staging does not count in the size. */
    if (!s->header->is_kept || !bytes)
        return 0;
    char name[sizeof s->header->name];
    memcpy(name, s->header->name, sizeof name);
    name[sizeof name - 1] = 0;
    /* Round up, because an arena is a whole number of units. */
    uint64_t size = (s->header->size_bytes + HR__SEGMENT_ALIGN - 1) & -(uint64_t)HR__SEGMENT_ALIGN;
    uint64_t wanted = hr__segment_books(s).arena_allocated + bytes;
    struct name_use use;
    int r = read_name(&use, d, name, s->file);
    /* If dropping everything possible would not suffice, drop nothing. */
    if (!r && (wanted > size || (drop ? use.in_use : use.items) > size - wanted))
        r = -ENOSPC;
    if (!r)
        r = shrink_name(&use, d, size - wanted, NULL);
    hr__free(use.files);
    return r;
}

int hr__directory_make_room(struct hr__segment *s, uint64_t bytes, int drop,
                            int (*take)(struct hr__segment *segment, void *arg), void *arg)
{
    struct hr__directory d;
    if (hr__directory_lock_again(&d, s->directory.fd, s->on_disk,
                                 atomic_load(&s->waited) ? 0 : HR__DIRECTORY_HURRY_NS)) {
        if (!atomic_exchange(&s->waited, 1))
            hr__log(HR_LOG_WARNING,
                    "the directory of %s is locked by another process, which may have been "
                    "stopped: the cache does not grow until that process continues or ends",
                    s->path);
        return -EAGAIN;
    }
    atomic_store(&s->waited, 0);
    int r = make_room_locked(&d, s, bytes, drop);
    if (!r)
        r = take(s, arg);
    hr__directory_unlock(&d);
    return r;
}

/* ---- opening ---- */

/* Removes a damaged file. Returns -ENOENT, or an error if it cannot be removed. */
static int discard(struct hr__directory *d, const char *file, int code, struct hr_error *error)
{
    struct hr__directory_file f = {.code = 0};
    snprintf(f.file, sizeof f.file, "%s", file);
    int r = look_at(d, &f);
    if (r)
        return hr__fail(error, r, "cannot look at the cache's segment %s/%s: %s", d->path, file,
                        hr__errno_text(r));
    if (code == -EPROTO && f.users)
        return hr__fail(error, -EBUSY,
                        "the cache's segment %s/%s is in use by %d processes with another version "
                        "of Headrace: end them, or use another name",
                        d->path, file, f.users);
    r = hr__directory_remove(d, &f, NULL);
    if (r)
        return hr__fail(error, r, "%s; it cannot be removed: %s", f.problem, hr__errno_text(r));
    hr__directory_note(d, HR_LOG_WARNING, "%s: it is dropped, %" PRIu64 " bytes, and made again%s",
                       f.problem, f.memory, f.users ? "; its users read from storage" : "");
    return -ENOENT;
}

static int attach(struct hr__segment **out, struct hr__directory *d, const char *file,
                  struct hr_error *error)
{
    struct hr_error why = {.code = 0};
    int r = hr__segment_attach(out, d->own.fd, file, 1, &why);
    if (!r || r == -ENOENT)
        return r;
    if (r == -EBADMSG || r == -EPROTO)
        return discard(d, file, r, error);
    if (r == -ELOOP)
        return hr__fail(error, -EACCES,
                        "the cache's segment %s/%s is a link that somebody put there: remove it",
                        d->path, file);
    return hr__fail(error, r, "%s", why.message);
}

/* Checks whether a disk has room for a new segment of `bytes`. */
static int check_disk(const struct hr__directory *d, const struct hr__capacity_wish *want,
                      struct hr_error *error)
{
    struct statvfs fs;
    if (fstatvfs(d->own.fd, &fs))
        return hr__fail(error, -errno, "cannot look at the disk of %s: %s", d->path,
                        hr__errno_text(errno));
    uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize + want->freed_bytes;
    if (want->bytes <= left)
        return 0;
    return hr__fail(error, -ENOSPC,
                    "a cache of %" PRIu64 " bytes, which takes up to %" PRIu64
                    " with its index, does not fit on the disk of %s, where %" PRIu64
                    " are free: write a smaller size, or free some",
                    want->budget, want->bytes, d->path, left);
}

/* Checks whether there is memory for a new segment, counting what would be dropped for it. */
static int check_capacity(struct hr__directory *d, const struct hr__segment_wish *wish,
                          const char *file, struct hr_error *error)
{
    const struct hr__cache_spec *spec = wish->spec;
    uint64_t may = spec->share_bytes, freed = 0;
    struct hr__segment_layout layout;
    struct hr__memory_limits capacity;
    if (*spec->name) {
        struct name_use use;
        int r = read_name(&use, d, spec->name, file);
        if (r)
            return hr__fail(error, r, "cannot look at the caches in %s: %s", d->path,
                            hr__errno_text(r));
        uint64_t left = use.in_use < spec->size_bytes ? spec->size_bytes - use.in_use : 0;
        may = may < left ? may : left;
        r = shrink_name(&use, d, spec->size_bytes - may, &freed);
        hr__free(use.files);
        if (r && r != -ENOSPC)
            return hr__fail(error, r, "cannot look at the caches in %s: %s", d->path,
                            hr__errno_text(r));
    }
    int r = hr__segment_plan(&layout, spec->share_bytes, wish->items, d->on_disk);
    if (r)
        return hr__fail(error, r, "a cache of %" PRIu64 " bytes for %" PRIu64 " items",
                        spec->share_bytes, wish->items);
    struct hr__capacity_wish want = {
        .bytes = layout.arena_offset + may,
        .budget = spec->share_bytes,
        .freed_bytes = freed,
        .place = d->path,
    };
    if (d->on_disk)
        return check_disk(d, &want, error);
    hr__memory_limits_read(&capacity, "", d->own.fd);
    r = hr__capacity_check(&capacity, &want, error);
    char why[HR__CAPACITY_WHY];
    if (!r && want.bytes > freed && !hr__capacity_grants(&capacity, want.bytes - freed, why))
        hr__directory_note(d, HR_LOG_WARNING,
                           "a cache of %" PRIu64 " bytes may stay smaller, as things are now: %s",
                           spec->share_bytes, why);
    return r;
}

/* Drops unused segments of a kept name that other versions of Headrace created, because nothing
 * would ever find them again. */
static void drop_other_versions(struct hr__directory *d, const char *name)
{
    struct hr__directory_file *files;
    size_t count;
    if (!*name || hr__directory_files(d, name, &files, &count))
        return;
    for (size_t i = 0; i < count; i++)
        if (files[i].code == -EPROTO && !files[i].users)
            hr__directory_remove(d, &files[i],
                                 "another version of Headrace made it; it is made again");
    hr__free(files);
}

static int create(struct hr__segment **out, struct hr__directory *d,
                  const struct hr__segment_wish *wish, const char *file, struct hr_error *error)
{
    const struct hr__cache_spec *spec = wish->spec;
    uint32_t tagged = *spec->key_file ? HR__SEGMENT_TAGGED : 0;
    drop_other_versions(d, spec->name);
    int r = check_capacity(d, wish, file, error);
    if (r)
        return r;
    int is_shared = *spec->group != 0;
    struct stat st;
    if (fstat(d->own.fd, &st))
        return hr__fail(error, -errno, "cannot look at %s: %s", d->path, hr__errno_text(errno));
    struct hr__segment_shape shape = {
        .name = spec->name,
        .dataset = wish->dataset,
        .size_bytes = spec->size_bytes,
        .budget_bytes = spec->share_bytes,
        .items = wish->items,
        .is_kept = *spec->name != 0,
        .flags = tagged | (d->on_disk ? HR__SEGMENT_ON_DISK : 0),
        .mode = is_shared ? 0660 : 0600,
        .group = is_shared ? (int)st.st_gid : -1,
    };
    memcpy(shape.identity, wish->identity, sizeof shape.identity);
    return hr__segment_create(out, d->own.fd, file, &shape, error);
}

/* Gives this use the highest number in the directory. */
static void number_use(struct hr__directory *d, struct hr__segment *s)
{
    struct hr__directory_file *files;
    size_t count;
    uint64_t last = atomic_load(&s->header->last_use);
    if (hr__directory_files(d, NULL, &files, &count))
        return;
    for (size_t i = 0; i < count; i++)
        if (files[i].last_use > last)
            last = files[i].last_use;
    hr__free(files);
    atomic_store(&s->header->last_use, last + 1);
}

static void fail_different(struct hr__directory *d, const struct hr__segment *s,
                           const struct hr__cache_spec *spec)
{
    uint64_t size = s->header->size_bytes, budget = s->layout.arena_bytes;
    if (size != spec->size_bytes || budget < spec->share_bytes)
        hr__directory_note(
            d, HR_LOG_WARNING,
            "cache %s is there already, with %" PRIu64 " of %" PRIu64
            " bytes for this dataset, not %" PRIu64 " of %" PRIu64
            ": it stays unchanged; for another size, drop it first (headrace cache drop %s%s)",
            *spec->path ? spec->path : spec->name, budget, size, spec->share_bytes,
            spec->size_bytes, *spec->path ? "disk:" : "", *spec->path ? spec->path : spec->name);
}

int hr__directory_open(struct hr__segment **out, const struct hr__segment_wish *wish,
                       struct hr_error *error)
{
    *out = NULL;
    struct hr__directory d;
    struct hr__segment *s = NULL;
    char file[128];
    struct hr__secret secret;
    struct hr__directory_where where = {.disk = wish->spec->path};
    int r = hr__secret_read(&secret, wish->spec->key_file, error);
    if (!r)
        r = hr__directory_group(wish->spec->group, &where.group, error);
    if (!r)
        r = hr__directory_lock(&d, &where, 1, error);
    if (r)
        return r;
    hr__directory_sweep_locked(&d);
    name_file(file, wish, &secret);
    r = attach(&s, &d, file, error);
    if (!r && *wish->spec->name)
        fail_different(&d, s, wish->spec);
    if (r == -ENOENT)
        r = create(&s, &d, wish, file, error);
    if (!r) {
        s->secret = secret;
        number_use(&d, s);
    }
    hr__directory_unlock(&d);
    explicit_bzero(&secret, sizeof secret);
    *out = s;
    return r;
}

void hr__directory_close(struct hr__segment **segment)
{
    struct hr__segment *s = *segment;
    struct hr__directory d;
    if (!s)
        return;
    int is_ours = s->pid == getpid() && s->user;
    /* The header may have been truncated since; the name also shows that the segment is private. */
    if (!is_ours || !is_private(s->file) ||
        hr__directory_lock_again(&d, s->directory.fd, s->on_disk, HR__DIRECTORY_PATIENCE_NS)) {
        hr__segment_detach(segment);
        return;
    }
    if (!hr__segment_users(s, NULL, 0) && !is_dropped(&d, s))
        unlinkat(d.own.fd, s->file, 0);
    hr__segment_detach(segment);
    hr__directory_unlock(&d);
}
