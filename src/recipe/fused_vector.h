/*
 * The part of the fused pass that AVX2, AVX-512 and NEON share: all but the horizontal filter and
 * interleaving. Each compiles it with its own vectors.
 *
 * Before including this, a file defines the operations of its instruction set:
 *
 * - LANES: number of 32-bit elements in a vector; `reals` and `ints`: vectors of them.
 * - V(op): the intrinsic of that name; INTS(op): the one for whole vectors of integers.
 * - put(out, v, stream), put_half(out, v), put_few(out, v, bytes): write a vector (stream:
 *   bypassing the caches where the instruction set can), its lower half, its first bytes.
 * - load_few(in, n): loads n < LANES elements and fills up with zeros.
 * - load_bytes(in): loads LANES bytes as elements.
 * - pack_bytes(a, b, c, d), pack_words(a, b): the low bytes of four vectors with values 0..255, the
 *   low words of two with values 0..65535, in order.
 * - pack_float16(a, b): two vectors cast to float16, in order.
 * - select_nan(v, number, nan): for each element of v, `nan` if it is a NaN, else `number`.
 */
#ifndef HR_RECIPE_FUSED_VECTOR_H
#define HR_RECIPE_FUSED_VECTOR_H

/* Writes the sums of LANES outputs to aligned memory. */
INLINE void put_sums(const struct hr__horizontal *h, ints sum, float *out, int clamp)
{
    if (clamp) {
        sum = V(max_epi32)(sum, INTS(setzero)());
        sum = V(min_epi32)(sum, V(set1_epi32)(h->ceiling));
    }
    V(store_ps)(out, V(cvtepi32_ps)(sum));
}

/* Sums a column's rows into `count` vectors, from element i on. */
INLINE void sum_rows(const struct hr__column *column, size_t i, int count, reals *v)
{
    reals w = V(set1_ps)(column->weight[0]);
    for (int k = 0; k < count; k++)
        v[k] = V(mul_ps)(w, V(loadu_ps)(column->rows[0] + i + LANES * k));
    for (int t = 1; t < column->taps; t++) {
        const float *row = column->rows[t] + i;
        w = V(set1_ps)(column->weight[t]);
        for (int k = 0; k < count; k++)
            v[k] = V(add_ps)(v[k], V(mul_ps)(w, V(loadu_ps)(row + LANES * k)));
    }
    for (int k = 0; k < count; k++) {
        if (column->clamp) {
            v[k] = V(min_ps)(V(max_ps)(v[k], V(setzero_ps)()), V(set1_ps)(255));
            v[k] = V(mul_ps)(v[k], V(set1_ps)(column->scale));
        }
        v[k] = V(add_ps)(v[k], V(set1_ps)(column->shift));
    }
}

INLINE ints byte_of(reals v)
{
    v = V(add_ps)(v, V(set1_ps)(0.5f));
    v = V(min_ps)(V(max_ps)(v, V(setzero_ps)()), V(set1_ps)(255));
    return V(cvttps_epi32)(v);
}

INLINE ints bfloat16_of(reals v)
{
    ints bits = INTS(castps)(v), top = V(srli_epi32)(bits, 16);
    ints round = V(add_epi32)(INTS(and)(top, V(set1_epi32)(1)), V(set1_epi32)(0x7fff));
    ints rounded = V(srli_epi32)(V(add_epi32)(bits, round), 16);
    return select_nan(v, rounded, INTS(or)(top, V(set1_epi32)(0x40)));
}

INLINE ints bytes_of(reals a, reals b, reals c, reals d)
{
    return pack_bytes(byte_of(a), byte_of(b), byte_of(c), byte_of(d));
}

INLINE ints words_of(reals a, reals b, enum hr_dtype dtype)
{
    return dtype == HR_FLOAT16 ? pack_float16(a, b) : pack_words(bfloat16_of(a), bfloat16_of(b));
}

/* Casts and writes `count` vectors: 4 or 2, or with float32 also 1. */
INLINE void put_block(const reals *v, int count, enum hr_dtype dtype, uint8_t *out, int stream)
{
    if (dtype == HR_FLOAT32) {
        for (int k = 0; k < count; k++)
            put(out + 4 * LANES * k, INTS(castps)(v[k]), stream);
    } else if (dtype == HR_UINT8 && count == 4) {
        put(out, bytes_of(v[0], v[1], v[2], v[3]), stream);
    } else if (dtype == HR_UINT8) {
        put_half(out, bytes_of(v[0], v[1], v[1], v[1]));
    } else {
        for (int k = 0; k < count; k += 2)
            put(out + 2 * LANES * k, words_of(v[k], v[k + 1], dtype), stream);
    }
}

