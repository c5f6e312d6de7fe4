/*
 * Two records side by side: what their devices hold at the peak, and the groups of blocks that
 * differ. Pure functions of two analyses.
 */
#ifndef HR_MEMORY_ANALYSIS_COMPARE_H
#define HR_MEMORY_ANALYSIS_COMPARE_H

#include "memory/analysis/analysis.h"

#define HR__COMPARED_GROUPS 100 /* that are kept, those that changed most */

/* Blocks that are alike: category, description, operator and the functions of the stack. Of what
 * stands on one side only the other's numbers are 0. */
struct hr__compared_group {
    uint8_t category;
    uint8_t side;             /* whose record the names and the stack are of: 0 before, 1 after */
    uint32_t what, op, stack; /* of one of the blocks; 0: not known */
    uint64_t blocks[2], bytes[2];
};

struct hr__compared_device {
    int device;
    uint64_t peak_bytes[2], peak[2][HR__CATEGORIES];
    double growth; /* of the peak: 0.05 is 5 % more; infinite: there was nothing */
    struct hr__compared_group *groups; /* that are not the same */
    size_t group_count, more_groups;   /* kept, and left out */
};

struct hr__comparison {
    const struct hr__record *record[2]; /* before and after: borrowed */
    const struct hr__memory *found[2];
    struct hr__compared_device devices[2 * HR__DEVICES_MOST]; /* by number */
    size_t device_count;
    double growth; /* the largest of all devices; 0: there are none */
};

/* `record` and `found` are set; fills the rest. On failure, too, it is to be cleared. Errors:
 * -ENOMEM. */
int hr__memory_compare(struct hr__comparison *comparison);
void hr__comparison_clear(struct hr__comparison *comparison);

/* Of one side: the median of what an iteration takes, and the blocks that begin in one; NaN. */
double hr__compared_iteration_ns(const struct hr__comparison *comparison, int side);
double hr__compared_iteration_blocks(const struct hr__comparison *comparison, int side);

#endif
