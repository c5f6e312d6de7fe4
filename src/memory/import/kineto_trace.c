/* Reads Kineto traces; see kineto_trace.h. The JSON library parses only elements whose text
 * contains one of the required words. */
#include "memory/import/kineto_trace.h"

#include "base/error.h"
#include "base/memory.h"
#include "memory/import/import.h"
#include "memory/import/json_stream.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define TIME_MOST_US 4e15 /* the year 2096, since 1970 */

static int no_memory(const struct hr__input *in, struct hr_error *error)
{
    return hr__fail(error, -ENOMEM, "out of memory while reading %s", in->name);
}

/* Returns the id of a name; 0: out of memory. */
static uint32_t name_of(struct hr__kineto *k, const char *text)
{
    size_t length = strlen(text);
    uint32_t id = hr__ids_find(&k->name_ids, text, length);
    if (id)
        return id;
    if (hr__reserve(HR__TAG_MEMORY, &k->names, (size_t)k->name_ids.count + 1))
        return 0;
    char *copy = hr__strdup(HR__TAG_MEMORY, text);
    id = copy ? hr__ids_add(&k->name_ids, text, length) : 0;
    if (id)
        k->names[id - 1] = copy;
    else
        hr__free(copy);
    return id;
}

/* ---- values ---- */

/* Converts microseconds, possibly with a fraction, to nanoseconds; 0: `value` is no time. */
static int time_of(const json_t *value, int64_t *out)
{
    double us = json_number_value(value);
    if (!json_is_number(value) || !(us >= -TIME_MOST_US && us <= TIME_MOST_US))
        return 0;
    /* Convert the fraction separately: a double cannot hold nanoseconds since 1970. */
    double whole = floor(us);
    *out = json_is_integer(value) ? json_integer_value(value) * 1000
                                  : (int64_t)whole * 1000 + llround((us - whole) * 1000);
    return 1;
}

static int64_t integer(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value))
        return json_integer_value(value);
    double real = json_number_value(value);
    return json_is_real(value) && real >= -9e15 && real <= 9e15 ? (int64_t)real : otherwise;
}

/* Threads and processes are numbers or words. */
static uint64_t thread_of(const json_t *event)
{
    static const char *const keys[] = {"pid", "tid"};
    uint64_t thread = 0;
    for (size_t i = 0; i < 2; i++) {
        const json_t *value = json_object_get(event, keys[i]);
        json_int_t number = json_integer_value(value);
        const char *text = json_string_value(value);
        thread = text ? XXH3_64bits_withSeed(text, strlen(text), thread)
                      : XXH3_64bits_withSeed(&number, sizeof number, thread + 1);
    }
    return thread;
}

static uint8_t device_of(const json_t *args)
{
    int64_t number = integer(args, "Device Id", 0);
    if (!integer(args, "Device Type", 0))
        return 0;
    return number >= 0 && number < HR__IMPORT_DEVICES_MOST - 1 ? (uint8_t)(number + 1)
                                                               : HR_MEMORY_LIBRARIES;
}

/* ---- events ---- */

/* Returns 0 or -ENOMEM. */
static int take_memory(struct hr__kineto *k, const json_t *event, int is_refused)
{
    const json_t *args = json_object_get(event, "args");
    struct hr__kineto_memory one = {
        .address = (uint64_t)integer(args, "Addr", 0),
        .bytes = integer(args, "Bytes", 0),
        .total = integer(args, "Total Allocated", -1),
        .order = (uint64_t)integer(args, "Ev Idx", (int64_t)k->memory_count),
        .thread = thread_of(event),
        .device = device_of(args),
        .is_refused = (uint8_t)is_refused,
    };
    if (!time_of(json_object_get(event, "ts"), &one.time_ns) || one.bytes == INT64_MIN) {
        k->unreadable++;
        return 0;
    }
    if (!one.bytes)
        return 0;
    if (!k->memory_count)
        k->pid = integer(event, "pid", 0);
    if (hr__reserve(HR__TAG_MEMORY, &k->memory, k->memory_count + 1))
        return -ENOMEM;
    k->memory[k->memory_count++] = one;
    return 0;
}

static int take_range(struct hr__kineto *k, const json_t *event, const char *name,
                      enum hr__kineto_range_kind kind)
{
    int64_t length_ns;
    struct hr__kineto_range one = {.thread = thread_of(event), .kind = (uint8_t)kind};
    if (!time_of(json_object_get(event, "ts"), &one.begin_ns) ||
        !time_of(json_object_get(event, "dur"), &length_ns) || length_ns < 0) {
        k->unreadable++;
        return 0;
    }
    one.end_ns = one.begin_ns + length_ns;
    one.name = name_of(k, name);
    if (!one.name || hr__reserve(HR__TAG_MEMORY, &k->ranges, k->range_count + 1))
        return -ENOMEM;
    k->ranges[k->range_count++] = one;
    return 0;
}

