/*
 * See sound_kernels.h. This file is compiled for each instruction set, with HR__SOUND_KERNELS as
 * the name of its table. It is written with vectors, which compilers split where the machine has
 * shorter ones. A resampler has a stretch of the sound in each lane, as many as a register has
 * floats; transforms and mel bands have a column in each lane. So no sum depends on the vector's
 * width: a filter has eight sums, of every eighth tap, however it is computed.
 * Spectra are computed in float64: beside a loud tone, the error of float32 is as large as the
 * power of a quiet band, whose logarithm it would change.
 *
 * The transform is Stockham's (see Van Loan, "Computational Frameworks for the Fast Fourier
 * Transform", 1992, section 1.7), of mixed radix, on half as many complex numbers as the frame has
 * real ones.
 */
#include "recipe/sound_kernels.h"

#include <math.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

/* Functions that take or return vectors are all inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"

#ifndef HR__SOUND_KERNELS
#define HR__SOUND_KERNELS hr__sound_kernels_portable
#endif

#ifdef __clang__
#define SHUFFLE4(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define SHUFFLE4(a, b, i, j, k, l) __builtin_shuffle(a, b, (i4){i, j, k, l})
#endif

/* Columns of a spectrum that are computed at once: doubles of a register. A resampler takes twice
 * as many stretches of a sound at once: floats of a register. */
#ifdef __AVX512F__
#define COLUMNS 8
#elif defined __AVX2__
#define COLUMNS 4
#else
#define COLUMNS 2
#endif
#define WIDE (2 * COLUMNS)

typedef float v4 __attribute__((vector_size(16)));
typedef float v8 __attribute__((vector_size(32)));
typedef int32_t i4 __attribute__((vector_size(16)));
typedef double dn __attribute__((vector_size(8 * COLUMNS)));
typedef float vn __attribute__((vector_size(4 * COLUMNS)));
typedef float vw __attribute__((vector_size(4 * WIDE)));
typedef int32_t iw __attribute__((vector_size(4 * WIDE)));
/* The same in memory that is not aligned. */
typedef float v4u __attribute__((vector_size(16), aligned(4)));
typedef float v8u __attribute__((vector_size(32), aligned(4)));

/* The sums of a filter's taps: of each lane of eight, added up in a fixed order. */
#define TREE(s) ((((s)[0] + (s)[4]) + ((s)[1] + (s)[5])) + (((s)[2] + (s)[6]) + ((s)[3] + (s)[7])))

/* Each output for itself, from one of a period on. period: the input where the period begins. */
static void resample_each(const struct hr__resampler *r, const float *period, int64_t first,
                          int64_t count, float *out)
{
    int phase = (int)first;
    for (int64_t i = 0; i < count; i++) {
        const float *x = period + r->first[phase], *k = r->kernel + (int64_t)phase * r->taps;
        v8 sum = {0};
        for (int t = 0; t < r->taps; t += HR__SOUND_LANES)
            sum += *(const v8u *)(x + t) * *(const v8u *)(k + t);
        out[i] = TREE(sum);
        if (++phase == r->to) {
            phase = 0;
            period += r->from;
        }
    }
}

/* Frames of as many stretches of a sound as a vector has lanes, one stretch in each lane. */
struct stretches {
    const float *in;           /* the first stretch */
    int64_t apart;             /* frames from one stretch to the next */
    int64_t low, high;         /* the frames of each stretch that `frame` has */
    const uint8_t *next, *end; /* memory to bring nearer, `step` bytes with four outputs of each */
    size_t step;
    vw frame[HR__SOUND_STRETCH];
};

#if WIDE == 16
#define LOWS(a, b)  ((vw)_mm512_unpacklo_ps((__m512)(a), (__m512)(b)))
#define HIGHS(a, b) ((vw)_mm512_unpackhi_ps((__m512)(a), (__m512)(b)))
#elif WIDE == 8
#define LOWS(a, b)  ((vw)_mm256_unpacklo_ps((__m256)(a), (__m256)(b)))
#define HIGHS(a, b) ((vw)_mm256_unpackhi_ps((__m256)(a), (__m256)(b)))
#else
#define LOWS(a, b)  SHUFFLE4(a, b, 0, 4, 1, 5)
#define HIGHS(a, b) SHUFFLE4(a, b, 2, 6, 3, 7)
#endif

