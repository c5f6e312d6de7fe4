/* The converter's check of an item as a separate function, for tests. */
#ifndef HR_CODEC_CONVERTER_H
#define HR_CODEC_CONVERTER_H

#include "codec/format.h"

#include <headrace/form.h>

/*
 * Decodes the file and the item and compares all pixels. Errors: -ENOTSUP: they differ (with the
 * rows in the message); -EFBIG; errors of the decoders.
 */
int hr__converter_verify(struct hr_converter *converter, const struct hr__encoded *file,
                         const struct hr__encoded *item, struct hr_error *error);

#endif
