/*
 * Decodes sound files to planes of floats: one file per format behind one table.
 *
 * A decoder is one thread's state for all formats. A file is opened, which reads its headers, and
 * then windows of its frames are read, in any order.
 */
#ifndef HR_CODEC_SOUND_H
#define HR_CODEC_SOUND_H

#include <headrace/sound.h>

struct hr__sound;

int hr__sound_create(struct hr__sound **out, struct hr_error *error);
void hr__sound_destroy(struct hr__sound **sound);

/* Returns the bytes the decoder holds, without those of the libraries. */
size_t hr__sound_memory(const struct hr__sound *sound);

/* Refuses a file of more than `most` bytes. Errors: -EFBIG. */
int hr__sound_check_bytes(size_t length, uint64_t most, struct hr_error *error);

/* Opens a file, which must stay where it is until the next one is opened. Errors: see
 * hr_preparer_sound_info. */
int hr__sound_open(struct hr__sound *sound, const void *bytes, size_t length,
                   struct hr_sound_info *info, struct hr_error *error);

/* Reads the frames [first, first + count) of the open file into count floats at each plane.
 * Errors: -ERANGE: the file has fewer frames; -EBADMSG: it is damaged there; -ENOMEM. */
int hr__sound_read(struct hr__sound *sound, uint64_t first, uint64_t count, float *const *planes,
                   struct hr_error *error);

#endif
