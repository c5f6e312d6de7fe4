/* Lists image folders in buckets; see objects.h. */
#include "dataset/objects.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "dataset/names.h"
#include "storage/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Directories whose first page is compared with an index. */
#define SPOT_CHECKS 4

/* A sample: where its texts begin in the class's text. */
struct listed {
    uint64_t directory, name; /* the directory's path below the root: "class/sub" */
    struct hr__object object;
};

/* A class, and what is listed of it. */
struct listed_class {
    const char *name;
    char *text;
    uint64_t used;
    struct listed *samples;
    size_t count;
    uint64_t last; /* where the last directory is in the text; valid if there are samples */
    size_t directories;
    struct listing *listing;
    int result;
    struct hr_error error;
};

struct listing {
    const struct hr__objects_folder *folder;
    char *root;             /* the URL without a slash at its end */
    char *bucket;           /* "s3://bucket" */
    char *prefix;           /* of keys: "" or "path/" */
    struct hr__names names; /* of the classes */
    int has_loose;          /* there are objects that are in no class */
    struct listed_class *classes;
    struct hr__progress *progress;
};

char *hr__objects_root(const char *url)
{
    size_t length = strlen(url), least = hr__url_root_length(url);
    while (length > least && url[length - 1] == '/')
        length--;
    char *root = hr__strdup(HR__TAG_DATASET, url);
    if (root)
        root[length] = 0;
    return root;
}

/* Cuts the URL into bucket and prefix. */
static int cut(struct listing *l, struct hr_error *error)
{
    struct hr__url url;
    const char *text = l->folder->url;
    int r = hr__url_parse(&url, text, error);
    if (!r && !hr__url_has_bucket(&url))
        return hr__fail(error, -ENOTSUP,
                        "%s is no folder that can be listed: web servers have no listing. Name a "
                        "list of URLs, a pack or tar shards there, or a bucket (s3://, gs://)",
                        text);
    if (r)
        return r;
    size_t n = hr__url_root_length(text);
    l->root = hr__objects_root(text);
    l->bucket = hr__strdup(HR__TAG_DATASET, text);
    size_t length = l->root ? strlen(l->root) : 0;
    l->prefix = length ? hr__alloc(HR__TAG_DATASET, length + 2, 1) : NULL;
    if (!l->root || !l->bucket || !l->prefix)
        return hr__fail(error, -ENOMEM, "out of memory for listing %s", text);
    l->bucket[n] = 0;
    if (length > n + 1)
        snprintf(l->prefix, length + 2, "%s/", l->root + n + 1);
    return 0;
}

/* ---- the classes ---- */

static int take_class(void *arg, const char *key, const struct hr__object *object)
{
    struct listing *l = arg;
    size_t above = strlen(l->prefix);
    (void)object;
    if (strncmp(key, l->prefix, above))
        return -EBADMSG;
    /* an empty part is no class; the objects of the others are read with them */
    size_t length = strcspn(key + above, "/");
    return length ? hr__names_add(&l->names, key + above, length) : 0;
}

static int note_object(void *arg, const char *key, const struct hr__object *object)
{
    ((struct listing *)arg)->has_loose = 1;
    (void)key;
    (void)object;
    return 0;
}

static int list_classes(struct listing *l, struct hr_error *error)
{
    const struct hr__http_listing listing = {.http = l->folder->http,
                                             .url = l->bucket,
                                             .prefix = l->prefix,
                                             .delimiter = "/",
                                             .each = note_object,
                                             .each_prefix = take_class,
                                             .arg = l};
    int r = hr__http_list(&listing, error);
    if (!r && hr__names_sort(&l->names))
        r = hr__fail(error, -ENOMEM, "out of memory for the classes of %s", l->root);
    if (!r && !l->names.count && !l->has_loose)
        r = hr__fail(
            error, -ENOENT,
            "there is no %s: no object has this name, and none is below it; check the name",
            l->folder->url);
    else if (!r && !l->names.count)
        r = hr__fail(error, -ENODATA,
                     "no class directory in %s: %s folder has one directory per class directly "
                     "under its root",
                     l->root, l->folder->is_sound ? "a sound" : "an image");
    return r;
}

