/* Infers the categories of blocks; see categories.h. */
#include "memory/analysis/categories.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>

static int uses(const struct hr__block *block, enum hr_memory_phase phase)
{
    return block->phases >> phase & 1;
}

/* Returns whether a block is a bucket in which gradients are collected for exchange: backward
 * passes write it, no forward pass uses it, and it lives on into other iterations. */
static int is_bucket(const struct hr__block *block, uint32_t iterations)
{
    int lives_on =
        block->is_passed_on || (block->free_ns == HR__STILL_LIVE && block->iteration != iterations);
    return lives_on && block->writes && uses(block, HR_MEMORY_BACKWARD) &&
           !uses(block, HR_MEMORY_FORWARD) && block->phase != HR_MEMORY_OPTIMIZER;
}

static uint8_t category_of(const struct hr__block *block, const struct hr__blocks_found *found)
{
    int is_touched = block->reads || block->writes,
        was_there = block->is_ghost || block->was_present;
    if (!is_touched && !block->name)
        return HR_MEMORY_WORKSPACE;
    if (is_bucket(block, found->iterations))
        return HR_MEMORY_GRADIENT;
    if (was_there)
        return uses(block, HR_MEMORY_OPTIMIZER) ? HR_MEMORY_OPTIMIZER_STATE : HR_MEMORY_UNKNOWN;
    switch (block->phase) {
    case HR_MEMORY_FORWARD:
        return uses(block, HR_MEMORY_BACKWARD) ? HR_MEMORY_ACTIVATION : HR_MEMORY_TEMPORARY;
    case HR_MEMORY_BACKWARD:
        return uses(block, HR_MEMORY_OPTIMIZER) ? HR_MEMORY_GRADIENT : HR_MEMORY_TEMPORARY;
    case HR_MEMORY_OPTIMIZER:
        return is_touched && block->free_ns >= found->end_ns ? HR_MEMORY_OPTIMIZER_STATE
                                                             : HR_MEMORY_TEMPORARY;
    default:
        return uses(block, HR_MEMORY_FORWARD) ? HR_MEMORY_INPUT : HR_MEMORY_TEMPORARY;
    }
}

/* ---- blocks with a truncated lifetime ---- */

/* Such a block, and the category of others of its kind; 0: none, or they differ. */
struct cut {
    uint32_t block;
    uint8_t category, is_unsure;
};

struct cuts {
    const struct hr__blocks_found *found;
    struct cut *all; /* one per kind, sorted by kind */
    size_t count;
};

/* Returns whether a block lives when an allocation first fails. */
static int is_failing(const struct hr__blocks_found *found, const struct hr__block *block)
{
    return found->failed && block->alloc_ns <= found->failed_ns &&
           block->free_ns > found->failed_ns;
}

static int is_cut(const struct hr__blocks_found *found, const struct hr__block *block)
{
    return block->category == HR_MEMORY_TEMPORARY && block->alloc_ns &&
           (block->phase == HR_MEMORY_FORWARD || block->phase == HR_MEMORY_BACKWARD) &&
           (block->free_ns == HR__STILL_LIVE || is_failing(found, block));
}

#define ORDER(a, b)                                                                                \
    if ((a) != (b))                                                                                \
    return (a) < (b) ? -1 : 1

static int by_kind(const struct hr__block *a, const struct hr__block *b)
{
    ORDER(a->bytes, b->bytes);
    ORDER(a->first_op, b->first_op);
    ORDER(a->name, b->name);
    ORDER(a->part, b->part);
    ORDER(a->phase, b->phase);
    ORDER(a->device, b->device);
    return 0;
}

static int by_blocks_kind(const void *a, const void *b, void *arg)
{
    const struct hr__blocks_found *found = arg;
    return by_kind(&found->blocks[((const struct cut *)a)->block],
                   &found->blocks[((const struct cut *)b)->block]);
}

static struct cut *find(const struct cuts *cuts, const struct hr__block *block)
{
    size_t low = 0, high = cuts->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = by_kind(&cuts->found->blocks[cuts->all[middle].block], block);
        if (!order)
            return &cuts->all[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Returns whether the forward pass holds a block when its allocation fails, or when the record
 * ends. */
static int is_waiting(const struct hr__blocks_found *found, const struct hr__block *block)
{
    if (block->phase != HR_MEMORY_FORWARD)
        return 0;
    return is_failing(found, block)
               ? found->failed_phase == HR_MEMORY_FORWARD
               : found->last_phase == HR_MEMORY_FORWARD && block->iteration == found->iterations;
}

static int complete_cuts(struct hr__blocks_found *found, size_t count)
{
    struct cuts cuts = {.found = found};
    cuts.all = hr__alloc(HR__TAG_MEMORY, count, sizeof *cuts.all);
    if (!cuts.all)
        return -ENOMEM;
    for (uint32_t i = 0; i < found->count; i++)
        if (is_cut(found, &found->blocks[i]))
            cuts.all[cuts.count++].block = i;
    qsort_r(cuts.all, cuts.count, sizeof *cuts.all, by_blocks_kind, found);
    size_t kinds = 1;
    for (size_t i = 1; i < cuts.count; i++)
        if (by_blocks_kind(&cuts.all[kinds - 1], &cuts.all[i], found))
            cuts.all[kinds++] = cuts.all[i];
    cuts.count = kinds;
    for (uint32_t i = 0; i < found->count; i++) {
        const struct hr__block *block = &found->blocks[i];
        struct cut *cut = block->alloc_ns && !is_cut(found, block) ? find(&cuts, block) : NULL;
        if (!cut)
            continue;
        cut->is_unsure |= cut->category && cut->category != block->category;
        cut->category = block->category;
    }
    for (uint32_t i = 0; i < found->count; i++) {
        struct hr__block *block = &found->blocks[i];
        if (!is_cut(found, block))
            continue;
        const struct cut *cut = find(&cuts, block);
        if (cut->category && !cut->is_unsure)
            block->category = cut->category;
        else if (!cut->category && is_waiting(found, block))
            block->category = HR_MEMORY_ACTIVATION;
    }
    hr__free(cuts.all);
    return 0;
}

int hr__blocks_classify(struct hr__blocks_found *found)
{
    size_t cuts = 0;
    if (!found->accesses)
        return 0;
    for (uint32_t i = 0; i < found->count; i++) {
        struct hr__block *block = &found->blocks[i];
        if (!block->category)
            block->category = category_of(block, found);
        cuts += (size_t)is_cut(found, block);
    }
    return cuts ? complete_cuts(found, cuts) : 0;
}
