/* WebP files for the codec's tests, by libwebp's encoder, and containers chunk by chunk. */
#ifndef HR_TEST_CODEC_WEBP_IMAGES_H
#define HR_TEST_CODEC_WEBP_IMAGES_H

#include "images.h"

struct webp_spec {
    int width, height;
    int lossless, alpha;
    float quality;
    int partitions; /* log2 of the token partitions, 0 to 3 */
    int simple_filter;
    uint64_t seed; /* of the picture */
};

struct bytes make_webp(const struct webp_spec *spec);

/* The image data of `still` in an extended file, with an EXIF chunk. */
struct bytes make_webp_extended(const struct bytes *still, int width, int height,
                                const struct bytes *exif);

/* An animation of two frames on a canvas of width x height: `still` at x, y, then again at 0, 0. */
struct bytes make_webp_animation(const struct bytes *still, int width, int height, int x, int y);

/* The first `length` bytes, an even number, with sizes of the file and of its last chunk that fit.
 */
struct bytes cut_webp(const struct bytes *file, size_t length);

#endif
