/*
 * See sound_kernels.h. This file is compiled for each instruction set, with HR__SOUND_KERNELS as
 * the name of its table. It is written with vectors of eight floats, which compilers split where
 * the machine has shorter ones. The filter of a resampler has its taps in the lanes; transforms and
 * mel bands have eight columns in them, one column in each, so no sum depends on the vector's
 * width.
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

#ifndef HR__SOUND_KERNELS
#define HR__SOUND_KERNELS hr__sound_kernels_portable
#endif

typedef float v8 __attribute__((vector_size(32)));
typedef double d8 __attribute__((vector_size(64)));
typedef int32_t i8 __attribute__((vector_size(32)));
/* The same in memory that is not aligned. */
typedef float v8u __attribute__((vector_size(32), aligned(4)));

static void resample(const struct hr__resampler *r, const float *in, int64_t at, int64_t first,
                     int64_t count, float *out)
{
    int64_t period = first / r->to, phase = first % r->to;
    for (int64_t i = 0; i < count; i++) {
        const float *x = in + (period * r->from + r->first[phase] - at);
        const float *k = r->kernel + phase * r->taps;
        v8 sum = *(const v8u *)x * *(const v8u *)k;
        for (int t = HR__SOUND_LANES; t < r->taps; t += HR__SOUND_LANES)
            sum += *(const v8u *)(x + t) * *(const v8u *)(k + t);
        out[i] = ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
        if (++phase == r->to) {
            phase = 0;
            period++;
        }
    }
}

struct complex8 {
    d8 re, im;
};

/* *to = a x (re, im) */
static inline void times(struct complex8 *to, const struct complex8 *a, double re, double im)
{
    d8 x = a->re * re - a->im * im;
    to->im = a->re * im + a->im * re;
    to->re = x;
}

static inline void butterfly2(struct complex8 *a)
{
    struct complex8 x = a[0], y = a[1];
    a[0] = (struct complex8){x.re + y.re, x.im + y.im};
    a[1] = (struct complex8){x.re - y.re, x.im - y.im};
}

static inline void butterfly3(struct complex8 *a)
{
    const double half = 0.5, sine = 0.866025403784438647;
    d8 sum_re = a[1].re + a[2].re, sum_im = a[1].im + a[2].im;
    d8 re = a[0].re - sum_re * half, im = a[0].im - sum_im * half;
    d8 turn_re = (a[1].im - a[2].im) * sine, turn_im = (a[2].re - a[1].re) * sine;
    a[0] = (struct complex8){a[0].re + sum_re, a[0].im + sum_im};
    a[1] = (struct complex8){re + turn_re, im + turn_im};
    a[2] = (struct complex8){re - turn_re, im - turn_im};
}

static inline void butterfly4(struct complex8 *a)
{
    d8 s0 = a[0].re + a[2].re, t0 = a[0].im + a[2].im;
    d8 s1 = a[0].re - a[2].re, t1 = a[0].im - a[2].im;
    d8 s2 = a[1].re + a[3].re, t2 = a[1].im + a[3].im;
    d8 s3 = a[1].re - a[3].re, t3 = a[1].im - a[3].im;
    a[0] = (struct complex8){s0 + s2, t0 + t2};
    a[1] = (struct complex8){s1 + t3, t1 - s3};
    a[2] = (struct complex8){s0 - s2, t0 - t2};
    a[3] = (struct complex8){s1 - t3, t1 + s3};
}

static inline void butterfly5(struct complex8 *a)
{
    const double c1 = 0.309016994374947424, c2 = -0.809016994374947424;
    const double s1 = 0.951056516295153572, s2 = 0.587785252292473129;
    d8 p1 = a[1].re + a[4].re, q1 = a[1].im + a[4].im, p2 = a[2].re + a[3].re;
    d8 q2 = a[2].im + a[3].im, d1 = a[1].re - a[4].re, e1 = a[1].im - a[4].im;
    d8 d2 = a[2].re - a[3].re, e2 = a[2].im - a[3].im;
    d8 re1 = a[0].re + (p1 * c1 + p2 * c2), im1 = a[0].im + (q1 * c1 + q2 * c2);
    d8 re2 = a[0].re + (p1 * c2 + p2 * c1), im2 = a[0].im + (q1 * c2 + q2 * c1);
    d8 f1 = e1 * s1 + e2 * s2, g1 = d1 * s1 + d2 * s2;
    d8 f2 = e1 * s2 - e2 * s1, g2 = d1 * s2 - d2 * s1;
    a[0] = (struct complex8){a[0].re + (p1 + p2), a[0].im + (q1 + q2)};
    a[1] = (struct complex8){re1 + f1, im1 - g1};
    a[4] = (struct complex8){re1 - f1, im1 + g1};
    a[2] = (struct complex8){re2 + f2, im2 - g2};
    a[3] = (struct complex8){re2 - f2, im2 + g2};
}

