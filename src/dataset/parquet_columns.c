/* Chooses the columns of images and labels; see parquet_columns.h. */
#include "dataset/parquet_columns.h"

#include "base/draft.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <string.h>

#include <jansson.h>

#define BYTES_MEMBER ".bytes"

static const struct hr__parquet_column *column_of(const struct hr__parquet_footer *f, size_t i)
{
    return &f->columns[i];
}

/* Returns the column with that name; HR__PARQUET_NONE if there is none. */
static size_t find(const struct hr__parquet_footer *f, const char *name)
{
    for (size_t i = 0; i < f->column_count; i++)
        if (!strcmp(f->columns[i].name, name))
            return i;
    return HR__PARQUET_NONE;
}

/* Returns the features that `datasets` described; NULL if there are none. */
static json_t *features_of(const struct hr__parquet_footer *f)
{
    json_t *root = f->features ? json_loads(f->features, 0, NULL) : NULL;
    json_t *features = json_object_get(json_object_get(root, "info"), "features");
    json_incref(features);
    json_decref(root);
    return features;
}

static int is_feature(const json_t *feature, const char *type)
{
    const char *is = json_string_value(json_object_get(feature, "_type"));
    return is && !strcmp(is, type);
}

/* Returns the bytes of the images of a column or group named `name`. */
static size_t bytes_of(const struct hr__parquet_footer *f, const char *name)
{
    char member[1024];
    size_t length = strlen(name);
    if (length + sizeof BYTES_MEMBER > sizeof member)
        return HR__PARQUET_NONE;
    memcpy(member, name, length);
    strcpy(member + length, BYTES_MEMBER);
    size_t i = find(f, member);
    return i == HR__PARQUET_NONE ? find(f, name) : i;
}

/* Columns that may be meant. */
struct candidates {
    size_t count, only; /* the last of them */
    size_t preferred;   /* the one with the usual name; HR__PARQUET_NONE: none has it */
};

static size_t decide(const struct candidates *c)
{
    return c->count == 1 ? c->only : c->preferred;
}

static void propose(struct candidates *c, size_t column, int is_preferred)
{
    c->count++;
    c->only = column;
    if (is_preferred)
        c->preferred = column;
}

static int holds_bytes(const struct hr__parquet_column *c)
{
    return c->type == HR__PARQUET_BYTE_ARRAY && c->kind == HR__PARQUET_PLAIN && !c->repeated;
}

static int holds_numbers(const struct hr__parquet_column *c)
{
    return (c->type == HR__PARQUET_INT32 || c->type == HR__PARQUET_INT64) &&
           c->kind != HR__PARQUET_OTHER && !c->repeated;
}

static int is_named(const struct hr__parquet_column *c, const char *name)
{
    size_t length = strlen(name);
    return !strncmp(c->name, name, length) &&
           (!c->name[length] || !strcmp(c->name + length, BYTES_MEMBER));
}

/* Returns the bytes of the column or group `name`, if they can be images. */
static size_t find_named(const struct hr__parquet_footer *f, const char *name)
{
    size_t i = bytes_of(f, name);
    return i != HR__PARQUET_NONE && holds_bytes(column_of(f, i)) ? i : HR__PARQUET_NONE;
}

static struct candidates find_images(const struct hr__parquet_footer *f, json_t *features)
{
    struct candidates found = {.preferred = HR__PARQUET_NONE};
    const char *name;
    json_t *feature;
    json_object_foreach(features, name, feature)
    {
        size_t i = is_feature(feature, "Image") ? find_named(f, name) : HR__PARQUET_NONE;
        if (i != HR__PARQUET_NONE)
            propose(&found, i, is_named(column_of(f, i), "image"));
    }
    if (found.count)
        return found;
    for (size_t i = 0; i < f->column_count; i++)
        if (holds_bytes(column_of(f, i)))
            propose(&found, i, is_named(column_of(f, i), "image"));
    return found;
}

