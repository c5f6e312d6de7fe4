/* Reads traces of PyTorch's profiler; see trace.h. */
#include "replay/trace.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/trace_values.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define KEY_BYTES   64
#define NAME_BYTES  8192 /* longer names are cut: those of templates grow without bounds */
#define LIST_BYTES  256  /* of ranks; longer ones are cut */
#define LIST_SHOWN  40   /* longer ones are not shown */
#define GROUPS_MOST 4096

/* What a trace says of a process group. */
struct raw_group {
    char name[KEY_BYTES], about[KEY_BYTES], ranks[LIST_BYTES];
    int64_t size;
};

/* One event while it is read. */
struct trace_raw {
    char name[NAME_BYTES], category[KEY_BYTES], phase[8], label[256];
    int64_t process, thread, begin_ns, length_ns;
    int64_t correlation, sequence, stream, device, bytes, elements;
    int64_t wait_stream, wait_record;
    int element_bytes, has_begin, has_length;
    uint8_t sync;
    struct raw_group group; /* of a collective */
};

struct trace_reader {
    struct hr__trace_data *trace;
    struct hr__json_reader *json;
    struct trace_raw raw;
    size_t last_track, last_group;
    int has_events, no_memory;
};

/* ---- values ---- */

static uint8_t sync_of(const char *text)
{
    static const char *const words[] = {"", "Context Sync", "Stream Sync", "Event Sync",
                                        "Stream Wait Event"};
    for (uint8_t i = HR__SYNC_CONTEXT; i <= HR__SYNC_WAIT; i++)
        if (!strcmp(text, words[i]))
            return i;
    return HR__SYNC_UNKNOWN;
}

/* Returns the bytes of an element of a collective or tensor; 0: unknown. */
static int element_bytes(const char *type)
{
    static const struct {
        const char *name;
        int bytes;
    } types[] = {{"Float", 4},
                 {"Half", 2},
                 {"BFloat16", 2},
                 {"Double", 8},
                 {"Byte", 1},
                 {"Char", 1},
                 {"Int", 4},
                 {"Long", 8},
                 {"Bool", 1},
                 {"Short", 2},
                 {"float", 4},
                 {"double", 8},
                 {"int", 4},
                 {"c10::Half", 2},
                 {"c10::BFloat16", 2},
                 {"long int", 8},
                 {"c10::complex<float>", 8},
                 {"unsigned char", 1},
                 {"signed char", 1},
                 {"bool", 1},
                 {"short int", 2}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i].name))
            return types[i].bytes;
    return strncmp(type, "Float8", 6) ? 0 : 1;
}

/* ---- arguments ---- */

/* Reads the number of elements of an operator's first input, of which there may be none. */
static void read_shape(struct trace_reader *r)
{
    int64_t elements = 1;
    int is_known = 1;
    if (!hr__value_array(r->json))
        return;
    for (int i = 0; hr__json_reader_more(r->json); i++) {
        if (i || hr__json_reader_peek(r->json) != '[') {
            hr__json_reader_skip(r->json);
            continue;
        }
        hr__json_reader_array(r->json);
        while (hr__json_reader_more(r->json)) {
            int64_t size = hr__value_integer(r->json, HR__TRACE_NONE);
            is_known &= size >= 0 && !__builtin_mul_overflow(elements, size, &elements);
        }
        r->raw.elements = is_known ? elements : HR__TRACE_NONE;
    }
}

/* Reads the type of an operator's first input. */
static void read_type(struct trace_reader *r)
{
    char text[KEY_BYTES] = "";
    if (!hr__value_array(r->json))
        return;
    for (int i = 0; hr__json_reader_more(r->json); i++) {
        if (i || hr__json_reader_peek(r->json) != '"') {
            hr__json_reader_skip(r->json);
            continue;
        }
        hr__value_text(r->json, text, sizeof text);
        r->raw.element_bytes = element_bytes(text);
    }
}

