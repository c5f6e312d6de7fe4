/*
 * A result as tables, the same for the terminal and the page.
 */
#ifndef HR_STALLS_REPORT_TABLES_H
#define HR_STALLS_REPORT_TABLES_H

#include "report/table.h"
#include "stalls/model/result.h"

enum hr__report_table {
    HR__TABLE_COLD,       /* shares of an epoch from storage */
    HR__TABLE_WARM,       /* of one whose files are in memory */
    HR__TABLE_CHANGES,    /* what would remove the waiting, predicted */
    HR__TABLE_RATES,      /* training and its parts alone */
    HR__TABLE_PREPARE,    /* the loader alone, by cores */
    HR__TABLE_STORAGE,    /* by reads in flight */
    HR__TABLE_FORMS,      /* Headrace's cost of a sample */
    HR__TABLE_RANKS,      /* waiting and stragglers */
    HR__TABLE_RUN,        /* loader, data and machine */
    HR__TABLE_UNVERIFIED, /* phases left out or not verified, and why */
    HR__TABLE_NOTES,
    HR__TABLE_WRITTEN,  /* files that the script would have left */
    HR__TABLE_SEGMENTS, /* how it was measured; of the first rank */
    HR__TABLES
};

/* Begins and fills all tables; those that there is nothing for have no rows. Out of
 * memory: a table is `failed`. */
void hr__tables_make(struct hr__table tables[HR__TABLES], const struct hr_stalls *stalls);
void hr__tables_clear(struct hr__table tables[HR__TABLES]);
bool hr__tables_failed(const struct hr__table tables[HR__TABLES]);

/* What the loader did alone, all ranks together, at one number of cores. */
struct hr__drained {
    bool cold;
    int cores, ranks;
    double rate, cpu_s; /* samples/s; CPU of one sample, NaN: not known */
};
/* By cores, warm ones first; at most `capacity`. Returns how many. */
int hr__drained(const struct hr_stalls *stalls, struct hr__drained *out, int capacity);

#endif
