/*
 * Compares two records; see compare.h.
 *
 * Ids of names differ between records. So the blocks of the peaks are grouped by ids within a
 * record, and the groups are joined by their texts: category, description, operator and the
 * functions of the stack. Line numbers are shown but not compared, so that an edit above them does
 * not make every group look new. All blocks of a peak are compared, not only the largest groups:
 * otherwise a group small on one side would seem to have appeared or vanished.
 */
#include "memory/analysis/compare.h"

#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Similar blocks at the peak of one record. */
struct group {
    const char *what, *op; /* "": unknown */
    char *place;           /* files and functions of the stack, one per line */
    uint8_t category;
    uint32_t op_id, name_id, stack; /* of one of the blocks */
    uint64_t blocks, bytes;
};

struct groups {
    struct group *all;
    size_t count;
};

/* The same group in both records; one side may be NULL. */
struct pair {
    const struct group *side[2];
};

/* ---- the blocks of a peak ---- */

static int category_order(const struct group *x, const struct group *y)
{
    return strcmp(hr__category_name(x->category), hr__category_name(y->category));
}

static int by_ids(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    if (x->category != y->category)
        return category_order(x, y);
    if (x->op_id != y->op_id)
        return x->op_id < y->op_id ? -1 : 1;
    if (x->name_id != y->name_id)
        return x->name_id < y->name_id ? -1 : 1;
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

static int by_texts(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    int order = category_order(x, y);
    order = order ? order : strcmp(x->what, y->what);
    order = order ? order : strcmp(x->op, y->op);
    return order ? order : strcmp(x->place, y->place);
}

/* Sorts groups and merges equal ones; keeps the first one's place. */
static void merge(struct groups *g, int (*order)(const void *, const void *))
{
    size_t kept = 0;
    if (g->count)
        qsort(g->all, g->count, sizeof *g->all, order);
    for (size_t i = 0; i < g->count; i++) {
        if (kept && !order(&g->all[kept - 1], &g->all[i])) {
            g->all[kept - 1].blocks += g->all[i].blocks;
            g->all[kept - 1].bytes += g->all[i].bytes;
            hr__free(g->all[i].place);
        } else {
            g->all[kept++] = g->all[i];
        }
    }
    g->count = kept;
}

/* Lists the files and functions of a stack; NULL: out of memory. */
static char *place_of(const struct hr__record *record, uint32_t stack)
{
    const struct hr_memory_frame *frames;
    size_t count = hr__record_stack(record, stack, &frames), length = 1, at = 0;
    for (size_t i = 0; i < count; i++)
        length += strlen(hr__record_name(record, frames[i].file)) +
                  strlen(hr__record_name(record, frames[i].function)) + 2;
    char *place = hr__alloc(HR__TAG_MEMORY, length, 1);
    for (size_t i = 0; place && i < count; i++)
        at += (size_t)snprintf(place + at, length - at, "%s %s\n",
                               hr__record_name(record, frames[i].file),
                               hr__record_name(record, frames[i].function));
    return place;
}

static void clear(struct groups *g)
{
    for (size_t i = 0; i < g->count; i++)
        hr__free(g->all[i].place);
    hr__free(g->all);
    *g = (struct groups){.all = NULL};
}

/* Groups the blocks of a device of a record; d NULL: no such device. */
static int find_groups(struct groups *g, const struct hr__record *record,
                       const struct hr__memory *m, const struct hr__device_memory *d)
{
    size_t count = d ? d->living_count : 0;
    *g = (struct groups){.all = NULL};
    g->all = hr__alloc(HR__TAG_MEMORY, count + 1, sizeof *g->all);
    if (!g->all)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct hr__block *b = &m->found.blocks[d->living[i]];
        g->all[g->count++] = (struct group){.category = b->category,
                                            .op_id = b->first_op,
                                            .name_id = b->name,
                                            .stack = b->stack,
                                            .blocks = 1,
                                            .bytes = b->bytes};
    }
    merge(g, by_ids);
    for (size_t i = 0; i < g->count; i++) {
        struct group *one = &g->all[i];
        one->what = one->name_id ? hr__record_name(record, one->name_id) : "";
        one->op = one->op_id ? hr__record_name(record, one->op_id) : "";
        one->place = place_of(record, one->stack);
        if (!one->place)
            return -ENOMEM;
    }
    merge(g, by_texts);
    return 0;
}

/* ---- joining ---- */

static uint64_t bytes_of(const struct group *g)
{
    return g ? g->bytes : 0;
}

static uint64_t change_of(const struct pair *p)
{
    uint64_t before = bytes_of(p->side[0]), after = bytes_of(p->side[1]);
    return before > after ? before - after : after - before;
}

