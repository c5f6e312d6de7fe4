/*
 * An analysis as JSON (docs/memory-format.md): what the page draws, and what other programs
 * read. Times are nanoseconds since the recording began, sizes bytes. Names that programs and
 * files gave are escaped by the JSON library, and cut where they are no UTF-8.
 */
#include "memory/report/json.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES_MOST      16   /* of a stack */
#define FACTS_MOST      200  /* that are told */
#define ITERATIONS_MOST 2000 /* that are told one by one */
#define DIFFERENT_MOST  200

static const char *const category_names[HR__CATEGORIES] = {
    "unknown", "parameter",  "gradient",  "optimizer state",
    "input",   "activation", "temporary", "workspace",
};
static const char *const behaviour_names[HR__BEHAVIOURS] = {"read-read", "read-write", "write-read",
                                                            "write-write"};
static const char *const advice_names[] = {"swap", "untouched", "late free", "recompute"};

const char *hr__memory_category_name(unsigned category)
{
    return category_names[category < HR__CATEGORIES ? category : 0];
}

const char *hr__memory_behaviour_name(unsigned behaviour)
{
    return behaviour_names[behaviour < HR__BEHAVIOURS ? behaviour : 0];
}

const char *hr__memory_advice_name(enum hr__advice_kind kind)
{
    return advice_names[kind];
}

void hr__memory_device_name(int device, char *out, size_t room)
{
    if (device == HR_MEMORY_LIBRARIES)
        snprintf(out, room, "libraries");
    else if (device)
        snprintf(out, room, "cuda:%d", device - 1);
    else
        snprintf(out, room, "cpu");
}

/* NULL never, but for want of memory: json_object_set_new takes that as a failure. */
static json_t *text(const char *bytes)
{
    char safe[512];
    json_t *string = json_string(bytes);
    if (string)
        return string;
    hr__printable(safe, sizeof safe, bytes);
    return json_string(safe);
}

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)(value < INT64_MAX ? value : INT64_MAX));
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *name(const struct hr__record *record, uint32_t id)
{
    return id ? text(hr__record_name(record, id)) : json_null();
}

/* A frame of the framework's own, or of an interpreter's. */
static int is_of_framework(const char *file)
{
    static const char *const folders[] = {"/torch/", "/headrace/"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (strstr(file, folders[i]))
            return 1;
    return file[0] == '<' || !strcmp(file, "??");
}

static json_t *line_of(const struct hr__record *record, const struct hr_memory_frame *frame)
{
    char line[1024];
    const char *function = hr__record_name(record, frame->function);
    if (!frame->file)
        return text(function); /* an operator */
    snprintf(line, sizeof line, "%s:%u %s", hr__record_name(record, frame->file), frame->line,
             function);
    return text(line);
}

/* The innermost of the user's lines first; where there are none, the innermost. */
static json_t *stack(const struct hr__record *record, uint32_t id)
{
    const struct hr_memory_frame *frames;
    size_t count = hr__record_stack(record, id, &frames), first = 0;
    json_t *list = json_array();
    while (first < count && frames[first].file &&
           is_of_framework(hr__record_name(record, frames[first].file)))
        first++;
    if (first == count)
        first = 0;
    for (size_t i = first; i < count && i < first + LINES_MOST; i++)
        json_array_append_new(list, line_of(record, &frames[i]));
    return list;
}

static json_t *categories(const uint64_t bytes[HR__CATEGORIES])
{
    json_t *object = json_object();
    for (unsigned c = 0; c < HR__CATEGORIES; c++)
        if (bytes[c])
            json_object_set_new(object, category_names[c], integer(bytes[c]));
    return object;
}

/* ---- parts ---- */

/* All that the record says of its run, but for notes, which are sentences. */
static json_t *facts(const struct hr__record *record)
{
    json_t *object = json_object();
    const char *fact;
    for (uint32_t at = 0; at < FACTS_MOST && (fact = hr__record_fact_at(record, at)); at++) {
        const char *value = strchr(fact, '=');
        char fact_name[128];
        if (!strncmp(fact, "note ", 5) || !value || (size_t)(value - fact) >= sizeof fact_name)
            continue;
        memcpy(fact_name, fact, (size_t)(value - fact));
        fact_name[value - fact] = '\0';
        json_t *key = text(fact_name);
        if (key)
            json_object_set_new(object, json_string_value(key), text(value + 1));
        json_decref(key);
    }
    return object;
}

static json_t *notes(const struct hr__memory *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->note_count; i++)
        json_array_append_new(list, text(m->notes[i]));
    return list;
}