/* A prime factor that has no butterfly of its own. root: of the whole transform of n points. */
static void butterfly_any(struct complex8 *a, int radix, const double *root, int n)
{
    struct complex8 out[64], product;
    for (int k = 0; k < radix; k++) {
        out[k] = a[0];
        for (int j = 1; j < radix; j++) {
            const double *w = root + 2 * (j * k % radix * (n / radix));
            times(&product, &a[j], w[0], w[1]);
            out[k].re += product.re;
            out[k].im += product.im;
        }
    }
    memcpy(a, out, (size_t)radix * sizeof *a);
}

static inline void butterfly(struct complex8 *a, int radix, const struct hr__fft *f)
{
    switch (radix) {
    case 2:
        butterfly2(a);
        break;
    case 3:
        butterfly3(a);
        break;
    case 4:
        butterfly4(a);
        break;
    case 5:
        butterfly5(a);
        break;
    default:
        butterfly_any(a, radix, f->root, f->n);
    }
}

/* One pass: `left` points are still to transform, in `stride` interleaved groups. Inlined with a
 * constant radix. */
static inline void pass(const struct hr__fft *f, int radix, int left, int stride,
                        const struct complex8 *from, struct complex8 *to)
{
    int m = left / radix;
    struct complex8 a[64];
    for (int p = 0; p < m; p++)
        for (int q = 0; q < stride; q++) {
            for (int i = 0; i < radix; i++)
                a[i] = from[q + stride * (p + m * i)];
            butterfly(a, radix, f);
            to[q + stride * radix * p] = a[0];
            for (int i = 1; i < radix; i++) {
                const double *w = f->root + 2 * ((int64_t)p * i * stride % f->n);
                times(&to[q + stride * (radix * p + i)], &a[i], w[0], w[1]);
            }
        }
}

/* Transforms x, using y. Returns the one of them that has the result. */
static struct complex8 *transform(const struct hr__fft *f, struct complex8 *x, struct complex8 *y)
{
    int left = f->n, stride = 1;
    for (int i = 0; i < f->factors; i++) {
        int radix = f->factor[i];
        struct complex8 *swap = x;
        if (radix == 4)
            pass(f, 4, left, stride, x, y);
        else if (radix == 5)
            pass(f, 5, left, stride, x, y);
        else if (radix == 2)
            pass(f, 2, left, stride, x, y);
        else if (radix == 3)
            pass(f, 3, left, stride, x, y);
        else
            pass(f, radix, left, stride, x, y);
        left /= radix;
        stride *= radix;
        x = y;
        y = swap;
    }
    return x;
}

/* The sound, mirrored at its ends. */
static inline float mirrored(const float *wave, int64_t length, int64_t i)
{
    i = i < 0 ? -i : i;
    return wave[i < length ? i : 2 * (length - 1) - i];
}

/* Gathers eight frames, a number of each in a vector. Columns past the last repeat it. */
static void gather(const struct hr__mel *mel, const float *wave, int64_t length, int column,
                   int columns, d8 *to)
{
    int64_t start[HR__SOUND_LANES];
    int is_inside = 1;
    for (int j = 0; j < HR__SOUND_LANES; j++) {
        int c = column + j < columns ? column + j : columns - 1;
        start[j] = (int64_t)c * mel->hop - (mel->center ? mel->frame / 2 : 0);
        is_inside &= start[j] >= 0 && start[j] + mel->frame <= length;
    }
    for (int i = 0; i < mel->frame; i++) {
        for (int j = 0; j < HR__SOUND_LANES; j++)
            to[i][j] = is_inside ? wave[start[j] + i] : mirrored(wave, length, start[j] + i);
    }
}

/* Kaldi's: removes the mean and raises high frequencies. */
static void condition(const struct hr__mel *mel, d8 *frame)
{
    d8 sum = {0};
    for (int i = 0; i < mel->frame; i++)
        sum += frame[i];
    sum = sum / (double)mel->frame;
    for (int i = 0; i < mel->frame; i++)
        frame[i] -= sum;
    for (int i = mel->frame - 1; i > 0; i--)
        frame[i] -= frame[i - 1] * 0.97;
    frame[0] -= frame[0] * 0.97;
}