static int by_change(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    uint64_t mine = change_of(x), other = change_of(y);
    if (mine != other)
        return mine > other ? -1 : 1;
    return by_texts(x->side[0] ? x->side[0] : x->side[1], y->side[0] ? y->side[0] : y->side[1]);
}

/* Pairs the groups that differ; returns their number. */
static size_t join(struct pair *pairs, const struct groups side[2])
{
    size_t count = 0, i = 0, k = 0;
    while (i < side[0].count || k < side[1].count) {
        const struct group *a = i < side[0].count ? &side[0].all[i] : NULL;
        const struct group *b = k < side[1].count ? &side[1].all[k] : NULL;
        int order = !a ? 1 : !b ? -1 : by_texts(a, b);
        struct pair one = {{order <= 0 ? a : NULL, order >= 0 ? b : NULL}};
        i += order <= 0;
        k += order >= 0;
        if (order || a->blocks != b->blocks || a->bytes != b->bytes)
            pairs[count++] = one;
    }
    if (count)
        qsort(pairs, count, sizeof *pairs, by_change);
    return count;
}

static struct hr__compared_group compared(const struct pair *p)
{
    const struct group *a = p->side[0], *b = p->side[1], *any = b ? b : a;
    return (struct hr__compared_group){
        .category = any->category,
        .side = b != NULL,
        .what = any->name_id,
        .op = any->op_id,
        .stack = any->stack,
        .blocks = {a ? a->blocks : 0, b ? b->blocks : 0},
        .bytes = {bytes_of(a), bytes_of(b)},
    };
}

static int keep(struct hr__compared_device *out, const struct groups side[2])
{
    struct pair *pairs =
        hr__alloc(HR__TAG_MEMORY, side[0].count + side[1].count + 1, sizeof *pairs);
    if (!pairs)
        return -ENOMEM;
    size_t count = join(pairs, side);
    size_t kept = count < HR__COMPARED_GROUPS ? count : HR__COMPARED_GROUPS;
    out->groups = hr__alloc(HR__TAG_MEMORY, kept + 1, sizeof *out->groups);
    for (size_t i = 0; out->groups && i < kept; i++)
        out->groups[out->group_count++] = compared(&pairs[i]);
    out->more_groups = count - kept;
    hr__free(pairs);
    return out->groups ? 0 : -ENOMEM;
}

/* ---- devices ---- */

static const struct hr__device_memory *device_of(const struct hr__memory *m, int device)
{
    for (size_t i = 0; i < m->device_count; i++)
        if (m->devices[i].device == device)
            return &m->devices[i];
    return NULL;
}

/* Relative growth of a peak; infinite if it was zero. */
static double growth_of(uint64_t before, uint64_t after)
{
    if (!before)
        return after ? INFINITY : 0;
    return ((double)after - (double)before) / (double)before;
}

static int compare_device(struct hr__compared_device *out, const struct hr__comparison *c,
                          const struct hr__device_memory *const d[2])
{
    struct groups side[2] = {{.all = NULL}, {.all = NULL}};
    int code = 0;
    for (int i = 0; i < 2 && !code; i++) {
        if (d[i]) {
            out->device = d[i]->device;
            out->peak_bytes[i] = d[i]->timeline.peak_bytes;
            memcpy(out->peak[i], d[i]->timeline.peak.bytes, sizeof out->peak[i]);
        }
        code = find_groups(&side[i], c->record[i], c->found[i], d[i]);
    }
    out->growth = growth_of(out->peak_bytes[0], out->peak_bytes[1]);
    if (!code)
        code = keep(out, side);
    clear(&side[0]);
    clear(&side[1]);
    return code;
}

int hr__memory_compare(struct hr__comparison *c)
{
    int code = 0;
    c->growth = -INFINITY;
    for (int device = 0; device < 256 && !code; device++) {
        const struct hr__device_memory *const d[2] = {device_of(c->found[0], device),
                                                      device_of(c->found[1], device)};
        if (!d[0] && !d[1])
            continue;
        struct hr__compared_device *out = &c->devices[c->device_count++];
        code = compare_device(out, c, d);
        c->growth = fmax(c->growth, out->growth);
    }
    if (!c->device_count)
        c->growth = 0;
    return code;
}

void hr__comparison_clear(struct hr__comparison *c)
{
    for (size_t i = 0; i < c->device_count; i++)
        hr__free(c->devices[i].groups);
    c->device_count = 0;
}

double hr__compared_iteration_ns(const struct hr__comparison *c, int side)
{
    const struct hr__memory *m = c->found[side];
    return m->period.count ? (double)m->iteration_ns : NAN;
}

double hr__compared_iteration_blocks(const struct hr__comparison *c, int side)
{
    const struct hr__memory *m = c->found[side];
    return m->period.count ? (double)m->iteration_blocks : NAN;
}
