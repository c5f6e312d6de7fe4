/*
 * Recipes: the operations that turn bytes into a tensor.
 *
 * A recipe is an immutable, reference-counted list of operations with
 * torchvision v2's names, defaults and parameter distributions. It is checked
 * as a whole when it is created: its output must have one fixed shape, so that
 * samples can be written straight into batches.
 *
 * Random parameters are a pure function of (seed, epoch, sample index,
 * position of the operation in the list). They depend on no state and not on the order of calls.
 */
#ifndef HEADRACE_RECIPE_H
#define HEADRACE_RECIPE_H

#include <headrace/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_recipe;

enum hr_dtype { HR_UINT8 = 0, HR_FLOAT16 = 1, HR_BFLOAT16 = 2, HR_FLOAT32 = 3 };
enum hr_layout { HR_NCHW = 0, HR_NHWC = 1 };
/* Bicubic results are clamped to 0..255 (0..1), as in Pillow. They are clamped even after a
 * ToDtype, where torchvision would let floats exceed the range. */
enum hr_interpolation { HR_BILINEAR = 0, HR_BICUBIC = 1 };
enum hr_padding_mode { HR_PAD_CONSTANT = 0, HR_PAD_EDGE, HR_PAD_REFLECT, HR_PAD_SYMMETRIC };

enum hr_operation_kind {
    HR_RANDOM_RESIZED_CROP = 1,
    HR_RESIZE,
    HR_CENTER_CROP,
    HR_RANDOM_CROP,
    HR_RANDOM_HORIZONTAL_FLIP,
    HR_RANDOM_VERTICAL_FLIP,
    HR_COLOR_JITTER,
    HR_RANDOM_GRAYSCALE,
    HR_TO_DTYPE,
    HR_NORMALIZE,
};

/* One operation and its parameters. hr_operation_default sets torchvision's
 * defaults; parameters without a default, such as sizes, are 0 and must be set. */
struct hr_operation {
    enum hr_operation_kind kind;
    union {
        struct {
            int height, width; /* pixels */
            double scale[2];   /* area of the crop divided by that of the image */
            double ratio[2];   /* width divided by height, log-uniform */
            enum hr_interpolation interpolation;
            int antialias;
        } random_resized_crop;
        struct {
            /* width == 0: the shorter side becomes `height` and the ratio is kept (torchvision's
             * Resize(int)); if max_size > 0, it limits the longer side */
            int height, width;
            int max_size;
            enum hr_interpolation interpolation;
            int antialias;
        } resize;
        struct {
            /* smaller images are padded with 0, in the value range at this point of the
             * recipe, as in torchvision */
            int height, width;
        } center_crop;
        struct {
            int height, width;
            int padding[4]; /* left, top, right, bottom */
            int pad_if_needed;
            /* per channel, in the value range at this point of the recipe: 0..255; 0..1 after
             * a ToDtype with scale; normalised values after Normalize */
            double fill[3];
            enum hr_padding_mode padding_mode;
        } random_crop;
        struct {
            double p;
        } flip; /* both flips */
        struct {
            /* drawn uniformly from [0] to [1]; {1, 1} (hue: {0, 0}) skips the step */
            double brightness[2], contrast[2], saturation[2], hue[2];
        } color_jitter;
        struct {
            double p;
        } random_grayscale;
        struct {
            enum hr_dtype dtype;
            int scale; /* non-zero: 0..255 becomes 0..1 for the float types */
        } to_dtype;
        struct {
            double mean[3], std[3];
        } normalize;
        uint64_t reserved[16]; /* 0; room for parameters of later versions */
    } u;
};

HR_API void hr_operation_default(struct hr_operation *operation, enum hr_operation_kind kind);

/* "RandomResizedCrop" and so on; NULL for an unknown kind. Static storage. */
HR_API const char *hr_operation_name(enum hr_operation_kind kind);

/* How to handle damaged images. */
enum hr_damaged {
    HR_DAMAGED_REFUSE = 0, /* they are bad samples */
    HR_DAMAGED_ACCEPT = 1, /* accept what Pillow decodes by default: libjpeg guesses lost pixels,
                              and checksums of PNG data are not verified. Truncated files are
                              still bad samples */
};

struct hr_recipe_options {
    size_t size; /* sizeof(struct hr_recipe_options) */
    enum hr_layout layout;
    int apply_exif_orientation; /* 0 (default): ignored, as in torchvision */
    uint64_t max_pixels;        /* largest width x height that an image may declare, checked
                                   before its memory is allocated; default 178,956,970, where
                                   Pillow raises an error too. Rows hold whole vectors: in images
                                   of more than 2^24 pixels, a side below 32 counts as 32 */
    enum hr_damaged damaged;
    int reserved; /* ignored: older programs have padding here */
    int inexact;  /* 0 (default): the pixels of a full decode. Non-zero: JPEG files are decoded at
                     1/2, 1/4 or 1/8 of their size, as libjpeg-turbo scales them, where the recipe
                     shrinks the crop at least that much on both axes; docs/pixels.md has the
                     distance. Needs a Resize or RandomResizedCrop with antialias */
};

/* Sets the defaults of a struct of `size` bytes, of any version. Meant for bindings
 * of other languages; C programs call the next function. */
HR_API void hr_recipe_options_init(struct hr_recipe_options *options, size_t size);

static inline void hr_recipe_options_default(struct hr_recipe_options *options)
{
    hr_recipe_options_init(options, sizeof *options);
}

/*
 * Makes a recipe of `count` operations, which are copied. Without a ToDtype
 * the output is uint8. On success *out holds one reference.
 * Errors: -EINVAL names the operation, its position and the remedy (the final size
 * is not fixed, Normalize on uint8, a negative size, ...).
 */
HR_API HR_NODISCARD int hr_recipe_create(struct hr_recipe **out,
                                         const struct hr_operation *operations, size_t count,
                                         const struct hr_recipe_options *options,
                                         struct hr_error *error);

HR_API struct hr_recipe *hr_recipe_ref(struct hr_recipe *recipe);
HR_API void hr_recipe_unref(struct hr_recipe **recipe);

/* Shape and element type of one sample's tensor. */
struct hr_tensor_spec {
    enum hr_dtype dtype;
    enum hr_layout layout;
    int channels, height, width;
    size_t bytes; /* of one sample: channels x height x width x element size */
};

HR_API void hr_recipe_output(const struct hr_recipe *recipe, struct hr_tensor_spec *spec);

/* Size of one element in bytes. */
HR_API size_t hr_dtype_bytes(enum hr_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
