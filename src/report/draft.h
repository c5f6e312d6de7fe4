/*
 * A growing text, and functions that escape untrusted text (file names, commands) for a
 * terminal, HTML or JSON.
 *
 * Failure is sticky: after the first one nothing is added, and the caller checks once, at the
 * end. Numbers do not depend on the program's locale.
 */
#ifndef HR_REPORT_DRAFT_H
#define HR_REPORT_DRAFT_H

#include <headrace/base.h>

#include <stdbool.h>

struct hr__draft {
    char *text; /* zero-terminated; NULL while empty */
    size_t length, capacity;
    bool failed; /* out of memory */
};

void hr__draft_add(struct hr__draft *draft, const char *text, size_t length);
void hr__draft_put(struct hr__draft *draft, const char *text);
/* No floating-point conversions: they follow the locale. */
void hr__draft_print(struct hr__draft *draft, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void hr__draft_repeat(struct hr__draft *draft, char c, size_t times);

/* Outside text for a terminal: as hr__printable. */
void hr__draft_plain(struct hr__draft *draft, const char *text);
/* Outside text in HTML, between tags or within a quoted attribute. */
void hr__draft_html(struct hr__draft *draft, const char *text);
/* The same for a text of several lines, which keeps them. */
void hr__draft_lines_html(struct hr__draft *draft, const char *text);
/* Outside text as a JSON string with its quotes, which HTML's script elements may hold. */
void hr__draft_json(struct hr__draft *draft, const char *text);
/* A JSON number of at most `decimals` (0..9) decimals; null for what is not a number, or
 * beyond 9e18. */
void hr__draft_number(struct hr__draft *draft, double value, int decimals);

/* Writes it as hr__write_file does; -ENOMEM where it failed. */
HR_NODISCARD int hr__draft_write(const struct hr__draft *draft, const char *path,
                                 struct hr_error *error);
/* *text is the caller's, freed with hr__free, and *draft empty; or -ENOMEM, with a message. */
HR_NODISCARD int hr__draft_finish(struct hr__draft *draft, char **text, struct hr_error *error);
void hr__draft_clear(struct hr__draft *draft);

/* Columns of printable text on a terminal: its code points. */
size_t hr__text_columns(const char *text, size_t length);
/* What a report is as wide as on a terminal of so many columns: 40 to 160; beyond, the eye loses
 * the line. */
int hr__text_width(int columns);

#endif
