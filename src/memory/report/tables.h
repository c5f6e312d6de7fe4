/*
 * Turns analyses of memory into tables, which the terminal and the page share.
 */
#ifndef HR_MEMORY_REPORT_TABLES_H
#define HR_MEMORY_REPORT_TABLES_H

#include "memory/report/view.h"
#include "report/table.h"

enum hr__memory_table {
    HR__MEMORY_SIDES,      /* several records side by side */
    HR__MEMORY_SIDE_PARTS, /* the same by part of the model, largest first */
    HR__MEMORY_PEAK,       /* by category; from here on: first record only */
    HR__MEMORY_GROUPS,     /* the largest groups of blocks at the peak */
    HR__MEMORY_PARTS,      /* parts of the model at the peak */
    HR__MEMORY_DEVICES,    /* if there are several */
    HR__MEMORY_REMEDIES,   /* ways to lower the peak, totals */
    HR__MEMORY_ADVICE,     /* the same, block by block */
    HR__MEMORY_CAVEATS,    /* of that advice */
    HR__MEMORY_BATCH,      /* growth with the batch size, and the size that fits */
    HR__MEMORY_INTERVALS,  /* by behaviour */
    HR__MEMORY_OUTLIERS,   /* intervals that would free most memory */
    HR__MEMORY_PATTERN,    /* the repeating pattern */
    HR__MEMORY_FRAGMENTS,  /* fragmentation of the allocator's segments */
    HR__MEMORY_RUN,
    HR__MEMORY_NOTES,      /* limits of what the record shows */
    HR__MEMORY_DAMAGE,     /* damage and oddities */
    HR__MEMORY_ITERATIONS, /* one by one; from here on: pages only */
    HR__MEMORY_TIMELINE,
    HR__MEMORY_LIVES, /* of the largest drawn blocks */
    HR__MEMORY_TABLES
};

/* Begins and fills all tables; a table without data has no rows. brief: limits rows to what fits a
 * terminal. If memory runs out, a table is marked `failed`. */
void hr__memory_tables_make(struct hr__table tables[HR__MEMORY_TABLES],
                            const struct hr__memory_view *views, size_t count, bool brief);
void hr__memory_tables_clear(struct hr__table tables[HR__MEMORY_TABLES]);
bool hr__memory_tables_failed(const struct hr__table tables[HR__MEMORY_TABLES]);

/* series.c: finds which categories the main device ever holds. */
void hr__memory_series(const struct hr__memory_view *view, bool any[HR__CATEGORIES]);

/* series.c: the tables of a page's charts. */
void hr__memory_fill_iterations(struct hr__table *table, const struct hr__memory_view *view);
void hr__memory_fill_timeline(struct hr__table *table, const struct hr__memory_view *view);
void hr__memory_fill_lives(struct hr__table *table, const struct hr__memory_view *view);

/* sides.c: the tables of several records; most: largest number of parts. */
void hr__memory_fill_sides(struct hr__table *table, const struct hr__memory_view *views,
                           size_t count);
void hr__memory_fill_side_parts(struct hr__table *table, const struct hr__memory_view *views,
                                size_t count, size_t most);

/* cells.c: add a cell: a formatted number, a time in nanoseconds, or a draft, which is emptied. */
void hr__memory_cell_bytes(struct hr__table *table, double bytes);
void hr__memory_cell_ns(struct hr__table *table, double ns);
void hr__memory_cell_count(struct hr__table *table, double count);
void hr__memory_cell_share(struct hr__table *table, double share);
void hr__memory_cell_draft(struct hr__table *table, struct hr__draft *draft);

/* Adds "[64, 256] float32 of aten::relu, train.py:12 forward" after `begin`, with the file's last
 * two folders; brief: without the line. */
void hr__memory_cell_block(struct hr__table *table, const char *begin,
                           const struct hr__view_block *block, bool brief);

#endif
