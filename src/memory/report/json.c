/*
 * Writes an analysis as JSON (docs/memory-format.md), for the page and for other programs. Times
 * are nanoseconds since the recording began, sizes are bytes. The JSON library escapes names from
 * programs and files; they are cut where they are not UTF-8.
 */
#include "memory/report/json.h"

#include "base/error.h"
#include "base/memory.h"
#include "memory/report/lines.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES_MOST      16   /* per stack */
#define FACTS_MOST      200  /* most facts written */
#define ITERATIONS_MOST 2000 /* most iterations written one by one */
#define DIFFERENT_MOST  200

/* Returns NULL only if out of memory, which json_object_set_new treats as a failure. */
json_t *hr__memory_json_text(const char *bytes)
{
    char safe[HR__LINE_BYTES];
    json_t *string = json_string(bytes);
    if (string)
        return string;
    hr__printable(safe, sizeof safe, bytes);
    return json_string(safe);
}

json_t *hr__memory_json_integer(uint64_t value)
{
    return json_integer((json_int_t)(value < INT64_MAX ? value : INT64_MAX));
}

json_t *hr__memory_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *hr__memory_json_name(const struct hr__record *record, uint32_t id)
{
    return id ? hr__memory_json_text(hr__record_name(record, id)) : json_null();
}

/* Starts with the user's innermost line, or with the innermost line if the user has none. */
static json_t *stack(const struct hr__record *record, uint32_t id)
{
    const struct hr_memory_frame *frames;
    size_t count = hr__lines_of_user(record, id, &frames);
    char line[HR__LINE_BYTES];
    json_t *list = json_array();
    for (size_t i = 0; i < count && i < LINES_MOST; i++)
        json_array_append_new(list, hr__memory_json_text(hr__line_text(record, &frames[i], line)));
    return list;
}

json_t *hr__memory_json_categories(const uint64_t bytes[HR__CATEGORIES])
{
    json_t *object = json_object();
    for (unsigned c = 0; c < HR__CATEGORIES; c++)
        if (bytes[c])
            json_object_set_new(object, hr__category_name(c), hr__memory_json_integer(bytes[c]));
    return object;
}

/* ---- parts ---- */

/* Writes the record's facts about its run, except notes, which are sentences. */
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
        json_t *key = hr__memory_json_text(fact_name);
        if (key)
            json_object_set_new(object, json_string_value(key), hr__memory_json_text(value + 1));
        json_decref(key);
    }
    return object;
}

static json_t *notes(const struct hr__memory *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->note_count; i++)
        json_array_append_new(list, hr__memory_json_text(m->notes[i]));
    return list;
}

static json_t *run(const struct hr__memory *m, const struct hr__record *record)
{
    const char *allocations = hr__record_fact(record, "allocations");
    json_t *damage = m->damage.extents
                         ? json_pack("{s:s, s:o, s:o, s:o}", "what", m->damage.what, "offset",
                                     hr__memory_json_integer(m->damage.first_at), "bytes",
                                     hr__memory_json_integer(m->damage.lost_bytes), "pieces",
                                     hr__memory_json_integer(m->damage.extents))
                         : json_null();
    return json_pack(
        "{s:I, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, "
        "s:o}",
        "pid", (json_int_t)m->about.pid, "start_unix_ns",
        hr__memory_json_integer(m->about.start_unix_ns), "ended", m->about.is_ended, "problem",
        m->about.problem ? hr__memory_json_text(hr__errno_text(m->about.problem)) : json_null(),
        "events", hr__memory_json_integer(m->found.events), "accesses",
        hr__memory_json_integer(m->found.accesses), "lost", hr__memory_json_integer(m->about.lost),
        "threads", hr__memory_json_integer(m->about.threads), "bytes",
        hr__memory_json_integer(m->about.bytes), "begin_ns",
        hr__memory_json_integer(m->found.begin_ns), "end_ns",
        hr__memory_json_integer(m->found.end_ns), "facts", facts(record), "damage", damage,
        "allocations", allocations ? hr__memory_json_text(allocations) : json_null(), "clock",
        m->is_device_clock ? "device" : "host", "notes", notes(m));
}

