/*
 * Two records side by side: see include/headrace/memory.h, and docs/memory-format.md for the
 * JSON.
 *
 * Ids of names differ from record to record: blocks of the peaks are grouped by ids within a
 * record, and the groups joined by their texts: category, description, operator and the
 * functions of the stack. Lines of the stack are shown but not compared, so that an edit above
 * them does not make all groups new ones. All blocks of a peak are compared, not the largest
 * groups alone: what is small on one side only would look as if it had come or gone.
 */
#include "base/error.h"
#include "base/memory.h"
#include "memory/report/json.h"
#include "memory/report/opened.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS_SHOWN 100
#define LINE_BYTES   1024 /* of a stack's line; what is longer is cut */

struct hr_memory_comparison {
    double growth;
    char *json;
};

/* Blocks at the peak of one record that are alike. */
struct group {
    const char *category, *what, *op; /* "": not known */
    char *place;                      /* files and functions of the stack, a line each */
    uint32_t op_id, name_id, stack;   /* of one of them */
    uint64_t blocks, bytes;
};

struct groups {
    struct group *all;
    size_t count;
};

/* The same group in both records; either may be NULL. */
struct pair {
    const struct group *side[2];
};

/* ---- the blocks of a peak ---- */

static int by_ids(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    int order = strcmp(x->category, y->category);
    if (order)
        return order;
    if (x->op_id != y->op_id)
        return x->op_id < y->op_id ? -1 : 1;
    if (x->name_id != y->name_id)
        return x->name_id < y->name_id ? -1 : 1;
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

static int by_texts(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    int order = strcmp(x->category, y->category);
    order = order ? order : strcmp(x->what, y->what);
    order = order ? order : strcmp(x->op, y->op);
    return order ? order : strcmp(x->place, y->place);
}

/* Sorts, and makes one of those that are the same; of the places the first one's stays. */
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

/* Files and functions of a stack; NULL: out of memory. */
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

/* Of a device of a record; d NULL: none. */
static int find_groups(struct groups *g, const struct hr_memory *m,
                       const struct hr__device_memory *d)
{
    const struct hr__blocks_found *found = &m->found->found;
    size_t count = d ? d->living_count : 0;
    *g = (struct groups){.all = NULL};
    g->all = hr__alloc(HR__TAG_MEMORY, count + 1, sizeof *g->all);
    if (!g->all)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct hr__block *b = &found->blocks[d->living[i]];
        g->all[g->count++] = (struct group){.category = hr__memory_category_name(b->category),
                                            .op_id = b->first_op,
                                            .name_id = b->name,
                                            .stack = b->stack,
                                            .blocks = 1,
                                            .bytes = b->bytes};
    }
    merge(g, by_ids);
    for (size_t i = 0; i < g->count; i++) {
        struct group *one = &g->all[i];
        one->what = one->name_id ? hr__record_name(m->record, one->name_id) : "";
        one->op = one->op_id ? hr__record_name(m->record, one->op_id) : "";
        one->place = place_of(m->record, one->stack);
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

/* Pairs of what is not the same on both sides; how many. */
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

/* ---- JSON ---- */

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)(value < INT64_MAX ? value : INT64_MAX));
}

static json_t *integers(uint64_t before, uint64_t after)
{
    return json_pack("[o, o]", integer(before), integer(after));
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *reals(double before, double after)
{
    return json_pack("[o, o]", real(before), real(after));
}

static json_t *text(const char *bytes)
{
    char safe[LINE_BYTES];
    json_t *string = *bytes ? json_string(bytes) : json_null();
    if (string)
        return string;
    hr__printable(safe, sizeof safe, bytes);
    return json_string(safe);
}

static json_t *stack_lines(const struct hr_memory *m, uint32_t stack)
{
    const struct hr_memory_frame *frames;
    size_t count = hr__record_stack(m->record, stack, &frames);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        char line[LINE_BYTES];
        if (!frames[i].file) /* an operator */
            snprintf(line, sizeof line, "%s", hr__record_name(m->record, frames[i].function));
        else
            snprintf(line, sizeof line, "%s:%u %s", hr__record_name(m->record, frames[i].file),
                     frames[i].line, hr__record_name(m->record, frames[i].function));
        json_array_append_new(list, text(line));
    }
    return list;
}

