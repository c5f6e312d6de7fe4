/*
 * What is different between two records, as text: a sentence, then tables of the peaks, of the
 * groups of blocks that changed, and of iterations and intervals. All figures are of the
 * comparison's JSON (docs/memory-format.md).
 */
#include "base/error.h"
#include "memory/report/tables.h"
#include "memory/report/words.h"
#include "report/format.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define COLUMNS_LEAST 40
#define COLUMNS_MOST  160
#define GROUPS_SHOWN  20
#define SAME          0.0005 /* of a peak: reads as 0.0 % */

/* Of a member that is a pair. */
static double before(const json_t *object, const char *name)
{
    return hr__view_at(json_object_get(object, name), 0);
}

static double after(const json_t *object, const char *name)
{
    return hr__view_at(json_object_get(object, name), 1);
}

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

static void say_device(const json_t *device, struct hr__draft *d)
{
    double was = before(device, "peak_bytes"), is = after(device, "peak_bytes");
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES], share[HR__FORMAT_BYTES];
    hr__draft_put(d, d->length ? " The peak of " : "The peak of ");
    hr__draft_plain(d, hr__memory_device(hr__view_text(device, "device")));
    hr__format_bytes(a, was);
    hr__format_bytes(b, is);
    if (!(was > 0)) {
        hr__draft_print(d, " is %s; nothing was held there before.", b);
        return;
    }
    double growth = (is - was) / was;
    hr__format_share(share, fabs(growth));
    if (was == is)
        hr__draft_print(d, " is the same, %s.", a);
    else if (fabs(growth) < SAME)
        hr__draft_print(d, " is about the same: %s before, %s now.", a, b);
    else
        hr__draft_print(d, " is %s %s: %s before, %s now.", share, growth > 0 ? "more" : "less", a,
                        b);
}

static void peak_table(const json_t *device, int columns, struct hr__draft *d)
{
    static const char *const heads[] = {">before", ">after", ">change", "> ", NULL};
    const json_t *peak = json_object_get(device, "peak");
    struct hr__draft title = {.text = NULL};
    struct hr__table t;
    hr__draft_put(&title, "At the peak of ");
    hr__draft_plain(&title, hr__memory_device(hr__view_text(device, "device")));
    d->failed |= title.failed;
    hr__table_begin(&t, title.failed ? "At the peak" : title.text, heads);
    for (int c = 0; c < HR__VIEW_CATEGORIES; c++)
        if (json_object_get(peak, hr__view_categories[c]))
            bytes_row(&t, hr__memory_plural(c), before(peak, hr__view_categories[c]),
                      after(peak, hr__view_categories[c]));
    bytes_row(&t, "all", before(device, "peak_bytes"), after(device, "peak_bytes"));
    d->failed |= t.failed;
    if (!d->failed)
        hr__table_text(&t, columns, d);
    hr__table_clear(&t);
    hr__draft_clear(&title);
}

static void group_row(struct hr__table *t, const json_t *g)
{
    double was = before(g, "blocks"), is = after(g, "blocks");
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES];
    hr__memory_cell_block(t, "", g, true);
    hr__table_cell(t, hr__view_text(g, "category"));
    if (was == is)
        hr__memory_cell_count(t, is);
    else
        hr__table_cell_print(t, "%s, now %s", hr__format_fixed(a, was, 0, true),
                             hr__format_fixed(b, is, 0, true));
    cell_change(t, after(g, "bytes") - before(g, "bytes"));
    hr__table_cell(t, !(was > 0) ? "came" : !(is > 0) ? "went" : "changed");
}

