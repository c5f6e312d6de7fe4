/*
 * The catalog's layout, and the checks that make an untrusted block safe.
 *
 * hr__catalog_adopt trusts nothing in the block: somebody else may have written an index beside
 * shared data. After its checks, every offset lies in the arena, every name is one path component,
 * and every directory is inside its class.
 */
#include "dataset/catalog.h"

#include "base/memory.h"

#include <headrace/form.h>

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#define BYTE_ORDER_MARK 0x01020304u
#define CHECKSUM_FROM   (offsetof(struct hr__catalog_header, checksum) + sizeof(uint64_t))

/* The byte offsets of the sections. */
struct catalog_layout {
    uint64_t directories, class_names, names, sizes, mtimes_ns, changes, labels;
    uint64_t ranges, containers;
    uint64_t sample_directory, arena;
    uint64_t total;
};

/* Places a section of count x size bytes at *at and advances *at past it, 8-byte aligned. */
static int place(uint64_t *at, uint64_t *section, uint64_t count, uint64_t size)
{
    uint64_t bytes;
    *section = *at;
    return __builtin_mul_overflow(count, size, &bytes) ||
           __builtin_add_overflow(bytes, 7u, &bytes) ||
           __builtin_add_overflow(*at, bytes & ~(uint64_t)7, at);
}

static int lay_out(struct catalog_layout *l, const struct hr__catalog_shape *shape)
{
    uint64_t at = sizeof(struct hr__catalog_header);
    int bad = place(&at, &l->directories, shape->directories, sizeof(struct hr__catalog_directory));
    bad |= place(&at, &l->class_names, shape->classes, sizeof(uint64_t));
    bad |= place(&at, &l->names, shape->samples, sizeof(uint64_t));
    bad |= place(&at, &l->sizes, shape->samples, sizeof(int64_t));
    bad |= place(&at, &l->mtimes_ns, shape->samples, sizeof(int64_t));
    bad |= place(&at, &l->changes, shape->changes ? shape->samples : 0, sizeof(uint64_t));
    bad |= place(&at, &l->labels, shape->labels ? shape->samples : 0, sizeof(int64_t));
    bad |= place(&at, &l->ranges, shape->containers ? shape->samples : 0,
                 sizeof(struct hr__catalog_range));
    bad |= place(&at, &l->containers, shape->containers, sizeof(struct hr__catalog_container));
    bad |= place(&at, &l->sample_directory, shape->samples, sizeof(uint32_t));
    bad |= place(&at, &l->arena, shape->arena_bytes, 1);
    l->total = at;
    return bad || at > PTRDIFF_MAX || shape->directories > UINT32_MAX ||
                   shape->classes > UINT32_MAX || shape->containers > UINT32_MAX
               ? -EOVERFLOW
               : 0;
}

static void point(struct hr__catalog *c, const struct catalog_layout *l)
{
    uint32_t flags = c->header->flags;
    char *base = (char *)c->header;
    c->directories = (struct hr__catalog_directory *)(base + l->directories);
    c->class_names = (uint64_t *)(base + l->class_names);
    c->names = (uint64_t *)(base + l->names);
    c->sizes = (int64_t *)(base + l->sizes);
    c->mtimes_ns = (int64_t *)(base + l->mtimes_ns);
    if (flags & HR__CATALOG_CHANGES)
        c->changes = (uint64_t *)(base + l->changes);
    if (flags & HR__CATALOG_LABELS)
        c->labels = (int64_t *)(base + l->labels);
    if (flags & HR__CATALOG_RANGES) {
        c->ranges = (struct hr__catalog_range *)(base + l->ranges);
        c->containers = (struct hr__catalog_container *)(base + l->containers);
    }
    c->sample_directory = (uint32_t *)(base + l->sample_directory);
    c->arena = base + l->arena;
}