/* Turns rows into columns, in each four lanes. */
static inline void turn(const vw *row, vw *column)
{
    vw low = LOWS(row[0], row[2]), other = LOWS(row[1], row[3]);
    column[0] = LOWS(low, other);
    column[1] = HIGHS(low, other);
    low = HIGHS(row[0], row[2]);
    other = HIGHS(row[1], row[3]);
    column[2] = LOWS(low, other);
    column[3] = HIGHS(low, other);
}

/* Four frames of each fourth stretch. */
static inline void load_row(const float *x, int64_t apart, vw *row)
{
#if WIDE == 16
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(x));
    v = _mm512_insertf32x4(v, _mm_loadu_ps(x + 4 * apart), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(x + 8 * apart), 2);
    *row = (vw)_mm512_insertf32x4(v, _mm_loadu_ps(x + 12 * apart), 3);
#elif WIDE == 8
    __m256 v = _mm256_castps128_ps256(_mm_loadu_ps(x));
    *row = (vw)_mm256_insertf128_ps(v, _mm_loadu_ps(x + 4 * apart), 1);
#else
    *row = *(const v4u *)x;
#endif
}

static void load_stretches(struct stretches *s, int64_t low, int64_t high)
{
    s->low = low;
    s->high = high;
    for (int64_t i = 0; i < high - low; i += 4) {
        vw row[4];
        for (int k = 0; k < 4; k++)
            load_row(s->in + k * s->apart + low + i, s->apart, &row[k]);
        turn(row, s->frame + i);
    }
}

/* An output of each stretch. Its sums are those of resample_each: taps that are 0 add nothing. */
static inline void filter_stretches(const vw *x, const float *k, int taps, vw *out)
{
    vw s[HR__SOUND_LANES] = {0};
    for (; taps >= HR__SOUND_LANES; taps -= HR__SOUND_LANES) {
        for (int l = 0; l < HR__SOUND_LANES; l++)
            s[l] += x[l] * k[l];
        x += HR__SOUND_LANES;
        k += HR__SOUND_LANES;
    }
    for (int l = 0; l < HR__SOUND_LANES - 1; l++)
        if (l < taps)
            s[l] += x[l] * k[l];
    *out = TREE(s);
}

/* The input frame of the first tap of output `place`, counted from the beginning of a period. */
static inline int64_t tap_of(const struct hr__resampler *r, int place)
{
    return (int64_t)(place / r->to) * r->from + r->first[place % r->to];
}

/* Asks for a part of what is read next, which comes while outputs are computed. */
static inline void ask(struct stretches *s)
{
    const uint8_t *end = (size_t)(s->end - s->next) > s->step ? s->next + s->step : s->end;
    for (; s->next < end; s->next += 64)
        __builtin_prefetch(s->next, 0, 2);
    s->next = end;
}

/* The outputs of stretches that follow each other, each of `length` outputs. */
static void resample_stretches(const struct hr__resampler *r, struct stretches *s, int phase,
                               int length, float *out)
{
    int64_t end = tap_of(r, phase + length - 1) + r->used;
    s->high = INT64_MIN;
    for (int p = 0; p < length; p += 4) {
        vw made[4], made_of[4]; /* of each output; of each stretch, in four lanes */
        p = p < length - 4 ? p : length - 4;
        int64_t low = tap_of(r, phase + p), high = tap_of(r, phase + p + 3) + r->used;
        if (high > s->high)
            load_stretches(s, low, low + HR__SOUND_STRETCH < end ? low + HR__SOUND_STRETCH : end);
        ask(s);
        for (int k = 0; k < 4; k++)
            filter_stretches(s->frame + (tap_of(r, phase + p + k) - s->low),
                             r->kernel + (int64_t)((phase + p + k) % r->to) * r->taps, r->used,
                             &made[k]);
        turn(made, made_of);
        for (int j = 0; j < WIDE; j++)
            memcpy(out + (int64_t)j * length + p, (float *)&made_of[j % 4] + j / 4 * 4,
                   4 * sizeof *out);
    }
}