static json_t *group_json(const struct pair *p, const struct hr_memory *const m[2])
{
    const struct group *a = p->side[0], *b = p->side[1], *any = b ? b : a;
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "category", any->category, "what",
                     text(any->what), "operator", text(any->op), "stack",
                     stack_lines(m[b ? 1 : 0], any->stack), "blocks",
                     integers(a ? a->blocks : 0, b ? b->blocks : 0), "bytes",
                     integers(bytes_of(a), bytes_of(b)));
}

/* *out: a list of what changed, *more: how many changes it leaves out. */
static int groups_json(json_t **out, size_t *more, const struct hr_memory *const m[2],
                       const struct hr__device_memory *const d[2])
{
    struct groups side[2] = {{.all = NULL}, {.all = NULL}};
    struct pair *pairs = NULL;
    int code = find_groups(&side[0], m[0], d[0]);
    *out = NULL;
    if (!code)
        code = find_groups(&side[1], m[1], d[1]);
    if (!code) {
        pairs = hr__alloc(HR__TAG_MEMORY, side[0].count + side[1].count + 1, sizeof *pairs);
        code = pairs ? 0 : -ENOMEM;
    }
    if (!code) {
        size_t count = join(pairs, side), shown = count < GROUPS_SHOWN ? count : GROUPS_SHOWN;
        *more = count - shown;
        *out = json_array();
        for (size_t i = 0; i < shown; i++)
            json_array_append_new(*out, group_json(&pairs[i], m));
    }
    hr__free(pairs);
    clear(&side[0]);
    clear(&side[1]);
    return code;
}

static const struct hr__device_memory *device_of(const struct hr_memory *m, int device)
{
    for (size_t i = 0; i < m->found->device_count; i++)
        if (m->found->devices[i].device == device)
            return &m->found->devices[i];
    return NULL;
}

/* Of a peak; what was not there before grows beyond measure. */
static double growth_of(uint64_t before, uint64_t after)
{
    if (!before)
        return after ? INFINITY : 0;
    return ((double)after - (double)before) / (double)before;
}

static int add_device(json_t *list, double *growth, const struct hr_memory *const m[2], int device)
{
    static const uint64_t none[HR__CATEGORIES];
    const struct hr__device_memory *d[2] = {device_of(m[0], device), device_of(m[1], device)};
    uint64_t peak[2] = {d[0] ? d[0]->timeline.peak_bytes : 0, d[1] ? d[1]->timeline.peak_bytes : 0};
    const uint64_t *bytes[2] = {d[0] ? d[0]->timeline.peak.bytes : none,
                                d[1] ? d[1]->timeline.peak.bytes : none};
    char name[24];
    json_t *groups, *categories;
    size_t more = 0;
    int code = groups_json(&groups, &more, m, d);
    if (code)
        return code;
    categories = json_object();
    for (unsigned c = 0; c < HR__CATEGORIES; c++)
        if (bytes[0][c] || bytes[1][c])
            json_object_set_new(categories, hr__memory_category_name(c),
                                integers(bytes[0][c], bytes[1][c]));
    hr__memory_device_name(device, name, sizeof name);
    double grown = growth_of(peak[0], peak[1]);
    *growth = fmax(*growth, grown);
    json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o, s:o, s:I}", "device", name,
                                          "peak_bytes", integers(peak[0], peak[1]), "peak",
                                          categories, "growth", real(grown), "groups", groups,
                                          "more_groups", (json_int_t)more));
    return 0;
}

static uint64_t interval_count(const struct hr__intervals *i)
{
    uint64_t count = 0;
    for (int b = 0; b < HR__BEHAVIOURS; b++)
        count += i->of[b].count;
    return count;
}

