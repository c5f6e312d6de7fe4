/* Parses reports and checks their contents, for the tests of all kinds of reports. */
#ifndef HR_TEST_REPORT_SHOWN_H
#define HR_TEST_REPORT_SHOWN_H

#include <stddef.h>

/* Makes a new empty file for a writer. */
void shown_make_path(char path[64]);

/* Returns its contents, up to 8 MB, in static memory; removes the file. */
const char *shown_read(const char *path);

/* Compares with the file beside the tests; HEADRACE_REWRITE=1 writes it first. */
void shown_is_file(const char *text, const char *name);

/* Returns the columns of the longest line; no line may end in a blank or contain control codes. */
size_t shown_widest(const char *text);

#endif
