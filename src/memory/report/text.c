/*
 * Writes analyses of memory as text for a terminal: the sentence first, then tables no wider than
 * the terminal. Plain ASCII except for names, so that it reads the same in a log.
 */
#include "base/error.h"
#include "memory/report/tables.h"
#include "memory/report/words.h"

#include <errno.h>

static void paragraph(const struct hr__memory_view *v,
                      void (*say)(const struct hr__memory_view *, struct hr__draft *), int columns,
                      struct hr__draft *draft)
{
    struct hr__draft words = {.text = NULL};
    say(v, &words);
    draft->failed |= words.failed;
    if (words.length && !words.failed) {
        if (draft->length)
            hr__draft_put(draft, "\n");
        hr__text_wrap(words.text, columns, 0, draft);
    }
    hr__draft_clear(&words);
}

int hr_memory_write_text(const struct hr_memory *const *memories, size_t count, const char *path,
                         int columns, struct hr_error *error)
{
    struct hr__table tables[HR__MEMORY_TABLES];
    struct hr__draft draft = {.text = NULL};
    struct hr__memory_view *views;
    if (!memories || !count || !path)
        return hr__fail(error, -EINVAL, "a record and a path are needed to write it as text");
    columns = hr__text_width(columns);
    int code = hr__memory_views_open(&views, memories, count, error);
    if (code)
        return code;
    paragraph(&views[0], hr__memory_say_peak, columns, &draft);
    hr__memory_tables_make(tables, views, count, true);
    draft.failed |= hr__memory_tables_failed(tables);
    for (int i = 0; i < HR__MEMORY_TABLES && !draft.failed; i++) {
        hr__table_text(&tables[i], columns, &draft);
        if (i == HR__MEMORY_INTERVALS)
            paragraph(&views[0], hr__memory_say_intervals, columns, &draft);
    }
    code = hr__draft_write(&draft, path, error);
    hr__memory_tables_clear(tables);
    hr__draft_clear(&draft);
    hr__memory_views_close(&views);
    return code;
}
