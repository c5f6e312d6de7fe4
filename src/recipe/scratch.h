/*
 * One thread's memory for running recipes: the plan, the fused pass's tables, and buffers that grow
 * to the largest image seen.
 */
#ifndef HR_RECIPE_SCRATCH_H
#define HR_RECIPE_SCRATCH_H

#include "recipe/plan.h"

struct hr__buffer {
    void *bytes; /* 64-byte aligned */
    size_t size;
};

struct hr__scratch {
    struct hr__prepare_plan plan;
    struct hr__fused *fused;
    struct hr__buffer oriented;  /* three planes of bytes */
    struct hr__buffer planes[2]; /* three planes of floats each, used alternately */
    struct hr__buffer bytes[2];  /* three planes of bytes each, used alternately */
    struct hr__buffer extra;     /* of the filter that runs */
    struct hr__buffer kept[2];   /* of AugMix: the image, and the sum of its chains */
    const struct hr__sample_rows *input_rows;
    struct hr__buffer rows;        /* the sample's boxes and points as they stand (rows.h) */
    struct hr__buffer mask_places; /* where the mask's columns and rows come from (mask.h) */
    struct hr__buffer kept_rows;   /* indices of the rows that were not dropped */
};

/* Makes the buffer at least `size` bytes long; its contents are lost. Errors: -ENOMEM. */
int hr__buffer_reserve(struct hr__buffer *buffer, size_t size, struct hr_error *error);

#endif
