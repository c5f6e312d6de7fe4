/* A memory record of any bytes is read to its end, or refused with a message. */
#include "memory/record/record.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hr__record *r;
    struct hr_error error = {0};
    const struct hr_memory_event *events;
    const struct hr_memory_frame *frames;
    char path[64];
    int fd = memfd_create("record", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (hr__record_open(&r, path, &error)) {
        if (r || !error.message[0])
            abort();
    } else {
        for (int n; (n = hr__record_next(r, &events, &error)) > 0;)
            for (int i = 0; i < n; i++)
                if (!events[i].kind)
                    abort();
        for (uint32_t id = 0; id < 16; id++) {
            if (!hr__record_name(r, id))
                abort();
            hr__record_stack(r, id, &frames);
        }
        const struct hr_memory_ran *ran;
        for (uint32_t call = 0; call < 64; call++)
            for (uint32_t device = 0; device < 4; device++)
                if ((ran = hr__record_ran(r, device, call)) &&
                    (ran->call != call || ran->device != device || ran->begin_ns > ran->end_ns))
                    abort();
        hr__record_fact(r, "device");
        hr__record_close(&r);
    }
    close(fd);
    return 0;
}
