/*
 * The general path: runs a plan's steps one after the other on float planes, for recipes that the
 * fused pass does not support. Favours exactness over speed.
 */
#ifndef HR_RECIPE_GENERAL_H
#define HR_RECIPE_GENERAL_H

#include "recipe/color.h"
#include "recipe/filter.h"
#include "recipe/scratch.h"

/*
 * Makes `picture` a width x height image in one of the scratch's float buffers, with rows `stride`
 * >= width apart. Errors: -ENOMEM.
 */
int hr__picture_reserve(struct hr__scratch *scratch, int which, int width, int height,
                        ptrdiff_t stride, struct hr__picture *picture, struct hr_error *error);

/*
 * Runs steps [first, last) of the plan on the window, which holds what step `first` reads. *picture
 * is then the result, in the scratch's memory. Errors: -ENOMEM.
 */
int hr__general_run(struct hr__scratch *scratch, const struct hr__prepare_plan *plan, int first,
                    int last, const struct hr__window *window, struct hr__picture *picture,
                    struct hr_error *error);

#endif
