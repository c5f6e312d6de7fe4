/*
 * Recipes for sounds. A recipe is of images or of sounds, by its first operation; this is all that
 * the two kinds share a recipe's list, its random numbers and the preparer for.
 *
 * The plan of a sound is, forwards: decode, mix, resample, cut, then features. It is made
 * backwards: from the frames of the output follow those of each step before, with the margins of
 * filters, and at last those to decode. A window that stands before Resample, in seconds, is cut
 * after it, so that its frames are those of the whole sound at the new rate.
 */
#ifndef HR_RECIPE_SOUND_H
#define HR_RECIPE_SOUND_H

#include "codec/format.h"
#include "codec/sound.h"
#include "recipe/operation.h"
#include "recipe/scratch.h"
#include "recipe/sound_kernels.h"

/* What is known about the sound when an operation is reached, while a recipe is being created. */
struct hr__sound_state {
    struct hr_recipe *recipe;
    int channels;   /* 0: as many as the clip has */
    int rate;       /* 0: the clip's */
    int64_t frames; /* 0: depends on the clip */
    double seconds; /* of a window that is not cut yet; 0: none */
    int bands;      /* rows of features; 0: the sound is still a waveform */
    int resamplers; /* operations that change the rate */
};

enum hr__sound_step_kind { HR__SOUND_CUT, HR__SOUND_RESAMPLE, HR__SOUND_MIX, HR__SOUND_GAIN };

/* One step of a sample's plan, and the frames that it reads. */
struct hr__sound_step {
    enum hr__sound_step_kind kind;
    int channels;     /* before the step */
    int64_t total;    /* frames of the whole sound before the step */
    int64_t low, end; /* the frames that are needed; those outside 0..total are 0 */
    int64_t first;    /* cut: the frame that becomes the first */
    float factor;     /* gain */
    const struct hr__resampler *resampler;
};

/* A window that is cut after the next Resample, or before another operation that needs its frames.
 */
struct hr__sound_cut {
    int is_pending;
    double seconds, at; /* at: 0 to 1, of the places where it fits */
    int pad;            /* a shorter sound is extended with zeros */
    const struct hr__bound *bound;
};

struct hr__sound_plan {
    struct hr_sound_info info;
    int channels, rate; /* after the steps so far */
    int64_t frames;
    int64_t real; /* how many of them, at the beginning, are of the sound; others only pad */
    int count;
    struct hr__sound_step step[2 * HR__RECIPE_MAX_OPERATIONS + 1]; /* the last: the output */
    struct hr__sound_cut cut;
};

/* The resamplers of the rates that were met last. */
#define HR__RESAMPLERS 8

struct hr__resampler_cache {
    struct hr__resampler table[HR__RESAMPLERS];
    uint64_t used[HR__RESAMPLERS], uses; /* the one whose use is the longest ago is replaced */
};

/* One thread's memory for recipes of sounds. */
struct hr__sound_scratch {
    struct hr__sound *decoder;
    struct hr__sound_plan plan;
    struct hr__buffer waves[2]; /* planes of floats, used alternately */
    struct hr__buffer work;
    struct hr__buffer item; /* the waveform made last */
    struct hr__resampler_cache resamplers;
};

/* What operations on sounds have besides a name and parameters. */
struct hr__sound_operation {
    /* Checks the parameters and whether they suit the state, and advances the state. */
    int (*check)(struct hr__bound *bound, struct hr__sound_state *state, struct hr_error *error);
    /* Waveforms: draws the random parameters and appends steps. NULL: features. */
    int (*plan)(const struct hr__bound *bound, struct hr__random *random,
                struct hr__sound_scratch *scratch, struct hr_error *error);
    /* Features: draws, and changes `bands` rows of `columns`. NULL: nothing to do. */
    void (*apply)(const struct hr__bound *bound, struct hr__random *random, float *features,
                  int bands, int columns);
};

/* Refuses an operation on waveforms behind one that makes features, or the other way round. */
int hr__sound_place(const struct hr__bound *bound, const struct hr__sound_state *state,
                    int is_for_features, struct hr_error *error);

/* Knows now how many frames a second has: the recipe needs clips of this rate, or resampled to it.
 */
