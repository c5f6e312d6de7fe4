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

/* Recipes make tensors of the first four; the others are for rows (headrace/rows.h). */
enum hr_dtype {
    HR_UINT8 = 0,
    HR_FLOAT16 = 1,
    HR_BFLOAT16 = 2,
    HR_FLOAT32 = 3,
    HR_INT64 = 4,
    HR_INT32 = 5,
    HR_FLOAT64 = 6,
    HR_BOOL = 7, /* a byte: 0 or 1 */
};
enum hr_layout { HR_NCHW = 0, HR_NHWC = 1 };
/* Bicubic results are clamped to 0..255 (0..1), as in Pillow. They are clamped even after a
 * ToDtype, where torchvision would let floats exceed the range. */
enum hr_interpolation {
    HR_BILINEAR = 0,
    HR_BICUBIC = 1,
    HR_NEAREST = 2,        /* resizing: as torch's "nearest", which torchvision has for tensors */
    HR_NEAREST_EXACT = 3,  /* only resizing: as torch's "nearest-exact" */
    HR_NEAREST_PILLOW = 4, /* only resizing: as Pillow, thus as torchvision for PIL images */
};
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
    HR_PAD,
    /* These run on bytes, so they must come before any ToDtype. */
    HR_RANDOM_INVERT,
    HR_RANDOM_POSTERIZE,
    HR_RANDOM_SOLARIZE,
    HR_RANDOM_ADJUST_SHARPNESS,
    HR_RANDOM_AUTOCONTRAST,
    HR_RANDOM_EQUALIZE,
    HR_RANDOM_CHANNEL_PERMUTATION,
    HR_RANDOM_PHOTOMETRIC_DISTORT,
    HR_GAUSSIAN_BLUR,
    HR_GAUSSIAN_NOISE,
    HR_RANDOM_AFFINE,
    HR_RANDOM_ROTATION,
    HR_RANDOM_PERSPECTIVE,
    HR_ELASTIC_TRANSFORM,
    HR_RAND_AUGMENT,
    HR_TRIVIAL_AUGMENT_WIDE,
    HR_AUTO_AUGMENT,
    HR_AUG_MIX,
    /* Anywhere after the last operation that moves or colours pixels. */
    HR_RANDOM_ERASING,
    /* These apply to the operations after them in the list; such an operation may be one of these
     * again, with its own. */
    HR_SEQUENCE, /* counts as one operation for the next three */
    HR_RANDOM_APPLY,
    HR_RANDOM_CHOICE,
    HR_RANDOM_ORDER,
    /* Like HR_RAND_AUGMENT: on bytes. */
    HR_TIMM_RAND_AUGMENT,
    HR_TIMM_AUTO_AUGMENT,
    HR_TIMM_AUG_MIX,
    HR_RANDOM_ZOOM_OUT = 64,
    HR_RANDOM_SHORTEST_SIZE,
    HR_LETTER_BOX, /* not torchvision's: fits the image into a fixed size, and fills the rest */
    /* For datasets with a column of boxes (headrace/rows.h); of several, the first counts. */
    HR_RANDOM_IOU_CROP,
    HR_CLAMP_BOUNDING_BOXES,
    HR_SANITIZE_BOUNDING_BOXES, /* drops rows */
    /* Of sounds, from here on. A recipe has operations of images or of sounds. */
    HR_RANDOM_WINDOW = 128,
    HR_CENTER_WINDOW,
    HR_PAD_OR_TRIM,
    HR_MONO,
    HR_CHANNELS,
    HR_RESAMPLE,
    HR_SPEED_PERTURBATION,
    HR_GAIN,
    /* These make features of a waveform, and the next ones change them. */
    HR_MEL_SPECTROGRAM,
    HR_LOG_MEL,
    HR_AMPLITUDE_TO_DB,
    HR_FREQUENCY_MASKING,
    HR_TIME_MASKING,
};

enum hr_log_mel { HR_LOG_MEL_WHISPER = 0, HR_LOG_MEL_KALDI = 1 };

/* Most factors of a SpeedPerturbation. */
#define HR_SPEED_FACTORS 8

enum hr_augment_policy { HR_POLICY_IMAGENET = 0, HR_POLICY_CIFAR10 = 1, HR_POLICY_SVHN = 2 };

