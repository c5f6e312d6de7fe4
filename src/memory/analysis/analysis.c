/* Analyses a record; see analysis.h. */
#include "memory/analysis/analysis.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define POINTS       1000
#define BANDWIDTH    12e9 /* of a common PCIe 4.0 link, if unknown */
#define DRAWN_ROUNDS 5    /* iterations in the lifetime chart, as in the paper */
#define OPS_MOST     (1u << 20)

/* Filled event by event, beside the intervals. */
struct analysis_filler {
    struct hr__memory *memory;
    struct hr__behaviours behaviours;
    struct hr__segment_log segments;
    uint32_t call, op; /* the last call and its operator */
    uint64_t call_ns;
    double *op_ns; /* by id; sums, later means */
    uint32_t *op_calls;
    uint32_t ops;
    int code;
};

static int room_for_op(struct analysis_filler *f, uint32_t op)
{
    if (op < f->ops)
        return 1;
    if (op >= OPS_MOST)
        return 0;
    uint32_t ops = op + 1;
    if (hr__reserve(HR__TAG_MEMORY, &f->op_ns, ops) ||
        hr__reserve(HR__TAG_MEMORY, &f->op_calls, ops)) {
        f->code = -ENOMEM;
        return 0;
    }
    memset(f->op_ns + f->ops, 0, (ops - f->ops) * sizeof *f->op_ns);
    memset(f->op_calls + f->ops, 0, (ops - f->ops) * sizeof *f->op_calls);
    f->ops = ops;
    return 1;
}

/* Measures how long calls take: as the device reports, else from a call's first access to the next
 * call's, without the cost of recording. */
static void note_call(struct analysis_filler *f, const struct hr__block_event *event)
{
    uint32_t call = (uint32_t)(event->event->bytes >> 32), op = event->event->what;
    uint64_t now_ns = event->event->time_ns;
    if (call == f->call)
        return;
    if (f->op && call == f->call + 1 && now_ns >= f->call_ns && room_for_op(f, f->op)) {
        double ns = (double)(now_ns - f->call_ns), probe = f->memory->intervals.probe_ns;
        f->op_ns[f->op] += ns > probe ? ns - probe : 0;
        f->op_calls[f->op]++;
    }
    f->call = call;
    f->op = event->clock == HR__CLOCK_DEVICE ? 0 : op;
    f->call_ns = now_ns;
    if (op && !f->op && event->end_ns >= event->at_ns && room_for_op(f, op)) {
        f->op_ns[op] += (double)(event->end_ns - event->at_ns);
        f->op_calls[op]++;
    }
}

static void fill(void *arg, const struct hr__blocks_found *found,
                 const struct hr__block_event *event)
{
    struct analysis_filler *f = arg;
    uint8_t kind = event->event->kind;
    hr__behaviours_add(&f->behaviours, found, event);
    if (kind == HR_MEMORY_READ || kind == HR_MEMORY_WRITE) {
        hr__intervals_add(&f->memory->intervals, found, event);
        note_call(f, event);
    } else if (event->block == HR__NO_BLOCK) {
        hr__segment_log_add(&f->segments, found, event);
    }
}

/* ---- devices ---- */

static int measure_device(struct hr__device_memory *d, const struct hr__blocks_found *found,
                          struct hr__segment_log *log, size_t points, struct hr_error *error)
{
    int code = hr__timeline_make(&d->timeline, found, d->device, points, error);
    if (code)
        return code;
    code = hr__timeline_backward(&d->backward, found, d->device);
    if (!code)
        code = hr__memory_explain_peak(d, found);
    if (!code)
        code = hr__segments_make(&d->segments, log, found, d->device, points);
    return code ? hr__fail(error, code, "out of memory for what lives at a peak") : 0;
}

/* Adds the devices that have blocks, by number. */
static int add_devices(struct hr__memory *m, struct analysis_filler *f, size_t points,
                       struct hr_error *error)
{
    const size_t libraries = HR__DEVICES_MOST - 1;
    int code = 0;
    for (uint32_t i = 0; i < m->found.count; i++) {
        const struct hr__block *b = &m->found.blocks[i];
        size_t at = b->device == HR_MEMORY_LIBRARIES ? libraries : b->device;
        if (at > libraries || (at == libraries && b->device != HR_MEMORY_LIBRARIES))
            continue;
        m->devices[at].device = b->device;
        m->devices[at].blocks++;
        m->devices[at].bytes_allocated += b->bytes;
    }
    for (size_t at = 0; at < HR__DEVICES_MOST; at++)
        if (m->devices[at].blocks)
            m->devices[m->device_count++] = m->devices[at];
    for (size_t i = m->device_count; i < HR__DEVICES_MOST; i++)
        m->devices[i] = (struct hr__device_memory){.device = 0};
    m->is_device_clock = 0;
    for (size_t i = 0; i < m->device_count && !code; i++) {
        struct hr__device_memory *d = &m->devices[i];
        int is_accelerator = d->device && d->device != HR_MEMORY_LIBRARIES;
        d->host_timed = hr__blocks_host_timed(&m->found, d->device);
        m->no_swap_advice |= d->host_timed;
        m->is_device_clock |= is_accelerator && m->found.of_device[d->device].accesses;
        code = measure_device(d, &m->found, &f->segments, points, error);
    }
    m->is_device_clock = m->is_device_clock && !m->no_swap_advice;
    return code;
}

