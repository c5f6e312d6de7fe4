/* Live bytes over time; see timeline.h. Beginnings and ends are in order already: a merge. */
#include "memory/timeline.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>

struct walk {
    const struct hr__blocks_found *found;
    int device;
    uint32_t next_begin, next_end;
    uint64_t total;
    struct hr__timeline_point now;
};

static const struct hr__block *next_beginning(struct walk *w)
{
    for (; w->next_begin < w->found->count; w->next_begin++) {
        const struct hr__block *block = &w->found->blocks[w->next_begin];
        if (block->device == w->device && block->alloc_ns)
            return block;
    }
    return NULL;
}

static const struct hr__block *next_ending(struct walk *w)
{
    for (; w->next_end < w->found->freed_count; w->next_end++) {
        const struct hr__block *block = &w->found->blocks[w->found->freed[w->next_end]];
        if (block->device == w->device)
            return block;
    }
    return NULL;
}

/* What lives when recording begins. */
static void begin(struct walk *w)
{
    w->now.time_ns = w->found->begin_ns - (w->found->begin_ns > 0);
    for (uint32_t i = 0; i < w->found->count; i++) {
        const struct hr__block *block = &w->found->blocks[i];
        if (block->device != w->device || block->alloc_ns)
            continue;
        w->now.bytes[block->category] += block->bytes;
        w->total += block->bytes;
    }
}

/* The next change: 1, or 0 at the end. Ends come first, so that what takes another's place
 * does not count twice. */
static int step(struct walk *w)
{
    const struct hr__block *a = next_beginning(w), *b = next_ending(w);
    if (!a && !b)
        return 0;
    /* But no block ends before it began: one may do both within the clock's step. */
    if (b && (!a || (b->free_ns <= a->alloc_ns &&
                     (!b->alloc_ns || w->found->freed[w->next_end] < w->next_begin)))) {
        w->now.time_ns = b->free_ns;
        w->now.bytes[b->category] -= b->bytes;
        w->total -= b->bytes;
        w->next_end++;
    } else {
        w->now.time_ns = a->alloc_ns;
        w->now.bytes[a->category] += a->bytes;
        w->total += a->bytes;
        w->next_begin++;
    }
    return 1;
}

static uint64_t sum(const struct hr__timeline_point *point)
{
    uint64_t total = 0;
    for (int i = 0; i < HR__CATEGORIES; i++)
        total += point->bytes[i];
    return total;
}

/* Which of `most` equal parts of the time. */
static size_t part_of(const struct walk *w, uint64_t time_ns, size_t most)
{
    double span = (double)(w->found->end_ns - w->found->begin_ns + 1);
    return (size_t)((double)(time_ns - w->found->begin_ns) / span * (double)most);
}

static void keep(struct hr__timeline *out, const struct walk *w, size_t most)
{
    struct hr__timeline_point *last = &out->points[out->count - 1];
    size_t part = part_of(w, w->now.time_ns, most);
    /* The first point is of before. */
    if (out->count > 1 && part == part_of(w, last->time_ns, most)) {
        if (w->total >= sum(last))
            *last = w->now;
    } else if (out->count < most + 1) {
        out->points[out->count++] = w->now;
    }
    if (w->total > out->peak_bytes) {
        out->peak_bytes = w->total;
        out->peak = w->now;
    }
}

int hr__timeline_make(struct hr__timeline *out, const struct hr__blocks_found *found, int device,
                      size_t most, struct hr_error *error)
{
    struct walk w = {.found = found, .device = device};
    *out = (struct hr__timeline){.points = NULL};
    if (most < 2 || most > 1000000)
        return hr__fail(error, -EINVAL, "a timeline of %zu points: it must be from 2 to 1000000",
                        most);
    out->points = hr__alloc(HR__TAG_MEMORY, most + 2, sizeof *out->points);
    if (!out->points)
        return hr__fail(error, -ENOMEM, "out of memory for a timeline");
    begin(&w);
    out->points[out->count++] = out->peak = w.now;
    out->peak_bytes = w.total;
    while (step(&w))
        keep(out, &w, most);
    w.now.time_ns = found->end_ns;
    out->points[out->count++] = w.now;
    out->end_bytes = w.total;
    return 0;
}

void hr__timeline_clear(struct hr__timeline *timeline)
{
    hr__free(timeline->points);
    *timeline = (struct hr__timeline){.points = NULL};
}
