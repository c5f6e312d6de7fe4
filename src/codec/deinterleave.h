/*
 * Splits rows of interleaved RGB into three rows of one channel each. All versions give the same
 * bytes.
 */
#ifndef HR_CODEC_DEINTERLEAVE_H
#define HR_CODEC_DEINTERLEAVE_H

#include "base/cpu.h"

#include <stddef.h>
#include <stdint.h>

/* Pixels processed at once. `rgb` must be readable for 3 x `pixels` rounded up to this, and the
 * planes writable for `pixels` rounded up to it; bytes written after `pixels` are unspecified. */
#define HR__DEINTERLEAVE_PIXELS 64

typedef void hr__deinterleave_fn(const uint8_t *rgb, uint8_t *const plane[3], size_t pixels);

/* Returns the version for `isa`, which the machine must support. */
hr__deinterleave_fn *hr__deinterleave(enum hr__isa isa);

#endif
