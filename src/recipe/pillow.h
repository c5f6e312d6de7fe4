/*
 * Filters that round like Pillow's, and how to append them to a plan: for timm's policies, which
 * work on Pillow's images. What Pillow and torchvision do alike is in enhance.h.
 */
#ifndef HR_RECIPE_PILLOW_H
#define HR_RECIPE_PILLOW_H

#include "recipe/plan.h"

/* Blends, as ImageEnhance; factor 1: the image. */
void hr__plan_pillow_brightness(struct hr__prepare_plan *plan, double factor);
void hr__plan_pillow_contrast(struct hr__prepare_plan *plan, double factor);
void hr__plan_pillow_color(struct hr__prepare_plan *plan, double factor);
void hr__plan_pillow_sharpness(struct hr__prepare_plan *plan, double factor);

void hr__plan_pillow_autocontrast(struct hr__prepare_plan *plan);

/* Adds to values below 128; 0..128. */
void hr__plan_solarize_add(struct hr__prepare_plan *plan, int add);

/* ImageFilter.GaussianBlur: three box filters along each axis. radius: 0..4 pixels */
void hr__plan_pillow_blur(struct hr__prepare_plan *plan, double radius);

/* Image.transform with AFFINE: see struct hr__pillow_map. interpolation: bilinear or bicubic */
void hr__plan_pillow_affine(struct hr__prepare_plan *plan, const double matrix[6],
                            enum hr_interpolation interpolation, const double fill[3]);

/* Computes the matrix with which Image.rotate turns an image of width x height pixels,
 * counter-clockwise around its middle. */
void hr__pillow_rotation(double degrees, int width, int height, double matrix[6]);

#endif
