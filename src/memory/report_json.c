/*
 * An analysis as JSON (docs/memory-format.md): what the page draws, and what other programs
 * read. Times are nanoseconds since the recording began, sizes bytes. Names that programs and
 * files gave are escaped by the JSON library, and cut where they are no UTF-8.
 */
#include "memory/report_json.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (device)
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

static json_t *stack(const struct hr__record *record, uint32_t id)
{
    const struct hr_memory_frame *frames;
    size_t count = hr__record_stack(record, id, &frames);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        char line[1024];
        snprintf(line, sizeof line, "%s:%u %s", hr__record_name(record, frames[i].file),
                 frames[i].line, hr__record_name(record, frames[i].function));
        json_array_append_new(list, text(line));
    }
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

static json_t *run(const struct hr__memory *m, const struct hr__record *record)
{
    json_t *facts = json_object();
    static const char *const told[] = {"command", "torch",          "batch size",
                                       "model",   "capacity bytes", "recorded"};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        const char *value = hr__record_fact(record, told[i]);
        if (value)
            json_object_set_new(facts, told[i], text(value));
    }
    json_t *damage = m->damage.extents ? json_pack("{s:s, s:o, s:o, s:o}", "what", m->damage.what,
                                                   "offset", integer(m->damage.first_at), "bytes",
                                                   integer(m->damage.lost_bytes), "pieces",
                                                   integer(m->damage.extents))
                                       : json_null();
    return json_pack("{s:I, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "pid",
                     (json_int_t)m->about.pid, "start_unix_ns", integer(m->about.start_unix_ns),
                     "ended", m->about.is_ended, "problem",
                     m->about.problem ? text(hr__errno_text(m->about.problem)) : json_null(),
                     "events", integer(m->found.events), "accesses", integer(m->found.accesses),
                     "lost", integer(m->about.lost), "threads", integer(m->about.threads), "bytes",
                     integer(m->about.bytes), "begin_ns", integer(m->found.begin_ns), "end_ns",
                     integer(m->found.end_ns), "facts", facts, "damage", damage);
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

static json_t *device(const struct hr__device_memory *d, const struct hr__record *record)
{
    char device_name[24];
    json_t *groups = json_array();
    for (size_t i = 0; i < d->group_count; i++) {
        const struct hr__peak_group *g = &d->groups[i];
        json_array_append_new(
            groups, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "category",
                              hr__memory_category_name(g->category), "blocks", integer(g->blocks),
                              "bytes", integer(g->bytes), "operator", name(record, g->op), "what",
                              name(record, g->name), "stack", stack(record, g->stack)));
    }
    hr__memory_device_name(d->device, device_name, sizeof device_name);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "device", device_name,
                     "blocks", integer(d->blocks), "bytes_allocated", integer(d->bytes_allocated),
                     "peak_bytes", integer(d->timeline.peak_bytes), "peak_ns",
                     integer(d->timeline.peak.time_ns), "end_bytes", integer(d->timeline.end_bytes),
                     "peak", categories(d->timeline.peak.bytes), "peak_blocks", groups,
                     "other_bytes", integer(d->other_bytes), "timeline", timeline(&d->timeline));
}

static json_t *quantiles(const struct hr__intervals *i, int behaviour)
{
    static const struct {
        const char *name;
        double share;
    } wanted[] = {{"p10", 0.1},  {"p25", 0.25}, {"p50", 0.5},
                  {"p75", 0.75}, {"p90", 0.9},  {"p99", 0.99}};
    json_t *object = json_object();
    for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++)
        json_object_set_new(object, wanted[k].name,
                            real(hr__intervals_quantile(i, behaviour, wanted[k].share)));
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
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "count", integer(count),
                     "h2d_bytes_per_s", real(i->h2d_bytes_per_s), "d2h_bytes_per_s",
                     real(i->d2h_bytes_per_s), "probe_ns", real(i->probe_ns), "swappable",
                     integer(i->swappable), "quantiles_ns", quantiles(i, -1), "of", of, "outliers",
                     outliers, "scatter", scatter);
}

static json_t *pattern(const struct hr__memory *m)
{
    const struct hr__period *p = &m->period;
    json_t *odd = json_array(), *lengths = json_array();
    for (size_t k = 0; k < p->count; k++) {
        const struct hr__iteration *one = &p->iterations[k];
        if (k < 2000)
            json_array_append_new(lengths, integer(one->end_ns - one->begin_ns));
        if (!one->is_same && json_array_size(odd) < 200)
            json_array_append_new(odd, json_pack("{s:o, s:o, s:o, s:o}", "iteration", integer(k),
                                                 "begin_ns", integer(one->begin_ns), "behaviours",
                                                 integer(one->end - one->begin), "differs_at",
                                                 integer(one->differs_at - one->begin)));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "behaviours", integer(p->behaviours),
                     "iterations", integer(p->count), "same", integer(p->same), "marked",
                     integer(m->found.iterations), "lengths_ns", lengths, "different", odd);
}

static json_t *lifetimes(const struct hr__memory *m, const struct hr__record *record)
{
    json_t *blocks = json_array(), *accesses = json_array();
    for (size_t k = 0; k < m->drawn_count; k++) {
        const struct hr__block *b = &m->found.blocks[m->drawn[k]];
        char device_name[24];
        hr__memory_device_name(b->device, device_name, sizeof device_name);
        json_array_append_new(
            blocks, json_pack("{s:o, s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o}", "alloc_ns",
                              integer(b->alloc_ns), "free_ns",
                              b->free_ns == HR__STILL_LIVE ? json_null() : integer(b->free_ns),
                              "bytes", integer(b->bytes), "category",
                              hr__memory_category_name(b->category), "device", device_name,
                              "operator", name(record, b->first_op), "what", name(record, b->name),
                              "reads", integer(b->reads), "writes", integer(b->writes)));
    }
    for (size_t k = 0; k < m->access_count; k++)
        json_array_append_new(accesses, json_pack("[o, o, i, o]", integer(m->accesses[k].drawn),
                                                  integer(m->accesses[k].time_ns),
                                                  m->accesses[k].kind == HR_MEMORY_WRITE,
                                                  name(record, m->accesses[k].op)));
    return json_pack("{s:o, s:o, s:o, s:o, s:b}", "begin_ns", integer(m->drawn_begin_ns), "end_ns",
                     integer(m->drawn_end_ns), "blocks", blocks, "accesses", accesses, "cut",
                     m->access_count == HR__MARKS_MOST);
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

static json_t *batch(const struct hr__memory *m)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "size", real(m->batch_size), "fixed_bytes",
                     real(m->fixed_bytes), "bytes_per_sample", real(m->bytes_per_sample),
                     "capacity_bytes", real(m->capacity_bytes), "that_fits",
                     real(m->batch_that_fits));
}

int hr__memory_to_json(const struct hr__memory *m, const struct hr__record *record, char **out,
                       struct hr_error *error)
{
    json_t *devices = json_array();
    for (size_t i = 0; i < m->device_count; i++)
        json_array_append_new(devices, device(&m->devices[i], record));
    json_t *whole = json_pack(
        "{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o}", "headrace_memory", 1, "run",
        run(m, record), "devices", devices, "intervals", intervals(m, record), "pattern",
        pattern(m), "lifetimes", lifetimes(m, record), "advice", advice(m, record),
        "no_swap_advice", m->no_swap_advice, "batch", batch(m), "odd",
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
