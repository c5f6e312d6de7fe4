/*
 * Sound files: their formats, and the facts that their headers state.
 *
 * A sound has channels of equal length. A frame is one number of each channel, full scale is -1 to
 * 1, and the rate is in frames per second. Formats are recognised by content, never by name.
 */
#ifndef HEADRACE_SOUND_H
#define HEADRACE_SOUND_H

#include <headrace/dataset.h>
#include <headrace/form.h>
#include <headrace/prepare.h>

#ifdef __cplusplus
extern "C" {
#endif

enum hr_sound_format {
    HR_SOUND_UNKNOWN = 0,
    HR_SOUND_WAV = 1,
    HR_SOUND_FLAC = 2,
    HR_SOUND_MP3 = 3,
    HR_SOUND_VORBIS = 4, /* in Ogg */
};

/* Returns the name of a format as messages write it ("MP3"); NULL if it is unknown. Static storage.
 */
HR_API const char *hr_sound_format_name(enum hr_sound_format format);

/* Returns non-zero if this build decodes the format: libFLAC, libmpg123 and libvorbisfile may each
 * be absent. */
HR_API int hr_sound_format_is_built(enum hr_sound_format format);

/* Most channels, and the lowest and highest rate, that are decoded. */
#define HR_SOUND_MAX_CHANNELS 8
#define HR_SOUND_MIN_RATE     8000
#define HR_SOUND_MAX_RATE     192000

struct hr_sound_info {
    enum hr_sound_format format;
    int rate;        /* frames per second */
    int channels;    /* 1 to HR_SOUND_MAX_CHANNELS */
    uint64_t frames; /* of the whole file, without the encoder's delay and padding */
};

/*
 * What a recipe does first to the whole sound, in this order: mixes it to one channel, resamples
 * it. A waveform (form.h) holds the result. Windows may stand before or between the two, as they
 * are cut after them. All zero: neither.
 */
struct hr_sound_head {
    int mono; /* non-zero: mixed to one channel */
    int rate; /* frames per second; 0: the file's */
};

/* Tells the head of a recipe: its leading Mono, and the Resample after it or without it. Errors:
 * -EINVAL: a recipe of images. */
HR_API HR_NODISCARD int hr_recipe_sound_head(const struct hr_recipe *recipe,
                                             struct hr_sound_head *head);

/* Returns non-zero if the first bytes of a file are those of a sound, also of a format that is not
 * decoded. */
HR_API int hr_sound_recognise(const void *bytes, size_t length);

/*
 * Reads what the file says about itself; of MP3 files, the headers of all frames. Errors: -EBADMSG:
 * damaged or truncated; -ENOTSUP: another format, more channels or another rate than are decoded.
 */
HR_API HR_NODISCARD int hr_preparer_sound_info(struct hr_preparer *preparer, const void *bytes,
                                               size_t length, struct hr_sound_info *info,
                                               struct hr_error *error);

/*
 * Decodes the frames [first, first + count) of a file to `out`: a row of `count` floats for each
 * channel. They are those of a decode from the beginning, bit for bit; of MPEG-2 MP3 files within
 * 2e-7. Errors: as above; -ERANGE: the file has no such frames.
 */
HR_API HR_NODISCARD int hr_preparer_sound_decode(struct hr_preparer *preparer, const void *bytes,
                                                 size_t length, uint64_t first, uint64_t count,
                                                 float *out, struct hr_error *error);

/*
 * Makes an item of the form HR_FORM_WAVEFORM or HR_FORM_WAVEFORM16 of a sound file. *item points
 * into the preparer's memory, valid until its next call. Errors: those of a decode of the whole
 * sound; -ENOTSUP: it is an item already; -ENOSPC: the item would take more than 1 GiB; -ERANGE: it
 * exceeds full scale by more than 2^16, which waveform16 cannot hold; -EINVAL: another form, or no
 * such rate.
 */
HR_API HR_NODISCARD int hr_preparer_waveform(struct hr_preparer *preparer, enum hr_form form,
                                             const struct hr_sound_head *head, const void *bytes,
                                             size_t length, struct hr_item *item,
                                             struct hr_error *error);

/*
 * Reads every sound of a dataset and writes what it is to out[index], for all hr_dataset_count of
 * them: format HR_SOUND_UNKNOWN if it cannot be read, is damaged or of a format that is not
 * decoded. Nothing is decoded, which hr_dataset_verify does. `threads` 0: the cores of this
 * process. Errors: -ECANCELED, -ENOMEM. Blocks.
 */
HR_API HR_NODISCARD int hr_dataset_sounds(struct hr_dataset *dataset, int threads,
                                          hr_progress_fn progress, void *progress_arg,
                                          struct hr_sound_info *out, struct hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
