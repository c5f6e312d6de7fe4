/*
 * Folding: crops and flips, at most one resize, crops and flips, then colours become one axis per
 * direction, which the fused pass runs at once.
 */
#ifndef HR_RECIPE_FOLD_H
#define HR_RECIPE_FOLD_H

#include "recipe/plan.h"

struct hr__scratch;
struct hr__window;

/* Folds steps fold->first to fold->last. Returns the number of the first step that cannot be
 * folded; fold->last if all can. The axes represent those before it. */
int hr__fold_steps(const struct hr__prepare_plan *plan, struct hr__fold *fold);

/* Returns non-zero if the fused pass supports the axes. */
int hr__fold_fits(const struct hr__fold *fold);

/* Limits the axes to the part `need` of their result. */
void hr__fold_narrow(struct hr__fold *fold, const struct hr_region *need);

/* Lets the fold read an image that the decoder halves, as often as possible while the crop keeps at
 * least the pixels of its result. Returns how many times. */
int hr__fold_halve(struct hr__fold *fold, const struct hr__prepare_plan *plan,
                   enum hr_image_format format);

/* Returns the part of the image that the fused pass reads. With flips before a resize it may differ
 * by a pixel from what the single steps read. */
struct hr_region hr__fold_source(const struct hr__fold *fold);

/* Runs a fold without colours by the fused pass, on the window. The caller sets scale, shift and
 * output of the job. Errors: -ENOMEM. */
int hr__fold_run(struct hr__scratch *scratch, const struct hr__fold *fold,
                 const struct hr__window *window, struct hr__fused_job *job,
                 struct hr_error *error);

#endif
