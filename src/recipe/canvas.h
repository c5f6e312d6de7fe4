/* Places the image on a larger canvas of one colour; see canvas.c. */
#ifndef HR_RECIPE_CANVAS_H
#define HR_RECIPE_CANVAS_H

#include "recipe/operation.h"

/* Appends padding (left, top, right, bottom; not negative) with the operation's fill. */
void hr__plan_canvas(const struct hr__bound *bound, struct hr__prepare_plan *plan,
                     const int padding[4]);

/* Returns non-zero if the step is such padding that runs on bytes; *left and *top: where the image
 * is on the canvas. */
int hr__step_is_canvas(const struct hr__step *step, int *left, int *top);

#endif
