/* Formats numbers for people; see format.h. Uses integers, because printf's decimals follow the
 * program's locale. */
#include "report/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *hr__format_fixed(char out[HR__FORMAT_BYTES], double value, int decimals,
                             bool separators)
{
    char digits[HR__FORMAT_BYTES];
    uint64_t scale = 1;
    for (int i = 0; i < decimals; i++)
        scale *= 10;
    double scaled = fabs(value) * (double)scale;
    if (!(scaled < 9e18)) {
        snprintf(out, HR__FORMAT_BYTES, "%s", isnan(value) ? "-" : "a lot");
        return out;
    }
    uint64_t number = (uint64_t)llround(scaled);
    int n = snprintf(digits, sizeof digits, "%" PRIu64, number / scale), at = 0;
    if (value < 0 && number)
        out[at++] = '-';
    for (int i = 0; i < n; i++) {
        if (separators && i && (n - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
    if (decimals)
        snprintf(out + at, HR__FORMAT_BYTES - (size_t)at, ".%0*" PRIu64, decimals, number % scale);
    return out;
}

/* Returns the decimals that leave three digits. */
static int decimals_of(double value)
{
    double size = fabs(value);
    return size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
}

const char *hr__format_rate(char out[HR__FORMAT_BYTES], double value)
{
    return hr__format_fixed(out, value, decimals_of(value), true);
}

static const char *with_unit(char out[HR__FORMAT_BYTES], double value, int decimals,
                             const char *unit)
{
    if (isnan(value))
        return strcpy(out, "-");
    hr__format_fixed(out, value, decimals, true);
    size_t n = strlen(out);
    snprintf(out + n, HR__FORMAT_BYTES - n, " %s", unit);
    return out;
}

const char *hr__format_share(char out[HR__FORMAT_BYTES], double value)
{
    return with_unit(out, value * 100, 1, "%");
}

const char *hr__format_time(char out[HR__FORMAT_BYTES], double seconds)
{
    double size = fabs(seconds);
    double scale = size < 999.5e-6 ? 1e6 : size < 999.5e-3 ? 1e3 : 1;
    const char *unit = size < 999.5e-6 ? "us" : size < 999.5e-3 ? "ms" : "s";
    if (size == 0)
        return strcpy(out, "0 s");
    return with_unit(out, seconds * scale, decimals_of(seconds * scale), unit);
}

static const char *scaled(char out[HR__FORMAT_BYTES], double value, double step,
                          const char *const *units)
{
    int unit = 0;
    while (fabs(value) >= 999.5 && units[unit + 1]) { /* 999.5 would print as 1000 */
        value /= step;
        unit++;
    }
    return with_unit(out, value, unit ? decimals_of(value) : 0, units[unit]);
}

const char *hr__format_speed(char out[HR__FORMAT_BYTES], double bytes_per_s)
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", NULL};
    return scaled(out, bytes_per_s, 1000, units);
}

const char *hr__format_bytes(char out[HR__FORMAT_BYTES], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", NULL};
    return scaled(out, bytes, 1024, units);
}

const char *hr__format_range(char out[2 * HR__FORMAT_BYTES], double low, double high,
                             hr__format_fn format)
{
    char from[HR__FORMAT_BYTES], to[HR__FORMAT_BYTES];
    if (isnan(low) || isnan(high))
        return strcpy(out, "-");
    format(from, low);
    format(to, high);
    /* Write the unit once: "58.1 to 59.9 %". */
    const char *a = strrchr(from, ' '), *b = strrchr(to, ' ');
    int kept = a && b && !strcmp(a, b) ? (int)(a - from) : (int)strlen(from);
    snprintf(out, 2 * HR__FORMAT_BYTES, "%.*s to %s", kept, from, to);
    return out;
}

void hr__draft_number(struct hr__draft *d, double value, int decimals)
{
    char digits[HR__FORMAT_BYTES];
    if (!(fabs(value) < 9e18)) { /* also NaN */
        hr__draft_put(d, "null");
        return;
    }
    if (fabs(value) >= 1e9) /* more digits than a chart or a person can distinguish */
        decimals = 0;
    size_t n = strlen(hr__format_fixed(digits, value, decimals, false));
    if (decimals > 0 && strchr(digits, '.')) {
        while (digits[n - 1] == '0')
            n--;
        n -= digits[n - 1] == '.';
    }
    hr__draft_add(d, digits, n);
}
