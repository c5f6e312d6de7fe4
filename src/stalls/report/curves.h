/*
 * Throughput over one thing that changes: what the charts of a page draw, and the tables
 * that go with them. Predictions by hr_stalls_predict, measured points from the result.
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

/* Something that was measured, in the chart of the curves. */
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

/* Over the share of the dataset in a cache: one that never evicts, and the kernel's page
 * cache. Measured: all from storage, all in memory. */
void hr__curves_cache(struct hr__curves *curves, const struct hr_stalls *stalls);

/* Over cores of a host, up to twice as many as there are: training with files in memory.
 * Measured: training, and the loader alone. */
void hr__curves_cores(struct hr__curves *curves, const struct hr_stalls *stalls);

/* As a table; `x_name` is its title, `format` shows x. */
void hr__curves_table(const struct hr__curves *curves, const char *x_name,
                      const char *(*format)(char *out, double x), struct hr__table *table);

#endif
