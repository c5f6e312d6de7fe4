/* Reads values of traces; see trace_values.h. */
#include "base/trace_values.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define TIME_MOST_NS (INT64_MAX / 4)

static int is_number(int c)
{
    return c == '-' || (c >= '0' && c <= '9');
}

int64_t hr__value_integer(struct hr__json_reader *json, int64_t otherwise)
{
    int64_t value = otherwise;
    char text[32], *end;
    int c = hr__json_reader_peek(json);
    if (is_number(c)) {
        hr__json_reader_fixed(json, 0, &value);
    } else if (c == '"') {
        hr__json_reader_text_cut(json, text, sizeof text);
        long long number = strtoll(text, &end, 10);
        if (end != text && !*end)
            value = number;
    } else {
        hr__json_reader_skip(json);
    }
    return value;
}

int hr__value_time(struct hr__json_reader *json, int64_t *ns)
{
    if (is_number(hr__json_reader_peek(json)))
        return hr__json_reader_fixed(json, 3, ns) && *ns > -TIME_MOST_NS && *ns < TIME_MOST_NS;
    hr__json_reader_skip(json);
    return 0;
}

int64_t hr__value_thread(struct hr__json_reader *json, int64_t otherwise)
{
    char text[128], *end;
    if (hr__json_reader_peek(json) != '"')
        return hr__value_integer(json, otherwise);
    hr__json_reader_text_cut(json, text, sizeof text);
    const char *digits = strncmp(text, "stream ", 7) ? text : text + 7;
    long long number = strtoll(digits, &end, 10);
    return end != digits && !*end ? number : (int64_t)(XXH3_64bits(text, strlen(text)) >> 1);
}

void hr__value_text(struct hr__json_reader *json, char *text, size_t capacity)
{
    if (hr__json_reader_peek(json) == '"')
        hr__json_reader_text_cut(json, text, capacity);
    else
        hr__json_reader_skip(json);
}

int hr__value_object(struct hr__json_reader *json)
{
    if (hr__json_reader_peek(json) == '{')
        return hr__json_reader_object(json);
    hr__json_reader_skip(json);
    return 0;
}

int hr__value_array(struct hr__json_reader *json)
{
    if (hr__json_reader_peek(json) == '[')
        return hr__json_reader_array(json);
    hr__json_reader_skip(json);
    return 0;
}
