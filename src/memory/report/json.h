/* An analysis in words and as JSON: names that the text, the page and the JSON share. */
#ifndef HR_MEMORY_REPORT_JSON_H
#define HR_MEMORY_REPORT_JSON_H

#include "memory/analysis/analysis.h"

/* "parameter", "activation", ...; static. */
const char *hr__memory_category_name(unsigned category);
const char *hr__memory_behaviour_name(unsigned behaviour);
const char *hr__memory_advice_name(enum hr__advice_kind kind);

/* Those that are told of intervals: by the names that they have in JSON. */
#define HR__MEMORY_QUANTILES 6
struct hr__memory_quantile {
    const char *name;
    double share;
};
extern const struct hr__memory_quantile hr__memory_quantiles[HR__MEMORY_QUANTILES];

/* "cpu", "cuda:0". */
void hr__memory_device_name(int device, char *out, size_t room);

/* The whole of it, with a newline at the end; *out is the caller's, hr__free frees. Errors:
 * -ENOMEM. */
int hr__memory_to_json(const struct hr__memory *memory, const struct hr__record *record, char **out,
                       struct hr_error *error);

#endif
