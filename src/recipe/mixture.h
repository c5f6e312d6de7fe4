/*
 * Filters that mix an image with the results of several chains of operations on it, for AugMix: one
 * before the first chain, one after each, which goes back to the image for the next. All of them
 * need the whole image.
 */
#ifndef HR_RECIPE_MIXTURE_H
#define HR_RECIPE_MIXTURE_H

#include "base/random.h"
#include "recipe/plan.h"

/* Begins a sum, in float32, with the image times `weight`. */
void hr__plan_sum_begin(struct hr__prepare_plan *plan, double weight);

/* Adds a chain's result times `weight`. */
void hr__plan_sum_add(struct hr__prepare_plan *plan, double weight);

/* Adds the last one, and rounds the sum down; its share in a blend with the image is `share`. */
void hr__plan_sum_end(struct hr__prepare_plan *plan, double weight, double share);

/* The other way: blends the chains' results into the image one by one, each time rounding down. */
void hr__plan_blends_begin(struct hr__prepare_plan *plan);
void hr__plan_blends_add(struct hr__prepare_plan *plan, double share, int last);

/* Draws n weights with sum 1, all with the parameter alpha. */
void hr__draw_dirichlet(struct hr__random *random, double alpha, double *weight, int n);

#endif