/* What timm's RandAugment chooses from, as its configurations name it ("inc1", "t3aw"). */
enum hr_timm_choices {
    HR_TIMM_PLAIN = 0,
    HR_TIMM_INCREASING = 1, /* stronger with the magnitude */
    HR_TIMM_3A = 2,
    HR_TIMM_WEIGHTED_3A = 3, /* this and the next: with weights, and without repetition */
    HR_TIMM_WEIGHTED = 4,
};

enum hr_timm_policy {
    HR_TIMM_POLICY_V0 = 0,
    HR_TIMM_POLICY_V0R = 1,
    HR_TIMM_POLICY_ORIGINAL = 2,
    HR_TIMM_POLICY_ORIGINALR = 3,
    HR_TIMM_POLICY_3A = 4,
};

enum hr_erasing_value {
    HR_ERASE_CONSTANT = 0, /* with `value` */
    HR_ERASE_RANDOM = 1,   /* one normally distributed number per channel */
    HR_ERASE_NOISE = 2,    /* one per element (torchvision's value="random", timm's mode "pixel") */
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
            int antialias; /* of bilinear and bicubic */
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
        struct {
            int padding[4]; /* left, top, right, bottom; not negative */
            enum hr_padding_mode padding_mode;
            double fill[3]; /* as in random_crop */
        } pad;
        struct {
            double p;
            int bits;         /* posterize: 0..8 */
            double threshold; /* solarize: 0..255 */
            double sharpness; /* adjust_sharpness: factor, not negative */
        } adjust;             /* invert, posterize, solarize, sharpness, autocontrast, equalize */
        struct {
            double brightness[2], contrast[2], saturation[2], hue[2];
            double p;
        } photometric_distort;
        struct {
            int kernel_size[2]; /* height, width: odd */
            double sigma[2];    /* drawn uniformly, pixels */
            double p;           /* 1 in torchvision */
        } gaussian_blur;
        struct {
            double mean, sigma; /* of 0..1, as torchvision takes them */
            int clip;
        } gaussian_noise;
        struct {
            double degrees[2];   /* clockwise */
            double translate[2]; /* largest shift / size: x, y */
            double scale[2];     /* {1, 1}: none */
            double shear[4];     /* degrees: x from, to, y from, to */
            double fill[3];      /* 0..255 */
            double center[2];    /* x, y in pixels, if has_center */
            short has_center;
            short has_fill;                      /* 0: torchvision's fill=None */
            enum hr_interpolation interpolation; /* not bicubic */
        } random_affine;
        struct {
            double degrees[2]; /* counter-clockwise */
            double fill[3];    /* this and the next as in random_affine */
            double center[2];
            int has_center, has_fill;
            int expand; /* the result holds the whole rotated image */
            enum hr_interpolation interpolation;
        } random_rotation;
        struct {
            double distortion_scale, p;
            double fill[3];
            int has_fill;
            enum hr_interpolation interpolation;
        } random_perspective;
        struct {
            double alpha[2], sigma[2]; /* pixels: x, y */
            double fill[3];
            int has_fill;
            enum hr_interpolation interpolation;
        } elastic_transform;
        struct {
            int num_ops;                         /* rand_augment */
            int magnitude;                       /* rand_augment */
            int num_magnitude_bins;              /* rand_augment, trivial_augment_wide */
            enum hr_augment_policy policy;       /* auto_augment */
            enum hr_interpolation interpolation; /* nearest or bilinear */
            double fill[3];
            int has_fill; /* 0: black, as torchvision's fill=None */
        } auto_augment;   /* rand_augment, trivial_augment_wide, auto_augment */
        struct {
            int severity, mixture_width;
            int chain_depth; /* -1: 1 to 3, drawn */
            int all_ops;
            enum hr_interpolation interpolation;
            double alpha;
            double fill[3];
            int has_fill; /* 0: black, as torchvision's fill=None */
        } aug_mix;
        struct {
            double p, scale[2], ratio[2];
            double value[3]; /* in the units of its place in the recipe */
            enum hr_erasing_value mode;
            int min_count, max_count; /* of rectangles; timm's */
        } random_erasing;
        struct {
            int count;     /* of operations after this one that belong to it; 0: nothing */
            double p;      /* random_apply: probability of all of them */
            double weight; /* sequence: as a choice of a random_choice; 1 by default */
        } group;           /* sequence, random_apply, random_choice, random_order */
        struct {
            enum hr_timm_choices choices; /* timm_rand_augment */
            enum hr_timm_policy policy;   /* timm_auto_augment */
            int num_ops;                  /* timm_rand_augment */
            int width, depth;             /* timm_aug_mix: chains; their length, -1: 1 to 3 */
            int blended;                  /* timm_aug_mix: chains are blended one by one */
            enum hr_interpolation interpolation; /* bilinear or bicubic */
            int any_interpolation;               /* non-zero: one of them is drawn */
            double p;             /* timm_rand_augment: probability of each operation */
            double magnitude;     /* 0 to 10; policies have their own */
            double magnitude_std; /* of normally distributed magnitudes; 0: none */
            double magnitude_max; /* 10 */
            double translate;     /* largest shift / size, at magnitude 10 */
            double alpha;         /* timm_aug_mix: of the distributions of the weights */
            double fill[3];       /* whole numbers of 0..255 */
            int uniform;          /* magnitudes are uniform from 0, whatever magnitude_std is */
        } timm;                   /* timm_rand_augment, timm_auto_augment, timm_aug_mix */
        struct {
            double fill[3];       /* as in random_crop */
            double side_range[2]; /* size of the canvas / size of the image, uniform */
            double p;
        } random_zoom_out;
        struct {
            int min_size[16]; /* one is drawn for the shorter side; unused ones are 0 */
            int max_size;     /* of the longer side; 0: no limit */
            enum hr_interpolation interpolation;
            int antialias;
        } random_shortest_size;
        struct {
            int height, width;
            double fill[3]; /* as in random_crop; 114 by default */
            int enlarge;    /* 0: smaller images keep their size */
            enum hr_interpolation interpolation;
            int antialias;
        } letter_box;
        struct {
            double min_scale, max_scale; /* side of the crop / side of the image */
            double min_aspect_ratio, max_aspect_ratio;
            double sampler_options[11]; /* least overlaps (IoU); 1 or more: no crop */
            int option_count;           /* how many of them are used */
            int trials;                 /* of crops, before another overlap is drawn */
        } random_iou_crop;
        struct {
            double min_size, min_area; /* in pixels: smaller boxes are dropped */
        } sanitize_bounding_boxes;
        struct {
            double seconds;
            int pad;    /* a shorter clip is extended with zeros; 0: it is a bad sample */
        } sound_window; /* random_window, center_window */
        struct {
            int frames; /* at the rate that the sound has here: for a loader the recipe says it, by
                           a Resample before or features after it */
        } pad_or_trim;
        struct {
            int count; /* clips with another number of channels are bad samples */
        } channels;
        struct {
            int orig_freq; /* clips with another rate are bad samples; 0: any rate */
            int new_freq;  /* Hz */
        } sound_resample;  /* resample */
        struct {
            double factors[HR_SPEED_FACTORS]; /* hundredths; each has the same chance */
            int count;                        /* of factors */
        } speed;                              /* speed_perturbation */
        struct {
            double min_gain_in_db, max_gain_in_db, p;
        } gain;
        struct {
            int sample_rate, n_fft;
            int win_length, hop_length; /* 0: n_fft; half of win_length */
            int n_mels, center;
            int norm;            /* 0: none, 1: slaney */
            int mel_scale;       /* 0: htk, 1: slaney */
            double f_min, f_max; /* Hz; f_max 0: half of the rate */
            double power;        /* 1 or 2 */
        } mel_spectrogram;
        struct {
            enum hr_log_mel style;
            int n_mels;
        } log_mel;
        struct {
            int stype; /* 0: power, 1: magnitude */
            int has_top_db;
            double top_db; /* range below the largest number */
        } amplitude_to_db;
        struct {
            int mask_param;    /* the most bands or columns */
            double p;          /* at most this share of them */
        } masking;             /* frequency_masking, time_masking */
        uint64_t reserved[16]; /* 0; room for parameters of later versions */
    } u;
};

