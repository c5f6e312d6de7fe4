/* Records and digests what a dataset was opened from; see describe.h. */
#include "dataset/describe.h"

#include "base/error.h"
#include "base/memory.h"
#include "dataset/row_table.h"
#include "storage/url.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <xxhash.h>

/* Replaces *text by a copy of `by`, unless that is NULL. */
static int replace(char **text, const char *by)
{
    if (!by)
        return 0;
    hr__free(*text);
    *text = hr__strdup(HR__TAG_DATASET, by);
    return *text ? 0 : -ENOMEM;
}

int hr__dataset_set_source(struct hr_dataset *dataset, enum hr__source_kind kind, const char *path,
                           const struct hr_dataset_options *options, struct hr_error *error)
{
    char *copy = hr__strdup(HR__TAG_DATASET, path);
    if (!copy)
        return hr__fail(error, -ENOMEM, "out of memory for the path %s", path);
    hr__free(dataset->source.path);
    dataset->source.path = copy;
    dataset->source.kind = kind;
    if (options) {
        if (replace(&dataset->source.label, options->label) ||
            replace(&dataset->source.image, options->image))
            return hr__fail(error, -ENOMEM, "out of memory for the columns of %s", path);
        dataset->source.index = options->index;
        dataset->source.media = options->media;
        dataset->source.allow_empty_classes = options->allow_empty_classes != 0;
    }
    return 0;
}

int hr__source_absolute(char **out, const struct hr__dataset_source *source, const char *path)
{
    const char *directory = *path == '/' || hr__url_is(path) ? "" : source->directory;
    *out = NULL;
    if (!directory)
        return -ENOENT;
    size_t before = strlen(directory), length = strlen(path);
    int slash = before && directory[before - 1] != '/';
    char *text = hr__alloc(HR__TAG_DATASET, before + length + 2, 1);
    if (!text)
        return -ENOMEM;
    memcpy(text, directory, before);
    if (slash)
        text[before] = '/';
    memcpy(text + before + slash, path, length);
    *out = text;
    return 0;
}

/* Digests a stream in blocks. Each block is hashed together with the digest of those before it. */
struct hasher {
    size_t used;
    struct {
        XXH128_hash_t before;
        char bytes[4096 - sizeof(XXH128_hash_t)];
    } block;
};

static void close_block(struct hasher *h)
{
    size_t length = sizeof h->block.before + h->used;
    h->block.before = XXH3_128bits(&h->block, length);
    h->used = 0;
}

static void add(struct hasher *h, const void *bytes, size_t length)
{
    const char *from = bytes;
    while (length) {
        size_t room = sizeof h->block.bytes - h->used, n = length < room ? length : room;
        memcpy(h->block.bytes + h->used, from, n);
        h->used += n;
        from += n;
        length -= n;
        if (h->used == sizeof h->block.bytes)
            close_block(h);
    }
}

static void add_number(struct hasher *h, uint64_t number)
{
    number = htole64(number);
    add(h, &number, sizeof number);
}

static void add_text(struct hasher *h, const char *text)
{
    add(h, text, strlen(text) + 1);
}

void hr__dataset_digest(const struct hr_dataset *dataset, uint8_t digest[HR__DIGEST_BYTES])
{
    const struct hr_dataset *d = dataset->parent ? dataset->parent : dataset;
    if (d->produced) {
        memcpy(digest, d->produced->digest, HR__DIGEST_BYTES);
        return;
    }
    const struct hr__catalog *c = d->catalog;
    struct hasher h;
    XXH128_canonical_t bytes;
    h.used = 0;
    h.block.before = (XXH128_hash_t){0, 0};
    add_number(&h, c->header->classes);
    for (uint64_t i = 0; i < c->header->classes; i++)
        add_text(&h, hr__catalog_at(c, c->class_names[i]));
    add_number(&h, d->count);
    for (size_t i = 0; i < d->count; i++) {
        add_text(&h, hr__catalog_at(c, c->directories[c->sample_directory[i]].path));
        add_text(&h, hr__catalog_at(c, c->names[i]));
        add_number(&h, (uint64_t)hr_dataset_label(d, i));
        if (!c->ranges)
            continue;
        add_number(&h, c->ranges[i].container);
        add_number(&h, c->ranges[i].offset);
        add_number(&h, c->ranges[i].checksum);
        add_number(&h, (uint64_t)c->sizes[i]);
    }
    close_block(&h);
    XXH128_canonicalFromHash(&bytes, h.block.before);
    memcpy(digest, bytes.digest, HR__DIGEST_BYTES);
}

size_t hr__dataset_common(const struct hr_dataset *dataset)
{
    char first[PATH_MAX], key[PATH_MAX];
    size_t common = 0;
    if (dataset->count)
        common = hr_dataset_key(dataset, 0, first, sizeof first);
    if (common >= sizeof first)
        common = sizeof first - 1;
    for (size_t i = 1; i < dataset->count && common; i++) {
        size_t same = 0;
        hr_dataset_key(dataset, i, key, sizeof key);
        while (same < common && key[same] == first[same])
            same++;
        common = same;
    }
    while (common && first[common - 1] != '/')
        common--;
    return common;
}

void hr_dataset_names_digest(const struct hr_dataset *dataset, uint8_t digest[16])
{
    const struct hr_dataset *origin = dataset->parent ? dataset->parent : dataset;
    if (origin->produced) {
        memcpy(digest, origin->produced->digest, HR__DIGEST_BYTES);
        return;
    }
    int is_list = !origin->catalog->ranges && !origin->is_folder;
    size_t skip = is_list ? hr__dataset_common(origin) : 0;
    struct hasher h = {.used = 0, .block.before = {0, 0}};
    XXH128_canonical_t bytes;
    char key[PATH_MAX];
    add_number(&h, dataset->count);
    for (size_t i = 0; i < dataset->count; i++) {
        hr_dataset_key(dataset, i, key, sizeof key);
        add_text(&h, key + skip);
        add_number(&h, (uint64_t)hr_dataset_label(dataset, i));
    }
    if (dataset->rows) {
        hr__dataset_rows_digest(dataset, digest);
        add(&h, digest, 16);
    }
    if (dataset->masks) {
        hr_dataset_names_digest(dataset->masks, digest);
        add(&h, digest, 16);
    }
    close_block(&h);
    XXH128_canonicalFromHash(&bytes, h.block.before);
    memcpy(digest, bytes.digest, sizeof bytes.digest);
}