json_t *hr__memory_json_timeline(const struct hr__timeline *t)
{
    json_t *times = json_array(), *series = json_object();
    for (size_t i = 0; i < t->count; i++)
        json_array_append_new(times, hr__memory_json_integer(t->points[i].time_ns));
    for (unsigned c = 0; c < HR__CATEGORIES; c++) {
        uint64_t any = 0;
        json_t *list = json_array();
        for (size_t i = 0; i < t->count; i++) {
            any |= t->points[i].bytes[c];
            json_array_append_new(list, hr__memory_json_integer(t->points[i].bytes[c]));
        }
        if (any)
            json_object_set_new(series, hr__category_name(c), list);
        else
            json_decref(list);
    }
    return json_pack("{s:o, s:o}", "ns", times, "bytes", series);
}

json_t *hr__memory_json_parts(const struct hr__device_memory *d, const struct hr__record *record)
{
    json_t *list = json_array();
    for (size_t i = 0; i < d->part_count; i++)
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:o}", "part",
                                        hr__memory_json_name(record, d->parts[i].part), "blocks",
                                        hr__memory_json_integer(d->parts[i].blocks), "bytes",
                                        hr__memory_json_categories(d->parts[i].bytes)));
    return list;
}

json_t *hr__memory_json_fragmentation(const struct hr__segments *s)
{
    if (!s->is_known)
        return json_null();
    json_t *times = json_array(), *reserved = json_array(), *allocated = json_array();
    for (size_t i = 0; i < s->point_count; i++) {
        json_array_append_new(times, hr__memory_json_integer(s->points[i].time_ns));
        json_array_append_new(reserved, hr__memory_json_integer(s->points[i].reserved_bytes));
        json_array_append_new(allocated, hr__memory_json_integer(s->points[i].allocated_bytes));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:{s:o, s:o, s:o}}", "ns",
                     hr__memory_json_integer(s->most.time_ns), "reserved_bytes",
                     hr__memory_json_integer(s->most.reserved_bytes), "allocated_bytes",
                     hr__memory_json_integer(s->most.allocated_bytes), "largest_free_bytes",
                     hr__memory_json_integer(s->largest_free_bytes), "segments",
                     hr__memory_json_integer(s->count), "unusable_bytes",
                     hr__memory_json_integer(s->unusable_bytes), "timeline", "ns", times,
                     "reserved", reserved, "allocated", allocated);
}

static json_t *groups(const struct hr__device_memory *d, const struct hr__record *record)
{
    json_t *list = json_array();
    for (size_t i = 0; i < d->group_count; i++) {
        const struct hr__peak_group *g = &d->groups[i];
        json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "category",
                                              hr__category_name(g->category), "blocks",
                                              hr__memory_json_integer(g->blocks), "bytes",
                                              hr__memory_json_integer(g->bytes), "operator",
                                              hr__memory_json_name(record, g->op), "what",
                                              hr__memory_json_name(record, g->name), "stack",
                                              stack(record, g->stack)));
    }
    return list;
}

static json_t *device(const struct hr__device_memory *d, const struct hr__record *record)
{
    char device_name[HR__DEVICE_NAME_BYTES];
    hr__device_name(d->device, device_name);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "device",
                     device_name, "blocks", hr__memory_json_integer(d->blocks), "bytes_allocated",
                     hr__memory_json_integer(d->bytes_allocated), "peak_bytes",
                     hr__memory_json_integer(d->timeline.peak_bytes), "peak_ns",
                     hr__memory_json_integer(d->timeline.peak.time_ns), "end_bytes",
                     hr__memory_json_integer(d->timeline.end_bytes), "peak",
                     hr__memory_json_categories(d->timeline.peak.bytes), "peak_blocks",
                     groups(d, record), "other_bytes", hr__memory_json_integer(d->other_bytes),
                     "timeline", hr__memory_json_timeline(&d->timeline), "parts",
                     hr__memory_json_parts(d, record), "fragmentation",
                     hr__memory_json_fragmentation(&d->segments));
}