/* ---- the objects of a class ---- */

static int add_text(struct listed_class *c, const char *text, size_t length, uint64_t *at)
{
    if (hr__reserve(HR__TAG_DATASET, &c->text, c->used + length + 1))
        return -ENOMEM;
    *at = c->used;
    memcpy(c->text + c->used, text, length);
    c->text[c->used + length] = 0;
    c->used += length + 1;
    return 0;
}

/* Returns non-zero if a path has a part that no directory entry can be called. */
static int has_odd_part(const char *path)
{
    for (;;) {
        size_t n = strcspn(path, "/");
        if (!n || (n <= 2 && !memcmp(path, "..", n)))
            return 1;
        if (!path[n])
            return 0;
        path += n + 1;
    }
}

static int take_object(void *arg, const char *key, const struct hr__object *object)
{
    struct listed_class *c = arg;
    const struct hr__objects_folder *folder = c->listing->folder;
    size_t above = strlen(c->listing->prefix), below = strlen(c->name);
    if (hr__progress_cancelled(c->listing->progress))
        return -ECANCELED;
    /* a key that was not asked for */
    if (strncmp(key, c->listing->prefix, above) || strncmp(key + above, c->name, below) ||
        key[above + below] != '/')
        return -EBADMSG;
    const char *path = key + above, *name = strrchr(path, '/');
    if (!*++name)
        return 0; /* the mark of an empty directory */
    size_t length = strlen(name), directory = (size_t)(name - path) - 1;
    if (!(folder->is_sound ? hr__name_is_sound : hr__name_is_image)(name, length))
        return 0;
    if (has_odd_part(path))
        return hr__fail(&c->error, -EINVAL,
                        "the key %s in %s has an empty or dotted part between slashes, which no "
                        "folder has: rename it, or name the objects in a list",
                        key, c->listing->bucket);
    if (hr__reserve(HR__TAG_DATASET, &c->samples, c->count + 1))
        return -ENOMEM;
    struct listed *s = &c->samples[c->count];
    int is_new = !c->count || strlen(c->text + c->last) != directory ||
                 memcmp(c->text + c->last, path, directory);
    if (is_new && add_text(c, path, directory, &c->last))
        return -ENOMEM;
    if (add_text(c, name, length, &s->name))
        return -ENOMEM;
    s->directory = c->last;
    s->object = *object;
    c->count++;
    return 0;
}

/* Orders samples as a walk of directories does: by the directory's path, then by the name. */
static int compare_listed(const void *a, const void *b, void *text)
{
    const struct listed *x = a, *y = b;
    const char *t = text;
    int r = x->directory == y->directory ? 0 : hr__name_compare(t + x->directory, t + y->directory);
    return r ? r : hr__name_compare(t + x->name, t + y->name);
}

/* Returns non-zero if sample i is the first of its directory. */
static int is_first(const struct listed_class *c, size_t i)
{
    return !i || (c->samples[i].directory != c->samples[i - 1].directory &&
                  strcmp(c->text + c->samples[i].directory, c->text + c->samples[i - 1].directory));
}

/* Lists one class; runs on any thread. */
static void list_class(void *arg, size_t i)
{
    struct listing *l = arg;
    struct listed_class *c = &l->classes[i];
    struct hr__draft prefix = {0};
    hr__draft_print(&prefix, "%s%s/", l->prefix, c->name);
    const struct hr__http_listing listing = {.http = l->folder->http,
                                             .url = l->bucket,
                                             .prefix = prefix.text,
                                             .delimiter = "",
                                             .each = take_object,
                                             .arg = c};
    if (prefix.failed)
        c->result = -ENOMEM;
    else if (hr__progress_cancelled(l->progress))
        c->result = -ECANCELED;
    else
        c->result = hr__http_list(&listing, &c->error);
    hr__draft_clear(&prefix);
    if (c->result)
        hr__progress_cancel(l->progress);
    if (c->result || !c->count)
        return;
    qsort_r(c->samples, c->count, sizeof *c->samples, compare_listed, c->text);
    for (size_t k = 0; k < c->count; k++)
        c->directories += (size_t)is_first(c, k);
    hr__progress_add(l->progress, c->count);
}

