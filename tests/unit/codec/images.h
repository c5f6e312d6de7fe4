/*
 * Images for the codec's tests: JPEG files of every kind that libjpeg can write, and PNG files with
 * chosen chunks. The reference for regions is libjpeg's own decode of the whole image.
 */
#ifndef HR_TEST_CODEC_IMAGES_H
#define HR_TEST_CODEC_IMAGES_H

#include "codec/codec.h"

enum jpeg_scans {
    SCANS_BASELINE,
    SCANS_PROGRESSIVE,
    SCANS_SEPARATE,   /* sequential, a scan for each component */
    SCANS_INCOMPLETE, /* progressive without the last refinement */
    SCANS_ALONE,      /* progressive, no scan of several components */
    SCANS_ARITHMETIC,
};

enum jpeg_content {
    CONTENT_PICTURE,
    CONTENT_NOISE,  /* each sample is random */
    CONTENT_BINARY, /* each sample is 0 or 255: gives the largest coefficients */
};

struct jpeg_spec {
    int width, height;
    int components; /* 1, 3, or 4: CMYK */
    int h[4], v[4]; /* sampling factors; all 0: 1x1 */
    int quality;
    int restart;   /* MCUs between restart markers; 0: none */
    int rgb;       /* 3 components stored as RGB */
    int ycck;      /* 4 components stored as YCCK */
    int optimised; /* with optimised Huffman tables */
    enum jpeg_scans scans;
    enum jpeg_content content;
    uint64_t seed;               /* of the picture */
    const uint8_t *picture;      /* `components` bytes a pixel; NULL: made from content and seed */
    const unsigned (*quant)[64]; /* tables of luma and chroma in natural order; NULL: those of
                                  * the quality */
};

struct bytes {
    uint8_t *data; /* free with free() */
    size_t length;
};

/* Small deterministic generator (SplitMix64) for sizes, regions and damage. */
uint64_t next_random(uint64_t *state);
int random_between(uint64_t *state, int low, int high); /* both included */

/* Returns a random region inside an image. One in four has sides of at most five pixels. */
struct hr_region random_region(uint64_t *state, int width, int height);
struct hr_region random_region_often_small(uint64_t *state, int width, int height);

/* Makes a picture with gradients, edges and noise; `channels` bytes a pixel. */
uint8_t *make_picture(int width, int height, int channels, uint64_t seed);

/* Makes CONTENT_NOISE or CONTENT_BINARY, in the same layout. */
uint8_t *make_noise(int width, int height, int channels, int binary, uint64_t seed);

struct bytes make_jpeg(const struct jpeg_spec *spec);

/* Returns libjpeg's decode of the whole image as interleaved RGB, which the caller frees; NULL if
 * libjpeg fails or warns. */
uint8_t *decode_plainly(const struct bytes *file, int *width, int *height);

/* The same at 1 / 2^halvings of the size, with libjpeg's own scaling. */
uint8_t *decode_halved(const struct bytes *file, int halvings, int *width, int *height);

/* Inserts `segment`, which begins with its marker, after the SOI of `file`; frees the old bytes. */
void insert_segment(struct bytes *file, const void *segment, size_t length);

struct png_spec {
    int width, height;
    int depth; /* bits of a sample */
    int type;  /* PNG colour type */
    int interlaced;
    int palette;          /* entries of PLTE, for type 3 */
    const uint8_t *chunk; /* a whole chunk to put before IDAT, or NULL */
    size_t chunk_bytes;
    uint64_t seed;
};

/* Writes a PNG of random samples with libspng. *samples, which the caller frees, gets the raw rows:
 * 16-bit samples big-endian, rows padded to bytes; of a palette RGB. */
struct bytes make_png(const struct png_spec *spec, uint8_t **samples);

/* Makes a PNG chunk with its CRC. */
struct bytes make_chunk(const char *type, const void *data, size_t length);

/* Makes a small TIFF header with an orientation tag, as EXIF has it. */
struct bytes make_exif(int orientation, int big_endian);

/* Returns 1 if `planar` equals the region of the interleaved `reference` image. */
int planar_equals(const struct hr__planar *planar, const uint8_t *reference, int reference_width,
                  const struct hr_region *region);

#endif
