/* Operations with parameters that only exact texts keep; see odd_operations.h. */
#include "odd_operations.h"

#include "../recipe/recipe_cases.h"

static void set_fill(double fill[3])
{
    fill[0] = 0.1;
    fill[1] = 254.99999999999997;
    fill[2] = 1e-308 / 7;
}

static void set_timm(struct hr_operation *o)
{
    o->u.timm.magnitude_std = 0.30000000000000004;
    o->u.timm.uniform = 1;
    o->u.timm.magnitude_max = 9.3;
    o->u.timm.translate = 0.1;
    o->u.timm.interpolation = HR_BILINEAR;
    o->u.timm.any_interpolation = 1;
    for (int c = 0; c < 3; c++)
        o->u.timm.fill[c] = 17 + c;
    if (o->kind == HR_TIMM_AUTO_AUGMENT) {
        o->u.timm.policy = HR_TIMM_POLICY_ORIGINALR;
        return;
    }
    o->u.timm.magnitude = 7.3;
    if (o->kind == HR_TIMM_RAND_AUGMENT) {
        o->u.timm.choices = HR_TIMM_WEIGHTED_3A;
        o->u.timm.num_ops = 3;
        o->u.timm.p = 0.9;
    } else {
        o->u.timm.width = 2;
        o->u.timm.depth = 4;
        o->u.timm.blended = 1;
        o->u.timm.alpha = 0.30000000000000004;
    }
}

/* Sets the parameters of an operation on bytes, none to its default. Returns 0 for other kinds. */
static int odd_augmentation(struct hr_operation *o)
{
    switch (o->kind) {
    case HR_RANDOM_INVERT:
    case HR_RANDOM_AUTOCONTRAST:
    case HR_RANDOM_EQUALIZE:
        o->u.adjust.p = 0.7000000000000001;
        return 1;
    case HR_RANDOM_POSTERIZE:
        o->u.adjust.p = 0.9;
        o->u.adjust.bits = 3;
        return 1;
    case HR_RANDOM_SOLARIZE:
        o->u.adjust.p = 0.1;
        o->u.adjust.threshold = 0x1.5555555555555p6;
        return 1;
    case HR_RANDOM_ADJUST_SHARPNESS:
        o->u.adjust.p = 0.9;
        o->u.adjust.sharpness = 1.7000000000000002;
        return 1;
    case HR_RANDOM_CHANNEL_PERMUTATION:
        return 1;
    case HR_RANDOM_PHOTOMETRIC_DISTORT:
        for (int i = 0; i < 2; i++) {
            o->u.photometric_distort.brightness[i] = 0.7 + 0.1 * i;
            o->u.photometric_distort.contrast[i] = 0.3 + i;
            o->u.photometric_distort.saturation[i] = 0.1 + i;
            o->u.photometric_distort.hue[i] = 0.1 * i + 0.01;
        }
        o->u.photometric_distort.p = 0.2;
        return 1;
    case HR_GAUSSIAN_BLUR:
        o->u.gaussian_blur.kernel_size[0] = 7;
        o->u.gaussian_blur.kernel_size[1] = 5;
        o->u.gaussian_blur.sigma[0] = 0.30000000000000004;
        o->u.gaussian_blur.sigma[1] = 3.3;
        o->u.gaussian_blur.p = 0.5;
        return 1;
    case HR_GAUSSIAN_NOISE:
        o->u.gaussian_noise.mean = -0.1;
        o->u.gaussian_noise.sigma = 0.30000000000000004;
        o->u.gaussian_noise.clip = 0;
        return 1;
    case HR_RAND_AUGMENT:
        o->u.auto_augment.num_ops = 3;
        o->u.auto_augment.magnitude = 7; /* fallthrough */
    case HR_TRIVIAL_AUGMENT_WIDE:
        o->u.auto_augment.num_magnitude_bins = 17; /* fallthrough */
    case HR_AUTO_AUGMENT:
        if (o->kind == HR_AUTO_AUGMENT)
            o->u.auto_augment.policy = HR_POLICY_SVHN;
        o->u.auto_augment.interpolation = HR_BILINEAR;
        set_fill(o->u.auto_augment.fill);
        o->u.auto_augment.has_fill = 1;
        return 1;
    case HR_AUG_MIX:
        o->u.aug_mix.severity = 5;
        o->u.aug_mix.mixture_width = 2;
        o->u.aug_mix.chain_depth = 4;
        o->u.aug_mix.all_ops = 0;
        o->u.aug_mix.interpolation = HR_NEAREST;
        o->u.aug_mix.alpha = 0.30000000000000004;
        set_fill(o->u.aug_mix.fill);
        o->u.aug_mix.has_fill = 1;
        return 1;
    case HR_TIMM_RAND_AUGMENT:
    case HR_TIMM_AUTO_AUGMENT:
    case HR_TIMM_AUG_MIX:
        set_timm(o);
        return 1;
    case HR_RANDOM_ERASING:
        o->u.random_erasing.p = 0.9;
        for (int i = 0; i < 2; i++) {
            o->u.random_erasing.scale[i] = 0.1 + 0.1 * i;
            o->u.random_erasing.ratio[i] = 0.2 + i;
        }
        for (int c = 0; c < 3; c++)
            o->u.random_erasing.value[c] = 0.1 * (c + 1);
        o->u.random_erasing.mode = HR_ERASE_NOISE;
        o->u.random_erasing.min_count = 2;
        o->u.random_erasing.max_count = 5;
        return 1;
    default:
        return 0;
    }
}