static void resample(const struct hr__resampler *r, const struct hr__resampling *what, float *out)
{
    int length = hr__resampler_stretch(r);
    int64_t all = (int64_t)length * WIDE, count = what->count;
    if (!length || count < all) {
        resample_each(r, what->in + (what->first / r->to * r->from - what->at), what->first % r->to,
                      count, out);
        return;
    }
    struct stretches s; /* `frame` is large and gets no first value */
    s.apart = (int64_t)(length / r->to) * r->from;
    s.next = what->next;
    s.end = s.next + what->next_bytes;
    s.step =
        (what->next_bytes / (size_t)((count + all - 1) / all * ((length + 3) / 4)) + 64) / 64 * 64;
    /* The last ones may be computed twice. */
    for (int64_t i = 0; i < count; i += all) {
        i = i < count - all ? i : count - all;
        int64_t first = what->first + i;
        s.in = what->in + (first / r->to * r->from - what->at);
        resample_stretches(r, &s, (int)(first % r->to), length, out + i);
    }
}

static void mix(float *sum, const float *other, int64_t count, float factor)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] = (sum[i] + other[i]) * factor;
}

struct complexes {
    dn re, im;
};

/* a x (re, im) */
static inline struct complexes times(struct complexes a, double re, double im)
{
    return (struct complexes){a.re * re - a.im * im, a.re * im + a.im * re};
}

static inline struct complexes plus(struct complexes a, struct complexes b)
{
    return (struct complexes){a.re + b.re, a.im + b.im};
}

static inline struct complexes minus(struct complexes a, struct complexes b)
{
    return (struct complexes){a.re - b.re, a.im - b.im};
}

/* a - i b and a + i b */
static inline struct complexes below(struct complexes a, struct complexes b)
{
    return (struct complexes){a.re + b.im, a.im - b.re};
}

static inline struct complexes above(struct complexes a, struct complexes b)
{
    return (struct complexes){a.re - b.im, a.im + b.re};
}

/* One pass of the transform: `left` points are still to transform, in `stride` interleaved groups.
 * Point i of butterfly (p, q) is from[q + stride * (p + m * i)] with m = left / radix, and becomes
 * to[q + stride * (radix * p + i)], times the root of unity number p * i * stride, which is less
 * than n. Only q = group, group + groups, ... are transformed. */
struct fft_pass {
    const double *root;
    int n, left, stride, group, groups;
    struct complexes *from, *to;
};

/* Writes a point. In the last pass all roots are 1. */
static inline void put(const struct fft_pass *f, struct complexes *to, int p, int i,
                       struct complexes value)
{
    const double *w = f->root + 2 * p * i * f->stride;
    to[f->stride * i] = p ? times(value, w[0], w[1]) : value;
}

static void pass2(const struct fft_pass *f)
{
    int m = f->left / 2, s = f->stride;
    for (int p = 0; p < m; p++)
        for (int q = f->group; q < s; q += f->groups) {
            const struct complexes *from = f->from + q + s * p;
            struct complexes *to = f->to + q + s * 2 * p, a = from[0], b = from[s * m];
            to[0] = plus(a, b);
            put(f, to, p, 1, minus(a, b));
        }
}

static void pass3(const struct fft_pass *f)
{
    const double half = 0.5, sine = 0.866025403784438647;
    int m = f->left / 3, s = f->stride;
    for (int p = 0; p < m; p++)
        for (int q = f->group; q < s; q += f->groups) {
            const struct complexes *from = f->from + q + s * p;
            struct complexes *to = f->to + q + s * 3 * p, a = from[0];
            struct complexes sum = plus(from[s * m], from[2 * s * m]);
            struct complexes turn = minus(from[s * m], from[2 * s * m]);
            struct complexes middle = {a.re - sum.re * half, a.im - sum.im * half};
            turn = (struct complexes){turn.re * sine, turn.im * sine};
            to[0] = plus(a, sum);
            put(f, to, p, 1, below(middle, turn));
            put(f, to, p, 2, above(middle, turn));
        }
}

