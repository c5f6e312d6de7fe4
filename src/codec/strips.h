/*
 * The samples of a region while our own decoder decodes it (baseline.h), a strip of rows of MCUs at
 * a time: when a strip is decoded, its pixels are converted, and only the samples that the next
 * rows need stay. So a whole image needs little memory besides its pixels, and samples are
 * converted while they are in the nearest caches.
 */
#ifndef HR_CODEC_STRIPS_H
#define HR_CODEC_STRIPS_H

#include "codec/format.h"
#include "codec/ycc.h"

/* A component of the image, the part of it that the region needs, and the strip's samples. In
 * blocks, but for the side and the stride. */
struct hr__strip_part {
    uint32_t h, v; /* in an MCU; set by the caller */
    uint32_t side; /* samples that a block is transformed to, on each axis; likewise */
    uint32_t x, y; /* the part's place */
    uint32_t columns, rows;
    uint32_t top;     /* the first row of the strip */
    uint8_t *plane;   /* its samples */
    ptrdiff_t stride; /* bytes */
};

struct hr__strips {
    struct hr__ycc *ycc;
    struct hr__codec_scratch samples;
    size_t bytes; /* of a strip's samples, about */
    /* of the image, halved as the job says, set by the caller: */
    struct hr__ycc_shape shape;
    uint32_t mcu_v;    /* height of an MCU in blocks of the finest component */
    uint32_t mcu_rows; /* the same in pixels */
    struct hr__strip_part part[3];
    /* of the region: */
    const struct hr__decode_job *job; /* NULL: no samples are needed */
    struct hr_region region;          /* the job's, or less: hr__strips_shorten */
    uint32_t height;                  /* of a strip, in rows of MCUs */
    uint32_t end;                     /* row of MCUs after the current strip */
    int next;                         /* first row of pixels that is not yet converted */
};

int hr__strips_create(struct hr__strips *strips, struct hr_error *error);
void hr__strips_destroy(struct hr__strips *strips);
size_t hr__strips_memory(const struct hr__strips *strips);

/* Begins a region, or, with `job` NULL, none. The job must stay until the end. Errors: -ENOMEM. */
int hr__strips_begin(struct hr__strips *strips, const struct hr__decode_job *job,
                     struct hr_error *error);

/* Ends the region at row `end` of pixels already. It is not above rows that were decoded. */
void hr__strips_shorten(struct hr__strips *strips, int end);

/* Converts the pixels that the first `rows` rows of MCUs suffice for. Errors: -ENOMEM. */
int hr__strips_convert(struct hr__strips *strips, uint32_t rows, struct hr_error *error);

/* Converts the pixels of the rest of the region, when all that it needs is decoded. */
int hr__strips_end(struct hr__strips *strips, struct hr_error *error);

#endif