/* The same for operations that move pixels, and for groups. */
static int odd_geometry(struct hr_operation *o)
{
    switch (o->kind) {
    case HR_PAD:
        for (int i = 0; i < 4; i++)
            o->u.pad.padding[i] = 7 - i;
        o->u.pad.padding_mode = HR_PAD_EDGE;
        set_fill(o->u.pad.fill);
        return 1;
    case HR_RANDOM_AFFINE:
        for (int i = 0; i < 4; i++)
            o->u.random_affine.shear[i] = i - 2.1;
        for (int i = 0; i < 2; i++) {
            o->u.random_affine.degrees[i] = i / 3.0 - 10.3;
            o->u.random_affine.translate[i] = 0.1 * i + 0.2;
            o->u.random_affine.scale[i] = 0.7 + i;
            o->u.random_affine.center[i] = 10.3 + i;
        }
        o->u.random_affine.has_center = 1;
        o->u.random_affine.has_fill = 0;
        set_fill(o->u.random_affine.fill);
        o->u.random_affine.interpolation = HR_BILINEAR;
        return 1;
    case HR_RANDOM_ROTATION:
        for (int i = 0; i < 2; i++) {
            o->u.random_rotation.degrees[i] = i / 3.0 - 10.3;
            o->u.random_rotation.center[i] = 10.3 + i;
        }
        o->u.random_rotation.has_center = 1;
        o->u.random_rotation.has_fill = 0;
        o->u.random_rotation.expand = 1;
        set_fill(o->u.random_rotation.fill);
        o->u.random_rotation.interpolation = HR_BILINEAR;
        return 1;
    case HR_RANDOM_PERSPECTIVE:
        o->u.random_perspective.distortion_scale = 0.30000000000000004;
        o->u.random_perspective.p = 0.7;
        o->u.random_perspective.has_fill = 0;
        set_fill(o->u.random_perspective.fill);
        o->u.random_perspective.interpolation = HR_NEAREST;
        return 1;
    case HR_ELASTIC_TRANSFORM:
        for (int i = 0; i < 2; i++) {
            o->u.elastic_transform.alpha[i] = 20.1 + i;
            o->u.elastic_transform.sigma[i] = 2.7 - i;
        }
        o->u.elastic_transform.has_fill = 0;
        set_fill(o->u.elastic_transform.fill);
        o->u.elastic_transform.interpolation = HR_NEAREST;
        return 1;
    case HR_RANDOM_ZOOM_OUT:
        o->u.random_zoom_out.side_range[0] = 1.1;
        o->u.random_zoom_out.side_range[1] = 1.7000000000000002;
        o->u.random_zoom_out.p = 0.9;
        set_fill(o->u.random_zoom_out.fill);
        return 1;
    case HR_RANDOM_SHORTEST_SIZE:
        for (int i = 0; i < 16; i++)
            o->u.random_shortest_size.min_size[i] = 40 + i;
        o->u.random_shortest_size.max_size = 91;
        o->u.random_shortest_size.interpolation = HR_BICUBIC;
        o->u.random_shortest_size.antialias = 0;
        return 1;
    case HR_LETTER_BOX:
        o->u.letter_box.height = 51;
        o->u.letter_box.width = 47;
        o->u.letter_box.enlarge = 0;
        o->u.letter_box.interpolation = HR_BICUBIC;
        o->u.letter_box.antialias = 0;
        set_fill(o->u.letter_box.fill);
        return 1;
    case HR_RANDOM_IOU_CROP:
        o->u.random_iou_crop.min_scale = 0.31;
        o->u.random_iou_crop.max_scale = 0.91;
        o->u.random_iou_crop.min_aspect_ratio = 0.61;
        o->u.random_iou_crop.max_aspect_ratio = 1.9;
        for (int i = 0; i < 11; i++)
            o->u.random_iou_crop.sampler_options[i] = 0.123 + i / 17.0;
        o->u.random_iou_crop.option_count = 11;
        o->u.random_iou_crop.trials = 33;
        return 1;
    case HR_SANITIZE_BOUNDING_BOXES:
        o->u.sanitize_bounding_boxes.min_size = 1.1;
        o->u.sanitize_bounding_boxes.min_area = 7.3;
        return 1;
    case HR_CLAMP_BOUNDING_BOXES:
        return 1;
    case HR_SEQUENCE:
    case HR_RANDOM_APPLY:
    case HR_RANDOM_CHOICE:
    case HR_RANDOM_ORDER:
        o->u.group.count = 2;
        o->u.group.p = 1 / 3.0;
        o->u.group.weight = 0.1;
        return 1;
    default:
        return 0;
    }
}