HR_API void hr_operation_default(struct hr_operation *operation, enum hr_operation_kind kind);

/* "RandomResizedCrop" and so on; NULL for an unknown kind. Static storage. */
HR_API const char *hr_operation_name(enum hr_operation_kind kind);

/* Returns the kind with this name; 0 if there is none. */
HR_API enum hr_operation_kind hr_operation_kind_of(const char *name);

/*
 * Sets a parameter by the name of its member ("scale"), from `count` numbers: for bindings of other
 * languages. Whole numbers, flags and enumerators are given as numbers, too. Errors: -ENOENT: the
 * operation has no such parameter; -EINVAL: the count or a number does not suit it.
 */
HR_API HR_NODISCARD int hr_operation_set(struct hr_operation *operation, const char *parameter,
                                         const double *values, size_t count,
                                         struct hr_error *error);

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
    uint64_t max_source_bytes; /* of sounds: largest file; default 64 MiB */
    int padded; /* 0 (default): refuse recipes whose results differ in size. Non-zero: accept them.
                   A tensor then has the largest size; a result lies at its upper left, with zeros
                   on its right and below, and hr_preparer_extents or a batch's field says its size.
                   Of images, without views. Of sounds results are the same as without it, and the
                   size says how many frames or columns at the beginning are of the clip: of columns
                   those that the clip alone gives, at least 1 */
    int max_height, max_width; /* with padded: the largest result, both or none. A larger one is a
                                  bad sample. 0 (default): as large as the operations can make it,
                                  which a max_size limits */
};

