/* The list of operations: their names, defaults and parameters. */
#include "recipe/operation.h"

#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <string.h>

_Static_assert(sizeof((struct hr_operation *)0)->u == 128, "programs have arrays of operations");

static const struct hr__operation_class *const classes[] = {
    [HR_RANDOM_RESIZED_CROP] = &hr__class_random_resized_crop,
    [HR_RESIZE] = &hr__class_resize,
    [HR_CENTER_CROP] = &hr__class_center_crop,
    [HR_RANDOM_CROP] = &hr__class_random_crop,
    [HR_RANDOM_HORIZONTAL_FLIP] = &hr__class_horizontal_flip,
    [HR_RANDOM_VERTICAL_FLIP] = &hr__class_vertical_flip,
    [HR_COLOR_JITTER] = &hr__class_color_jitter,
    [HR_RANDOM_GRAYSCALE] = &hr__class_random_grayscale,
    [HR_TO_DTYPE] = &hr__class_to_dtype,
    [HR_NORMALIZE] = &hr__class_normalize,
    [HR_PAD] = &hr__class_pad,
    [HR_RANDOM_AFFINE] = &hr__class_random_affine,
    [HR_RANDOM_ROTATION] = &hr__class_random_rotation,
    [HR_RANDOM_PERSPECTIVE] = &hr__class_random_perspective,
    [HR_ELASTIC_TRANSFORM] = &hr__class_elastic_transform,
    [HR_SEQUENCE] = &hr__class_sequence,
    [HR_RANDOM_APPLY] = &hr__class_random_apply,
    [HR_RANDOM_CHOICE] = &hr__class_random_choice,
    [HR_RANDOM_ORDER] = &hr__class_random_order,
    [HR_RANDOM_INVERT] = &hr__class_random_invert,
    [HR_RANDOM_POSTERIZE] = &hr__class_random_posterize,
    [HR_RANDOM_SOLARIZE] = &hr__class_random_solarize,
    [HR_RANDOM_ADJUST_SHARPNESS] = &hr__class_random_adjust_sharpness,
    [HR_RANDOM_AUTOCONTRAST] = &hr__class_random_autocontrast,
    [HR_RANDOM_EQUALIZE] = &hr__class_random_equalize,
    [HR_RANDOM_CHANNEL_PERMUTATION] = &hr__class_random_channel_permutation,
    [HR_RANDOM_PHOTOMETRIC_DISTORT] = &hr__class_random_photometric_distort,
    [HR_GAUSSIAN_BLUR] = &hr__class_gaussian_blur,
    [HR_GAUSSIAN_NOISE] = &hr__class_gaussian_noise,
    [HR_RANDOM_ERASING] = &hr__class_random_erasing,
    [HR_RAND_AUGMENT] = &hr__class_rand_augment,
    [HR_TRIVIAL_AUGMENT_WIDE] = &hr__class_trivial_augment_wide,
    [HR_AUTO_AUGMENT] = &hr__class_auto_augment,
    [HR_AUG_MIX] = &hr__class_aug_mix,
    [HR_TIMM_RAND_AUGMENT] = &hr__class_timm_rand_augment,
    [HR_TIMM_AUTO_AUGMENT] = &hr__class_timm_auto_augment,
    [HR_TIMM_AUG_MIX] = &hr__class_timm_aug_mix,
    [HR_RANDOM_ZOOM_OUT] = &hr__class_random_zoom_out,
    [HR_RANDOM_SHORTEST_SIZE] = &hr__class_random_shortest_size,
    [HR_LETTER_BOX] = &hr__class_letter_box,
    [HR_RANDOM_IOU_CROP] = &hr__class_random_iou_crop,
    [HR_CLAMP_BOUNDING_BOXES] = &hr__class_clamp_bounding_boxes,
    [HR_SANITIZE_BOUNDING_BOXES] = &hr__class_sanitize_bounding_boxes,
    [HR_RANDOM_WINDOW] = &hr__class_random_window,
    [HR_CENTER_WINDOW] = &hr__class_center_window,
    [HR_PAD_OR_TRIM] = &hr__class_pad_or_trim,
    [HR_MONO] = &hr__class_mono,
    [HR_CHANNELS] = &hr__class_channels,
    [HR_RESAMPLE] = &hr__class_resample,
    [HR_SPEED_PERTURBATION] = &hr__class_speed_perturbation,
    [HR_GAIN] = &hr__class_gain,
    [HR_MEL_SPECTROGRAM] = &hr__class_mel_spectrogram,
    [HR_LOG_MEL] = &hr__class_log_mel,
    [HR_AMPLITUDE_TO_DB] = &hr__class_amplitude_to_db,
    [HR_FREQUENCY_MASKING] = &hr__class_frequency_masking,
    [HR_TIME_MASKING] = &hr__class_time_masking,
};

const struct hr__operation_class *hr__operation_class(enum hr_operation_kind kind)
{
    size_t i = (size_t)kind;
    return i < sizeof classes / sizeof classes[0] ? classes[i] : NULL;
}

const char *hr_operation_name(enum hr_operation_kind kind)
{
    const struct hr__operation_class *class = hr__operation_class(kind);
    return class ? class->name : NULL;
}

void hr_operation_default(struct hr_operation *operation, enum hr_operation_kind kind)
{
    const struct hr__operation_class *class = hr__operation_class(kind);
    memset(operation, 0, sizeof *operation);
    operation->kind = kind;
    if (class)
        class->defaults(operation);
}

const struct hr__parameter *hr__operation_fields(enum hr_operation_kind kind)
{
    const struct hr__operation_class *class = hr__operation_class(kind);
    return class ? class->fields : NULL;
}

enum hr_operation_kind hr_operation_kind_of(const char *name)
{
    for (size_t kind = 1; name && kind < sizeof classes / sizeof classes[0]; kind++)
        if (classes[kind] && !strcmp(name, classes[kind]->name))
            return (enum hr_operation_kind)kind;
    return (enum hr_operation_kind)0;
}

int hr_operation_set(struct hr_operation *operation, const char *parameter, const double *values,
                     size_t count, struct hr_error *error)
{
    const char *name = hr_operation_name(operation->kind);
    const struct hr__parameter *f = hr__operation_fields(operation->kind);
    if (!f)
        return hr__fail(error, -EINVAL, "there is no operation of kind %d", (int)operation->kind);
    while (f->name && strcmp(f->name, parameter))
        f++;
    if (!f->name)
        return hr__fail(error, -ENOENT, "%s has no parameter '%s'", name, parameter);
    if (count != f->count)
        return hr__fail(error, -EINVAL, "%s: %s takes %zu numbers, not %zu", name, parameter,
                        f->count, count);
    for (size_t i = 0; i < count; i++) {
        char *at = (char *)operation + f->offset;
        if (f->type == HR__PARAMETER_REAL) {
            memcpy(at + i * sizeof(double), &values[i], sizeof(double));
            continue;
        }
        if (!(values[i] >= INT32_MIN && values[i] <= INT32_MAX) || values[i] != rint(values[i]))
            return hr__fail(error, -EINVAL, "%s: %s = %g is out of range: whole numbers of 32 bits",
                            name, parameter, values[i]);
        hr__parameter_set_whole(f, at + i * sizeof(int), (int)values[i]);
    }
    return 0;
}
