/*
 * Writes and opens statements; see statement.h. Reading parses the text (statement_parse.c), opens
 * the dataset that it names as the job did, and compares count and digest with the job's.
 */
#include "agent/statement.h"

#include "agent/statement_parse.h"
#include "base/error.h"
#include "base/memory.h"
#include "bulk/scan.h"
#include "dataset/row_block.h"
#include "storage/http.h"

#include <headrace/masks.h>

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DECIMALS 17 /* enough to write any double exactly */

/* An endpoint that no setting names. */
#define PROVIDER "the provider's own endpoint"

/* State of writing one dataset. */
struct statement_writer {
    const struct hr__dataset_source *source;
    int are_bytes; /* write each byte of a path as a character, because some are not UTF-8 */
    int code;      /* first error; -EILSEQ: a path is not UTF-8 and are_bytes is not set */
};

/* Writes a path of the dataset as an absolute one. Sets w->code and returns NULL on failure. */
static json_t *write_path(struct statement_writer *w, const char *path)
{
    json_t *value = NULL;
    char *whole, *wide = NULL;
    w->code = hr__source_absolute(&whole, w->source, path);
    if (w->code) {
        w->code = w->code == -ENOENT ? -ENOTSUP : w->code;
        return NULL;
    }
    if (w->are_bytes) {
        char *to = wide = hr__alloc(HR__TAG_AGENT, 2 * strlen(whole) + 1, 1);
        for (const char *c = whole; wide && *c; c++) {
            unsigned char byte = (unsigned char)*c;
            if (byte >= 0x80)
                *to++ = (char)(0xC0 | byte >> 6);
            *to++ = (char)(byte >= 0x80 ? 0x80 | (byte & 0x3F) : byte);
        }
    }
    if (!w->are_bytes || wide)
        value = json_string(wide ? wide : whole);
    if (!value)
        w->code = w->are_bytes ? -ENOMEM : -EILSEQ;
    hr__free(wide);
    hr__free(whole);
    return value;
}

static int has_shards(const struct hr__dataset_source *source)
{
    return source->kind == HR__SOURCE_TAR || source->kind == HR__SOURCE_PARQUET ||
           source->kind == HR__SOURCE_RANGES;
}

/* Writes the paths of all samples, or of all containers. */
static json_t *write_paths(struct statement_writer *w, const struct hr_dataset *origin)
{
    char path[PATH_MAX];
    int are_shards = has_shards(w->source);
    size_t count = are_shards ? origin->catalog->header->containers : origin->count;
    json_t *array = json_array();
    if (!array)
        w->code = -ENOMEM;
    for (size_t i = 0; i < count && !w->code; i++) {
        const char *at = path;
        if (are_shards)
            at = hr__containers_path(origin->containers, i);
        else if (hr_dataset_path(origin, i, path, sizeof path) >= sizeof path)
            w->code = -ENAMETOOLONG;
        json_t *value = w->code ? NULL : write_path(w, at);
        if (!w->code && json_array_append_new(array, value))
            w->code = -ENOMEM;
    }
    if (w->code) {
        json_decref(array);
        return NULL;
    }
    return array;
}

static json_t *write_labels(const struct hr_dataset *origin)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < origin->count; i++)
        if (json_array_append_new(array, json_integer(hr_dataset_label(origin, i)))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *write_ranges(const struct hr_dataset *origin)
{
    const struct hr__catalog *c = origin->catalog;
    json_t *array = json_array();
    int r = array ? 0 : -1;
    for (size_t i = 0; !r && i < origin->count; i++) {
        r = json_array_append_new(array, json_integer(c->ranges[i].container));
        r = r ? r : json_array_append_new(array, json_integer((json_int_t)c->ranges[i].offset));
        r = r ? r : json_array_append_new(array, json_integer(c->sizes[i]));
        r = r ? r : json_array_append_new(array, json_integer(c->labels[i]));
    }
    if (!r)
        return array;
    json_decref(array);
    return NULL;
}

static json_t *digest_text(const uint8_t digest[HR__DIGEST_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    char text[2 * HR__DIGEST_BYTES + 1] = "";
    for (size_t i = 0; i < HR__DIGEST_BYTES; i++) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
    return json_string(text);
}

static json_t *write_digest(const struct hr_dataset *origin)
{
    uint8_t digest[HR__DIGEST_BYTES];
    hr__dataset_digest(origin, digest);
    return digest_text(digest);
}

static void set(struct statement_writer *w, json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, value) && !w->code)
        w->code = -ENOMEM;
}

/* Returns non-zero if samples are in buckets of S3, or with `gs` of Google Cloud Storage. The paths
 * of a list may be of several places. */
