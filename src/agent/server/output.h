/*
 * A text that grows: what the agent's status becomes for Prometheus and for traces.
 *
 * Failure is sticky: after one nothing is added, and it is asked for once, at the end. Numbers
 * do not depend on the program's locale.
 */
#ifndef HR_AGENT_SERVER_OUTPUT_H
#define HR_AGENT_SERVER_OUTPUT_H

#include <headrace/base.h>

#include <stdbool.h>

struct hr__output {
    char *text; /* zero-terminated; NULL while empty */
    size_t length, capacity;
    bool failed; /* out of memory */
};

void hr__output_put(struct hr__output *output, const char *text);

/* No floating-point conversions: they follow the locale. */
void hr__output_print(struct hr__output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* At most `decimals` (0..9) decimals, without zeros at the end; "0" for what is not a number or
 * beyond 9e18. */
void hr__output_number(struct hr__output *output, double value, int decimals);

/* Text from outside as a JSON string with its quotes; as hr__printable makes it. */
void hr__output_json(struct hr__output *output, const char *text);

/* *text is the caller's, freed with hr__free, and *output empty; or -ENOMEM, with a message. */
int hr__output_finish(struct hr__output *output, char **text, struct hr_error *error);

void hr__output_clear(struct hr__output *output);

#endif
