/*
 * Decodes sound files to planes of floats: one file per format behind one table.
 *
 * A decoder is one thread's state for all formats. A file is opened, which reads its headers, and
 * then windows of its frames are read, in any order.
 */
#ifndef HR_CODEC_SOUND_H
#define HR_CODEC_SOUND_H

#include <headrace/sound.h>

/* Most frames that a sound may have: positions in it, and at other rates, are exact in double and
 * fit into 64 bits. */
#define HR__SOUND_FRAMES_MOST (UINT64_C(1) << 36)

struct hr__sound;
struct hr__waveform_header;

int hr__sound_create(struct hr__sound **out, struct hr_error *error);
void hr__sound_destroy(struct hr__sound **sound);

/* Returns the bytes the decoder holds, without those of the libraries. */
size_t hr__sound_memory(const struct hr__sound *sound);

/* Refuses a file of more than `most` bytes. Errors: -EFBIG. */
int hr__sound_check_bytes(size_t length, uint64_t most, struct hr_error *error);

/* Returns the architecture, and the names and versions of the libraries that this build decodes
 * with. The last bits of samples depend on them. Static storage. */
const char *hr__sound_libraries(void);

/* Opens a file or an item of a waveform, which must stay where it is until the next one is opened.
 * Errors: see hr_preparer_sound_info. */
int hr__sound_open(struct hr__sound *sound, const void *bytes, size_t length,
                   struct hr_sound_info *info, struct hr_error *error);

/* Returns the header of the open item; NULL: a file is open. Valid until the next one is opened. */
const struct hr__waveform_header *hr__sound_waveform_header(const struct hr__sound *sound);

/* Returns non-zero if small windows of the open file cost no more than a large one of all of them.
 */
int hr__sound_is_direct(const struct hr__sound *sound);

/* Returns non-zero if hr__sound_read_mean reads the open file: one of two channels, in a format
 * where that costs less than to read both. */
int hr__sound_can_mix(const struct hr__sound *sound);

/* As hr__sound_read, the mean of the two channels, with the bits of (left + right) * 0.5. */
int hr__sound_read_mean(struct hr__sound *sound, uint64_t first, uint64_t count, float *mean,
                        struct hr_error *error);

/* Returns where frames [first, first + count) of the open file lie in it, as far as it has them,
 * and sets their bytes. NULL: they do not lie in one place. */
const uint8_t *hr__sound_frames(const struct hr__sound *sound, int64_t first, int64_t count,
                                size_t *bytes);

/* Reads the frames [first, first + count) of the open file into count floats at each plane.
 * Errors: -ERANGE: the file has fewer frames; -EBADMSG: it is damaged there; -ENOMEM. */
int hr__sound_read(struct hr__sound *sound, uint64_t first, uint64_t count, float *const *planes,
                   struct hr_error *error);

#endif
