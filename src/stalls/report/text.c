/*
 * Writes a result as text for a terminal: the sentence first, then tables no wider than the
 * terminal. Plain ASCII except for names, so that it reads the same in a log.
 */
#include "base/error.h"
#include "stalls/report/tables.h"

#include <errno.h>
#include <string.h>

/* Returns whether a terminal shows a table; the others are in the page and in stalls.json. */
static bool is_shown(int table)
{
    return table != HR__TABLE_SEGMENTS;
}

int hr_stalls_write_text(const struct hr_stalls *result, const char *path, int columns,
                         struct hr_error *error)
{
    struct hr__table tables[HR__TABLES];
    struct hr__draft sentence = {.text = NULL}, draft = {.text = NULL};
    if (!result || !path)
        return hr__fail(error, -EINVAL, "a result and a path are needed to write it as text");
    columns = hr__text_width(columns);
    hr__draft_plain(&sentence, result->sentence ? result->sentence : "");
    if (!sentence.failed)
        hr__text_wrap(sentence.text, columns, 0, &draft);
    draft.failed |= sentence.failed;
    hr__tables_make(tables, result);
    draft.failed |= hr__tables_failed(tables);
    for (int i = 0; i < HR__TABLES && !draft.failed; i++)
        if (is_shown(i))
            hr__table_text(&tables[i], columns, &draft);
    int r = hr__draft_write(&draft, path, error);
    hr__tables_clear(tables);
    hr__draft_clear(&sentence);
    hr__draft_clear(&draft);
    return r;
}
