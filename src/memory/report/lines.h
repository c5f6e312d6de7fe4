/* Lines of code of recorded stacks, as text. */
#ifndef HR_MEMORY_REPORT_LINES_H
#define HR_MEMORY_REPORT_LINES_H

#include "memory/record/record.h"

#define HR__LINE_BYTES 1024 /* what is longer is cut */

/* "train.py:12 forward", with its folder; of an operator its name. Returns out. */
const char *hr__line_text(const struct hr__record *record, const struct hr_memory_frame *frame,
                          char out[HR__LINE_BYTES]);

/* The frames of a stack from the innermost of the user's own on; where all are the framework's,
 * all. Returns how many. */
size_t hr__lines_of_user(const struct hr__record *record, uint32_t stack,
                         const struct hr_memory_frame **frames);

#endif
