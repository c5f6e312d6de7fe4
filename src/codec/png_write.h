/* Writes pixels to PNG files (PNG specification, third edition) with libspng. */
#ifndef HR_CODEC_PNG_WRITE_H
#define HR_CODEC_PNG_WRITE_H

#include "codec/codec.h"

struct hr__png_writer; /* one thread's memory */

/* On success the caller owns *out. Errors: -ENOMEM. */
int hr__png_writer_create(struct hr__png_writer **out, struct hr_error *error);
void hr__png_writer_destroy(struct hr__png_writer **writer);
size_t hr__png_writer_memory(const struct hr__png_writer *writer);

/* Makes a file of the pixels: 8-bit RGB, or grey if info->channels is 1, with the EXIF orientation.
 * The writer owns *bytes, valid until its next call. Errors: -ENOMEM. */
int hr__png_write(struct hr__png_writer *writer, const struct hr__planar *pixels,
                  const struct hr_image_info *info, const void **bytes, size_t *length,
                  struct hr_error *error);

#endif
