/*
 * Decodes whole samples to find out whether they are bad, including parts that a recipe might never
 * decode. A checker belongs to one thread and reuses its memory from image to image.
 */
#ifndef HR_BULK_CHECK_H
#define HR_BULK_CHECK_H

#include <headrace/prepare.h>

struct hr__checker;

/* On success *out is the caller's. Errors: -ENOMEM. */
int hr__checker_create(struct hr__checker **out, struct hr_error *error);
void hr__checker_destroy(struct hr__checker **checker);

/* Reads the header of an image and refuses an image larger than recipes take. Errors: as
 * hr_preparer_info; -EFBIG. */
int hr__checker_info(struct hr__checker *checker, const void *bytes, size_t length,
                     struct hr_image_info *info, struct hr_error *error);

/* Decodes the image. Errors: as hr_preparer_decode; -EFBIG. */
int hr__checker_decode(struct hr__checker *checker, const void *bytes, size_t length,
                       struct hr_error *error);

#endif