static struct candidates find_labels(const struct hr__parquet_footer *f, json_t *features)
{
    struct candidates found = {.preferred = HR__PARQUET_NONE};
    const char *name;
    json_t *feature;
    json_object_foreach(features, name, feature)
    {
        size_t i = is_feature(feature, "ClassLabel") ? find(f, name) : HR__PARQUET_NONE;
        if (i != HR__PARQUET_NONE && holds_numbers(column_of(f, i)))
            propose(&found, i, !strcmp(name, "label"));
    }
    size_t label = find(f, "label");
    if (!found.count && label != HR__PARQUET_NONE)
        propose(&found, label, 1);
    return found;
}

/* Reports what is wrong with the columns, and lists them. */
static int refuse(const struct hr__parquet_footer *f, const char *path, const char *what,
                  struct hr_error *error)
{
    struct hr__draft names = {.text = NULL};
    for (size_t i = 0; i < f->column_count && names.length < 300; i++)
        hr__draft_print(&names, "%s%s", i ? ", " : "", f->columns[i].name);
    hr__draft_put(&names, "");
    char printable[320];
    hr__printable(printable, sizeof printable, names.text ? names.text : "");
    hr__draft_clear(&names);
    return hr__fail(error, -EINVAL, "%s %s; its columns are %s", path, what, printable);
}

/* Stores the names of a ClassLabel. */
static int take_classes(struct hr__names *out, const json_t *features, const char *label)
{
    const json_t *feature = json_object_get(features, label);
    const json_t *names = json_object_get(feature, "names");
    if (!is_feature(feature, "ClassLabel"))
        return 0;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (hr__names_add(out, name ? name : "", name ? strlen(name) : 0))
            return -ENOMEM;
    }
    return 0;
}

static int choose_label(struct hr__parquet_choice *out, const struct hr__parquet_footer *f,
                        const char *label, const json_t *features, struct candidates found)
{
    out->label = HR__PARQUET_NONE;
    if (label && !strcmp(label, "none"))
        return 0;
    out->label = label ? find(f, label) : decide(&found);
    if (out->label == HR__PARQUET_NONE)
        return -EINVAL;
    return take_classes(&out->classes, features, f->columns[out->label].name);
}

/* Reports that there is no column of images, or none that is meant. */
static int refuse_images(const struct hr__parquet_footer *f, const char *path, const char *named,
                         size_t count, struct hr_error *error)
{
    char what[256];
    if (named)
        snprintf(what, sizeof what,
                 "has no column %.100s of images, which are bytes, or structs with bytes", named);
    else
        snprintf(what, sizeof what, "%s",
                 count ? "has several columns of images, and none is named \"image\": name the one "
                         "to read (image=, --image)"
                       : "has no column of images, which are bytes, or structs with bytes");
    return refuse(f, path, what, error);
}

int hr__parquet_choose(struct hr__parquet_choice *out, const struct hr__parquet_footer *footer,
                       const struct hr__shard_source *source, const char *path,
                       struct hr_error *error)
{
    json_t *features = features_of(footer);
    struct candidates images = find_images(footer, features);
    struct candidates labels = find_labels(footer, features);
    const char *label = source->label;
    char what[256], name[256] = "";
    *out = (struct hr__parquet_choice){.image = source->image ? find_named(footer, source->image)
                                                              : decide(&images)};
    int r = choose_label(out, footer, label, features, labels);
    json_decref(features);
    if (r == -ENOMEM) {
        hr__fail(error, r, "out of memory for the classes of %s", path);
    } else if (out->image == HR__PARQUET_NONE) {
        r = refuse_images(footer, path, source->image, images.count, error);
    } else if (r) {
        snprintf(what, sizeof what,
                 label ? "has no column %.100s"
                       : "has %s; name the column that holds it, or "
                         "\"none\"",
                 label          ? label
                 : labels.count ? "several columns of labels, and none is named \"label\""
                                : "no column \"label\"");
        r = refuse(footer, path, what, error);
    } else if (out->label != HR__PARQUET_NONE && !holds_numbers(column_of(footer, out->label))) {
        hr__printable(name, sizeof name, footer->columns[out->label].name);
        r = hr__fail(error, -EINVAL,
                     "%s: the column %s holds no label: it must hold one whole number in each row "
                     "(Dataset.class_encode_column makes numbers of texts)",
                     path, name);
    }
    if (r)
        hr__names_clear(&out->classes);
    return r;
}
