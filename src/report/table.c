/* Tables: their cells, and their layout on a terminal and in HTML; see table.h. */
#include "report/table.h"

#include "base/memory.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define GAP          2  /* blanks between columns, and before the first */
#define NARROWEST    12 /* least width of a wrapped column */
#define SHORT        16 /* in a page: cells up to this width do not wrap */
#define BAR_SHORTEST 10
#define BAR_LONGEST  32

void hr__table_begin(struct hr__table *t, const char *title, const char *const *columns)
{
    *t = (struct hr__table){.title = title, .column_count = 1};
    for (; *columns && t->column_count < HR__TABLE_COLUMNS; columns++) {
        bool right = **columns == '>';
        t->columns[t->column_count++] = (struct hr__table_column){*columns + right, right};
    }
}

void hr__table_cell(struct hr__table *t, const char *text)
{
    struct hr__draft cell = {.text = NULL};
    hr__draft_plain(&cell, text ? text : "");
    t->failed |= cell.failed;
    t->failed = t->failed || hr__reserve(HR__TAG_REPORT, &t->cells, t->cell_count + 1);
    char *copy = t->failed ? NULL : hr__strdup(HR__TAG_REPORT, cell.text);
    hr__draft_clear(&cell);
    if (copy)
        t->cells[t->cell_count++] = copy;
    t->failed |= !copy;
}

void hr__table_cell_print(struct hr__table *t, const char *format, ...)
{
    char text[512]; /* longer text is cut: callers print text of limited length */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    hr__table_cell(t, text);
}

void hr__table_bar(struct hr__table *t, double share)
{
    size_t rows = hr__table_rows(t);
    t->failed = t->failed || hr__reserve(HR__TAG_REPORT, &t->bars, rows);
    if (t->failed || !rows)
        return;
    while (t->bar_count < rows)
        t->bars[t->bar_count++] = NAN;
    t->bars[rows - 1] = share;
}

size_t hr__table_rows(const struct hr__table *t)
{
    return t->cell_count / (size_t)t->column_count;
}

void hr__table_clear(struct hr__table *t)
{
    for (size_t i = 0; i < t->cell_count; i++)
        hr__free(t->cells[i]);
    hr__free(t->cells);
    hr__free(t->bars);
    *t = (struct hr__table){.title = NULL};
}

/* ---- on a terminal ---- */

/* Returns the bytes of the first line of `text`, at most `width` columns; *next is the rest. */
static size_t first_line(const char *text, size_t width, const char **next)
{
    size_t at = 0, columns = 0, blank = 0;
    bool begun = false; /* after the blanks of the indentation */
    while (text[at] && columns <= width) {
        /* Keep a number and its % together. */
        if (text[at] == ' ' && begun && text[at - 1] != ' ' && text[at + 1] != '%')
            blank = at;
        begun |= text[at] != ' ';
        if (columns == width)
            break;
        do
            at++;
        while (((unsigned char)text[at] & 0xC0) == 0x80);
        columns++;
    }
    size_t end = text[at] && blank ? blank : at;
    *next = text + end;
    while (**next == ' ')
        (*next)++;
    return end;
}

void hr__text_wrap(const char *text, int columns, int indent, struct hr__draft *draft)
{
    size_t width = (size_t)columns;
    do {
        const char *line = text;
        hr__draft_add(draft, line, first_line(line, width, &text));
        hr__draft_put(draft, "\n");
        if (*text)
            hr__draft_repeat(draft, ' ', (size_t)indent);
        width = (size_t)(columns - indent);
    } while (*text);
}

/* The layout of a table within the available columns. */
struct table_layout {
    int shown; /* columns of the table shown */
    size_t width[HR__TABLE_COLUMNS];
    size_t bar; /* 0: no space for one */
};

static const char *head_of(const struct hr__table *t, int column)
{
    return column ? t->columns[column].name : t->title;
}

static size_t total_of(const struct hr__table *t, const struct table_layout *l)
{
    size_t total = 0;
    for (int c = 0; c < l->shown; c++)
        total += GAP + l->width[c];
    return total;
}

static struct table_layout lay_out(const struct hr__table *t, size_t columns)
{
    struct table_layout l = {.shown = t->column_count};
    for (int c = 0; c < t->column_count; c++) {
        size_t head = t->flexible ? 0 : hr__text_columns(head_of(t, c), strlen(head_of(t, c)));
        l.width[c] = c || head < GAP ? head : head - GAP; /* the title is not indented */
        for (size_t i = (size_t)c; i < t->cell_count; i += (size_t)t->column_count) {
            size_t width = hr__text_columns(t->cells[i], strlen(t->cells[i]));
            l.width[c] = width > l.width[c] ? width : l.width[c];
        }
    }
    size_t *wraps = &l.width[t->flexible], natural = *wraps;
    size_t least = natural < NARROWEST ? natural : NARROWEST;
    while (l.shown > t->flexible + 1 && total_of(t, &l) - natural + least > columns)
        l.shown--;
    if (total_of(t, &l) > columns)
        *wraps = columns > total_of(t, &l) - natural + least ? columns - (total_of(t, &l) - natural)
                                                             : least;
    if (t->bars && total_of(t, &l) + GAP + BAR_SHORTEST <= columns) {
        l.bar = columns - total_of(t, &l) - GAP;
        l.bar = l.bar > BAR_LONGEST ? BAR_LONGEST : l.bar;
    }
    return l;
}