static void read_group_argument(struct trace_reader *r, const char *key)
{
    struct raw_group *group = &r->raw.group;
    if (!strcmp(key, "Name"))
        hr__value_text(r->json, group->name, sizeof group->name);
    else if (!strcmp(key, "Description"))
        hr__value_text(r->json, group->about, sizeof group->about);
    else if (!strcmp(key, "Ranks"))
        hr__value_text(r->json, group->ranks, sizeof group->ranks);
    else
        hr__json_reader_skip(r->json);
}

static void read_argument(struct trace_reader *r, const char *key)
{
    static const struct {
        const char *key;
        size_t at;
    } integers[] = {
        {"correlation", offsetof(struct trace_raw, correlation)},
        {"Sequence number", offsetof(struct trace_raw, sequence)},
        {"stream", offsetof(struct trace_raw, stream)},
        {"device", offsetof(struct trace_raw, device)},
        {"bytes", offsetof(struct trace_raw, bytes)},
        {"Bytes", offsetof(struct trace_raw, bytes)},
        {"In msg nelems", offsetof(struct trace_raw, elements)},
        {"Group size", offsetof(struct trace_raw, group.size)},
        {"wait_on_stream", offsetof(struct trace_raw, wait_stream)},
        {"wait_on_cuda_event_record_corr_id", offsetof(struct trace_raw, wait_record)},
    };
    char text[KEY_BYTES];
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (key[0] == integers[i].key[0] && !strcmp(key, integers[i].key)) {
            *(int64_t *)((char *)&r->raw + integers[i].at) =
                hr__value_integer(r->json, HR__TRACE_NONE);
            return;
        }
    text[0] = 0;
    if (!strcmp(key, "cuda_sync_kind")) {
        hr__value_text(r->json, text, sizeof text);
        r->raw.sync = sync_of(text);
    } else if (!strcmp(key, "dtype")) {
        hr__value_text(r->json, text, sizeof text);
        r->raw.element_bytes = element_bytes(text);
    } else if (!strcmp(key, "Input Dims")) {
        read_shape(r);
    } else if (!strcmp(key, "Input type")) {
        read_type(r);
    } else if (!strcmp(key, "name") || !strcmp(key, "labels")) {
        hr__value_text(r->json, r->raw.label, sizeof r->raw.label);
    } else if (!strncmp(key, "Process Group ", 14)) {
        read_group_argument(r, key + 14);
    } else {
        hr__json_reader_skip(r->json);
    }
}

static void read_arguments(struct trace_reader *r)
{
    char key[KEY_BYTES];
    if (!hr__value_object(r->json))
        return;
    while (hr__json_reader_key(r->json, key, sizeof key))
        read_argument(r, key);
}

/* ---- process groups ---- */

static void start_group(struct raw_group *group)
{
    group->name[0] = group->about[0] = group->ranks[0] = 0;
    group->size = HR__TRACE_NONE;
}

/* Names a group for people. Names that PyTorch gives are numbers, descriptions are the user's. */
static char *make_label(const struct raw_group *group)
{
    char text[LIST_BYTES + 2 * KEY_BYTES];
    int has_ranks = group->ranks[0] && strlen(group->ranks) <= LIST_SHOWN;
    const char *name =
        group->about[0] && strcmp(group->about, "undefined") ? group->about : group->name;
    if (*name && has_ranks)
        snprintf(text, sizeof text, "group '%s' (ranks %s)", name, group->ranks);
    else if (*name)
        snprintf(text, sizeof text, "group '%s'", name);
    else
        snprintf(text, sizeof text, "the group of ranks %.*s", LIST_SHOWN, group->ranks);
    return hr__strdup(HR__TAG_REPLAY, text);
}

/* Returns 1 + the index of a group, added if it is new; 0: it has no name, or there is no memory
 * for it, or there are too many. */
