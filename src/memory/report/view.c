/* Analyses as reports use them; see view.h. */
#include "memory/report/view.h"

#include "base/error.h"
#include "base/memory.h"
#include "memory/report/lines.h"
#include "memory/report/opened.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_COLUMNS 22 /* width of names in tables and charts */

const char *hr__view_name(const struct hr__memory_view *v, uint32_t id)
{
    return id ? hr__record_name(v->record, id) : "";
}

const char *hr__view_fact(const struct hr__memory_view *v, const char *name)
{
    const char *value = hr__record_fact(v->record, name);
    return value ? value : "";
}

double hr__view_peak(const struct hr__memory_view *v)
{
    return v->device ? (double)v->device->timeline.peak_bytes : NAN;
}

double hr__view_peak_of(const struct hr__memory_view *v, unsigned category)
{
    return v->device ? (double)v->device->timeline.peak.bytes[category] : NAN;
}

uint64_t hr__view_part_bytes(const struct hr__part_memory *part)
{
    uint64_t bytes = 0;
    for (unsigned c = 0; c < HR__CATEGORIES; c++)
        bytes += part->bytes[c];
    return bytes;
}

const char *hr__view_device(int device, char out[HR__VIEW_DEVICE_BYTES])
{
    if (device == HR_MEMORY_LIBRARIES)
        return strcpy(out, "host memory of libraries");
    return hr__device_name(device, out);
}

/* ---- blocks ---- */

static struct hr__view_block block_of(const struct hr__memory_view *v, uint8_t category,
                                      uint32_t what, uint32_t op, uint32_t stack)
{
    const struct hr_memory_frame *frames;
    size_t count = hr__lines_of_user(v->record, stack, &frames);
    return (struct hr__view_block){.record = v->record,
                                   .category = category,
                                   .what = what,
                                   .op = op,
                                   .line = count ? frames : NULL};
}

struct hr__view_block hr__view_block(const struct hr__memory_view *v, uint32_t block)
{
    const struct hr__block *b = &v->found->found.blocks[block];
    return block_of(v, b->category, b->name, b->first_op, b->stack);
}

struct hr__view_block hr__view_group(const struct hr__memory_view *v,
                                     const struct hr__peak_group *g)
{
    return block_of(v, g->category, g->name, g->op, g->stack);
}

bool hr__view_same_block(const struct hr__view_block *a, const struct hr__view_block *b)
{
    bool same_line = a->line && b->line
                         ? a->line->file == b->line->file && a->line->line == b->line->line &&
                               a->line->function == b->line->function
                         : a->line == b->line;
    return same_line && a->category == b->category && a->what == b->what && a->op == b->op;
}

/* Returns whether to name a block's first operator: parameters, optimizer state and inputs existed
 * before that operator ran. */
static bool is_made(unsigned category)
{
    return category != HR_MEMORY_PARAMETER && category != HR_MEMORY_OPTIMIZER_STATE &&
           category != HR_MEMORY_INPUT;
}

void hr__view_describe(const struct hr__view_block *b, struct hr__draft *draft)
{
    const char *what = b->what ? hr__record_name(b->record, b->what) : "", *op = "";
    if (b->op && (!*what || is_made(b->category)))
        op = hr__record_name(b->record, b->op);
    if (!*what && !*op) {
        hr__draft_put(draft, hr__category_name(b->category));
        return;
    }
    hr__draft_put(draft, what);
    if (*op)
        hr__draft_put(draft, *what ? " of " : "of ");
    hr__draft_put(draft, op);
}

/* ---- views ---- */