static void pass4(const struct fft_pass *f)
{
    int m = f->left / 4, s = f->stride;
    for (int p = 0; p < m; p++)
        for (int q = f->group; q < s; q += f->groups) {
            const struct complexes *from = f->from + q + s * p;
            struct complexes *to = f->to + q + s * 4 * p;
            struct complexes a = plus(from[0], from[2 * s * m]);
            struct complexes b = minus(from[0], from[2 * s * m]);
            struct complexes c = plus(from[s * m], from[3 * s * m]);
            struct complexes d = minus(from[s * m], from[3 * s * m]);
            to[0] = plus(a, c);
            put(f, to, p, 1, below(b, d));
            put(f, to, p, 2, minus(a, c));
            put(f, to, p, 3, above(b, d));
        }
}

static void pass5(const struct fft_pass *f)
{
    const double c1 = 0.309016994374947424, c2 = -0.809016994374947424;
    const double s1 = 0.951056516295153572, s2 = 0.587785252292473129;
    int m = f->left / 5, s = f->stride;
    for (int p = 0; p < m; p++)
        for (int q = f->group; q < s; q += f->groups) {
            const struct complexes *from = f->from + q + s * p;
            struct complexes *to = f->to + q + s * 5 * p, a = from[0];
            struct complexes p1 = plus(from[s * m], from[4 * s * m]);
            struct complexes q1 = minus(from[s * m], from[4 * s * m]);
            struct complexes p2 = plus(from[2 * s * m], from[3 * s * m]);
            struct complexes q2 = minus(from[2 * s * m], from[3 * s * m]);
            struct complexes b = {a.re + (p1.re * c1 + p2.re * c2),
                                  a.im + (p1.im * c1 + p2.im * c2)};
            struct complexes c = {a.re + (p1.re * c2 + p2.re * c1),
                                  a.im + (p1.im * c2 + p2.im * c1)};
            struct complexes d = {q1.re * s1 + q2.re * s2, q1.im * s1 + q2.im * s2};
            struct complexes e = {q1.re * s2 - q2.re * s1, q1.im * s2 - q2.im * s1};
            to[0] = plus(a, plus(p1, p2));
            put(f, to, p, 1, below(b, d));
            put(f, to, p, 2, below(c, e));
            put(f, to, p, 3, above(c, e));
            put(f, to, p, 4, above(b, d));
        }
}

/* A prime factor that has no pass of its own. */
static void pass_any(const struct fft_pass *f, int radix)
{
    int m = f->left / radix, s = f->stride;
    for (int p = 0; p < m; p++)
        for (int q = f->group; q < s; q += f->groups) {
            const struct complexes *from = f->from + q + s * p;
            struct complexes *to = f->to + q + s * radix * p;
            for (int k = 0; k < radix; k++) {
                struct complexes sum = from[0];
                for (int j = 1; j < radix; j++) {
                    const double *w = f->root + 2 * (j * k % radix * (f->n / radix));
                    sum = plus(sum, times(from[s * m * j], w[0], w[1]));
                }
                put(f, to, p, k, sum);
            }
        }
}

/* Runs a pass, and makes the next one of it. */
static void run_pass(struct fft_pass *f, int radix)
{
    struct complexes *from = f->from;
    if (radix == 2)
        pass2(f);
    else if (radix == 3)
        pass3(f);
    else if (radix == 4)
        pass4(f);
    else if (radix == 5)
        pass5(f);
    else
        pass_any(f, radix);
    f->left /= radix;
    f->stride *= radix;
    f->from = f->to;
    f->to = from;
}

/* Transforms x, using y. Returns the one of them that has the result. After the first pass, groups
 * of points do not depend on each other; they take their passes one after the other, so that a
 * group stays in the nearest cache. */
