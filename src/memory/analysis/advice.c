/*
 * Finds what would lower the peak; see analysis.h. Similar blocks (bytes, operator, description,
 * category) make one piece of advice. Advice is arithmetic on recorded data: whether the program
 * could do without a block is unknown.
 *
 * All blocks live at a peak are sorted by what they share and summed up, so that the largest groups
 * are reported, whatever their order.
 */
#include "memory/analysis/analysis.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>

#define LEAST_SHARE 0.005 /* smallest share of the peak to report */
#define CHEAP       0.02  /* of an iteration: most that recomputing similar blocks may cost */

const char *hr__advice_name(enum hr__advice_kind kind)
{
    static const char *const names[HR__ADVICE_KINDS] = {
        [HR__ADVICE_SWAP] = "swap",
        [HR__ADVICE_UNTOUCHED] = "untouched",
        [HR__ADVICE_LATE_FREE] = "late free",
        [HR__ADVICE_RECOMPUTE] = "recompute",
    };
    return names[kind];
}

/* An opportunity concerning one block. */
struct chance {
    enum hr__advice_kind kind;
    uint32_t block;
    uint64_t begin_ns, ns;
    double cost_ns;
};

struct advisor {
    struct hr__memory *m;
    const struct hr__device_memory *d;
    const double *op_ns;
    uint32_t ops;
    struct chance *chances;
    size_t count;
    int code;
};

static void note(struct advisor *a, struct chance chance)
{
    if (!a->code)
        a->code = hr__reserve(HR__TAG_MEMORY, &a->chances, a->count + 1);
    if (!a->code)
        a->chances[a->count++] = chance;
}

/* Examines a block that is not accessed during the peak. The call running at the peak needs the
 * blocks recorded before and after it. */
static void look_at_span(struct advisor *a, const struct hr__peak_span *span)
{
    const struct hr__intervals *i = &a->m->intervals;
    const struct hr__block *b = &a->m->found.blocks[span->block];
    double bytes = (double)b->bytes;
    if (a->d->running_call &&
        (span->begin_call == a->d->running_call || span->end_call == a->d->running_call))
        return;
    if (b->bytes && bytes <= hr__swap_bytes(i, (double)span->ns))
        note(a, (struct chance){HR__ADVICE_SWAP, span->block, span->begin_ns, span->ns,
                                1e9 * (bytes / i->d2h_bytes_per_s + bytes / i->h2d_bytes_per_s)});
    /* If one operator made it and it is needed much later, recomputing may be cheaper. */
    double made_ns = b->first_op < a->ops ? a->op_ns[b->first_op] : 0;
    if (b->category == HR_MEMORY_ACTIVATION && made_ns > 0 && made_ns < CHEAP * (double)span->ns)
        note(a,
             (struct chance){HR__ADVICE_RECOMPUTE, span->block, span->begin_ns, span->ns, made_ns});
}

/* Without known iterations, a cost that is small compared with the block's wait is accepted. */
static int is_worth_it(const struct advisor *a, const struct hr__advice *one)
{
    double iteration_ns = (double)a->m->iteration_ns;
    return one->kind != HR__ADVICE_RECOMPUTE || !(iteration_ns > 0) ||
           one->cost_ns <= CHEAP * iteration_ns;
}

/* Examines a block that lives at the peak without need. The call running then may still need a
 * block it has already recorded. */
static void look_at_life(struct advisor *a, uint32_t block)
{
    const struct hr__block *b = &a->m->found.blocks[block];
    uint64_t peak_ns = a->d->timeline.peak.time_ns;
    uint64_t end = b->free_ns == HR__STILL_LIVE ? a->m->found.end_ns : b->free_ns;
    if (!b->bytes || b->category == HR_MEMORY_WORKSPACE)
        return;
    if (!b->reads && !b->writes)
        note(a, (struct chance){HR__ADVICE_UNTOUCHED, block, b->alloc_ns, end - b->alloc_ns, 0});
    else if (b->last_ns < peak_ns && b->free_ns != HR__STILL_LIVE &&
             !(b->last_call && b->last_call == a->d->running_call))
        note(a, (struct chance){HR__ADVICE_LATE_FREE, block, b->last_ns, end - b->last_ns, 0});
}

