/* What headrace cache says about segments, as text and JSON. */
#ifndef HR_CLI_CACHE_REPORT_H
#define HR_CLI_CACHE_REPORT_H

#include <headrace/cache.h>

#include <stddef.h>

/* A copy of the segments that were asked for. */
struct cache_report {
    struct hr_cache_info *infos;
    size_t count;
};

/*
 * Takes the segments of `name` (NULL: all), and of them those of `dataset` (NULL: all): its
 * text, or a path to the same place. 0, -ENOMEM, or what hr_cache_list_create says.
 */
int cache_report_make(struct cache_report *report, const char *name, const char *dataset,
                      struct hr_error *error);
void cache_report_clear(struct cache_report *report);

/* Segments that cannot be used. */
size_t cache_report_damaged(const struct cache_report *report);

/* One line each, under a heading. */
void cache_report_print_table(const struct cache_report *report);

/* All that is known of each. */
void cache_report_print(const struct cache_report *report);

/* The JSON that headrace-cache(1) describes. Returns 0 or -1. */
int cache_report_print_json(const struct cache_report *report);

/* An object of numbers by the name of the form; NULL: out of memory. */
struct json_t *cache_report_forms(const uint64_t values[3]);

/* "1,200 coefficients, 34 encoded"; writes to standard output. */
void cache_report_print_forms(const uint64_t items[3]);

#endif