static struct complexes *transform(const struct hr__fft *f, struct complexes *x,
                                   struct complexes *y)
{
    struct fft_pass whole = {
        .root = f->root, .n = f->n, .left = f->n, .stride = 1, .groups = 1, .from = x, .to = y};
    if (f->factors)
        run_pass(&whole, f->factor[0]);
    whole.groups = whole.stride;
    struct fft_pass group = whole;
    for (int g = 0; g < whole.groups; g++) {
        group = whole;
        group.group = g;
        for (int i = 1; i < f->factors; i++)
            run_pass(&group, f->factor[i]);
    }
    return group.from;
}

/* The sound, mirrored at its ends. */
static inline float mirrored(const float *wave, int64_t length, int64_t i)
{
    i = i < 0 ? -i : i;
    return wave[i < length ? i : 2 * (length - 1) - i];
}

/* The frames of the columns that are computed at once. */
struct frames {
    const float *wave;
    int64_t length, start[COLUMNS];
    int is_inside;
};

static struct frames frames_of(const struct hr__mel *mel, const float *wave, int64_t length,
                               int column, int columns)
{
    struct frames f = {.wave = wave, .length = length, .is_inside = 1};
    for (int j = 0; j < COLUMNS; j++) {
        int c = column + j < columns ? column + j : columns - 1;
        f.start[j] = (int64_t)c * mel->hop - (mel->center ? mel->frame / 2 : 0);
        f.is_inside &= f.start[j] >= 0 && f.start[j] + mel->frame <= length;
    }
    return f;
}

/* Sets vector k of four to number i + k of each frame. */
#if COLUMNS == 2
static inline void turn4(const struct frames *f, int64_t i, dn *to)
{
    v4 a = *(const v4u *)(f->wave + f->start[0] + i);
    v4 b = *(const v4u *)(f->wave + f->start[1] + i);
    for (int k = 0; k < 4; k++)
        to[k] = (dn){a[k], b[k]};
}
#else
#if COLUMNS == 4
#define LOW(a, b)  _mm_unpacklo_ps(a, b)
#define HIGH(a, b) _mm_unpackhi_ps(a, b)
#define WIDEN(a)   ((dn)_mm256_cvtps_pd(a))

static inline __m128 row4(const struct frames *f, int64_t i, int j)
{
    return _mm_loadu_ps(f->wave + f->start[j] + i);
}
#else
#define LOW(a, b)  _mm256_unpacklo_ps(a, b)
#define HIGH(a, b) _mm256_unpackhi_ps(a, b)
#define WIDEN(a)   ((dn)_mm512_cvtps_pd(a))

/* Those of frame j in the lower half, of frame j + 4 in the upper one. */
static inline __m256 row4(const struct frames *f, int64_t i, int j)
{
    __m256 low = _mm256_castps128_ps256(_mm_loadu_ps(f->wave + f->start[j] + i));
    return _mm256_insertf128_ps(low, _mm_loadu_ps(f->wave + f->start[j + 4] + i), 1);
}
#endif

static inline void turn4(const struct frames *f, int64_t i, dn *to)
{
    __typeof__(row4(f, i, 0)) a = row4(f, i, 0), b = row4(f, i, 1), c = row4(f, i, 2);
    __typeof__(a) d = row4(f, i, 3);
    __typeof__(a) ac = LOW(a, c), bd = LOW(b, d);
    to[0] = WIDEN(LOW(ac, bd));
    to[1] = WIDEN(HIGH(ac, bd));
    ac = HIGH(a, c);
    bd = HIGH(b, d);
    to[2] = WIDEN(LOW(ac, bd));
    to[3] = WIDEN(HIGH(ac, bd));
}
#endif

/* Reads the frames, a number of each to a vector, times the window's if there is one. */
static inline void gather(const struct hr__mel *mel, const struct frames *f, const double *window,
                          dn *to)
{
    int i = 0;
    for (; f->is_inside && i + 4 <= mel->frame; i += 4) {
        dn four[4];
        turn4(f, i, four);
        for (int k = 0; k < 4; k++)
            to[i + k] = window ? four[k] * window[i + k] : four[k];
    }
    for (; i < mel->frame; i++) {
        dn one;
        for (int j = 0; j < COLUMNS; j++)
            one[j] = mirrored(f->wave, f->length, f->start[j] + i);
        to[i] = window ? one * window[i] : one;
    }
}

