/*
 * The record that an import makes: events in order of time, names, categories and notes. All
 * readers use it; see import.h.
 */
#include "memory/import/import.h"

#include "base/error.h"
#include "memory/record/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define NAME_BYTES 1024

int hr__import_no_memory(const struct hr__import *im)
{
    return hr__fail(im->error, -ENOMEM, "out of memory while importing %s", im->in->name);
}

int hr__import_begin(struct hr__import *im, const char *what, uint64_t start_unix_ns, int64_t pid)
{
    int code = hr_memory_recorder_create(&im->recorder, im->to, NULL, im->error);
    if (code)
        return code;
    /* However this process ends, it leaves no file behind. */
    if (im->folder) {
        im->fd = open(im->to, O_RDONLY | O_CLOEXEC);
        unlink(im->to);
        rmdir(im->folder);
    }
    hr__recorder_set_origin(im->recorder, pid, start_unix_ns);
    hr_memory_fact(im->recorder, "allocations", "imported");
    hr_memory_fact(im->recorder, "imported from", what);
    hr__import_note(im,
                    "This was imported from a %s, which tells when memory is allocated and "
                    "freed, not when it is used.",
                    what);
    return 0;
}

void hr__import_record(struct hr__import *im, struct hr_memory_event event)
{
    if (event.time_ns <= im->last_ns)
        event.time_ns = im->last_ns + 1;
    im->last_ns = event.time_ns;
    hr_memory_record(im->recorder, &event);
}

uint32_t hr__import_name(struct hr__import *im, const char *text)
{
    char safe[NAME_BYTES];
    if (!text || !*text)
        return 0;
    hr__printable(safe, sizeof safe, text);
    return hr_memory_name(im->recorder, safe);
}

enum hr_memory_category hr__import_category(int made, int freed, int is_same_pass)
{
    switch (made) {
    case HR_MEMORY_FORWARD:
        if (freed == HR_MEMORY_BACKWARD)
            return HR_MEMORY_ACTIVATION;
        return freed != HR__IMPORT_NEVER && is_same_pass ? HR_MEMORY_TEMPORARY : HR_MEMORY_UNKNOWN;
    case HR_MEMORY_BACKWARD:
        return freed == HR_MEMORY_BACKWARD && is_same_pass ? HR_MEMORY_TEMPORARY
                                                           : HR_MEMORY_GRADIENT;
    case HR_MEMORY_OPTIMIZER:
        return freed == HR__IMPORT_NEVER ? HR_MEMORY_OPTIMIZER_STATE : HR_MEMORY_TEMPORARY;
    default:
        return HR_MEMORY_UNKNOWN;
    }
}

void hr__import_note(struct hr__import *im, const char *format, ...)
{
    char name[32], text[NAME_BYTES], safe[NAME_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(name, sizeof name, "note import %u", im->notes++);
    hr__printable(safe, sizeof safe, text);
    hr_memory_fact(im->recorder, name, safe);
}