static json_t *quantiles(const struct hr__intervals *i, int behaviour)
{
    json_t *object = json_object();
    for (size_t k = 0; k < HR__QUANTILES; k++)
        json_object_set_new(
            object, hr__quantiles[k].name,
            hr__memory_json_real(hr__intervals_quantile(i, behaviour, hr__quantiles[k].share)));
    return object;
}

static json_t *interval(const struct hr__interval_of *o, const struct hr__memory *m,
                        const struct hr__record *record)
{
    return json_pack("{s:o, s:o, s:o, s:s, s:s, s:o, s:o}", "begin_ns",
                     hr__memory_json_integer(o->begin_ns), "ns", hr__memory_json_integer(o->ns),
                     "bytes", hr__memory_json_integer(o->bytes), "behaviour",
                     hr__behaviour_name(o->behaviour), "category",
                     hr__category_name(m->found.blocks[o->block].category), "operator",
                     hr__memory_json_name(record, o->op), "what",
                     hr__memory_json_name(record, m->found.blocks[o->block].name));
}

json_t *hr__memory_json_behaviours(const struct hr__intervals *i)
{
    json_t *of = json_object();
    for (int b = 0; b < HR__BEHAVIOURS; b++) {
        json_t *bins = json_array();
        for (int k = 0; k < HR__ATI_BINS; k++)
            if (i->of[b].bins[k])
                json_array_append_new(
                    bins, json_pack("[o, o]", hr__memory_json_real(exp2((double)k / HR__ATI_PARTS)),
                                    hr__memory_json_integer(i->of[b].bins[k])));
        json_object_set_new(of, hr__behaviour_name(b),
                            json_pack("{s:o, s:o, s:o, s:o, s:o}", "count",
                                      hr__memory_json_integer(i->of[b].count), "sum_ns",
                                      hr__memory_json_integer(i->of[b].sum_ns), "longest_ns",
                                      hr__memory_json_integer(i->of[b].longest_ns), "quantiles_ns",
                                      quantiles(i, b), "bins", bins));
    }
    return of;
}

json_t *hr__memory_json_outliers(const struct hr__memory *m, const struct hr__record *record)
{
    json_t *list = json_array();
    for (size_t k = 0; k < m->intervals.outlier_count; k++)
        json_array_append_new(list, interval(&m->intervals.outliers[k], m, record));
    return list;
}

json_t *hr__memory_json_scatter(const struct hr__intervals *i)
{
    json_t *list = json_array();
    for (size_t k = 0; k < i->scatter_count; k++)
        json_array_append_new(list,
                              json_pack("[o, o, i]", hr__memory_json_integer(i->scatter[k].ns),
                                        hr__memory_json_integer(i->scatter[k].bytes),
                                        (int)i->scatter[k].behaviour));
    return list;
}

static json_t *intervals(const struct hr__memory *m, const struct hr__record *record)
{
    const struct hr__intervals *i = &m->intervals;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "count",
                     hr__memory_json_integer(hr__intervals_count(i)), "left_out",
                     hr__memory_json_integer(i->left_out), "h2d_bytes_per_s",
                     hr__memory_json_real(i->h2d_bytes_per_s), "d2h_bytes_per_s",
                     hr__memory_json_real(i->d2h_bytes_per_s), "probe_ns",
                     hr__memory_json_real(i->probe_ns), "swappable",
                     hr__memory_json_integer(i->swappable), "quantiles_ns", quantiles(i, -1), "of",
                     hr__memory_json_behaviours(i), "outliers", hr__memory_json_outliers(m, record),
                     "scatter", hr__memory_json_scatter(i));
}

