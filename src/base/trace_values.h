/*
 * Values in the JSON of traces (Chrome's Trace Event Format, as Kineto writes it), which differ
 * between versions: integers may be quoted, times integers or fractions, threads texts. A value of
 * another kind than expected is skipped.
 */
#ifndef HR_BASE_TRACE_VALUES_H
#define HR_BASE_TRACE_VALUES_H

#include "base/json_reader.h"

/* Reads an integer, which some writers quote; returns `otherwise` for any other value. */
int64_t hr__value_integer(struct hr__json_reader *json, int64_t otherwise);

/* Reads microseconds as nanoseconds. Returns 0 if the value is no time, or not within 73 years of
 * 0. */
int hr__value_time(struct hr__json_reader *json, int64_t *ns);

/* Reads the number of a process or thread; `otherwise`: it is neither number nor text. A text
 * becomes its hash, except "stream 7". */
int64_t hr__value_thread(struct hr__json_reader *json, int64_t otherwise);

/* Reads a text, and leaves out what does not fit. */
void hr__value_text(struct hr__json_reader *json, char *text, size_t capacity);

/* Begin an object or an array. Return 0 for any other value. */
int hr__value_object(struct hr__json_reader *json);
int hr__value_array(struct hr__json_reader *json);

#endif