int hr__sound_set_rate(const struct hr__bound *bound, struct hr__sound_state *state, int rate,
                       struct hr_error *error);

/* Appends a step that keeps frames, rate and channels; its caller changes them. */
struct hr__sound_step *hr__sound_append(struct hr__sound_plan *plan, enum hr__sound_step_kind kind);

/* Appends a cut of `frames` frames from `first` on. */
void hr__sound_append_cut(struct hr__sound_plan *plan, int64_t first, int64_t frames);

/* Cuts the pending window. Errors: -EBADMSG: the sound is shorter, and must not be padded. */
int hr__sound_cut_now(struct hr__sound_plan *plan, struct hr_error *error);

/* Appends the change from one rate to another, if they differ; plan->rate stays. Errors: -ENOMEM.
 */
int hr__sound_change_rate(struct hr__sound_scratch *scratch, int from, int to,
                          struct hr_error *error);

/* Returns the filter from one rate to another; from != to. Owned by the cache; the last
 * HR__RESAMPLERS that were asked for stay. Errors: -ENOMEM. */
int hr__resampler_get(struct hr__resampler_cache *cache, int from, int to,
                      const struct hr__resampler **out, struct hr_error *error);
size_t hr__resampler_memory(const struct hr__resampler_cache *cache);
void hr__resampler_free_all(struct hr__resampler_cache *cache);

/* Makes the tables of a mel spectrogram; the caller frees them. Errors: -ENOMEM. */
struct hr__mel_wish {
    int rate, frame, hop, points, bands, center;
    int is_kaldi, is_whisper, is_amplitude;
    int is_slaney_scale, is_slaney_norm;
    double low, high; /* Hz */
    const double *window;
};
int hr__mel_create(struct hr__mel **out, const struct hr__mel_wish *wish, struct hr_error *error);
void hr__mel_destroy(struct hr__mel **mel);

/* Checks the operations of a recipe of sounds and sets its output. Errors: -EINVAL. */
int hr__sound_recipe(struct hr_recipe *recipe, struct hr_error *error);

/* Runs a recipe of sounds. *scratch is made at the first use. Errors: those of hr_preparer_run. */
int hr__sound_run(const struct hr_recipe *recipe, struct hr__sound_scratch **scratch,
                  const struct hr_item *item, const struct hr_draw_key *key, float *out,
                  struct hr_error *error);

/* Returns how many frames, or columns of features, at the beginning of the sample that was run last
 * are of its sound; at least 1. */
int64_t hr__sound_length(const struct hr_recipe *recipe, const struct hr__sound_scratch *scratch);

/* Planes of floats. */
struct hr__sound_wave {
    float *plane[HR_SOUND_MAX_CHANNELS];
};

/* Begins the plan of the file or item that is open, whose facts are in plan->info: no step yet. */
void hr__sound_begin(struct hr__sound_plan *plan);

/* Decodes what the plan's steps need and runs them. *wave has the plan's frames, in the scratch's
 * memory. Errors: those of hr__sound_read; -ENOMEM. */
int hr__sound_run_plan(struct hr__sound_scratch *scratch, struct hr__sound_wave *wave,
                       struct hr_error *error);

/* Leaves the steps out that were done when the open item was made. Errors: -EINVAL: it was made
 * with another head than the recipe's; -EBADMSG: damaged. */
int hr__sound_skip_head(struct hr__sound_scratch *scratch, const struct hr__waveform_header *item,
                        struct hr_error *error);

/* Frees the memory of the item that was made last, if it is large. */
void hr__sound_drop_item(struct hr__sound_scratch *scratch);

/* As hr_preparer_waveform. */
int hr__sound_make_waveform(struct hr__sound_scratch *scratch, enum hr_form form,
                            const struct hr_sound_head *head, const struct hr__encoded *file,
                            struct hr_item *item, struct hr_error *error);

int hr__sound_scratch_get(struct hr__sound_scratch **scratch, struct hr_error *error);
void hr__sound_scratch_destroy(struct hr__sound_scratch **scratch);
size_t hr__sound_scratch_memory(const struct hr__sound_scratch *scratch);

#endif