static json_t *run(const struct hr__memory *m, const struct hr__record *record)
{
    const char *allocations = hr__record_fact(record, "allocations");
    json_t *damage = m->damage.extents ? json_pack("{s:s, s:o, s:o, s:o}", "what", m->damage.what,
                                                   "offset", integer(m->damage.first_at), "bytes",
                                                   integer(m->damage.lost_bytes), "pieces",
                                                   integer(m->damage.extents))
                                       : json_null();
    return json_pack("{s:I, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, "
                     "s:o}",
                     "pid", (json_int_t)m->about.pid, "start_unix_ns",
                     integer(m->about.start_unix_ns), "ended", m->about.is_ended, "problem",
                     m->about.problem ? text(hr__errno_text(m->about.problem)) : json_null(),
                     "events", integer(m->found.events), "accesses", integer(m->found.accesses),
                     "lost", integer(m->about.lost), "threads", integer(m->about.threads), "bytes",
                     integer(m->about.bytes), "begin_ns", integer(m->found.begin_ns), "end_ns",
                     integer(m->found.end_ns), "facts", facts(record), "damage", damage,
                     "allocations", allocations ? text(allocations) : json_null(), "clock",
                     m->is_device_clock ? "device" : "host", "notes", notes(m));
}

static json_t *timeline(const struct hr__timeline *t)
{
    json_t *times = json_array(), *series = json_object();
    for (size_t i = 0; i < t->count; i++)
        json_array_append_new(times, integer(t->points[i].time_ns));
    for (unsigned c = 0; c < HR__CATEGORIES; c++) {
        uint64_t any = 0;
        json_t *list = json_array();
        for (size_t i = 0; i < t->count; i++) {
            any |= t->points[i].bytes[c];
            json_array_append_new(list, integer(t->points[i].bytes[c]));
        }
        if (any)
            json_object_set_new(series, category_names[c], list);
        else
            json_decref(list);
    }
    return json_pack("{s:o, s:o}", "ns", times, "bytes", series);
}

static json_t *parts(const struct hr__device_memory *d, const struct hr__record *record)
{
    json_t *list = json_array();
    for (size_t i = 0; i < d->part_count; i++)
        json_array_append_new(
            list, json_pack("{s:o, s:o, s:o}", "part", name(record, d->parts[i].part), "blocks",
                            integer(d->parts[i].blocks), "bytes", categories(d->parts[i].bytes)));
    return list;
}

static json_t *fragmentation(const struct hr__segments *s)
{
    if (!s->is_known)
        return json_null();
    json_t *times = json_array(), *reserved = json_array(), *allocated = json_array();
    for (size_t i = 0; i < s->point_count; i++) {
        json_array_append_new(times, integer(s->points[i].time_ns));
        json_array_append_new(reserved, integer(s->points[i].reserved_bytes));
        json_array_append_new(allocated, integer(s->points[i].allocated_bytes));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:{s:o, s:o, s:o}}", "ns",
                     integer(s->most.time_ns), "reserved_bytes", integer(s->most.reserved_bytes),
                     "allocated_bytes", integer(s->most.allocated_bytes), "largest_free_bytes",
                     integer(s->largest_free_bytes), "segments", integer(s->count),
                     "unusable_bytes", integer(s->unusable_bytes), "timeline", "ns", times,
                     "reserved", reserved, "allocated", allocated);
}

