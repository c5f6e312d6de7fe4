/* Prometheus's text format; see text.h. */
#include "metrics/text.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void hr__metrics_family(struct hr__draft *o, const char *name, const char *help)
{
    size_t length = strlen(name);
    const char *type = length > 6 && !strcmp(name + length - 6, "_total") ? "counter" : "gauge";
    hr__draft_print(o, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_number(struct hr__draft *o, double value)
{
    double whole, part = modf(fabs(value), &whole);
    int decimals = 9;
    if (!(whole < 9e18)) { /* NaN too */
        hr__draft_put(o, "0");
        return;
    }
    /* The whole part separately, so that nine decimals of a large number do not overflow. */
    uint64_t number = (uint64_t)whole, rest = (uint64_t)llround(part * 1e9);
    number += rest / 1000000000;
    rest %= 1000000000;
    for (; rest && rest % 10 == 0; decimals--)
        rest /= 10;
    hr__draft_print(o, "%s%" PRIu64, value < 0 && (number || rest) ? "-" : "", number);
    if (rest)
        hr__draft_print(o, ".%0*" PRIu64, decimals, rest);
}

void hr__metrics_label(struct hr__draft *o, char before, const char *name, const json_t *value)
{
    hr__draft_print(o, "%c%s=\"", before, name);
    if (json_is_integer(value))
        hr__draft_print(o, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    for (const char *p = json_is_string(value) ? json_string_value(value) : ""; *p; p++)
        if (*p == '\n')
            hr__draft_put(o, "\\n");
        else
            hr__draft_print(o, "%s%c", *p == '"' || *p == '\\' ? "\\" : "", *p);
    hr__draft_put(o, "\"");
}

int hr__metrics_is_value(const json_t *value)
{
    return json_is_number(value) || json_is_boolean(value);
}

void hr__metrics_value(struct hr__draft *o, const json_t *value)
{
    if (json_is_real(value))
        put_number(o, json_real_value(value));
    else if (json_is_integer(value))
        hr__draft_print(o, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        hr__draft_put(o, json_is_true(value) ? "1" : "0");
}

void hr__metrics_waits(struct hr__draft *o, const char *name, const json_t *now,
                       void (*put_labels)(struct hr__draft *o, const void *object),
                       const void *object)
{
    static const char *const reasons[] = {"room", "fetch", "prepare", "sampler"};
    for (size_t i = 0; now && i < sizeof reasons / sizeof *reasons; i++) {
        hr__draft_put(o, name);
        put_labels(o, object);
        hr__draft_print(o, ",reason=\"%s\"} %d\n", reasons[i],
                        json_is_string(now) && !strcmp(json_string_value(now), reasons[i]));
    }
}

json_t *hr__metrics_status(const char *text, const char *name, struct hr_error *error)
{
    json_error_t where;
    json_t *root = json_loads(text, 0, &where);
    if (json_is_object(root))
        return root;
    hr__fail(error, -EPROTO, "%s is no JSON object: line %d: %s", name, where.line,
             root ? "another value" : where.text);
    json_decref(root);
    return NULL;
}
