/* What headrace top shows: a status with rates (top_rates.h) as lines of text. */
#ifndef HR_CLI_TOP_VIEW_H
#define HR_CLI_TOP_VIEW_H

#include <jansson.h>
#include <stddef.h>

struct top_line {
    const char *text; /* printable UTF-8, at most as many columns as were asked for */
    int is_title;     /* stands out, where that is possible */
};

struct top_view {
    struct top_line *lines;
    size_t count;
    char *memory; /* of the texts */
};

/* Lines of at most `columns` (at least 60) columns, in which all that is told has its place in
 * 80; more make room for names and bars. Returns 0, -1: out of memory. Pure. */
int top_view_make(struct top_view *out, const json_t *status, size_t columns);

/* Accepts one that was not made, all zero. */
void top_view_clear(struct top_view *view);

#endif
