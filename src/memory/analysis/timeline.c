/* Live bytes over time; see timeline.h. Beginnings and ends are sorted already, so this is
 * a merge. */
#include "memory/analysis/timeline.h"

#include "base/error.h"
#include "base/memory.h"
#include "memory/analysis/period.h"

#include <errno.h>

static const struct hr__block *next_beginning(struct hr__walk *w)
{
    for (; w->next_begin < w->found->count; w->next_begin++) {
        const struct hr__block *block = &w->found->blocks[w->next_begin];
        if (block->device == w->device && block->alloc_ns)
            return block;
    }
    return NULL;
}

static const struct hr__block *next_ending(struct hr__walk *w)
{
    for (; w->next_end < w->found->freed_count; w->next_end++) {
        const struct hr__block *block = &w->found->blocks[w->found->freed[w->next_end]];
        if (block->device == w->device)
            return block;
    }
    return NULL;
}

/* Starts with the blocks live when recording begins. */
struct hr__walk hr__walk_begin(const struct hr__blocks_found *found, int device)
{
    struct hr__walk w = {.found = found, .device = device};
    w.now.time_ns = found->begin_ns - (found->begin_ns > 0);
    for (uint32_t i = 0; i < found->count; i++) {
        const struct hr__block *block = &found->blocks[i];
        if (block->device != device || block->alloc_ns)
            continue;
        w.now.bytes[block->category] += block->bytes;
        w.total += block->bytes;
    }
    return w;
}

static void take(struct hr__walk *w, const struct hr__block *block)
{
    if (w->total < block->bytes || w->now.bytes[block->category] < block->bytes) {
        w->negative++;
        return;
    }
    w->now.bytes[block->category] -= block->bytes;
    w->total -= block->bytes;
}

/* Returns 1 if the next end comes before the next beginning. A block never ends before it began,
 * although both may have the same time. */
static int is_end_first(struct hr__walk *w, const struct hr__block *begun,
                        const struct hr__block *ended)
{
    return ended &&
           (!begun || (ended->free_ns <= begun->alloc_ns &&
                       (!ended->alloc_ns || w->found->freed[w->next_end] < w->next_begin)));
}

uint64_t hr__walk_next_ns(struct hr__walk *w)
{
    const struct hr__block *a = next_beginning(w), *b = next_ending(w);
    if (is_end_first(w, a, b))
        return b->free_ns;
    return a ? a->alloc_ns : UINT64_MAX;
}

int hr__walk_step(struct hr__walk *w)
{
    const struct hr__block *a = next_beginning(w), *b = next_ending(w);
    if (is_end_first(w, a, b)) {
        w->now.time_ns = b->free_ns;
        take(w, b);
        w->next_end++;
    } else if (a) {
        w->now.time_ns = a->alloc_ns;
        w->now.bytes[a->category] += a->bytes;
        w->total += a->bytes;
        w->next_begin++;
    }
    return a || b;
}

/* Returns the index among `most` equal parts of the time. */
static size_t part_of(const struct hr__walk *w, uint64_t time_ns, size_t most)
{
    double span = (double)(w->found->end_ns - w->found->begin_ns + 1);
    return (size_t)((double)(time_ns - w->found->begin_ns) / span * (double)most);
}

static uint64_t sum(const struct hr__timeline_point *point)
{
    uint64_t total = 0;
    for (int i = 0; i < HR__CATEGORIES; i++)
        total += point->bytes[i];
    return total;
}

static void keep(struct hr__timeline *out, const struct hr__walk *w, size_t most)
{
    struct hr__timeline_point *last = &out->points[out->count - 1];
    size_t part = part_of(w, w->now.time_ns, most);
    /* The first point is from before the record. */
    if (out->count > 1 && part == part_of(w, last->time_ns, most)) {
        if (w->total >= sum(last))
            *last = w->now;
    } else if (out->count < most + 1) {
        out->points[out->count++] = w->now;
    }
    if (w->total > out->peak_bytes) {
        out->peak_bytes = w->total;
        out->peak = w->now;
        out->peak_begun = w->next_begin;
        out->peak_freed = w->next_end;
    }
}

int hr__timeline_make(struct hr__timeline *out, const struct hr__blocks_found *found, int device,
                      size_t most, struct hr_error *error)
{
    *out = (struct hr__timeline){.points = NULL};
    if (most < 2 || most > 1000000)
        return hr__fail(error, -EINVAL, "a timeline of %zu points: it must be from 2 to 1000000",
                        most);
    out->points = hr__alloc(HR__TAG_MEMORY, most + 2, sizeof *out->points);
    if (!out->points)
        return hr__fail(error, -ENOMEM, "out of memory for a timeline");
    struct hr__walk w = hr__walk_begin(found, device);
    out->points[out->count++] = out->peak = w.now;
    out->peak_bytes = w.total;
    while (hr__walk_step(&w))
        keep(out, &w, most);
    w.now.time_ns = found->end_ns;
    out->points[out->count++] = w.now;
    out->end_bytes = w.total;
    out->negative = w.negative;
    return 0;
}