static uint16_t group_of(struct trace_reader *r, const struct raw_group *group)
{
    struct hr__trace_data *t = r->trace;
    const char *name = group->name[0] ? group->name : group->ranks;
    for (size_t i = 0, at = r->last_group; *name && i < t->group_count; i++, at++) {
        at = at < t->group_count ? at : 0;
        if (!strcmp(t->groups[at].name, name))
            return (uint16_t)((r->last_group = at) + 1);
    }
    if (!*name || t->group_count == GROUPS_MOST)
        return 0;
    if (hr__reserve(HR__TAG_REPLAY, &t->groups, t->group_count + 1)) {
        r->no_memory = 1;
        return 0;
    }
    struct hr__trace_group *one = &t->groups[t->group_count++];
    *one = (struct hr__trace_group){
        .name = hr__strdup(HR__TAG_REPLAY, name), .label = make_label(group), .size = group->size};
    r->no_memory |= !one->name || !one->label;
    return r->no_memory ? 0 : (uint16_t)t->group_count;
}

/* Reads the list of a group's ranks as a text. */
static void read_list(struct trace_reader *r, char *text, size_t capacity)
{
    size_t used = 0;
    if (!hr__value_array(r->json))
        return;
    while (hr__json_reader_more(r->json)) {
        int64_t rank = hr__value_integer(r->json, HR__TRACE_NONE);
        int n =
            snprintf(text + used, capacity - used, "%s%lld", used ? ", " : "[", (long long)rank);
        used += n > 0 && (size_t)n < capacity - used ? (size_t)n : 0;
    }
    snprintf(text + used, capacity - used, used ? "]" : "");
}

/* Reads distributedInfo's pg_config: the groups that there are, used or not. */
static void read_groups(struct trace_reader *r)
{
    char key[KEY_BYTES];
    struct raw_group *group = &r->raw.group;
    if (!hr__value_array(r->json))
        return;
    while (!r->no_memory && hr__json_reader_more(r->json)) {
        if (!hr__value_object(r->json))
            continue;
        start_group(group);
        while (hr__json_reader_key(r->json, key, sizeof key))
            if (!strcmp(key, "pg_name"))
                hr__value_text(r->json, group->name, sizeof group->name);
            else if (!strcmp(key, "pg_desc"))
                hr__value_text(r->json, group->about, sizeof group->about);
            else if (!strcmp(key, "pg_size"))
                group->size = hr__value_integer(r->json, HR__TRACE_NONE);
            else if (!strcmp(key, "ranks"))
                read_list(r, group->ranks, sizeof group->ranks);
            else
                hr__json_reader_skip(r->json);
        group_of(r, group);
    }
}

/* ---- events ---- */

static void start_raw(struct trace_raw *raw)
{
    raw->name[0] = raw->category[0] = raw->phase[0] = raw->label[0] = 0;
    raw->process = raw->thread = raw->correlation = raw->sequence = HR__TRACE_NONE;
    raw->stream = raw->device = raw->bytes = raw->elements = HR__TRACE_NONE;
    raw->wait_stream = raw->wait_record = HR__TRACE_NONE;
    raw->element_bytes = raw->has_begin = raw->has_length = 0;
    raw->sync = HR__SYNC_UNKNOWN;
    start_group(&raw->group);
}

/* Reads a member of an event. Flows and marks are only skipped. */
static void read_member(struct trace_reader *r, const char *key)
{
    struct trace_raw *raw = &r->raw;
    int is_flow = raw->phase[0] == 's' || raw->phase[0] == 'f' || raw->phase[0] == 't';
    if (is_flow)
        hr__json_reader_skip(r->json);
    else if (!strcmp(key, "ph"))
        hr__value_text(r->json, raw->phase, sizeof raw->phase);
    else if (!strcmp(key, "cat"))
        hr__value_text(r->json, raw->category, sizeof raw->category);
    else if (!strcmp(key, "name"))
        hr__value_text(r->json, raw->name, sizeof raw->name);
    else if (!strcmp(key, "pid"))
        raw->process = hr__value_thread(r->json, HR__TRACE_NONE);
    else if (!strcmp(key, "tid"))
        raw->thread = hr__value_thread(r->json, HR__TRACE_NONE);
    else if (!strcmp(key, "ts"))
        raw->has_begin = hr__value_time(r->json, &raw->begin_ns);
    else if (!strcmp(key, "dur"))
        raw->has_length = hr__value_time(r->json, &raw->length_ns);
    else if (!strcmp(key, "args"))
        read_arguments(r);
    else
        hr__json_reader_skip(r->json);
}

