/*
 * Scans tar files with libarchive; see tar.h.
 *
 * libarchive handles the dialects (GNU long names, pax headers, ustar). When it returns the first
 * block of a member's data, its position in the file is where that data begins. Reading those bytes
 * once more verifies the position.
 */
#include "dataset/tar.h"

#include "base/error.h"
#include "base/memory.h"
#include "dataset/names.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#define READ_BYTES ((size_t)64 << 10)

/* Bytes of a member that are read again to verify its position. */
#define PROBE_BYTES 32

/* An image or label member. */
struct tar_member {
    size_t name; /* offset in the shard's text */
    uint64_t offset, bytes;
    uint64_t group; /* number of the run of members with the same key; from 0 in each shard */
    int64_t label;
    int is_label; /* non-zero: a .cls with `label`; else an image */
};

struct shard {
    const char *path;
    int64_t mtime_ns;
    uint64_t file_bytes;
    struct tar_member *members;
    size_t count;
    char *text; /* names, 0-terminated */
    size_t text_bytes;
    uint64_t passed_over; /* members that are neither image nor label */
    struct hr_error error;
};

struct tar_pass {
    struct shard *shards;
    struct hr__progress *progress;
};

int hr__tar_recognise(const void *bytes, size_t length)
{
    return length >= 512 && !memcmp((const char *)bytes + 257, "ustar", 5);
}

/* Strips the "./" that `tar c .` writes. */
static const char *plain(const char *name)
{
    while (name[0] == '.' && name[1] == '/')
        name += 2;
    return name;
}

static const char *base_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* Returns the length of the name's key, which identifies its sample: up to the first dot of the
 * last path component. */
static size_t key_bytes(const char *name)
{
    const char *base = base_of(name);
    return (size_t)(base - name) + strcspn(base, ".");
}

static int wrong(struct shard *s, int code, const char *member, const char *what)
{
    char path[512], printable[512];
    hr__printable(path, sizeof path, s->path);
    hr__printable(printable, sizeof printable, member);
    return hr__fail(&s->error, code, "%s: the member %s %s", path, printable, what);
}

static int add_member(struct shard *s, const char *name, const struct tar_member *m)
{
    size_t length = strlen(name) + 1;
    if (hr__reserve(HR__TAG_DATASET, &s->text, s->text_bytes + length) ||
        hr__reserve(HR__TAG_DATASET, &s->members, s->count + 1))
        return hr__fail(&s->error, -ENOMEM, "out of memory for the names in %s", s->path);
    memcpy(s->text + s->text_bytes, name, length);
    s->members[s->count] = *m;
    s->members[s->count].name = s->text_bytes;
    s->count++;
    s->text_bytes += length;
    return 0;
}

/* Reads a .cls member: an integer, with optional white space around it. */
static int read_label(struct shard *s, struct archive *a, const char *name, int64_t *label)
{
    char text[64], *end;
    la_ssize_t got = archive_read_data(a, text, sizeof text - 1);
    if (got < 0)
        return wrong(s, -EBADMSG, name, "cannot be read; the shard is damaged");
    text[got] = 0;
    errno = 0;
    *label = strtoll(text, &end, 10);
    int none = end == text || errno;
    while (*end == ' ' || *end == '\n' || *end == '\r' || *end == '\t')
        end++;
    if (none || *end || strlen(text) != (size_t)got || got == (la_ssize_t)sizeof text - 1)
        return wrong(s, -EINVAL, name, "is no label: it must hold one whole number");
    return 0;
}

/* Finds and verifies the position of a member's data. */
static int locate(struct shard *s, struct archive *a, int fd, const char *name,
                  struct tar_member *m)
{
    const void *block;
    size_t length;
    la_int64_t offset;
    char probe[PROBE_BYTES];
    int r = archive_read_data_block(a, &block, &length, &offset);
    if (r != ARCHIVE_OK || !length || offset)
        return wrong(s, -EBADMSG, name, "cannot be read; the shard is damaged");
    m->offset = (uint64_t)archive_filter_bytes(a, 0);
    if (m->bytes > s->file_bytes || m->offset > s->file_bytes - m->bytes)
        return wrong(s, -EBADMSG, name, "is cut off; copy the shard again");
    length = length < sizeof probe ? length : sizeof probe;
    if (pread(fd, probe, length, (off_t)m->offset) != (ssize_t)length ||
        memcmp(probe, block, length))
        return wrong(s, -EBADMSG, name, "is not where its header says; the shard is damaged");
    return 0;
}

