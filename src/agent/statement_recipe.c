/* Writes and reads recipes as JSON; see statement_recipe.h. */
#include "agent/statement_recipe.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* The type of a parameter in struct hr_operation. */
enum type { INTEGER, FLAG, REAL, WORD };

struct field {
    const char *name;
    enum type type;
    size_t offset;
    size_t count;             /* of values: more than one is an array */
    const char *const *words; /* WORD: by value, ended by NULL */
};

#define AT(member)      offsetof(struct hr_operation, u.member)
#define NUMBERS(member) (sizeof((struct hr_operation *)0)->u.member / sizeof(double))
#define FIELDS_MAX      8
#define PIXELS_MAX      INT64_MAX

static const char *const interpolations[] = {
    [HR_BILINEAR] = "bilinear", [HR_BICUBIC] = "bicubic", NULL};
static const char *const paddings[] = {[HR_PAD_CONSTANT] = "constant",
                                       [HR_PAD_EDGE] = "edge",
                                       [HR_PAD_REFLECT] = "reflect",
                                       [HR_PAD_SYMMETRIC] = "symmetric",
                                       NULL};
static const char *const dtypes[] = {[HR_UINT8] = "uint8",
                                     [HR_FLOAT16] = "float16",
                                     [HR_BFLOAT16] = "bfloat16",
                                     [HR_FLOAT32] = "float32",
                                     NULL};
static const char *const damaged[] = {
    [HR_DAMAGED_REFUSE] = "refuse", [HR_DAMAGED_ACCEPT] = "accept", NULL};
static const char *const layouts[] = {[HR_NCHW] = "NCHW", [HR_NHWC] = "NHWC", NULL};

static const struct field random_resized_crop[FIELDS_MAX] = {
    {"height", INTEGER, AT(random_resized_crop.height), 1, NULL},
    {"width", INTEGER, AT(random_resized_crop.width), 1, NULL},
    {"scale", REAL, AT(random_resized_crop.scale), NUMBERS(random_resized_crop.scale), NULL},
    {"ratio", REAL, AT(random_resized_crop.ratio), NUMBERS(random_resized_crop.ratio), NULL},
    {"interpolation", WORD, AT(random_resized_crop.interpolation), 1, interpolations},
    {"antialias", FLAG, AT(random_resized_crop.antialias), 1, NULL},
};
static const struct field resize[FIELDS_MAX] = {
    {"height", INTEGER, AT(resize.height), 1, NULL},
    {"width", INTEGER, AT(resize.width), 1, NULL},
    {"max_size", INTEGER, AT(resize.max_size), 1, NULL},
    {"interpolation", WORD, AT(resize.interpolation), 1, interpolations},
    {"antialias", FLAG, AT(resize.antialias), 1, NULL},
};
static const struct field center_crop[FIELDS_MAX] = {
    {"height", INTEGER, AT(center_crop.height), 1, NULL},
    {"width", INTEGER, AT(center_crop.width), 1, NULL},
};
static const struct field random_crop[FIELDS_MAX] = {
    {"height", INTEGER, AT(random_crop.height), 1, NULL},
    {"width", INTEGER, AT(random_crop.width), 1, NULL},
    {"padding", INTEGER, AT(random_crop.padding), 4, NULL},
    {"pad_if_needed", FLAG, AT(random_crop.pad_if_needed), 1, NULL},
    {"fill", REAL, AT(random_crop.fill), NUMBERS(random_crop.fill), NULL},
    {"padding_mode", WORD, AT(random_crop.padding_mode), 1, paddings},
};
static const struct field flip[FIELDS_MAX] = {{"p", REAL, AT(flip.p), 1, NULL}};
static const struct field color_jitter[FIELDS_MAX] = {
    {"brightness", REAL, AT(color_jitter.brightness), NUMBERS(color_jitter.brightness), NULL},
    {"contrast", REAL, AT(color_jitter.contrast), NUMBERS(color_jitter.contrast), NULL},
    {"saturation", REAL, AT(color_jitter.saturation), NUMBERS(color_jitter.saturation), NULL},
    {"hue", REAL, AT(color_jitter.hue), NUMBERS(color_jitter.hue), NULL},
};
static const struct field grayscale[FIELDS_MAX] = {{"p", REAL, AT(random_grayscale.p), 1, NULL}};
static const struct field to_dtype[FIELDS_MAX] = {
    {"dtype", WORD, AT(to_dtype.dtype), 1, dtypes},
    {"scale", FLAG, AT(to_dtype.scale), 1, NULL},
};
static const struct field normalize[FIELDS_MAX] = {
    {"mean", REAL, AT(normalize.mean), NUMBERS(normalize.mean), NULL},
    {"std", REAL, AT(normalize.std), NUMBERS(normalize.std), NULL},
};

/* By kind. */
static const struct field *const fields_of[] = {
    [HR_RANDOM_RESIZED_CROP] = random_resized_crop,
    [HR_RESIZE] = resize,
    [HR_CENTER_CROP] = center_crop,
    [HR_RANDOM_CROP] = random_crop,
    [HR_RANDOM_HORIZONTAL_FLIP] = flip,
    [HR_RANDOM_VERTICAL_FLIP] = flip,
    [HR_COLOR_JITTER] = color_jitter,
    [HR_RANDOM_GRAYSCALE] = grayscale,
    [HR_TO_DTYPE] = to_dtype,
    [HR_NORMALIZE] = normalize,
};
#define KINDS (sizeof fields_of / sizeof *fields_of)

