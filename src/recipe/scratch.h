/*
 * One thread's memory for running recipes: the plan, the fused pass's tables
 * and buffers that grow to the largest image seen.
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
    struct hr__buffer oriented;  /* bytes, three planes */
    struct hr__buffer planes[2]; /* floats, three planes each, used in turn */
};

/* Makes the buffer at least `size` bytes long; what was in it is lost.
 * Errors: -ENOMEM. */
int hr__buffer_reserve(struct hr__buffer *buffer, size_t size, struct hr_error *error);

#endif