int hr__catalog_create(struct hr__catalog **out, const struct hr__catalog_shape *shape)
{
    struct catalog_layout l;
    *out = NULL;
    if (lay_out(&l, shape))
        return -EOVERFLOW;
    struct hr__catalog *c = hr__alloc(HR__TAG_DATASET, 1, sizeof *c);
    if (!c)
        return -ENOMEM;
    c->header = hr__alloc(HR__TAG_DATASET, l.total, 1);
    if (!c->header) {
        hr__catalog_destroy(&c);
        return -ENOMEM;
    }
    memcpy(c->header->magic, HR__CATALOG_MAGIC, sizeof c->header->magic);
    c->header->version = HR__CATALOG_VERSION;
    c->header->byte_order = BYTE_ORDER_MARK;
    c->header->bytes = l.total;
    c->header->classes = shape->classes;
    c->header->directories = shape->directories;
    c->header->samples = shape->samples;
    c->header->arena_bytes = shape->arena_bytes;
    c->header->containers = shape->containers;
    c->header->flags = (shape->labels ? HR__CATALOG_LABELS : 0) |
                       (shape->containers ? HR__CATALOG_RANGES : 0) |
                       (shape->changes ? HR__CATALOG_CHANGES : 0);
    point(c, &l);
    for (uint64_t i = 0; i < shape->samples; i++)
        c->sizes[i] = c->mtimes_ns[i] = HR_SIZE_UNKNOWN;
    *out = c;
    return 0;
}

uint64_t hr__catalog_text(struct hr__catalog *catalog, const char *text, size_t length)
{
    uint64_t offset = catalog->arena_used;
    memcpy(catalog->arena + offset, text, length);
    catalog->arena[offset + length] = 0;
    catalog->arena_used = offset + length + 1;
    return offset;
}

uint64_t hr__catalog_checksum(const struct hr__catalog_header *block)
{
    return XXH3_64bits((const char *)block + CHECKSUM_FROM, block->bytes - CHECKSUM_FROM);
}

/* Returns non-zero if text is one path component and neither "." nor "..". */
static int is_component(const char *text, size_t length)
{
    if (!length || memchr(text, '/', length))
        return 0;
    return !(text[0] == '.' && (length == 1 || (length == 2 && text[1] == '.')));
}

static int name_is_safe(const struct hr__catalog *c, uint64_t offset)
{
    if (offset >= c->header->arena_bytes)
        return 0;
    const char *name = c->arena + offset;
    return is_component(name, strlen(name));
}

/* Returns non-zero if the path is its class's directory or below it, in plain components. */
static int path_is_safe(const struct hr__catalog *c, const struct hr__catalog_directory *d)
{
    if (d->path >= c->header->arena_bytes || d->label >= c->header->classes)
        return 0;
    const char *path = c->arena + d->path;
    const char *class_name = c->arena + c->class_names[d->label];
    size_t n = strlen(class_name);
    if (strncmp(path, class_name, n) || (path[n] && path[n] != '/'))
        return 0;
    for (;;) {
        size_t length = strcspn(path, "/");
        if (!is_component(path, length))
            return 0;
        if (!path[length])
            return 1;
        path += length + 1;
    }
}

/* Checks the names in an image folder's directories. */
static int folder_is_safe(const struct hr__catalog *c)
{
    const struct hr__catalog_header *h = c->header;
    uint64_t first = 0;
    for (uint64_t i = 0; i < h->directories; i++) {
        const struct hr__catalog_directory *d = &c->directories[i];
        if (!path_is_safe(c, d) || d->first != first || d->count > h->samples - first)
            return 0;
        if (i && d->label < d[-1].label)
            return 0;
        for (; first < d->first + d->count; first++)
            if (c->sample_directory[first] != i || !name_is_safe(c, c->names[first]))
                return 0;
    }
    return first == h->samples;
}

/* Checks the names of a list: any non-empty texts, in one directory without a path. */
static int list_is_safe(const struct hr__catalog *c)
{
    const struct hr__catalog_header *h = c->header;
    const struct hr__catalog_directory *d = c->directories;
    if (h->directories != 1 || d->path >= h->arena_bytes || c->arena[d->path] || d->first ||
        d->count != h->samples)
        return 0;
    for (uint64_t i = 0; i < h->samples; i++)
        if (c->sample_directory[i] || c->names[i] >= h->arena_bytes || !c->arena[c->names[i]])
            return 0;
    return 1;
}

