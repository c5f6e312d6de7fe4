/*
 * Preparing one sample: encoded bytes to pixels, or to a recipe's tensor.
 *
 * A preparer holds what one thread needs for it (decoder state and scratch
 * memory, which is reused and grows to the largest image seen). The loader
 * keeps one per worker; programs that bring their own bytes may use it alone.
 *
 * Thread safety: one thread at a time per preparer.
 */
#ifndef HEADRACE_PREPARE_H
#define HEADRACE_PREPARE_H

#include <headrace/base.h>
#include <headrace/recipe.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hr_preparer;

enum hr_image_format {
    HR_IMAGE_UNKNOWN = 0,
    HR_IMAGE_JPEG = 1,
    HR_IMAGE_PNG = 2,
    HR_IMAGE_COEFFICIENTS = 3, /* items: see form.h */
    HR_IMAGE_PLANES = 4,
};

/* What an image's header says. */
struct hr_image_info {
    enum hr_image_format format;
    int width, height; /* pixels, as stored (before EXIF orientation) */
    int channels;      /* as stored: 1, 2, 3 or 4 */
    int orientation;   /* EXIF 1..8; 1 when absent */
};

/* A box of pixels, in the image as stored. */
struct hr_region {
    int x, y, width, height;
};

/* What random parameters are drawn from. */
struct hr_draw_key {
    uint64_t seed;
    uint64_t epoch;
    uint64_t index; /* of the sample in its dataset */
};

/* On success *out is the caller's. Errors: -ENOMEM. */
HR_API HR_NODISCARD int hr_preparer_create(struct hr_preparer **out, struct hr_error *error);
HR_API void hr_preparer_destroy(struct hr_preparer **preparer);

/* Reads the header only. Errors: -EBADMSG: damaged; -ENOTSUP: not a format
 * that this build decodes (the message names the format where it is known). */
HR_API HR_NODISCARD int hr_preparer_info(struct hr_preparer *preparer, const void *bytes,
                                         size_t length, struct hr_image_info *info,
                                         struct hr_error *error);

/*
 * Decodes `region` (NULL: everything) to interleaved 8-bit RGB at `out`, rows
 * of region width x 3 bytes without padding; `capacity` is what `out` holds.
 * Pixels are those of libjpeg-turbo's (ISLOW, fancy upsampling) or libspng's
 * full decode, converted to RGB as Pillow's convert("RGB") does.
 * Errors: -EBADMSG, -ENOTSUP, -ENOSPC: out too small; -ERANGE: region outside
 * the image; -EFBIG: more than max_pixels of the default recipe options.
 */
HR_API HR_NODISCARD int hr_preparer_decode(struct hr_preparer *preparer, const void *bytes,
                                           size_t length, const struct hr_region *region, void *out,
                                           size_t capacity, struct hr_error *error);

/*
 * Runs `recipe` on one encoded image. `out` takes one sample as
 * hr_recipe_output describes it and should be 64-byte aligned for speed.
 * Errors: as above; -EFBIG: beyond the recipe's max_pixels.
 */
HR_API HR_NODISCARD int hr_preparer_run(struct hr_preparer *preparer,
                                        const struct hr_recipe *recipe, const void *bytes,
                                        size_t length, const struct hr_draw_key *key, void *out,
                                        struct hr_error *error);

/* What was wrong with the image of the last hr_preparer_run that succeeded, where its recipe
 * accepts damaged ones; NULL: nothing was. Lives until the preparer's next call. */
HR_API const char *hr_preparer_damage(const struct hr_preparer *preparer);

/* Memory the preparer holds, bytes. */
HR_API size_t hr_preparer_memory(const struct hr_preparer *preparer);

/* Instruction set that the fast paths use on this machine: "avx512", "avx2" or
 * "portable". Results do not depend on it. Overridden for tests by the
 * environment variable HEADRACE_ISA (a lower one only). Static storage. */
HR_API const char *hr_isa_name(void);

#ifdef __cplusplus
}
#endif

#endif
