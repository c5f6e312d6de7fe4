/* Records as the probe writes them, with scripted times, for tests of parsing and analysis. */
#ifndef HR_TEST_RECORDS_H
#define HR_TEST_RECORDS_H

#include "stalls/model/result.h"

/* The properties of a run; plan_default fills in one GPU, 10 batches of 64 a segment, four rounds
 * of four phases: 50, 55, 85 and 100 ms a batch. */
struct records_plan {
    int world, ranks_per_host, rounds, batches, batch_size, workers;
    const char *kind, *device, *run, *ended, *filesystem;
    int phases;         /* bits */
    double seconds[5];  /* of a batch, by phase; ALONE where ranks load alone */
    double noise[16];   /* by round: all of its times are multiplied by 1 + noise */
    int verified[5];    /* by phase: 1, 0, -1 */
    const char *why[5]; /* phases' reasons, NULL: none */
    double bytes, available, samples;
    double wait; /* share of a batch blocked in next(), in warm and cold segments */
    const char *drains, *depths, *preparation, *notes, *files, *forms; /* JSON arrays */
};

struct records_plan plan_default(void);

/* Makes rank `rank`'s record, with times multiplied by `factor`. The caller frees the text. */
char *plan_record(const struct records_plan *plan, int rank, double factor);

/* Analyses all ranks of a plan, each with factor 1. */
int plan_analyse(const struct records_plan *plan, struct hr_stalls **out, struct hr_error *error);

#endif