/* ---- similar ones ---- */

#define ORDER(a, b)                                                                                \
    if ((a) != (b))                                                                                \
    return (a) < (b) ? -1 : 1

static int by_kind(const struct chance *x, const struct chance *y, const struct hr__block *blocks)
{
    const struct hr__block *a = &blocks[x->block], *b = &blocks[y->block];
    ORDER(x->kind, y->kind);
    ORDER(a->bytes, b->bytes);
    ORDER(a->first_op, b->first_op);
    ORDER(a->name, b->name);
    ORDER(a->category, b->category);
    return 0;
}

static int by_chance(const void *a, const void *b, void *arg)
{
    const struct chance *x = a, *y = b;
    int order = by_kind(x, y, arg);
    if (order)
        return order;
    ORDER(x->block, y->block);
    return 0;
}

static int by_bytes(const void *a, const void *b)
{
    const struct hr__advice *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    ORDER(x->block, y->block);
    ORDER(x->kind, y->kind);
    return 0;
}

/* Keeps the best; each device's advice is sorted at the end. */
static void offer(struct hr__memory *m, const struct hr__advice *one)
{
    if (m->advice_count < HR__ADVICE_MOST) {
        m->advice[m->advice_count++] = *one;
        return;
    }
    size_t least = 0;
    for (size_t k = 1; k < m->advice_count; k++)
        if (by_bytes(&m->advice[k], &m->advice[least]) > 0)
            least = k;
    if (by_bytes(one, &m->advice[least]) < 0)
        m->advice[least] = *one;
}

static void sum_up(struct advisor *a)
{
    struct hr__block *blocks = a->m->found.blocks;
    uint64_t least = (uint64_t)(LEAST_SHARE * (double)a->d->timeline.peak_bytes) + 1;
    if (a->count)
        qsort_r(a->chances, a->count, sizeof *a->chances, by_chance, blocks);
    for (size_t k = 0, next; k < a->count; k = next) {
        const struct chance *first = &a->chances[k];
        struct hr__advice one = {.kind = first->kind};
        for (next = k; next < a->count && !by_kind(first, &a->chances[next], blocks); next++) {
            const struct chance *c = &a->chances[next];
            if (!one.blocks || c->ns > one.ns) {
                one.block = c->block;
                one.begin_ns = c->begin_ns;
                one.ns = c->ns;
            }
            one.blocks++;
            one.bytes += blocks[c->block].bytes;
            one.cost_ns += c->cost_ns;
        }
        if (one.bytes >= least && is_worth_it(a, &one))
            offer(a->m, &one);
    }
}

int hr__memory_advise(struct hr__memory *memory, const struct hr__peak_span *spans, size_t count,
                      const double *op_ns, uint32_t ops)
{
    int code = 0;
    for (size_t i = 0; i < memory->device_count && !code; i++) {
        const struct hr__device_memory *d = &memory->devices[i];
        struct advisor a = {.m = memory, .d = d, .op_ns = op_ns, .ops = ops};
        /* Without accesses the needs are unknown. */
        if (!memory->found.of_device[d->device].accesses)
            continue;
        for (size_t k = 0; k < count && !d->host_timed; k++)
            if (memory->found.blocks[spans[k].block].device == d->device)
                look_at_span(&a, &spans[k]);
        for (size_t k = 0; k < d->living_count; k++)
            look_at_life(&a, d->living[k]);
        sum_up(&a);
        hr__free(a.chances);
        code = a.code;
    }
    if (memory->advice_count)
        qsort(memory->advice, memory->advice_count, sizeof *memory->advice, by_bytes);
    return code;
}
