/*
 * The analysis of a record with any events: it ends, its invariants hold (live bytes are never
 * negative, a replay from the end gives the same peak, the parts of a peak add up to it), and its
 * JSON is valid. 12 bytes make an event, so that addresses often coincide.
 */
#include "memory/analysis/analysis.h"
#include "memory/record/format.h"
#include "memory/report/json.h"

#include "base/memory.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct memory_analysis_file {
    struct hr__record_header header;
    uint8_t rest[HR__RECORD_HEADER - sizeof(struct hr__record_header)];
    struct hr__extent_header texts;
    uint8_t text_bytes[HR__EXTENT_ROOM];
    struct hr__extent_header extent;
    struct hr_memory_event events[HR__EXTENT_EVENTS_MOST];
};

static void put_text(struct memory_analysis_file *f, enum hr__text_kind kind, uint32_t id,
                     const char *text)
{
    struct hr__text_header head = {.id = id,
                                   .kind = (uint16_t)kind,
                                   .length = (uint32_t)strlen(text),
                                   .check = (uint32_t)XXH3_64bits(text, strlen(text))};
    memcpy(f->text_bytes + f->texts.used, &head, sizeof head);
    memcpy(f->text_bytes + f->texts.used + sizeof head, text, strlen(text));
    f->texts.used += sizeof head + (strlen(text) + 7) / 8 * 8;
}

static struct hr_memory_event event_of(const uint8_t *b, uint64_t *now)
{
    static const uint8_t devices[] = {0, 1, 2, HR_MEMORY_LIBRARIES};
    struct hr_memory_event event = {.kind = (uint8_t)(1 + b[0] % 10),
                                    .device = devices[b[0] >> 4 & 3],
                                    .flags = b[0] >> 7,
                                    .phase = b[1] & 3,
                                    .what = b[1] >> 2 & 7,
                                    .address = 64 * (uint64_t)b[2]};
    *now += b[3] < 32 ? b[3] & 1 : (uint64_t)b[3] << (b[4] & 31);
    event.time_ns = *now;
    uint64_t number = (uint64_t)b[5] | (uint64_t)b[6] << 8 | (uint64_t)b[7] << 16;
    if (event.kind == HR_MEMORY_READ || event.kind == HR_MEMORY_WRITE)
        event.bytes = hr_memory_access((uint32_t)number & 63, 0);
    else if (event.kind == HR_MEMORY_DESCRIBE)
        event.bytes = hr_memory_about((enum hr_memory_category)(b[5] % 10), b[6] & 3);
    else
        event.bytes = number << (b[8] & 15);
    return event;
}

static void check(const struct hr__memory *m, const struct hr__record *record)
{
    char *text;
    for (size_t i = 0; i < m->device_count; i++) {
        const struct hr__device_memory *d = &m->devices[i];
        uint64_t bytes = d->other_bytes;
        for (size_t k = 0; k < d->group_count; k++)
            bytes += d->groups[k].bytes;
        if (d->timeline.negative || d->backward.negative || bytes != d->timeline.peak_bytes ||
            d->backward.peak_bytes != d->timeline.peak_bytes)
            abort();
        if (d->segments.largest_free_bytes > d->segments.most.reserved_bytes ||
            d->segments.unusable_bytes > d->segments.most.reserved_bytes)
            abort();
    }
    if (hr__memory_to_json(m, record, &text, NULL))
        abort();
    json_t *root = json_loads(text, 0, NULL);
    if (!root)
        abort();
    json_decref(root);
    hr__free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct memory_analysis_file f;
    struct hr__record *record;
    struct hr__memory *memory;
    uint64_t now = 1;
    char path[64];
    size_t count = size / 12 < HR__EXTENT_EVENTS_MOST ? size / 12 : HR__EXTENT_EVENTS_MOST;
    f.header = (struct hr__record_header){.magic = HR__RECORD_MAGIC,
                                          .version = HR__RECORD_VERSION,
                                          .endian_mark = HR__ENDIAN_MARK,
                                          .header_bytes = HR__RECORD_HEADER,
                                          .extent_bytes = HR__EXTENT_BYTES};
    f.header.checksum = XXH3_64bits(&f.header, offsetof(struct hr__record_header, checksum));
    f.texts = (struct hr__extent_header){.magic = HR__EXTENT_MAGIC, .kind = HR__EXTENT_TEXTS};
    put_text(&f, HR__TEXT_NAME, 1, "iteration");
    put_text(&f, HR__TEXT_NAME, 2, "op");
    put_text(&f, HR__TEXT_FACT, 0, "batch size=8");
    put_text(&f, HR__TEXT_FACT, 0, "capacity bytes=1000000");
    put_text(&f, HR__TEXT_FACT, 0, "probe ns per call=3");
    f.extent = (struct hr__extent_header){
        .magic = HR__EXTENT_MAGIC, .kind = HR__EXTENT_EVENTS, .used = count * sizeof *f.events};
    for (size_t i = 0; i < count; i++)
        f.events[i] = event_of(data + 12 * i, &now);
    f.extent.first_ns = count ? f.events[0].time_ns : 0;
    size_t bytes = offsetof(struct memory_analysis_file, events) + f.extent.used;
    int fd = memfd_create("record", MFD_CLOEXEC);
    if (fd < 0 || write(fd, &f, bytes) != (ssize_t)bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (hr__record_open(&record, path, NULL))
        abort();
    if (!hr__memory_analyse(&memory, record, &(struct hr__memory_wish){.points = 50}, NULL)) {
        check(memory, record);
        hr__memory_destroy(&memory);
    } else if (count) {
        abort();
    }
    hr__record_close(&record);
    close(fd);
    return 0;
}
