/*
 * Tables of printable text, filled once and shown both on a terminal and in a page.
 *
 * Cells are added one after another, row by row. Failure is sticky.
 */
#ifndef HR_REPORT_TABLE_H
#define HR_REPORT_TABLE_H

#include "base/draft.h"

#define HR__TABLE_COLUMNS 12

struct hr__table_column {
    const char *name;
    bool right; /* right-aligned: numbers */
};

struct hr__table {
    const char *title; /* shown in the head over the first column; "": a table of names and texts
                          without a head in a page */
    struct hr__table_column columns[HR__TABLE_COLUMNS]; /* the first one's name is not shown */
    int column_count;
    int flexible; /* column whose text wraps if space is short; nonzero in a table of names and
                     texts, without a head */
    char **cells; /* printable, row by row */
    size_t cell_count;
    double *bars; /* by row: 0..1, drawn if there is space; NaN: none */
    size_t bar_count;
    bool failed; /* out of memory */
};

/* `columns`: NULL-terminated names from the second column on; a leading '>' marks a column of
 * numbers. The first column wraps. */
void hr__table_begin(struct hr__table *table, const char *title, const char *const *columns);
/* Adds the next cell; any text is allowed. NULL: empty. */
void hr__table_cell(struct hr__table *table, const char *text);
void hr__table_cell_print(struct hr__table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Sets the bar of the row completed last. */
void hr__table_bar(struct hr__table *table, double share);
size_t hr__table_rows(const struct hr__table *table);
void hr__table_clear(struct hr__table *table);

/* Write the table as text of at most `columns` (at least 40) columns after an empty line, or as
 * HTML. A table without rows writes nothing. */
void hr__table_text(const struct hr__table *table, int columns, struct hr__draft *draft);
void hr__table_html(const struct hr__table *table, struct hr__draft *draft);

/* Writes text in lines of at most `columns` columns. Breaks at blanks, within a word only if it
 * does not fit on a line. Lines after the first are indented by `indent` < columns blanks. A
 * newline follows. */
void hr__text_wrap(const char *text, int columns, int indent, struct hr__draft *draft);

#endif