/* Kaldi's: removes the mean and raises high frequencies, before the window. */
static void condition(const struct hr__mel *mel, dn *frame)
{
    dn sum = {0};
    for (int i = 0; i < mel->frame; i++)
        sum += frame[i];
    sum = sum / (double)mel->frame;
    for (int i = 0; i < mel->frame; i++)
        frame[i] -= sum;
    for (int i = mel->frame - 1; i > 0; i--)
        frame[i] = (frame[i] - frame[i - 1] * 0.97) * mel->window[i];
    frame[0] = (frame[0] - frame[0] * 0.97) * mel->window[0];
}

/* The powers of points / 2 + 1 bins, from the transform of the even and odd numbers as pairs. Bins
 * k and points / 2 - k follow from the same two points. */
static void powers(const struct hr__mel *mel, const struct complexes *z, dn *power)
{
    int half = mel->points / 2;
    dn first = z[0].re + z[0].im, last = z[0].re - z[0].im;
    power[0] = first * first;
    power[half] = last * last;
    for (int k = 1; k <= half / 2; k++) {
        struct complexes a = z[k], b = z[half - k];
        struct complexes even = {a.re + b.re, a.im - b.im}, odd = {a.im + b.im, b.re - a.re};
        odd = times(odd, mel->root[2 * k], mel->root[2 * k + 1]);
        struct complexes x = plus(even, odd), y = minus(even, odd);
        power[half - k] = (y.re * y.re + y.im * y.im) * 0.25;
        power[k] = (x.re * x.re + x.im * x.im) * 0.25;
    }
}

/* The natural logarithm of normal positive numbers: m 2^e, with m near 1, and a series in
 * (m - 1) / (m + 1). */
static inline void logarithm(vw *v)
{
    vw x = *v;
    iw bits, exponent;
    memcpy(&bits, &x, sizeof bits);
    exponent = (bits - 0x3F3504F3) >> 23; /* the square root of 1/2 */
    bits -= exponent << 23;
    memcpy(&x, &bits, sizeof x);
    vw e = __builtin_convertvector(exponent, vw);
    vw s = (x - 1.0f) / (x + 1.0f), z = s * s;
    vw series = ((z * (1.0f / 9) + 1.0f / 7) * z + 1.0f / 5) * z + 1.0f / 3;
    /* ln 2 in two parts; the product with the first one is exact. */
    *v = e * 0.693145751953125f + (e * 1.42860682030941723e-6f + (s + s) * (series * z) + (s + s));
}

#define DECIMAL 0.43429448190325182765f

/* Sets each number to the larger one of it and `other`'s. */
static inline void at_least(vw *v, const vw *other)
{
    iw above = *v > *other, a, b;
    memcpy(&a, v, sizeof a);
    memcpy(&b, other, sizeof b);
    a = (a & above) | (b & ~above);
    memcpy(v, &a, sizeof a);
}

/* Replaces `n` numbers, but at least `least`, by their natural logarithms times `scale`. */
static inline void logarithms_of(float *values, size_t n, float scale, float least)
{
    vw v = (vw){0} + 1, floor = (vw){0} + least;
    memcpy(&v, values, n * sizeof *values);
    at_least(&v, &floor);
    logarithm(&v);
    v *= scale;
    memcpy(values, &v, n * sizeof *values);
}

static void logarithms(float *values, size_t count, float scale, float least)
{
    size_t i = 0;
    for (; i + WIDE <= count; i += WIDE)
        logarithms_of(values + i, WIDE, scale, least);
    logarithms_of(values + i, count - i, scale, least);
}

/* Bands whose sums are computed side by side, as each addition waits for the one before. */
#define BESIDE 4

/* Computes the sums of the bands [band, band + n), each in the order of its bins. The bins that
 * each of them has come first, then what is left of each. */
