/* A record, analysed; see analysis.h. */
#include "memory/analysis.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POINTS       1000
#define BANDWIDTH    12e9 /* of a common PCIe 4.0 link, where nothing is said */
#define DRAWN_ROUNDS 5    /* iterations of the chart of lifetimes, as in the paper */
#define OPS_MOST     (1u << 20)

/* What is filled event by event beside the intervals. */
struct filler {
    struct hr__memory *memory;
    struct hr__behaviours behaviours;
    uint32_t call, op; /* the last call, and its operator */
    uint64_t call_ns;
    double *op_ns; /* sums, then means; by id */
    uint32_t *op_calls;
    uint32_t ops;
    int code;
};

static int room_for_op(struct filler *f, uint32_t op)
{
    if (op < f->ops)
        return 1;
    if (op >= OPS_MOST)
        return 0;
    uint32_t ops = f->ops ? f->ops : 1024;
    while (ops <= op)
        ops *= 2;
    double *ns = hr__realloc(HR__TAG_MEMORY, f->op_ns, ops, sizeof *ns);
    if (ns)
        f->op_ns = ns;
    uint32_t *calls = hr__realloc(HR__TAG_MEMORY, f->op_calls, ops, sizeof *calls);
    if (calls)
        f->op_calls = calls;
    if (!ns || !calls) {
        f->code = -ENOMEM;
        return 0;
    }
    memset(ns + f->ops, 0, (ops - f->ops) * sizeof *ns);
    memset(calls + f->ops, 0, (ops - f->ops) * sizeof *calls);
    f->ops = ops;
    return 1;
}

/* How long calls take: from one call's first access to the next one's. */
static void note_call(struct filler *f, const struct hr_memory_event *event)
{
    uint32_t call = (uint32_t)(event->bytes >> 32);
    if (call == f->call)
        return;
    if (f->op && call == f->call + 1 && room_for_op(f, f->op)) {
        f->op_ns[f->op] += (double)(event->time_ns - f->call_ns);
        f->op_calls[f->op]++;
    }
    f->call = call;
    f->op = event->what;
    f->call_ns = event->time_ns;
}

static void fill(void *arg, const struct hr__blocks_found *found,
                 const struct hr__block_event *event)
{
    struct filler *f = arg;
    uint8_t kind = event->event->kind;
    hr__intervals_add(&f->memory->intervals, found, event);
    hr__behaviours_add(&f->behaviours, found, event);
    if (kind == HR_MEMORY_READ || kind == HR_MEMORY_WRITE)
        note_call(f, event->event);
}

/* ---- the peak ---- */

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

