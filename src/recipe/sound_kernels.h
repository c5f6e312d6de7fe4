/*
 * The kernels of recipes for sounds, one table per instruction set. They work on eight numbers at a
 * time in a fixed order of sums, so all versions give the same bits.
 */
#ifndef HR_RECIPE_SOUND_KERNELS_H
#define HR_RECIPE_SOUND_KERNELS_H

#include "base/cpu.h"

#include <stddef.h>
#include <stdint.h>

/* Numbers of a vector. */
#define HR__SOUND_LANES 8

/* A filter that changes a sound's rate from `from` to `to`, which have no common factor. */
struct hr__resampler {
    int from, to;
    int taps; /* of each phase, a multiple of HR__SOUND_LANES */
    int used; /* of them; the others are 0 */
    int64_t
        *first;    /* `to` of them: the input frame of the first tap, for the output frames 0 ... */
    float *kernel; /* `to` rows of `taps` */
};

/* Input frames of a stretch (see hr__resampler_stretch) that are held at a time. */
#define HR__SOUND_STRETCH 256

/* Stretches that are resampled at once, at most. */
#define HR__SOUND_STRETCHES 16

/* Returns how many outputs, in whole periods, each of the stretches has that are resampled at once:
 * so many that their taps overlap little. 0: the filter has too many taps, or its period too many
 * frames, for that. */
static inline int hr__resampler_stretch(const struct hr__resampler *r)
{
    int periods = (HR__SOUND_STRETCH + r->from - 1) / r->from;
    periods = periods * r->to < 4 ? (3 + r->to) / r->to : periods;
    int is_short = (int64_t)periods * r->from <= 4096;
    return is_short && 3 * (int64_t)r->from / r->to + 2 + r->used <= HR__SOUND_STRETCH
               ? periods * r->to
               : 0;
}

/* A complex Fourier transform of `n` points: its factors and roots of unity. */
struct hr__fft {
    int n, factors;
    int factor[32];
    double *root; /* exp(-2 pi i k / n): n pairs */
};

/* From a waveform to mel bands. */
struct hr__mel {
    int frame, hop;   /* frames of the sound that a column is made of, and from one to the next */
    int points;       /* of the transform: `frame`, and zeros */
    int center;       /* columns are centred on their frame, the sound is mirrored at its ends */
    int is_kaldi;     /* the mean is removed and high frequencies raised first */
    int is_amplitude; /* bands sum amplitudes instead of powers */
    double *window;   /* `frame` */
    struct hr__fft half; /* of points / 2 */
    double *root;        /* exp(-2 pi i k / points): points / 2 + 1 pairs */
    int bands;
    int *low, *count; /* of each band: the first bin and how many */
    double **weight;  /* of each band: of its bins */
    int logarithm;    /* 0: none; 10 or 1: the decimal or natural one, of at least `least` */
    float least;
};

/* Outputs of a filter to compute: [first, first + count). */
struct hr__resampling {
    const float *in; /* the input frame `at`; all that the taps need, and memory for three more */
    int64_t at, first, count;
    const uint8_t *next; /* memory that is read after that and brought nearer meanwhile, or NULL */
    size_t next_bytes;
};

struct hr__sound_kernels {
    void (*resample)(const struct hr__resampler *r, const struct hr__resampling *what, float *out);
    /* Computes the columns [column, column + 8) of `columns`, which are rows of `out`. `work` has
     * room for hr__mel_work() doubles, 64-byte aligned. */
    void (*mel)(const struct hr__mel *mel, const float *wave, int64_t length, int column,
                int columns, double *work, float *out);
    /* Adds `other` to `sum`, and multiplies by `factor`. */
    void (*mix)(float *sum, const float *other, int64_t count, float factor);
    /* v = least-bounded decimal logarithm of each number, times `scale`. */
    void (*decibels)(float *values, size_t count, float scale, float least);
    /* Whisper's range: 8 decades below the largest number, then about -1 to 1. count > 0. */
    void (*whisper)(float *values, size_t count);
};

/* Vectors between the transform's two buffers, so that a group of points has other places of a
 * cache in the one than in the other. */
#define HR__MEL_APART 4

/* Doubles of `work`: the transform's two buffers, and the sums of the bands as floats. */
static inline size_t hr__mel_work(const struct hr__mel *mel)
{
    return (size_t)HR__SOUND_LANES *
           (size_t)(2 * mel->points + HR__MEL_APART + (mel->bands + 1) / 2);
}

/* Columns that `frames` frames give; 0: too few for one. */
static inline int64_t hr__mel_columns(const struct hr__mel *mel, int64_t frames)
{
    if (mel->center)
        return frames > mel->frame / 2 ? 1 + frames / mel->hop : 0;
    return frames >= mel->frame ? 1 + (frames - mel->frame) / mel->hop : 0;
}

extern const struct hr__sound_kernels hr__sound_kernels_portable;
extern const struct hr__sound_kernels hr__sound_kernels_avx2;
extern const struct hr__sound_kernels hr__sound_kernels_avx512;

static inline const struct hr__sound_kernels *hr__sound_kernels(enum hr__isa isa)
{
#ifdef __x86_64__
    return isa >= HR__ISA_AVX512 ? &hr__sound_kernels_avx512
           : isa >= HR__ISA_AVX2 ? &hr__sound_kernels_avx2
                                 : &hr__sound_kernels_portable;
#else
    return &hr__sound_kernels_portable;
#endif
}

#endif
