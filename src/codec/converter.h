/* The converter's own check of an item, apart from converting, for its tests. */
#ifndef HR_CODEC_CONVERTER_H
#define HR_CODEC_CONVERTER_H

#include "codec/format.h"

#include <headrace/form.h>

/*
 * Decodes the file and the item and compares all pixels.
 * Errors: -ENOTSUP: they differ, and in which rows; -EFBIG; what the decoders say.
 */
int hr__converter_verify(struct hr_converter *converter, const struct hr__encoded *file,
                         const struct hr__encoded *item, struct hr_error *error);

#endif
