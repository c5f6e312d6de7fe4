/*
 * The interface that each sound format implements: a small constant table of functions on its own
 * state, which is made at the first file of the format and kept for the next ones. The decoder
 * recognises the format and checks channels, rate and window.
 */
#ifndef HR_CODEC_SOUND_FORMAT_H
#define HR_CODEC_SOUND_FORMAT_H

#include "codec/sound.h"

/* A file in memory; not owned. */
struct hr__sound_file {
    const uint8_t *bytes;
    size_t length;
};

struct hr__sound_window {
    uint64_t first, count; /* inside the file; count > 0 */
    float *const *planes;  /* one for each channel */
    int is_mean;           /* one plane for the mean of two channels; only after can_mix */
};

struct hr__sound_class {
    /* NULL: this build lacks the format's library. */
    int (*open)(void **state, const struct hr__sound_file *file, struct hr_sound_info *info,
                struct hr_error *error);
    int (*read)(void *state, const struct hr__sound_window *window, struct hr_error *error);
    void (*destroy)(void *state);
    /* Returns non-zero if the open file has two channels and `read` can give their mean. NULL: no.
     */
    int (*can_mix)(const void *state);
    /* Returns the first frame in memory, and the bytes of each. NULL: they do not lie side by side.
     */
    const uint8_t *(*frames)(const void *state, size_t *frame);
    int is_direct; /* a window costs as much as its frames: none before it is decoded */
};

extern const struct hr__sound_class hr__sound_wav;
extern const struct hr__sound_class hr__sound_flac;
extern const struct hr__sound_class hr__sound_mp3;
extern const struct hr__sound_class hr__sound_vorbis;
extern const struct hr__sound_class hr__sound_waveform; /* items (waveform.h) */

/* Where a library reads a file from. */
struct hr__sound_reader {
    struct hr__sound_file file;
    size_t at;
};

/* Copies up to `bytes` bytes. Returns how many. */
size_t hr__sound_take(struct hr__sound_reader *reader, void *to, size_t bytes);

/* Moves to `offset` from the beginning, the place or the end (SEEK_SET, SEEK_CUR, SEEK_END).
 * Returns the new place, or -1 if it would be outside the file. */
int64_t hr__sound_seek(struct hr__sound_reader *reader, int64_t offset, int whence);

/* Fails because the file ends, or is damaged, at a frame. */
int hr__sound_ends(struct hr_error *error, uint64_t frame, uint64_t frames);

#endif
