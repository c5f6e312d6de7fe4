/* A strict JSON reader on top of jansson; see json.h. */
#include "base/json.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WHOLE 0x1p53

json_t *hr__json_parse(struct hr__json *reader, const char *text, size_t length)
{
    json_error_t problem;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
    if (!root) {
        if (json_error_code(&problem) == json_error_out_of_memory)
            hr__json_no_memory(reader);
        else
            reader->code = hr__fail(reader->error, -EINVAL,
                                    "%s is not JSON: line %d, column %d: %s; it may be damaged or "
                                    "not have been written to its end",
                                    reader->where, problem.line, problem.column, problem.text);
        return NULL;
    }
    if (!json_is_object(root)) {
        hr__json_fail(reader, -EINVAL, "", "is not an object");
        json_decref(root);
        return NULL;
    }
    return root;
}

int hr__json_fail(struct hr__json *reader, int code, const char *name, const char *format, ...)
{
    char what[512];
    va_list args;
    if (reader->code)
        return reader->code;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    bool inside = *reader->path || *name;
    reader->code = hr__fail(reader->error, code, "%s%s%s%s%s %s", reader->where, inside ? ": " : "",
                            reader->path, *reader->path && *name ? "." : "", name, what);
    return reader->code;
}

void hr__json_no_memory(struct hr__json *reader)
{
    if (!reader->code)
        reader->code = hr__fail(reader->error, -ENOMEM, "out of memory for %s", reader->where);
}

size_t hr__json_enter(struct hr__json *reader, const char *name, long index)
{
    size_t mark = strlen(reader->path), room = sizeof reader->path - mark;
    const char *dot = mark && *name ? "." : "";
    if (index < 0)
        snprintf(reader->path + mark, room, "%s%s", dot, name);
    else
        snprintf(reader->path + mark, room, "%s%s[%ld]", dot, name, index);
    return mark;
}

void hr__json_leave(struct hr__json *reader, size_t mark)
{
    reader->path[mark] = 0;
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a text";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    default:
        return "null";
    }
}

static json_t *member(const json_t *parent, const char *name)
{
    json_t *value = json_object_get(parent, name);
    return json_is_null(value) ? NULL : value;
}

json_t *hr__json_object(struct hr__json *reader, const json_t *parent, const char *name)
{
    json_t *value = member(parent, name);
    if (value && !json_is_object(value)) {
        hr__json_fail(reader, -EINVAL, name, "is %s; write an object", type_name(value));
        return NULL;
    }
    return value;
}

json_t *hr__json_array(struct hr__json *reader, const json_t *parent, const char *name, size_t most)
{
    json_t *value = member(parent, name);
    if (value && !json_is_array(value)) {
        hr__json_fail(reader, -EINVAL, name, "is %s; write an array", type_name(value));
        return NULL;
    }
    if (value && json_array_size(value) > most) {
        hr__json_fail(reader, -EINVAL, name, "has %zu elements; at most %zu belong there",
                      json_array_size(value), most);
        return NULL;
    }
    return value;
}

json_t *hr__json_element(struct hr__json *reader, const json_t *array, const char *name, size_t i)
{
    json_t *value = json_array_get(array, i);
    if (!json_is_object(value)) {
        size_t mark = hr__json_enter(reader, name, (long)i);
        hr__json_fail(reader, -EINVAL, "", "is %s; write an object", type_name(value));
        hr__json_leave(reader, mark);
        return NULL;
    }
    return value;
}

static double absent(struct hr__json *reader, const char *name, struct hr__json_range range)
{
    if (!isinf(range.absent))
        return range.absent;
    hr__json_fail(reader, -EINVAL, name, "is missing; write a number from %.15g to %.15g",
                  range.low, range.high);
    return range.low;
}

/* Reads a number in any notation; on a wrong type or range reports an error and returns false. */
static bool number_of(struct hr__json *reader, const json_t *value, const char *name,
                      struct hr__json_range range, double *out)
{
    if (!json_is_number(value)) {
        hr__json_fail(reader, -EINVAL, name, "is %s; write a number from %.15g to %.15g",
                      type_name(value), range.low, range.high);
        return false;
    }
    *out = json_number_value(value);
    if (*out >= range.low && *out <= range.high)
        return true;
    hr__json_fail(reader, -EINVAL, name, "is %.15g; write a number from %.15g to %.15g", *out,
                  range.low, range.high);
    return false;
}

double hr__json_number(struct hr__json *reader, const json_t *parent, const char *name,
                       struct hr__json_range range)
{
    const json_t *value = member(parent, name);
    double x;
    if (!value)
        return absent(reader, name, range);
    return number_of(reader, value, name, range, &x) ? x : range.low;
}

int64_t hr__json_integer(struct hr__json *reader, const json_t *parent, const char *name,
                         struct hr__json_range range)
{
    const json_t *value = member(parent, name);
    double x;
    if (range.low < -WHOLE)
        range.low = -WHOLE;
    if (range.high > WHOLE)
        range.high = WHOLE;
    if (!value)
        return (int64_t)absent(reader, name, range);
    if (!number_of(reader, value, name, range, &x))
        return (int64_t)range.low;
    if (x == floor(x))
        return (int64_t)x;
    hr__json_fail(reader, -EINVAL, name, "is %.15g; write a whole number", x);
    return (int64_t)range.low;
}

