/* Results made by hand, for tests of reports. */
#ifndef HR_TEST_REPORT_FIXTURE_H
#define HR_TEST_REPORT_FIXTURE_H

#include "stalls/model/result.h"

/* Two ranks on a GPU each, everything measured; names of outside are harmless. */
void fixture_gpu(struct hr_stalls *stalls);
/* One rank on the CPU: hardly anything is known. */
void fixture_cpu(struct hr_stalls *stalls);
/* The first one without anything from storage. */
void fixture_warm(struct hr_stalls *stalls);
/* The first one with names that want to be markup, JSON and terminal control. */
void fixture_hostile(struct hr_stalls *stalls);

/* What a writer wrote, in static memory. */
typedef int (*fixture_writer)(const struct hr_stalls *, const char *, struct hr_error *);
const char *fixture_written(fixture_writer writer, const struct hr_stalls *stalls);

#endif
