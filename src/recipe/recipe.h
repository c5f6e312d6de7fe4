/*
 * Internal interface of recipes: planning a sample's geometry before decoding, and running the
 * operations on the decoded region.
 *
 * hr__recipe_plan draws all random parameters and traces the geometry backwards from the output, so
 * that the decoder has to produce only the pixels that the output needs. hr__recipe_run turns those
 * pixels into the tensor. If the recipe has the shape crop, one resize, crop, flips, normalise,
 * cast, it takes one fused pass; otherwise the general path runs operation by operation on float
 * planes.
 */
#ifndef HR_RECIPE_RECIPE_H
#define HR_RECIPE_RECIPE_H

#include "codec/codec.h"

#include <headrace/form.h>
#include <headrace/prepare.h>
#include <headrace/recipe.h>
#include <headrace/sound.h>

/* Most operations in a recipe. */
#define HR__RECIPE_MAX_OPERATIONS 32

struct hr__prepare_plan; /* the drawn parameters of one sample; see plan.h */
struct hr__scratch;      /* one thread's memory for running recipes */
struct hr__sample_rows;

int hr__scratch_create(struct hr__scratch **out, struct hr_error *error);
void hr__scratch_destroy(struct hr__scratch **scratch);
/* Sets the rows of the samples that are planned from now on; NULL (default): they have none. */
void hr__scratch_set_rows(struct hr__scratch *scratch, const struct hr__sample_rows *rows);
size_t hr__scratch_memory(const struct hr__scratch *scratch);

/* Returns the recipe of one view, owned by the recipe; of a recipe without views, itself. */
const struct hr_recipe *hr__recipe_view(const struct hr_recipe *recipe, size_t view);

/* Makes a recipe without operations, for samples that are tensors of `bytes` bytes already. It
 * copies them. Errors: -ENOMEM. */
int hr__recipe_create_raw(struct hr_recipe **out, size_t bytes, struct hr_error *error);

/* Returns the bytes of such a recipe's samples; 0: it is another recipe. */
size_t hr__recipe_raw_bytes(const struct hr_recipe *recipe);

/* The operations and options that the recipe was created from, for creating an equal one. Owned by
 * the recipe. */
size_t hr__recipe_count(const struct hr_recipe *recipe);
const struct hr_operation *hr__recipe_operation(const struct hr_recipe *recipe, size_t i);
const struct hr_recipe_options *hr__recipe_options(const struct hr_recipe *recipe);

/* Returns the largest file that a recipe of sounds takes, in bytes; 0 for recipes of images. */
uint64_t hr__recipe_max_source(const struct hr_recipe *recipe);

/* Returns non-zero if items of the form are decoded at a smaller scale like their files. */
static inline int hr__form_is_scalable(enum hr_form form)
{
    return form == HR_FORM_ENCODED || form == HR_FORM_INDEXED;
}

/* Refuses a recipe of sounds whose frames have the rate of their clip: a batch would have several.
 * Errors: -EINVAL. */
int hr__recipe_check_rate(const struct hr_recipe *recipe, struct hr_error *error);

/* Limits the form that a cache is to keep. Sounds have forms of their own. Of images, with scaled
 * decoding, it keeps none that is decoded exactly, and HR_FORM_AUTO becomes HR_FORM_INDEXED, the
 * only other form than files that is not. Errors: -EINVAL: the samples do not have *form. */
int hr__recipe_cache_form(const struct hr_recipe *recipe, int *form, struct hr_error *error);

/* Returns non-zero if waveforms made with the head `made` stand for the sounds of a recipe that
 * begins with `head`. */
int hr__sound_head_suits(const struct hr_sound_head *made, const struct hr_sound_head *head);

/* Writes a head as the operations that a recipe begins with: "Mono(), Resample(new_freq=16000)". */
#define HR__HEAD_TEXT 64
const char *hr__sound_head_text(char out[HR__HEAD_TEXT], const struct hr_sound_head *head);

/* Returns a digest of what decides about the samples of waveforms besides the file: form, head, and
 * the versions of the decoders. 0: the form is none of waveforms. */
uint64_t hr__waveform_digest(int form, const struct hr_sound_head *head);

/* Returns non-zero if the recipe is of sounds and these bytes are a waveform that was made with
 * another head than it has. */
int hr__recipe_refuses_waveform(const struct hr_recipe *recipe, const void *bytes, size_t length);

/* Decodes a region with the help of other threads (codec.h). Returns 0 if all of its pixels are in
 * its room; otherwise the preparer decodes it alone. */
typedef int (*hr__help_fn)(void *arg, struct hr__decoder *decoder,
                           const struct hr__shared_region *shared);

/* Sets what decodes the regions that can be shared; none by default. */
void hr__preparer_set_help(struct hr_preparer *preparer, hr__help_fn help, void *arg);

/* Returns the preparer's decoder, to help with regions of others between two samples. */
struct hr__decoder *hr__preparer_decoder(struct hr_preparer *preparer);

struct hr__prepared; /* what a preparer makes of a sample; see rows.h */

/* Prepares one item as hr_preparer_run_views does, with the rows and the mask of its sample. */
int hr__preparer_run_item(struct hr_preparer *preparer, const struct hr_recipe *recipe,
                          const struct hr_item *item, const struct hr_draw_key *key,
                          const struct hr__prepared *prepared, struct hr_error *error);

/*
 * Draws the parameters for an image described by `info`. The plan is in the scratch and valid until
 * its next use. *region: what to decode, in the image as stored. Errors: -EFBIG if above
 * max_pixels; -EINVAL if the image is too small for an operation (torchvision raises then too);
 * -ENOMEM.
 */
int hr__recipe_plan(const struct hr_recipe *recipe, struct hr__scratch *scratch,
                    const struct hr_image_info *info, const struct hr_draw_key *key,
                    const struct hr__prepare_plan **plan, struct hr_region *region,
                    struct hr_error *error);

/* Runs the plan on the decoded region and writes one sample to `out`. */
int hr__recipe_run(const struct hr_recipe *recipe, struct hr__scratch *scratch,
                   const struct hr__prepare_plan *plan, const struct hr__planar *pixels, void *out,
                   struct hr_error *error);

#endif