static int is_in_bucket(const struct hr_dataset *origin, bool gs)
{
    const struct hr__dataset_source *s = &origin->source;
    const char *scheme = gs ? "gs://" : "s3://";
    int is_list = s->kind == HR__SOURCE_PATHS || s->kind == HR__SOURCE_LIST;
    size_t count = is_list         ? origin->count
                   : has_shards(s) ? origin->catalog->header->containers
                                   : 0;
    int is = s->path && !strncmp(s->path, scheme, 5);
    for (size_t i = 0; !is && i < count; i++) {
        char path[6] = "";
        if (is_list)
            hr_dataset_path(origin, i, path, sizeof path);
        is = !strncmp(has_shards(s) ? hr__containers_path(origin->containers, i) : path, scheme, 5);
    }
    return is;
}

/* Writes where the job's settings say that its buckets are. */
static void write_endpoints(struct statement_writer *w, json_t *object,
                            const struct hr_dataset *origin)
{
    for (int gs = 0; origin->http && gs < 2; gs++) {
        const char *endpoint = hr__http_endpoint(origin->http, gs);
        if (is_in_bucket(origin, gs))
            set(w, object, hr__endpoint_words[gs], json_string(endpoint ? endpoint : PROVIDER));
    }
}

static json_t *write_members(struct statement_writer *w, const struct hr_dataset *origin)
{
    const struct hr__dataset_source *s = w->source;
    json_t *object = json_object();
    w->code = 0;
    set(w, object, "kind", json_string(hr__source_words[s->kind]));
    if (w->are_bytes)
        set(w, object, "paths_are", json_string("bytes"));
    if (s->kind == HR__SOURCE_PATHS || has_shards(s))
        set(w, object, "paths", write_paths(w, origin));
    else
        set(w, object, "path", write_path(w, s->path));
    if (s->kind == HR__SOURCE_PATHS) {
        set(w, object, "labels", write_labels(origin));
    } else if (s->kind == HR__SOURCE_RANGES) {
        set(w, object, "ranges", write_ranges(origin));
    } else {
        set(w, object, "count", json_integer((json_int_t)origin->count));
        set(w, object, "digest", write_digest(origin));
    }
    if (has_shards(s) && s->label)
        set(w, object, "label", json_string(s->label));
    if (has_shards(s) && s->image)
        set(w, object, "image", json_string(s->image));
    if (s->kind == HR__SOURCE_FOLDER) {
        set(w, object, "allow_empty_classes", json_boolean(s->allow_empty_classes));
        set(w, object, "index", json_string(hr__index_words[s->index]));
    }
    if (s->media == HR_MEDIA_SOUNDS)
        set(w, object, "media", json_string("sounds"));
    write_endpoints(w, object, origin);
    if (w->code) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *write_produced(struct statement_writer *w, const struct hr_dataset *dataset)
{
    const struct hr__produced *p = dataset->produced;
    json_t *object = json_object();
    w->code = 0;
    set(w, object, "kind", json_string(hr__source_words[HR__SOURCE_PRODUCED]));
    set(w, object, "name", json_string(p->name));
    set(w, object, "count", json_integer((json_int_t)dataset->count));
    set(w, object, "sample_bytes", json_integer((json_int_t)p->sample_bytes));
    set(w, object, "layout", digest_text(p->layout));
    set(w, object, "digest", digest_text(p->digest));
    if (w->code) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* Writes a dataset that is not a subset. */
static json_t *write_origin(const struct hr_dataset *origin, struct hr_error *error)
{
    struct statement_writer w = {.source = &origin->source};
    json_t *object = origin->produced ? write_produced(&w, origin) : write_members(&w, origin);
    if (w.code == -EILSEQ && !origin->produced) {
        w.are_bytes = 1;
        object = write_members(&w, origin);
    }
    if (w.code == -ENOTSUP)
        hr__fail(error, w.code,
                 "the dataset has relative paths, and the directory they began at was deleted: an "
                 "agent cannot open it; open it by an absolute path");
    else if (w.code)
        hr__fail(error, w.code, "describing the dataset to an agent: %s", hr__errno_text(w.code));
    return object;
}

static json_t *write_subset(json_t *of, const struct hr_dataset *subset)
{
    json_t *object = json_object(), *indices = json_array();
    int r = !of || !object || !indices;
    for (size_t i = 0; !r && i < subset->count; i++)
        r = json_array_append_new(indices, json_integer(subset->indices[i]));
    r = r ? r : json_object_set_new(object, "kind", json_string("subset"));
    r = r ? r : json_object_set(object, "indices", indices);
    r = r ? r : json_object_set(object, "of", of);
    json_decref(indices);
    json_decref(of);
    if (r) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *write_dataset(const struct hr_dataset *dataset, struct hr_error *error)
{
    json_t *what = write_origin(dataset->parent ? dataset->parent : dataset, error);
    return what && dataset->indices ? write_subset(what, dataset) : what;
}

int hr__statement_write(char **text, const struct hr_dataset *dataset,
                        const struct hr_recipe *recipe, struct hr_error *error)
{
    struct hr_error why = {.code = -ENOMEM, .message = "out of memory for a statement"};
    char *dump = NULL;
    *text = NULL;
    json_t *root = json_object();
    int r = json_object_set_new(root, "dataset", write_dataset(dataset, &why));
    if (!r)
        r = json_object_set_new(
            root, "recipe", dataset->produced ? json_object() : hr__stated_recipe_write(recipe));
    if (!r && dataset->rows) {
        uint8_t digest[HR__DIGEST_BYTES];
        hr__dataset_rows_digest(dataset, digest);
        r = json_object_set_new(root, "rows", digest_text(digest));
    }
    if (!r && dataset->masks)
        r = json_object_set_new(root, "masks", write_dataset(dataset->masks, &why));
    if (!r)
        r = json_object_set_new(root, "version", json_integer(HR__STATEMENT_VERSION));
    if (!r)
        dump = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(DECIMALS));
    json_decref(root);
    if (dump)
        *text = hr__strdup(HR__TAG_AGENT, dump);
    free(dump);
    return *text ? 0 : hr__fail(error, why.code, "%s", why.message);
}

/* Opens a list file. Refuses a pipe, because reading it would block until somebody writes. */
static int open_list(struct hr_dataset **out, const char *path,
                     const struct hr_dataset_options *options, struct hr_error *error)
{
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        return hr__fail(error, -ESTALE, "the list %s is no longer a regular file", path);
    return hr_dataset_open_list(out, path, options, error);
}

/* Opens a pack as it is stored: of one with masks, the samples are images and masks in turn. */
static int open_pack(struct hr_dataset **out, const char *path,
                     const struct hr_dataset_options *options, struct hr_error *error)
{
    struct hr_dataset *opened;
    int r = hr_dataset_open_pack(&opened, path, options, error);
    if (r)
        return r;
    *out = hr_dataset_ref(hr__dataset_origin(opened));
    hr_dataset_unref(&opened);
    return 0;
}

static int open_kind(struct hr_dataset **out, const struct hr__stated_dataset *stated,
                     struct hr_error *error)
{
    struct hr_dataset_options options;
    hr_dataset_options_default(&options);
    options.index = stated->index;
    options.media = stated->media;
    options.allow_empty_classes = stated->allow_empty_classes;
    options.label = *stated->label ? stated->label : NULL;
    options.image = *stated->image ? stated->image : NULL;
    switch (stated->kind) {
    case HR__SOURCE_FOLDER:
        return hr_dataset_open_folder(out, stated->paths[0], &options, error);
    case HR__SOURCE_LIST:
        return open_list(out, stated->paths[0], &options, error);
    case HR__SOURCE_PACK:
        return open_pack(out, stated->paths[0], &options, error);
    case HR__SOURCE_TAR:
    case HR__SOURCE_PARQUET:
        return hr__dataset_open_shards(out, stated->kind,
                                       &(struct hr__shards){stated->paths, stated->path_count},
                                       &options, error);
    case HR__SOURCE_RANGES:
        return hr_dataset_from_ranges(
            out,
            &(struct hr_dataset_ranges){.size = sizeof(struct hr_dataset_ranges),
                                        .files = (const char *const *)stated->paths,
                                        .file_count = stated->path_count,
                                        .ranges = (const struct hr_dataset_range *)stated->ranges,
                                        .count = stated->range_count},
            error);
    case HR__SOURCE_PRODUCED:
        return hr__dataset_create_produced(out, stated->count, &stated->produced, error);
    case HR__SOURCE_PATHS:
        break;
    }
    return hr_dataset_from_paths(out, (const char *const *)stated->paths, stated->labels,
                                 stated->path_count, error);
}

/* Compares the job's endpoints with this process's: with another one, a bucket of the same name is
 * another bucket. The job's are not used, because then a job could have this process's credentials
 * sent to any host. */
static int check_endpoints(const struct hr__stated_dataset *stated, struct hr_error *error)
{
    static const char *const variables[] = {"AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST"};
    struct hr__http_client *http;
    int r = 0;
    for (int gs = 0; !r && gs < 2; gs++) {
        const char *wanted = stated->endpoints[gs];
        if (!*wanted)
            continue;
        r = hr__http_create(&http, error);
        if (r)
            return r;
        const char *own = hr__http_endpoint(http, gs);
        int is_own = !strcmp(wanted, PROVIDER);
        if (strcmp(own ? own : PROVIDER, wanted))
            r = hr__fail(error, -EINVAL,
                         "the job's buckets are at %s, and the agent's at %s: start the agent %s "
                         "%s%s%s, and with credentials for it",
                         wanted, own ? own : PROVIDER, is_own ? "without" : "with", variables[gs],
                         is_own ? "" : "=", is_own ? "" : wanted);
        hr__http_unref(&http);
    }
    return r;
}

/* Opens a dataset that is not a subset, and checks that it equals the job's. */
static int open_origin(struct hr_dataset **out, const struct hr__stated_dataset *stated,
                       struct hr_error *error)
{
    uint8_t digest[HR__DIGEST_BYTES];
    int r = check_endpoints(stated, error);
    if (!r)
        r = open_kind(out, stated, error);
    if (r || stated->kind == HR__SOURCE_PATHS || stated->kind == HR__SOURCE_RANGES ||
        stated->kind == HR__SOURCE_PRODUCED)
        return r;
    hr__dataset_digest(*out, digest);
    size_t now = hr_dataset_count(*out);
    if (now == stated->count && !memcmp(digest, stated->digest, sizeof digest))
        return 0;
    hr_dataset_unref(out);
    return hr__fail(error, -ESTALE,
                    "%s is not what it was when this job opened it (%llu samples then, %zu for the "
                    "agent): open it again",
                    stated->path_count ? stated->paths[0] : "the dataset",
                    (unsigned long long)stated->count, now);
}

static int open_dataset(struct hr_dataset **out, const struct hr__stated_dataset *stated,
                        struct hr_error *error)
{
    struct hr_dataset *of;
    *out = NULL;
    if (!stated->is_subset)
        return open_origin(out, stated, error);
    int r = open_dataset(&of, stated->of, error);
    if (r)
        return r;
    r = hr_dataset_subset(out, of, stated->indices, stated->index_count, error);
    hr_dataset_unref(&of);
    return r;
}

/* Gives the dataset the rows that were sent beside the statement, in place of rows of its own. */
static int take_rows(struct hr_dataset **dataset, const struct hr__statement_sent *sent,
                     const uint8_t stated[HR__DIGEST_BYTES], struct hr_error *error)
{
    struct hr_dataset *with;
    struct hr__row_table *rows;
    struct hr_error why;
    uint8_t digest[HR__DIGEST_BYTES];
    if (!sent->rows)
        return hr__fail(error, -EPROTO, "the rows that a statement tells of did not come");
    int r =
        hr__row_block_read(&rows, sent->rows, sent->rows_bytes, hr_dataset_count(*dataset), &why);
    if (r)
        return hr__fail(error, r == -ENOMEM ? r : -EPROTO, "%s", why.message);
    r = hr__dataset_create_alike(&with, *dataset, rows, error);
    hr__row_table_unref(&rows);
    if (r)
        return r;
    hr_dataset_unref(dataset);
    *dataset = with;
    hr__dataset_rows_digest(with, digest);
    return memcmp(digest, stated, sizeof digest)
               ? hr__fail(error, -EPROTO, "the rows that came are not those that a statement says")
               : 0;
}

/* Gives the dataset the masks that a statement tells of. */
static int take_masks(struct hr_dataset **dataset, const struct hr__stated_dataset *stated,
                      struct hr_error *error)
{
    struct hr_dataset *masks, *with;
    struct hr_error why;
    int r = open_dataset(&masks, stated, error);
    if (r)
        return r;
    r = hr_dataset_with_masks(&with, *dataset, masks, &why);
    hr_dataset_unref(&masks);
    if (r)
        return hr__fail(error, r == -ENOMEM ? r : -EPROTO, "%s", why.message);
    hr_dataset_unref(dataset);
    *dataset = with;
    return 0;
}

int hr__statement_read(const struct hr__statement_sent *sent, struct hr_dataset **dataset,
                       struct hr_recipe **recipe, struct hr_error *error)
{
    struct hr__statement stated;
    *dataset = NULL;
    *recipe = NULL;
    int r = hr__statement_parse(&stated, sent->text, sent->length, error);
    if (r)
        return r;
    if (!stated.dataset->is_subset && stated.dataset->kind == HR__SOURCE_PRODUCED)
        r = hr__recipe_create_raw(recipe, stated.dataset->produced.sample_bytes, error);
    else
        r = hr_recipe_create(recipe, stated.recipe.operations, stated.recipe.count,
                             &stated.recipe.options, error);
    if (!r)
        r = open_dataset(dataset, stated.dataset, error);
    if (!r && stated.has_rows)
        r = take_rows(dataset, sent, stated.rows, error);
    if (!r && stated.masks)
        r = take_masks(dataset, stated.masks, error);
    if (r) {
        hr_dataset_unref(dataset);
        hr_recipe_unref(recipe);
    }
    hr__statement_clear(&stated);
    return r;
}
