/* Analyses fragmentation; see segments.h. */
#include "memory/analysis/segments.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>

void hr__segment_log_add(void *arg, const struct hr__blocks_found *found,
                         const struct hr__block_event *event)
{
    struct hr__segment_log *log = arg;
    const struct hr_memory_event *e = event->event;
    if ((e->kind != HR_MEMORY_SEGMENT && e->kind != HR_MEMORY_SEGMENT_FREE) || log->code)
        return;
    log->code = hr__reserve(HR__TAG_MEMORY, &log->events, log->count + 1);
    if (log->code)
        return;
    log->events[log->count++] = (struct hr__segment_event){
        .time_ns = e->time_ns,
        .address = e->address,
        .bytes = e->bytes,
        .end = SIZE_MAX,
        .device = e->device,
        .is_taken = e->kind == HR_MEMORY_SEGMENT,
    };
}

void hr__segment_log_clear(struct hr__segment_log *log)
{
    hr__free(log->events);
    *log = (struct hr__segment_log){.events = NULL};
}

/* ---- pairing segments with the events that end them ---- */

static int by_address(const void *a, const void *b, void *arg)
{
    const struct hr__segment_event *events = arg;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    if (events[x].address != events[y].address)
        return events[x].address < events[y].address ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Sorts the device's events by address, then time. The caller frees *order. */
static int pair(struct hr__segment_log *log, int device, size_t **order, size_t *count)
{
    struct hr__segment_event *events = log->events, *live = NULL;
    *count = 0;
    *order = hr__alloc(HR__TAG_MEMORY, log->count + 1, sizeof **order);
    if (!*order)
        return -ENOMEM;
    for (size_t i = 0; i < log->count; i++)
        if (events[i].device == device)
            (*order)[(*count)++] = i;
    if (*count)
        qsort_r(*order, *count, sizeof **order, by_address, events);
    for (size_t k = 0; k < *count; k++) {
        struct hr__segment_event *one = &events[(*order)[k]];
        if (live && live->address == one->address) {
            /* Taken again: its return was not recorded. */
            live->end = (*order)[k];
            one->given_back = live->bytes;
        }
        live = one->is_taken ? one : NULL;
    }
    return 0;
}

/* ---- over time ---- */

/* The moment to examine closely. */
struct segment_moment {
    struct hr__segments_point point;
    size_t events;         /* of the log, up to then */
    uint32_t begun, freed; /* blocks begun and freed */
};

struct sweep {
    struct hr__segments *out;
    const struct hr__segment_log *log;
    struct hr__walk walk;
    size_t next; /* index in the log */
    struct hr__segments_point now;
    struct segment_moment most;
};

static void next_of_log(struct sweep *s)
{
    while (s->next < s->log->count && s->log->events[s->next].device != s->walk.device)
        s->next++;
}

/* Takes the next change of segments or blocks. A segment is taken before its blocks are allocated,
 * and returned after they are freed. */
static int step(struct sweep *s)
{
    next_of_log(s);
    uint64_t ns = hr__walk_next_ns(&s->walk);
    const struct hr__segment_event *e = s->next < s->log->count ? &s->log->events[s->next] : NULL;
    if (e && (e->time_ns < ns || (e->time_ns == ns && e->is_taken))) {
        s->next++;
        s->now.time_ns = e->time_ns;
        s->now.reserved_bytes -= e->given_back;
        s->now.reserved_bytes += e->is_taken ? e->bytes : 0;
        return 1;
    }
    if (!hr__walk_step(&s->walk))
        return 0;
    s->now.time_ns = s->walk.now.time_ns;
    s->now.allocated_bytes = s->walk.total;
    return 1;
}

static int is_more(const struct hr__segments_point *a, const struct hr__segments_point *b)
{
    if (a->reserved_bytes != b->reserved_bytes)
        return a->reserved_bytes > b->reserved_bytes;
    return a->allocated_bytes > b->allocated_bytes;
}

static size_t part_of(const struct sweep *s, uint64_t time_ns, size_t most)
{
    const struct hr__blocks_found *found = s->walk.found;
    double span = (double)(found->end_ns - found->begin_ns + 1);
    return (size_t)((double)(time_ns - found->begin_ns) / span * (double)most);
}

static void keep(struct sweep *s, size_t most)
{
    struct hr__segments *out = s->out;
    struct hr__segments_point *last = out->point_count ? &out->points[out->point_count - 1] : NULL;
    if (last && part_of(s, s->now.time_ns, most) == part_of(s, last->time_ns, most)) {
        if (!is_more(last, &s->now))
            *last = s->now;
    } else if (out->point_count < most) {
        out->points[out->point_count++] = s->now;
    }
    if (is_more(&s->now, &s->most.point))
        s->most = (struct segment_moment){s->now, s->next, s->walk.next_begin, s->walk.next_end};
}

/* ---- at one moment ---- */

struct segment_piece {
    uint64_t address, end;
};

static int by_piece(const void *a, const void *b)
{
    const struct segment_piece *x = a, *y = b;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static uint64_t end_of(uint64_t address, uint64_t bytes)
{
    return bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
}

/* Lists the blocks live then, sorted by address. */
static int living_pieces(const struct sweep *s, struct segment_piece **out, size_t *count)
{
    const struct hr__blocks_found *found = s->walk.found;
    uint32_t *blocks;
    int code =
        hr__blocks_living(found, s->walk.device, s->most.begun, s->most.freed, &blocks, count);
    *out = NULL;
    if (code)
        return code;
    *out = hr__alloc(HR__TAG_MEMORY, *count + 1, sizeof **out);
    for (size_t i = 0; *out && i < *count; i++) {
        const struct hr__block *b = &found->blocks[blocks[i]];
        (*out)[i] = (struct segment_piece){b->address, end_of(b->address, b->bytes)};
    }
    hr__free(blocks);
    if (!*out)
        return -ENOMEM;
    if (*count)
        qsort(*out, *count, sizeof **out, by_piece);
    return 0;
}

static void note_gap(struct hr__segments *out, uint64_t from, uint64_t to)
{
    if (to > from && to - from > out->largest_free_bytes)
        out->largest_free_bytes = to - from;
}

/* Measures the free pieces of the segments, in order of address. */
static int measure(struct sweep *s, const size_t *order, size_t count)
{
    struct segment_piece *blocks;
    size_t block_count, at = 0;
    uint64_t gap = 0, end = 0; /* where the free piece begins; where the last segment ended */
    int is_crossed = 0;        /* a block crosses that end */
    int code = living_pieces(s, &blocks, &block_count);
    if (code)
        return code;
    for (size_t k = 0; k < count; k++) {
        const struct hr__segment_event *e = &s->log->events[order[k]];
        if (!e->is_taken || order[k] >= s->most.events || e->end < s->most.events)
            continue;
        uint64_t used = 0, reached = e->address, its_end = end_of(e->address, e->bytes);
        if (!is_crossed || e->address != end) {
            note_gap(s->out, gap, end);
            gap = e->address;
        }
        while (at < block_count && blocks[at].end <= e->address)
            at++;
        for (is_crossed = 0; at < block_count && blocks[at].address < its_end; at++) {
            uint64_t from = blocks[at].address > reached ? blocks[at].address : reached;
            uint64_t to = blocks[at].end < its_end ? blocks[at].end : its_end;
            note_gap(s->out, gap, from);
            used += to > from ? to - from : 0;
            reached = to > reached ? to : reached;
            gap = blocks[at].end > gap ? blocks[at].end : gap;
            is_crossed = blocks[at].end > its_end;
            if (is_crossed)
                break;
        }
        end = its_end;
        s->out->count++;
        s->out->unusable_bytes += used ? e->bytes - used : 0;
    }
    note_gap(s->out, gap, end);
    hr__free(blocks);
    return 0;
}

int hr__segments_make(struct hr__segments *out, struct hr__segment_log *log,
                      const struct hr__blocks_found *found, int device, size_t most)
{
    size_t *order, count;
    *out = (struct hr__segments){.points = NULL};
    if (log->code)
        return log->code;
    int code = pair(log, device, &order, &count);
    if (!code && count) {
        struct sweep s = {.out = out, .log = log, .walk = hr__walk_begin(found, device)};
        s.now.allocated_bytes = s.walk.total;
        out->points = hr__alloc(HR__TAG_MEMORY, most, sizeof *out->points);
        code = out->points ? 0 : -ENOMEM;
        while (!code && step(&s))
            keep(&s, most);
        if (!code)
            code = measure(&s, order, count);
        out->most = s.most.point;
        out->is_partial = out->most.allocated_bytes > out->most.reserved_bytes;
        out->is_known = !out->is_partial;
    }
    hr__free(order);
    if (code)
        hr__segments_clear(out);
    return code;
}

void hr__segments_clear(struct hr__segments *segments)
{
    hr__free(segments->points);
    *segments = (struct hr__segments){.points = NULL};
}
