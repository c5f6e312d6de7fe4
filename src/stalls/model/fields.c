/* Field tables; see fields.h. */
#include "stalls/model/fields.h"

#include "base/memory.h"

#include <errno.h>
#include <string.h>

/* Returns the address of a member; its type follows from the field's kind. */
static void *at(const void *base, size_t offset)
{
    return (char *)base + offset;
}

static void *pointer_at(const void *base, const struct hr__field *f)
{
    void *pointer;
    memcpy(&pointer, at(base, f->offset), sizeof pointer);
    return pointer;
}

static void set_pointer(void *base, const struct hr__field *f, const void *pointer)
{
    memcpy(at(base, f->offset), &pointer, sizeof pointer);
}

static size_t *count_at(const void *base, const struct hr__field *f)
{
    return at(base, f->count);
}

/* ---- reading ---- */

static void read_array(struct hr__json *reader, const json_t *object, const struct hr__field *f,
                       void *out)
{
    double *numbers;
    size_t n = hr__json_numbers(reader, object, f->name, SIZE_MAX, f->most, &numbers);
    if (n)
        memcpy(at(out, f->offset), numbers, n * sizeof *numbers);
    *(int *)at(out, f->count) = (int)n;
    hr__free(numbers);
}

static void read_list(struct hr__json *reader, const json_t *object, const struct hr__field *f,
                      void *out)
{
    json_t *array = hr__json_array(reader, object, f->name, f->most);
    size_t count = reader->code ? 0 : json_array_size(array);
    char *list = count ? hr__alloc(HR__TAG_STALLS, count, f->size) : NULL;
    if (count && !list)
        hr__json_no_memory(reader);
    set_pointer(out, f, list);
    *count_at(out, f) = list ? count : 0;
    for (size_t i = 0; i < count && !reader->code; i++) {
        json_t *element = hr__json_element(reader, array, f->name, i);
        size_t mark = hr__json_enter(reader, f->name, (long)i);
        hr__fields_read(reader, element, f->fields, list + i * f->size);
        if (f->check)
            f->check(reader, element, list + i * f->size, i);
        hr__json_leave(reader, mark);
    }
}

static void read_object(struct hr__json *reader, const json_t *object, const struct hr__field *f,
                        void *out)
{
    const json_t *inner = hr__json_object(reader, object, f->name);
    size_t mark = hr__json_enter(reader, f->name, -1);
    if (!inner && f->absent == HR__REQUIRED)
        hr__json_fail(reader, -EINVAL, "", "is missing; write an object");
    hr__fields_read(reader, inner, f->fields, out);
    if (f->check)
        f->check(reader, inner, out, 0);
    hr__json_leave(reader, mark);
}

static void read_word(struct hr__json *reader, const json_t *object, const struct hr__field *f,
                      void *to)
{
    int word = hr__json_word(reader, object, f->name, f->words);
    if (f->size == sizeof(bool))
        *(bool *)to = word;
    else
        memcpy(to, &word, sizeof word);
}

static void read_field(struct hr__json *reader, const json_t *object, const struct hr__field *f,
                       void *out)
{
    const struct hr__json_range range = {f->low, f->high, f->absent};
    void *to = at(out, f->offset);
    double *numbers;
    char **texts;
    switch (f->kind) {
    case HR__FIELD_INT:
        *(int *)to = (int)hr__json_integer(reader, object, f->name, range);
        break;
    case HR__FIELD_COUNT:
    case HR__FIELD_KNOWN:
        *(uint64_t *)to = (uint64_t)hr__json_integer(reader, object, f->name, range);
        break;
    case HR__FIELD_COUNT_32:
        *(uint32_t *)to = (uint32_t)hr__json_integer(reader, object, f->name, range);
        break;
    case HR__FIELD_REAL:
        *(double *)to = hr__json_number(reader, object, f->name, range);
        break;
    case HR__FIELD_BOOL:
        *(bool *)to = hr__json_bool(reader, object, f->name, 0);
        break;
    case HR__FIELD_NOT:
        *(bool *)to = !hr__json_bool(reader, object, f->name, 1);
        break;
    case HR__FIELD_MAYBE:
        *(int *)to = hr__json_bool(reader, object, f->name, -1);
        break;
    case HR__FIELD_WORD:
        read_word(reader, object, f, to);
        break;
    case HR__FIELD_TEXT:
    case HR__FIELD_KNOWN_TEXT:
        hr__json_text(reader, object, f->name, to, f->size);
        break;
    case HR__FIELD_NAME:
        hr__json_name(reader, object, f->name, to, f->size);
        break;
    case HR__FIELD_ARRAY:
        read_array(reader, object, f, out);
        break;
    case HR__FIELD_NUMBERS:
        *count_at(out, f) = hr__json_numbers(reader, object, f->name, SIZE_MAX, f->most, &numbers);
        set_pointer(out, f, numbers);
        break;
    case HR__FIELD_SERIES:
        hr__json_numbers(reader, object, f->name, *count_at(out, f), f->most, &numbers);
        set_pointer(out, f, numbers);
        break;
    case HR__FIELD_TEXTS:
        *count_at(out, f) = hr__json_texts(reader, object, f->name, f->most, &texts);
        set_pointer(out, f, texts);
        break;
    case HR__FIELD_LIST:
        read_list(reader, object, f, out);
        break;
    case HR__FIELD_OBJECT:
        read_object(reader, object, f, out);
        break;
    }
}

void hr__fields_read(struct hr__json *reader, const json_t *object, const struct hr__field *fields,
                     void *out)
{
    for (const struct hr__field *f = fields; f->name; f++)
        read_field(reader, object, f, out);
}

/* ---- writing ---- */

bool hr__json_set(json_t *object, const char *name, json_t *value)
{
    return !json_object_set_new(object, name, value);
}

