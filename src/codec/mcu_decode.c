/*
 * Decodes the MCUs of a row. This file and mcu_skip.c are compiled for the base instruction set
 * and for BMI2, with HR__MCU_KERNELS and HR__MCU_SKIP_RUN as the names of what they define. Each
 * look-up waits for a shift by what the last one found, which takes Intel's processors two cycles
 * without BMI2, and one with it.
 */
#include "codec/baseline_state.h"
#include "codec/block_symbols.h"

_Static_assert(HR__SEGMENT_SLACK >= HR__MCU_BYTES_MOST + 2 * sizeof(uint64_t),
               "loads behind an MCU");

/* Decodes the MCUs [from, to) of a row. With `region` 0 none of their blocks is needed. Returns 0
 * if the data is not valid. */
HR__INLINE int decode_mcus(struct hr__baseline *b, uint32_t from, uint32_t to, int region)
{
    struct hr__bits bits = b->reader.bits;
    int level[HR__BASELINE_COMPONENTS], blocks = b->blocks;
    unsigned outside = 0;
    memcpy(level, b->level, sizeof level);
    for (uint32_t x = from; x < to; x++) {
        if (__builtin_expect(bits.next >= b->reader.check, 0)) {
            b->reader.bits = bits;
            if (!hr__scan_advance(&b->reader))
                return 0;
            bits.next = b->reader.bits.next;
        }
        if (x == b->point_x) {
            b->reader.bits = bits;
            memcpy(b->level, level, sizeof level);
            hr__baseline_note_point(b, x, hr__scan_position(&b->reader));
        }
        for (int i = 0; i < blocks; i++) {
            const struct hr__mcu_block *block = &b->block[i];
            int difference;
            hr__bits_refill(&bits);
            if (!hr__take_dc(block->codes.dc, &bits, &difference))
                return 0;
            level[block->component] += difference;
            outside |= (unsigned)(level[block->component] + HR__DC_BIAS) >> HR__DC_BITS;
            if (!region || x - block->first >= block->end - block->first) {
                if (!hr__skip_ac(block->codes.skip, &block->codes.ac->code, &bits))
                    return 0;
                continue;
            }
            int16_t *coefficient = b->coefficient[b->waiting];
            coefficient[0] = (int16_t)level[block->component];
            unsigned k = HR__STEP_END;
            if (block->flat ? !hr__skip_ac(block->codes.skip, &block->codes.ac->code, &bits)
                            : !(k = hr__take_ac(block->codes.ac, &bits, coefficient)))
                return 0;
            b->wait[b->waiting++] =
                (struct hr__waiting_block){block->out + (size_t)(x - block->first) * block->step,
                                           block->component, k == HR__STEP_END};
            if (b->waiting == HR__BASELINE_BATCH && !hr__baseline_transform(b))
                return 0;
        }
        if (outside)
            return 0;
    }
    b->reader.bits = bits;
    memcpy(b->level, level, sizeof level);
    return 1;
}

static int decode_needed(struct hr__baseline *b, uint32_t from, uint32_t to)
{
    return decode_mcus(b, from, to, 1);
}

static int decode_others(struct hr__baseline *b, uint32_t from, uint32_t to)
{
    return decode_mcus(b, from, to, 0);
}

const struct hr__mcu_kernels HR__MCU_KERNELS = {decode_needed, decode_others, HR__MCU_SKIP_RUN};
