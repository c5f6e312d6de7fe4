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
#include "dataset/label_field.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#define READ_BYTES ((size_t)64 << 10)

/* Bytes of a member that are read again to verify its position. */
#define PROBE_BYTES 32

/* Where the labels of all files are. */
struct tar_pass {
    struct hr__label_field label;
    int label_is_named; /* otherwise images without it have the classes of directories */
    int is_sound;       /* samples are sounds, not images */
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

static int wrong(struct hr__shard *s, int code, const char *member, const char *what)
{
    char path[512], printable[512];
    hr__printable(path, sizeof path, s->path);
    hr__printable(printable, sizeof printable, member);
    return hr__fail(&s->error, code, "%s: the member %s %s", path, printable, what);
}

/* A file that is being scanned. */
struct tar_scan {
    struct hr__shard *file;
    const struct tar_pass *pass;
    struct archive *archive;
    struct hr__byte_source *source;
    uint64_t at; /* where libarchive reads next */
    uint8_t *block;
};

static int read_label(const struct tar_scan *scan, const char *name, struct hr__shard_sample *m)
{
    struct hr__shard *s = scan->file;
    if (m->bytes > HR__LABEL_FIELD_BYTES)
        return wrong(s, -EINVAL, name, "is too large to hold a label");
    char *text = hr__alloc(HR__TAG_DATASET, m->bytes + 1, 1);
    if (!text)
        return hr__fail(&s->error, -ENOMEM, "out of memory for a label");
    la_ssize_t got = archive_read_data(scan->archive, text, m->bytes);
    const char *why = got < 0 || (uint64_t)got != m->bytes
                          ? "cannot be read; the shard is damaged"
                          : hr__label_field_read(&scan->pass->label, text, m->bytes, &m->label);
    hr__free(text);
    return why ? wrong(s, got < 0 ? -EBADMSG : -EINVAL, name, why) : 0;
}

/* Finds and verifies the position of a member's data. */
static int locate(const struct tar_scan *scan, const char *name, struct hr__shard_sample *m)
{
    struct hr__shard *s = scan->file;
    struct archive *a = scan->archive;
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
    if (hr__source_read(scan->source, probe, length, m->offset, NULL) ||
        memcmp(probe, block, length))
        return wrong(s, -EBADMSG, name, "is not where its header says; the shard is damaged");
    return 0;
}

static int is_sample(const struct tar_scan *scan, const char *name)
{
    size_t length = strlen(name);
    return scan->pass->is_sound ? hr__name_is_sound(name, length) : hr__name_is_image(name, length);
}

static int take_member(const struct tar_scan *scan, struct archive_entry *entry, uint64_t group)
{
    struct hr__shard *s = scan->file;
    const char *name = plain(archive_entry_pathname(entry));
    const char *rest = name + key_bytes(name), *field = scan->pass->label.field;
    int is_label = *field && *rest == '.' && !strcasecmp(rest + 1, field);
    struct hr__shard_sample m = {.bytes = (uint64_t)archive_entry_size(entry), .group = group};
    m.is_label = is_label;
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) ||
        (!is_label && !is_sample(scan, name)))
        return 0;
    if (archive_entry_sparse_count(entry))
        return wrong(s, -ENOTSUP, name, "is sparse; write the shard without --sparse");
    if (!is_label && !m.bytes)
        return wrong(s, -EBADMSG, name, "is empty (0 bytes)");
    int r = is_label ? read_label(scan, name, &m) : locate(scan, name, &m);
    return r ? r : hr__shard_add(s, name, &m);
}

static int read_members(const struct tar_scan *scan)
{
    struct hr__shard *s = scan->file;
    struct archive *a = scan->archive;
    struct archive_entry *entry;
    char *last = NULL; /* key of the group */
    uint64_t group = 0;
    int r = 0, got;
    while (!r && (got = archive_read_next_header(a, &entry)) != ARCHIVE_EOF) {
        const char *name =
            got == ARCHIVE_OK || got == ARCHIVE_WARN ? archive_entry_pathname(entry) : NULL;
        if (hr__progress_cancelled(s->progress)) {
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
            r = last ? take_member(scan, entry, group)
                     : hr__fail(&s->error, -ENOMEM, "out of memory for a name");
        }
    }
    hr__free(last);
    return r;
}

