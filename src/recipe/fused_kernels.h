/*
 * Between the fused pass and its versions for one instruction set each.
 *
 * A version is a table of functions. `prepare` turns the job's integer weights
 * into what its loops read and chooses the loop; the rest do one row at a time.
 * All give the same bits: integer sums are exact, float operations are the same
 * ones in the same order per element.
 */
#ifndef HR_RECIPE_FUSED_KERNELS_H
#define HR_RECIPE_FUSED_KERNELS_H

#include "base/cpu.h"

#include <headrace/recipe.h>

#include <stddef.h>
#include <stdint.h>

/* Streaming stores fill whole lines only: one that is also written through the
 * cache costs a round trip to memory. */
#define HR__LINE_BYTES 64

/* Outputs per table entry at most: rows of the ring are padded to a multiple. */
#define HR__FUSED_GROUP 16

/* Weights of one output are padded with zeros to a multiple of this. */
#define HR__FUSED_PITCH 4

struct hr__horizontal;

/* Filters one row of bytes into `out`: padded floats. */
typedef void (*hr__horizontal_fn)(const struct hr__horizontal *h, const uint8_t *row, float *out);

/* The horizontal filter of a job, outputs in written order. Outputs from count
 * to padded repeat the last one's position with weights of 0. */
struct hr__horizontal {
    int count, padded;     /* outputs; padded to HR__FUSED_GROUP */
    int taps;              /* most of any output */
    int pitch;             /* taps padded to HR__FUSED_PITCH */
    int width;             /* columns of the source rows: offsets stay below */
    int32_t ceiling;       /* > 0: sums are cut to 0..ceiling */
    const int32_t *begin;  /* [padded]: column under tap 0 */
    const int16_t *weight; /* [padded][pitch] */
    uint8_t *table;        /* what prepare makes: hr__fused_table_bytes, 64-byte aligned */
    hr__horizontal_fn run; /* chosen by prepare */
};

/* Bytes of `table` that every prepare makes do with. */
static inline size_t hr__fused_table_bytes(int padded, int pitch)
{
    return (size_t)padded * (size_t)pitch * 16;
}

static inline size_t hr__element_bytes(enum hr_dtype dtype)
{
    return dtype == HR_UINT8 ? 1 : dtype == HR_FLOAT32 ? 4 : 2;
}

/* One channel of one output row. */
struct hr__column {
    const float *const *rows; /* [taps]: rows of the ring, of this channel */
    const float *weight;      /* [taps] */
    int taps, width;
    int clamp; /* the sum is cut to 0..255, then scaled; else the scale
                  is in the weights */
    float scale, shift;
    enum hr_dtype dtype;
    int stream; /* non-zero: bypass the caches; the output is whole lines */
};

struct hr__fused_kernels {
    void (*prepare)(struct hr__horizontal *h);
    /* `out` takes width elements of the column's dtype. */
    void (*vertical)(const struct hr__column *column, void *out);
    void (*cast)(const float *in, size_t n, enum hr_dtype dtype, void *out);
    /* Three rows of n elements to one of n pixels; stream as in the column. */
    void (*interleave)(const void *const in[3], size_t n, size_t element_bytes, int stream,
                       void *out);
    /* Copies bytes, whole lines past the caches. */
    void (*copy)(void *out, const void *in, size_t bytes);
};

extern const struct hr__fused_kernels hr__fused_portable;
extern const struct hr__fused_kernels hr__fused_avx2;
extern const struct hr__fused_kernels hr__fused_avx512;

/* The version for `isa`, or the best below it that this build has. */
const struct hr__fused_kernels *hr__fused_kernels(enum hr__isa isa);

#endif