static int take_event(struct hr__kineto *k, const json_t *event)
{
    static const struct {
        const char *word;
        enum hr__kineto_range_kind kind;
    } kinds[] = {{"cpu_op", HR__KINETO_OPERATOR},
                 {"python_function", HR__KINETO_PYTHON},
                 {"user_annotation", HR__KINETO_ANNOTATION}};
    const char *phase = json_string_value(json_object_get(event, "ph"));
    const char *category = json_string_value(json_object_get(event, "cat"));
    const char *name = json_string_value(json_object_get(event, "name"));
    if (!phase || !name)
        return 0;
    if (*phase == 'i' && (!strcmp(name, "[memory]") || !strcmp(name, "[OutOfMemory]")))
        return take_memory(k, event, name[1] == 'O');
    for (size_t i = 0; *phase == 'X' && category && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(category, kinds[i].word))
            return take_range(k, event, name, kinds[i].kind);
    return 0;
}

static int has(const struct hr__json_stream *stream, const char *word)
{
    return memmem(stream->text, stream->length, word, strlen(word)) != NULL;
}

static int take_element(struct hr__kineto *k, const struct hr__json_stream *stream)
{
    if (!has(stream, "[memory]") && !has(stream, "\"cpu_op\"") &&
        !has(stream, "\"python_function\"") && !has(stream, "\"user_annotation\"") &&
        !has(stream, "[OutOfMemory]"))
        return 0;
    json_t *event = json_loadb(stream->text, stream->length, 0, NULL);
    if (!event)
        k->unreadable++;
    int code = event ? take_event(k, event) : 0;
    json_decref(event);
    return code;
}

static int take_events(struct hr__kineto *k, struct hr__json_stream *stream, struct hr_error *error)
{
    int code = hr__json_begin(stream, '[', error), found = 0;
    while (!code && (found = hr__json_next(stream, error)) > 0)
        if (take_element(k, stream))
            code = no_memory(stream->in, error);
    hr__json_left(stream);
    return code ? code : found;
}

/* ---- the rest of a trace ---- */

static void take_base(struct hr__kineto *k, const json_t *value)
{
    k->base_ns = json_integer_value(value);
}

static void take_distributed(struct hr__kineto *k, const json_t *value)
{
    k->rank = integer(value, "rank", -1);
}

static void take_devices(struct hr__kineto *k, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *device = json_array_get(value, i);
        int64_t bytes = integer(device, "totalGlobalMem", 0),
                id = integer(device, "id", (int64_t)i);
        if (bytes > 0 && id >= 0 && id < HR__IMPORT_DEVICES_MOST - 1)
            k->capacity_bytes[id + 1] = (uint64_t)bytes;
    }
}

static int read_member(struct hr__kineto *k, struct hr__json_stream *stream, struct hr_error *error)
{
    static const struct {
        const char *key;
        void (*take)(struct hr__kineto *k, const json_t *value);
    } members[] = {{"baseTimeNanoseconds", take_base},
                   {"distributedInfo", take_distributed},
                   {"deviceProperties", take_devices}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (strcmp(stream->text, members[i].key))
            continue;
        int code = hr__json_capture(stream, error);
        if (code)
            return code;
        json_t *value = json_loadb(stream->text, stream->length, JSON_DECODE_ANY, NULL);
        if (value)
            members[i].take(k, value);
        json_decref(value);
        return 0;
    }
    return hr__json_skip(stream, error);
}

static int read_all(struct hr__kineto *k, struct hr__json_stream *stream, struct hr_error *error)
{
    int found, code = 0, is_trace = 0;
    if (hr__json_peek(stream) == '[')
        return take_events(k, stream, error);
    code = hr__json_begin(stream, '{', error);
    while (!code && (found = hr__json_key(stream, error)) != 0) {
        if (found < 0)
            return found;
        if (strcmp(stream->text, "traceEvents")) {
            code = read_member(k, stream, error);
        } else {
            is_trace = 1;
            code = take_events(k, stream, error);
        }
    }
    if (!code && !is_trace)
        code = hr__fail(error, -EBADMSG, "%s is JSON, but no Kineto trace: it has no traceEvents",
                        stream->in->name);
    return code;
}

static int by_time(const void *a, const void *b)
{
    const struct hr__kineto_memory *x = a, *y = b;
    if (x->time_ns != y->time_ns)
        return x->time_ns < y->time_ns ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static int by_thread(const void *a, const void *b)
{
    const struct hr__kineto_range *x = a, *y = b;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->end_ns != y->end_ns)
        return x->end_ns > y->end_ns ? -1 : 1;
    return x->name < y->name ? -1 : x->name > y->name;
}

int hr__kineto_read(struct hr__kineto *out, struct hr__input *in, struct hr_error *error)
{
    struct hr__json_stream stream;
    *out = (struct hr__kineto){.rank = -1};
    hr__json_stream_init(&stream, in);
    int code = read_all(out, &stream, error);
    hr__json_stream_clear(&stream);
    if (code) {
        hr__kineto_clear(out);
        return code;
    }
    if (out->memory_count)
        qsort(out->memory, out->memory_count, sizeof *out->memory, by_time);
    if (out->range_count)
        qsort(out->ranges, out->range_count, sizeof *out->ranges, by_thread);
    return 0;
}

void hr__kineto_clear(struct hr__kineto *k)
{
    for (uint32_t i = 0; i < k->name_ids.count; i++)
        hr__free(k->names[i]);
    hr__free(k->names);
    hr__ids_clear(&k->name_ids);
    hr__free(k->memory);
    hr__free(k->ranges);
    *k = (struct hr__kineto){.rank = -1};
}
