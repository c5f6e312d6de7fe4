/* A strict reader of Prometheus's text format, for tests. */
#ifndef HR_TEST_PROMETHEUS_H
#define HR_TEST_PROMETHEUS_H

#include <stddef.h>

#define PROMETHEUS_SAMPLES 512

struct prometheus_sample {
    char series[512]; /* name and labels, as written */
    char name[128];
    double value;
};

struct prometheus {
    struct prometheus_sample samples[PROMETHEUS_SAMPLES];
    size_t count;
};

/*
 * Parses a text. Fails the running test if the text breaks the format (text/plain; version=0.0.4)
 * or its naming rules: HELP and TYPE before each family's samples, each family in one piece, no
 * series twice, escapes, counters in _total and not negative, a newline at the end.
 */
void prometheus_read(struct prometheus *out, const char *text);

/* Returns the value of a series; fails the test if there is none. */
double prometheus_value(const struct prometheus *p, const char *series);

#endif
