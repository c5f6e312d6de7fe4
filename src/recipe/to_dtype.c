/*
 * ToDtype: the element type of the output and, with scale, the range 0..1 for float types. Nothing
 * is rounded before the last pass, so the last of several ToDtype operations determines the type.
 * Between float types scale does nothing, as in torchvision.
 */
#include "recipe/operation.h"

static void defaults(struct hr_operation *operation)
{
    operation->u.to_dtype.dtype = HR_FLOAT32;
}

static int check(struct hr__bound *bound, struct hr__state *state, struct hr_error *error)
{
    enum hr_dtype dtype = bound->operation.u.to_dtype.dtype;
    int scale = bound->operation.u.to_dtype.scale != 0;
    if (dtype > HR_FLOAT32)
        return hr__refuse(error, bound,
                          "type %d is unknown: use uint8, float16, bfloat16 or float32",
                          (int)dtype);
    if (dtype == HR_UINT8 && state->normalized)
        return hr__refuse(error, bound,
                          "normalised values do not fit into uint8: leave it out, "
                          "or leave Normalize out");
    if (dtype == HR_UINT8 && state->dtype != HR_UINT8 && scale != state->scaled)
        return hr__refuse(error, bound,
                          "the ToDtype before it has another scale, so that the "
                          "values would not be 0..255: give both the same scale");
    if (dtype == HR_UINT8 || (state->dtype == HR_UINT8 && scale)) {
        for (int c = 0; c < 3; c++)
            state->scale[c] = dtype == HR_UINT8 ? 1.0 : 1.0 / 255.0;
        state->scaled = dtype != HR_UINT8;
    }
    state->dtype = dtype;
    return 0;
}

static const struct hr__parameter fields[] = {
    {"dtype", HR__WORD(to_dtype.dtype, hr__dtype_words)},
    {"scale", HR__FLAG(to_dtype.scale)},
    {0},
};

const struct hr__operation_class hr__class_to_dtype = {
    .name = "ToDtype",
    .fields = fields,
    .defaults = defaults,
    .check = check,
};
