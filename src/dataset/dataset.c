/*
 * Datasets as in the public API: reference counts, subsets, and queries about samples. Datasets are
 * opened in bulk, which has threads.
 */
#include "dataset/dataset.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "dataset/list.h"
#include "dataset/names.h"
#include "dataset/pair.h"
#include "dataset/row_table.h"
#include "storage/http.h"
#include "storage/url.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* Most names of empty classes in a message. */
#define NAMED_CLASSES 5

void hr_dataset_options_init(struct hr_dataset_options *options, size_t size)
{
    static const struct hr_dataset_options defaults = {.index = HR_INDEX_USER_CACHE};
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

static int allocate(struct hr_dataset **out, struct hr_error *error)
{
    struct hr_dataset *d = hr__alloc(HR__TAG_DATASET, 1, sizeof *d);
    *out = NULL;
    if (!d)
        return hr__fail(error, -ENOMEM, "out of memory for a dataset");
    if (pthread_mutex_init(&d->fill_lock, NULL)) {
        hr__free(d);
        return hr__fail(error, -ENOMEM, "out of memory for a lock");
    }
    atomic_init(&d->references, 1);
    *out = d;
    return 0;
}

/* Stores the working directory; none if it has been deleted. */
static int note_directory(struct hr_dataset *d, struct hr_error *error)
{
    char path[PATH_MAX];
    if (!getcwd(path, sizeof path) || *path != '/')
        return 0;
    d->source.directory = hr__strdup(HR__TAG_DATASET, path);
    return d->source.directory ? 0 : hr__fail(error, -ENOMEM, "out of memory for a dataset");
}

/* Returns 1 if a path is a URL, 0 if not, or -EINVAL for one that is refused: it may have a secret,
 * and would get into messages. */
static int check_url(const char *path, struct hr_error *error)
{
    struct hr__url url;
    int r = hr__url_is(path) ? hr__url_parse(&url, path, error) : 0;
    return r ? r : hr__url_is(path);
}

/* Returns 1 if the base, a sample's name or a container's path is a URL, 0 if none is, or -EINVAL
 * if one is refused. */
static int has_urls(const struct hr__catalog *c, const char *base, struct hr_error *error)
{
    int found = check_url(base, error), r = 0;
    for (uint64_t i = 0; found >= 0 && r >= 0 && i < c->header->containers; i++)
        found |= r = check_url(hr__catalog_at(c, c->containers[i].path), error);
    /* the names of folders and of pieces are no paths */
    for (uint64_t i = 0; found >= 0 && c->labels && !c->ranges && i < c->header->samples; i++)
        found |= r = check_url(hr__catalog_at(c, c->names[i]), error);
    return r < 0 ? r : found;
}

int hr__dataset_create(struct hr_dataset **out, struct hr__catalog *catalog, const char *base,
                       const char *root, struct hr_error *error)
{
    struct hr_dataset *d;
    int r = allocate(&d, error);
    *out = NULL;
    if (r)
        return r;
    d->base = hr__strdup(HR__TAG_DATASET, base);
    d->root = hr__strdup(HR__TAG_DATASET, root);
    if (!d->base || !d->root ||
        (catalog->ranges && hr__containers_create(&d->containers, catalog, base))) {
        hr_dataset_unref(&d);
        return hr__fail(error, -ENOMEM, "out of memory for a dataset");
    }
    r = note_directory(d, error);
    if (!r)
        r = has_urls(catalog, base, error);
    if (r > 0)
        r = hr__http_create(&d->http, error);
    if (r) {
        hr_dataset_unref(&d);
        return r;
    }
    d->catalog = catalog;
    d->count = catalog->header->samples;
    d->is_folder = !catalog->labels;
    atomic_init(&d->sizes_known, (catalog->header->flags & HR__CATALOG_SIZES) != 0);
    *out = d;
    return 0;
}

int hr__dataset_create_produced(struct hr_dataset **out, uint64_t count,
                                const struct hr__produced *what, struct hr_error *error)
{
    struct hr_dataset *d;
    int r = allocate(&d, error);
    *out = NULL;
    if (r)
        return r;
    d->base = hr__strdup(HR__TAG_DATASET, "");
    d->root = hr__strdup(HR__TAG_DATASET, what->name);
    d->produced = hr__alloc(HR__TAG_DATASET, 1, sizeof *d->produced);
    if (!d->base || !d->root || !d->produced) {
        hr_dataset_unref(&d);
        return hr__fail(error, -ENOMEM, "out of memory for a dataset");
    }
    *d->produced = *what;
    d->source.kind = HR__SOURCE_PRODUCED;
    d->count = count;
    atomic_init(&d->sizes_known, 1);
    *out = d;
    return 0;
}

int hr_dataset_from_paths(struct hr_dataset **out, const char *const *paths, const int64_t *labels,
                          size_t count, struct hr_error *error)
{
    struct hr__catalog *catalog;
    *out = NULL;
    int r = hr__list_from_paths(&catalog, paths, labels, count, error);
    if (!r)
        r = hr__dataset_create(out, catalog, "", "", error);
    if (r)
        hr__catalog_destroy(&catalog);
    return r;
}

struct hr_dataset *hr__dataset_origin(struct hr_dataset *dataset)
{
    return dataset->parent ? dataset->parent : dataset;
}

/* Returns the catalog behind a dataset and converts *index to the sample's index in it. */
static const struct hr__catalog *resolve(const struct hr_dataset *d, size_t *index)
{
    *index = hr__dataset_at(d, *index);
    return d->parent ? d->parent->catalog : d->catalog;
}

/* Returns of[indices[i]] for each i. `of` or `indices` may be NULL, which stands for all in order.
 * NULL: out of memory. */
static int64_t *copy_indices(const int64_t *of, const int64_t *indices, size_t count)
{
    int64_t *out = hr__alloc(HR__TAG_DATASET, count ? count : 1, sizeof *out);
    for (size_t i = 0; out && i < count; i++) {
        size_t at = indices ? (size_t)indices[i] : i;
        out[i] = of ? of[at] : (int64_t)at;
    }
    return out;
}

/* Makes a dataset of samples of `parent`, without rows. indices: NULL: the first `count`. */
static int create_part(struct hr_dataset **out, struct hr_dataset *parent, const int64_t *indices,
                       size_t count, struct hr_error *error)
{
    struct hr_dataset *d;
    *out = NULL;
    int r = allocate(&d, error);
    if (r)
        return r;
    if (indices || parent->indices || count != parent->count) {
        d->indices = copy_indices(parent->indices, indices, count);
        if (!d->indices) {
            hr_dataset_unref(&d);
            return hr__fail(error, -ENOMEM, "out of memory for %zu indices", count);
        }
    }
    d->count = count;
    d->parent = hr_dataset_ref(hr__dataset_origin(parent));
    d->is_folder = d->parent->is_folder;
    *out = d;
    return 0;
}

int hr_dataset_subset(struct hr_dataset **out, struct hr_dataset *parent, const int64_t *indices,
                      size_t count, struct hr_error *error)
{
    struct hr_dataset *d;
    *out = NULL;
    if (parent->produced)
        return hr__fail(error, -ENOTSUP,
                        "a produced dataset has no subsets: let the producers map the indices");
    for (size_t i = 0; i < count; i++)
        if (indices[i] < 0 || (uint64_t)indices[i] >= parent->count)
            return hr__fail(error, -ERANGE,
                            "index %" PRId64 " at position %zu of the subset: the dataset has "
                            "%zu samples",
                            indices[i], i, parent->count);
    int r = create_part(&d, parent, indices, count, error);
    if (r)
        return r;
    if (parent->rows) {
        d->row_of = copy_indices(parent->row_of, indices, count);
        if (!d->row_of) {
            hr_dataset_unref(&d);
            return hr__fail(error, -ENOMEM, "out of memory for %zu indices", count);
        }
        d->rows = hr__row_table_ref(parent->rows);
    }
    if (parent->masks)
        r = hr_dataset_subset(&d->masks, parent->masks, indices, count, error);
    if (r)
        hr_dataset_unref(&d);
    *out = d;
    return r;
}

int hr__dataset_create_alike(struct hr_dataset **out, struct hr_dataset *parent,
                             struct hr__row_table *rows, struct hr_error *error)
{
    int r = create_part(out, parent, NULL, parent->count, error);
    if (!r)
        (*out)->rows = hr__row_table_ref(rows);
    return r;
}

struct hr_dataset *hr_dataset_ref(struct hr_dataset *dataset)
{
    atomic_fetch_add_explicit(&dataset->references, 1, memory_order_relaxed);
    return dataset;
}

void hr_dataset_unref(struct hr_dataset **dataset)
{
    struct hr_dataset *d = *dataset;
    *dataset = NULL;
    /* acq_rel: all uses by other threads happen before it is freed */
    if (!d || atomic_fetch_sub_explicit(&d->references, 1, memory_order_acq_rel) != 1)
        return;
    if (d->background.self)
        d->background.stop(d->background.self);
    hr_dataset_unref(&d->parent);
    hr_dataset_unref(&d->masks);
    hr__containers_destroy(&d->containers);
    hr__catalog_destroy(&d->catalog);
    hr__http_unref(&d->http);
    hr__free(d->produced);
    hr__row_table_unref(&d->rows);
    hr__free(d->row_of);
    hr__free(d->indices);
    hr__free(d->index_path);
    hr__free(d->source.path);
    hr__free(d->source.label);
    hr__free(d->source.image);
    hr__free(d->source.directory);
    hr__free(d->base);
    hr__free(d->root);
    pthread_mutex_destroy(&d->fill_lock);
    hr__free(d);
}

size_t hr_dataset_count(const struct hr_dataset *dataset)
{
    return dataset->count;
}

size_t hr_dataset_class_count(const struct hr_dataset *dataset)
{
    const struct hr_dataset *d = dataset->parent ? dataset->parent : dataset;
    return d->produced ? 0 : d->catalog->header->classes;
}

const char *hr_dataset_class_name(const struct hr_dataset *dataset, size_t label)
{
    const struct hr_dataset *d = dataset->parent ? dataset->parent : dataset;
    if (d->produced || label >= d->catalog->header->classes)
        return NULL;
    return hr__catalog_at(d->catalog, d->catalog->class_names[label]);
}

int64_t hr_dataset_label(const struct hr_dataset *dataset, size_t index)
{
    if (dataset->produced)
        return 0;
    const struct hr__catalog *c = resolve(dataset, &index);
    return c->labels ? c->labels[index] : c->directories[c->sample_directory[index]].label;
}

int64_t hr_dataset_sample_bytes(const struct hr_dataset *dataset, size_t index)
{
    if (dataset->produced)
        return (int64_t)dataset->produced->sample_bytes;
    const struct hr__catalog *c = resolve(dataset, &index);
    return hr__catalog_load(&c->sizes[index]);
}

int64_t hr__dataset_mtime_ns(const struct hr_dataset *dataset, size_t index)
{
    if (dataset->produced)
        return HR_SIZE_UNKNOWN;
    const struct hr__catalog *c = resolve(dataset, &index);
    return hr__catalog_load(&c->mtimes_ns[index]);
}

int64_t hr__dataset_kept_bytes(const struct hr_dataset *dataset, size_t index)
{
    int64_t bytes = hr_dataset_sample_bytes(dataset, index);
    if (!dataset->masks || bytes < 0)
        return bytes;
    int64_t mask = hr_dataset_sample_bytes(dataset->masks, index);
    return mask < 0 ? mask : bytes + mask + HR__PAIR_TAIL;
}

int64_t hr__dataset_total_bytes(const struct hr_dataset *dataset)
{
    const struct hr_dataset *origin = dataset->parent ? dataset->parent : dataset;
    int64_t total = 0;
    /* acquire: if the flag is set, see the sizes too */
    if (!atomic_load_explicit(&origin->sizes_known, memory_order_acquire) ||
        (dataset->masks && hr__dataset_total_bytes(dataset->masks) == HR_SIZE_UNKNOWN))
        return HR_SIZE_UNKNOWN;
    for (size_t i = 0; i < dataset->count; i++) {
        int64_t bytes = hr__dataset_kept_bytes(dataset, i);
        if (bytes < 0 && origin->http)
            return HR_SIZE_UNKNOWN;
        total += bytes > 0 ? bytes : 0;
    }
    return total;
}

/* Writes text that is cut to a capacity, and counts its whole length. */
struct dataset_writer {
    char *buffer;
    size_t capacity, length;
};

static void put(struct dataset_writer *w, const char *text)
{
    size_t n = strlen(text);
    if (w->length < w->capacity) {
        size_t room = w->capacity - w->length;
        memcpy(w->buffer + w->length, text, n < room ? n : room);
    }
    w->length += n;
}

static size_t finish(const struct dataset_writer *w)
{
    if (w->capacity)
        w->buffer[w->length < w->capacity ? w->length : w->capacity - 1] = 0;
    return w->length;
}

static void put_key(struct dataset_writer *w, const struct hr__catalog *c, size_t index)
{
    const char *directory = hr__catalog_at(c, c->directories[c->sample_directory[index]].path);
    if (*directory) {
        put(w, directory);
        put(w, "/");
    }
    put(w, hr__catalog_at(c, c->names[index]));
}

/* Writes a text with a number in it, and finishes. */
static size_t put_number(struct dataset_writer *w, const char *before, size_t number,
                         const char *after)
{
    char text[24];
    snprintf(text, sizeof text, "%zu", number);
    put(w, before);
    put(w, text);
    put(w, after);
    return finish(w);
}

size_t hr_dataset_key(const struct hr_dataset *dataset, size_t index, char *buffer, size_t capacity)
{
    struct dataset_writer w = {buffer, capacity, 0};
    if (dataset->produced)
        return put_number(&w, "", index, "");
    const struct hr__catalog *c = resolve(dataset, &index);
    put_key(&w, c, index);
    return finish(&w);
}

size_t hr_dataset_path(const struct hr_dataset *dataset, size_t index, char *buffer,
                       size_t capacity)
{
    struct dataset_writer w = {buffer, capacity, 0};
    const struct hr_dataset *d = dataset->parent ? dataset->parent : dataset;
    if (d->produced) {
        put(&w, d->produced->name);
        return put_number(&w, "[", index, "]");
    }
    const struct hr__catalog *c = resolve(dataset, &index);
    if (c->ranges) {
        put(&w, hr__containers_path(d->containers, c->ranges[index].container));
        put(&w, ":");
        put_key(&w, c, index);
        return finish(&w);
    }
    /* like os.path.join: an absolute key or a URL stands alone; a slash is not doubled */
    const char *name = hr__catalog_at(c, c->names[index]);
    if (*d->base && *name != '/' && !(c->labels && hr__url_is(name))) {
        put(&w, d->base);
        if (d->base[strlen(d->base) - 1] != '/')
            put(&w, "/");
    }
    put_key(&w, c, index);
    return finish(&w);
}

int hr__dataset_range(const struct hr_dataset *dataset, size_t index, int direct,
                      struct hr__range *out, struct hr_error *error)
{
    const struct hr_dataset *d = dataset->parent ? dataset->parent : dataset;
    if (d->produced)
        return 0;
    const struct hr__catalog *c = resolve(dataset, &index);
    if (!c->ranges)
        return 0;
    const struct hr__catalog_range *from = &c->ranges[index];
    *out = (struct hr__range){
        .path = hr__containers_path(d->containers, from->container),
        .offset = from->offset,
        .bytes = (uint64_t)c->sizes[index],
        .checksum = from->checksum,
        .source_bytes = from->source_bytes,
        .form = (enum hr_form)from->form,
        .has_checksum = (from->flags & HR__RANGE_HAS_CHECKSUM) != 0,
    };
    out->http = hr__dataset_http(d, out->path);
    if (out->http) {
        out->fd = -1;
        out->change = hr__containers_change(d->containers, from->container);
        return 1;
    }
    int r = hr__containers_open(d->containers, from->container, direct, &out->fd, error);
    return r ? r : 1;
}

struct hr__http_client *hr__dataset_http(const struct hr_dataset *dataset, const char *path)
{
    const struct hr_dataset *d = dataset->parent ? dataset->parent : dataset;
    return d->http && hr__url_is(path) ? d->http : NULL;
}

int hr__dataset_is_unlisted(const struct hr_dataset *dataset, size_t index)
{
    const struct hr_dataset *d = dataset->parent ? dataset->parent : dataset;
    const struct hr__catalog *c = d->catalog;
    if (!d->http || !c->labels || c->ranges)
        return 0;
    const char *name = hr__catalog_at(c, c->names[hr__dataset_at(dataset, index)]);
    return hr__url_is(name) || (hr__url_is(d->base) && *name != '/');
}

uint64_t hr__dataset_change(const struct hr_dataset *dataset, size_t index)
{
    const struct hr__catalog *c = resolve(dataset, &index);
    return c->changes ? __atomic_load_n(&c->changes[index], __ATOMIC_RELAXED) : 0;
}

int hr__dataset_learn(struct hr_dataset *dataset, size_t index, int64_t bytes, uint64_t change)
{
    struct hr__catalog *c = hr__dataset_origin(dataset)->catalog;
    uint64_t at = hr__dataset_at(dataset, index), none = 0;
    if (!c->changes || !__atomic_compare_exchange_n(&c->changes[at], &none, change, 0,
                                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return 0;
    hr__catalog_store(&c->mtimes_ns[at], 0);
    hr__catalog_store(&c->sizes[at], bytes);
    return 1;
}

int hr__range_check(const struct hr__range *range, const void *bytes, size_t length)
{
    return !range->has_checksum ||
           (length == range->bytes && XXH3_64bits(bytes, length) == range->checksum);
}

enum hr_media hr_dataset_media(const struct hr_dataset *dataset)
{
    char name[4097];
    size_t length = hr_dataset_count(dataset) ? hr_dataset_key(dataset, 0, name, sizeof name) : 0;
    return length && length < sizeof name && hr__name_is_sound(name, length) ? HR_MEDIA_SOUNDS
                                                                             : HR_MEDIA_IMAGES;
}

const char *hr_dataset_root(const struct hr_dataset *dataset)
{
    return dataset->parent ? dataset->parent->root : dataset->root;
}

void hr_dataset_get_info(const struct hr_dataset *dataset, struct hr_dataset_info *info)
{
    const struct hr_dataset *d = dataset->parent ? dataset->parent : dataset;
    struct hr_dataset_info now = {0};
    now.from_index = d->from_index;
    now.directories = d->is_folder ? d->catalog->header->directories : 0;
    now.memory_bytes = sizeof *d;
    if (d->catalog)
        now.memory_bytes += d->catalog->header->bytes + sizeof *d->catalog;
    if (dataset->parent)
        now.memory_bytes += sizeof *dataset;
    if (dataset->indices)
        now.memory_bytes += dataset->count * sizeof *dataset->indices;
    if (dataset->row_of)
        now.memory_bytes += dataset->count * sizeof *dataset->row_of;
    if (dataset->rows)
        now.memory_bytes += hr__row_table_bytes(dataset->rows);
    if (d->index_path)
        snprintf(now.index_path, sizeof now.index_path, "%s", d->index_path);
    if (d->http) {
        struct hr__http_counts counts = {0};
        hr__http_count(d->http, &counts);
        now.object_requests = counts.requests;
        now.object_lists = counts.lists;
        now.object_cost_usd = counts.cost_usd;
    }
    hr__versioned_give(info, &now, sizeof now);
}

size_t hr__dataset_empty_classes(const struct hr_dataset *dataset, char *names, size_t capacity)
{
    const struct hr__catalog *c = dataset->catalog;
    struct dataset_writer w = {names, capacity, 0};
    uint64_t d = 0;
    size_t empty = 0;
    for (uint64_t label = 0; label < c->header->classes; label++) {
        uint64_t samples = 0;
        char printable[256];
        for (; d < c->header->directories && c->directories[d].label == label; d++)
            samples += c->directories[d].count;
        if (samples || ++empty > NAMED_CLASSES)
            continue;
        hr__printable(printable, sizeof printable, hr__catalog_at(c, c->class_names[label]));
        put(&w, empty > 1 ? ", " : "");
        put(&w, printable);
    }
    if (empty > NAMED_CLASSES)
        put(&w, ", ...");
    finish(&w);
    return empty;
}