static json_t *groups(const struct hr__device_memory *d, const struct hr__record *record)
{
    json_t *list = json_array();
    for (size_t i = 0; i < d->group_count; i++) {
        const struct hr__peak_group *g = &d->groups[i];
        json_array_append_new(
            list, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "category",
                            hr__memory_category_name(g->category), "blocks", integer(g->blocks),
                            "bytes", integer(g->bytes), "operator", name(record, g->op), "what",
                            name(record, g->name), "stack", stack(record, g->stack)));
    }
    return list;
}

static json_t *device(const struct hr__device_memory *d, const struct hr__record *record)
{
    char device_name[24];
    hr__memory_device_name(d->device, device_name, sizeof device_name);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "device",
                     device_name, "blocks", integer(d->blocks), "bytes_allocated",
                     integer(d->bytes_allocated), "peak_bytes", integer(d->timeline.peak_bytes),
                     "peak_ns", integer(d->timeline.peak.time_ns), "end_bytes",
                     integer(d->timeline.end_bytes), "peak", categories(d->timeline.peak.bytes),
                     "peak_blocks", groups(d, record), "other_bytes", integer(d->other_bytes),
                     "timeline", timeline(&d->timeline), "parts", parts(d, record), "fragmentation",
                     fragmentation(&d->segments));
}

const struct hr__memory_quantile hr__memory_quantiles[HR__MEMORY_QUANTILES] = {
    {"p10", 0.1}, {"p25", 0.25}, {"p50", 0.5}, {"p75", 0.75}, {"p90", 0.9}, {"p99", 0.99},
};

static json_t *quantiles(const struct hr__intervals *i, int behaviour)
{
    json_t *object = json_object();
    for (size_t k = 0; k < HR__MEMORY_QUANTILES; k++)
        json_object_set_new(
            object, hr__memory_quantiles[k].name,
            real(hr__intervals_quantile(i, behaviour, hr__memory_quantiles[k].share)));
    return object;
}

static json_t *interval(const struct hr__interval_of *o, const struct hr__memory *m,
                        const struct hr__record *record)
{
    return json_pack("{s:o, s:o, s:o, s:s, s:s, s:o, s:o}", "begin_ns", integer(o->begin_ns), "ns",
                     integer(o->ns), "bytes", integer(o->bytes), "behaviour",
                     hr__memory_behaviour_name(o->behaviour), "category",
                     hr__memory_category_name(m->found.blocks[o->block].category), "operator",
                     name(record, o->op), "what", name(record, m->found.blocks[o->block].name));
}

static json_t *intervals(const struct hr__memory *m, const struct hr__record *record)
{
    const struct hr__intervals *i = &m->intervals;
    json_t *of = json_object(), *outliers = json_array(), *scatter = json_array();
    uint64_t count = 0;
    for (int b = 0; b < HR__BEHAVIOURS; b++) {
        json_t *bins = json_array();
        for (int k = 0; k < HR__ATI_BINS; k++)
            if (i->of[b].bins[k])
                json_array_append_new(bins,
                                      json_pack("[o, o]", real(exp2((double)k / HR__ATI_PARTS)),
                                                integer(i->of[b].bins[k])));
        count += i->of[b].count;
        json_object_set_new(of, behaviour_names[b],
                            json_pack("{s:o, s:o, s:o, s:o, s:o}", "count", integer(i->of[b].count),
                                      "sum_ns", integer(i->of[b].sum_ns), "longest_ns",
                                      integer(i->of[b].longest_ns), "quantiles_ns", quantiles(i, b),
                                      "bins", bins));
    }
    for (size_t k = 0; k < i->outlier_count; k++)
        json_array_append_new(outliers, interval(&i->outliers[k], m, record));
    for (size_t k = 0; k < i->scatter_count; k++)
        json_array_append_new(scatter, json_pack("[o, o, i]", integer(i->scatter[k].ns),
                                                 integer(i->scatter[k].bytes),
                                                 (int)i->scatter[k].behaviour));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "count", integer(count),
                     "left_out", integer(i->left_out), "h2d_bytes_per_s", real(i->h2d_bytes_per_s),
                     "d2h_bytes_per_s", real(i->d2h_bytes_per_s), "probe_ns", real(i->probe_ns),
                     "swappable", integer(i->swappable), "quantiles_ns", quantiles(i, -1), "of", of,
                     "outliers", outliers, "scatter", scatter);
}