/* ---- selection for the charts ---- */

/* Chooses the period to draw: iterations in the middle of training, if there are any. */
static void choose_time(struct hr__memory *m)
{
    const struct hr__period *p = &m->period;
    m->drawn_begin_ns = m->found.begin_ns;
    m->drawn_end_ns = m->found.end_ns;
    if (p->count < 2)
        return;
    size_t rounds = p->count < DRAWN_ROUNDS ? p->count : DRAWN_ROUNDS;
    size_t first = (p->count - rounds) / 2;
    m->drawn_first = first;
    m->drawn_rounds = rounds;
    m->drawn_begin_ns = p->iterations[first].begin_ns;
    m->drawn_end_ns = p->iterations[first + rounds - 1].end_ns;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

static int is_drawn(const struct hr__memory *m, const struct hr__block *b, uint64_t least)
{
    return b->bytes >= least && b->alloc_ns <= m->drawn_end_ns && b->free_ns > m->drawn_begin_ns;
}

/* Chooses the largest blocks of that period. */
static int choose_blocks(struct hr__memory *m)
{
    uint64_t *sizes = hr__alloc(HR__TAG_MEMORY, (size_t)m->found.count + 1, sizeof *sizes),
             least = 1;
    size_t count = 0;
    if (!sizes)
        return -ENOMEM;
    for (uint32_t i = 0; i < m->found.count; i++)
        if (is_drawn(m, &m->found.blocks[i], 1))
            sizes[count++] = m->found.blocks[i].bytes;
    if (count > HR__DRAWN_MOST) {
        qsort(sizes, count, sizeof *sizes, by_size);
        /* Take all or none of the blocks of one size: otherwise later iterations would lack blocks
         * that the first ones show. */
        least = sizes[HR__DRAWN_MOST - 1];
        least += sizes[HR__DRAWN_MOST] == least && sizes[0] > least;
    }
    hr__free(sizes);
    for (uint32_t i = 0; i < m->found.count && m->drawn_count < HR__DRAWN_MOST; i++)
        if (is_drawn(m, &m->found.blocks[i], least))
            m->drawn[m->drawn_count++] = i;
    return 0;
}

/* Returns a block's index among the drawn ones, which are sorted; drawn_count: not drawn. */
static size_t drawn_at(const struct hr__memory *m, uint32_t block)
{
    size_t low = 0, high = m->drawn_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (m->drawn[middle] < block)
            low = middle + 1;
        else
            high = middle;
    }
    return low < m->drawn_count && m->drawn[low] == block ? low : m->drawn_count;
}

/* State of the second pass. */
struct drawer {
    struct hr__memory *m;
    struct hr__device_memory *of_device[256]; /* NULL: skipped */
    struct hr__peak_span *spans;
    size_t count;
    int code;
};

static void draw(struct hr__memory *m, const struct hr__block_event *event)
{
    const struct hr_memory_event *e = event->event;
    if (e->time_ns < m->drawn_begin_ns || e->time_ns > m->drawn_end_ns ||
        m->access_count == HR__MARKS_MOST)
        return;
    size_t at = drawn_at(m, event->block);
    if (at < m->drawn_count)
        m->accesses[m->access_count++] = (struct hr__drawn_access){
            .time_ns = e->time_ns, .drawn = (uint32_t)at, .op = e->what, .kind = e->kind};
}

/* Notes the interval that contains its device's peak, by the host's times: at most one per
 * block. */
static void note_span(struct drawer *d, const struct hr__block_event *event)
{
    const struct hr_memory_event *e = event->event;
    const struct hr__device_memory *device = d->of_device[e->device];
    uint64_t ns;
    if (!event->before || !device || event->before_event_ns > device->timeline.peak.time_ns ||
        e->time_ns <= device->timeline.peak.time_ns ||
        !hr__interval_ns(&d->m->intervals, event, &ns) || d->code)
        return;
    d->code = hr__reserve(HR__TAG_MEMORY, &d->spans, d->count + 1);
    if (!d->code)
        d->spans[d->count++] = (struct hr__peak_span){
            event->block, event->before_call, (uint32_t)(e->bytes >> 32), event->before_ns, ns};
}

static void look_again(void *arg, const struct hr__blocks_found *found,
                       const struct hr__block_event *event)
{
    struct drawer *d = arg;
    const struct hr_memory_event *e = event->event;
    if (e->kind != HR_MEMORY_READ && e->kind != HR_MEMORY_WRITE)
        return;
    for (size_t i = 0; i < d->m->device_count; i++)
        if (e->time_ns <= d->m->devices[i].timeline.peak.time_ns)
            d->m->devices[i].running_call = (uint32_t)(e->bytes >> 32);
    note_span(d, event);
    draw(d->m, event);
}