static int take_member(struct shard *s, struct archive *a, struct archive_entry *entry, int fd,
                       uint64_t group)
{
    const char *name = plain(archive_entry_pathname(entry));
    int is_label = !strcasecmp(name + key_bytes(name), ".cls");
    struct tar_member m = {.bytes = (uint64_t)archive_entry_size(entry), .group = group};
    m.is_label = is_label;
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) ||
        (!is_label && !hr__name_is_image(name, strlen(name)))) {
        s->passed_over += archive_entry_filetype(entry) != AE_IFDIR;
        return 0;
    }
    if (archive_entry_sparse_count(entry))
        return wrong(s, -ENOTSUP, name, "is sparse; write the shard without --sparse");
    if (!is_label && !m.bytes)
        return wrong(s, -EBADMSG, name, "is empty (0 bytes)");
    int r = is_label ? read_label(s, a, name, &m.label) : locate(s, a, fd, name, &m);
    return r ? r : add_member(s, name, &m);
}

static int read_members(struct shard *s, struct archive *a, int fd, struct tar_pass *pass)
{
    struct archive_entry *entry;
    char *last = NULL; /* key of the group */
    uint64_t group = 0;
    int r = 0, got;
    while (!r && (got = archive_read_next_header(a, &entry)) != ARCHIVE_EOF) {
        const char *name =
            got == ARCHIVE_OK || got == ARCHIVE_WARN ? archive_entry_pathname(entry) : NULL;
        if (hr__progress_cancelled(pass->progress)) {
            r = -ECANCELED;
        } else if (!name) {
            const char *text = archive_error_string(a);
            r = hr__fail(&s->error, -EBADMSG, "%s is damaged after %zu members: %s", s->path,
                         s->count, text ? text : "a name cannot be read");
        } else {
            name = plain(name);
            size_t length = key_bytes(name);
            if (!last || strlen(last) != length || memcmp(last, name, length)) {
                group += last != NULL;
                hr__free(last);
                last = hr__strdup(HR__TAG_DATASET, name);
                if (last)
                    last[length] = 0;
            }
            r = last ? take_member(s, a, entry, fd, group)
                     : hr__fail(&s->error, -ENOMEM, "out of memory for a name");
        }
    }
    hr__free(last);
    return r;
}

/* Reports what the file is instead of a tar file. */
static int refuse(struct shard *s, int fd)
{
    uint8_t first[6] = {0};
    ssize_t got = pread(fd, first, sizeof first, 0);
    const char *compressed = got < 2                                ? NULL
                             : first[0] == 0x1F && first[1] == 0x8B ? "gzip"
                             : !memcmp(first, "BZh", 3)             ? "bzip2"
                             : !memcmp(first,
                                       "\xFD"
                                       "7zXZ",
                                       5)
                                 ? "xz"
                             : !memcmp(first, "\x28\xB5\x2F\xFD", 4) ? "zstd"
                                                                     : NULL;
    if (compressed)
        return hr__fail(&s->error, -ENOTSUP,
                        "%s is compressed with %s: decompress it, because samples are read at "
                        "random",
                        s->path, compressed);
    if (got <= 0)
        return hr__fail(&s->error, -EBADMSG, "%s is empty; copy it again", s->path);
    return hr__fail(&s->error, -ENOTSUP, "%s is not a tar file", s->path);
}

static int read_shard(struct shard *s, struct tar_pass *pass)
{
    struct stat st;
    char head[512];
    int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st)) {
        int code = -errno;
        if (fd >= 0)
            close(fd);
        return hr__fail(&s->error, code, "cannot open %s: %s", s->path, hr__errno_text(code));
    }
    s->file_bytes = (uint64_t)st.st_size;
    s->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    ssize_t got = S_ISREG(st.st_mode) ? pread(fd, head, sizeof head, 0) : 0;
    if (!hr__tar_recognise(head, got > 0 ? (size_t)got : 0)) {
        int r = refuse(s, fd);
        close(fd);
        return r;
    }
    struct archive *a = archive_read_new();
    int r = -ENOMEM;
    if (!a || archive_read_support_format_tar(a) || archive_read_open_fd(a, fd, READ_BYTES))
        hr__fail(&s->error, r, "out of memory to read %s", s->path);
    else
        r = read_members(s, a, fd, pass);
    archive_read_free(a);
    close(fd);
    return r;
}