static void end_line(struct hr__draft *d)
{
    while (d->length && d->text[d->length - 1] == ' ')
        d->text[--d->length] = 0;
    hr__draft_put(d, "\n");
}

static void print_cell(const struct hr__table *t, int column, const char *text, size_t length,
                       size_t width, struct hr__draft *d)
{
    size_t used = hr__text_columns(text, length);
    size_t pad = width > used ? width - used : 0;
    if (t->columns[column].right)
        hr__draft_repeat(d, ' ', pad);
    hr__draft_add(d, text, length);
    if (!t->columns[column].right)
        hr__draft_repeat(d, ' ', pad);
}

static void print_bar(const struct table_layout *l, double bar, struct hr__draft *d)
{
    if (!l->bar || isnan(bar))
        return;
    double share = bar < 0 ? 0 : bar > 1 ? 1 : bar;
    hr__draft_repeat(d, ' ', GAP);
    /* Draw any share that does not print as 0.0 %. */
    if (share >= 0.0005)
        hr__draft_repeat(d, '#', (size_t)ceil(share * (double)l->bar - 1e-9));
}

/* Prints one row; its flexible cell may take several lines. */
static void print_row(const struct hr__table *t, const struct table_layout *l,
                      const char *const *cells, double bar, struct hr__draft *d)
{
    const char *rest = cells[t->flexible];
    bool head = cells[0] == t->title;
    for (bool first = true; first || *rest; first = false) {
        for (int c = 0; c < l->shown; c++) {
            size_t gap = c == 0 && head ? 0 : GAP;
            size_t width = l->width[c] + GAP - gap;
            hr__draft_repeat(d, ' ', gap);
            if (c == t->flexible) {
                /* Indent the first column's continuation lines, to set them off from the
                 * next row. */
                size_t inset = !first && !c && width > NARROWEST / 2 ? GAP : 0;
                const char *line = rest;
                size_t n = first_line(line, width - inset, &rest);
                hr__draft_repeat(d, ' ', inset);
                print_cell(t, c, line, n, width - inset, d);
            } else {
                print_cell(t, c, first ? cells[c] : "", first ? strlen(cells[c]) : 0, width, d);
            }
        }
        if (first)
            print_bar(l, bar, d);
        end_line(d);
    }
}

void hr__table_text(const struct hr__table *t, int columns, struct hr__draft *draft)
{
    const char *heads[HR__TABLE_COLUMNS];
    size_t rows = hr__table_rows(t);
    if (!rows)
        return;
    columns = columns < 40 ? 40 : columns;
    struct table_layout l = lay_out(t, (size_t)columns);
    for (int c = 0; c < t->column_count; c++)
        heads[c] = head_of(t, c);
    hr__draft_put(draft, "\n");
    if (t->flexible) /* names and texts: the title has its own line */
        hr__text_wrap(t->title, columns, 0, draft);
    else
        print_row(t, &l, heads, NAN, draft);
    for (size_t i = 0; i < rows; i++)
        print_row(t, &l, (const char *const *)t->cells + i * (size_t)t->column_count,
                  i < t->bar_count ? t->bars[i] : NAN, draft);
}

/* ---- in a page ---- */

static void html_cell(const struct hr__table *t, int column, const char *tag, const char *text,
                      struct hr__draft *d)
{
    size_t indent = strspn(text, " ");
    bool is_short =
        column && *tag == 't' && tag[1] == 'd' && hr__text_columns(text, strlen(text)) <= SHORT;
    const char *kind = t->columns[column].right ? "number"
                       : indent                 ? "indented"
                       : is_short               ? "short"
                                                : NULL;
    hr__draft_print(d, "<%s", tag);
    if (kind)
        hr__draft_print(d, " class=\"%s\"", kind);
    if (*tag == 't' && tag[1] == 'h')
        hr__draft_print(d, " scope=\"%s\"", text == head_of(t, column) ? "col" : "row");
    hr__draft_put(d, ">");
    hr__draft_html(d, text + indent);
    hr__draft_print(d, "</%s>", tag);
}

void hr__table_html(const struct hr__table *t, struct hr__draft *d)
{
    size_t rows = hr__table_rows(t);
    if (!rows)
        return;
    hr__draft_put(d, "<div class=\"scroll\"><table>\n");
    if (!t->flexible || *t->title) {
        hr__draft_put(d, "<thead><tr>");
        if (t->flexible) /* names and texts: one title for all columns */
            hr__draft_print(d, "<th scope=\"colgroup\" colspan=\"%d\">%s</th>", t->column_count,
                            t->title);
        for (int c = 0; c < t->column_count && !t->flexible; c++)
            html_cell(t, c, "th", head_of(t, c), d);
        hr__draft_put(d, "</tr></thead>\n");
    }
    hr__draft_put(d, "<tbody>\n");
    for (size_t i = 0; i < rows; i++) {
        hr__draft_put(d, "<tr>");
        for (int c = 0; c < t->column_count; c++)
            html_cell(t, c, c || t->column_count == 1 ? "td" : "th",
                      t->cells[i * (size_t)t->column_count + (size_t)c], d);
        hr__draft_put(d, "</tr>\n");
    }
    hr__draft_put(d, "</tbody></table></div>\n");
}
