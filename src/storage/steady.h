/*
 * Estimates the rate of storage that delivers in bursts. A throttled disk delivers its allowance
 * for a tenth of a second at once and then nothing until the next; an allowance saved up while idle
 * comes first. Bytes divided by time are then wrong by up to one burst at either end.
 *
 * The slope of a straight line through the bytes delivered so far is not affected: an extra burst
 * at an end hardly changes it, and one at the very beginning not at all.
 */
#ifndef HR_STORAGE_STEADY_H
#define HR_STORAGE_STEADY_H

#include <stddef.h>
#include <stdint.h>

/* Returns bytes/s, given the `bytes` that arrived in each of `count` bins of `each_s` seconds.
 * Returns 0 if there are too few bins or everything arrived at once. Pure. */
double hr__steady_rate(const uint64_t *bytes, size_t count, double each_s);

#endif
