/* Computes curves of throughput; see curves.h. */
#include "stalls/report/curves.h"

#include "report/format.h"
#include "stalls/report/tables.h"

#include <math.h>
#include <stdio.h>

#define CACHE_STEPS 10 /* points of the curves over cache, minus one */

/* Adds a point, unless it cannot be predicted. */
static void add_point(struct hr__curve *curve, const struct hr_stalls *s,
                      const struct hr_stalls_change *change, double x)
{
    struct hr_error error = {0};
    struct hr_stalls_prediction *p = &curve->at[curve->count];
    if (curve->count == HR__CURVE_POINTS)
        return;
    *p = (struct hr_stalls_prediction){.size = sizeof *p};
    if (!hr_stalls_predict(s, change, p, &error))
        curve->x[curve->count++] = x;
}

static void add_measured(struct hr__curves *curves, const char *name, double x,
                         struct hr_interval rate)
{
    if (!isnan(rate.value) && curves->measured_count < HR__CURVE_POINTS)
        curves->measured[curves->measured_count++] = (struct hr__measured){name, x, rate};
}

void hr__curves_cache(struct hr__curves *curves, const struct hr_stalls *s)
{
    static const char *const names[] = {"a cache that never evicts", "the kernel's page cache"};
    *curves = (struct hr__curves){.curve_count = 2};
    for (int page_cache = 0; page_cache < 2; page_cache++) {
        struct hr__curve *curve = &curves->curve[page_cache];
        curve->name = names[page_cache];
        for (int i = 0; i <= CACHE_STEPS; i++) {
            struct hr_stalls_change change;
            hr_stalls_change_default(&change);
            change.cache_share = (double)i / CACHE_STEPS;
            change.page_cache = page_cache;
            add_point(curve, s, &change, change.cache_share);
        }
    }
    if (s->summary.measured[HR_STALLS_COLD])
        add_measured(curves, "measured, files on storage", 0, s->summary.rate[HR_STALLS_COLD]);
    if (s->summary.measured[HR_STALLS_WARM])
        add_measured(curves, "measured, files in memory", 1, s->summary.rate[HR_STALLS_WARM]);
}

/* Returns the next of 1, 2, 3, 4, 6, 8, 12, ... (steps of half a doubling); also stops at
 * `there`. */
static int next_cores(int cores, int there)
{
    int step = 1;
    while (step * 4 <= cores)
        step *= 2;
    int next = cores + step;
    return cores < there && next > there ? there : next;
}

void hr__curves_cores(struct hr__curves *curves, const struct hr_stalls *s)
{
    struct hr__drained drained[HR__CURVE_POINTS];
    int there = s->summary.cores;
    *curves = (struct hr__curves){.curve_count = 1};
    curves->curve[0].name = "training, files in memory";
    for (int cores = 1; cores <= 2 * there; cores = next_cores(cores, there)) {
        struct hr_stalls_change change;
        hr_stalls_change_default(&change);
        change.cores = cores;
        change.cache_share = 1;
        add_point(&curves->curve[0], s, &change, cores);
    }
    add_measured(curves, "measured, training", there, s->summary.rate[HR_STALLS_WARM]);
    int count = hr__drained(s, drained, HR__CURVE_POINTS);
    for (int i = 0; i < count; i++)
        if (!drained[i].cold)
            add_measured(curves, "measured, the loader alone", drained[i].cores,
                         (struct hr_interval){drained[i].rate, NAN, NAN});
}

static void add_rows(const struct hr__curves *curves, const struct hr__curve *curve,
                     const char *(*format)(char *out, double x), struct hr__table *t)
{
    char text[2 * HR__FORMAT_BYTES];
    for (int i = 0; i < curve->count; i++) {
        const struct hr_stalls_prediction *p = &curve->at[i];
        hr__table_cell(t, format(text, curve->x[i]));
        hr__table_cell_print(t, "predicted, %s", curve->name);
        hr__table_cell(t, hr__format_rate(text, p->rate));
        hr__table_cell(t, hr__format_range(text, p->low, p->high, hr__format_rate));
        hr__table_cell(t, hr__format_share(text, 1 - p->share[0]));
        hr__table_cell(t, p->extrapolated ? p->why : "");
    }
}

void hr__curves_table(const struct hr__curves *curves, const char *x_name,
                      const char *(*format)(char *out, double x), struct hr__table *t)
{
    static const char *const columns[] = {"",       ">samples/s",   ">95 % interval",
                                          ">waits", "extrapolated", NULL};
    char text[2 * HR__FORMAT_BYTES];
    hr__table_begin(t, x_name, columns);
    for (int i = 0; i < curves->measured_count; i++) {
        const struct hr__measured *m = &curves->measured[i];
        hr__table_cell(t, format(text, m->x));
        hr__table_cell(t, m->name);
        hr__table_cell(t, hr__format_rate(text, m->rate.value));
        hr__table_cell(t, hr__format_range(text, m->rate.low, m->rate.high, hr__format_rate));
        hr__table_cell(t, "");
        hr__table_cell(t, "");
    }
    for (int c = 0; c < curves->curve_count; c++)
        add_rows(curves, &curves->curve[c], format, t);
}
