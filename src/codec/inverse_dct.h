/*
 * The inverse DCT of one block, dequantisation and clamping to samples included.
 *
 * It is that of C. Loeffler, A. Ligtenberg and G. Moschytz, "Practical fast 1-D
 * DCT algorithms with 11 multiplications" (ICASSP 1989), in the fixed point of
 * libjpeg's accurate integer method: constants of 13 bits, two more bits kept
 * between the passes, columns first. All sums are exact, so it may be arranged
 * freely; only where it rounds is fixed.
 */
#ifndef HR_CODEC_INVERSE_DCT_H
#define HR_CODEC_INVERSE_DCT_H

#include <stddef.h>
#include <stdint.h>

#define HR__DCT_CONST_BITS 13
#define HR__DCT_PASS1_BITS 2

/*
 * `coefficient` (quantised, 16-byte aligned) and `quant` are in natural order;
 * `out` takes 8 rows of 8 samples. Any values may come; the versions agree on
 * those that the packer lets through (HR__COLUMN_LIMIT).
 */
typedef void hr__inverse_dct_fn(const int16_t coefficient[64], const uint16_t quant[64],
                                uint8_t *out, ptrdiff_t stride);

hr__inverse_dct_fn hr__inverse_dct_plain; /* C */

/* What every machine of an architecture has: the plain one, or a faster one. */
#ifdef __SSE2__
hr__inverse_dct_fn hr__inverse_dct_sse2;
#define hr__inverse_dct hr__inverse_dct_sse2
#else
#define hr__inverse_dct hr__inverse_dct_plain
#endif

#endif
