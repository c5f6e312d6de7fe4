/* Places the image on a larger canvas of one colour; see canvas.c. */
#ifndef HR_RECIPE_CANVAS_H
#define HR_RECIPE_CANVAS_H

#include "recipe/operation.h"

/* Appends padding (left, top, right, bottom; not negative) with the operation's fill. */
void hr__plan_canvas(const struct hr__bound *bound, struct hr__prepare_plan *plan,
                     const int padding[4]);

#endif