/* Returns the kind of a slice; HR__TRACE_KINDS: one that no replay needs. Traces of AMD's devices
 * call their runtime cuda_runtime, too. */
static enum hr__trace_kind kind_of(const char *category)
{
    static const struct {
        const char *word;
        enum hr__trace_kind kind;
    } kinds[] = {{"cpu_op", HR__TRACE_OP},
                 {"cuda_runtime", HR__TRACE_RUNTIME},
                 {"kernel", HR__TRACE_KERNEL},
                 {"python_function", HR__TRACE_PYTHON},
                 {"user_annotation", HR__TRACE_ANNOTATION},
                 {"cuda_driver", HR__TRACE_RUNTIME},
                 {"hip_runtime", HR__TRACE_RUNTIME},
                 {"privateuse1_runtime", HR__TRACE_RUNTIME},
                 {"xpu_runtime", HR__TRACE_RUNTIME},
                 {"gpu_memcpy", HR__TRACE_COPY},
                 {"gpu_memset", HR__TRACE_SET},
                 {"cuda_sync", HR__TRACE_SYNC},
                 {"Operator", HR__TRACE_OP},
                 {"Kernel", HR__TRACE_KERNEL},
                 {"Runtime", HR__TRACE_RUNTIME},
                 {"Memcpy", HR__TRACE_COPY},
                 {"Memset", HR__TRACE_SET}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(category, kinds[i].word))
            return kinds[i].kind;
    return HR__TRACE_KINDS;
}

/* Returns the index of a thread or stream, added if it is new; SIZE_MAX: out of memory. */
static size_t track_of(struct trace_reader *r, int64_t process, int64_t thread, int is_stream)
{
    struct hr__trace_data *t = r->trace;
    for (size_t i = 0, at = r->last_track; i < t->track_count; i++, at++) {
        at = at < t->track_count ? at : 0;
        const struct hr__trace_track *track = &t->tracks[at];
        if (track->process == process && track->thread == thread && track->is_stream == is_stream)
            return r->last_track = at;
    }
    if (hr__reserve(HR__TAG_REPLAY, &t->tracks, t->track_count + 1))
        return SIZE_MAX;
    t->tracks[t->track_count] =
        (struct hr__trace_track){.process = process, .thread = thread, .is_stream = is_stream};
    return t->track_count++;
}

/* A name of a thread, or of a device by its process. */
static void take_metadata(struct trace_reader *r)
{
    const struct trace_raw *raw = &r->raw;
    if (strcmp(raw->name, "thread_name") || !raw->label[0])
        return;
    size_t at = track_of(r, raw->process, raw->thread, 0);
    if (at == SIZE_MAX) {
        r->no_memory = 1;
        return;
    }
    char *name = hr__strdup(HR__TAG_REPLAY, raw->label);
    r->no_memory |= !name;
    hr__free(r->trace->tracks[at].name);
    r->trace->tracks[at].name = name;
}

static int32_t small(int64_t value)
{
    return value >= 0 && value <= INT32_MAX ? (int32_t)value : HR__TRACE_NONE;
}

