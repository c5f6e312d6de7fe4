/* What the verbs of packs say at the end: of what a pack holds, as text and JSON. */
#ifndef HR_CLI_PACK_REPORT_H
#define HR_CLI_PACK_REPORT_H

#include "summary.h"

#include <headrace/pack.h>

struct pack_report {
    const char *path; /* of the pack, as the person gave it */
    const char *verb; /* what was done, of the JSON: "pack", "unpack", "verify" or "info" */
    struct hr_pack_result result;
    struct summary_bads bad;
    struct summary_bads kept; /* stayed encoded although a form was asked for;
                                 the first ones */
    double seconds;           /* 0: not of interest */
    int out_of_memory;        /* non-zero: a notice could not be kept */
};

/* An hr_pack_notice_fn; arg is a struct pack_report. */
void pack_report_notice(void *arg, const struct hr_bad_sample *sample, enum hr_pack_kept kept);

/* Prints what the pack holds: bytes, forms, why samples are encoded. */
void pack_report_print(const struct pack_report *report);

/* Prints the JSON that headrace-pack(1) describes. Returns 0 or -1. */
int pack_report_print_json(const struct pack_report *report);

void pack_report_clear(struct pack_report *report);

/* Sums up the bytes of samples in their order, for a progress bar. */
struct pack_meter {
    const struct hr_dataset *dataset;
    uint64_t done, bytes; /* what was asked for last: a bar only moves on */
};

/* Bytes of the first `done` samples; arg is a struct pack_meter. */
uint64_t pack_meter_bytes(void *arg, uint64_t done);

#endif
