/*
 * Throughput as a function of one parameter: the charts of a page and the tables beside them.
 * Curves are predictions by hr_stalls_predict; points are measurements from the result.
 */
#ifndef HR_STALLS_REPORT_CURVES_H
#define HR_STALLS_REPORT_CURVES_H

#include "report/table.h"
#include "stalls/model/result.h"

#define HR__CURVE_POINTS 24

struct hr__curve {
    const char *name;
    int count;
    double x[HR__CURVE_POINTS];
    struct hr_stalls_prediction at[HR__CURVE_POINTS];
};

/* A measured point in the chart. */
struct hr__measured {
    const char *name;
    double x;
    struct hr_interval rate;
};

struct hr__curves {
    struct hr__curve curve[2];
    int curve_count;
    struct hr__measured measured[HR__CURVE_POINTS];
    int measured_count;
};

/* Throughput over the cached share of the dataset, for a cache that never evicts and for the
 * kernel's page cache. Measured points: all from storage, all in memory. */
void hr__curves_cache(struct hr__curves *curves, const struct hr_stalls *stalls);

/* Throughput over a host's cores, up to twice as many as it has, for training with files in memory.
 * Measured points: training, and the loader alone. */
void hr__curves_cores(struct hr__curves *curves, const struct hr_stalls *stalls);

/* Fills a table; `x_name` is its title, `format` formats x. */
void hr__curves_table(const struct hr__curves *curves, const char *x_name,
                      const char *(*format)(char *out, double x), struct hr__table *table);

#endif
