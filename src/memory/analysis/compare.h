/*
 * Compares two records: the contents of their devices at the peak, and the groups of blocks that
 * differ. Pure functions of two analyses.
 */
#ifndef HR_MEMORY_ANALYSIS_COMPARE_H
#define HR_MEMORY_ANALYSIS_COMPARE_H

#include "memory/analysis/analysis.h"

#define HR__COMPARED_GROUPS 100 /* groups kept: those that changed most */

/* Similar blocks: same category, description, operator and functions of the stack. If a group is in
 * one record only, the other record's numbers are 0. */
struct hr__compared_group {
    uint8_t category;
    uint8_t side;             /* record of the names and the stack: 0 before, 1 after */
    uint32_t what, op, stack; /* of one of the blocks; 0: unknown */
    uint64_t blocks[2], bytes[2];
};

struct hr__compared_device {
    int device;
    uint64_t peak_bytes[2], peak[2][HR__CATEGORIES];
    double growth;                     /* of the peak: 0.05 is 5 % more; infinite: it was zero */
    struct hr__compared_group *groups; /* groups that differ */
    size_t group_count, more_groups;   /* kept, and omitted */
};

struct hr__comparison {
    const struct hr__record *record[2]; /* before and after; borrowed */
    const struct hr__memory *found[2];
    struct hr__compared_device devices[2 * HR__DEVICES_MOST]; /* sorted by number */
    size_t device_count;
    double growth; /* largest of all devices; 0: no devices */
};

/* Set `record` and `found`; this fills the rest. Call hr__comparison_clear in any case. Errors:
 * -ENOMEM. */
int hr__memory_compare(struct hr__comparison *comparison);
void hr__comparison_clear(struct hr__comparison *comparison);

/* Return the median time of an iteration, and the median number of blocks allocated in one, of one
 * side; NaN: unknown. */
double hr__compared_iteration_ns(const struct hr__comparison *comparison, int side);
double hr__compared_iteration_blocks(const struct hr__comparison *comparison, int side);

#endif
