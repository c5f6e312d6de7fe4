/*
 * Prepares one sample: turns encoded bytes into pixels, or into a recipe's tensor.
 *
 * A preparer holds what one thread needs: decoder state and scratch memory, which is
 * reused and grows to the largest image seen. The loader has one for each worker;
 * a program that supplies its own bytes may use one alone.
 *
 * Thread safety: only one thread at a time may use a preparer.
 */
#ifndef HEADRACE_PREPARE_H
#define HEADRACE_PREPARE_H

#include <headrace/base.h>
#include <headrace/form.h>
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
    HR_IMAGE_INDEXED = 5,
    HR_IMAGE_WEBP = 6,
    HR_IMAGE_BMP = 7,
    HR_IMAGE_GIF = 8,
    HR_IMAGE_PPM = 9, /* and PGM */
};

/* Returns the name of a format as messages write it ("JPEG", "WebP", "planes"); NULL if it is
 * unknown. Static storage. */
HR_API const char *hr_image_format_name(enum hr_image_format format);

/* Facts from an image's header. */
struct hr_image_info {
    enum hr_image_format format;
    int width, height; /* pixels, as stored (before EXIF orientation) */
    int channels;      /* as stored: 1, 2, 3 or 4 */
    int orientation;   /* EXIF 1..8; 1 when absent */
};

/* A rectangle of pixels, in the image as stored. */
struct hr_region {
    int x, y, width, height;
};

/* The input of the random parameters: the same key gives the same parameters. */
struct hr_draw_key {
    uint64_t seed;
    uint64_t epoch;
    uint64_t index; /* of the sample in its dataset */
};

/* On success the caller owns *out. Errors: -ENOMEM. */
HR_API HR_NODISCARD int hr_preparer_create(struct hr_preparer **out, struct hr_error *error);
HR_API void hr_preparer_destroy(struct hr_preparer **preparer);

/* Reads only the header. Errors: -EBADMSG: damaged; -ENOTSUP: this build does not
 * decode the format (the message names it if it is known). */
HR_API HR_NODISCARD int hr_preparer_info(struct hr_preparer *preparer, const void *bytes,
                                         size_t length, struct hr_image_info *info,
                                         struct hr_error *error);

/*
 * Decodes `region` (NULL: the whole image) to interleaved 8-bit RGB at `out`, with rows
 * of region width x 3 bytes and no padding; `capacity` is the size of `out` in bytes.
 * The pixels equal those of a full decode by libjpeg-turbo (ISLOW, fancy upsampling),
 * libspng or libwebp, or of the image that BMP, GIF and PPM store, converted to RGB as
 * Pillow's convert("RGB") does.
 * Errors: -EBADMSG, -ENOTSUP, -ENOSPC: out too small; -ERANGE: region outside
 * the image; -EFBIG: more than max_pixels of the default recipe options.
 */
HR_API HR_NODISCARD int hr_preparer_decode(struct hr_preparer *preparer, const void *bytes,
                                           size_t length, const struct hr_region *region, void *out,
                                           size_t capacity, struct hr_error *error);

/*
 * Runs `recipe` on one encoded image. Writes one sample to `out`, in the format that
 * hr_recipe_output describes; `out` should be 64-byte aligned for speed.
 * Errors: as above; -EFBIG: more than the recipe's max_pixels; -EINVAL: the recipe has several
 * views.
 */
HR_API HR_NODISCARD int hr_preparer_run(struct hr_preparer *preparer,
                                        const struct hr_recipe *recipe, const void *bytes,
                                        size_t length, const struct hr_draw_key *key, void *out,
                                        struct hr_error *error);

/* The same for recipes with views: writes view v to outs[v]. */
HR_API HR_NODISCARD int hr_preparer_run_views(struct hr_preparer *preparer,
                                              const struct hr_recipe *recipe, const void *bytes,
                                              size_t length, const struct hr_draw_key *key,
                                              void *const *outs, struct hr_error *error);

/* What was wrong with the image of the last successful hr_preparer_run, if its recipe accepts
 * damaged images; NULL: nothing. Valid until the preparer's next call. */
HR_API const char *hr_preparer_damage(const struct hr_preparer *preparer);

/*
 * Sets whether an item of the form `indexed` is made of each JPEG file that hr_preparer_run and
 * hr_preparer_decode decode from now on. It costs less than a tenth of decoding, and much less than
 * converting the file later. With HR_ITEMS_IN_PARTS the file is not copied: only
 * hr_preparer_item_parts gives the item then.
 */
#define HR_ITEMS_IN_PARTS 2
HR_API void hr_preparer_make_items(struct hr_preparer *preparer, int wanted);

/*
 * Returns the item made of the last decoded file. Its memory belongs to the preparer, until its
 * next call. Errors: -ENOENT: none was made, because none was wanted or the image cannot be one
 * (not a sequential JPEG file of one scan, or damaged anywhere).
 */
HR_API HR_NODISCARD int hr_preparer_item(const struct hr_preparer *preparer, struct hr_item *item);

/* The same with HR_ITEMS_IN_PARTS. One part is the file, in the memory that was decoded. */
HR_API HR_NODISCARD int hr_preparer_item_parts(const struct hr_preparer *preparer,
                                               struct hr_item_part parts[HR_ITEM_PARTS]);

/* The scale at which the last successful hr_preparer_run decoded its image: 1/2, 1/4 or 1/8 is 2, 4
 * or 8; 1 is exact. Others than 1 only if the recipe allows it (hr_recipe_options.inexact). */
HR_API int hr_preparer_scale(const struct hr_preparer *preparer);

/* Gets the shape of the last result of hr_preparer_run (of the first view), and returns its number
 * of dimensions. With a recipe that is `padded` it may be smaller than the tensor. */
HR_API size_t hr_preparer_extents(const struct hr_preparer *preparer,
                                  int64_t extents[HR_TENSOR_MAX_DIMS]);

/* Memory that the preparer holds, in bytes. */
HR_API size_t hr_preparer_memory(const struct hr_preparer *preparer);

/* The instruction set that the fast paths use on this machine: "avx512", "avx2",
 * "neon" or "portable". Results do not depend on it. For tests, the environment variable
 * HEADRACE_ISA selects a lower one. Static storage. */
HR_API const char *hr_isa_name(void);

#ifdef __cplusplus
}
#endif

#endif
