/* Any bytes are refused with a message and leave no file, or become a record that can be read. */
#include "memory/import/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__input in;
    struct hr__record *record;
    struct hr_error error = {0};
    const struct hr_memory_event *events;
    uint64_t last_ns = 0;
    char path[64];
    int n;
    snprintf(path, sizeof path, "/dev/shm/headrace-fuzz-import-%d", (int)getpid());
    hr__input_memory(&in, "input", data, size);
    if (hr__import_read(&in, path, &error)) {
        if (!error.message[0] || !access(path, F_OK))
            abort();
        return 0;
    }
    if (hr__record_open(&record, path, &error))
        abort();
    while ((n = hr__record_next(record, &events, &error)) > 0)
        for (int i = 0; i < n; i++) {
            if (events[i].time_ns <= last_ns)
                abort();
            last_ns = events[i].time_ns;
        }
    if (n || hr__record_damage(record)->extents)
        abort();
    hr__record_close(&record);
    unlink(path);
    return 0;
}