static inline void sum_bands(const struct hr__mel *mel, const dn *power, int band, int n,
                             float *sums)
{
    const int *low = mel->low + band, *count = mel->count + band;
    double *const *weight = mel->weight + band;
    dn exact[BESIDE] = {0};
    int shared = count[0];
    for (int k = 1; k < n; k++)
        shared = count[k] < shared ? count[k] : shared;
    for (int i = 0; i < shared; i++)
        for (int k = 0; k < n; k++)
            exact[k] += power[low[k] + i] * weight[k][i];
    for (int k = 0; k < n; k++) {
        for (int i = shared; i < count[k]; i++)
            exact[k] += power[low[k] + i] * weight[k][i];
        vn sum = __builtin_convertvector(exact[k], vn);
        memcpy(sums + HR__SOUND_LANES * k, &sum, sizeof sum);
    }
}

/* Computes the sums of the mel bands of COLUMNS columns, from lane `at` of `sums` on. */
static void mel_sums(const struct hr__mel *mel, const struct frames *f, double *work, v8 *sums,
                     int at)
{
    dn *frame = (dn *)work, *power;
    struct complexes *y = (struct complexes *)(frame + mel->points + HR__MEL_APART), *z;
    if (mel->is_kaldi) {
        gather(mel, f, NULL, frame);
        condition(mel, frame);
    } else {
        gather(mel, f, mel->window, frame);
    }
    for (int i = mel->frame; i < mel->points; i++)
        frame[i] = (dn){0};
    /* Two numbers of the frame are a complex one, as they lie in memory. */
    z = transform(&mel->half, (struct complexes *)frame, y);
    power = z == y ? frame : (dn *)y;
    powers(mel, z, power);
    for (int k = 0; mel->is_amplitude && k <= mel->points / 2; k++)
        for (int j = 0; j < COLUMNS; j++)
            power[k][j] = sqrt(power[k][j]);
    int b = 0;
    for (; b + BESIDE <= mel->bands; b += BESIDE)
        sum_bands(mel, power, b, BESIDE, (float *)(sums + b) + at);
    for (; b < mel->bands; b++)
        sum_bands(mel, power, b, 1, (float *)(sums + b) + at);
}

static void mel_columns(const struct hr__mel *mel, const float *wave, int64_t length, int column,
                        int columns, double *work, float *out)
{
    v8 *sums = (v8 *)(work + HR__SOUND_LANES * (2 * mel->points + HR__MEL_APART));
    for (int j = 0; j < HR__SOUND_LANES; j += COLUMNS) {
        struct frames f = frames_of(mel, wave, length, column + j, columns);
        mel_sums(mel, &f, work, sums, j);
    }
    int valid = columns - column < HR__SOUND_LANES ? columns - column : HR__SOUND_LANES;
    if (mel->logarithm)
        logarithms((float *)sums, (size_t)mel->bands * HR__SOUND_LANES,
                   mel->logarithm == 10 ? DECIMAL : 1, mel->least);
    for (int b = 0; b < mel->bands; b++) {
        float *to = out + (size_t)b * (size_t)columns + column;
        if (valid == HR__SOUND_LANES)
            *(v8u *)to = sums[b];
        else
            memcpy(to, &sums[b], (size_t)valid * sizeof *to);
    }
}

static void decibels(float *values, size_t count, float scale, float least)
{
    logarithms(values, count, DECIMAL * scale, least);
}

static void whisper(float *values, size_t count)
{
    size_t whole = count / (2 * WIDE) * (2 * WIDE), i;
    vw greatest = (vw){0} + values[0], second = greatest, two[2];
    for (i = 0; i < whole; i += 2 * WIDE) {
        memcpy(two, values + i, sizeof two);
        at_least(&greatest, &two[0]);
        at_least(&second, &two[1]);
    }
    at_least(&greatest, &second);
    float most = greatest[0];
    for (int j = 1; j < WIDE; j++)
        most = greatest[j] > most ? greatest[j] : most;
    for (; i < count; i++)
        most = values[i] > most ? values[i] : most;
    float least = most - 8;
    for (i = 0; i < count; i++) {
        float v = values[i] > least ? values[i] : least;
        values[i] = (v + 4) * 0.25f;
    }
}

const struct hr__sound_kernels HR__SOUND_KERNELS = {
    .resample = resample,
    .mel = mel_columns,
    .mix = mix,
    .decibels = decibels,
    .whisper = whisper,
};
