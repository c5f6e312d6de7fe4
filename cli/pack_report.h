/* Reports of headrace pack and unpack on the contents of a pack, as text and JSON. */
#ifndef HR_CLI_PACK_REPORT_H
#define HR_CLI_PACK_REPORT_H

#include "summary.h"

#include <headrace/pack.h>

struct pack_report {
    const char *path; /* of the pack, as given on the command line */
    const char *verb; /* in the JSON: "pack", "unpack", "verify" or "info" */
    struct hr_pack_result result;
    struct summary_bads bad;
    struct summary_bads kept; /* the first samples that stayed encoded although another form was
                                 asked for */
    struct summary_bads rewritten; /* progressive files that are baseline ones in the pack */
    double seconds;                /* duration; 0: not shown */
    int out_of_memory;             /* non-zero: a notice could not be stored */
};

/* An hr_pack_notice_fn; arg is a struct pack_report. */
void pack_report_notice(void *arg, const struct hr_bad_sample *sample, enum hr_pack_kept kept);

/* Prints the contents of the pack: bytes, forms, and why samples are encoded. */
void pack_report_print(const struct pack_report *report);

/* Returns the JSON described in headrace-pack(1); NULL: out of memory. */
struct json_t *pack_report_json(const struct pack_report *report);

void pack_report_clear(struct pack_report *report);

/* Sums the sizes of samples in order, for a progress bar. */
struct pack_meter {
    const struct hr_dataset *dataset;
    uint64_t done, bytes; /* samples summed so far, and their bytes */
};

/* Returns the bytes of the first `done` samples; arg is a struct pack_meter. */
uint64_t pack_meter_bytes(void *arg, uint64_t done);

#endif
