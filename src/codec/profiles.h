/* Chooses the width profiles of an image (coefficients.h), and each block's profile among them. */
#ifndef HR_CODEC_PROFILES_H
#define HR_CODEC_PROFILES_H

#include "codec/item.h"

#include <stddef.h>
#include <stdint.h>

/* A value takes as many bits as its width, whatever the value is; an exception takes these. */
#define HR__EXCEPTION_BITS 24

/* Largest width at a zigzag position, so that eight positions have at most 56 bits. */
#define HR__WIDTH_MOST(position) ((position) < 8 ? 8 : 7)

struct hr__profiles {
    int count;
    uint8_t width[HR__PROFILES_MOST][64] __attribute__((aligned(16))); /* by zigzag position */
    uint8_t most[HR__PROFILES_MOST][64] __attribute__((aligned(16)));  /* magnitude: 2^(w-1) */
};

/* Values of a block in zigzag order; 0 at position 0, and where the value has more than 8 bits. */
struct hr__block_values {
    int8_t at[64] __attribute__((aligned(16)));
};

/* Memory for choosing; the caller may keep it for the next image. */
struct hr__profiles_scratch;

/* The caller frees it with hr__free. NULL: out of memory. */
struct hr__profiles_scratch *hr__profiles_scratch_create(void);
size_t hr__profiles_scratch_bytes(void);

/* Fills in *out, and the number of each block's profile. Results depend on the values only. */
void hr__profiles_choose(struct hr__profiles *out, const struct hr__block_values *blocks,
                         size_t count, uint8_t *chosen, struct hr__profiles_scratch *scratch);

#endif
