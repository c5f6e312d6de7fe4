/* Records written by hand; see written.h. */
#include "written.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int written_set_up(void **state)
{
    static struct written w;
    w = (struct written){.path = "/tmp/headrace-memory-XXXXXX"};
    int fd = mkstemp(w.path);
    *state = &w;
    return fd < 0 || close(fd) || hr_memory_recorder_create(&w.recorder, w.path, NULL, NULL);
}

int written_tear_down(void **state)
{
    struct written *w = *state;
    hr_memory_recorder_destroy(&w->recorder);
    return unlink(w->path);
}

void written_put(struct written *w, enum hr_memory_kind kind, uint64_t time_ns, uint64_t address,
                 uint64_t bytes, uint32_t what)
{
    struct hr_memory_event event = {.time_ns = time_ns,
                                    .address = address,
                                    .bytes = bytes,
                                    .what = what,
                                    .kind = (uint8_t)kind,
                                    .phase = w->phase,
                                    .device = w->device,
                                    .flags = w->flags};
    hr_memory_record(w->recorder, &event);
}

void written_access(struct written *w, enum hr_memory_kind kind, uint64_t time_ns, uint64_t address,
                    uint32_t op)
{
    written_put(w, kind, time_ns, address, hr_memory_access(w->call, 0), op);
}

uint32_t written_name(struct written *w, const char *name)
{
    return hr_memory_name(w->recorder, name);
}

struct hr__record *written_done(struct written *w)
{
    struct hr__record *record;
    hr_memory_recorder_destroy(&w->recorder);
    assert_int_equal(hr__record_open(&record, w->path, NULL), 0);
    return record;
}

struct hr__memory *written_analyse(struct written *w, struct hr__record **record)
{
    struct hr__memory *memory;
    struct hr_error error = {0};
    *record = written_done(w);
    if (hr__memory_analyse(&memory, *record, &(struct hr__memory_wish){.points = 0}, &error))
        fail_msg("%s", error.message);
    return memory;
}
