/*
 * A record of any events, in any order, with any names: it is analysed, live bytes are never
 * negative, and its reports contain no terminal control codes and only valid JSON.
 *
 * The first bytes become a name, the rest events of 8 bytes each. This reaches states that a
 * recorder would write, which random bytes of a file hardly ever do.
 */
#include <headrace/memory.h>

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES 24
#define EVENTS     4000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_events(struct hr_memory_recorder *recorder, const uint32_t names[8],
                       const uint8_t *data, size_t size)
{
    static const uint8_t devices[] = {0, 1, 2, HR_MEMORY_LIBRARIES};
    uint64_t now = 1;
    for (size_t i = 0; i + 8 <= size && i < 8 * EVENTS; i += 8) {
        const uint8_t *b = data + i;
        struct hr_memory_event e = {.kind = b[0] % 11,
                                    .address = UINT64_C(64) * (1 + b[1]),
                                    .phase = b[2] & 3,
                                    .device = devices[b[2] >> 2 & 3],
                                    .flags = b[2] >> 4 & 1,
                                    .what = b[3] & 15 ? names[b[3] & 7] : 0};
        now += UINT64_C(1) << b[4] % 40;
        e.time_ns = b[4] & 128 ? now / 2 : now; /* some are late */
        e.bytes = UINT64_C(1) << b[5] % 48;     /* sizes up to an address space */
        if (e.kind == HR_MEMORY_READ || e.kind == HR_MEMORY_WRITE)
            e.bytes = hr_memory_access(b[5], 0);
        else if (e.kind == HR_MEMORY_DESCRIBE)
            e.bytes = hr_memory_about((enum hr_memory_category)(b[5] % 9), names[b[6] & 7]);
        else if (e.kind == HR_MEMORY_SEGMENT || e.kind == HR_MEMORY_SEGMENT_FREE)
            e.bytes = UINT64_C(64) * b[6];
        else if (e.kind == HR_MEMORY_ALLOC && b[3] & 16)
            e.what = 1; /* a stack */
        hr_memory_record(recorder, &e);
        if (b[7] == 1) {
            struct hr_memory_ran ran = {now, now + b[5], b[6], e.device};
            hr_memory_record_ran(recorder, &ran, 1);
        }
    }
}

static void write_record(const char *path, const uint8_t *data, size_t size)
{
    static const char *const fixed[] = {"iteration", "aten::add",      "</script><script>",
                                        "\033[2J",   "[2, 3] float32", "layer1.0",
                                        "-->"};
    struct hr_memory_recorder *recorder;
    uint32_t names[8];
    char name[NAME_BYTES + 1] = "";
    size_t length = size < NAME_BYTES ? size : NAME_BYTES;
    if (hr_memory_recorder_create(&recorder, path, NULL, NULL))
        abort();
    memcpy(name, data, length);
    for (int i = 0; i < 7; i++)
        names[i] = hr_memory_name(recorder, fixed[i]);
    names[7] = hr_memory_name(recorder, name);
    struct hr_memory_frame frame = {.file = names[7], .function = names[2], .line = 3};
    hr_memory_stack(recorder, &frame, 1);
    hr_memory_fact(recorder, "batch size", name);
    hr_memory_fact(recorder, "capacity bytes", "1000000");
    hr_memory_fact(recorder, "note 1", name);
    hr_memory_fact(recorder, "command", name);
    put_events(recorder, names, data + length, size - length);
    hr_memory_recorder_destroy(&recorder);
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "r");
    static char text[8 << 20];
    if (!f)
        abort();
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void check_text(const char *text)
{
    if (!*text)
        abort();
    for (; *text; text++)
        if (((unsigned char)*text < 0x20 && *text != '\n') || *text == 0x7F)
            abort();
}

static void check_page(const char *page)
{
    static const char begin[] = "id=\"data\">";
    const char *found = strstr(page, begin), *end = found ? strstr(found, "</script>") : NULL;
    if (!found) /* built without charts, or nothing to draw */
        return;
    found += sizeof begin - 1;
    json_t *root = end ? json_loadb(found, (size_t)(end - found), 0, NULL) : NULL;
    if (!root)
        abort();
    json_decref(root);
}

static void check(const struct hr_memory *m, const char *out)
{
    struct hr_memory_comparison *c;
    json_t *root = json_loads(hr_memory_json(m), 0, NULL);
    const json_t *held = json_object_get(root, "check");
    if (!root || json_integer_value(json_object_get(held, "live_negative")))
        abort();
    json_decref(root);
    if (hr_memory_write_text(&m, 1, out, 80, NULL))
        abort();
    check_text(read_file(out));
    if (hr_memory_write_page(&m, 1, out, NULL))
        abort();
    check_page(read_file(out));
    if (hr_memory_compare(&c, m, m, NULL))
        abort();
    if (hr_memory_comparison_growth(c) != 0)
        abort();
    if (hr_memory_write_comparison_text(c, out, 60, NULL))
        abort();
    check_text(read_file(out));
    hr_memory_comparison_destroy(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr_error error = {0};
    struct hr_memory *m;
    char path[64], out[80];
    snprintf(path, sizeof path, "/tmp/headrace-fuzz-%ld.hrm", (long)getpid());
    snprintf(out, sizeof out, "%s.out", path);
    write_record(path, data, size);
    int code = hr_memory_open(&m, path, NULL, &error);
    if (code && (m || !error.message[0] || code == -EBADMSG))
        abort();
    if (!code) {
        check(m, out);
        hr_memory_destroy(&m);
        unlink(out);
    }
    unlink(path);
    return 0;
}
