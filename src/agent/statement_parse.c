/* See statement_parse.h. A member that is missing, unknown or of another type is refused: our own
 * writer makes no such statement. */
#include "agent/statement_parse.h"

#include "base/memory.h"
#include "storage/url.h"

#include <headrace/producer.h>

#include <errno.h>
#include <limits.h>
#include <string.h>

const char *const hr__source_words[] = {[HR__SOURCE_PATHS] = "paths",
                                        [HR__SOURCE_FOLDER] = "folder",
                                        [HR__SOURCE_LIST] = "list",
                                        [HR__SOURCE_PACK] = "pack",
                                        [HR__SOURCE_TAR] = "tar",
                                        [HR__SOURCE_PARQUET] = "parquet",
                                        [HR__SOURCE_RANGES] = "ranges",
                                        [HR__SOURCE_PRODUCED] = "produced",
                                        NULL};
static const char *const media_words[] = {
    [HR_MEDIA_IMAGES] = "images", [HR_MEDIA_SOUNDS] = "sounds", NULL};
const char *const hr__endpoint_words[] = {"s3_endpoint", "gs_endpoint"};
const char *const hr__index_words[] = {[HR_INDEX_USER_CACHE] = "user",
                                       [HR_INDEX_BESIDE_DATA] = "beside",
                                       [HR_INDEX_NONE] = "none",
                                       NULL};

/* Converts a text whose characters stand for bytes (up to U+00FF) to these bytes. `out` may be
 * `text`. Returns -1 on other characters. */
static int to_bytes(char *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c >= 0x80) {
            /* U+0080..U+00FF have two bytes in UTF-8 */
            if (c != 0xC2 && c != 0xC3)
                return -1;
            c = (unsigned char)((c & 3) << 6 | ((unsigned char)*++text & 0x3F));
        }
        *out++ = (char)c;
    }
    *out = 0;
    return 0;
}

/* Reads an absolute path or a URL, owned by the caller; NULL on failure. */
static char *read_path(struct hr__json *reader, const json_t *value, int are_bytes)
{
    const char *text = json_string_value(value);
    if (!text || (*text != '/' && !hr__url_is(text))) {
        hr__json_fail(reader, -EINVAL, "", "must be an absolute path");
        return NULL;
    }
    if (json_string_length(value) >= 2 * PATH_MAX) {
        hr__json_fail(reader, -EINVAL, "", "is longer than a path can be");
        return NULL;
    }
    char *path = hr__strdup(HR__TAG_AGENT, text);
    if (!path) {
        hr__json_no_memory(reader);
    } else if (are_bytes && to_bytes(path, path)) {
        hr__json_fail(reader, -EINVAL, "", "holds a character that is no byte");
    } else if (strlen(path) >= PATH_MAX) {
        hr__json_fail(reader, -EINVAL, "", "is longer than a path can be");
    } else {
        return path;
    }
    hr__free(path);
    return NULL;
}

/* Reads "paths_are". Returns 1: "bytes"; 0: absent. */
static int read_paths_are(struct hr__json *reader, const json_t *object)
{
    const json_t *value = json_object_get(object, "paths_are");
    const char *text = json_string_value(value);
    if (value && (!text || strcmp(text, "bytes")))
        hr__json_fail(reader, -EINVAL, "paths_are", "must be \"bytes\"");
    return value != NULL;
}

/* Returns the array `name`, which must exist and not be longer than memory can hold. */
static const json_t *array_of(struct hr__json *reader, const json_t *object, const char *name)
{
    const json_t *array = hr__json_array(reader, object, name, INT32_MAX);
    if (!array)
        hr__json_fail(reader, -EINVAL, name, "is missing; write an array");
    return array;
}

static void read_paths(struct hr__json *reader, const json_t *object,
                       struct hr__stated_dataset *out, int are_bytes)
{
    const json_t *array = array_of(reader, object, "paths");
    size_t count = json_array_size(array);
    if (reader->code)
        return;
    out->paths = hr__alloc(HR__TAG_AGENT, count + 1, sizeof *out->paths);
    if (!out->paths) {
        hr__json_no_memory(reader);
        return;
    }
    for (size_t i = 0; i < count && !reader->code; i++) {
        size_t mark = hr__json_enter(reader, "paths", (long)i);
        out->paths[i] = read_path(reader, json_array_get(array, i), are_bytes);
        out->path_count += out->paths[i] != NULL;
        hr__json_leave(reader, mark);
    }
}

static void read_one_path(struct hr__json *reader, const json_t *object,
                          struct hr__stated_dataset *out, int are_bytes)
{
    size_t mark = hr__json_enter(reader, "path", -1);
    out->paths = hr__alloc(HR__TAG_AGENT, 1, sizeof *out->paths);
    if (!out->paths)
        hr__json_no_memory(reader);
    else
        out->paths[0] = read_path(reader, json_object_get(object, "path"), are_bytes);
    out->path_count = out->paths && out->paths[0];
    hr__json_leave(reader, mark);
}