static json_t *pattern(const struct hr__memory *m)
{
    const struct hr__period *p = &m->period;
    json_t *odd = json_array(), *begins = json_array(), *lengths = json_array();
    json_t *blocks = json_array(), *peaks = json_array();
    for (size_t k = 0; k < p->count; k++) {
        const struct hr__iteration *one = &p->iterations[k];
        if (k < ITERATIONS_MOST) {
            json_array_append_new(begins, integer(one->begin_ns));
            json_array_append_new(lengths, integer(one->end_ns - one->begin_ns));
            json_array_append_new(blocks, integer(one->blocks));
            json_array_append_new(peaks, integer(one->peak_bytes));
        }
        if (p->behaviours && !one->is_same && json_array_size(odd) < DIFFERENT_MOST)
            json_array_append_new(odd, json_pack("{s:o, s:o, s:o, s:o}", "iteration", integer(k),
                                                 "begin_ns", integer(one->begin_ns), "behaviours",
                                                 integer(one->end - one->begin), "differs_at",
                                                 integer(one->differs_at - one->begin)));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "behaviours",
                     integer(p->behaviours), "iterations", integer(p->count), "same",
                     integer(p->same), "marked", integer(m->found.iterations), "by_marks",
                     p->by_marks, "iteration_ns", p->count ? integer(m->iteration_ns) : json_null(),
                     "blocks", p->count ? integer(m->iteration_blocks) : json_null(), "begins_ns",
                     begins, "lengths_ns", lengths, "blocks_each", blocks, "peak_bytes_each", peaks,
                     "different", odd);
}

static json_t *lifetimes(const struct hr__memory *m, const struct hr__record *record)
{
    json_t *blocks = json_array(), *accesses = json_array(), *rounds = json_array();
    for (size_t k = 0; k < m->drawn_rounds; k++) {
        const struct hr__iteration *one = &m->period.iterations[m->drawn_first + k];
        json_array_append_new(rounds,
                              json_pack("{s:o, s:o, s:b}", "begin_ns", integer(one->begin_ns),
                                        "end_ns", integer(one->end_ns), "same", one->is_same));
    }
    for (size_t k = 0; k < m->drawn_count; k++) {
        const struct hr__block *b = &m->found.blocks[m->drawn[k]];
        char device_name[24];
        hr__memory_device_name(b->device, device_name, sizeof device_name);
        json_array_append_new(
            blocks,
            json_pack("{s:o, s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "alloc_ns",
                      integer(b->alloc_ns), "free_ns",
                      b->free_ns == HR__STILL_LIVE ? json_null() : integer(b->free_ns), "bytes",
                      integer(b->bytes), "category", hr__memory_category_name(b->category),
                      "device", device_name, "operator", name(record, b->first_op), "what",
                      name(record, b->name), "part", name(record, b->part), "reads",
                      integer(b->reads), "writes", integer(b->writes)));
    }
    for (size_t k = 0; k < m->access_count; k++)
        json_array_append_new(accesses, json_pack("[o, o, i, o]", integer(m->accesses[k].drawn),
                                                  integer(m->accesses[k].time_ns),
                                                  m->accesses[k].kind == HR_MEMORY_WRITE,
                                                  name(record, m->accesses[k].op)));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:b}", "begin_ns", integer(m->drawn_begin_ns),
                     "end_ns", integer(m->drawn_end_ns), "iterations", rounds, "blocks", blocks,
                     "accesses", accesses, "cut", m->access_count == HR__MARKS_MOST);
}

