/*
 * The operations that timm's policies choose from, and their magnitudes. They work as on Pillow's
 * images; see pillow.h.
 */
#ifndef HR_RECIPE_TIMM_H
#define HR_RECIPE_TIMM_H

#include "recipe/operation.h"

/* "Increasing" ones become stronger with the magnitude. */
enum hr__timm_kind {
    HR__TIMM_AUTOCONTRAST,
    HR__TIMM_EQUALIZE,
    HR__TIMM_INVERT,
    HR__TIMM_ROTATE,
    HR__TIMM_POSTERIZE,
    HR__TIMM_POSTERIZE_INCREASING,
    HR__TIMM_POSTERIZE_ORIGINAL,
    HR__TIMM_SOLARIZE,
    HR__TIMM_SOLARIZE_INCREASING,
    HR__TIMM_SOLARIZE_ADD,
    HR__TIMM_COLOR,
    HR__TIMM_COLOR_INCREASING,
    HR__TIMM_CONTRAST,
    HR__TIMM_CONTRAST_INCREASING,
    HR__TIMM_BRIGHTNESS,
    HR__TIMM_BRIGHTNESS_INCREASING,
    HR__TIMM_SHARPNESS,
    HR__TIMM_SHARPNESS_INCREASING,
    HR__TIMM_SHEAR_X,
    HR__TIMM_SHEAR_Y,
    HR__TIMM_TRANSLATE_X,
    HR__TIMM_TRANSLATE_Y,
    HR__TIMM_DESATURATE,
    HR__TIMM_BLUR,
    HR__TIMM_BLUR_RANDOM,
    HR__TIMM_KINDS,
};

/* Appends an operation with probability p, at a magnitude that is drawn around `magnitude`. */
void hr__plan_timm(struct hr__prepare_plan *plan, const struct hr_operation *operation,
                   enum hr__timm_kind kind, const double p_magnitude[2], struct hr__random *random);

/* Checks the parameters that all policies share, and their place. */
int hr__check_timm(const struct hr__bound *bound, const struct hr__state *state,
                   struct hr_error *error);

void hr__timm_defaults(struct hr_operation *operation);

#endif
