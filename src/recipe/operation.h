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
#include "recipe/field.h"
#include "recipe/plan.h"
#include "recipe/recipe.h"

/* Longest side, in pixels, that a recipe may produce. */
#define HR__MAX_SIDE 65536

/* Longest side of an image inside a recipe. Up to this, positions are exact in double, and sums of
 * a few of them fit into int. */
#define HR__MAX_RESIZED (1 << 28)

/* What is known about the pixels when an operation is reached, while a recipe is being created. */
struct hr__state {
    int height, width;           /* pixels; 0: depends on the image */
    int most_height, most_width; /* if it depends on the image: at most; 0: unknown */
    enum hr_dtype dtype;         /* of the tensor that torchvision would have here */
    int scaled;                  /* floats are 0..1: a ToDtype with scale came before */
    int normalized;              /* a Normalize came before */
    double scale[3], shift[3];   /* value here = value (0..255) x scale + shift */
    int erasings;                /* most rectangles that RandomErasing sets before here */
};

struct hr__mel;
struct hr__sound_operation;

/* An operation in a recipe. */
struct hr__bound {
    struct hr_operation operation;
    const struct hr__operation_class *class;
    int position;  /* index in the list */
    float fill[3]; /* padding value, 0..255 */
    int bytes;     /* torchvision would have a uint8 tensor at its place */
    /* RandomErasing: the tensor's value = value at its place x scale + shift */
    double scale[3], shift[3];
};

/* What an operation does to boxes and points. */
enum hr__rows_effect {
    HR__ROWS_FOLLOW = 0, /* its steps move them with the pixels, or move no pixels */
    HR__ROWS_MASKS,      /* it moves pixels where masks follow (mask.h), and boxes cannot */
    HR__ROWS_LOST,       /* it moves pixels where neither follows */
    HR__ROWS_NEEDED,     /* it works on boxes */
};

