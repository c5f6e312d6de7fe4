/* Text for people: units, escapes, columns. */
#ifndef HR_CLI_TEXT_H
#define HR_CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Room for what text_count and text_bytes write. */
#define TEXT_NUMBER 32

/* "1,234,567"; returns buffer. */
const char *text_count(char buffer[TEXT_NUMBER], uint64_t value);

/* "512 B", "1.5 KiB", "120 MiB": three digits and a binary unit; returns buffer. */
const char *text_bytes(char buffer[TEXT_NUMBER], uint64_t bytes);

/* A copy in which control bytes, and bytes that are not UTF-8, are \xHH: fit
 * for a terminal and for JSON. The caller frees it; NULL: out of memory. */
char *text_escape(const char *text);

/* Columns of escaped text: its code points. */
size_t text_columns(const char *text);

/* Prints escaped text in exactly `columns` columns (3 or more), cut with "..." or padded. */
void text_print_cell(const char *text, size_t columns);
void text_put_cell(FILE *out, const char *text, size_t columns);

/* Columns for reports on standard output: COLUMNS, or the terminal's, from 60 to 120. */
int text_width(void);

#endif
