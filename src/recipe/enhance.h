/*
 * The filters that colour, sharpen, blur and disturb bytes, and how to append them to a plan.
 *
 * They round like torchvision v2's kernels for uint8 tensors. A step that would change nothing is
 * not appended.
 */
#ifndef HR_RECIPE_ENHANCE_H
#define HR_RECIPE_ENHANCE_H

#include "recipe/plan.h"

/* Blends of the image with black, with its mean luma, with its luma; factor 1: the image. */
void hr__plan_brightness(struct hr__prepare_plan *plan, double factor);
void hr__plan_contrast(struct hr__prepare_plan *plan, double factor);
void hr__plan_saturation(struct hr__prepare_plan *plan, double factor);

/* turn: -0.5..0.5 of a circle */
void hr__plan_hue(struct hr__prepare_plan *plan, double turn);
void hr__plan_grayscale(struct hr__prepare_plan *plan);

void hr__plan_invert(struct hr__prepare_plan *plan);
void hr__plan_posterize(struct hr__prepare_plan *plan, int bits);        /* to keep, 0..8 */
void hr__plan_solarize(struct hr__prepare_plan *plan, double threshold); /* inverts from it on */
void hr__plan_autocontrast(struct hr__prepare_plan *plan);
void hr__plan_equalize(struct hr__prepare_plan *plan);

/* Channel i of the result is channel order[i]. */
void hr__plan_permute(struct hr__prepare_plan *plan, const int order[3]);

/* Blends the image with a smoothed one; factor 1: the image. */
void hr__plan_sharpness(struct hr__prepare_plan *plan, double factor);

/* width, height: of the kernel, odd */
void hr__plan_blur(struct hr__prepare_plan *plan, int width, int height, double sigma);

/* mean and sigma: of 0..1 */
void hr__plan_noise(struct hr__prepare_plan *plan, double mean, double sigma, int clip,
                    uint64_t seed);

#endif
