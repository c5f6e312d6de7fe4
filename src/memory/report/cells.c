/* Adds cells to the tables of a report on memory; see tables.h. */
#include "memory/report/tables.h"

#include "memory/report/lines.h"
#include "report/format.h"

#include <string.h>

void hr__memory_cell_bytes(struct hr__table *t, double bytes)
{
    char text[HR__FORMAT_BYTES];
    hr__table_cell(t, hr__format_bytes(text, bytes));
}

void hr__memory_cell_ns(struct hr__table *t, double ns)
{
    char text[HR__FORMAT_BYTES];
    hr__table_cell(t, hr__format_time(text, ns * 1e-9));
}

void hr__memory_cell_count(struct hr__table *t, double count)
{
    char text[HR__FORMAT_BYTES];
    hr__table_cell(t, hr__format_fixed(text, count, 0, true));
}

void hr__memory_cell_share(struct hr__table *t, double share)
{
    char text[HR__FORMAT_BYTES];
    hr__table_cell(t, hr__format_share(text, share));
}

void hr__memory_cell_draft(struct hr__table *t, struct hr__draft *d)
{
    t->failed |= d->failed;
    hr__table_cell(t, d->text);
    hr__draft_clear(d);
}

/* Returns a line without the folders of its file, except the last `kept`. */
static const char *without_folders(const char *line, int kept)
{
    const char *name = line + strcspn(line, " ");
    while (name > line && (name[-1] != '/' || kept-- > 0))
        name--;
    return name;
}

void hr__memory_cell_block(struct hr__table *t, const char *begin,
                           const struct hr__view_block *block, bool brief)
{
    struct hr__draft d = {.text = NULL};
    char line[HR__LINE_BYTES];
    hr__draft_put(&d, begin);
    hr__view_describe(block, &d);
    if (block->line) {
        hr__line_text(block->record, block->line, line);
        hr__draft_put(&d, ", ");
        hr__draft_put(&d, without_folders(line, brief ? 0 : 2));
    }
    hr__memory_cell_draft(t, &d);
}
