/*
 * Skips MCUs that no pixel is needed of: finds only where each begins and the differences of its
 * DC coefficients.
 *
 * Where the next look-up begins is known only after the last one, so one stream of symbols leaves
 * most of a core idle. Three streams are read at once therefore: one from the current position, and
 * two that guess that an MCU begins at a third and at two thirds of the bytes that are left. A
 * wrong guess corrects itself after a few MCUs: Huffman codes fall into step, and then the blocks
 * of the MCU do. When the first stream comes to a bit at which an MCU of a guess begins, all that
 * follows is the same in both, and it goes on where the guess ended. Where it never does, the guess
 * is dropped. So the result is that of one stream, whatever was guessed.
 */
#ifndef HR_CODEC_MCU_SKIP_H
#define HR_CODEC_MCU_SKIP_H

#include "codec/huffman.h"
#include "codec/scan_reader.h"

/* Most MCUs that are skipped in one call. */
#define HR__SKIP_MOST 512

#define HR__SKIP_GUESSES 2

/* The codes of a block of an MCU. */
struct hr__block_codes {
    const struct hr__dc_table *dc;
    const struct hr__ac_table *ac;
    const struct hr__ac_skip *skip; /* of `ac` */
};

/* MCUs one behind the other. */
struct hr__mcu_trail {
    uint32_t count;
    uint32_t start[HR__SKIP_MOST + 2]; /* positions of MCUs (hr__scan_tell); the end of the last
                                        * one; UINT32_MAX */
    int16_t difference[HR__SKIP_MOST * HR__MCU_BLOCKS_MOST]; /* of each block's DC coefficient */
};

struct hr__mcu_skip {
    /* set by the caller: */
    struct hr__block_codes codes[HR__MCU_BLOCKS_MOST];
    int blocks;
    size_t least_bytes; /* one stream is read of fewer */
    /* set by mcu_skip.c: */
    struct hr__mcu_trail sure, guess[HR__SKIP_GUESSES];
    uint32_t from[HR__SKIP_GUESSES]; /* the first MCU of each that may still be met */
    uint32_t which;                  /* the guess that the first stream meets next */
};

/* The MCUs that one call has skipped. */
struct hr__skipped {
    uint32_t count;
    const uint32_t *start;     /* positions: hr__scan_tell */
    const int16_t *difference; /* of each block's DC coefficient */
};

/* Forgets the last guess. To be called when the reader was used for something else. */
static inline void hr__mcu_skip_begin(struct hr__mcu_skip *skip)
{
    for (int i = 0; i < HR__SKIP_GUESSES; i++) {
        skip->guess[i].start[0] = UINT32_MAX;
        skip->from[i] = 0;
    }
    skip->which = 0;
}

/* Skips the next MCUs of a segment: at least 1, at most `most`, of which there are no fewer and
 * which take about `bytes` bytes. Returns 0 if they are not valid. The result is valid until the
 * next call, or the reader's next hr__scan_advance. */
typedef int hr__mcu_skip_run(struct hr__mcu_skip *skip, struct hr__scan_reader *reader,
                             uint32_t most, uint64_t bytes, struct hr__skipped *out);
hr__mcu_skip_run hr__mcu_skip_run_plain, hr__mcu_skip_run_bmi2;

#endif
