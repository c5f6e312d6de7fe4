/* Reports of headrace cache about segments, as text and JSON. */
#ifndef HR_CLI_CACHE_REPORT_H
#define HR_CLI_CACHE_REPORT_H

#include <headrace/cache.h>

#include <stddef.h>

/* A copy of the information about the selected segments. */
struct cache_report {
    struct hr_cache_info *infos;
    size_t count;
};

/*
 * Selects the segments of cache `name` (NULL: all in memory; "disk:/DIRECTORY": on a disk) and, of
 * these, those of `dataset` (NULL: all): a dataset's text, or a path to the same place. Returns 0,
 * -ENOMEM, or an error of hr_cache_list_create.
 */
int cache_report_make(struct cache_report *report, const char *name, const char *dataset,
                      struct hr_error *error);
void cache_report_clear(struct cache_report *report);

/* Returns the number of segments that cannot be used. */
size_t cache_report_damaged(const struct cache_report *report);

/* Prints one line for each segment, under a heading. */
void cache_report_print_table(const struct cache_report *report);

/* Prints all information about each segment. */
void cache_report_print(const struct cache_report *report);

/* Returns the JSON described in headrace-cache(1); NULL: out of memory. */
struct json_t *cache_report_json(const struct cache_report *report);

/* Makes a JSON object of numbers, keyed by the names of forms. NULL: out of memory. */
struct json_t *cache_report_forms(const uint64_t values[HR_FORMS]);

/* Prints items by form to standard output: "1,200 coefficients, 34 encoded". */
void cache_report_print_forms(const uint64_t items[HR_FORMS]);

/* Returns the number of items of all forms. */
uint64_t cache_report_items(const uint64_t items[HR_FORMS]);

#endif
