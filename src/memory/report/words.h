/*
 * Describes an analysis of memory in sentences, for the page and the text: plain text, printable
 * whatever names the record has.
 */
#ifndef HR_MEMORY_REPORT_WORDS_H
#define HR_MEMORY_REPORT_WORDS_H

#include "memory/report/view.h"

/* Writes when the peak is, how large it is, what it holds, and what would help: two or three
 * sentences. */
void hr__memory_say_peak(const struct hr__memory_view *view, struct hr__draft *draft);

/* Writes how many intervals are too short for swapping, at which bandwidths; nothing if there are
 * no intervals. */
void hr__memory_say_intervals(const struct hr__memory_view *view, struct hr__draft *draft);

/* Return what to do, and what to know beforehand. */
const char *hr__memory_remedy(enum hr__advice_kind kind);
const char *hr__memory_caveat(enum hr__advice_kind kind);

#endif
