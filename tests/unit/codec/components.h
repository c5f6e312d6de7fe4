/*
 * The component planes of a JPEG, at their own resolution and true size, as
 * libjpeg's raw output gives them: what upsampling begins with.
 */
#ifndef HR_TEST_CODEC_COMPONENTS_H
#define HR_TEST_CODEC_COMPONENTS_H

#include "images.h"

#include "codec/ycc.h"

struct components {
    struct hr__ycc_shape shape;
    uint8_t *plane[3];       /* freed with components_free */
    int width[3], height[3]; /* samples; rows are tightly packed */
};

/* Sampling by its name of three digits, such as 111, 211, 121, 221 and 411 (h and v of luma), 0 for
 * grey. */
struct jpeg_spec sampled_spec(int sampling, int width, int height, uint64_t seed);

/* Aborts where libjpeg fails: these are files that the tests have made. */
void components_of(const struct bytes *file, struct components *out);
void components_free(struct components *components);

/* 1 where two files have the same quantised coefficients, tables and sampling. */
int same_coefficients(const struct bytes *a, const struct bytes *b);

/* The same where only one of them is progressive. */
int same_coefficients_as_progressive(const struct bytes *a, const struct bytes *b);

#endif