static json_t *pattern(const struct hr__memory *m)
{
    const struct hr__period *p = &m->period;
    json_t *odd = json_array(), *begins = json_array(), *lengths = json_array();
    json_t *blocks = json_array(), *peaks = json_array();
    for (size_t k = 0; k < p->count; k++) {
        const struct hr__iteration *one = &p->iterations[k];
        if (k < ITERATIONS_MOST) {
            json_array_append_new(begins, hr__memory_json_integer(one->begin_ns));
            json_array_append_new(lengths, hr__memory_json_integer(one->end_ns - one->begin_ns));
            json_array_append_new(blocks, hr__memory_json_integer(one->blocks));
            json_array_append_new(peaks, hr__memory_json_integer(one->peak_bytes));
        }
        if (p->behaviours && !one->is_same && json_array_size(odd) < DIFFERENT_MOST)
            json_array_append_new(
                odd, json_pack("{s:o, s:o, s:o, s:o}", "iteration", hr__memory_json_integer(k),
                               "begin_ns", hr__memory_json_integer(one->begin_ns), "behaviours",
                               hr__memory_json_integer(one->end - one->begin), "differs_at",
                               hr__memory_json_integer(one->differs_at - one->begin)));
    }
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "behaviours",
        hr__memory_json_integer(p->behaviours), "iterations", hr__memory_json_integer(p->count),
        "same", hr__memory_json_integer(p->same), "marked",
        hr__memory_json_integer(m->found.iterations), "by_marks", p->by_marks, "iteration_ns",
        p->count ? hr__memory_json_integer(m->iteration_ns) : json_null(), "blocks",
        p->count ? hr__memory_json_integer(m->iteration_blocks) : json_null(), "begins_ns", begins,
        "lengths_ns", lengths, "blocks_each", blocks, "peak_bytes_each", peaks, "different", odd);
}

json_t *hr__memory_json_drawn_iterations(const struct hr__memory *m)
{
    json_t *rounds = json_array();
    for (size_t k = 0; k < m->drawn_rounds; k++) {
        const struct hr__iteration *one = &m->period.iterations[m->drawn_first + k];
        json_array_append_new(rounds, json_pack("{s:o, s:o, s:b}", "begin_ns",
                                                hr__memory_json_integer(one->begin_ns), "end_ns",
                                                hr__memory_json_integer(one->end_ns), "same",
                                                one->is_same));
    }
    return rounds;
}

static json_t *lifetimes(const struct hr__memory *m, const struct hr__record *record)
{
    json_t *blocks = json_array(), *accesses = json_array();
    for (size_t k = 0; k < m->drawn_count; k++) {
        const struct hr__block *b = &m->found.blocks[m->drawn[k]];
        char device_name[HR__DEVICE_NAME_BYTES];
        hr__device_name(b->device, device_name);
        json_array_append_new(
            blocks, json_pack("{s:o, s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "alloc_ns",
                              hr__memory_json_integer(b->alloc_ns), "free_ns",
                              b->free_ns == HR__STILL_LIVE ? json_null()
                                                           : hr__memory_json_integer(b->free_ns),
                              "bytes", hr__memory_json_integer(b->bytes), "category",
                              hr__category_name(b->category), "device", device_name, "operator",
                              hr__memory_json_name(record, b->first_op), "what",
                              hr__memory_json_name(record, b->name), "part",
                              hr__memory_json_name(record, b->part), "reads",
                              hr__memory_json_integer(b->reads), "writes",
                              hr__memory_json_integer(b->writes)));
    }
    for (size_t k = 0; k < m->access_count; k++)
        json_array_append_new(accesses, json_pack("[o, o, i, o]",
                                                  hr__memory_json_integer(m->accesses[k].drawn),
                                                  hr__memory_json_integer(m->accesses[k].time_ns),
                                                  m->accesses[k].kind == HR_MEMORY_WRITE,
                                                  hr__memory_json_name(record, m->accesses[k].op)));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:b}", "begin_ns",
                     hr__memory_json_integer(m->drawn_begin_ns), "end_ns",
                     hr__memory_json_integer(m->drawn_end_ns), "iterations",
                     hr__memory_json_drawn_iterations(m), "blocks", blocks, "accesses", accesses,
                     "cut", m->access_count == HR__MARKS_MOST);
}

