/*
 * Rows of interleaved RGB to three rows of one channel each. One portable and
 * two vector versions that give the same bytes.
 */
#ifndef HR_CODEC_DEINTERLEAVE_H
#define HR_CODEC_DEINTERLEAVE_H

#include "base/cpu.h"

#include <stddef.h>
#include <stdint.h>

/* What is processed at once: `rgb` is readable for 3 x pixels rounded up to
 * this, and the planes are writable for pixels rounded up to it; what lands
 * behind `pixels` is unspecified. */
#define HR__DEINTERLEAVE_PIXELS 64

typedef void hr__deinterleave_fn(const uint8_t *rgb, uint8_t *const plane[3], size_t pixels);

/* The version for `isa`, which must not be above this machine's. */
hr__deinterleave_fn *hr__deinterleave(enum hr__isa isa);

#endif
