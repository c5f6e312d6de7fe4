/* An analysis as JSON (docs/memory-format.md), whole and in the parts that pages draw. All but
 * hr__memory_to_json return what jansson returns: a new reference, NULL for want of memory. */
#ifndef HR_MEMORY_REPORT_JSON_H
#define HR_MEMORY_REPORT_JSON_H

#include "memory/analysis/analysis.h"

#include <jansson.h>

/* Bytes that are no UTF-8 are escaped. */
json_t *hr__memory_json_text(const char *bytes);
json_t *hr__memory_json_integer(uint64_t value);
/* null: not a finite number. */
json_t *hr__memory_json_real(double value);
/* null: id 0. */
json_t *hr__memory_json_name(const struct hr__record *record, uint32_t id);

/* Bytes by the name of the category; of those that there are. */
json_t *hr__memory_json_categories(const uint64_t bytes[HR__CATEGORIES]);
json_t *hr__memory_json_timeline(const struct hr__timeline *timeline);
json_t *hr__memory_json_parts(const struct hr__device_memory *device,
                              const struct hr__record *record);
/* null: not known. */
json_t *hr__memory_json_fragmentation(const struct hr__segments *segments);
/* Counts and distributions, by the name of the behaviour. */
json_t *hr__memory_json_behaviours(const struct hr__intervals *intervals);
json_t *hr__memory_json_outliers(const struct hr__memory *memory, const struct hr__record *record);
json_t *hr__memory_json_scatter(const struct hr__intervals *intervals);
/* The iterations whose blocks are drawn. */
json_t *hr__memory_json_drawn_iterations(const struct hr__memory *memory);
json_t *hr__memory_json_batch(const struct hr__memory *memory);

/* The text of `whole`, which it takes, with a newline; hr__free frees it. NULL: out of memory. */
char *hr__memory_json_dump(json_t *whole);

/* All of it; *out is the caller's, hr__free frees. Errors: -ENOMEM. */
int hr__memory_to_json(const struct hr__memory *memory, const struct hr__record *record, char **out,
                       struct hr_error *error);

#endif
