/*
 * An analysis of memory in sentences, for the page and the text: plain text, printable whatever
 * names the record has.
 */
#ifndef HR_MEMORY_REPORT_WORDS_H
#define HR_MEMORY_REPORT_WORDS_H

#include "memory/report/view.h"

/* When the peak is, how much it is and of what, and what would help: two or three sentences. */
void hr__memory_say_peak(const struct hr__memory_view *view, struct hr__draft *draft);

/* How many intervals are too short for swapping, and by which bandwidths; nothing where there
 * are none. */
void hr__memory_say_intervals(const struct hr__memory_view *view, struct hr__draft *draft);

/* What to do, and what to know before. */
const char *hr__memory_remedy(enum hr__advice_kind kind);
const char *hr__memory_caveat(enum hr__advice_kind kind);

#endif