/* Reports what the file is instead of a tar file. */
static int refuse(struct hr__shard *s, const uint8_t *first, int64_t got)
{
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

/* libarchive reads the next block. */
static la_ssize_t give_block(struct archive *a, void *self, const void **block)
{
    struct tar_scan *scan = self;
    struct hr_error why = {.code = 0};
    int64_t got = hr__source_read_at(scan->source, scan->block, READ_BYTES, scan->at, &why);
    if (got < 0) {
        archive_set_error(a, (int)-got, "%s", why.message);
        return -1;
    }
    scan->at += (uint64_t)got;
    *block = scan->block;
    return (la_ssize_t)got;
}

/* libarchive leaves out the bytes of a member. */
static la_int64_t skip_bytes(struct archive *a, void *self, la_int64_t wanted)
{
    struct tar_scan *scan = self;
    uint64_t left = scan->source->bytes > scan->at ? scan->source->bytes - scan->at : 0;
    (void)a;
    if ((uint64_t)wanted > left)
        wanted = (la_int64_t)left;
    scan->at += (uint64_t)wanted;
    return wanted;
}

static int read_shard(void *arg, struct hr__shard *file, struct hr__byte_source *source)
{
    const struct tar_pass *pass = arg;
    uint8_t head[512] = {0};
    if (source->http)
        source->ahead = HR__SHARD_AHEAD;
    int64_t got = hr__source_read_at(source, head, sizeof head, 0, &file->error);
    if (got < 0)
        return (int)got;
    if (!hr__tar_recognise(head, (size_t)got))
        return refuse(file, head, got);
    struct archive *a = archive_read_new();
    struct tar_scan scan = {.file = file, .pass = pass, .archive = a, .source = source};
    scan.block = hr__alloc(HR__TAG_DATASET, READ_BYTES, 1);
    int r = -ENOMEM;
    if (!a || !scan.block || archive_read_support_format_tar(a) ||
        archive_read_open2(a, &scan, NULL, give_block, skip_bytes, NULL))
        hr__fail(&file->error, r, "out of memory to read %s", file->path);
    else
        r = read_members(&scan);
    archive_read_free(a);
    hr__free(scan.block);
    return r;
}

/* What all shards have in common. */
struct totals {
    uint64_t labels;
    size_t prefix; /* length of the common directory of all images, with its slash */
    const char *first;
};

static struct totals add_up(const struct hr__shard *shards, size_t count)
{
    struct totals t = {0};
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < shards[i].count; k++) {
            const char *name = hr__shard_name(&shards[i], k);
            t.labels += shards[i].items[k].is_label != 0;
            if (shards[i].items[k].is_label)
                continue;
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
static int pair_labels(struct hr__shard *s, const char *field)
{
    char what[160];
    for (size_t i = 0; i < s->count;) {
        struct hr__shard_sample *image = NULL, *label = NULL;
        size_t end = i;
        for (; end < s->count && s->items[end].group == s->items[i].group; end++) {
            struct hr__shard_sample **slot = s->items[end].is_label ? &label : &image;
            snprintf(what, sizeof what, "is a second .%s of its sample", field);
            if (*slot)
                return wrong(s, -EINVAL, hr__shard_name(s, end),
                             s->items[end].is_label ? what : "is a second image of its sample");
            *slot = &s->items[end];
        }
        snprintf(what, sizeof what, "has no .%s beside it, as other members have", field);
        if (image && !label)
            return wrong(s, -EINVAL, s->text + image->name, what);
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
static int collect_classes(struct hr__names *classes, struct hr__shard *shards, size_t count,
                           const struct totals *t)
{
    struct hr__names all = {0};
    const char *last = NULL, *name = "";
    size_t length = 0, last_length = 0;
    int r = 0;
    for (size_t i = 0; !r && i < count; i++)
        for (size_t k = 0; !r && k < shards[i].count; k++) {
            const char *member = hr__shard_name(&shards[i], k);
            if (!class_of(t, member, &name, &length))
                r = wrong(&shards[i], -EINVAL, member,
                          "has no label: neither a .cls beside it nor a directory for its class; "
                          "name the field that holds it (\"json:class_id\"), or \"none\"");
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

/* Image folder layout: finds the classes, and gives the images their labels. */
static int label_by_directory(struct hr__names *classes, struct hr__shard *shards, size_t count,
                              struct totals *t)
{
    int r = collect_classes(classes, shards, count, t);
    for (size_t i = 0; !r && i < count; i++)
        for (size_t k = 0; k < shards[i].count; k++) {
            const char *class_name;
            size_t length;
            if (class_of(t, hr__shard_name(&shards[i], k), &class_name, &length))
                shards[i].items[k].label = find_class(classes, class_name, length);
        }
    return r;
}

static int make_catalog(struct hr__catalog **out, const struct tar_pass *pass,
                        struct hr__shard *shards, size_t count, struct hr_error *error)
{
    struct totals t = add_up(shards, count);
    struct hr__names classes = {0};
    int r = 0;
    if (t.labels || pass->label_is_named) {
        for (size_t i = 0; !r && i < count && *pass->label.field; i++)
            r = pair_labels(&shards[i], pass->label.field);
    } else {
        r = label_by_directory(&classes, shards, count, &t);
    }
    if (r == -ENOMEM)
        hr__fail(error, r, "out of memory for the classes of tar files");
    for (size_t i = 0; r && error && i < count; i++)
        if (shards[i].error.code)
            *error = shards[i].error;
    if (!r)
        r = hr__shard_catalog(out, shards, count, &classes, error);
    hr__names_clear(&classes);
    return r;
}

int hr__tar_index(struct hr__catalog **out, const struct hr__shard_source *source,
                  struct hr_error *error)
{
    struct tar_pass pass = {.label_is_named = source->label != NULL, .is_sound = source->is_sound};
    struct hr__shard *shards;
    *out = NULL;
    if (source->image)
        return hr__fail(
            error, -EINVAL,
            "image=%.100s names a column of Parquet tables, and %s is a tar file: leave it "
            "out",
            source->image, source->paths[0]);
    int r = hr__label_field_parse(&pass.label, source->label ? source->label : "cls", error);
    if (!r)
        r = hr__shard_collect(&shards, source, read_shard, &pass, error);
    if (r)
        return r;
    r = make_catalog(out, &pass, shards, source->count, error);
    if (r == -ENODATA && source->is_sound)
        hr__fail(error, r, "no sound in %s%s", shards[0].path,
                 source->count > 1 ? " and the other shards" : "");
    hr__shard_free(shards, source->count);
    return r;
}
