/*
 * The state of a decoder of baseline JPEGs, which its files share: baseline.c goes through rows and
 * scans, baseline_header.c reads headers, mcu_decode.c decodes MCUs, and baseline_output.c takes
 * what they give.
 */
#ifndef HR_CODEC_BASELINE_STATE_H
#define HR_CODEC_BASELINE_STATE_H

#include "codec/baseline.h"
#include "codec/coefficients.h"
#include "codec/inverse_dct.h"
#include "codec/mcu_skip.h"
#include "codec/scan_reader.h"
#include "codec/strips.h"

/* Blocks that are decoded before the first of them is transformed. */
#define HR__BASELINE_BATCH 16

/* DC coefficients are from -2048 to 2047. */
#define HR__DC_BIAS 2048
#define HR__DC_BITS 12

/* Components are numbered from 0; tables are those of the file. */
enum { HR__BASELINE_COMPONENTS = 3, HR__BASELINE_TABLES = 4 };

/* A block of each MCU, and where its samples go in the row of MCUs that is decoded. */
struct hr__mcu_block {
    struct hr__block_codes codes;
    int component, x, y; /* its place in the MCU, in blocks */
    int flat;            /* only its DC coefficient is needed */
    uint32_t first, end; /* MCUs whose block is needed */
    uint8_t *out;        /* samples of the first one */
    unsigned step;       /* bytes to the next one's */
};

/* A block that waits to be transformed. */
struct hr__waiting_block {
    uint8_t *out;
    int component, flat; /* flat: all of it is the DC coefficient */
};

/* The loops over symbols, which gain from an instruction set. */
struct hr__mcu_kernels {
    /* Decode the MCUs [from, to) of a row: blocks that are needed are put into `wait`; or none is
     * needed. Return 0 if the data is not valid. */
    int (*needed)(struct hr__baseline *baseline, uint32_t from, uint32_t to);
    int (*others)(struct hr__baseline *baseline, uint32_t from, uint32_t to);
    hr__mcu_skip_run *skip;
};

extern const struct hr__mcu_kernels hr__mcu_kernels_plain, hr__mcu_kernels_bmi2;

struct hr__baseline {
    struct hr__dc_table dc[HR__BASELINE_TABLES];
    struct hr__ac_table ac[HR__BASELINE_TABLES];
    struct hr__strips strips;
    const struct hr__inverse_dct_group *transform;
    const struct hr__mcu_kernels *kernels;
    /* of the image: */
    struct hr__ycc_shape shape;
    struct hr__block_limits limits[HR__BASELINE_COMPONENTS];
    struct hr__mcu_block block[HR__MCU_BLOCKS_MOST];
    int components, blocks;
    uint32_t mcu_h, mcu_v; /* sides of an MCU in blocks of the finest component */
    int failure;           /* in converting a strip */
    struct hr_error *error;
    uint32_t mcus_x, mcus_y;
    struct hr__scan_grid grid;       /* of points */
    uint32_t rows_at_once;           /* rows of MCUs that libjpeg decodes together */
    uint32_t restart, until_restart; /* MCUs between restart markers, 0: none; MCUs to the next */
    int next_restart;                /* its number, 0..7 */
    int level[HR__BASELINE_COMPONENTS]; /* the last DC coefficients */
    const uint8_t *scan;                /* its first byte */
    uint8_t *point;                     /* where the next point goes; NULL: none are noted */
    uint32_t point_x;                   /* the MCU that it is at in the row; UINT32_MAX: none */
    struct hr__scan_reader reader;
    struct hr__mcu_skip skip;
    int waiting;
    struct hr__waiting_block wait[HR__BASELINE_BATCH];
    /* natural order, zero where nothing waits; one more block for what is stored past the last */
    int16_t coefficient[HR__BASELINE_BATCH + 1][64] __attribute__((aligned(64)));
};

/* baseline_header.c: take the header of a file, and the size of the image to decode, 2^halvings
 * times smaller. Return 0 if this decoder does not decode such a file as libjpeg would. */
int hr__baseline_take_header(struct hr__baseline *baseline,
                             const struct jpeg_decompress_struct *cinfo);
int hr__baseline_plan_size(struct hr__baseline *baseline, int halvings);

/* Transforms the blocks that wait. Returns 0 if versions of the transform might differ for one. */
int hr__baseline_transform(struct hr__baseline *baseline);

/* Notes a position of the reader, at which MCU `x` of the row begins or the last one of the image
 * ends. No more points follow one that cannot hold a value. */
void hr__baseline_note_point(struct hr__baseline *baseline, uint32_t x, uint32_t position);

#endif
