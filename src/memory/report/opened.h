/* What hr_memory_open gives: a record's names, its analysis, and both as JSON. */
#ifndef HR_MEMORY_REPORT_OPENED_H
#define HR_MEMORY_REPORT_OPENED_H

#include "memory/analysis/analysis.h"

struct hr_memory {
    struct hr__record *record; /* names */
    struct hr__memory *found;
    char *json;
    char *name; /* of the file, without its folder: how people know it */
};

#endif
