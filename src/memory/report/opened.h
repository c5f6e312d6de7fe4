/* The objects returned by hr_memory_open and hr_memory_compare: analyses and their JSON. */
#ifndef HR_MEMORY_REPORT_OPENED_H
#define HR_MEMORY_REPORT_OPENED_H

#include "memory/analysis/compare.h"

struct hr_memory {
    struct hr__record *record; /* for names */
    struct hr__memory *found;
    char *json;
    char *name; /* of the file, without its folder; for display */
};

struct hr_memory_comparison {
    struct hr__comparison found;
    const char *name[2]; /* of the files: before and after */
    char *json;
};

#endif