struct hr__operation_class {
    const char *name;                   /* torchvision's name */
    const struct hr__parameter *fields; /* ended by a NULL name */
    /* Sets the parameters that have a default in torchvision; all others are 0. */
    void (*defaults)(struct hr_operation *operation);
    /* Checks the parameters and whether they suit the state, and advances the state. Errors:
     * -EINVAL. */
    int (*check)(struct hr__bound *bound, struct hr__state *state, struct hr_error *error);
    /* Draws the random parameters and appends steps to the plan. NULL if the operation is folded
     * into the last pass. Errors: -EINVAL. */
    int (*draw)(const struct hr__bound *bound, struct hr__random *random,
                struct hr__prepare_plan *plan, struct hr_error *error);
    enum hr__rows_effect rows;               /* 0: FOLLOW */
    const struct hr__sound_operation *sound; /* of sounds (sound.h), instead of check and draw */
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
extern const struct hr__operation_class hr__class_pad;
extern const struct hr__operation_class hr__class_random_affine;
extern const struct hr__operation_class hr__class_random_rotation;
extern const struct hr__operation_class hr__class_random_perspective;
extern const struct hr__operation_class hr__class_elastic_transform;
extern const struct hr__operation_class hr__class_sequence;
extern const struct hr__operation_class hr__class_random_apply;
extern const struct hr__operation_class hr__class_random_choice;
extern const struct hr__operation_class hr__class_random_order;
extern const struct hr__operation_class hr__class_random_invert;
extern const struct hr__operation_class hr__class_random_posterize;
extern const struct hr__operation_class hr__class_random_solarize;
extern const struct hr__operation_class hr__class_random_adjust_sharpness;
extern const struct hr__operation_class hr__class_random_autocontrast;
extern const struct hr__operation_class hr__class_random_equalize;
extern const struct hr__operation_class hr__class_random_channel_permutation;
extern const struct hr__operation_class hr__class_random_photometric_distort;
extern const struct hr__operation_class hr__class_gaussian_blur;
extern const struct hr__operation_class hr__class_gaussian_noise;
extern const struct hr__operation_class hr__class_random_erasing;
extern const struct hr__operation_class hr__class_rand_augment;
extern const struct hr__operation_class hr__class_trivial_augment_wide;
extern const struct hr__operation_class hr__class_auto_augment;
extern const struct hr__operation_class hr__class_aug_mix;
extern const struct hr__operation_class hr__class_timm_rand_augment;
extern const struct hr__operation_class hr__class_timm_auto_augment;
extern const struct hr__operation_class hr__class_timm_aug_mix;
extern const struct hr__operation_class hr__class_random_zoom_out;
extern const struct hr__operation_class hr__class_random_shortest_size;
extern const struct hr__operation_class hr__class_letter_box;
extern const struct hr__operation_class hr__class_random_iou_crop;
extern const struct hr__operation_class hr__class_clamp_bounding_boxes;
extern const struct hr__operation_class hr__class_sanitize_bounding_boxes;
extern const struct hr__operation_class hr__class_random_window;
extern const struct hr__operation_class hr__class_center_window;
extern const struct hr__operation_class hr__class_pad_or_trim;
extern const struct hr__operation_class hr__class_mono;
extern const struct hr__operation_class hr__class_channels;
extern const struct hr__operation_class hr__class_resample;
extern const struct hr__operation_class hr__class_speed_perturbation;
extern const struct hr__operation_class hr__class_gain;
extern const struct hr__operation_class hr__class_mel_spectrogram;
extern const struct hr__operation_class hr__class_log_mel;
extern const struct hr__operation_class hr__class_amplitude_to_db;
extern const struct hr__operation_class hr__class_frequency_masking;
extern const struct hr__operation_class hr__class_time_masking;

/* Returns the table of `kind`; NULL for an unknown one. */
const struct hr__operation_class *hr__operation_class(enum hr_operation_kind kind);

/* Fails with -EINVAL and "Name (operation 2 of the recipe): " before the message. */
int hr__refuse(struct hr_error *error, const struct hr__bound *bound, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Notes that the size varies from here on, up to the given one (0: nobody knows). */
void hr__state_vary(struct hr__state *state, int most_height, int most_width);

/* Returns the largest height, or width, that is known here; 0: none. */
static inline int hr__state_most_height(const struct hr__state *state)
{
    return state->width ? state->height : state->most_height;
}

static inline int hr__state_most_width(const struct hr__state *state)
{
    return state->width ? state->width : state->most_width;
}

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

/* Refuses an operation that runs on bytes if it follows a ToDtype. */
int hr__check_bytes_place(const struct hr__bound *bound, const struct hr__state *state,
                          struct hr_error *error);

/* Refuses a range of factors of brightness, contrast, saturation or hue: kind 0..3. */
int hr__check_factors(const struct hr__bound *bound, int kind, const double range[2],
                      struct hr_error *error);

/* Draws a permutation of 0..n-1. */
void hr__draw_order(struct hr__random *random, int *order, int n);

/* Converts fill values from the units of `state` to 0..255. Refuses what is not finite. */
int hr__bind_fill(struct hr__bound *bound, const struct hr__state *state, const double fill[3],
                  struct hr_error *error);

/* A finished recipe: immutable. */
struct hr_recipe {
    _Atomic uint32_t references;
    struct hr_recipe_options options;
    struct hr_tensor_spec spec;
    float scale[3], shift[3]; /* of the last pass: output = value (0..255) x scale + shift */
    int count;
    struct hr__bound operation[HR__RECIPE_MAX_OPERATIONS];
    int is_raw; /* no operations: a sample's bytes are its tensor already */
    int is_sound;
    int sound_rate;      /* that a waveform has after its operations; 0: its clip's */
    struct hr__mel *mel; /* of a recipe that makes features; NULL: waveforms */
    int views;           /* 0: the operations above; else they are those of view[0 .. views) */
    struct hr_recipe *view[HR_RECIPE_MAX_VIEWS];
};

/* Positions of operations in view v begin at v times this, so that their random numbers differ. */
#define HR__VIEW_POSITIONS 4096

#endif
