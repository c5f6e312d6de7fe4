/*
 * The component planes of a JPEG, at their own resolution and without padding, from libjpeg's raw
 * output: the input of upsampling.
 */
#ifndef HR_TEST_CODEC_COMPONENTS_H
#define HR_TEST_CODEC_COMPONENTS_H

#include "images.h"

#include "codec/ycc.h"

struct components {
    struct hr__ycc_shape shape;
    uint8_t *plane[3];       /* free with components_free */
    int width[3], height[3]; /* samples; rows are tightly packed */
};

/* Returns a specification with the sampling that three digits name: 111, 211, 121, 221, 411 (the
 * first two are h and v of luma); 0: grey. */
struct jpeg_spec sampled_spec(int sampling, int width, int height, uint64_t seed);

/* Ends the process if libjpeg fails: tests pass only files that they made. */
void components_of(const struct bytes *file, struct components *out);
void components_free(struct components *components);

/* Returns 1 if two files have the same quantised coefficients, tables and sampling. */
int same_coefficients(const struct bytes *a, const struct bytes *b);

/* The same, if only one of them may be progressive. */
int same_coefficients_as_progressive(const struct bytes *a, const struct bytes *b);

#endif
