/* Reads Kineto traces; see kineto_trace.h. */
#include "memory/import/kineto_trace.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/trace_values.h"
#include "memory/import/import.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define KEY_BYTES  64
#define NAME_BYTES 8192 /* longer names are cut */

/* ---- events ---- */

/* One event while it is read. */
struct kineto_raw {
    char name[NAME_BYTES], category[64], phase[8];
    int64_t process, thread, begin_ns, length_ns;
    int64_t address, bytes, total, order, device_type, device;
    int has_begin, has_length;
};

struct kineto_reader {
    struct hr__kineto *k;
    struct hr__json_reader *json;
    struct kineto_raw raw;
    int has_events, no_memory;
};

static uint64_t thread_of(const struct kineto_raw *raw)
{
    const int64_t both[2] = {raw->process, raw->thread};
    return XXH3_64bits(both, sizeof both);
}

static uint8_t device_of(const struct kineto_raw *raw)
{
    if (!raw->device_type)
        return 0;
    return raw->device >= 0 && raw->device < HR__IMPORT_DEVICES_MOST - 1
               ? (uint8_t)(raw->device + 1)
               : HR_MEMORY_LIBRARIES;
}

static void take_memory(struct kineto_reader *r, int is_refused)
{
    struct hr__kineto *k = r->k;
    const struct kineto_raw *raw = &r->raw;
    struct hr__kineto_memory one = {
        .time_ns = raw->begin_ns,
        .address = (uint64_t)raw->address,
        .bytes = raw->bytes,
        .total = raw->total,
        .order = raw->order < 0 ? k->memory_count : (uint64_t)raw->order,
        .thread = thread_of(raw),
        .device = device_of(raw),
        .is_refused = (uint8_t)is_refused,
    };
    if (!raw->has_begin) {
        k->unreadable++;
        return;
    }
    if (!one.bytes)
        return;
    if (!k->memory_count)
        k->pid = raw->process;
    if (hr__reserve(HR__TAG_MEMORY, &k->memory, k->memory_count + 1))
        r->no_memory = 1;
    else
        k->memory[k->memory_count++] = one;
}

static void take_range(struct kineto_reader *r, enum hr__kineto_range_kind kind)
{
    struct hr__kineto *k = r->k;
    const struct kineto_raw *raw = &r->raw;
    struct hr__kineto_range one = {.thread = thread_of(raw), .kind = (uint8_t)kind};
    if (!raw->has_begin || !raw->has_length || raw->length_ns < 0) {
        k->unreadable++;
        return;
    }
    one.begin_ns = raw->begin_ns;
    one.end_ns = raw->begin_ns + raw->length_ns;
    one.name = hr__ids_name(&k->name_ids, &k->names, HR__TAG_MEMORY, raw->name);
    if (!one.name || hr__reserve(HR__TAG_MEMORY, &k->ranges, k->range_count + 1))
        r->no_memory = 1;
    else
        k->ranges[k->range_count++] = one;
}

static void take_event(struct kineto_reader *r)
{
    static const struct {
        const char *word;
        enum hr__kineto_range_kind kind;
    } kinds[] = {{"cpu_op", HR__KINETO_OPERATOR},
                 {"python_function", HR__KINETO_PYTHON},
                 {"user_annotation", HR__KINETO_ANNOTATION}};
    const struct kineto_raw *raw = &r->raw;
    if (*raw->phase == 'i' && !strcmp(raw->name, "[memory]"))
        take_memory(r, 0);
    if (*raw->phase == 'i' && !strcmp(raw->name, "[OutOfMemory]"))
        take_memory(r, 1);
    for (size_t i = 0; *raw->phase == 'X' && i < sizeof kinds / sizeof *kinds; i++)
        if (*raw->name && !strcmp(raw->category, kinds[i].word))
            take_range(r, kinds[i].kind);
}

static void read_arguments(struct kineto_reader *r)
{
    static const struct {
        const char *key;
        size_t at;
    } integers[] = {
        {"Addr", offsetof(struct kineto_raw, address)},
        {"Bytes", offsetof(struct kineto_raw, bytes)},
        {"Total Allocated", offsetof(struct kineto_raw, total)},
        {"Ev Idx", offsetof(struct kineto_raw, order)},
        {"Device Type", offsetof(struct kineto_raw, device_type)},
        {"Device Id", offsetof(struct kineto_raw, device)},
    };
    char key[KEY_BYTES];
    if (!hr__value_object(r->json))
        return;
    while (hr__json_reader_key(r->json, key, sizeof key)) {
        size_t i = 0, count = sizeof integers / sizeof *integers;
        while (i < count && strcmp(key, integers[i].key))
            i++;
        int64_t *value = i < count ? (int64_t *)((char *)&r->raw + integers[i].at) : NULL;
        if (value)
            *value = hr__value_integer(r->json, *value);
        else
            hr__json_reader_skip(r->json);
    }
}

