/*
 * The rate of storage that delivers unevenly. A throttled disk gives what it may give of a
 * tenth of a second at once, and then nothing until the next; what it saved up while idle
 * comes first. Bytes over time are then off by up to one such lump at either end.
 *
 * The slope of a straight line through the bytes delivered so far is not: a lump more at an
 * end of it hardly turns it, and one at its very beginning not at all.
 */
#ifndef HR_STORAGE_STEADY_H
#define HR_STORAGE_STEADY_H

#include <stddef.h>
#include <stdint.h>

/* Bytes/s, of the `bytes` that came in each of `count` equal bins of `each_s` seconds. 0: there
 * were too few bins, or all that came came at once. Pure. */
double hr__steady_rate(const uint64_t *bytes, size_t count, double each_s);

#endif