/* Sets the defaults of a struct of `size` bytes, of any version. Meant for bindings
 * of other languages; C programs call the next function. */
HR_API void hr_recipe_options_init(struct hr_recipe_options *options, size_t size);

static inline void hr_recipe_options_default(struct hr_recipe_options *options)
{
    hr_recipe_options_init(options, sizeof *options);
}

/*
 * Makes a recipe of `count` operations, at most 32, which are copied. Without a
 * ToDtype the output is uint8. On success *out holds one reference.
 * Errors: -EINVAL names the operation, its position and the remedy (the final size
 * is not fixed, or with `padded` not limited, Normalize on uint8, a negative size, ...).
 */
HR_API HR_NODISCARD int hr_recipe_create(struct hr_recipe **out,
                                         const struct hr_operation *operations, size_t count,
                                         const struct hr_recipe_options *options,
                                         struct hr_error *error);

/* Most views of a recipe. */
#define HR_RECIPE_MAX_VIEWS 32

/*
 * Makes a recipe of several views of one image, such as DINO's two global and eight local crops: an
 * image is decoded once for all of them, and each gives a tensor of its own. `views` are recipes
 * without views, equal in all options; the new recipe copies them, and one may be given several
 * times. The first view draws its parameters as it would alone, every other one differently.
 * Errors: -EINVAL: options differ, a recipe has views itself, allows scaled decoding or is padded,
 * or there are none or too many; -ENOMEM.
 */
HR_API HR_NODISCARD int hr_recipe_create_views(struct hr_recipe **out,
                                               struct hr_recipe *const *views, size_t count,
                                               struct hr_error *error);

/* Returns the number of views: 1 for other recipes. */
HR_API size_t hr_recipe_views(const struct hr_recipe *recipe);

HR_API struct hr_recipe *hr_recipe_ref(struct hr_recipe *recipe);
HR_API void hr_recipe_unref(struct hr_recipe **recipe);

/* Most dimensions of one sample's tensor; a batch has one more. */
#define HR_TENSOR_MAX_DIMS 4

/*
 * Shape and element type of one sample's tensor. `dims` and `shape` describe it in general, in the
 * order in which it lies in memory: 3 x height x width or height x width x 3 for an image, channels
 * x frames for a waveform, mels x frames for features. `channels`, `height` and `width` are other
 * names for an image's shape. Other tensors have them too, with the same product: a matrix of M x T
 * has 1 channel, height M and width T.
 */
struct hr_tensor_spec {
    enum hr_dtype dtype;
    enum hr_layout layout; /* of an image; HR_NCHW for other tensors */
    int channels, height, width;
    size_t bytes;                      /* of one sample: the product of its shape x element size */
    size_t dims;                       /* 1 to HR_TENSOR_MAX_DIMS */
    int64_t shape[HR_TENSOR_MAX_DIMS]; /* the first `dims` count; the others are 0 */
};

/* Of the first view. With the option `padded`: of the largest result. */
HR_API void hr_recipe_output(const struct hr_recipe *recipe, struct hr_tensor_spec *spec);

/* Of view `view`, less than hr_recipe_views. */
HR_API void hr_recipe_view_output(const struct hr_recipe *recipe, size_t view,
                                  struct hr_tensor_spec *spec);

/* Size of one element in bytes. */
HR_API size_t hr_dtype_bytes(enum hr_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