static void read_member(struct kineto_reader *r, const char *key)
{
    struct kineto_raw *raw = &r->raw;
    if (!strcmp(key, "ph"))
        hr__value_text(r->json, raw->phase, sizeof raw->phase);
    else if (!strcmp(key, "cat"))
        hr__value_text(r->json, raw->category, sizeof raw->category);
    else if (!strcmp(key, "name"))
        hr__value_text(r->json, raw->name, sizeof raw->name);
    else if (!strcmp(key, "pid"))
        raw->process = hr__value_thread(r->json, 0);
    else if (!strcmp(key, "tid"))
        raw->thread = hr__value_thread(r->json, 0);
    else if (!strcmp(key, "ts"))
        raw->has_begin = hr__value_time(r->json, &raw->begin_ns);
    else if (!strcmp(key, "dur"))
        raw->has_length = hr__value_time(r->json, &raw->length_ns);
    else if (!strcmp(key, "args"))
        read_arguments(r);
    else
        hr__json_reader_skip(r->json);
}

static void read_events(struct kineto_reader *r)
{
    struct kineto_raw *raw = &r->raw;
    char key[KEY_BYTES];
    r->has_events = 1;
    hr__json_reader_array(r->json);
    while (!r->no_memory && hr__json_reader_more(r->json)) {
        if (!hr__value_object(r->json))
            continue;
        raw->name[0] = raw->category[0] = raw->phase[0] = 0;
        raw->process = raw->thread = raw->address = raw->bytes = 0;
        raw->device_type = raw->device = raw->has_begin = raw->has_length = 0;
        raw->total = raw->order = -1;
        while (hr__json_reader_key(r->json, key, sizeof key))
            read_member(r, key);
        if (!hr__json_reader_error(r->json, NULL))
            take_event(r);
    }
}

/* ---- the rest of a trace ---- */

static void read_rank(struct kineto_reader *r)
{
    char key[KEY_BYTES];
    if (!hr__value_object(r->json))
        return;
    while (hr__json_reader_key(r->json, key, sizeof key))
        if (!strcmp(key, "rank"))
            r->k->rank = hr__value_integer(r->json, -1);
        else
            hr__json_reader_skip(r->json);
}

static void read_devices(struct kineto_reader *r)
{
    char key[KEY_BYTES];
    if (!hr__value_array(r->json))
        return;
    for (int64_t i = 0; hr__json_reader_more(r->json); i++) {
        int64_t bytes = 0, id = i;
        if (!hr__value_object(r->json))
            continue;
        while (hr__json_reader_key(r->json, key, sizeof key))
            if (!strcmp(key, "totalGlobalMem"))
                bytes = hr__value_integer(r->json, 0);
            else if (!strcmp(key, "id"))
                id = hr__value_integer(r->json, i);
            else
                hr__json_reader_skip(r->json);
        if (bytes > 0 && id >= 0 && id < HR__IMPORT_DEVICES_MOST - 1)
            r->k->capacity_bytes[id + 1] = (uint64_t)bytes;
    }
}

static void read_top(struct kineto_reader *r)
{
    char key[KEY_BYTES];
    if (hr__json_reader_peek(r->json) == '[') {
        read_events(r);
        return;
    }
    hr__json_reader_object(r->json);
    while (!r->no_memory && hr__json_reader_key(r->json, key, sizeof key))
        if (!strcmp(key, "traceEvents"))
            read_events(r);
        else if (!strcmp(key, "baseTimeNanoseconds"))
            r->k->base_ns = hr__value_integer(r->json, 0);
        else if (!strcmp(key, "distributedInfo"))
            read_rank(r);
        else if (!strcmp(key, "deviceProperties"))
            read_devices(r);
        else
            hr__json_reader_skip(r->json);
}

static int read_all(struct hr__kineto *k, struct hr__json_reader *json, struct hr_error *error)
{
    const char *name = hr__json_reader_name(json);
    struct kineto_reader *r = hr__alloc(HR__TAG_MEMORY, 1, sizeof *r);
    int code = 0;
    if (!r)
        return hr__fail(error, -ENOMEM, "out of memory while reading %s", name);
    r->k = k;
    r->json = json;
    read_top(r);
    if (r->no_memory)
        code = hr__fail(error, -ENOMEM, "out of memory while reading %s", name);
    hr__json_reader_end(json);
    if (!code)
        code = hr__json_reader_error(json, error);
    if (!code && !r->has_events)
        code = hr__fail(error, -EBADMSG, "%s is JSON, but no Kineto trace: it has no traceEvents",
                        name);
    hr__free(r);
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
    struct hr__json_reader *json;
    *out = (struct hr__kineto){.rank = -1};
    int code = hr__json_reader_on(&json, in, error);
    if (!code)
        code = read_all(out, json, error);
    hr__json_reader_close(&json);
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