void hr__timeline_clear(struct hr__timeline *timeline)
{
    hr__free(timeline->points);
    *timeline = (struct hr__timeline){.points = NULL};
}

int hr__blocks_living(const struct hr__blocks_found *found, int device, uint32_t begun,
                      uint32_t freed, uint32_t **blocks, size_t *count)
{
    uint8_t *ended = hr__alloc(HR__TAG_MEMORY, (size_t)found->count / 8 + 1, 1);
    size_t most = 0;
    *blocks = NULL;
    *count = 0;
    if (!ended)
        return -ENOMEM;
    for (uint32_t k = 0; k < freed; k++)
        ended[found->freed[k] / 8] |= (uint8_t)(1 << found->freed[k] % 8);
    for (int filling = 0; filling < 2; filling++) {
        for (uint32_t i = 0; i < found->count; i++) {
            const struct hr__block *block = &found->blocks[i];
            if (block->device != device || (block->alloc_ns && i >= begun) ||
                ended[i / 8] >> i % 8 & 1)
                continue;
            if (filling)
                (*blocks)[(*count)++] = i;
            else
                most++;
        }
        if (!filling && !(*blocks = hr__alloc(HR__TAG_MEMORY, most + 1, sizeof **blocks)))
            break;
    }
    hr__free(ended);
    return *blocks ? 0 : -ENOMEM;
}

/* ---- from the end backwards ---- */

struct unwinding {
    const struct hr__blocks_found *found;
    uint8_t *is_back; /* a bit per block: its end was undone, or it has none */
    uint32_t begun, ended;
};

static int is_back(const struct unwinding *u, uint32_t block)
{
    return u->is_back[block / 8] >> block % 8 & 1;
}

/* Finds the device's last beginning and last end not undone yet: index plus 1; 0: none. */
static void look_back(struct unwinding *u, int device)
{
    const struct hr__block *blocks = u->found->blocks;
    while (u->begun && (blocks[u->begun - 1].device != device || !blocks[u->begun - 1].alloc_ns))
        u->begun--;
    while (u->ended && blocks[u->found->freed[u->ended - 1]].device != device)
        u->ended--;
}

/* Returns whether to undo an end before a beginning. At the same time ends came first, but never
 * before their block began. */
static int is_end_next(const struct unwinding *u)
{
    if (!u->begun || !u->ended)
        return u->ended > 0;
    const struct hr__block *begun = &u->found->blocks[u->begun - 1];
    const struct hr__block *ended = &u->found->blocks[u->found->freed[u->ended - 1]];
    return ended->free_ns > begun->alloc_ns || !is_back(u, u->begun - 1);
}

int hr__timeline_backward(struct hr__backward *out, const struct hr__blocks_found *found,
                          int device)
{
    struct unwinding u = {.found = found, .begun = found->count, .ended = found->freed_count};
    uint64_t total = 0;
    *out = (struct hr__backward){.peak_bytes = 0};
    u.is_back = hr__alloc(HR__TAG_MEMORY, (size_t)found->count / 8 + 1, 1);
    if (!u.is_back)
        return -ENOMEM;
    for (uint32_t i = 0; i < found->count; i++) {
        const struct hr__block *block = &found->blocks[i];
        if (block->device != device || block->free_ns != HR__STILL_LIVE)
            continue;
        total += block->bytes;
        u.is_back[i / 8] |= (uint8_t)(1 << i % 8);
    }
    out->peak_bytes = total;
    for (look_back(&u, device); u.begun || u.ended; look_back(&u, device)) {
        if (is_end_next(&u)) {
            uint32_t block = found->freed[--u.ended];
            u.is_back[block / 8] |= (uint8_t)(1 << block % 8);
            total += found->blocks[block].bytes;
        } else {
            uint64_t bytes = found->blocks[--u.begun].bytes;
            out->negative += total < bytes;
            total -= total < bytes ? total : bytes;
        }
        if (total > out->peak_bytes)
            out->peak_bytes = total;
    }
    hr__free(u.is_back);
    return 0;
}

/* ---- by iteration ---- */

static void raise(struct hr__iteration *one, uint64_t bytes)
{
    if (bytes > one->peak_bytes)
        one->peak_bytes = bytes;
}

void hr__timeline_iterations(struct hr__period *period, const struct hr__blocks_found *found,
                             int device)
{
    struct hr__walk w = hr__walk_begin(found, device);
    struct hr__iteration *all = period->iterations;
    uint64_t before = w.total;
    size_t at = 0;
    while (hr__walk_step(&w)) {
        for (; at < period->count && all[at].end_ns <= w.now.time_ns; at++)
            raise(&all[at], before);
        if (at < period->count && all[at].begin_ns <= w.now.time_ns) {
            raise(&all[at], before);
            raise(&all[at], w.total);
        }
        before = w.total;
    }
    for (; at < period->count; at++)
        raise(&all[at], before);
}