static void groups_table(const json_t *device, int columns, struct hr__draft *d)
{
    static const char *const heads[] = {"category", ">blocks", ">change", "", NULL};
    const json_t *groups = json_object_get(device, "groups");
    double more = hr__view_number(device, "more_groups");
    size_t count = json_array_size(groups), shown = count < GROUPS_SHOWN ? count : GROUPS_SHOWN;
    struct hr__table t;
    hr__table_begin(&t, "Blocks that differ", heads);
    for (size_t i = 0; i < shown; i++)
        group_row(&t, json_array_get(groups, i));
    if (shown < count || more > 0) {
        hr__table_cell_print(&t, "... %.0f more", (double)(count - shown) + fmax(more, 0));
        for (int c = 1; c < t.column_count; c++)
            hr__table_cell(&t, "");
    }
    d->failed |= t.failed;
    if (!d->failed)
        hr__table_text(&t, columns, d);
    hr__table_clear(&t);
}

static void rest_row(struct hr__table *t, const char *name, const json_t *object,
                     const char *member, void (*cell)(struct hr__table *, double))
{
    double was = before(object, member), is = after(object, member);
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

static void rest_table(const json_t *root, int columns, struct hr__draft *d)
{
    static const char *const heads[] = {">before", ">after", "> ", NULL};
    const json_t *pattern = json_object_get(root, "pattern"), *batch, *intervals, *quantiles;
    struct hr__table t;
    batch = json_object_get(root, "batch");
    intervals = json_object_get(root, "intervals");
    quantiles = json_object_get(intervals, "quantiles_ns");
    hr__table_begin(&t, "Beside that", heads);
    rest_row(&t, "an iteration takes", pattern, "iteration_ns", hr__memory_cell_ns);
    rest_row(&t, "behaviours of it", pattern, "behaviours", hr__memory_cell_count);
    rest_row(&t, "blocks that begin in it", pattern, "blocks", hr__memory_cell_count);
    rest_row(&t, "intervals between accesses", intervals, "count", hr__memory_cell_count);
    rest_row(&t, "half are no longer than", quantiles, "p50", hr__memory_cell_ns);
    rest_row(&t, "99 % are no longer than", quantiles, "p99", hr__memory_cell_ns);
    rest_row(&t, "a sample takes", batch, "bytes_per_sample", hr__memory_cell_bytes);
    rest_row(&t, "whatever the batch's size", batch, "fixed_bytes", hr__memory_cell_bytes);
    d->failed |= t.failed;
    if (!d->failed)
        hr__table_text(&t, columns, d);
    hr__table_clear(&t);
}

static void compose(const json_t *root, int columns, struct hr__draft *d)
{
    struct hr__draft words = {.text = NULL};
    const json_t *devices = json_object_get(root, "devices"), *device;
    size_t i;
    json_array_foreach(devices, i, device) say_device(device, &words);
    if (!json_array_size(devices))
        hr__draft_put(&words, "Neither record holds memory.");
    hr__draft_put(&words, " Before: ");
    hr__draft_plain(&words, hr__view_text(root, "before"));
    hr__draft_put(&words, "; after: ");
    hr__draft_plain(&words, hr__view_text(root, "after"));
    hr__draft_put(&words, ".");
    d->failed |= words.failed;
    if (!d->failed)
        hr__text_wrap(words.text, columns, 0, d);
    hr__draft_clear(&words);
    json_array_foreach(devices, i, device)
    {
        peak_table(device, columns, d);
        groups_table(device, columns, d);
    }
    rest_table(root, columns, d);
}

int hr_memory_write_comparison_text(const struct hr_memory_comparison *comparison, const char *path,
                                    int columns, struct hr_error *error)
{
    struct hr__draft draft = {.text = NULL};
    json_error_t problem;
    if (!comparison || !path)
        return hr__fail(error, -EINVAL, "a comparison and a path are needed to write it as text");
    columns = columns < COLUMNS_LEAST ? COLUMNS_LEAST : columns;
    columns = columns > COLUMNS_MOST ? COLUMNS_MOST : columns;
    json_t *root = json_loads(hr_memory_comparison_json(comparison), 0, &problem);
    if (!root)
        return hr__fail(error, -ENOMEM, "%s: out of memory", path);
    compose(root, columns, &draft);
    int code = hr__draft_write(&draft, path, error);
    json_decref(root);
    hr__draft_clear(&draft);
    return code;
}
