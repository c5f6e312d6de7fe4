/*
 * What would make the peak lower; see analysis.h. Blocks that are alike (bytes, operator,
 * description) are one advice. What is advised is arithmetic on what was seen: it is not known
 * whether the program could do without.
 */
#include "memory/analysis.h"

#include "base/memory.h"

#include <stdlib.h>

#define LEAST_SHARE 0.005 /* of the peak, of a block that is worth a word */
#define CHEAP       0.02  /* of an iteration: making activations again may cost so much */

struct advisor {
    struct hr__memory *m;
    const struct hr__device_memory *d;
    const double *op_ns;
    uint32_t ops;
    uint64_t peak_ns, least_bytes;
};

static int alike(const struct hr__block *a, const struct hr__block *b)
{
    return a->bytes == b->bytes && a->first_op == b->first_op && a->name == b->name &&
           a->category == b->category;
}

static struct hr__advice *find(struct hr__memory *m, enum hr__advice_kind kind,
                               const struct hr__block *block)
{
    for (size_t i = 0; i < m->advice_count; i++)
        if (m->advice[i].kind == kind && alike(&m->found.blocks[m->advice[i].block], block))
            return &m->advice[i];
    if (m->advice_count == HR__ADVICE_MOST)
        return NULL;
    struct hr__advice *one = &m->advice[m->advice_count++];
    *one = (struct hr__advice){.kind = kind};
    return one;
}

static void advise(struct advisor *a, enum hr__advice_kind kind, uint32_t block, uint64_t begin_ns,
                   uint64_t ns, double cost_ns)
{
    const struct hr__block *b = &a->m->found.blocks[block];
    struct hr__advice *one = find(a->m, kind, b);
    if (!one)
        return;
    if (!one->blocks || ns > one->ns) {
        one->block = block;
        one->begin_ns = begin_ns;
        one->ns = ns;
    }
    one->blocks++;
    one->bytes += b->bytes;
    one->cost_ns += cost_ns;
}

/* Blocks that are not touched around the peak, by the longest intervals. */
static void advise_swaps(struct advisor *a)
{
    const struct hr__intervals *i = &a->m->intervals;
    for (size_t k = 0; k < i->outlier_count && !a->m->no_swap_advice; k++) {
        const struct hr__interval_of *o = &i->outliers[k];
        const struct hr__block *b = &a->m->found.blocks[o->block];
        if (b->device != a->d->device || o->begin_ns > a->peak_ns ||
            o->begin_ns + o->ns <= a->peak_ns || o->bytes < a->least_bytes ||
            (double)o->bytes > hr__swap_bytes(i, (double)o->ns))
            continue;
        double copies_s =
            (double)o->bytes / i->d2h_bytes_per_s + (double)o->bytes / i->h2d_bytes_per_s;
        advise(a, HR__ADVICE_SWAP, o->block, o->begin_ns, o->ns, 1e9 * copies_s);
        /* Made by one operator, needed again much later: that may be cheaper to repeat. */
        double made_ns = b->first_op < a->ops ? a->op_ns[b->first_op] : 0;
        if (b->category == HR_MEMORY_ACTIVATION && made_ns > 0 && made_ns < CHEAP * (double)o->ns)
            advise(a, HR__ADVICE_RECOMPUTE, o->block, o->begin_ns, o->ns, made_ns);
    }
}

static void advise_lives(struct advisor *a)
{
    const struct hr__blocks_found *found = &a->m->found;
    for (uint32_t k = 0; k < found->count; k++) {
        const struct hr__block *b = &found->blocks[k];
        uint64_t end = b->free_ns == HR__STILL_LIVE ? found->end_ns : b->free_ns;
        if (b->device != a->d->device || b->bytes < a->least_bytes ||
            !hr__block_lives(b, a->peak_ns) || b->category == HR_MEMORY_WORKSPACE)
            continue;
        if (!b->reads && !b->writes)
            advise(a, HR__ADVICE_UNTOUCHED, k, b->alloc_ns, end - b->alloc_ns, 0);
        else if (b->last_ns < a->peak_ns && b->free_ns != HR__STILL_LIVE)
            advise(a, HR__ADVICE_LATE_FREE, k, b->last_ns, end - b->last_ns, 0);
    }
}

static int by_bytes(const void *a, const void *b)
{
    const struct hr__advice *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->block < y->block ? -1 : x->block > y->block;
}

void hr__memory_advise(struct hr__memory *memory, const double *op_ns, uint32_t ops)
{
    for (size_t i = 0; i < memory->device_count; i++) {
        const struct hr__device_memory *d = &memory->devices[i];
        struct advisor a = {
            .m = memory,
            .d = d,
            .op_ns = op_ns,
            .ops = ops,
            .peak_ns = d->timeline.peak.time_ns,
            .least_bytes = (uint64_t)(LEAST_SHARE * (double)d->timeline.peak_bytes) + 1,
        };
        advise_swaps(&a);
        advise_lives(&a);
    }
    if (memory->advice_count)
        qsort(memory->advice, memory->advice_count, sizeof *memory->advice, by_bytes);
}