static int explain_peak(struct hr__device_memory *d, const struct hr__blocks_found *found)
{
    size_t count = 0, groups = 0;
    for (uint32_t i = 0; i < found->count; i++)
        count += found->blocks[i].device == d->device &&
                 hr__block_lives(&found->blocks[i], d->timeline.peak.time_ns);
    struct hr__peak_group *all = hr__alloc(HR__TAG_MEMORY, count + 1, sizeof *all);
    if (!all)
        return -ENOMEM;
    count = 0;
    for (uint32_t i = 0; i < found->count; i++) {
        const struct hr__block *b = &found->blocks[i];
        if (b->device == d->device && hr__block_lives(b, d->timeline.peak.time_ns))
            all[count++] =
                (struct hr__peak_group){b->category, b->first_op, b->name, b->stack, 1, b->bytes};
    }
    if (count)
        qsort(all, count, sizeof *all, by_group);
    for (size_t i = 0; i < count; i++) {
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

static int add_device(struct hr__memory *m, int device, size_t points, struct hr_error *error)
{
    struct hr__device_memory *d = &m->devices[m->device_count];
    *d = (struct hr__device_memory){.device = device};
    for (uint32_t i = 0; i < m->found.count; i++) {
        const struct hr__block *b = &m->found.blocks[i];
        d->blocks += b->device == device;
        d->bytes_allocated += b->device == device ? b->bytes : 0;
    }
    if (!d->blocks)
        return 0;
    int code = hr__timeline_make(&d->timeline, &m->found, device, points, error);
    if (code)
        return code;
    m->device_count++;
    code = explain_peak(d, &m->found);
    return code ? hr__fail(error, code, "out of memory for a peak's blocks") : 0;
}

/* ---- what is drawn ---- */

/* The part of the time: some iterations in the middle of training, where there are any. */
static void choose_time(struct hr__memory *m)
{
    const struct hr__period *p = &m->period;
    m->drawn_begin_ns = m->found.begin_ns;
    m->drawn_end_ns = m->found.end_ns;
    if (p->count < 2)
        return;
    size_t rounds = p->count < DRAWN_ROUNDS ? p->count : DRAWN_ROUNDS;
    size_t first = (p->count - rounds) / 2;
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

/* The largest blocks of that time. */
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
        least = sizes[HR__DRAWN_MOST - 1];
    }
    hr__free(sizes);
    for (uint32_t i = 0; i < m->found.count && m->drawn_count < HR__DRAWN_MOST; i++)
        if (is_drawn(m, &m->found.blocks[i], least))
            m->drawn[m->drawn_count++] = i;
    return 0;
}

/* A block's place among those that are drawn; drawn_count: it is not. They are in order. */
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

static void draw(void *arg, const struct hr__blocks_found *found,
                 const struct hr__block_event *event)
{
    struct hr__memory *m = arg;
    const struct hr_memory_event *e = event->event;
    if (e->kind != HR_MEMORY_READ && e->kind != HR_MEMORY_WRITE)
        return;
    if (e->time_ns < m->drawn_begin_ns || e->time_ns > m->drawn_end_ns ||
        m->access_count == HR__MARKS_MOST)
        return;
    size_t at = drawn_at(m, event->block);
    if (at < m->drawn_count)
        m->accesses[m->access_count++] = (struct hr__drawn_access){
            .time_ns = e->time_ns, .drawn = (uint32_t)at, .op = e->what, .kind = e->kind};
}

static int draw_all(struct hr__memory *m, struct hr__record *record, struct hr_error *error)
{
    struct hr__blocks_found again;
    choose_time(m);
    m->accesses = hr__alloc(HR__TAG_MEMORY, HR__MARKS_MOST, sizeof *m->accesses);
    if (!m->accesses || choose_blocks(m))
        return hr__fail(error, -ENOMEM, "out of memory for a chart of lifetimes");
    int code = hr__blocks_find(&again, record, draw, m, error);
    if (!code)
        hr__blocks_found_clear(&again);
    return code;
}

/* ---- facts ---- */

static double fact(const struct hr__record *record, const char *name)
{
    const char *text = hr__record_fact(record, name);
    char *end;
    if (!text)
        return NAN;
    double value = strtod(text, &end);
    return end != text && !*end && value >= 0 && value < 1e18 ? value : NAN;
}

/* The batch size that would fit, of one record: what grows with it in proportion. */
static void project(struct hr__memory *m, const struct hr__record *record)
{
    m->batch_size = fact(record, "batch size");
    m->capacity_bytes = fact(record, "capacity bytes");
    m->bytes_per_sample = m->batch_that_fits = m->fixed_bytes = NAN;
    if (!m->device_count)
        return;
    const struct hr__timeline *t = &m->devices[m->device_count - 1].timeline;
    const uint64_t *bytes = t->peak.bytes;
    m->fixed_bytes = (double)(bytes[HR_MEMORY_PARAMETER] + bytes[HR_MEMORY_GRADIENT] +
                              bytes[HR_MEMORY_OPTIMIZER_STATE] +
                              /* of before the recording: frozen weights, buffers, data */
                              bytes[HR_MEMORY_UNKNOWN]);
    double varies = (double)t->peak_bytes - m->fixed_bytes;
    if (m->batch_size > 0)
        m->bytes_per_sample = varies / m->batch_size;
    if (m->bytes_per_sample > 0 && m->capacity_bytes > m->fixed_bytes)
        m->batch_that_fits = floor((m->capacity_bytes - m->fixed_bytes) / m->bytes_per_sample);
}

/* ---- all of it ---- */

static double bandwidth(const struct hr__record *record, double asked, const char *name)
{
    double said = fact(record, name);
    return asked > 0 ? asked : said > 0 ? said : BANDWIDTH;
}

static int analyse(struct hr__memory *m, struct hr__record *record,
                   const struct hr__memory_wish *wish, struct filler *f, struct hr_error *error)
{
    double probe = fact(record, "probe ns per call");
    hr__intervals_init(&m->intervals, bandwidth(record, wish->h2d_bytes_per_s, "h2d bytes per s"),
                       bandwidth(record, wish->d2h_bytes_per_s, "d2h bytes per s"),
                       probe > 0 ? probe : 0);
    int code = hr__blocks_find(&m->found, record, fill, f, error);
    if (!code && f->code)
        code = hr__fail(error, f->code, "out of memory while analysing a record");
    if (!code && !m->found.events)
        code = hr__fail(error, -ENODATA, "the record has no events: nothing ran in it");
    if (!code)
        code = hr__period_find(&m->period, &f->behaviours, error);
    hr__behaviours_clear(&f->behaviours);
    for (int device = 0; device < HR__DEVICES_MOST && !code; device++)
        code = add_device(m, device, wish->points ? wish->points : POINTS, error);
    if (!code)
        code = draw_all(m, record, error);
    if (code)
        return code;
    hr__intervals_sort(&m->intervals);
    for (uint32_t i = 0; i < f->ops; i++)
        f->op_ns[i] = f->op_calls[i] ? f->op_ns[i] / f->op_calls[i] : 0;
    m->no_swap_advice = m->found.host_times;
    hr__memory_advise(m, f->op_ns, f->ops);
    project(m, record);
    hr__record_about(record, &m->about);
    m->damage = *hr__record_damage(record);
    return 0;
}

int hr__memory_analyse(struct hr__memory **out, struct hr__record *record,
                       const struct hr__memory_wish *wish, struct hr_error *error)
{
    struct hr__memory *m = hr__alloc(HR__TAG_MEMORY, 1, sizeof *m);
    struct filler f = {.memory = m};
    *out = NULL;
    if (!m)
        return hr__fail(error, -ENOMEM, "out of memory while analysing a record");
    int code = analyse(m, record, wish, &f, error);
    hr__behaviours_clear(&f.behaviours);
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
        hr__free(m->devices[i].parts);
        hr__segments_clear(&m->devices[i].segments);
    }
    hr__blocks_found_clear(&m->found);
    hr__period_clear(&m->period);
    hr__free(m->accesses);
    hr__free(m);
}
