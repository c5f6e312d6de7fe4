/* Explains a device's peak: groups the blocks live then, and sums them by part of the model; see
 * analysis.h. */
#include "memory/analysis/analysis.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>

static int same_group(const struct hr__peak_group *a, const struct hr__peak_group *b)
{
    return a->category == b->category && a->op == b->op && a->name == b->name &&
           a->stack == b->stack;
}

static int by_group(const void *a, const void *b)
{
    const struct hr__peak_group *x = a, *y = b;
    if (x->category != y->category)
        return x->category < y->category ? -1 : 1;
    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

static int by_bytes(const void *a, const void *b)
{
    const struct hr__peak_group *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return by_group(a, b);
}

static int find_groups(struct hr__device_memory *d, const struct hr__blocks_found *found)
{
    size_t groups = 0;
    struct hr__peak_group *all = hr__alloc(HR__TAG_MEMORY, d->living_count + 1, sizeof *all);
    if (!all)
        return -ENOMEM;
    for (size_t i = 0; i < d->living_count; i++) {
        const struct hr__block *b = &found->blocks[d->living[i]];
        all[i] = (struct hr__peak_group){b->category, b->first_op, b->name, b->stack, 1, b->bytes};
    }
    if (d->living_count)
        qsort(all, d->living_count, sizeof *all, by_group);
    for (size_t i = 0; i < d->living_count; i++) {
        if (groups && same_group(&all[groups - 1], &all[i])) {
            all[groups - 1].blocks++;
            all[groups - 1].bytes += all[i].bytes;
        } else {
            all[groups++] = all[i];
        }
    }
    if (groups)
        qsort(all, groups, sizeof *all, by_bytes);
    for (size_t i = 0; i < groups; i++) {
        if (i < HR__GROUPS_MOST)
            d->groups[d->group_count++] = all[i];
        else
            d->other_bytes += all[i].bytes;
    }
    hr__free(all);
    return 0;
}

/* ---- parts of the model ---- */

/* A block and its part. */
struct of_part {
    uint32_t part, block;
};

static int by_part(const void *a, const void *b)
{
    const struct of_part *x = a, *y = b;
    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    return x->block < y->block ? -1 : x->block > y->block;
}

static uint64_t bytes_of(const struct hr__part_memory *part)
{
    uint64_t bytes = 0;
    for (int c = 0; c < HR__CATEGORIES; c++)
        bytes += part->bytes[c];
    return bytes;
}

static int by_part_bytes(const void *a, const void *b)
{
    const struct hr__part_memory *x = a, *y = b;
    uint64_t left = bytes_of(x), right = bytes_of(y);
    if (left != right)
        return left > right ? -1 : 1;
    return x->part < y->part ? -1 : x->part > y->part;
}

/* Merges all but the largest parts with the blocks of no part, as the last entry. */
static int sum_up(struct hr__device_memory *d, struct hr__part_memory *all, size_t count)
{
    struct hr__part_memory rest = {.part = 0};
    if (count)
        qsort(all, count, sizeof *all, by_part_bytes);
    d->parts = hr__alloc(HR__TAG_MEMORY, HR__PARTS_MOST, sizeof *d->parts);
    if (!d->parts)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        if (all[i].part && d->part_count < HR__PARTS_MOST - 1) {
            d->parts[d->part_count++] = all[i];
            continue;
        }
        rest.blocks += all[i].blocks;
        for (int c = 0; c < HR__CATEGORIES; c++)
            rest.bytes[c] += all[i].bytes[c];
    }
    if (rest.blocks)
        d->parts[d->part_count++] = rest;
    return 0;
}

static int find_parts(struct hr__device_memory *d, const struct hr__blocks_found *found)
{
    struct of_part *blocks = hr__alloc(HR__TAG_MEMORY, d->living_count + 1, sizeof *blocks);
    struct hr__part_memory *all = NULL;
    size_t count = 0;
    int code = -ENOMEM;
    if (!blocks)
        return code;
    for (size_t i = 0; i < d->living_count; i++)
        blocks[i] = (struct of_part){found->blocks[d->living[i]].part, d->living[i]};
    if (d->living_count)
        qsort(blocks, d->living_count, sizeof *blocks, by_part);
    for (size_t i = 0; i < d->living_count; i++)
        count += !i || blocks[i].part != blocks[i - 1].part;
    all = hr__alloc(HR__TAG_MEMORY, count + 1, sizeof *all);
    if (!all)
        goto end;
    count = 0;
    for (size_t i = 0; i < d->living_count; i++) {
        const struct hr__block *b = &found->blocks[blocks[i].block];
        if (!i || blocks[i].part != blocks[i - 1].part)
            all[count++].part = blocks[i].part;
        all[count - 1].blocks++;
        all[count - 1].bytes[b->category] += b->bytes;
    }
    code = sum_up(d, all, count);
end:
    hr__free(blocks);
    hr__free(all);
    return code;
}

int hr__memory_explain_peak(struct hr__device_memory *d, const struct hr__blocks_found *found)
{
    int code = hr__blocks_living(found, d->device, d->timeline.peak_begun, d->timeline.peak_freed,
                                 &d->living, &d->living_count);
    if (!code)
        code = find_groups(d, found);
    return code ? code : find_parts(d, found);
}