static json_t *advice(const struct hr__memory *m, const struct hr__record *record)
{
    json_t *list = json_array();
    for (size_t k = 0; k < m->advice_count; k++) {
        const struct hr__advice *a = &m->advice[k];
        const struct hr__block *b = &m->found.blocks[a->block];
        char device_name[24];
        hr__memory_device_name(b->device, device_name, sizeof device_name);
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o}", "kind",
                            hr__memory_advice_name(a->kind), "device", device_name, "blocks",
                            integer(a->blocks), "bytes", integer(a->bytes), "begin_ns",
                            integer(a->begin_ns), "ns", integer(a->ns), "cost_ns", real(a->cost_ns),
                            "category", hr__memory_category_name(b->category), "operator",
                            name(record, b->first_op), "what", name(record, b->name), "stack",
                            stack(record, b->stack)));
    }
    return list;
}

/* Of one device: what its peak holds, and what would fit. */
static json_t *device_batch(const struct hr__memory *m, const struct hr__device_memory *d)
{
    char device_name[24];
    hr__memory_device_name(d->device, device_name, sizeof device_name);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "device", device_name, "size",
                     real(m->batch_size), "fixed_bytes", real(d->point.fixed_bytes),
                     "varying_bytes", real(d->point.varying_bytes), "bytes_per_sample",
                     real(d->fit.bytes_per_sample), "capacity_bytes", real(d->capacity_bytes),
                     "that_fits", real(d->fit.batch_that_fits));
}

static json_t *batch(const struct hr__memory *m)
{
    json_t *list = json_array(), *whole;
    for (size_t i = 0; i < m->device_count; i++)
        json_array_append_new(list, device_batch(m, &m->devices[i]));
    whole = m->device_count ? device_batch(m, &m->devices[m->main_device]) : json_object();
    json_object_set_new(whole, "devices", list);
    return whole;
}

static json_t *check(const struct hr__memory *m)
{
    json_t *backward = json_object();
    uint64_t negative = 0;
    for (size_t i = 0; i < m->device_count; i++) {
        const struct hr__device_memory *d = &m->devices[i];
        char device_name[24];
        hr__memory_device_name(d->device, device_name, sizeof device_name);
        negative += d->timeline.negative + d->backward.negative;
        json_object_set_new(backward, device_name, integer(d->backward.peak_bytes));
    }
    return json_pack("{s:o, s:o}", "live_negative", integer(negative), "peak_backward_bytes",
                     backward);
}

int hr__memory_to_json(const struct hr__memory *m, const struct hr__record *record, char **out,
                       struct hr_error *error)
{
    json_t *devices = json_array();
    for (size_t i = 0; i < m->device_count; i++)
        json_array_append_new(devices, device(&m->devices[i], record));
    json_t *whole = json_pack(
        "{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o}", "headrace_memory", 1, "run",
        run(m, record), "devices", devices, "intervals", intervals(m, record), "pattern",
        pattern(m), "lifetimes", lifetimes(m, record), "advice", advice(m, record),
        "no_swap_advice", m->no_swap_advice, "batch", batch(m), "check", check(m), "odd",
        json_pack("{s:o, s:o, s:o, s:o}", "frees", integer(m->found.odd_frees), "allocations",
                  integer(m->found.odd_allocs), "refused", integer(m->found.failed),
                  "refused_bytes", integer(m->found.failed_bytes)));
    char *dumped = whole ? json_dumps(whole, JSON_COMPACT) : NULL;
    json_decref(whole);
    size_t length = dumped ? strlen(dumped) : 0;
    *out = dumped ? hr__alloc(HR__TAG_MEMORY, length + 2, 1) : NULL;
    if (*out) {
        memcpy(*out, dumped, length);
        (*out)[length] = '\n';
    }
    free(dumped);
    return *out ? 0 : hr__fail(error, -ENOMEM, "out of memory for a report");
}
