/* A strict reader of Prometheus's text format, for tests. */
#ifndef HR_TEST_PROMETHEUS_H
#define HR_TEST_PROMETHEUS_H

#include <stddef.h>

#define PROMETHEUS_SAMPLES 512

struct prometheus_sample {
    char series[512]; /* name and labels, as they were written */
    char name[128];
    double value;
};

struct prometheus {
    struct prometheus_sample samples[PROMETHEUS_SAMPLES];
    size_t count;
};

/*
 * Reads a text and fails the running test where the format (text/plain; version=0.0.4), or a
 * rule of its naming, is broken: HELP and TYPE before each family's samples, families in one
 * piece, no series twice, escapes, counters in _total and not negative, a newline at the end.
 */
void prometheus_read(struct prometheus *out, const char *text);

/* The value of a series; fails the test where there is none. */
double prometheus_value(const struct prometheus *p, const char *series);

#endif
