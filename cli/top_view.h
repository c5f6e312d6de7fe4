/* Formats a status with rates (top_rates.h) as the lines that headrace top shows. */
#ifndef HR_CLI_TOP_VIEW_H
#define HR_CLI_TOP_VIEW_H

#include <jansson.h>
#include <stddef.h>

struct top_line {
    const char *text; /* printable UTF-8, at most as many columns as requested */
    int is_title;     /* highlighted if possible */
};

struct top_view {
    struct top_line *lines;
    size_t count;
    char *memory; /* holds the texts */
};

/* Makes lines of at most `columns` (at least 60) columns. 80 columns show everything; more make
 * room for long names and bars. Returns 0; -1: out of memory. Pure. */
int top_view_make(struct top_view *out, const json_t *status, size_t columns);

/* Accepts an all-zero view. */
void top_view_clear(struct top_view *view);

#endif
