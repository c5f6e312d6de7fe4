/*
 * Fills the tables of a page's longer charts: iterations one by one, bytes over time, the lives of
 * blocks. If there are too many rows, those with the most bytes are shown.
 */
#include "memory/report/tables.h"

#include "memory/report/words.h"
#include "report/format.h"

#include <stdlib.h>

#define ITERATIONS_SHOWN 200
#define MOMENTS_SHOWN    48
#define LIVES_SHOWN      80

void hr__memory_fill_iterations(struct hr__table *t, const struct hr__memory_view *v)
{
    const struct hr__period *p = &v->found->period;
    for (size_t i = 0; i < p->count && i < ITERATIONS_SHOWN; i++) {
        const struct hr__iteration *it = &p->iterations[i];
        char at[HR__FORMAT_BYTES];
        hr__table_cell_print(t, "%zu", i + 1);
        hr__memory_cell_ns(t, (double)it->begin_ns);
        hr__memory_cell_ns(t, (double)(it->end_ns - it->begin_ns));
        hr__memory_cell_bytes(t, (double)it->peak_bytes);
        if (it->is_same)
            hr__table_cell(t, "as the others");
        else if (!p->behaviours)
            hr__table_cell(t, "different");
        else
            hr__table_cell_print(
                t, "different from behaviour %s on",
                hr__format_fixed(at, (double)(it->differs_at - it->begin) + 1, 0, true));
    }
}

void hr__memory_series(const struct hr__memory_view *v, bool any[HR__CATEGORIES])
{
    const struct hr__timeline *line = v->device ? &v->device->timeline : NULL;
    for (unsigned c = 0; c < HR__CATEGORIES; c++) {
        any[c] = false;
        for (size_t i = 0; line && i < line->count; i++)
            any[c] |= line->points[i].bytes[c] > 0;
    }
}

static uint64_t sum_at(const struct hr__timeline_point *point)
{
    uint64_t sum = 0;
    for (unsigned c = 0; c < HR__CATEGORIES; c++)
        sum += point->bytes[c];
    return sum;
}

void hr__memory_fill_timeline(struct hr__table *t, const struct hr__memory_view *v)
{
    size_t points = v->device ? v->device->timeline.count : 0;
    size_t rows = points < MOMENTS_SHOWN ? points : MOMENTS_SHOWN;
    bool any[HR__CATEGORIES];
    hr__memory_series(v, any);
    for (size_t row = 0; row < rows; row++) {
        const struct hr__timeline_point *all = v->device->timeline.points;
        const struct hr__timeline_point *best = &all[row * points / rows];
        for (size_t i = row * points / rows; i < (row + 1) * points / rows; i++)
            best = sum_at(&all[i]) > sum_at(best) ? &all[i] : best;
        hr__memory_cell_ns(t, (double)best->time_ns);
        hr__memory_cell_bytes(t, (double)sum_at(best));
        for (unsigned c = 0; c < HR__CATEGORIES; c++)
            if (any[c])
                hr__memory_cell_bytes(t, (double)best->bytes[c]);
    }
}

/* A drawn block and its index. */
struct life {
    const struct hr__block *block;
    size_t at;
};

static int by_bytes(const void *a, const void *b)
{
    const struct life *x = a, *y = b;
    if (x->block->bytes != y->block->bytes)
        return x->block->bytes > y->block->bytes ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

void hr__memory_fill_lives(struct hr__table *t, const struct hr__memory_view *v)
{
    struct life lives[HR__DRAWN_MOST];
    size_t count = v->found->drawn_count;
    for (size_t i = 0; i < count; i++)
        lives[i] = (struct life){&v->found->found.blocks[v->found->drawn[i]], i};
    if (count)
        qsort(lives, count, sizeof *lives, by_bytes);
    for (size_t i = 0; i < count && i < LIVES_SHOWN; i++) {
        const struct hr__block *b = lives[i].block;
        struct hr__view_block words = hr__view_block(v, v->found->drawn[lives[i].at]);
        words.line = NULL; /* no space for it */
        hr__memory_cell_block(t, "", &words, false);
        hr__table_cell(t, hr__category_name(b->category));
        if (b->alloc_ns)
            hr__memory_cell_ns(t, (double)b->alloc_ns);
        else
            hr__table_cell(t, "before");
        if (b->free_ns && b->free_ns != HR__STILL_LIVE)
            hr__memory_cell_ns(t, (double)b->free_ns);
        else
            hr__table_cell(t, "lives on");
        hr__memory_cell_bytes(t, (double)b->bytes);
        hr__memory_cell_count(t, b->reads);
        hr__memory_cell_count(t, b->writes);
    }
}
