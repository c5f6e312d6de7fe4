/*
 * Shapes of samples' tensors (struct hr_tensor_spec): setting, comparing and checking them.
 */
#ifndef HR_RECIPE_TENSOR_H
#define HR_RECIPE_TENSOR_H

#include <headrace/recipe.h>

/* Largest tensor of one sample, in bytes. */
#define HR__TENSOR_MAX_BYTES (UINT64_C(1) << 34)

/* Sets the shape of an image, in the order of spec->layout, and the bytes that it has as
 * spec->dtype. */
void hr__tensor_image(struct hr_tensor_spec *spec, int channels, int height, int width);

/* The same for a tensor of rows x columns. */
void hr__tensor_matrix(struct hr_tensor_spec *spec, int rows, int columns);

/* Returns non-zero if two tensors have the same type and shape. */
/*
 * A padded tensor has its result at the upper left and zeros elsewhere. `extents`: the shape of the
 * part that may be other than zero. Before a result of width x height is written, hr__tensor_widen
 * adds its part to them; afterwards hr__tensor_clear sets the rest of the part to zero and
 * `extents` to the result's shape.
 */
void hr__tensor_widen(const struct hr_tensor_spec *spec, int width, int height, int64_t *extents);
void hr__tensor_clear(const struct hr_tensor_spec *spec, void *out, int width, int height,
                      int64_t *extents);

int hr__tensor_equal(const struct hr_tensor_spec *a, const struct hr_tensor_spec *b);

/* Checks a spec from an untrusted sender. Returns the name of a member that is out of range, or
 * NULL. A spec without dims is an image. */
const char *hr__tensor_wrong(const struct hr_tensor_spec *spec);

#endif
