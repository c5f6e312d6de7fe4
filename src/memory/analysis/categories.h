/*
 * Infers the category of blocks that the record does not describe, from when they are made and
 * used. What the
 * forward pass makes and the backward pass uses is an activation; what the backward pass makes
 * and the optimizer uses a gradient; what the optimizer makes and keeps its state; what comes
 * from outside and is used in the forward pass an input; a block that no operator names is
 * workspace; all else is temporary, what activation checkpointing computes again within the
 * backward pass included: it does not wait from one pass to the other.
 *
 * A recording may end, or memory may run out, before a block is used as others of its kind are:
 * then it is what those are. Where there are none, what the forward pass holds is taken for
 * activations.
 */
#ifndef HR_MEMORY_ANALYSIS_CATEGORIES_H
#define HR_MEMORY_ANALYSIS_CATEGORIES_H

#include "memory/analysis/blocks.h"

/* Fills `category` where it is 0. Where the record has no accesses nothing is known. Errors:
 * -ENOMEM. */
int hr__blocks_classify(struct hr__blocks_found *found);

#endif
