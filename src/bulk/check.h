/*
 * Decodes whole samples to find out whether they are bad, including parts that a recipe might never
 * decode. A checker belongs to one thread and reuses its memory from sample to sample.
 */
#ifndef HR_BULK_CHECK_H
#define HR_BULK_CHECK_H

#include <headrace/dataset.h>
#include <headrace/prepare.h>
#include <headrace/sound.h>

struct hr__checker;

/* On success *out is the caller's. Errors: -ENOMEM. */
int hr__checker_create(struct hr__checker **out, struct hr_error *error);
void hr__checker_destroy(struct hr__checker **checker);

/* Reads the header of an image and refuses an image larger than recipes take. Errors: as
 * hr_preparer_info; -EFBIG. */
int hr__checker_info(struct hr__checker *checker, const void *bytes, size_t length,
                     struct hr_image_info *info, struct hr_error *error);

/* Sets whether the next sample has to be a sound: by the extension of its name; if that is none of
 * images, by its content or by the name of the first sample. Returns that. */
int hr__checker_expect(struct hr__checker *checker, const struct hr_dataset *dataset, size_t index,
                       const void *bytes, size_t length);

/* Returns what hr__checker_expect did for the last sample; 0 before the first. */
int hr__checker_expects_sound(const struct hr__checker *checker);

/* Makes a waveform of a sound. Errors: as hr_preparer_waveform; -EFBIG. */
int hr__checker_waveform(struct hr__checker *checker, enum hr_form form,
                         const struct hr_sound_head *head, const struct hr_item *file,
                         struct hr_item *item, struct hr_error *error);

/* Decodes a mask (headrace/masks.h). `image`: the header of its image, whose size it has to have;
 * NULL: any size. Messages are about "it". Errors: -ENOTSUP, -EBADMSG, -EFBIG, -ENOMEM. */
int hr__checker_mask(struct hr__checker *checker, const void *bytes, size_t length,
                     const struct hr_image_info *image, struct hr_error *error);

/* Decodes the image or sound. Errors: as hr_preparer_decode or hr_preparer_sound_decode; -EFBIG. */
int hr__checker_decode(struct hr__checker *checker, const void *bytes, size_t length,
                       struct hr_error *error);

#endif