/* Fills what depends on the kind of a slice. */
static void describe(struct hr__trace_event *e, const struct trace_raw *raw)
{
    e->link = e->kind == HR__TRACE_OP ? raw->sequence : raw->correlation;
    if (e->kind == HR__TRACE_SYNC) {
        e->sync = raw->sync;
        e->value = raw->wait_record;
        e->number = small(raw->wait_stream);
        if (raw->sync == HR__SYNC_STREAM)
            e->number = small(raw->stream);
    } else if (raw->elements >= 0 && raw->element_bytes && raw->elements < INT64_MAX / 16) {
        e->value = raw->elements * raw->element_bytes;
        e->number = small(raw->group.size);
    } else {
        e->value = raw->bytes;
    }
}

static void take_slice(struct trace_reader *r, enum hr__trace_kind kind)
{
    struct hr__trace_data *t = r->trace;
    const struct trace_raw *raw = &r->raw;
    struct hr__trace_event e = {.kind = (uint8_t)kind, .number = HR__TRACE_NONE};
    if (!raw->has_begin || !raw->has_length || raw->length_ns < 0) {
        t->wrong++;
        return;
    }
    int is_stream = kind == HR__TRACE_KERNEL || kind == HR__TRACE_COPY || kind == HR__TRACE_SET ||
                    kind == HR__TRACE_SYNC;
    int64_t process = is_stream && raw->device >= 0 ? raw->device : raw->process;
    int64_t thread = is_stream && raw->stream >= 0 ? raw->stream : raw->thread;
    size_t track = track_of(r, process, thread, is_stream);
    e.begin_ns = raw->begin_ns;
    e.length_ns = raw->length_ns;
    describe(&e, raw);
    e.group = kind == HR__TRACE_KERNEL ? group_of(r, &raw->group) : 0;
    /* 0, out of memory, becomes UINT32_MAX. */
    e.name = hr__ids_name(&t->name_ids, &t->names, HR__TAG_REPLAY, raw->name) - 1;
    e.track = (uint32_t)track;
    if (track >= UINT32_MAX || e.name == UINT32_MAX ||
        hr__reserve(HR__TAG_REPLAY, &t->events, t->event_count + 1)) {
        r->no_memory = 1;
        return;
    }
    t->events[t->event_count++] = e;
}

static void read_event(struct trace_reader *r)
{
    char key[KEY_BYTES];
    if (hr__json_reader_peek(r->json) != '{') {
        hr__json_reader_skip(r->json);
        return;
    }
    start_raw(&r->raw);
    hr__json_reader_object(r->json);
    while (hr__json_reader_key(r->json, key, sizeof key))
        read_member(r, key);
    r->trace->read++;
    if (r->raw.phase[0] == 'M')
        take_metadata(r);
    if (r->raw.phase[0] != 'X')
        return;
    enum hr__trace_kind kind = kind_of(r->raw.category);
    if (kind != HR__TRACE_KINDS)
        take_slice(r, kind);
}

static void read_events(struct trace_reader *r)
{
    r->has_events = 1;
    hr__json_reader_array(r->json);
    while (!r->no_memory && hr__json_reader_more(r->json))
        read_event(r);
}

/* ---- the rest of a trace ---- */

static void read_ranks(struct trace_reader *r)
{
    char key[KEY_BYTES];
    if (!hr__value_object(r->json))
        return;
    while (hr__json_reader_key(r->json, key, sizeof key))
        if (!strcmp(key, "rank"))
            r->trace->rank = hr__value_integer(r->json, HR__TRACE_NONE);
        else if (!strcmp(key, "world_size"))
            r->trace->ranks = hr__value_integer(r->json, HR__TRACE_NONE);
        else if (!strcmp(key, "pg_config"))
            read_groups(r);
        else
            hr__json_reader_skip(r->json);
}

static void read_devices(struct trace_reader *r)
{
    char key[KEY_BYTES], name[KEY_BYTES];
    if (!hr__value_array(r->json))
        return;
    while (hr__json_reader_more(r->json)) {
        if (!hr__value_object(r->json))
            continue;
        while (hr__json_reader_key(r->json, key, sizeof key)) {
            if (strcmp(key, "name") || r->trace->device) {
                hr__json_reader_skip(r->json);
                continue;
            }
            name[0] = 0;
            hr__value_text(r->json, name, sizeof name);
            r->trace->device = hr__strdup(HR__TAG_REPLAY, name);
            r->no_memory |= !r->trace->device;
        }
    }
}