/* Casts and writes the last n <= LANES elements of a row. */
INLINE void put_last(reals v, size_t n, enum hr_dtype dtype, uint8_t *out)
{
    ints cast = dtype == HR_FLOAT32 ? INTS(castps)(v)
                : dtype == HR_UINT8 ? bytes_of(v, v, v, v)
                                    : words_of(v, v, dtype);
    put_few(out, cast, n * hr__element_bytes(dtype));
}

/* Scales `count` vectors of a row of bytes, from element i on. */
INLINE void scale_bytes(const struct hr__column *column, size_t i, int count, reals *v)
{
    for (int k = 0; k < count; k++) {
        v[k] = V(mul_ps)(V(set1_ps)(column->scale), load_bytes(column->bytes + i + LANES * k));
        v[k] = V(add_ps)(v[k], V(set1_ps)(column->shift));
    }
}

/* Gets `count` vectors of the row that row_as() casts. */
INLINE void take_rows(const struct hr__column *column, const float *in, size_t i, int count,
                      reals *v)
{
    if (column && column->bytes)
        scale_bytes(column, i, count, v);
    else if (column)
        sum_rows(column, i, count, v);
    else
        for (int k = 0; k < count; k++)
            v[k] = V(loadu_ps)(in + i + LANES * k);
}

/* Casts a row of n elements: the sums of `column` or, if that is NULL, `in`. */
INLINE void row_as(const struct hr__column *column, const float *in, size_t n, enum hr_dtype dtype,
                   int stream, uint8_t *out)
{
    size_t bytes = hr__element_bytes(dtype), i = 0;
    reals v[4];
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        take_rows(column, in, i, 4, v);
        put_block(v, 4, dtype, out + i * bytes, stream);
    }
    if (i + 2 * LANES <= n) {
        take_rows(column, in, i, 2, v);
        put_block(v, 2, dtype, out + i * bytes, stream);
        i += 2 * LANES;
    }
    if (dtype == HR_FLOAT32 && i + LANES <= n) {
        take_rows(column, in, i, 1, v);
        put_block(v, 1, dtype, out + i * bytes, stream);
        i += LANES;
    }
    for (; i < n; i += LANES) {
        size_t few = n - i < LANES ? n - i : LANES;
        if (column) /* rows of the ring are padded, those of images followed by slack */
            take_rows(column, in, i, 1, v);
        else
            v[0] = load_few(in + i, few);
        put_last(v[0], few, dtype, out + i * bytes);
    }
}

INLINE void vertical_as(const struct hr__column *column, enum hr_dtype dtype, void *out)
{
    size_t width = (size_t)column->width;
    if (column->stream)
        row_as(column, NULL, width, dtype, 1, out);
    else
        row_as(column, NULL, width, dtype, 0, out);
}

static void vertical(const struct hr__column *column, void *out)
{
    switch (column->dtype) {
    case HR_UINT8:
        vertical_as(column, HR_UINT8, out);
        break;
    case HR_FLOAT16:
        vertical_as(column, HR_FLOAT16, out);
        break;
    case HR_BFLOAT16:
        vertical_as(column, HR_BFLOAT16, out);
        break;
    case HR_FLOAT32:
        vertical_as(column, HR_FLOAT32, out);
        break;
    default:
        break;
    }
}

static void cast(const float *in, size_t n, enum hr_dtype dtype, void *out)
{
    switch (dtype) {
    case HR_UINT8:
        row_as(NULL, in, n, HR_UINT8, 0, out);
        break;
    case HR_FLOAT16:
        row_as(NULL, in, n, HR_FLOAT16, 0, out);
        break;
    case HR_BFLOAT16:
        row_as(NULL, in, n, HR_BFLOAT16, 0, out);
        break;
    case HR_FLOAT32:
        memcpy(out, in, n * sizeof *in);
        break;
    default:
        break;
    }
}

static void copy(void *out, const void *in, size_t bytes)
{
    size_t head = (size_t)(-(uintptr_t)out % HR__LINE_BYTES), at;
    if (bytes < head + HR__LINE_BYTES) {
        memcpy(out, in, bytes);
        return;
    }
    memcpy(out, in, head);
    for (at = head; at + HR__LINE_BYTES <= bytes; at += HR__LINE_BYTES) {
        ints line[HR__LINE_BYTES / sizeof(ints)];
        for (size_t k = 0; k < HR__LINE_BYTES / sizeof(ints); k++)
            line[k] = INTS(loadu)((const void *)((const uint8_t *)in + at + k * sizeof(ints)));
        for (size_t k = 0; k < HR__LINE_BYTES / sizeof(ints); k++)
            put((uint8_t *)out + at + k * sizeof(ints), line[k], 1);
    }
    memcpy((uint8_t *)out + at, (const uint8_t *)in + at, bytes - at);
}

#endif
