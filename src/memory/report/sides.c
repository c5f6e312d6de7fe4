/*
 * The tables of several records beside each other, each at its own peak: by category, and by
 * part of the model. Parts are known by their names.
 */
#include "memory/report/tables.h"

#include "base/memory.h"
#include "memory/report/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void hr__memory_fill_sides(struct hr__table *t, const struct hr__memory_view *views, size_t count)
{
    for (int c = 0; c < HR__VIEW_CATEGORIES; c++) {
        bool any = false;
        for (size_t i = 0; i < count; i++)
            any |= hr__view_number(json_object_get(views[i].device, "peak"),
                                   hr__view_categories[c]) > 0;
        if (!any)
            continue;
        hr__table_cell(t, hr__memory_plural(c));
        for (size_t i = 0; i < count; i++) {
            double bytes =
                hr__view_number(json_object_get(views[i].device, "peak"), hr__view_categories[c]);
            hr__memory_cell_bytes(t, bytes > 0 ? bytes : 0);
        }
    }
    static const char *const rows[] = {"all", "batch size", "a sample takes", "iteration"};
    for (int row = 0; row < 4; row++) {
        hr__table_cell(t, rows[row]);
        for (size_t i = 0; i < count; i++) {
            const json_t *batch = json_object_get(views[i].root, "batch");
            if (row == 0)
                hr__memory_cell_bytes(t, hr__view_number(views[i].device, "peak_bytes"));
            else if (row == 1)
                hr__memory_cell_count(t, views[i].batch_size);
            else if (row == 2)
                hr__memory_cell_bytes(t, hr__view_number(batch, "bytes_per_sample"));
            else
                hr__memory_cell_ns(t, views[i].median_ns);
        }
    }
}

/* A part of the model, and its bytes where it holds the most. */
struct part {
    const char *name;
    double most;
};

static double bytes_of(const json_t *part)
{
    const json_t *by = json_object_get(part, "bytes");
    double all = 0;
    for (int c = 0; c < HR__VIEW_CATEGORIES; c++)
        all += fmax(hr__view_number(by, hr__view_categories[c]), 0);
    return all;
}

static int by_most(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    if (x->most != y->most)
        return x->most > y->most ? -1 : 1;
    return strcmp(x->name, y->name);
}

static size_t find_parts(struct part *parts, const struct hr__memory_view *views, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *one;
        size_t k, at;
        json_array_foreach(json_object_get(views[i].device, "parts"), k, one)
        {
            const char *name = hr__view_text(one, "part");
            for (at = 0; at < found && strcmp(parts[at].name, name); at++)
                ;
            if (at == found)
                parts[found++] = (struct part){.name = name};
            parts[at].most = fmax(parts[at].most, bytes_of(one));
        }
    }
    qsort(parts, found, sizeof *parts, by_most);
    return found;
}

static double bytes_in(const struct hr__memory_view *view, const char *name)
{
    const json_t *one;
    size_t k;
    json_array_foreach(json_object_get(view->device, "parts"), k, one)
    {
        if (!strcmp(hr__view_text(one, "part"), name))
            return bytes_of(one);
    }
    return 0;
}

void hr__memory_fill_side_parts(struct hr__table *t, const struct hr__memory_view *views,
                                size_t count, size_t most)
{
    size_t all = 0;
    for (size_t i = 0; i < count; i++)
        all += json_array_size(json_object_get(views[i].device, "parts"));
    struct part *parts = hr__alloc(HR__TAG_REPORT, all + 1, sizeof *parts);
    if (!parts) {
        t->failed = true;
        return;
    }
    size_t found = find_parts(parts, views, count);
    /* Of one without a name alone nothing is known. */
    bool known = found > 1 || (found && *parts[0].name);
    for (size_t i = 0; known && i < found && i < most; i++) {
        hr__table_cell(t, *parts[i].name ? parts[i].name : "no part of the model");
        for (size_t k = 0; k < count; k++)
            hr__memory_cell_bytes(t, bytes_in(&views[k], parts[i].name));
    }
    hr__free(parts);
}