static void read_top(struct trace_reader *r)
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
        else if (!strcmp(key, "distributedInfo"))
            read_ranks(r);
        else if (!strcmp(key, "deviceProperties"))
            read_devices(r);
        else
            hr__json_reader_skip(r->json);
}

/* Returns the error of what was read, or 0. */
static int judge(struct trace_reader *r, struct hr_error *error)
{
    const char *name = hr__json_reader_name(r->json);
    uint64_t length;
    if (r->no_memory)
        return hr__fail(error, -ENOMEM, "out of memory while reading %s", name);
    hr__json_reader_end(r->json);
    int code = hr__json_reader_error(r->json, error);
    r->trace->bytes = hr__json_reader_place(r->json, &length);
    if (code == -EBADMSG && !r->trace->bytes)
        code = hr__fail(error, code,
                        "%s is empty: the run ended before the profiler wrote it; record again, "
                        "and let torch.profiler.profile end (headrace replay record does)",
                        name);
    if (code)
        return code;
    if (!r->has_events)
        return hr__fail(error, -EBADMSG,
                        "%s is JSON, but no trace: it has no traceEvents; give a trace of "
                        "torch.profiler (export_chrome_trace)",
                        name);
    if (!r->trace->event_count)
        return hr__fail(error, -ENODATA,
                        "%s: none of its %llu events is an operator, a CUDA call or a kernel: "
                        "record a training step with torch.profiler",
                        name, (unsigned long long)r->trace->read);
    return 0;
}

static int read_all(struct hr__trace_data *out, struct hr__json_reader *json,
                    struct hr_error *error)
{
    struct trace_reader *r = hr__alloc(HR__TAG_REPLAY, 1, sizeof *r);
    if (!r)
        return hr__fail(error, -ENOMEM, "out of memory while reading a trace");
    r->trace = out;
    r->json = json;
    read_top(r);
    int code = judge(r, error);
    hr__free(r);
    return code;
}

int hr__trace_read(struct hr__trace_data *out, const char *path, struct hr_error *error)
{
    struct hr__json_reader *json;
    *out = (struct hr__trace_data){.rank = HR__TRACE_NONE, .ranks = HR__TRACE_NONE};
    int code = hr__json_reader_open(&json, path, error);
    if (code)
        return code;
    code = read_all(out, json, error);
    hr__json_reader_close(&json);
    return code;
}

int hr__trace_parse(struct hr__trace_data *out, const void *bytes, size_t length, const char *name,
                    struct hr_error *error)
{
    struct hr__json_reader *json;
    *out = (struct hr__trace_data){.rank = HR__TRACE_NONE, .ranks = HR__TRACE_NONE};
    int code = hr__json_reader_of(&json, bytes, length, name, error);
    if (code)
        return code;
    code = read_all(out, json, error);
    hr__json_reader_close(&json);
    return code;
}

void hr__trace_clear(struct hr__trace_data *t)
{
    for (uint32_t i = 0; i < t->name_ids.count; i++)
        hr__free(t->names[i]);
    for (size_t i = 0; i < t->track_count; i++)
        hr__free(t->tracks[i].name);
    for (size_t i = 0; i < t->group_count; i++) {
        hr__free(t->groups[i].name);
        hr__free(t->groups[i].label);
    }
    hr__free(t->groups);
    hr__free(t->names);
    hr__free(t->tracks);
    hr__free(t->events);
    hr__free(t->device);
    hr__ids_clear(&t->name_ids);
    *t = (struct hr__trace_data){.rank = HR__TRACE_NONE, .ranks = HR__TRACE_NONE};
}