/* Reports the first class that failed for a reason of its own. */
static int check_classes(const struct listing *l, struct hr_error *error)
{
    int cancelled = 0;
    for (size_t i = 0; i < l->names.count; i++) {
        const struct listed_class *c = &l->classes[i];
        if (c->result == -ECANCELED)
            cancelled = 1;
        else if (c->result)
            return hr__fail(error, c->result, "%s",
                            c->error.code ? c->error.message : hr__errno_text(c->result));
    }
    return cancelled || hr__progress_end(l->progress)
               ? hr__fail(error, -ECANCELED, "listing %s was cancelled", l->root)
               : 0;
}

/* ---- the catalog ---- */

/* Fills in one class. A class has its own directory in the catalog even if that holds no sample. */
static void fill_class(struct hr__catalog *catalog, const struct listed_class *c, uint32_t label,
                       uint64_t at[2])
{
    struct hr__catalog_directory *d = NULL;
    if (!c->count || strcmp(c->text + c->samples[0].directory, c->name)) {
        d = &catalog->directories[at[0]++];
        d->path = hr__catalog_text(catalog, c->name, strlen(c->name));
        d->label = label;
        d->first = at[1];
    }
    for (size_t k = 0; k < c->count; k++) {
        const struct listed *s = &c->samples[k];
        const char *path = c->text + s->directory, *name = c->text + s->name;
        uint64_t i = at[1]++;
        if (is_first(c, k)) {
            d = &catalog->directories[at[0]++];
            d->path = hr__catalog_text(catalog, path, strlen(path));
            d->label = label;
            d->first = i;
        }
        d->count++;
        catalog->names[i] = hr__catalog_text(catalog, name, strlen(name));
        catalog->sample_directory[i] = (uint32_t)(at[0] - 1);
        catalog->sizes[i] = s->object.bytes;
        catalog->mtimes_ns[i] = s->object.mtime_ns;
        catalog->changes[i] = s->object.change;
    }
}

static int build(struct hr__catalog **out, const struct listing *l)
{
    struct hr__catalog_shape shape = {.classes = l->names.count,
                                      .changes = 1,
                                      .arena_bytes = strlen(l->root) + 1 + l->names.bytes};
    for (size_t i = 0; i < l->names.count; i++) {
        const struct listed_class *c = &l->classes[i];
        shape.samples += c->count;
        shape.directories += c->directories + 1;
        shape.arena_bytes += c->used + strlen(c->name) + 1;
        /* a directory whose samples are apart in the listing has its text twice or more there */
    }
    for (size_t i = 0; i < l->names.count; i++) {
        const struct listed_class *c = &l->classes[i];
        if (c->count && !strcmp(c->text + c->samples[0].directory, c->name))
            shape.directories--;
    }
    int r = hr__catalog_create(out, &shape);
    if (r)
        return r;
    struct hr__catalog *catalog = *out;
    uint64_t at[2] = {0, 0};
    catalog->header->root = hr__catalog_text(catalog, l->root, strlen(l->root));
    for (size_t i = 0; i < l->names.count; i++)
        catalog->class_names[i] =
            hr__catalog_text(catalog, l->names.items[i], strlen(l->names.items[i]));
    for (size_t i = 0; i < l->names.count; i++)
        fill_class(catalog, &l->classes[i], (uint32_t)i, at);
    catalog->header->flags |= HR__CATALOG_SIZES;
    return 0;
}

static void clear(struct listing *l)
{
    for (size_t i = 0; l->classes && i < l->names.count; i++) {
        hr__free(l->classes[i].text);
        hr__free(l->classes[i].samples);
    }
    hr__free(l->classes);
    hr__names_clear(&l->names);
    hr__free(l->root);
    hr__free(l->bucket);
    hr__free(l->prefix);
}

