/*
 * The table of each operation: one constant struct per operation, in the file of its family.
 *
 * Inside a recipe, pixel values are floats in 0..255 from the decoder to the last pass. ToDtype and
 * Normalize change values but move no pixels. When the recipe is created, they are folded into one
 * scale and shift per channel, which the last pass applies. This is exact for everything that may
 * follow them, because resizing, cropping and flipping commute with an affine map per channel.
 * Operations that do not commute are refused there. Fill values are given in the units of their
 * place in the recipe; the inverse map converts them to 0..255.
 */
#ifndef HR_RECIPE_OPERATION_H
#define HR_RECIPE_OPERATION_H

#include "base/random.h"
#include "recipe/plan.h"
#include "recipe/recipe.h"

/* Longest side, in pixels, that a recipe may produce. */
#define HR__MAX_SIDE 65536

/* What is known about the pixels when an operation is reached, while a recipe is being created. */
struct hr__state {
    int height, width;         /* pixels; 0: depends on the image */
    enum hr_dtype dtype;       /* of the tensor that torchvision would have here */
    int scaled;                /* floats are 0..1: a ToDtype with scale came before */
    int normalized;            /* a Normalize came before */
    double scale[3], shift[3]; /* value here = value (0..255) x scale + shift */
};

/* An operation in a recipe. */
struct hr__bound {
    struct hr_operation operation;
    int position;  /* index in the list */
    float fill[3]; /* padding value, 0..255 */
};

struct hr__operation_class {
    const char *name; /* torchvision's name */
    /* Sets the parameters that have a default in torchvision; all others are 0. */
    void (*defaults)(struct hr_operation *operation);
    /* Checks the parameters and whether they suit the state, and advances the state. Errors:
     * -EINVAL. */
    int (*check)(struct hr__bound *bound, struct hr__state *state, struct hr_error *error);
    /* Draws the random parameters and appends steps to the plan. NULL if the operation is folded
     * into the last pass. Errors: -EINVAL. */
    int (*draw)(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error);
};

extern const struct hr__operation_class hr__class_random_resized_crop;
extern const struct hr__operation_class hr__class_resize;
extern const struct hr__operation_class hr__class_center_crop;
extern const struct hr__operation_class hr__class_random_crop;
extern const struct hr__operation_class hr__class_horizontal_flip;
extern const struct hr__operation_class hr__class_vertical_flip;
extern const struct hr__operation_class hr__class_color_jitter;
extern const struct hr__operation_class hr__class_random_grayscale;
extern const struct hr__operation_class hr__class_to_dtype;
extern const struct hr__operation_class hr__class_normalize;

/* Returns the table of `kind`; NULL for an unknown one. */
const struct hr__operation_class *hr__operation_class(enum hr_operation_kind kind);

/* Fails with -EINVAL and "Name (operation 2 of the recipe): " before the message. */
int hr__refuse(struct hr_error *error, const struct hr__bound *bound, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Refuses a fixed size outside 1..HR__MAX_SIDE. */
int hr__check_size(const struct hr__bound *bound, int height, int width, struct hr_error *error);

/* Refuses an interpolation that is not in enum hr_interpolation. */
int hr__check_interpolation(const struct hr__bound *bound, enum hr_interpolation interpolation,
                            struct hr_error *error);

/* Refuses p outside 0..1. */
int hr__check_probability(const struct hr__bound *bound, double p, struct hr_error *error);

/* Refuses an operation that needs plain colours, in 0..255 or 0..1, if it follows a Normalize; and
 * if `clamps`, also if it follows a ToDtype that left 0..255 in a float. */
int hr__check_color_place(const struct hr__bound *bound, const struct hr__state *state, int clamps,
                          struct hr_error *error);

/* Converts fill values from the units of `state` to 0..255. */
void hr__bind_fill(struct hr__bound *bound, const struct hr__state *state, const double fill[3]);

/* A finished recipe: immutable. */
struct hr_recipe {
    _Atomic uint32_t references;
    struct hr_recipe_options options;
    struct hr_tensor_spec spec;
    float scale[3], shift[3]; /* of the last pass: output = value (0..255) x scale + shift */
    int count;
    struct hr__bound operation[HR__RECIPE_MAX_OPERATIONS];
};

#endif
