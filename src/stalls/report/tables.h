/*
 * Turns a result into tables, which the terminal and the page share.
 */
#ifndef HR_STALLS_REPORT_TABLES_H
#define HR_STALLS_REPORT_TABLES_H

#include "report/table.h"
#include "stalls/model/result.h"

enum hr__report_table {
    HR__TABLE_COLD,       /* time shares of an epoch from storage */
    HR__TABLE_WARM,       /* time shares of an epoch with files in memory */
    HR__TABLE_CHANGES,    /* predicted changes that would remove the waiting */
    HR__TABLE_RATES,      /* training alone and its parts */
    HR__TABLE_PREPARE,    /* the loader alone, by number of cores */
    HR__TABLE_STORAGE,    /* storage by reads in flight */
    HR__TABLE_FORMS,      /* Headrace's cost per sample */
    HR__TABLE_RANKS,      /* waiting and stragglers */
    HR__TABLE_RUN,        /* loader, data and machine */
    HR__TABLE_UNVERIFIED, /* phases skipped or not verified, with the reasons */
    HR__TABLE_NOTES,
    HR__TABLE_WRITTEN,  /* files the script would have left behind */
    HR__TABLE_SEGMENTS, /* the segments measured, of the first rank */
    HR__TABLES
};

/* Begins and fills all tables; a table without data has no rows. If memory runs out, the table is
 * marked `failed`. */
void hr__tables_make(struct hr__table tables[HR__TABLES], const struct hr_stalls *stalls);
void hr__tables_clear(struct hr__table tables[HR__TABLES]);
bool hr__tables_failed(const struct hr__table tables[HR__TABLES]);

/* Throughput of the loader alone, over all ranks, at one number of cores. */
struct hr__drained {
    bool cold;
    int cores, ranks;
    double rate, cpu_s; /* samples/s; CPU seconds per sample, NaN: unknown */
};
/* Fills at most `capacity` entries, warm ones first, by cores. Returns their number. */
int hr__drained(const struct hr_stalls *stalls, struct hr__drained *out, int capacity);

#endif
