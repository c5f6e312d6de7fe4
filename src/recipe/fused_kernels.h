/*
 * The interface between the fused pass and its versions for each instruction set.
 *
 * A version is a table of functions. `prepare` converts the job's integer weights to the layout
 * that the version's loops read, and selects the loop. The others process one row each. All
 * versions give the same bits: integer sums are exact, and each element goes through the same float
 * operations in the same order.
 */
#ifndef HR_RECIPE_FUSED_KERNELS_H
#define HR_RECIPE_FUSED_KERNELS_H

#include "base/cpu.h"

#include <headrace/recipe.h>

#include <stddef.h>
#include <stdint.h>

/* Streaming stores must fill whole cache lines: a line that is also written through the cache costs
 * a round trip to memory. */
#define HR__LINE_BYTES 64

/* Most outputs per table entry; rows of the ring are padded to a multiple of it. */
#define HR__FUSED_GROUP 16

/* The weights of an output are padded with zeros to a multiple of this. */
#define HR__FUSED_PITCH 4

struct hr__horizontal;

/* Filters one row of bytes into `out`, which has room for `padded` floats. */
typedef void (*hr__horizontal_fn)(const struct hr__horizontal *h, const uint8_t *row, float *out);

/* A job's horizontal filter, with outputs in the order in which they are written. Outputs from
 * `count` to `padded` repeat the last position with zero weights. */
struct hr__horizontal {
    int count, padded;     /* number of outputs, and that padded to HR__FUSED_GROUP */
    int taps;              /* most taps of any output */
    int pitch;             /* `taps` padded to HR__FUSED_PITCH */
    int width;             /* number of columns in the source rows; offsets are lower */
    int32_t ceiling;       /* > 0: clamp sums to 0..ceiling */
    const int32_t *begin;  /* [padded]: column of tap 0 */
    const int16_t *weight; /* [padded][pitch] */
    uint8_t *table;        /* filled by prepare: hr__fused_table_bytes, 64-byte aligned */
    hr__horizontal_fn run; /* selected by prepare */
};

/* Size of `table`, sufficient for every version. */
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
    const uint8_t *bytes;     /* if not NULL: the row itself, times scale, plus shift */
    const float *const *rows; /* [taps]: ring rows of this channel */
    const float *weight;      /* [taps] */
    int taps, width;
    int clamp; /* clamp the sum to 0..255, then scale it; else the scale is in the weights */
    float scale, shift;
    enum hr_dtype dtype;
    int stream; /* non-zero: bypass the caches; the output is whole cache lines */
};

/* The weights of a filter with antialias for each output of an axis. */
struct hr__tap_weights {
    const double *from;   /* [count]: distance of tap 0 from the filter's centre, in pixels */
    const double *length; /* [count]: number of taps */
    double inverse;       /* 1 / stretch of the filter */
    int is_cubic;         /* else a triangle */
    int count, taps;      /* number of outputs, and most taps of any */
    size_t stride;        /* doubles from one tap to the next, >= count */
    double *weight;       /* [taps][stride], written: they sum to 1 for each output */
    double *sum;          /* [count], for intermediate values */
};

struct hr__fused_kernels {
    void (*weigh)(const struct hr__tap_weights *w);
    void (*prepare)(struct hr__horizontal *h);
    /* `out` takes `width` elements of the column's dtype. */
    void (*vertical)(const struct hr__column *column, void *out);
    void (*cast)(const float *in, size_t n, enum hr_dtype dtype, void *out);
    /* Interleaves three rows of n elements to one of n pixels. `stream` as in struct hr__column. */
    void (*interleave)(const void *const in[3], size_t n, size_t element_bytes, int stream,
                       void *out);
    /* Copies bytes; whole cache lines bypass the caches. */
    void (*copy)(void *out, const void *in, size_t bytes);
};

extern const struct hr__fused_kernels hr__fused_portable;
extern const struct hr__fused_kernels hr__fused_avx2;
extern const struct hr__fused_kernels hr__fused_avx512;
extern const struct hr__fused_kernels hr__fused_neon;

/* Returns the version for `isa`, or the best lower one in this build. */
const struct hr__fused_kernels *hr__fused_kernels(enum hr__isa isa);

#endif
