/*
 * Decoding a sample whole, as a training run would meet it at worst, to know
 * whether it is bad. A checker is one thread's tools and keeps its memory from
 * image to image.
 */
#ifndef HR_BULK_CHECK_H
#define HR_BULK_CHECK_H

#include <headrace/prepare.h>

struct hr__checker;

/* On success *out is the caller's. Errors: -ENOMEM. */
int hr__checker_create(struct hr__checker **out, struct hr_error *error);
void hr__checker_destroy(struct hr__checker **checker);

/* Reads the header of an image and refuses one that is larger than recipes take.
 * Errors: as hr_preparer_info; -EFBIG. */
int hr__checker_info(struct hr__checker *checker, const void *bytes, size_t length,
                     struct hr_image_info *info, struct hr_error *error);

/* Decodes the image. Errors: as hr_preparer_decode; -EFBIG. */
int hr__checker_decode(struct hr__checker *checker, const void *bytes, size_t length,
                       struct hr_error *error);

#endif
