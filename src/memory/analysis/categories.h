/*
 * Infers the category of blocks that the record does not describe, from when they are allocated and
 * used:
 *
 *   activation       allocated in the forward pass, used in the backward pass
 *   gradient         allocated in the backward pass, used by the optimizer
 *   optimizer state  allocated and kept by the optimizer
 *   input            comes from outside, used in the forward pass
 *   workspace        named by no operator
 *   temporary        all else, including what activation checkpointing recomputes within the
 *                    backward pass, because it does not stay from one pass to the other
 *
 * A recording may end, or memory may run out, before a block is used as others of its kind are.
 * Such a block gets the category of those; if there are none, blocks that the forward pass holds
 * count as activations.
 */
#ifndef HR_MEMORY_ANALYSIS_CATEGORIES_H
#define HR_MEMORY_ANALYSIS_CATEGORIES_H

#include "memory/analysis/blocks.h"

/* Fills `category` where it is 0. Without accesses in the record, nothing can be inferred. Errors:
 * -ENOMEM. */
int hr__blocks_classify(struct hr__blocks_found *found);

#endif
