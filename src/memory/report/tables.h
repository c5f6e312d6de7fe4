/*
 * Analyses of memory as tables, the same for the terminal and the page.
 */
#ifndef HR_MEMORY_REPORT_TABLES_H
#define HR_MEMORY_REPORT_TABLES_H

#include "memory/report/view.h"
#include "report/table.h"

enum hr__memory_table {
    HR__MEMORY_SIDES,      /* several records beside each other */
    HR__MEMORY_SIDE_PARTS, /* the same by part of the model: the largest */
    HR__MEMORY_PEAK,       /* by category; this and what follows: of the first record */
    HR__MEMORY_GROUPS,     /* the largest groups of blocks at the peak */
    HR__MEMORY_PARTS,      /* of the model, at the peak */
    HR__MEMORY_DEVICES,    /* where there are several */
    HR__MEMORY_REMEDIES,   /* what would lower the peak, in all */
    HR__MEMORY_ADVICE,     /* the same, block by block */
    HR__MEMORY_CAVEATS,    /* of that */
    HR__MEMORY_BATCH,      /* what grows with it, and what would fit */
    HR__MEMORY_INTERVALS,  /* by behaviour */
    HR__MEMORY_OUTLIERS,   /* intervals in which most could be elsewhere */
    HR__MEMORY_PATTERN,    /* what repeats */
    HR__MEMORY_FRAGMENTS,  /* of the allocator's segments */
    HR__MEMORY_RUN,
    HR__MEMORY_NOTES,      /* what cannot be seen */
    HR__MEMORY_DAMAGE,     /* what is damaged or odd */
    HR__MEMORY_ITERATIONS, /* one by one; this and what follows: for pages only */
    HR__MEMORY_TIMELINE,
    HR__MEMORY_LIVES, /* of the largest blocks that are drawn */
    HR__MEMORY_TABLES
};

/* Begins and fills all tables; those that there is nothing for have no rows. brief: as many
 * rows as a terminal has room for. Out of memory: a table is `failed`. */
void hr__memory_tables_make(struct hr__table tables[HR__MEMORY_TABLES],
                            const struct hr__memory_view *views, size_t count, bool brief);
void hr__memory_tables_clear(struct hr__table tables[HR__MEMORY_TABLES]);
bool hr__memory_tables_failed(const struct hr__table tables[HR__MEMORY_TABLES]);

/* series.c: which categories the main device ever holds. */
void hr__memory_series(const struct hr__memory_view *view, bool any[HR__CATEGORIES]);

/* series.c: the tables of what a page draws. */
void hr__memory_fill_iterations(struct hr__table *table, const struct hr__memory_view *view);
void hr__memory_fill_timeline(struct hr__table *table, const struct hr__memory_view *view);
void hr__memory_fill_lives(struct hr__table *table, const struct hr__memory_view *view);

/* sides.c: the tables of several records; most: rows of parts. */
void hr__memory_fill_sides(struct hr__table *table, const struct hr__memory_view *views,
                           size_t count);
void hr__memory_fill_side_parts(struct hr__table *table, const struct hr__memory_view *views,
                                size_t count, size_t most);

/* Cells: a number by its format; a time of nanoseconds. */
void hr__memory_cell_bytes(struct hr__table *table, double bytes);
void hr__memory_cell_ns(struct hr__table *table, double ns);
void hr__memory_cell_count(struct hr__table *table, double count);

/* "[64, 256] float32 of aten::relu, train.py:12 forward" after `begin`; of the line's file with
 * its last two folders; brief: without. */
void hr__memory_cell_block(struct hr__table *table, const char *begin,
                           const struct hr__view_block *block, bool brief);

#endif