static json_t *quantiles(const struct hr__intervals *a, const struct hr__intervals *b)
{
    json_t *object = json_object();
    for (size_t i = 0; i < HR__MEMORY_QUANTILES; i++) {
        double share = hr__memory_quantiles[i].share;
        json_object_set_new(
            object, hr__memory_quantiles[i].name,
            reals(hr__intervals_quantile(a, -1, share), hr__intervals_quantile(b, -1, share)));
    }
    return object;
}

static json_t *whole(const struct hr_memory *const m[2], json_t *devices, const double ns[2],
                     const double blocks[2])
{
    const struct hr__memory *a = m[0]->found, *b = m[1]->found;
    return json_pack("{s:i, s:o, s:o, s:o, s:{s:o, s:o, s:o}, s:{s:o, s:o}, s:{s:o, s:o}}",
                     "headrace_memory_comparison", 1, "before", text(m[0]->name), "after",
                     text(m[1]->name), "devices", devices, "pattern", "behaviours",
                     integers(a->period.behaviours, b->period.behaviours), "iteration_ns",
                     reals(ns[0], ns[1]), "blocks", reals(blocks[0], blocks[1]), "intervals",
                     "count",
                     integers(interval_count(&a->intervals), interval_count(&b->intervals)),
                     "quantiles_ns", quantiles(&a->intervals, &b->intervals), "batch",
                     "bytes_per_sample", reals(a->bytes_per_sample, b->bytes_per_sample),
                     "fixed_bytes", reals(a->fixed_bytes, b->fixed_bytes));
}

static int compare(struct hr_memory_comparison *c, const struct hr_memory *const m[2])
{
    double ns[2] = {NAN, NAN}, blocks[2] = {NAN, NAN};
    int code = 0;
    c->growth = -INFINITY;
    for (int side = 0; side < 2; side++)
        if (m[side]->found->period.count) {
            ns[side] = (double)m[side]->found->iteration_ns;
            blocks[side] = (double)m[side]->found->iteration_blocks;
        }
    json_t *devices = json_array();
    for (int device = 0; device < 256 && !code; device++)
        if (device_of(m[0], device) || device_of(m[1], device))
            code = add_device(devices, &c->growth, m, device);
    if (code) {
        json_decref(devices);
        return code;
    }
    if (isinf(c->growth) && c->growth < 0)
        c->growth = 0;
    json_t *all = whole(m, devices, ns, blocks);
    char *dumped = all ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    size_t length = dumped ? strlen(dumped) : 0;
    c->json = dumped ? hr__alloc(HR__TAG_MEMORY, length + 2, 1) : NULL;
    if (c->json) {
        memcpy(c->json, dumped, length);
        c->json[length] = '\n';
    }
    free(dumped);
    return c->json ? 0 : -ENOMEM;
}

int hr_memory_compare(struct hr_memory_comparison **out, const struct hr_memory *before,
                      const struct hr_memory *after, struct hr_error *error)
{
    const struct hr_memory *const m[2] = {before, after};
    struct hr_memory_comparison *c = hr__alloc(HR__TAG_MEMORY, 1, sizeof *c);
    *out = NULL;
    int code = c ? compare(c, m) : -ENOMEM;
    if (code) {
        hr_memory_comparison_destroy(&c);
        return hr__fail(error, code, "out of memory while comparing %s with %s", before->name,
                        after->name);
    }
    *out = c;
    return 0;
}

void hr_memory_comparison_destroy(struct hr_memory_comparison **comparison)
{
    struct hr_memory_comparison *c = *comparison;
    if (!c)
        return;
    *comparison = NULL;
    hr__free(c->json);
    hr__free(c);
}

double hr_memory_comparison_growth(const struct hr_memory_comparison *comparison)
{
    return comparison->growth;
}

const char *hr_memory_comparison_json(const struct hr_memory_comparison *comparison)
{
    return comparison->json;
}