static json_t *numbers_of(const double *values, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array && values && i < count; i++)
        if (json_array_append_new(array, hr__json_real(values[i]))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *texts_of(char *const *values, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++)
        if (json_array_append_new(array, hr__json_string(values[i]))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* Returns an object of the fields; NULL: out of memory. */
static json_t *object_of(const struct hr__field *fields, const void *from)
{
    json_t *object = json_object();
    if (hr__fields_write(object, fields, from))
        return object;
    json_decref(object);
    return NULL;
}

static json_t *list_of(const struct hr__field *f, const void *from)
{
    const char *list = pointer_at(from, f);
    json_t *array = json_array();
    for (size_t i = 0; array && i < *count_at(from, f); i++)
        if (json_array_append_new(array, object_of(f->fields, list + i * f->size))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *count_of(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *word_of(const struct hr__field *f, const void *from)
{
    int word;
    if (f->size == sizeof(bool))
        word = *(const bool *)from;
    else
        memcpy(&word, from, sizeof word);
    return hr__json_string(f->words[word]);
}

static json_t *value_of(const struct hr__field *f, const void *base)
{
    const void *from = at(base, f->offset);
    switch (f->kind) {
    case HR__FIELD_INT:
        return json_integer(*(const int *)from);
    case HR__FIELD_COUNT:
        return count_of(*(const uint64_t *)from);
    case HR__FIELD_COUNT_32:
        return count_of(*(const uint32_t *)from);
    case HR__FIELD_KNOWN:
        return *(const uint64_t *)from ? count_of(*(const uint64_t *)from) : json_null();
    case HR__FIELD_REAL:
        return hr__json_real(*(const double *)from);
    case HR__FIELD_BOOL:
        return json_boolean(*(const bool *)from);
    case HR__FIELD_NOT:
        return json_boolean(!*(const bool *)from);
    case HR__FIELD_MAYBE:
        return *(const int *)from < 0 ? json_null() : json_boolean(*(const int *)from);
    case HR__FIELD_WORD:
        return word_of(f, from);
    case HR__FIELD_KNOWN_TEXT:
        return *(const char *)from ? hr__json_string(from) : json_null();
    case HR__FIELD_TEXT:
    case HR__FIELD_NAME:
        return hr__json_string(from);
    case HR__FIELD_ARRAY:
        return numbers_of(from, (size_t) * (const int *)at(base, f->count));
    case HR__FIELD_NUMBERS:
    case HR__FIELD_SERIES:
        return numbers_of(pointer_at(base, f), *count_at(base, f));
    case HR__FIELD_TEXTS:
        return texts_of(pointer_at(base, f), *count_at(base, f));
    case HR__FIELD_LIST:
        return list_of(f, base);
    case HR__FIELD_OBJECT:
        return object_of(f->fields, base);
    }
    return NULL;
}

bool hr__fields_write(json_t *object, const struct hr__field *fields, const void *from)
{
    bool ok = object;
    for (const struct hr__field *f = fields; ok && f->name; f++)
        ok = hr__json_set(object, f->name, value_of(f, from));
    return ok;
}

/* ---- copying and freeing ---- */

/* Returns the element size of what a pointer field points to; 0: not a pointer. */
static size_t size_behind(const struct hr__field *f)
{
    switch (f->kind) {
    case HR__FIELD_NUMBERS:
    case HR__FIELD_SERIES:
        return sizeof(double);
    case HR__FIELD_TEXTS:
        return sizeof(char *);
    case HR__FIELD_LIST:
        return f->size;
    default:
        return 0;
    }
}

/* Copies what list elements, or the texts of a list, point to. */
static bool own_behind(const struct hr__field *f, void *block, size_t count)
{
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        if (f->kind == HR__FIELD_LIST) {
            ok &= hr__fields_own(f->fields, (char *)block + i * f->size);
        } else if (f->kind == HR__FIELD_TEXTS) {
            char **text = (char **)block + i;
            *text = hr__strdup(HR__TAG_STALLS, *text);
            ok &= *text != NULL;
        }
    }
    return ok;
}

bool hr__fields_own(const struct hr__field *fields, void *copy)
{
    bool ok = true;
    for (const struct hr__field *f = fields; f->name; f++) {
        size_t size = size_behind(f), count = size ? *count_at(copy, f) : 0;
        if (f->kind == HR__FIELD_OBJECT)
            ok &= hr__fields_own(f->fields, copy);
        if (!size)
            continue;
        const void *shared = pointer_at(copy, f);
        void *own = shared && count ? hr__alloc(HR__TAG_STALLS, count, size) : NULL;
        if (own)
            memcpy(own, shared, count * size);
        else if (shared && count)
            ok = false;
        set_pointer(copy, f, own);
        if (!own && f->kind != HR__FIELD_SERIES)
            *count_at(copy, f) = 0;
        if (own)
            ok &= own_behind(f, own, count);
    }
    return ok;
}

void hr__fields_clear(const struct hr__field *fields, void *from)
{
    for (const struct hr__field *f = fields; f->name; f++) {
        size_t size = size_behind(f);
        if (f->kind == HR__FIELD_OBJECT)
            hr__fields_clear(f->fields, from);
        if (!size)
            continue;
        void *block = pointer_at(from, f);
        for (size_t i = 0; block && i < *count_at(from, f); i++) {
            if (f->kind == HR__FIELD_LIST)
                hr__fields_clear(f->fields, (char *)block + i * size);
            else if (f->kind == HR__FIELD_TEXTS)
                hr__free(((char **)block)[i]);
        }
        hr__free(block);
        set_pointer(from, f, NULL);
        if (f->kind != HR__FIELD_SERIES)
            *count_at(from, f) = 0;
    }
}