static void read_one(void *arg, size_t i)
{
    struct tar_pass *pass = arg;
    struct shard *s = &pass->shards[i];
    int r = hr__progress_cancelled(pass->progress) ? -ECANCELED : read_shard(s, pass);
    if (r) {
        s->error.code = r;
        hr__progress_cancel(pass->progress);
    }
    hr__progress_add(pass->progress, 1);
}

/* Sums over all shards. */
struct totals {
    uint64_t images, labels, text_bytes, passed_over;
    size_t prefix; /* length of the common directory of all images, with its slash */
    const char *first;
};

static const char *name_of(const struct shard *s, const struct tar_member *m)
{
    return s->text + m->name;
}

static struct totals add_up(const struct shard *shards, size_t count)
{
    struct totals t = {0};
    for (size_t i = 0; i < count; i++) {
        t.text_bytes += strlen(shards[i].path) + 1;
        t.passed_over += shards[i].passed_over;
        for (size_t k = 0; k < shards[i].count; k++) {
            const struct tar_member *m = &shards[i].members[k];
            const char *name = name_of(&shards[i], m);
            t.labels += m->is_label != 0;
            if (m->is_label)
                continue;
            t.images++;
            t.text_bytes += strlen(name) + 1;
            size_t directory = (size_t)(base_of(name) - name);
            if (!t.first) {
                t.first = name;
                t.prefix = directory;
            }
            size_t same = 0;
            while (same < t.prefix && same < directory && name[same] == t.first[same])
                same++;
            while (same && t.first[same - 1] != '/')
                same--;
            t.prefix = same;
        }
    }
    return t;
}

/* WebDataset layout: gives the images the labels of their groups. */
static int pair_labels(struct shard *s)
{
    for (size_t i = 0; i < s->count;) {
        struct tar_member *image = NULL, *label = NULL;
        size_t end = i;
        for (; end < s->count && s->members[end].group == s->members[i].group; end++) {
            struct tar_member **slot = s->members[end].is_label ? &label : &image;
            if (*slot)
                return wrong(s, -EINVAL, name_of(s, &s->members[end]),
                             s->members[end].is_label ? "is a second .cls of its sample"
                                                      : "is a second image of its sample");
            *slot = &s->members[end];
        }
        if (image && !label)
            return wrong(s, -EINVAL, name_of(s, image),
                         "has no .cls beside it, as other members have");
        if (image)
            image->label = label->label;
        i = end;
    }
    return 0;
}

/* Finds the class of a name: its first directory below the common one; the last directory of the
 * common one if all images are in it. */
static int class_of(const struct totals *t, const char *name, const char **class_name,
                    size_t *length)
{
    const char *at = name + t->prefix, *slash = strchr(at, '/');
    if (slash) {
        *class_name = at;
        *length = (size_t)(slash - at);
        return 1;
    }
    if (!t->prefix)
        return 0;
    *class_name = name;
    *length = t->prefix - 1;
    while (memrchr(*class_name, '/', *length)) {
        const char *last = memrchr(*class_name, '/', *length);
        *length -= (size_t)(last + 1 - *class_name);
        *class_name = last + 1;
    }
    return 1;
}

/* Image folder layout: collects the class names, sorted and without duplicates. */
static int collect_classes(struct hr__names *classes, struct shard *shards, size_t count,
                           const struct totals *t)
{
    struct hr__names all = {0};
    const char *last = NULL, *name = "";
    size_t length = 0, last_length = 0;
    int r = 0;
    for (size_t i = 0; !r && i < count; i++)
        for (size_t k = 0; !r && k < shards[i].count; k++) {
            const char *member = name_of(&shards[i], &shards[i].members[k]);
            if (!class_of(t, member, &name, &length))
                r = wrong(&shards[i], -EINVAL, member,
                          "has no label: neither a .cls beside it nor a directory for its class");
            else if (!last || last_length != length || memcmp(last, name, length))
                r = hr__names_add(&all, name, length);
            last = name;
            last_length = length;
        }
    if (!r)
        r = hr__names_sort(&all);
    for (size_t i = 0; !r && i < all.count; i++)
        if (!i || strcmp(all.items[i], all.items[i - 1]))
            r = hr__names_add(classes, all.items[i], strlen(all.items[i]));
    hr__names_clear(&all);
    return r ? r : hr__names_sort(classes);
}

static int64_t find_class(const struct hr__names *classes, const char *name, size_t length)
{
    size_t low = 0, high = classes->count;
    char key[PATH_MAX];
    length = length < sizeof key - 1 ? length : sizeof key - 1;
    memcpy(key, name, length);
    key[length] = 0;
    while (low + 1 < high) {
        size_t middle = (low + high) / 2;
        if (hr__name_compare(classes->items[middle], key) <= 0)
            low = middle;
        else
            high = middle;
    }
    return (int64_t)low;
}