int hr__json_bool(struct hr__json *reader, const json_t *parent, const char *name, int absent_is)
{
    const json_t *value = member(parent, name);
    if (!value)
        return absent_is;
    if (!json_is_boolean(value))
        hr__json_fail(reader, -EINVAL, name, "is %s; write true or false", type_name(value));
    return json_is_true(value);
}

int hr__json_word(struct hr__json *reader, const json_t *parent, const char *name,
                  const char *const *words)
{
    const json_t *value = member(parent, name);
    const char *text = json_string_value(value);
    char all[256] = "";
    for (int i = 0; words[i]; i++) {
        if (text && !strcmp(text, words[i]))
            return i;
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", words[i]);
    }
    if (!value)
        hr__json_fail(reader, -EINVAL, name, "is missing; write one of: %s", all);
    else if (!text)
        hr__json_fail(reader, -EINVAL, name, "is %s; write one of: %s", type_name(value), all);
    else
        hr__json_fail(reader, -EINVAL, name, "is \"%.60s\"; write one of: %s", text, all);
    return 0;
}

static const char *text_of(struct hr__json *reader, const json_t *value, const char *name)
{
    if (value && !json_is_string(value))
        hr__json_fail(reader, -EINVAL, name, "is %s; write a text", type_name(value));
    const char *text = json_string_value(value);
    return text ? text : "";
}

void hr__json_text(struct hr__json *reader, const json_t *parent, const char *name, char *out,
                   size_t capacity)
{
    const char *text = text_of(reader, member(parent, name), name);
    size_t length = strlen(text);
    if (length >= capacity) {
        length = capacity - 1;
        while (length && ((unsigned char)text[length] & 0xC0) == 0x80)
            length--;
    }
    memcpy(out, text, length);
    out[length] = 0;
}

void hr__json_name(struct hr__json *reader, const json_t *parent, const char *name, char *out,
                   size_t capacity)
{
    const json_t *value = member(parent, name);
    const char *text = text_of(reader, value, name);
    size_t length = strlen(text);
    out[0] = 0;
    if (!length)
        hr__json_fail(reader, -EINVAL, name, "is missing or empty; write a text");
    else if (length >= capacity)
        hr__json_fail(reader, -EINVAL, name, "has %zu bytes; write at most %zu", length,
                      capacity - 1);
    else
        memcpy(out, text, length + 1);
}

size_t hr__json_numbers(struct hr__json *reader, const json_t *parent, const char *name,
                        size_t count, size_t most, double **out)
{
    const json_t *array = hr__json_array(reader, parent, name, most);
    size_t n = array ? json_array_size(array) : 0;
    const struct hr__json_range range = {0, 1e18, 0};
    *out = NULL;
    if (count != SIZE_MAX && n != count) {
        hr__json_fail(reader, -EINVAL, name, "has %zu numbers; write %zu", n, count);
        return 0;
    }
    if (!n || reader->code)
        return 0;
    double *values = hr__alloc(HR__TAG_STALLS, n, sizeof *values);
    if (!values) {
        hr__json_no_memory(reader);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);
        if (json_is_number(value) && json_number_value(value) >= range.low &&
            json_number_value(value) <= range.high) {
            values[i] = json_number_value(value);
            continue;
        }
        size_t mark = hr__json_enter(reader, name, (long)i);
        number_of(reader, value, "", range, &values[i]);
        hr__json_leave(reader, mark);
        hr__free(values);
        return 0;
    }
    *out = values;
    return n;
}

size_t hr__json_texts(struct hr__json *reader, const json_t *parent, const char *name, size_t most,
                      char ***out)
{
    const json_t *array = hr__json_array(reader, parent, name, most);
    size_t n = array ? json_array_size(array) : 0;
    *out = NULL;
    if (!n || reader->code)
        return 0;
    char **texts = hr__alloc(HR__TAG_STALLS, n, sizeof *texts);
    for (size_t i = 0; texts && i < n; i++) {
        size_t mark = hr__json_enter(reader, name, (long)i);
        texts[i] = hr__strdup(HR__TAG_STALLS, text_of(reader, json_array_get(array, i), ""));
        hr__json_leave(reader, mark);
        if (!texts[i])
            hr__json_no_memory(reader);
    }
    if (!texts)
        hr__json_no_memory(reader);
    *out = texts;
    return texts ? n : 0;
}

json_t *hr__json_real(double value)
{
    if (!isfinite(value))
        return json_null();
    if (value == floor(value) && fabs(value) < WHOLE && !(value == 0 && signbit(value)))
        return json_integer((json_int_t)value);
    return json_real(value);
}

json_t *hr__json_string(const char *text)
{
    json_t *plain = json_string(text);
    if (plain)
        return plain;
    size_t capacity = 4 * strlen(text) + 1;
    char *printable = hr__alloc(HR__TAG_STALLS, capacity, 1);
    if (!printable)
        return NULL;
    hr__printable(printable, capacity, text);
    plain = json_string(printable);
    hr__free(printable);
    return plain;
}
