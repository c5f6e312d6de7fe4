/*
 * Writes the differences of two records as text: a sentence, then tables of the peaks, of the
 * groups of blocks that changed, and of iterations and intervals.
 */
#include "base/error.h"
#include "memory/report/opened.h"
#include "memory/report/tables.h"
#include "report/format.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#define GROUPS_SHOWN 20
#define SAME         0.0005 /* share of a peak that prints as 0.0 % */

/* "+1.50 MiB", "-12 B", "0 B". */
static void cell_change(struct hr__table *t, double change)
{
    char text[HR__FORMAT_BYTES];
    hr__table_cell_print(t, "%s%s", change > 0 ? "+" : "", hr__format_bytes(text, change));
}

static void cell_growth(struct hr__table *t, double was, double is)
{
    char text[HR__FORMAT_BYTES];
    if (was > 0)
        hr__table_cell_print(t, "%s%s", is > was ? "+" : "",
                             hr__format_share(text, (is - was) / was));
    else
        hr__table_cell(t, is > 0 ? "new" : "-");
}

static void bytes_row(struct hr__table *t, const char *name, double was, double is)
{
    hr__table_cell(t, name);
    hr__memory_cell_bytes(t, was);
    hr__memory_cell_bytes(t, is);
    cell_change(t, is - was);
    cell_growth(t, was, is);
}

static void say_device(const struct hr__compared_device *device, struct hr__draft *d)
{
    double was = (double)device->peak_bytes[0], is = (double)device->peak_bytes[1];
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES], share[HR__FORMAT_BYTES];
    char name[HR__VIEW_DEVICE_BYTES];
    hr__draft_put(d, d->length ? " The peak of " : "The peak of ");
    hr__draft_plain(d, hr__view_device(device->device, name));
    hr__format_bytes(a, was);
    hr__format_bytes(b, is);
    if (!(was > 0)) {
        hr__draft_print(d, " is %s; nothing was held there before.", b);
        return;
    }
    hr__format_share(share, fabs(device->growth));
    if (was == is)
        hr__draft_print(d, " is the same, %s.", a);
    else if (fabs(device->growth) < SAME)
        hr__draft_print(d, " is about the same: %s before, %s now.", a, b);
    else
        hr__draft_print(d, " is %s %s: %s before, %s now.", share,
                        device->growth > 0 ? "more" : "less", a, b);
}

static void show(struct hr__table *t, int columns, struct hr__draft *d)
{
    d->failed |= t->failed;
    if (!d->failed)
        hr__table_text(t, columns, d);
    hr__table_clear(t);
}

static void peak_table(const struct hr__compared_device *device, int columns, struct hr__draft *d)
{
    static const char *const heads[] = {">before", ">after", ">change", "> ", NULL};
    char name[HR__VIEW_DEVICE_BYTES], title[64];
    struct hr__table t;
    snprintf(title, sizeof title, "At the peak of %s", hr__view_device(device->device, name));
    hr__table_begin(&t, title, heads);
    for (int c = 0; c < HR__CATEGORIES; c++)
        if (device->peak[0][c] || device->peak[1][c])
            bytes_row(&t, hr__category_plural(c), (double)device->peak[0][c],
                      (double)device->peak[1][c]);
    bytes_row(&t, "all", (double)device->peak_bytes[0], (double)device->peak_bytes[1]);
    show(&t, columns, d);
}

static void group_row(struct hr__table *t, const struct hr__compared_group *g,
                      const struct hr__record *record)
{
    struct hr__view_block block = {
        .record = record, .category = g->category, .what = g->what, .op = g->op};
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES];
    if (!hr__record_stack(record, g->stack, &block.line))
        block.line = NULL;
    hr__memory_cell_block(t, "", &block, true);
    hr__table_cell(t, hr__category_name(g->category));
    if (g->blocks[0] == g->blocks[1])
        hr__memory_cell_count(t, (double)g->blocks[1]);
    else
        hr__table_cell_print(t, "%s, now %s", hr__format_fixed(a, (double)g->blocks[0], 0, true),
                             hr__format_fixed(b, (double)g->blocks[1], 0, true));
    cell_change(t, (double)g->bytes[1] - (double)g->bytes[0]);
    hr__table_cell(t, !g->blocks[0] ? "came" : !g->blocks[1] ? "went" : "changed");
}