/* A peak is reached when a block begins: that block has the phase. */
static void find_peak(struct hr__memory_view *v)
{
    const struct hr__blocks_found *found = &v->found->found;
    uint64_t peak_ns = v->device ? v->device->timeline.peak.time_ns : 0;
    for (uint32_t i = 0; i < found->count && peak_ns; i++) {
        const struct hr__block *b = &found->blocks[i];
        if (b->device == v->device->device && b->alloc_ns == peak_ns) {
            v->phase = b->phase;
            v->iteration = b->iteration;
        }
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int find_median(struct hr__memory_view *v)
{
    const struct hr__period *p = &v->found->period;
    double *ns = hr__alloc(HR__TAG_REPORT, p->count + 1, sizeof *ns);
    size_t count = 0;
    v->median_ns = NAN;
    for (size_t i = 0; ns && i < p->count; i++)
        if (p->iterations[i].is_same)
            ns[count++] = (double)(p->iterations[i].end_ns - p->iterations[i].begin_ns);
    if (count) {
        qsort(ns, count, sizeof *ns, by_value);
        v->median_ns = (ns[(count - 1) / 2] + ns[count / 2]) / 2;
    }
    bool failed = !ns;
    hr__free(ns);
    return failed ? -ENOMEM : 0;
}

static int open_view(struct hr__memory_view *v, const struct hr_memory *memory)
{
    const struct hr__memory *m = memory->found;
    v->name = memory->name;
    v->record = memory->record;
    v->found = m;
    v->device = m->device_count ? &m->devices[m->main_device] : NULL;
    v->batch_size = v->device ? m->batch_size : NAN;
    find_peak(v);
    return find_median(v);
}

/* Fits what grows with the batch: proportionally for one record, by a line through several records
 * of different batch sizes. */
static int fit(struct hr__memory_view *views, size_t count)
{
    struct hr__fit_point *points = hr__alloc(HR__TAG_REPORT, count, sizeof *points);
    const struct hr__device_memory *first = views->device;
    size_t sized = 0;
    if (!points)
        return -ENOMEM;
    views->capacity_bytes = first ? first->capacity_bytes : NAN;
    for (size_t i = 0; i < count && first; i++) {
        const struct hr__device_memory *d = views[i].device;
        if (!d || d->device != first->device)
            continue;
        points[sized] = d->point;
        sized += points[sized].batch > 0;
    }
    hr__memory_fit(&views->fit, points, sized, views->capacity_bytes);
    views->fitted = sized;
    hr__free(points);
    return 0;
}

/* Keeps the end of a name, which distinguishes ranks and runs. */
static void shorten(char *name)
{
    size_t length = strlen(name), columns = hr__text_columns(name, length), at = 0;
    if (columns <= LABEL_COLUMNS)
        return;
    for (size_t left = columns - (LABEL_COLUMNS - 3); left; at++)
        left -= ((unsigned char)name[at + 1] & 0xC0) != 0x80; /* end of a code point */
    memmove(name + 3, name + at, length - at + 1);
    memcpy(name, "...", 3);
}

/* Labels views by batch size if that distinguishes the records, else by file name. */
static void label(struct hr__memory_view *views, size_t count)
{
    bool by_batch = true;
    for (size_t i = 0; i < count; i++) {
        by_batch &= views[i].batch_size >= 1;
        for (size_t k = 0; k < i; k++)
            by_batch &= views[i].batch_size != views[k].batch_size;
    }
    for (size_t i = 0; i < count; i++) {
        char *out = views[i].label;
        if (by_batch) {
            snprintf(out, HR__VIEW_LABEL_BYTES, "batch %.0f", views[i].batch_size);
        } else {
            hr__printable(out, HR__VIEW_LABEL_BYTES, views[i].name);
            shorten(out);
        }
    }
}

int hr__memory_views_open(struct hr__memory_view **out, const struct hr_memory *const *memories,
                          size_t count, struct hr_error *error)
{
    struct hr__memory_view *views = hr__alloc(HR__TAG_REPORT, count, sizeof *views);
    int code = views ? 0 : -ENOMEM;
    *out = NULL;
    for (size_t i = 0; i < count && !code; i++)
        code = open_view(&views[i], memories[i]);
    if (!code)
        code = fit(views, count);
    if (code) {
        hr__memory_views_close(&views);
        return hr__fail(error, code, "out of memory for a report");
    }
    label(views, count);
    *out = views;
    return 0;
}

void hr__memory_views_close(struct hr__memory_view **views)
{
    hr__free(*views);
    *views = NULL;
}