static int second_pass(struct drawer *d, struct hr__record *record, struct hr_error *error)
{
    struct hr__memory *m = d->m;
    struct hr__blocks_found again;
    choose_time(m);
    m->accesses = hr__alloc(HR__TAG_MEMORY, HR__MARKS_MOST, sizeof *m->accesses);
    if (!m->accesses || choose_blocks(m))
        return hr__fail(error, -ENOMEM, "out of memory for a chart of lifetimes");
    for (size_t i = 0; i < m->device_count; i++)
        d->of_device[m->devices[i].device] = &m->devices[i];
    int code = hr__blocks_find(&again, record, look_again, d, error);
    if (code)
        return code;
    hr__blocks_found_clear(&again);
    return d->code ? hr__fail(error, d->code, "out of memory for intervals at a peak") : 0;
}

/* ---- the whole ---- */

static double bandwidth(const struct hr__record *record, double asked, const char *name)
{
    double recorded = hr__memory_fact(record, name);
    return asked > 0 ? asked : recorded > 0 ? recorded : BANDWIDTH;
}

static int first_pass(struct hr__memory *m, struct hr__record *record, struct analysis_filler *f,
                      size_t points, struct hr_error *error)
{
    int code = hr__blocks_find(&m->found, record, fill, f, error);
    if (!code && f->code)
        code = hr__fail(error, f->code, "out of memory while analysing a record");
    if (!code && !m->found.events)
        code = hr__fail(error, -ENODATA, "a record without events");
    if (!code)
        code = hr__period_find(&m->period, &f->behaviours, error);
    hr__behaviours_clear(&f->behaviours);
    if (!code)
        code = add_devices(m, f, points, error);
    return code;
}

static int conclude(struct hr__memory *m, const struct hr__record *record,
                    struct analysis_filler *f, const struct drawer *d)
{
    for (uint32_t i = 0; i < f->ops; i++)
        f->op_ns[i] = f->op_calls[i] ? f->op_ns[i] / f->op_calls[i] : 0;
    hr__intervals_sort(&m->intervals);
    hr__memory_project(m, record);
    hr__period_count(&m->period, &m->found);
    if (m->device_count)
        hr__timeline_iterations(&m->period, &m->found, m->devices[m->main_device].device);
    hr__record_about(record, &m->about);
    m->damage = *hr__record_damage(record);
    int code = hr__period_medians(&m->period, &m->iteration_ns, &m->iteration_blocks);
    if (!code)
        code = hr__memory_advise(m, d->spans, d->count, f->op_ns, f->ops);
    return code ? code : hr__memory_note(m, record);
}

static int analyse(struct hr__memory *m, struct hr__record *record,
                   const struct hr__memory_wish *wish, struct analysis_filler *f,
                   struct hr_error *error)
{
    struct drawer d = {.m = m};
    double probe = hr__memory_fact(record, "probe ns per call");
    hr__intervals_init(&m->intervals, bandwidth(record, wish->h2d_bytes_per_s, "h2d bytes per s"),
                       bandwidth(record, wish->d2h_bytes_per_s, "d2h bytes per s"),
                       probe > 0 ? probe : 0);
    int code = first_pass(m, record, f, wish->points ? wish->points : POINTS, error);
    if (!code)
        code = second_pass(&d, record, error);
    if (!code && conclude(m, record, f, &d))
        code = hr__fail(error, -ENOMEM, "out of memory while analysing a record");
    hr__free(d.spans);
    return code;
}

int hr__memory_analyse(struct hr__memory **out, struct hr__record *record,
                       const struct hr__memory_wish *wish, struct hr_error *error)
{
    struct hr__memory *m = hr__alloc(HR__TAG_MEMORY, 1, sizeof *m);
    struct analysis_filler f = {.memory = m};
    *out = NULL;
    if (!m)
        return hr__fail(error, -ENOMEM, "out of memory while analysing a record");
    int code = analyse(m, record, wish, &f, error);
    hr__behaviours_clear(&f.behaviours);
    hr__segment_log_clear(&f.segments);
    hr__free(f.op_ns);
    hr__free(f.op_calls);
    if (code)
        hr__memory_destroy(&m);
    *out = m;
    return code;
}

void hr__memory_destroy(struct hr__memory **memory)
{
    struct hr__memory *m = *memory;
    if (!m)
        return;
    *memory = NULL;
    for (size_t i = 0; i < HR__DEVICES_MOST; i++) {
        hr__timeline_clear(&m->devices[i].timeline);
        hr__free(m->devices[i].living);
        hr__free(m->devices[i].parts);
        hr__segments_clear(&m->devices[i].segments);
    }
    hr__blocks_found_clear(&m->found);
    hr__period_clear(&m->period);
    for (size_t i = 0; i < m->note_count; i++)
        hr__free(m->notes[i]);
    hr__free(m->accesses);
    hr__free(m);
}
