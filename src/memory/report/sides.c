/*
 * Fills the tables that compare several records, each at its own peak: by category and by part of
 * the model. Parts are matched by name.
 */
#include "memory/report/tables.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void hr__memory_fill_sides(struct hr__table *t, const struct hr__memory_view *views, size_t count)
{
    static const char *const rows[] = {"all", "batch size", "a sample takes", "iteration"};
    for (unsigned c = 0; c < HR__CATEGORIES; c++) {
        bool any = false;
        for (size_t i = 0; i < count; i++)
            any |= hr__view_peak_of(&views[i], c) > 0;
        if (!any)
            continue;
        hr__table_cell(t, hr__category_plural(c));
        for (size_t i = 0; i < count; i++)
            hr__memory_cell_bytes(t, fmax(hr__view_peak_of(&views[i], c), 0));
    }
    for (int row = 0; row < 4; row++) {
        hr__table_cell(t, rows[row]);
        for (size_t i = 0; i < count; i++) {
            const struct hr__device_memory *d = views[i].device;
            if (row == 0)
                hr__memory_cell_bytes(t, hr__view_peak(&views[i]));
            else if (row == 1)
                hr__memory_cell_count(t, views[i].batch_size);
            else if (row == 2)
                hr__memory_cell_bytes(t, d ? d->fit.bytes_per_sample : NAN);
            else
                hr__memory_cell_ns(t, views[i].median_ns);
        }
    }
}

/* A part of the model, and its largest bytes in any record. */
struct side_part {
    const char *name;
    uint64_t most;
};

static int by_most(const void *a, const void *b)
{
    const struct side_part *x = a, *y = b;
    if (x->most != y->most)
        return x->most > y->most ? -1 : 1;
    return strcmp(x->name, y->name);
}

static size_t find_parts(struct side_part *parts, const struct hr__memory_view *views, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        const struct hr__device_memory *d = views[i].device;
        for (size_t k = 0; d && k < d->part_count; k++) {
            const char *name = hr__view_name(&views[i], d->parts[k].part);
            uint64_t bytes = hr__view_part_bytes(&d->parts[k]);
            size_t at = 0;
            while (at < found && strcmp(parts[at].name, name))
                at++;
            if (at == found)
                parts[found++] = (struct side_part){.name = name};
            parts[at].most = bytes > parts[at].most ? bytes : parts[at].most;
        }
    }
    if (found)
        qsort(parts, found, sizeof *parts, by_most);
    return found;
}

static uint64_t bytes_in(const struct hr__memory_view *view, const char *name)
{
    const struct hr__device_memory *d = view->device;
    for (size_t k = 0; d && k < d->part_count; k++)
        if (!strcmp(hr__view_name(view, d->parts[k].part), name))
            return hr__view_part_bytes(&d->parts[k]);
    return 0;
}

void hr__memory_fill_side_parts(struct hr__table *t, const struct hr__memory_view *views,
                                size_t count, size_t most)
{
    size_t all = 0;
    for (size_t i = 0; i < count; i++)
        all += views[i].device ? views[i].device->part_count : 0;
    struct side_part *parts = hr__alloc(HR__TAG_REPORT, all + 1, sizeof *parts);
    if (!parts) {
        t->failed = true;
        return;
    }
    size_t found = find_parts(parts, views, count);
    /* A single part without a name carries no information. */
    bool known = found > 1 || (found && *parts[0].name);
    for (size_t i = 0; known && i < found && i < most; i++) {
        hr__table_cell(t, *parts[i].name ? parts[i].name : "no part of the model");
        for (size_t k = 0; k < count; k++)
            hr__memory_cell_bytes(t, (double)bytes_in(&views[k], parts[i].name));
    }
    hr__free(parts);
}