static json_t *advice(const struct hr__memory *m, const struct hr__record *record)
{
    json_t *list = json_array();
    for (size_t k = 0; k < m->advice_count; k++) {
        const struct hr__advice *a = &m->advice[k];
        const struct hr__block *b = &m->found.blocks[a->block];
        char device_name[HR__DEVICE_NAME_BYTES];
        hr__device_name(b->device, device_name);
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o}", "kind",
                      hr__advice_name(a->kind), "device", device_name, "blocks",
                      hr__memory_json_integer(a->blocks), "bytes",
                      hr__memory_json_integer(a->bytes), "begin_ns",
                      hr__memory_json_integer(a->begin_ns), "ns", hr__memory_json_integer(a->ns),
                      "cost_ns", hr__memory_json_real(a->cost_ns), "category",
                      hr__category_name(b->category), "operator",
                      hr__memory_json_name(record, b->first_op), "what",
                      hr__memory_json_name(record, b->name), "stack", stack(record, b->stack)));
    }
    return list;
}

/* Writes the contents of a device's peak and the batch size that fits. */
static json_t *device_batch(const struct hr__memory *m, const struct hr__device_memory *d)
{
    char device_name[HR__DEVICE_NAME_BYTES];
    hr__device_name(d->device, device_name);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "device", device_name, "size",
                     hr__memory_json_real(m->batch_size), "fixed_bytes",
                     hr__memory_json_real(d->point.fixed_bytes), "varying_bytes",
                     hr__memory_json_real(d->point.varying_bytes), "bytes_per_sample",
                     hr__memory_json_real(d->fit.bytes_per_sample), "capacity_bytes",
                     hr__memory_json_real(d->capacity_bytes), "that_fits",
                     hr__memory_json_real(d->fit.batch_that_fits));
}

json_t *hr__memory_json_batch(const struct hr__memory *m)
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
        char device_name[HR__DEVICE_NAME_BYTES];
        hr__device_name(d->device, device_name);
        negative += d->timeline.negative + d->backward.negative;
        json_object_set_new(backward, device_name, hr__memory_json_integer(d->backward.peak_bytes));
    }
    return json_pack("{s:o, s:o}", "live_negative", hr__memory_json_integer(negative),
                     "peak_backward_bytes", backward);
}

char *hr__memory_json_dump(json_t *whole)
{
    char *dumped = whole ? json_dumps(whole, JSON_COMPACT) : NULL;
    json_decref(whole);
    size_t length = dumped ? strlen(dumped) : 0;
    char *text = dumped ? hr__alloc(HR__TAG_MEMORY, length + 2, 1) : NULL;
    if (text) {
        memcpy(text, dumped, length);
        text[length] = '\n';
    }
    free(dumped);
    return text;
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
        "no_swap_advice", m->no_swap_advice, "batch", hr__memory_json_batch(m), "check", check(m),
        "odd",
        json_pack("{s:o, s:o, s:o, s:o}", "frees", hr__memory_json_integer(m->found.odd_frees),
                  "allocations", hr__memory_json_integer(m->found.odd_allocs), "refused",
                  hr__memory_json_integer(m->found.failed), "refused_bytes",
                  hr__memory_json_integer(m->found.failed_bytes)));
    *out = hr__memory_json_dump(whole);
    return *out ? 0 : hr__fail(error, -ENOMEM, "out of memory for a report");
}
