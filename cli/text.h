/* Text output: numbers with units, escaping, columns. */
#ifndef HR_CLI_TEXT_H
#define HR_CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Size of the buffers of text_count and text_bytes. */
#define TEXT_NUMBER 32

/* Writes "1,234,567". Returns `buffer`. */
const char *text_count(char buffer[TEXT_NUMBER], uint64_t value);

/* Writes three digits and a binary unit: "512 B", "1.5 KiB", "120 MiB". Returns `buffer`. */
const char *text_bytes(char buffer[TEXT_NUMBER], uint64_t bytes);

/* Returns a copy with control bytes and bytes that are not UTF-8 written as \xHH, safe for
 * terminals and JSON. The caller frees it. NULL: out of memory. */
char *text_escape(const char *text);

/* Returns the columns of an escaped text: the number of its code points. */
size_t text_columns(const char *text);

/* Prints an escaped text in exactly `columns` columns (3 or more), cut with "..." or padded. */
void text_print_cell(const char *text, size_t columns);
void text_put_cell(FILE *out, const char *text, size_t columns);

/* Reads a whole file as text of *length bytes, zero-terminated. The caller frees it. NULL: see
 * errno. */
char *text_read_file(const char *path, size_t *length);

/* Returns the columns for reports on standard output: COLUMNS, or the terminal's; 60 to 120. */
int text_width(void);

#endif