static void fill(struct hr__catalog *c, const struct shard *shards, size_t count,
                 const struct totals *t, const struct hr__names *classes)
{
    uint64_t sample = 0;
    c->directories[0].path = hr__catalog_text(c, "", 0);
    c->header->root = c->directories[0].path;
    c->directories[0].count = t->images;
    c->header->flags |= HR__CATALOG_SIZES;
    c->untrusted = 1;
    for (size_t i = 0; i < classes->count; i++)
        c->class_names[i] = hr__catalog_text(c, classes->items[i], strlen(classes->items[i]));
    for (size_t i = 0; i < count; i++) {
        const struct shard *s = &shards[i];
        c->containers[i] = (struct hr__catalog_container){
            hr__catalog_text(c, s->path, strlen(s->path)), s->file_bytes, s->mtime_ns};
        for (size_t k = 0; k < s->count; k++) {
            const struct tar_member *m = &s->members[k];
            const char *name = name_of(s, m), *class_name;
            size_t length;
            if (m->is_label)
                continue;
            c->names[sample] = hr__catalog_text(c, name, strlen(name));
            c->sizes[sample] = (int64_t)m->bytes;
            c->mtimes_ns[sample] = s->mtime_ns;
            c->labels[sample] = m->label;
            if (classes->count && class_of(t, name, &class_name, &length))
                c->labels[sample] = find_class(classes, class_name, length);
            c->ranges[sample] = (struct hr__catalog_range){
                .offset = m->offset, .source_bytes = m->bytes, .container = (uint32_t)i};
            sample++;
        }
    }
}

static int make_catalog(struct hr__catalog **out, struct shard *shards, size_t count,
                        struct hr_error *error)
{
    struct totals t = add_up(shards, count);
    struct hr__names classes = {0};
    int r = 0;
    if (!t.images)
        return hr__fail(error, -ENODATA, "no image in %s%s", shards[0].path,
                        count > 1 ? " and the other shards" : "");
    if (t.labels) {
        for (size_t i = 0; !r && i < count; i++)
            if ((r = pair_labels(&shards[i])))
                *error = shards[i].error;
    } else {
        r = collect_classes(&classes, shards, count, &t);
        for (size_t i = 0; r && i < count; i++)
            if (shards[i].error.code)
                *error = shards[i].error;
        if (r == -ENOMEM)
            hr__fail(error, r, "out of memory for the classes of tar files");
    }
    if (!r) {
        struct hr__catalog_shape shape = {
            .classes = classes.count,
            .directories = 1,
            .samples = t.images,
            .arena_bytes = t.text_bytes + classes.bytes + 1,
            .labels = 1,
            .containers = count,
        };
        r = hr__catalog_create(out, &shape);
        if (r)
            hr__fail(error, r, "out of memory for %" PRIu64 " samples", t.images);
        else
            fill(*out, shards, count, &t, &classes);
    }
    hr__names_clear(&classes);
    return r;
}

int hr__tar_index(struct hr__catalog **out, char *const *paths, size_t count,
                  const struct hr__executor *executor, struct hr__progress *progress,
                  struct hr_error *error)
{
    struct hr_error own;
    struct hr_error *report = error ? error : &own; /* needed even if the caller wants no message */
    *out = NULL;
    struct shard *shards = hr__alloc(HR__TAG_DATASET, count, sizeof *shards);
    if (!shards)
        return hr__fail(error, -ENOMEM, "out of memory for %zu shards", count);
    struct tar_pass pass = {shards, progress};
    for (size_t i = 0; i < count; i++)
        shards[i].path = paths[i];
    hr__progress_stage(progress, "reading shards", count);
    executor->run(executor->self, count, read_one, &pass);
    int r = 0;
    for (size_t i = 0; i < count; i++)
        if (shards[i].error.code && (!r || r == -ECANCELED)) {
            r = shards[i].error.code;
            *report = shards[i].error;
        }
    if (r == -ECANCELED)
        hr__fail(report, r, "reading shards was cancelled");
    if (!r && hr__progress_end(progress))
        r = hr__fail(report, -ECANCELED, "reading shards was cancelled");
    if (!r)
        r = make_catalog(out, shards, count, report);
    for (size_t i = 0; i < count; i++) {
        hr__free(shards[i].members);
        hr__free(shards[i].text);
    }
    hr__free(shards);
    return r;
}
