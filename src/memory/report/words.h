/*
 * What an analysis of memory says, in sentences: plain text, printable whatever the names in the
 * record are. The page and the text share them.
 */
#ifndef HR_MEMORY_REPORT_WORDS_H
#define HR_MEMORY_REPORT_WORDS_H

#include "memory/report/view.h"

/* When the peak is, how much it is and of what, and what would help: two or three sentences. */
void hr__memory_say_peak(const struct hr__memory_view *view, struct hr__draft *draft);

/* How many intervals are too short for swapping, and by which bandwidths; nothing where there
 * are none. */
void hr__memory_say_intervals(const struct hr__memory_view *view, struct hr__draft *draft);

/* "parameters", "activations", ...: of enum hr_memory_category. */
const char *hr__memory_plural(int category);

/* "cpu", "cuda:0", "host memory of libraries": by its name in the JSON, which may be returned. */
const char *hr__memory_device(const char *name);

/* What to do, and what to know before: of an advice's kind, as in the JSON; NULL: no such kind. */
const char *hr__memory_remedy(const char *kind);
const char *hr__memory_caveat(const char *kind);

#endif