struct hr_operation odd(enum hr_operation_kind kind)
{
    struct hr_operation o = op(kind);
    switch (kind) {
    case HR_RANDOM_RESIZED_CROP:
        o = sized(kind, 23, 31);
        o.u.random_resized_crop.scale[0] = 0.1 + 0.2;
        o.u.random_resized_crop.scale[1] = 1 / 1.7;
        o.u.random_resized_crop.ratio[0] = 0x1.5555555555555p-1;
        o.u.random_resized_crop.ratio[1] = 1.3333333333333335;
        o.u.random_resized_crop.interpolation = HR_BICUBIC;
        o.u.random_resized_crop.antialias = 0;
        break;
    case HR_RESIZE:
        o = sized(kind, 40, 0);
        o.u.resize.max_size = 55;
        o.u.resize.interpolation = HR_BICUBIC;
        o.u.resize.antialias = 0;
        break;
    case HR_CENTER_CROP:
        o = sized(kind, 41, 57);
        break;
    case HR_RANDOM_CROP:
        o = sized(kind, 29, 27);
        for (int i = 0; i < 4; i++)
            o.u.random_crop.padding[i] = 2 * i + 1;
        o.u.random_crop.pad_if_needed = 1;
        o.u.random_crop.fill[0] = 1e-308 / 7;
        o.u.random_crop.fill[1] = 254.99999999999997;
        o.u.random_crop.fill[2] = -0.0;
        o.u.random_crop.padding_mode = HR_PAD_REFLECT;
        break;
    case HR_RANDOM_HORIZONTAL_FLIP:
    case HR_RANDOM_VERTICAL_FLIP:
        o.u.flip.p = 1 / 3.0;
        break;
    case HR_COLOR_JITTER:
        o.u.color_jitter.brightness[0] = 0.6000000000000001;
        o.u.color_jitter.brightness[1] = 1.4;
        o.u.color_jitter.contrast[0] = 5e-324;
        o.u.color_jitter.contrast[1] = 1.7;
        o.u.color_jitter.saturation[0] = 0.123456789012345678;
        o.u.color_jitter.saturation[1] = 17;
        o.u.color_jitter.hue[0] = -0.1;
        o.u.color_jitter.hue[1] = 0.30000000000000004;
        break;
    case HR_RANDOM_GRAYSCALE:
        o.u.random_grayscale.p = 0.7000000000000001;
        break;
    case HR_TO_DTYPE:
        o = to_dtype(HR_FLOAT16, 1);
        break;
    case HR_NORMALIZE:
        for (int c = 0; c < 3; c++) {
            o.u.normalize.mean[c] = 0.485 / (c + 3);
            o.u.normalize.std[c] = 0.229 / (c + 1.1);
        }
        break;
    default:
        if (!odd_augmentation(&o) && !odd_geometry(&o))
            fail_msg("no parameters for kind %d", (int)kind);
    }
    return o;
}

