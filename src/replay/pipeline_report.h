/*
 * What a plan says, for its text and its page: the sentence, tables, and what was assumed.
 */
#ifndef HR_REPLAY_PIPELINE_REPORT_H
#define HR_REPLAY_PIPELINE_REPORT_H

#include "replay/pipeline_plan.h"
#include "report/table.h"

enum hr__plan_table {
    HR__PLAN_CHOICES,
    HR__PLAN_HOLDS, /* sentences: the memory of each plan's stages */
    HR__PLAN_STAGES,
    HR__PLAN_MEMORY,
    HR__PLAN_VERSIONS,
    HR__PLAN_REFUSED,
    HR__PLAN_NOTES, /* sentences */
    HR__PLAN_TABLES
};

void hr__plan_sentence(const struct hr_plan *plan, struct hr__draft *draft);
void hr__plan_tables_make(struct hr__table tables[HR__PLAN_TABLES], const struct hr_plan *plan);
bool hr__plan_tables_failed(const struct hr__table tables[HR__PLAN_TABLES]);
void hr__plan_tables_clear(struct hr__table tables[HR__PLAN_TABLES]);

/* Returns how long the first choice's run is drawn: the first batches only of a long one. */
double hr__plan_drawn_s(const struct hr_plan *plan);

/* The script of the page, and the policy that allows only it; embedded at build time. */
extern const char hr__plan_page_script[];
extern const char hr__plan_page_policy[];

#endif