static json_t *write_value(const struct field *f, const char *at, size_t i)
{
    int whole;
    double real;
    if (f->type == REAL) {
        memcpy(&real, at + i * sizeof real, sizeof real);
        return json_real(real);
    }
    memcpy(&whole, at + i * sizeof whole, sizeof whole);
    if (f->type == FLAG)
        return json_boolean(whole);
    return f->type == WORD ? json_string(f->words[whole]) : json_integer(whole);
}

static json_t *write_field(const struct field *f, const struct hr_operation *o)
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
    for (const struct field *f = fields_of[o->kind]; !r && f->name; f++)
        r = json_object_set_new(object, f->name, write_field(f, o));
    if (r) {
        json_decref(object);
        return NULL;
    }
    return object;
}

json_t *hr__stated_recipe_write(const struct hr_recipe *recipe)
{
    const struct hr_recipe_options *options = hr__recipe_options(recipe);
    uint64_t pixels = options->max_pixels < PIXELS_MAX ? options->max_pixels : PIXELS_MAX;
    json_t *object = json_object(), *operations = json_array();
    int r = 0;
    for (size_t i = 0; !r && i < hr__recipe_count(recipe); i++)
        r = json_array_append_new(operations, write_operation(hr__recipe_operation(recipe, i)));
    r = r ? r : json_object_set(object, "operations", operations);
    r = r ? r : json_object_set_new(object, "layout", json_string(layouts[options->layout]));
    r = r ? r
          : json_object_set_new(object, "apply_exif_orientation",
                                json_boolean(options->apply_exif_orientation));
    r = r ? r : json_object_set_new(object, "max_pixels", json_integer((json_int_t)pixels));
    /* These are written only if they are not the default, so that versions without them can read
     * the rest. */
    if (options->damaged == HR_DAMAGED_ACCEPT)
        r = r ? r : json_object_set_new(object, "damaged", json_string("accept"));
    if (options->inexact)
        r = r ? r : json_object_set_new(object, "exact", json_false());
    json_decref(operations);
    if (r) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* Reads one value (NULL: it is missing). Changes the parameter at `at` only if it is valid. */
static void read_value(struct hr__json *reader, const struct field *f, const json_t *value,
                       char *at)
{
    if (f->type == REAL) {
        double real = json_number_value(value);
        if (!json_is_number(value) || !isfinite(real))
            hr__json_fail(reader, -EINVAL, "", "must be a number");
        else
            memcpy(at, &real, sizeof real);
        return;
    }
    int whole = json_is_true(value);
    if (f->type == FLAG && !json_is_boolean(value)) {
        hr__json_fail(reader, -EINVAL, "", "must be true or false");
        return;
    }
    if (f->type == INTEGER) {
        json_int_t integer = json_integer_value(value);
        whole = (int)integer;
        if (!json_is_integer(value) || integer != whole) {
            hr__json_fail(reader, -EINVAL, "", "must be a whole number of 32 bits");
            return;
        }
    }
    memcpy(at, &whole, sizeof whole);
}

static void read_field(struct hr__json *reader, const struct field *f, const json_t *object,
                       struct hr_operation *o)
{
    char *at = (char *)o + f->offset;
    json_t *value = json_object_get(object, f->name);
    size_t bytes = f->type == REAL ? sizeof(double) : sizeof(int);
    if (f->type == WORD) {
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

static enum hr_operation_kind kind_of(const char *name)
{
    for (size_t kind = 1; name && kind < KINDS; kind++)
        if (!strcmp(name, hr_operation_name((enum hr_operation_kind)kind)))
            return (enum hr_operation_kind)kind;
    return (enum hr_operation_kind)0;
}

static void read_operation(struct hr__json *reader, const json_t *object, struct hr_operation *o)
{
    size_t members = 1;
    enum hr_operation_kind kind = kind_of(json_string_value(json_object_get(object, "name")));
    if (!kind) {
        hr__json_fail(reader, -EINVAL, "name", "is no operation's");
        return;
    }
    hr_operation_default(o, kind);
    for (const struct field *f = fields_of[kind]; f->name && !reader->code; f++, members++)
        read_field(reader, f, object, o);
    if (json_object_size(object) != members)
        hr__json_fail(reader, -EINVAL, "", "has other members than a %s has",
                      hr_operation_name(kind));
}

void hr__stated_recipe_read(struct hr__json *reader, const json_t *object,
                            struct hr__stated_recipe *out)
{
    memset(out, 0, sizeof *out);
    hr_recipe_options_default(&out->options);
    const json_t *operations =
        hr__json_array(reader, object, "operations", HR__RECIPE_MAX_OPERATIONS);
    const json_t *pixels = json_object_get(object, "max_pixels");
    int exif = hr__json_bool(reader, object, "apply_exif_orientation", -1);
    out->options.layout = (enum hr_layout)hr__json_word(reader, object, "layout", layouts);
    out->options.apply_exif_orientation = exif;
    int accepts = json_object_get(object, "damaged") != NULL;
    if (accepts)
        out->options.damaged = (enum hr_damaged)hr__json_word(reader, object, "damaged", damaged);
    int says_exact = json_object_get(object, "exact") != NULL;
    if (says_exact)
        out->options.inexact = !hr__json_bool(reader, object, "exact", -1);
    if (!json_is_integer(pixels) || json_integer_value(pixels) < 1)
        hr__json_fail(reader, -EINVAL, "max_pixels", "must be a whole number of at least 1");
    else
        out->options.max_pixels = (uint64_t)json_integer_value(pixels);
    if (!operations || exif < 0 ||
        json_object_size(object) != 4 + (size_t)accepts + (size_t)says_exact)
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
