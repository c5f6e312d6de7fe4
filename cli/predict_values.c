/* Parses values, lists and ranges of headrace predict; see predict_values.h. */
#include "predict_values.h"

#include "cli.h"
#include "text.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POINTS 11 /* values in a range that cannot be listed one by one */

static const char *problem_of(enum predict_kind kind)
{
    static const char *const problems[] = {
        "it must be a number from 1 to 65536, a list (1,2,4) or a range (1..16)",
        "it must be a share from 0 to 1 (or 50%), a list (0.25,0.5) or a range (0..1)",
        "it must be a size with a unit (64GiB, 500GB), a list, or a range (16GiB..256GiB)",
        "it must be a speed (2GB/s, 25Gbit/s) or a factor (x2), a list, or a range "
        "(100MB/s..2GB/s)",
        "it must be a factor (2, 0.5, x4), a list (1,2,4) or a range (1..4)",
    };
    return problems[kind];
}

/* Parses a unit; only speeds may be in bits. Returns its bytes, 0 if it is no unit; *end: after it.
 */
static double unit_of(const char *text, enum predict_kind kind, const char **end)
{
    static const char letters[] = "KMGTP";
    const char *at = strchr(letters, *text >= 'a' ? *text - 32 : *text);
    double bytes = 1;
    if (*text && at) {
        int binary = text[1] == 'i';
        bytes = pow(binary ? 1024 : 1000, (double)(at - letters) + 1);
        text += 1 + binary;
    }
    if (kind == PREDICT_SPEED && !strncmp(text, "bit", 3)) {
        *end = text + 3;
        return bytes / 8;
    }
    if (*text != 'B')
        return 0;
    *end = text + 1;
    return bytes;
}

/* Parses one value; *end: after it. */
static int parse_one(enum predict_kind kind, const char *text, const char **end, double *value,
                     int *times)
{
    char *stop;
    *times = (kind == PREDICT_SPEED || kind == PREDICT_TIMES) && (*text == 'x' || *text == 'X');
    text += *times;
    if (*text < '0' || *text > '9')
        if (*text != '.' || text[1] < '0' || text[1] > '9')
            return -1;
    /* strtod would read "1..16" as "1." and ".16" */
    size_t digits = strspn(text, "0123456789");
    if (!strncmp(text + digits, "..", 2)) {
        *value = strtod(text, &stop);
        stop = (char *)text + digits;
    } else {
        *value = strtod(text, &stop);
    }
    *end = stop;
    if (kind == PREDICT_SHARE && *stop == '%') {
        *value /= 100;
        *end = stop + 1;
    }
    if (kind == PREDICT_SIZE || (kind == PREDICT_SPEED && !*times)) {
        double unit = unit_of(stop, kind, end);
        if (!(unit > 0))
            return -1;
        *value *= unit;
        if (kind == PREDICT_SPEED && !strncmp(*end, "/s", 2))
            *end += 2;
    }
    if (kind == PREDICT_COUNT)
        return *value >= 1 && *value <= 65536 && *value == floor(*value) ? 0 : -1;
    if (kind == PREDICT_SHARE)
        return *value >= 0 && *value <= 1 ? 0 : -1;
    return *value > 0 && *value < 1e18 ? 0 : -1;
}

/* Fills a range: shares in equal steps; speeds, sizes and factors in equal ratios; counts one by
 * one if there are few, else in equal ratios. */
static void fill_range(struct predict_values *v, enum predict_kind kind, double from, double to,
                       int times)
{
    double steps = kind == PREDICT_COUNT && fabs(to - from) < 16 ? fabs(to - from) : POINTS - 1;
    int even = kind == PREDICT_SHARE || (kind == PREDICT_COUNT && fabs(to - from) < 16);
    v->count = 0;
    for (int i = 0; i <= (int)steps; i++) {
        double way = steps > 0 ? i / steps : 0;
        double value = even ? from + (to - from) * way : from * pow(to / from, way);
        if (kind == PREDICT_COUNT)
            value = round(value);
        if (v->count && value == v->value[v->count - 1])
            continue;
        v->times[v->count] = times;
        v->value[v->count++] = value;
    }
}

int predict_values_parse(struct predict_values *v, enum predict_kind kind, const char *text,
                         const char **problem)
{
    const char *end = text;
    *problem = problem_of(kind);
    v->count = 0;
    for (;;) {
        int at = v->count;
        if (at == PREDICT_MOST_VALUES || parse_one(kind, end, &end, &v->value[at], &v->times[at]))
            return -1;
        v->count++;
        if (!strncmp(end, "..", 2) && at == 0) {
            double to;
            int times;
            if (parse_one(kind, end + 2, &end, &to, &times) || *end || times != v->times[0])
                return -1;
            fill_range(v, kind, v->value[0], to, times);
            return 0;
        }
        if (!*end)
            return 0;
        if (*end++ != ',')
            return -1;
    }
}

int predict_value_take(const char *verb, const char *option, enum predict_kind kind,
                       const char *text, const char *valid, double *value)
{
    struct predict_values values;
    const char *problem;
    if (!text)
        return 0;
    if (!predict_values_parse(&values, kind, text, &problem) && values.count == 1 &&
        !values.times[0]) {
        *value = values.value[0];
        return 0;
    }
    cli_complain(verb, "--%s %s: it must be %s", option, text, valid);
    return -1;
}

void predict_value_print(char out[32], enum predict_kind kind, double value, int times)
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"};
    char buffer[TEXT_NUMBER];
    int unit = 0;
    if (kind == PREDICT_COUNT) {
        snprintf(out, 32, "%.0f", value);
    } else if (kind == PREDICT_SHARE) {
        snprintf(out, 32, "%.4g %%", 100 * value);
    } else if (kind == PREDICT_SIZE) {
        snprintf(out, 32, "%s", text_bytes(buffer, (uint64_t)value));
    } else if (kind == PREDICT_TIMES || times) {
        snprintf(out, 32, "x%.3g", value);
    } else {
        for (; value >= 999.5 && unit < 5; unit++)
            value /= 1000;
        snprintf(out, 32, "%.3g %s", value, units[unit]);
    }
}
