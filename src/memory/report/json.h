/* Writes an analysis as JSON (docs/memory-format.md), whole and in the parts that pages draw. All
 * functions but the last two return what jansson returns: a new reference, NULL if out of
 * memory. */
#ifndef HR_MEMORY_REPORT_JSON_H
#define HR_MEMORY_REPORT_JSON_H

#include "memory/analysis/analysis.h"

#include <jansson.h>

/* Escapes bytes that are not UTF-8. */
json_t *hr__memory_json_text(const char *bytes);
json_t *hr__memory_json_integer(uint64_t value);
/* Returns null if the value is not finite. */
json_t *hr__memory_json_real(double value);
/* Returns null for id 0. */
json_t *hr__memory_json_name(const struct hr__record *record, uint32_t id);

/* Returns bytes by category name, for the categories present. */
json_t *hr__memory_json_categories(const uint64_t bytes[HR__CATEGORIES]);
json_t *hr__memory_json_timeline(const struct hr__timeline *timeline);
json_t *hr__memory_json_parts(const struct hr__device_memory *device,
                              const struct hr__record *record);
/* Returns null if unknown. */
json_t *hr__memory_json_fragmentation(const struct hr__segments *segments);
/* Returns counts and distributions by behaviour name. */
json_t *hr__memory_json_behaviours(const struct hr__intervals *intervals);
json_t *hr__memory_json_outliers(const struct hr__memory *memory, const struct hr__record *record);
json_t *hr__memory_json_scatter(const struct hr__intervals *intervals);
/* Returns the iterations whose blocks are drawn. */
json_t *hr__memory_json_drawn_iterations(const struct hr__memory *memory);
json_t *hr__memory_json_batch(const struct hr__memory *memory);

/* Consumes `whole` and returns its text with a newline, to be freed with hr__free. NULL: out of
 * memory. */
char *hr__memory_json_dump(json_t *whole);

/* Writes everything; the caller frees *out with hr__free. Errors: -ENOMEM. */
int hr__memory_to_json(const struct hr__memory *memory, const struct hr__record *record, char **out,
                       struct hr_error *error);

#endif