/* Reads an array of 64-bit integers, each at least `low`. Returns how many. */
static size_t read_integers(struct hr__json *reader, const json_t *object, const char *name,
                            int64_t low, int64_t **out)
{
    const json_t *array = array_of(reader, object, name);
    size_t count = json_array_size(array);
    *out = NULL;
    if (reader->code)
        return 0;
    *out = hr__alloc(HR__TAG_AGENT, count + 1, sizeof **out);
    if (!*out) {
        hr__json_no_memory(reader);
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(array, i);
        (*out)[i] = (int64_t)json_integer_value(value);
        if (json_is_integer(value) && (*out)[i] >= low)
            continue;
        size_t mark = hr__json_enter(reader, name, (long)i);
        hr__json_fail(reader, -EINVAL, "", "must be a whole number of at least %lld",
                      (long long)low);
        hr__json_leave(reader, mark);
        return 0;
    }
    return count;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void read_digest(struct hr__json *reader, const json_t *object, const char *name,
                        uint8_t *out)
{
    char text[2 * HR__DIGEST_BYTES + 1];
    hr__json_name(reader, object, name, text, sizeof text);
    size_t length = strlen(text);
    for (size_t i = 0; i < length && !reader->code; i++) {
        int digit = digit_of(text[i]);
        if (digit < 0 || length != 2 * HR__DIGEST_BYTES)
            hr__json_fail(reader, -EINVAL, name, "must be %d digits from 0 to f",
                          2 * HR__DIGEST_BYTES);
        else
            out[i / 2] = (uint8_t)(out[i / 2] << 4 | digit);
    }
}

/* Reads what the job found in a file or folder. Returns the number of members read. */
static size_t read_found(struct hr__json *reader, const json_t *object,
                         struct hr__stated_dataset *out)
{
    const struct hr__json_range range = {0, 0x1p53, HR__REQUIRED};
    out->count = (uint64_t)hr__json_integer(reader, object, "count", range);
    read_digest(reader, object, "digest", out->digest);
    return 2;
}

/* The same for a produced dataset. */
static size_t read_produced(struct hr__json *reader, const json_t *object,
                            struct hr__stated_dataset *out)
{
    struct hr__produced *p = &out->produced;
    const struct hr__json_range sizes = {1, (double)HR_PRODUCED_BYTES_MAX, HR__REQUIRED};
    hr__json_name(reader, object, "name", p->name, sizeof p->name);
    p->sample_bytes = (uint64_t)hr__json_integer(reader, object, "sample_bytes", sizes);
    read_digest(reader, object, "layout", p->layout);
    size_t members = 3 + read_found(reader, object, out);
    memcpy(p->digest, out->digest, sizeof p->digest);
    return members;
}

static size_t read_source(struct hr__json *reader, const json_t *object,
                          struct hr__stated_dataset *out)
{
    int are_bytes = read_paths_are(reader, object);
    size_t members = 1 + (size_t)are_bytes;
    out->kind = (enum hr__source_kind)hr__json_word(reader, object, "kind", hr__source_words);
    if (out->kind == HR__SOURCE_PRODUCED)
        return members + read_produced(reader, object, out);
    int are_shards = out->kind == HR__SOURCE_TAR || out->kind == HR__SOURCE_PARQUET;
    int are_ranges = out->kind == HR__SOURCE_RANGES;
    if (out->kind == HR__SOURCE_PATHS || are_shards || are_ranges)
        read_paths(reader, object, out, are_bytes);
    else
        read_one_path(reader, object, out, are_bytes);
    members++;
    if (are_shards && !out->path_count)
        hr__json_fail(reader, -EINVAL, "paths", "are none; write at least one");
    if (are_ranges) {
        const size_t each = sizeof(struct hr_dataset_range) / sizeof(int64_t);
        size_t numbers = read_integers(reader, object, "ranges", INT64_MIN, &out->ranges);
        if (numbers % each)
            hr__json_fail(reader, -EINVAL, "ranges", "are %zu numbers, not %zu each", numbers,
                          each);
        out->range_count = numbers / each;
        members++;
    } else if (out->kind != HR__SOURCE_PATHS)
        members += read_found(reader, object, out);
    if (out->kind == HR__SOURCE_PATHS) {
        size_t labels = read_integers(reader, object, "labels", INT64_MIN, &out->labels);
        if (labels != out->path_count)
            hr__json_fail(reader, -EINVAL, "labels", "are %zu for %zu paths", labels,
                          out->path_count);
        members++;
    }
    if (are_shards && json_object_get(object, "label")) {
        hr__json_name(reader, object, "label", out->label, sizeof out->label);
        members++;
    }
    if (are_shards && json_object_get(object, "image")) {
        hr__json_name(reader, object, "image", out->image, sizeof out->image);
        members++;
    }
    if (out->kind == HR__SOURCE_FOLDER) {
        int empty = hr__json_bool(reader, object, "allow_empty_classes", -1);
        if (empty < 0)
            hr__json_fail(reader, -EINVAL, "allow_empty_classes", "is missing");
        out->allow_empty_classes = empty;
        out->index = (enum hr_index_policy)hr__json_word(reader, object, "index", hr__index_words);
        members += 2;
    }
    for (int i = 0; i < 2; i++)
        if (json_object_get(object, hr__endpoint_words[i])) {
            hr__json_name(reader, object, hr__endpoint_words[i], out->endpoints[i],
                          sizeof out->endpoints[i]);
            members++;
        }
    if ((out->kind == HR__SOURCE_FOLDER || out->kind == HR__SOURCE_TAR) &&
        json_object_get(object, "media")) {
        out->media = (enum hr_media)hr__json_word(reader, object, "media", media_words);
        members++;
    }
    return members;
}

static void clear_dataset(struct hr__stated_dataset *d)
{
    while (d) {
        struct hr__stated_dataset *of = d->of;
        for (size_t i = 0; i < d->path_count; i++)
            hr__free(d->paths[i]);
        hr__free(d->paths);
        hr__free(d->labels);
        hr__free(d->ranges);
        hr__free(d->indices);
        hr__free(d);
        d = of;
    }
}

static struct hr__stated_dataset *read_dataset(struct hr__json *reader, const json_t *parent,
                                               const char *name, int depth)
{
    const json_t *object = hr__json_object(reader, parent, name), *kind;
    if (!object)
        hr__json_fail(reader, -EINVAL, name, "is missing; write an object");
    if (depth > HR__STATEMENT_DEPTH_MAX)
        hr__json_fail(reader, -EINVAL, name, "is a subset of a subset more than %d times",
                      HR__STATEMENT_DEPTH_MAX);
    if (reader->code)
        return NULL;
    struct hr__stated_dataset *out = hr__alloc(HR__TAG_AGENT, 1, sizeof *out);
    if (!out) {
        hr__json_no_memory(reader);
        return NULL;
    }
    size_t mark = hr__json_enter(reader, name, -1), members;
    kind = json_object_get(object, "kind");
    out->is_subset = json_is_string(kind) && !strcmp(json_string_value(kind), "subset");
    if (out->is_subset) {
        out->index_count = read_integers(reader, object, "indices", 0, &out->indices);
        out->of = read_dataset(reader, object, "of", depth + 1);
        members = 3;
    } else {
        members = read_source(reader, object, out);
    }
    if (json_object_size(object) != members)
        hr__json_fail(reader, -EINVAL, "", "has other members than a dataset of its kind has");
    hr__json_leave(reader, mark);
    return out;
}

int hr__statement_parse(struct hr__statement *out, const char *text, size_t length,
                        struct hr_error *error)
{
    struct hr__json reader = {.where = "the statement of a loader", .error = error};
    const struct hr__json_range version = {HR__STATEMENT_VERSION, HR__STATEMENT_VERSION,
                                           HR__REQUIRED};
    memset(out, 0, sizeof *out);
    json_t *root = hr__json_parse(&reader, text, length);
    if (root) {
        hr__json_integer(&reader, root, "version", version);
        out->has_rows = json_object_get(root, "rows") != NULL;
        int has_masks = json_object_get(root, "masks") != NULL;
        if (json_object_size(root) != 3 + (size_t)(out->has_rows + has_masks))
            hr__json_fail(&reader, -EINVAL, "", "has other members than a statement has");
        if (out->has_rows)
            read_digest(&reader, root, "rows", out->rows);
        if (!reader.code)
            out->dataset = read_dataset(&reader, root, "dataset", 0);
        if (!reader.code && has_masks)
            out->masks = read_dataset(&reader, root, "masks", 0);
        const json_t *recipe = hr__json_object(&reader, root, "recipe");
        if (!recipe)
            hr__json_fail(&reader, -EINVAL, "recipe", "is missing; write an object");
        size_t mark = hr__json_enter(&reader, "recipe", -1);
        int is_produced =
            out->dataset && !out->dataset->is_subset && out->dataset->kind == HR__SOURCE_PRODUCED;
        if (!reader.code && is_produced && out->has_rows)
            hr__json_fail(&reader, -EINVAL, "", "has rows, which a produced dataset cannot have");
        if (!reader.code && is_produced && json_object_size(recipe))
            hr__json_fail(&reader, -EINVAL, "",
                          "has members, which a produced dataset has no use for");
        if (!reader.code && !is_produced)
            hr__stated_recipe_read(&reader, recipe, &out->recipe);
        hr__json_leave(&reader, mark);
        json_decref(root);
    }
    if (reader.code)
        hr__statement_clear(out);
    if (reader.code == -EINVAL && error)
        error->code = -EPROTO;
    return reader.code == -EINVAL ? -EPROTO : reader.code;
}

void hr__statement_clear(struct hr__statement *statement)
{
    clear_dataset(statement->dataset);
    clear_dataset(statement->masks);
    statement->dataset = statement->masks = NULL;
}
