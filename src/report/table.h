/*
 * Tables of printable text, filled once and shown twice: on a terminal and in a page.
 *
 * Cells are added one after another, row by row. Failure is sticky.
 */
#ifndef HR_REPORT_TABLE_H
#define HR_REPORT_TABLE_H

#include "report/draft.h"

#define HR__TABLE_COLUMNS 12

struct hr__table_column {
    const char *name;
    bool right; /* numbers */
};

struct hr__table {
    const char *title; /* stands in the head, over the first column; of a table of names
                          and texts in a page "": there is no head */
    struct hr__table_column columns[HR__TABLE_COLUMNS]; /* the first one's name is not shown */
    int column_count;
    int flexible; /* the column whose text wraps where there is not room for all; not the
                     first: a table of names and texts, without a head */
    char **cells; /* printable; by row */
    size_t cell_count, capacity;
    double *bars; /* by row: 0..1, drawn where there is room; NaN: none */
    size_t bar_capacity;
    bool failed; /* out of memory */
};

/* `columns`: names from the second column on, NULL-terminated; one that begins with '>'
 * is of numbers. The first column wraps. */
void hr__table_begin(struct hr__table *table, const char *title, const char *const *columns);
/* The next cell, of text that may hold anything; NULL: empty. */
void hr__table_cell(struct hr__table *table, const char *text);
void hr__table_cell_print(struct hr__table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A bar for the row whose cells were last completed. */
void hr__table_bar(struct hr__table *table, double share);
size_t hr__table_rows(const struct hr__table *table);
void hr__table_clear(struct hr__table *table);

/* As text of at most `columns` (at least 40) columns, after an empty line; as HTML.
 * Nothing where there are no rows. */
void hr__table_text(const struct hr__table *table, int columns, struct hr__draft *draft);
void hr__table_html(const struct hr__table *table, struct hr__draft *draft);

/* Text of at most `columns` columns: broken at blanks, within a word only where it does
 * not fit a line; lines but the first begin with `indent` < columns blanks. A newline ends
 * it. */
void hr__text_wrap(const char *text, int columns, int indent, struct hr__draft *draft);

#endif
