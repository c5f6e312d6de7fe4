/*
 * Formats numbers for people: three digits, units, ranges; the same in every locale.
 *
 * Each function writes into the caller's buffer and returns it. An unknown value gives "-".
 */
#ifndef HR_REPORT_FORMAT_H
#define HR_REPORT_FORMAT_H

#include "base/draft.h"

#include <stdbool.h>

#define HR__FORMAT_BYTES 64

/* "1,234.5": exactly `decimals` (0..9) decimals; beyond 9e18 "a lot". */
const char *hr__format_fixed(char out[HR__FORMAT_BYTES], double value, int decimals,
                             bool separators);
/* Formats a rate or a count: "12,345", "87.2", "0.53". */
const char *hr__format_rate(char out[HR__FORMAT_BYTES], double value);
/* "41.2 %" for 0.412. */
const char *hr__format_share(char out[HR__FORMAT_BYTES], double value);
/* "12.3 ms", "61.2 us", "4.50 s". */
const char *hr__format_time(char out[HR__FORMAT_BYTES], double seconds);
/* "1.50 GB/s": decimal units, as usual for disks. */
const char *hr__format_speed(char out[HR__FORMAT_BYTES], double bytes_per_s);
/* "1.5 GiB": binary units, as usual for memory. */
const char *hr__format_bytes(char out[HR__FORMAT_BYTES], double bytes);

/* "1,210 to 1,260", with one of the functions above; "-" if an end is NaN. */
typedef const char *(*hr__format_fn)(char out[HR__FORMAT_BYTES], double value);
const char *hr__format_range(char out[2 * HR__FORMAT_BYTES], double low, double high,
                             hr__format_fn format);

/* Adds a JSON number of at most `decimals` (0..9) decimals; null for NaN or beyond 9e18. */
void hr__draft_number(struct hr__draft *draft, double value, int decimals);

#endif
