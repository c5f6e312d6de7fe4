/*
 * Writes Prometheus's text format: the one place that knows it. The agent (agent/server/metrics.c)
 * and the loaders of a process (loaders_text.c) have tables of their families and write them here.
 *
 * Values are JSON because both write what a status has. Source: the Prometheus text exposition
 * format, version 0.0.4, and its naming rules (base units, counters end in _total).
 */
#ifndef HR_METRICS_TEXT_H
#define HR_METRICS_TEXT_H

#include "base/draft.h"

#include <headrace/base.h>

#include <jansson.h>

#define HR__METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Writes the two comments that begin a family. A name in _total is a counter, any other a gauge. */
void hr__metrics_family(struct hr__draft *draft, const char *name, const char *help);

/* Writes a label: `before` is '{' for a sample's first one, else ','. The value is a string or an
 * integer; anything else counts as "". The caller closes with "}". */
void hr__metrics_label(struct hr__draft *draft, char before, const char *name, const json_t *value);

/* Writes a number without an exponent, with at most nine decimals, and without trailing zeros; "0"
 * for NaN and numbers beyond 9e18. Booleans are 1 and 0. */
void hr__metrics_value(struct hr__draft *draft, const json_t *value);

/* Writes what something waits for: for each possible answer a sample, which is 1 for `now` and 0
 * for the others; nothing if `now` is NULL. `put_labels` writes the labels of `object` that come
 * before the reason, without a closing "}". */
void hr__metrics_waits(struct hr__draft *draft, const char *name, const json_t *now,
                       void (*put_labels)(struct hr__draft *draft, const void *object),
                       const void *object);

/* Parses a status, whose name is for the error; the caller owns the reference. Returns NULL after
 * -EPROTO: it is no JSON object. */
json_t *hr__metrics_status(const char *text, const char *name, struct hr_error *error);

/* Returns non-zero if the value can be a sample: a number or a boolean. */
int hr__metrics_is_value(const json_t *value);

#endif
