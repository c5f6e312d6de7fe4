/*
 * A growing text, and functions that escape untrusted text (file names, commands) for a terminal,
 * HTML or JSON.
 *
 * Failure is sticky: after the first one nothing is added, and the caller checks once at the end.
 */
#ifndef HR_BASE_DRAFT_H
#define HR_BASE_DRAFT_H

#include <headrace/base.h>

#include <stdbool.h>

struct hr__draft {
    char *text; /* zero-terminated; NULL while empty */
    size_t length;
    bool failed; /* out of memory */
};

void hr__draft_add(struct hr__draft *draft, const char *text, size_t length);
void hr__draft_put(struct hr__draft *draft, const char *text);
/* Use no floating-point conversions: they follow the locale. */
void hr__draft_print(struct hr__draft *draft, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void hr__draft_repeat(struct hr__draft *draft, char c, size_t times);

/* Adds untrusted text for a terminal, like hr__printable. */
void hr__draft_plain(struct hr__draft *draft, const char *text);
/* Adds untrusted text in HTML, between tags or within a quoted attribute. */
void hr__draft_html(struct hr__draft *draft, const char *text);
/* Likewise, but keeps line breaks. */
void hr__draft_lines_html(struct hr__draft *draft, const char *text);
/* Adds untrusted text as a quoted JSON string that is safe within an HTML script element. */
void hr__draft_json(struct hr__draft *draft, const char *text);

/* Writes the text with hr__write_file; -ENOMEM if the draft failed. */
HR_NODISCARD int hr__draft_write(const struct hr__draft *draft, const char *path,
                                 struct hr_error *error);
/* Hands over the text: the caller frees *text with hr__free, and *draft is empty. Returns -ENOMEM,
 * with a message, if the draft failed. */
HR_NODISCARD int hr__draft_finish(struct hr__draft *draft, char **text, struct hr_error *error);
void hr__draft_clear(struct hr__draft *draft);

/* Returns the terminal columns of printable text: its code points. */
size_t hr__text_columns(const char *text, size_t length);
/* Returns the width of a report on a terminal of `columns` columns: 40 to 160, because longer lines
 * are hard to follow. */
int hr__text_width(int columns);

#endif
