/* Writes and reads recipes as JSON; see statement_recipe.h. */
#include "agent/statement_recipe.h"

#include "recipe/field.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const damaged[] = {
    [HR_DAMAGED_REFUSE] = "refuse", [HR_DAMAGED_ACCEPT] = "accept", NULL};
static const char *const layouts[] = {[HR_NCHW] = "NCHW", [HR_NHWC] = "NHWC", NULL};

static int is_flag(const struct hr__parameter *f)
{
    return f->type == HR__PARAMETER_FLAG || f->type == HR__PARAMETER_SHORT_FLAG;
}

static json_t *write_value(const struct hr__parameter *f, const char *at, size_t i)
{
    double real;
    if (f->type == HR__PARAMETER_REAL) {
        memcpy(&real, at + i * sizeof real, sizeof real);
        return json_real(real);
    }
    int whole = hr__parameter_whole(f, at + i * sizeof(int));
    if (is_flag(f))
        return json_boolean(whole);
    return f->type == HR__PARAMETER_WORD ? json_string(f->words[whole]) : json_integer(whole);
}

static json_t *write_field(const struct hr__parameter *f, const struct hr_operation *o)
{
    const char *at = (const char *)o + f->offset;
    if (f->count == 1)
        return write_value(f, at, 0);
    json_t *array = json_array();
    for (size_t i = 0; array && i < f->count; i++)
        if (json_array_append_new(array, write_value(f, at, i))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *write_operation(const struct hr_operation *o)
{
    json_t *object = json_object();
    int r = json_object_set_new(object, "name", json_string(hr_operation_name(o->kind)));
    for (const struct hr__parameter *f = hr__operation_fields(o->kind); !r && f->name; f++)
        r = json_object_set_new(object, f->name, write_field(f, o));
    if (r) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* A limit as JSON can hold it. */
static uint64_t limited(uint64_t limit)
{
    return limit < INT64_MAX ? limit : INT64_MAX;
}

json_t *hr__stated_recipe_write(const struct hr_recipe *recipe)
{
    const struct hr_recipe_options *options = hr__recipe_options(recipe);
    struct hr_recipe_options defaults;
    json_t *object = json_object(), *operations = json_array();
    int r = 0;
    for (size_t i = 0; !r && i < hr__recipe_count(recipe); i++)
        r = json_array_append_new(operations, write_operation(hr__recipe_operation(recipe, i)));
    r = r ? r : json_object_set(object, "operations", operations);
    r = r ? r : json_object_set_new(object, "layout", json_string(layouts[options->layout]));
    r = r ? r
          : json_object_set_new(object, "apply_exif_orientation",
                                json_boolean(options->apply_exif_orientation));
    r = r ? r
          : json_object_set_new(object, "max_pixels",
                                json_integer((json_int_t)limited(options->max_pixels)));
    /* These are written only if they are not the default, so that versions without them can read
     * the rest. */
    if (options->damaged == HR_DAMAGED_ACCEPT)
        r = r ? r : json_object_set_new(object, "damaged", json_string("accept"));
    if (options->inexact)
        r = r ? r : json_object_set_new(object, "exact", json_false());
    hr_recipe_options_default(&defaults);
    if (options->max_source_bytes != defaults.max_source_bytes)
        r = r ? r
              : json_object_set_new(object, "max_source_bytes",
                                    json_integer((json_int_t)limited(options->max_source_bytes)));
    if (options->padded)
        r = r ? r : json_object_set_new(object, "padded", json_true());
    if (options->max_width)
        r = r ? r
              : json_object_set_new(object, "max_size",
                                    json_pack("[i, i]", options->max_height, options->max_width));
    json_decref(operations);
    if (r) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* Reads one value (NULL: it is missing). Changes the parameter at `at` only if it is valid. */
static void read_value(struct hr__json *reader, const struct hr__parameter *f, const json_t *value,
                       char *at)
{
    if (f->type == HR__PARAMETER_REAL) {
        double real = json_number_value(value);
        if (!json_is_number(value) || !isfinite(real))
            hr__json_fail(reader, -EINVAL, "", "must be a number");
        else
            memcpy(at, &real, sizeof real);
        return;
    }
    int whole = json_is_true(value);
    if (is_flag(f) && !json_is_boolean(value)) {
        hr__json_fail(reader, -EINVAL, "", "must be true or false");
        return;
    }
    if (f->type == HR__PARAMETER_INTEGER) {
        json_int_t integer = json_integer_value(value);
        whole = (int)integer;
        if (!json_is_integer(value) || integer != whole) {
            hr__json_fail(reader, -EINVAL, "", "must be a whole number of 32 bits");
            return;
        }
    }
    hr__parameter_set_whole(f, at, whole);
}

static void read_field(struct hr__json *reader, const struct hr__parameter *f, const json_t *object,
                       struct hr_operation *o)
{
    char *at = (char *)o + f->offset;
    json_t *value = json_object_get(object, f->name);
    size_t bytes = f->type == HR__PARAMETER_REAL ? sizeof(double) : sizeof(int);
    if (f->type == HR__PARAMETER_WORD) {
        int word = hr__json_word(reader, object, f->name, f->words);
        memcpy(at, &word, sizeof word);
        return;
    }
    if (f->count == 1) {
        size_t mark = hr__json_enter(reader, f->name, -1);
        read_value(reader, f, value, at);
        hr__json_leave(reader, mark);
        return;
    }
    if (!json_is_array(value) || json_array_size(value) != f->count) {
        hr__json_fail(reader, -EINVAL, f->name, "must be an array of %zu numbers", f->count);
        return;
    }
    for (size_t i = 0; i < f->count && !reader->code; i++) {
        size_t mark = hr__json_enter(reader, f->name, (long)i);
        read_value(reader, f, json_array_get(value, i), at + i * bytes);
        hr__json_leave(reader, mark);
    }
}

static void read_operation(struct hr__json *reader, const json_t *object, struct hr_operation *o)
{
    size_t members = 1;
    const char *name = json_string_value(json_object_get(object, "name"));
    enum hr_operation_kind kind = hr_operation_kind_of(name);
    if (!kind) {
        hr__json_fail(reader, -EINVAL, "name", "is no operation's in this version: %.40s",
                      name ? name : "none");
        return;
    }
    hr_operation_default(o, kind);
    for (const struct hr__parameter *f = hr__operation_fields(kind); f->name && !reader->code;
         f++, members++)
        read_field(reader, f, object, o);
    if (json_object_size(object) != members)
        hr__json_fail(reader, -EINVAL, "", "has other members than a %s has",
                      hr_operation_name(kind));
}

static void read_limit(struct hr__json *reader, const json_t *object, const char *name,
                       uint64_t *limit)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value) || json_integer_value(value) < 1)
        hr__json_fail(reader, -EINVAL, name, "must be a whole number of at least 1");
    else
        *limit = (uint64_t)json_integer_value(value);
}

/* Reads the members about results that differ in size. Returns how many there are. */
static size_t read_padding(struct hr__json *reader, const json_t *object,
                           struct hr_recipe_options *out)
{
    int is_padded = json_object_get(object, "padded") != NULL;
    int has_size = json_object_get(object, "max_size") != NULL;
    if (is_padded)
        out->padded = hr__json_bool(reader, object, "padded", -1);
    const json_t *size = has_size ? hr__json_array(reader, object, "max_size", 2) : NULL;
    json_int_t height = json_integer_value(json_array_get(size, 0));
    json_int_t width = json_integer_value(json_array_get(size, 1));
    if (has_size && (height < 1 || height > INT32_MAX || width < 1 || width > INT32_MAX))
        hr__json_fail(reader, -EINVAL, "max_size", "must be a height and a width");
    else if (has_size) {
        out->max_height = (int)height;
        out->max_width = (int)width;
    }
    return (size_t)is_padded + (size_t)has_size;
}

void hr__stated_recipe_read(struct hr__json *reader, const json_t *object,
                            struct hr__stated_recipe *out)
{
    memset(out, 0, sizeof *out);
    hr_recipe_options_default(&out->options);
    const json_t *operations =
        hr__json_array(reader, object, "operations", HR__RECIPE_MAX_OPERATIONS);
    int exif = hr__json_bool(reader, object, "apply_exif_orientation", -1);
    out->options.layout = (enum hr_layout)hr__json_word(reader, object, "layout", layouts);
    out->options.apply_exif_orientation = exif;
    int accepts = json_object_get(object, "damaged") != NULL;
    if (accepts)
        out->options.damaged = (enum hr_damaged)hr__json_word(reader, object, "damaged", damaged);
    int says_exact = json_object_get(object, "exact") != NULL;
    if (says_exact)
        out->options.inexact = !hr__json_bool(reader, object, "exact", -1);
    int has_source = json_object_get(object, "max_source_bytes") != NULL;
    read_limit(reader, object, "max_pixels", &out->options.max_pixels);
    if (has_source)
        read_limit(reader, object, "max_source_bytes", &out->options.max_source_bytes);
    size_t more = read_padding(reader, object, &out->options);
    if (!operations || exif < 0 ||
        json_object_size(object) !=
            4 + (size_t)accepts + (size_t)says_exact + (size_t)has_source + more)
        hr__json_fail(reader, -EINVAL, "", "has other members than a recipe has");
    out->count = json_array_size(operations);
    for (size_t i = 0; i < out->count && !reader->code; i++) {
        const json_t *element = hr__json_element(reader, operations, "operations", i);
        size_t mark = hr__json_enter(reader, "operations", (long)i);
        if (element)
            read_operation(reader, element, &out->operations[i]);
        hr__json_leave(reader, mark);
    }
}
