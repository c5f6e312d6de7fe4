/* Formats the lines of code of recorded stacks. */
#ifndef HR_MEMORY_REPORT_LINES_H
#define HR_MEMORY_REPORT_LINES_H

#include "memory/record/record.h"

#define HR__LINE_BYTES 1024 /* longer text is cut */

/* Writes "train.py:12 forward" with its folder, or an operator's name. Returns out. */
const char *hr__line_text(const struct hr__record *record, const struct hr_memory_frame *frame,
                          char out[HR__LINE_BYTES]);

/* Returns the frames of a stack from the user's innermost one outwards; all frames if all are the
 * framework's. Returns their number. */
size_t hr__lines_of_user(const struct hr__record *record, uint32_t stack,
                         const struct hr_memory_frame **frames);

#endif
