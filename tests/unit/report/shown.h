/* Parses reports and checks their contents, for the tests of all kinds of reports. */
#ifndef HR_TEST_REPORT_SHOWN_H
#define HR_TEST_REPORT_SHOWN_H

#include <stddef.h>

/* A new empty file for a writer. */
void shown_make_path(char path[64]);

/* All of it, up to 8 MB, in static memory; the file is removed. */
const char *shown_read(const char *path);

/* Exactly as the file beside the tests; HEADRACE_REWRITE=1 writes it anew first. */
void shown_is_file(const char *text, const char *name);

/* Columns of the longest line; no line may end in a blank or steer the terminal. */
size_t shown_widest(const char *text);

#endif
