/* Results made by hand, for tests of reports. */
#ifndef HR_TEST_REPORT_FIXTURE_H
#define HR_TEST_REPORT_FIXTURE_H

#include "stalls/model/result.h"

/* Two ranks with a GPU each, everything measured; external names are harmless. */
void fixture_gpu(struct hr_stalls *stalls);
/* One rank on the CPU: hardly anything was measured. */
void fixture_cpu(struct hr_stalls *stalls);
/* The first one without cold segments. */
void fixture_warm(struct hr_stalls *stalls);
/* The first one with names that contain markup, JSON and control codes. */
void fixture_hostile(struct hr_stalls *stalls);

/* Returns a writer's output, in static memory. */
typedef int (*fixture_writer)(const struct hr_stalls *, const char *, struct hr_error *);
const char *fixture_written(fixture_writer writer, const struct hr_stalls *stalls);

#endif
