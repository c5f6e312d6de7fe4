/*
 * The layout of items of the forms `waveform` and `waveform16`.
 *
 * An item states the sound that it was made of and holds its samples after the head of a recipe,
 * that is, mixed to one channel, resampled, both or neither: a row for each channel, from
 * HR__WAVEFORM_DATA on. Which of the two steps were done follows from the header. Like every item
 * it begins with HR__ITEM_MAGIC, a version and a form, has its size at the same place, and ends
 * with HR__ITEM_PAD zero bytes.
 */
#ifndef HR_CODEC_WAVEFORM_H
#define HR_CODEC_WAVEFORM_H

#include "codec/item.h"

#include <headrace/sound.h>

#define HR__WAVEFORM_VERSION 1
#define HR__WAVEFORM_DATA    64 /* first byte of the samples */

/* Largest item. */
#define HR__WAVEFORM_BYTES_MOST (UINT64_C(1) << 30)

/* waveform16: a sound of 2^SCALE_MOST times full scale still has the form. */
#define HR__WAVEFORM_SCALE_MOST 16

struct hr__waveform_header {
    uint8_t magic[4];
    uint8_t version;
    uint8_t form;            /* HR_FORM_WAVEFORM or HR_FORM_WAVEFORM16 */
    uint8_t format;          /* enum hr_sound_format of the file */
    uint8_t source_channels; /* of the file, as the next two */
    uint32_t source_rate;
    uint32_t rate;       /* of the item's samples */
    uint8_t channels;    /* of the item: source_channels, or 1 */
    uint8_t scale;       /* waveform16: 32768 stands for 2^scale; else 0 */
    uint8_t reserved[6]; /* 0 */
    uint64_t bytes;      /* size of the whole item */
    uint64_t source_frames, frames;
    uint8_t zero[16];
};

/* Copies and checks the header of an item. Errors: -EBADMSG: damaged; -ENOTSUP: a version unknown
 * to this build. */
int hr__waveform_parse(struct hr__waveform_header *out, const void *bytes, size_t length,
                       struct hr_error *error);

/* Returns non-zero if the form is one of these two. */
static inline int hr__form_is_waveform(enum hr_form form)
{
    return form == HR_FORM_WAVEFORM || form == HR_FORM_WAVEFORM16;
}

/* Returns the header of the item that is open in a state of hr__sound_waveform. */
const struct hr__waveform_header *hr__waveform_opened(const void *state);

/* Returns non-zero if the item was made with no step that a recipe of this head does not begin
 * with. */
int hr__waveform_suits(const struct hr__waveform_header *header, const struct hr_sound_head *head);

/* Returns the bytes of an item. */
uint64_t hr__waveform_bytes(enum hr_form form, uint64_t channels, uint64_t frames);

/* Completes an item that has room for floats and has them from HR__WAVEFORM_DATA on. The caller has
 * set form, format, channels, rates and frames in the header. Errors: -ERANGE: samples
 * exceed full scale too far for waveform16, or are not finite. */
int hr__waveform_finish(uint8_t *item, struct hr__waveform_header *header, struct hr_error *error);

/* Returns the bytes of a WAV file of the item's samples, and writes it; `out` may be NULL. */
size_t hr__waveform_write_wav(uint8_t *out, const struct hr__waveform_header *header,
                              const uint8_t *item);

#endif