int hr__objects_list(struct hr__catalog **out, const struct hr__objects_folder *folder,
                     const struct hr__executor *executor, struct hr__progress *progress,
                     struct hr_error *error)
{
    struct listing l = {.folder = folder, .progress = progress};
    *out = NULL;
    hr__progress_stage(progress, "listing", 0);
    int r = cut(&l, error);
    if (!r)
        r = list_classes(&l, error);
    if (!r && !(l.classes = hr__alloc(HR__TAG_DATASET, l.names.count, sizeof *l.classes)))
        r = hr__fail(error, -ENOMEM, "out of memory for the classes of %s", l.root);
    if (!r) {
        for (size_t i = 0; i < l.names.count; i++) {
            l.classes[i].name = l.names.items[i];
            l.classes[i].listing = &l;
        }
        executor->run(executor->self, l.names.count, list_class, &l);
        r = check_classes(&l, error);
    }
    if (!r && (r = build(out, &l)))
        hr__fail(error, r, "out of memory for the names of %s", l.root);
    clear(&l);
    return r;
}

/* ---- comparing with an index ---- */

/* One directory's first page, compared name by name. */
struct comparison {
    const struct hr__catalog *catalog;
    const struct hr__objects_folder *folder;
    uint64_t next, end; /* samples of the directory that were not seen yet */
    int differs;
};

static int compare_object(void *arg, const char *key, const struct hr__object *object)
{
    struct comparison *c = arg;
    const char *slash = strrchr(key, '/'), *name = slash ? slash + 1 : key;
    if (!*name ||
        !(c->folder->is_sound ? hr__name_is_sound : hr__name_is_image)(name, strlen(name)))
        return 0;
    uint64_t i = c->next++;
    c->differs |= i >= c->end || strcmp(hr__catalog_at(c->catalog, c->catalog->names[i]), name) ||
                  c->catalog->sizes[i] != object->bytes || c->catalog->changes[i] != object->change;
    return c->differs ? -ESTALE : 0;
}

static int same_directory(const struct listing *l, const struct hr__catalog *catalog, uint64_t i)
{
    const struct hr__catalog_directory *d = &catalog->directories[i];
    struct comparison c = {
        .catalog = catalog, .folder = l->folder, .next = d->first, .end = d->first + d->count};
    struct hr__draft prefix = {0};
    hr__draft_print(&prefix, "%s%s/", l->prefix, hr__catalog_at(catalog, d->path));
    const struct hr__http_listing listing = {.http = l->folder->http,
                                             .url = l->bucket,
                                             .prefix = prefix.text,
                                             .delimiter = "/",
                                             .each = compare_object,
                                             .arg = &c,
                                             .most_pages = 1};
    int same = !prefix.failed && !hr__http_list(&listing, NULL) && !c.differs;
    hr__draft_clear(&prefix);
    /* a page has up to 1000 objects, of any kind */
    return same && (c.next == c.end || d->count >= 500);
}

int hr__objects_same(const struct hr__catalog *catalog, const struct hr__objects_folder *folder)
{
    struct listing l = {.folder = folder};
    uint64_t count = catalog->header->directories;
    int same =
        !cut(&l, NULL) && !list_classes(&l, NULL) && l.names.count == catalog->header->classes;
    for (size_t i = 0; same && i < l.names.count; i++)
        same = !strcmp(l.names.items[i], hr__catalog_at(catalog, catalog->class_names[i]));
    for (int k = 0; same && k < SPOT_CHECKS && (uint64_t)k < count; k++) {
        uint64_t bits;
        if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits)
            bits = hr__now_ns() * UINT64_C(0x9e3779b97f4a7c15);
        uint64_t i =
            count <= SPOT_CHECKS ? (uint64_t)k : (uint64_t)((unsigned __int128)bits * count >> 64);
        same = same_directory(&l, catalog, i);
    }
    clear(&l);
    return same;
}
