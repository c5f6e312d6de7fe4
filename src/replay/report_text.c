/* A report on a replay as text. The identity comes first: it says how far to trust the rest. */
#include "replay/report.h"

#include <string.h>

static void add_paragraph(struct hr__draft *draft, struct hr__draft *words, int indent, int columns)
{
    hr__text_wrap(words->text ? words->text : "", columns, indent, draft);
    draft->failed |= words->failed;
    hr__draft_clear(words);
}

static void add_table(struct hr__draft *draft, enum hr__replay_table which,
                      const struct hr__report *r, int columns)
{
    struct hr__table table;
    hr__report_table(&table, which, r, false);
    hr__table_text(&table, columns, draft);
    draft->failed |= table.failed;
    hr__table_clear(&table);
}

/* What is left after each what-if, and what it assumes. */
static void add_assumptions(struct hr__draft *draft, const struct hr__report *r, int columns)
{
    hr__draft_put(draft, r->count ? "\n" : "");
    for (size_t i = 0; i < r->count; i++) {
        struct hr__draft line = {.text = NULL};
        hr__report_after(&line, &r->outcomes[i]);
        hr__draft_put(&line, " ");
        hr__report_basis(&line, r->outcomes[i].what);
        add_paragraph(draft, &line, 2, columns);
    }
}

static void add_untried(struct hr__draft *draft, const struct hr__report *r, int columns)
{
    hr__draft_put(draft, r->untried_count ? "\nNot tried:\n" : "");
    for (size_t i = 0; i < r->untried_count; i++) {
        struct hr__draft line = {.text = NULL};
        if (hr__report_untried(&line, r, i))
            add_paragraph(draft, &line, 2, columns);
    }
}

static void add_notes(struct hr__draft *draft, const struct hr__report *r, int columns)
{
    char *line = r->notes.text;
    hr__draft_put(draft, "\n");
    for (char *end; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        hr__text_wrap(line, columns, 2, draft);
        *end = '\n';
    }
}

int hr_replay_report_text(const struct hr_replay *replay, const char *const *what_ifs, size_t count,
                          int columns, char **out, struct hr_error *error)
{
    struct hr__report report;
    struct hr__draft draft = {.text = NULL}, words = {.text = NULL};
    int width = hr__text_width(columns);
    *out = NULL;
    int code = hr__report_make(&report, replay, what_ifs, count, error);
    if (!code) {
        hr__report_identity(&words, &report);
        add_paragraph(&draft, &words, 0, width);
        hr__draft_put(&draft, "\n");
        hr__report_sentence(&words, &report);
        add_paragraph(&draft, &words, 0, width);
        for (int t = 0; t < HR__REPORT_TABLES; t++)
            add_table(&draft, (enum hr__replay_table)t, &report, width);
        add_assumptions(&draft, &report, width);
        add_untried(&draft, &report, width);
        add_notes(&draft, &report, width);
        code = hr__draft_finish(&draft, out, error);
    }
    hr__draft_clear(&draft);
    hr__report_clear(&report);
    return code;
}
