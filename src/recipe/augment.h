/*
 * The operations that RandAugment and its relatives choose from, and the ranges of their
 * magnitudes: one table per transform of torchvision, with the same kinds.
 */
#ifndef HR_RECIPE_AUGMENT_H
#define HR_RECIPE_AUGMENT_H

#include "recipe/operation.h"

enum hr__augment_kind {
    HR__AUGMENT_IDENTITY = 0,
    HR__AUGMENT_SHEAR_X,
    HR__AUGMENT_SHEAR_Y,
    HR__AUGMENT_TRANSLATE_X,
    HR__AUGMENT_TRANSLATE_Y,
    HR__AUGMENT_ROTATE,
    HR__AUGMENT_BRIGHTNESS,
    HR__AUGMENT_COLOR,
    HR__AUGMENT_CONTRAST,
    HR__AUGMENT_SHARPNESS,
    HR__AUGMENT_POSTERIZE,
    HR__AUGMENT_SOLARIZE,
    HR__AUGMENT_AUTOCONTRAST,
    HR__AUGMENT_EQUALIZE,
    HR__AUGMENT_INVERT,
    HR__AUGMENT_KINDS,
};

enum hr__augment_unit {
    HR__AUGMENT_PLAIN,
    HR__AUGMENT_WIDTHS, /* the upper end times the image's width */
    HR__AUGMENT_HEIGHTS,
    HR__AUGMENT_BITS, /* from `from` down by `to`, in steps rounded to whole bits */
    HR__AUGMENT_NONE, /* no magnitude */
};

/* A transform of one of these tables has this many magnitudes from `from` to `to`. */
struct hr__augment_range {
    double from, to, divisor; /* of `to`; 0: 1 */
    enum hr__augment_unit unit;
    int negated; /* half of the magnitudes are negated */
};

/* What is common to the operations of one transform. */
struct hr__augment_style {
    const struct hr__augment_range *ranges; /* by kind */
    int bins;                               /* number of magnitudes */
    enum hr_interpolation interpolation;
    const double *fill; /* of three channels; NULL: black */
};

extern const struct hr__augment_range hr__augment_narrow[HR__AUGMENT_KINDS]; /* RandAugment's */
extern const struct hr__augment_range hr__augment_wide[HR__AUGMENT_KINDS];   /* TrivialAugment's */
extern const struct hr__augment_range hr__augment_mixed[HR__AUGMENT_KINDS];  /* AugMix's */

/* Appends the operation with magnitude number `index`, whose sign is drawn. */
void hr__plan_augment(struct hr__prepare_plan *plan, const struct hr__augment_style *style,
                      enum hr__augment_kind kind, int index, struct hr__random *random);

/* Refuses an interpolation that is not nearest or bilinear, and fills outside 0..255. */
int hr__check_augment(const struct hr__bound *bound, enum hr_interpolation interpolation,
                      const double fill[3], struct hr_error *error);

#endif