static int ranges_are_safe(const struct hr__catalog *c)
{
    const struct hr__catalog_header *h = c->header;
    for (uint64_t i = 0; i < h->containers; i++)
        if (c->containers[i].path >= h->arena_bytes || c->containers[i].bytes > INT64_MAX)
            return 0;
    for (uint64_t i = 0; i < h->samples; i++) {
        const struct hr__catalog_range *r = &c->ranges[i];
        if (r->container >= h->containers || r->form >= HR_FORMS ||
            r->flags & ~(HR__RANGE_HAS_CHECKSUM | HR__RANGE_KEPT_MASK) ||
            r->source_bytes > INT64_MAX || c->sizes[i] < 0)
            return 0;
        uint64_t end = c->containers[r->container].bytes;
        if (!end)
            end = INT64_MAX;
        if (r->offset > end || (uint64_t)c->sizes[i] > end - r->offset)
            return 0;
    }
    return 1;
}

static int contents_are_safe(const struct hr__catalog *c)
{
    const struct hr__catalog_header *h = c->header;
    if (!h->arena_bytes || c->arena[h->arena_bytes - 1] || h->root >= h->arena_bytes)
        return 0;
    /* names of classes are directories of a folder, but any text elsewhere */
    for (uint64_t i = 0; i < h->classes; i++)
        if (c->labels ? c->class_names[i] >= h->arena_bytes : !name_is_safe(c, c->class_names[i]))
            return 0;
    for (uint64_t i = 0; c->labels && h->classes && i < h->samples; i++)
        if (c->labels[i] < 0 || (uint64_t)c->labels[i] >= h->classes)
            return 0;
    for (uint64_t i = 0; i < h->samples; i++)
        if (c->sizes[i] < HR_SIZE_UNKNOWN)
            return 0;
    return (c->labels ? list_is_safe(c) : folder_is_safe(c)) && (!c->ranges || ranges_are_safe(c));
}

int hr__catalog_map(struct hr__catalog *out, void *block, size_t bytes)
{
    struct catalog_layout l;
    const struct hr__catalog_header *h = block;
    const uint32_t known =
        HR__CATALOG_SIZES | HR__CATALOG_LABELS | HR__CATALOG_RANGES | HR__CATALOG_CHANGES;
    memset(out, 0, sizeof *out);
    if (bytes < sizeof *h || memcmp(h->magic, HR__CATALOG_MAGIC, sizeof h->magic) ||
        h->version != HR__CATALOG_VERSION || h->byte_order != BYTE_ORDER_MARK ||
        h->bytes != bytes || h->flags & ~known ||
        !(h->flags & HR__CATALOG_RANGES) != !h->containers)
        return -EBADMSG;
    struct hr__catalog_shape shape = {
        .classes = h->classes,
        .directories = h->directories,
        .samples = h->samples,
        .arena_bytes = h->arena_bytes,
        .labels = (h->flags & HR__CATALOG_LABELS) != 0,
        .changes = (h->flags & HR__CATALOG_CHANGES) != 0,
        .containers = h->containers,
    };
    if (lay_out(&l, &shape) || l.total != bytes)
        return -EBADMSG;
    out->header = block;
    point(out, &l);
    out->arena_used = shape.arena_bytes;
    return 0;
}

int hr__catalog_adopt(struct hr__catalog **out, void *block, size_t bytes)
{
    struct hr__catalog c;
    *out = NULL;
    if (hr__catalog_map(&c, block, bytes) || !(c.header->flags & HR__CATALOG_SIZES) ||
        hr__catalog_checksum(c.header) != c.header->checksum || !contents_are_safe(&c))
        return -EBADMSG;
    *out = hr__alloc(HR__TAG_DATASET, 1, sizeof **out);
    if (!*out)
        return -ENOMEM;
    **out = c;
    return 0;
}

void hr__catalog_destroy(struct hr__catalog **catalog)
{
    if (!*catalog)
        return;
    hr__free((*catalog)->header);
    hr__free(*catalog);
    *catalog = NULL;
}