static void groups_table(const struct hr__compared_device *device, const struct hr__comparison *c,
                         int columns, struct hr__draft *d)
{
    static const char *const heads[] = {"category", ">blocks", ">change", "", NULL};
    size_t count = device->group_count, shown = count < GROUPS_SHOWN ? count : GROUPS_SHOWN;
    size_t more = count - shown + device->more_groups;
    struct hr__table t;
    hr__table_begin(&t, "Blocks that differ", heads);
    for (size_t i = 0; i < shown; i++)
        group_row(&t, &device->groups[i], c->record[device->groups[i].side]);
    if (more) {
        hr__table_cell_print(&t, "... %zu more", more);
        for (int column = 1; column < t.column_count; column++)
            hr__table_cell(&t, "");
    }
    show(&t, columns, d);
}

static void rest_row(struct hr__table *t, const char *name, double was, double is,
                     void (*cell)(struct hr__table *, double))
{
    if (isnan(was) && isnan(is))
        return;
    hr__table_cell(t, name);
    cell(t, was);
    cell(t, is);
    if (isnan(was) || isnan(is))
        hr__table_cell(t, "");
    else
        cell_growth(t, was, is);
}

static void rest_table(const struct hr__comparison *c, int columns, struct hr__draft *d)
{
    static const char *const heads[] = {">before", ">after", "> ", NULL};
    const struct hr__memory *a = c->found[0], *b = c->found[1];
    const struct hr__intervals *before = &a->intervals, *after = &b->intervals;
    struct hr__table t;
    hr__table_begin(&t, "Beside that", heads);
    rest_row(&t, "an iteration takes", hr__compared_iteration_ns(c, 0),
             hr__compared_iteration_ns(c, 1), hr__memory_cell_ns);
    rest_row(&t, "behaviours of it", (double)a->period.behaviours, (double)b->period.behaviours,
             hr__memory_cell_count);
    rest_row(&t, "blocks that begin in it", hr__compared_iteration_blocks(c, 0),
             hr__compared_iteration_blocks(c, 1), hr__memory_cell_count);
    rest_row(&t, "intervals between accesses", (double)hr__intervals_count(before),
             (double)hr__intervals_count(after), hr__memory_cell_count);
    rest_row(&t, "half are no longer than", hr__intervals_quantile(before, -1, 0.5),
             hr__intervals_quantile(after, -1, 0.5), hr__memory_cell_ns);
    rest_row(&t, "99 % are no longer than", hr__intervals_quantile(before, -1, 0.99),
             hr__intervals_quantile(after, -1, 0.99), hr__memory_cell_ns);
    rest_row(&t, "a sample takes", a->bytes_per_sample, b->bytes_per_sample, hr__memory_cell_bytes);
    rest_row(&t, "whatever the batch's size", a->fixed_bytes, b->fixed_bytes,
             hr__memory_cell_bytes);
    show(&t, columns, d);
}

static void compose(const struct hr_memory_comparison *comparison, int columns, struct hr__draft *d)
{
    const struct hr__comparison *c = &comparison->found;
    struct hr__draft words = {.text = NULL};
    for (size_t i = 0; i < c->device_count; i++)
        say_device(&c->devices[i], &words);
    if (!c->device_count)
        hr__draft_put(&words, "Neither record holds memory.");
    hr__draft_put(&words, " Before: ");
    hr__draft_plain(&words, comparison->name[0]);
    hr__draft_put(&words, "; after: ");
    hr__draft_plain(&words, comparison->name[1]);
    hr__draft_put(&words, ".");
    d->failed |= words.failed;
    if (!d->failed)
        hr__text_wrap(words.text, columns, 0, d);
    hr__draft_clear(&words);
    for (size_t i = 0; i < c->device_count; i++) {
        peak_table(&c->devices[i], columns, d);
        groups_table(&c->devices[i], c, columns, d);
    }
    rest_table(c, columns, d);
}

int hr_memory_write_comparison_text(const struct hr_memory_comparison *comparison, const char *path,
                                    int columns, struct hr_error *error)
{
    struct hr__draft draft = {.text = NULL};
    if (!comparison || !path)
        return hr__fail(error, -EINVAL, "a comparison and a path are needed to write it as text");
    compose(comparison, hr__text_width(columns), &draft);
    int code = hr__draft_write(&draft, path, error);
    hr__draft_clear(&draft);
    return code;
}
