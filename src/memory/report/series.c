/*
 * The tables of a page's longer charts: iterations one by one, bytes over time, the lives of
 * blocks. Of many rows the telling ones: those with the most bytes.
 */
#include "memory/report/tables.h"

#include "base/memory.h"
#include "memory/report/words.h"
#include "report/format.h"

#include <math.h>
#include <stdlib.h>

#define ITERATIONS_SHOWN 200
#define MOMENTS_SHOWN    48
#define LIVES_SHOWN      80

void hr__memory_fill_iterations(struct hr__table *t, const struct hr__memory_view *v)
{
    const json_t *list = json_object_get(json_object_get(v->root, "pattern"), "different"), *one;
    size_t shown = v->iteration_count < ITERATIONS_SHOWN ? v->iteration_count : ITERATIONS_SHOWN;
    for (size_t i = 0; i < shown; i++) {
        const struct hr__view_iteration *it = &v->iterations[i];
        char at[HR__FORMAT_BYTES];
        double differs_at = NAN;
        size_t k;
        json_array_foreach(list, k, one) if (hr__view_number(one, "iteration") == (double)i)
            differs_at = hr__view_number(one, "differs_at");
        hr__table_cell_print(t, "%zu", i + 1);
        hr__memory_cell_ns(t, (double)it->begin_ns);
        hr__memory_cell_ns(t, (double)(it->end_ns - it->begin_ns));
        hr__memory_cell_bytes(t, it->most_bytes);
        if (it->is_same)
            hr__table_cell(t, "as the others");
        else if (isnan(differs_at))
            hr__table_cell(t, "different");
        else
            hr__table_cell_print(t, "different from behaviour %s on",
                                 hr__format_fixed(at, differs_at + 1, 0, true));
    }
}

const json_t *hr__memory_series(const struct hr__memory_view *v, int category)
{
    const json_t *timeline = json_object_get(v->device, "timeline");
    return json_object_get(json_object_get(timeline, "bytes"), hr__view_categories[category]);
}

static double sum_at(const struct hr__memory_view *v, size_t point)
{
    double sum = 0;
    for (int c = 0; c < HR__VIEW_CATEGORIES; c++) {
        double one = hr__view_at(hr__memory_series(v, c), point);
        sum += one > 0 ? one : 0;
    }
    return sum;
}

void hr__memory_fill_timeline(struct hr__table *t, const struct hr__memory_view *v)
{
    const json_t *times = json_object_get(json_object_get(v->device, "timeline"), "ns");
    size_t points = json_array_size(times);
    size_t rows = points < MOMENTS_SHOWN ? points : MOMENTS_SHOWN;
    for (size_t row = 0; row < rows; row++) {
        size_t best = row * points / rows;
        for (size_t i = best; i < (row + 1) * points / rows; i++)
            best = sum_at(v, i) > sum_at(v, best) ? i : best;
        hr__memory_cell_ns(t, hr__view_at(times, best));
        hr__memory_cell_bytes(t, sum_at(v, best));
        for (int c = 0; c < HR__VIEW_CATEGORIES; c++)
            if (hr__memory_series(v, c))
                hr__memory_cell_bytes(t, hr__view_at(hr__memory_series(v, c), best));
    }
}

/* A block and its place in the list. */
struct life {
    const json_t *block;
    double bytes;
    size_t at;
};

static int by_bytes(const void *a, const void *b)
{
    const struct life *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

void hr__memory_fill_lives(struct hr__table *t, const struct hr__memory_view *v)
{
    const json_t *blocks = json_object_get(json_object_get(v->root, "lifetimes"), "blocks");
    size_t count = json_array_size(blocks);
    struct life *lives = hr__alloc(HR__TAG_REPORT, count + 1, sizeof *lives);
    t->failed |= !lives;
    for (size_t i = 0; lives && i < count; i++) {
        lives[i].block = json_array_get(blocks, i);
        lives[i].bytes = hr__view_number(lives[i].block, "bytes");
        lives[i].at = i;
    }
    if (lives && count)
        qsort(lives, count, sizeof *lives, by_bytes);
    for (size_t i = 0; lives && i < count && i < LIVES_SHOWN; i++) {
        const json_t *b = lives[i].block;
        double begin = hr__view_number(b, "alloc_ns"), end = hr__view_number(b, "free_ns");
        hr__memory_cell_block(t, "", b, false);
        hr__table_cell(t, hr__view_text(b, "category"));
        if (begin > 0)
            hr__memory_cell_ns(t, begin);
        else
            hr__table_cell(t, "before");
        if (end > 0)
            hr__memory_cell_ns(t, end);
        else
            hr__table_cell(t, "lives on");
        hr__memory_cell_bytes(t, lives[i].bytes);
        hr__memory_cell_count(t, hr__view_number(b, "reads"));
        hr__memory_cell_count(t, hr__view_number(b, "writes"));
    }
    hr__free(lives);
}