/* Returns non-zero if the word at `offset` of the odd operation's parameters differs from the
 * default. */
static int is_parameter(enum hr_operation_kind kind, size_t offset)
{
    struct hr_operation o = odd(kind), plainly = op(kind);
    return memcmp((char *)&o.u + offset, (char *)&plainly.u + offset, 4) != 0;
}

void check_odd_parameters(void)
{
    static const size_t parameter_words[] = {
        [HR_RANDOM_RESIZED_CROP] = 11,
        [HR_RESIZE] = 4,
        [HR_CENTER_CROP] = 2,
        [HR_RANDOM_CROP] = 13,
        [HR_RANDOM_HORIZONTAL_FLIP] = 2,
        [HR_RANDOM_VERTICAL_FLIP] = 2,
        [HR_COLOR_JITTER] = 15,
        [HR_RANDOM_GRAYSCALE] = 2,
        [HR_TO_DTYPE] = 2,
        [HR_NORMALIZE] = 12,
        [HR_PAD] = 11,
        [HR_RANDOM_AFFINE] = 32,
        [HR_RANDOM_ROTATION] = 18,
        [HR_RANDOM_PERSPECTIVE] = 12,
        [HR_ELASTIC_TRANSFORM] = 16,
        [HR_SEQUENCE] = 5,
        [HR_RANDOM_APPLY] = 5,
        [HR_RANDOM_CHOICE] = 5,
        [HR_RANDOM_ORDER] = 5,
        [HR_RANDOM_INVERT] = 2,
        [HR_RANDOM_POSTERIZE] = 3,
        [HR_RANDOM_SOLARIZE] = 3,
        [HR_RANDOM_ADJUST_SHARPNESS] = 4,
        [HR_RANDOM_AUTOCONTRAST] = 2,
        [HR_RANDOM_EQUALIZE] = 2,
        [HR_RANDOM_PHOTOMETRIC_DISTORT] = 14,
        [HR_GAUSSIAN_BLUR] = 6,
        [HR_GAUSSIAN_NOISE] = 5,
        [HR_RANDOM_ERASING] = 17,
        [HR_RAND_AUGMENT] = 11,
        [HR_TRIVIAL_AUGMENT_WIDE] = 9,
        [HR_AUTO_AUGMENT] = 9,
        [HR_AUG_MIX] = 14,
        [HR_TIMM_RAND_AUGMENT] = 18,
        [HR_TIMM_AUTO_AUGMENT] = 13,
        [HR_TIMM_AUG_MIX] = 19,
        [HR_RANDOM_ZOOM_OUT] = 12,
        [HR_RANDOM_SHORTEST_SIZE] = 19,
        [HR_LETTER_BOX] = 11,
        [HR_RANDOM_IOU_CROP] = 32,
        [HR_SANITIZE_BOUNDING_BOXES] = 4,
    };
    const int kinds = (int)(sizeof parameter_words / sizeof parameter_words[0]);
    for (int kind = HR_RANDOM_RESIZED_CROP; kind < kinds; kind++) {
        size_t words = 0;
        if (!parameter_words[kind])
            continue;
        for (size_t offset = 0; offset < sizeof((struct hr_operation *)0)->u; offset += 4)
            words += (size_t)is_parameter((enum hr_operation_kind)kind, offset);
        if (words < parameter_words[kind])
            fail_msg("%s: %zu words differ", hr_operation_name((enum hr_operation_kind)kind),
                     words);
    }
}
