/* Formats the lines of code of recorded stacks; see lines.h. */
#include "memory/report/lines.h"

#include <stdio.h>
#include <string.h>

/* Returns whether a frame is the framework's, or an interpreter's. */
static int is_of_framework(const char *file)
{
    static const char *const folders[] = {"/torch/", "/headrace/"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (strstr(file, folders[i]))
            return 1;
    return file[0] == '<' || !strcmp(file, "??");
}

const char *hr__line_text(const struct hr__record *record, const struct hr_memory_frame *frame,
                          char out[HR__LINE_BYTES])
{
    const char *function = hr__record_name(record, frame->function);
    if (frame->file)
        snprintf(out, HR__LINE_BYTES, "%s:%u %s", hr__record_name(record, frame->file), frame->line,
                 function);
    else
        snprintf(out, HR__LINE_BYTES, "%s", function);
    return out;
}

size_t hr__lines_of_user(const struct hr__record *record, uint32_t stack,
                         const struct hr_memory_frame **frames)
{
    size_t count = hr__record_stack(record, stack, frames), first = 0;
    while (first < count && (*frames)[first].file &&
           is_of_framework(hr__record_name(record, (*frames)[first].file)))
        first++;
    if (first == count)
        return count;
    *frames += first;
    return count - first;
}
