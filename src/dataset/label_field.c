/* Reads labels from the fields of samples in shards; see label_field.h. */
#include "dataset/label_field.h"

#include "base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

int hr__label_field_parse(struct hr__label_field *out, const char *text, struct hr_error *error)
{
    size_t length = strcspn(text, ":");
    const char *member = text[length] ? text + length + 1 : "";
    *out = (struct hr__label_field){0};
    if (!strcmp(text, "none"))
        return 0;
    if (!length || length >= sizeof out->field || memchr(text, '/', length) ||
        (text[length] && !*member) || strlen(member) >= sizeof out->member)
        return hr__fail(error, -EINVAL,
                        "the label \"%.100s\" is none of \"FIELD\", \"FIELD:MEMBER\" of JSON, such "
                        "as \"json:class_id\", and \"none\"",
                        text);
    memcpy(out->field, text, length);
    strcpy(out->member, member);
    return 0;
}

static const char *read_number(const char *text, size_t length, int64_t *label)
{
    char *end;
    errno = 0;
    *label = strtoll(text, &end, 10);
    int none = end == text || errno;
    while (*end == ' ' || *end == '\n' || *end == '\r' || *end == '\t')
        end++;
    return none || end != text + length ? "is no label: it must hold one whole number" : NULL;
}

const char *hr__label_field_read(const struct hr__label_field *field, const char *text,
                                 size_t length, int64_t *label)
{
    if (!*field->member)
        return read_number(text, length, label);
    json_t *object = json_loadb(text, length, 0, NULL);
    json_t *value = json_object_get(object, field->member);
    const char *wrong = !json_is_object(object)   ? "is no JSON object"
                        : !value                  ? "has no member with the name of the label"
                        : !json_is_integer(value) ? "has a label that is not a whole number"
                                                  : NULL;
    if (!wrong)
        *label = json_integer_value(value);
    json_decref(object);
    return wrong;
}