/* The powers of points / 2 + 1 bins, from the transform of the even and odd numbers as pairs. */
static void powers(const struct hr__mel *mel, const struct complex8 *z, d8 *power)
{
    int half = mel->points / 2;
    for (int k = 0; k <= half; k++) {
        struct complex8 a = z[k % half], b = z[(half - k) % half], odd;
        d8 re = (a.re + b.re) * 0.5, im = (a.im - b.im) * 0.5;
        struct complex8 turned = {(a.im + b.im) * 0.5, (b.re - a.re) * 0.5};
        times(&odd, &turned, mel->root[2 * k], mel->root[2 * k + 1]);
        re += odd.re;
        im += odd.im;
        power[k] = re * re + im * im;
    }
}

/* The natural logarithm of normal positive numbers: m 2^e, with m near 1, and a series in
 * (m - 1) / (m + 1). */
static inline void logarithm(v8 *v)
{
    v8 x = *v;
    i8 bits, exponent;
    memcpy(&bits, &x, sizeof bits);
    exponent = (bits - 0x3F3504F3) >> 23; /* the square root of 1/2 */
    bits -= exponent << 23;
    memcpy(&x, &bits, sizeof x);
    v8 e = __builtin_convertvector(exponent, v8);
    v8 s = (x - 1.0f) / (x + 1.0f), z = s * s;
    v8 series = ((z * (1.0f / 9) + 1.0f / 7) * z + 1.0f / 5) * z + 1.0f / 3;
    /* ln 2 in two parts; the product with the first one is exact. */
    *v = e * 0.693145751953125f + (e * 1.42860682030941723e-6f + (s + s) * (series * z) + (s + s));
}

#define DECIMAL 0.43429448190325182765f

static inline void at_least(v8 *v, float least)
{
    v8 low = {least, least, least, least, least, least, least, least};
    i8 above = *v > low, a, b;
    memcpy(&a, v, sizeof a);
    memcpy(&b, &low, sizeof b);
    a = (a & above) | (b & ~above);
    memcpy(v, &a, sizeof a);
}

static void mel_columns(const struct hr__mel *mel, const float *wave, int64_t length, int column,
                        int columns, double *work, float *out)
{
    d8 *frame = (d8 *)work, *power = frame;
    struct complex8 *y = (struct complex8 *)(frame + mel->points), *z;
    gather(mel, wave, length, column, columns, frame);
    if (mel->is_kaldi)
        condition(mel, frame);
    for (int i = 0; i < mel->frame; i++)
        frame[i] *= mel->window[i];
    for (int i = mel->frame; i < mel->points; i++)
        frame[i] = (d8){0};
    /* Two numbers of the frame are a complex one, as they lie in memory. */
    z = transform(&mel->half, (struct complex8 *)frame, y);
    power = z == y ? frame : (d8 *)y;
    powers(mel, z, power);
    for (int k = 0; mel->is_amplitude && k <= mel->points / 2; k++)
        for (int j = 0; j < HR__SOUND_LANES; j++)
            power[k][j] = sqrt(power[k][j]);
    int valid = columns - column < HR__SOUND_LANES ? columns - column : HR__SOUND_LANES;
    for (int b = 0; b < mel->bands; b++) {
        d8 exact = {0};
        for (int i = 0; i < mel->count[b]; i++)
            exact += power[mel->low[b] + i] * mel->weight[b][i];
        v8 sum = __builtin_convertvector(exact, v8);
        if (mel->logarithm) {
            at_least(&sum, mel->least);
            logarithm(&sum);
            if (mel->logarithm == 10)
                sum *= DECIMAL;
        }
        memcpy(out + (size_t)b * (size_t)columns + column, &sum, (size_t)valid * sizeof(float));
    }
}

static void decibels(float *values, size_t count, float scale, float least)
{
    for (size_t i = 0; i < count; i += HR__SOUND_LANES) {
        size_t n = count - i < HR__SOUND_LANES ? count - i : HR__SOUND_LANES;
        v8 v = {1, 1, 1, 1, 1, 1, 1, 1};
        memcpy(&v, values + i, n * sizeof *values);
        at_least(&v, least);
        logarithm(&v);
        v *= DECIMAL * scale;
        memcpy(values + i, &v, n * sizeof *values);
    }
}

const struct hr__sound_kernels HR__SOUND_KERNELS = {
    .resample = resample,
    .mel = mel_columns,
    .decibels = decibels,
};
