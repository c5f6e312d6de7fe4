/*
 * Rectangles of the finished tensor that RandomErasing sets.
 */
#ifndef HR_RECIPE_ERASE_H
#define HR_RECIPE_ERASE_H

#include "recipe/operation.h"

/* Appends a rectangle of the result to the plan; recipes hold at most HR__PLAN_MAX_ERASINGS. */
void hr__plan_erase(struct hr__prepare_plan *plan, const struct hr__bound *bound,
                    const struct hr_region *rectangle, uint64_t seed);

/* Refuses more rectangles than a plan holds. */
int hr__check_erasings(const struct hr__bound *bound, int erasings, struct hr_error *error);

/* Sets bound->scale and shift, which hold the state at its place, from that after the last
 * operation. */
void hr__erasing_finish(struct hr__bound *bound, const struct hr__state *last);

/* Sets the plan's rectangles in `out`, of the format `spec`. */
void hr__erase_run(const struct hr__prepare_plan *plan, const struct hr_tensor_spec *spec,
                   void *out);

#endif
