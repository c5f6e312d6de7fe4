/*
 * Converts Kineto traces to records. [memory] events are allocations and frees. The operators and
 * Python functions around an event, on its thread, become its stack, and modules its part of the
 * model. The category of a block follows from the phases in which it is allocated and freed.
 *
 * Each event also reports the total allocated. From the first one, minus its own bytes, follows
 * what existed before the trace began. Blocks among these that the trace frees have known
 * addresses; the rest is represented by one block without an address of its own. From then on the
 * sum of the events is compared with the totals they report.
 */
#include "memory/import/import.h"

#include "base/error.h"
#include "base/memory.h"
#include "memory/import/kineto_trace.h"
#include "memory/import/places.h"
#include "memory/record/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPEN_MOST  4096        /* nested ranges */
#define UNKNOWN_AT UINT64_C(1) /* stands for the blocks from before at unknown addresses */

/* The meaning of a range, by its name and kind. */
struct meaning {
    struct hr_memory_frame frame;
    const char *module; /* "Linear_0"; NULL: no module */
    uint8_t is_known, has_frame, is_operator, is_backward, is_optimizer, is_loading;
};

/* The context of a memory event. */
struct context {
    uint32_t stack, part;
    uint8_t phase, is_loading;
    uint8_t category; /* of the block it allocates */
};

struct mark {
    int64_t time_ns;
    uint64_t number;
};

/* Totals of a device. */
struct kineto_totals {
    int is_begun;
    int64_t before, live;   /* bytes: before the first event; live according to the events */
    uint64_t known_before;  /* part of `before` that the trace frees */
    uint64_t events, wrong; /* events with a total; those with a wrong one */
    int64_t wrong_ns, wrong_live, wrong_total; /* of the first wrong total */
};

struct importer {
    struct hr__import *im;
    struct hr__kineto k;
    struct meaning *meanings;
    struct context *contexts; /* by memory event */
    uint32_t open[OPEN_MOST]; /* open ranges, innermost last */
    size_t open_count;
    struct mark *marks;
    size_t mark_count;
    struct hr__memory_places places;
    struct kineto_totals totals[HR__IMPORT_DEVICES_MOST];
    struct hr_memory_event *before; /* blocks from before that the trace frees */
    size_t before_count;
    uint64_t left_out;
};

static int starts(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* ---- meanings of ranges ---- */

/* Parses "FILE(LINE): FUNCTION"; 0: no match. */
static int python_frame(struct importer *it, const char *name, struct hr_memory_frame *frame)
{
    char file[1024];
    const char *end = strstr(name, "): "), *open = end;
    while (open && open > name && *open != '(')
        open--;
    if (!open || open == name || (size_t)(open - name) >= sizeof file || open[1] < '0' ||
        open[1] > '9')
        return 0;
    memcpy(file, name, (size_t)(open - name));
    file[open - name] = 0;
    *frame = (struct hr_memory_frame){.file = hr__import_name(it->im, file),
                                      .function = hr__import_name(it->im, end + 3),
                                      .line = (uint32_t)strtoul(open + 1, NULL, 10)};
    return 1;
}

static const struct meaning *meaning_of(struct importer *it, const struct hr__kineto_range *range)
{
    static const char module[] = "nn.Module: ";
    struct meaning *m = &it->meanings[(size_t)(range->name - 1) * 3 + range->kind];
    const char *name = it->k.names[range->name - 1];
    if (m->is_known)
        return m;
    m->is_known = 1;
    m->is_optimizer = range->kind != HR__KINETO_PYTHON && starts(name, "Optimizer.");
    m->is_loading = range->kind == HR__KINETO_ANNOTATION && starts(name, "enumerate(DataLoader)");
    m->is_operator = range->kind == HR__KINETO_OPERATOR;
    m->is_backward = m->is_operator && starts(name, "autograd::engine::evaluate_function");
    if (range->kind == HR__KINETO_PYTHON && starts(name, module))
        m->module = name + sizeof module - 1;
    else if (range->kind == HR__KINETO_PYTHON)
        m->has_frame = (uint8_t)python_frame(it, name, &m->frame);
    if (m->is_operator) {
        m->frame.function = hr__import_name(it->im, name);
        m->has_frame = 1;
    }
    return m;
}

/* Joins the modules around an allocation, outermost first: "Net_0.Linear_1". */
static uint32_t part_of(struct importer *it, int64_t time_ns)
{
    char part[512] = "";
    size_t length = 0;
    for (size_t i = 0; i < it->open_count; i++) {
        const struct hr__kineto_range *range = &it->k.ranges[it->open[i]];
        const struct meaning *m = meaning_of(it, range);
        if (!m->module || range->end_ns < time_ns)
            continue;
        int n = snprintf(part + length, sizeof part - length, length ? ".%s" : "%s", m->module);
        if (n < 0 || (size_t)n >= sizeof part - length)
            break;
        length += (size_t)n;
    }
    return hr__import_name(it->im, part);
}

static struct context context_of(struct importer *it, int64_t time_ns)
{
    struct hr_memory_frame frames[HR__IMPORT_FRAMES_MOST];
    unsigned backward = 0, optimizer = 0, loading = 0, operators = 0;
    size_t n = 0;
    for (size_t i = it->open_count; i-- > 0;) {
        const struct hr__kineto_range *range = &it->k.ranges[it->open[i]];
        /* Times are rounded: an ended range may be below one still open. */
        if (range->end_ns < time_ns)
            continue;
        const struct meaning *m = meaning_of(it, range);
        backward |= m->is_backward;
        optimizer |= m->is_optimizer;
        loading |= m->is_loading;
        operators |= m->is_operator;
        if (m->has_frame && n < HR__IMPORT_FRAMES_MOST)
            frames[n++] = m->frame;
    }
    return (struct context){
        .stack = hr_memory_stack(it->im->recorder, frames, n),
        .part = part_of(it, time_ns),
        .phase = optimizer               ? HR_MEMORY_OPTIMIZER
                 : backward              ? HR_MEMORY_BACKWARD
                 : operators && !loading ? HR_MEMORY_FORWARD
                                         : HR_MEMORY_OUTSIDE,
        .is_loading = loading != 0,
    };
}

/* ---- going through a thread ---- */

static void open_range(struct importer *it, uint32_t index)
{
    int64_t begin_ns = it->k.ranges[index].begin_ns;
    while (it->open_count && it->k.ranges[it->open[it->open_count - 1]].end_ns <= begin_ns)
        it->open_count--;
    if (it->open_count < OPEN_MOST)
        it->open[it->open_count++] = index;
}

/* A memory event and its thread, for sorting. */
struct by_thread {
    uint64_t thread;
    size_t event;
};

static int compare_by_thread(const void *a, const void *b)
{
    const struct by_thread *x = a, *y = b;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    return x->event < y->event ? -1 : x->event > y->event;
}

/* Finds the contexts of all memory events: per thread, opens its ranges up to each event. */
static int find_contexts(struct importer *it)
{
    const struct hr__kineto *k = &it->k;
    size_t next = 0;
    struct by_thread *events = hr__alloc(HR__TAG_MEMORY, k->memory_count, sizeof *events);
    if (!events)
        return -ENOMEM;
    for (size_t i = 0; i < k->memory_count; i++)
        events[i] = (struct by_thread){k->memory[i].thread, i};
    qsort(events, k->memory_count, sizeof *events, compare_by_thread);
    for (size_t i = 0; i < k->memory_count; i++) {
        int64_t time_ns = k->memory[events[i].event].time_ns;
        if (!i || events[i].thread != events[i - 1].thread)
            it->open_count = 0;
        while (next < k->range_count && k->ranges[next].thread < events[i].thread)
            next++;
        for (; next < k->range_count && k->ranges[next].thread == events[i].thread &&
               k->ranges[next].begin_ns <= time_ns;
             next++)
            open_range(it, (uint32_t)next);
        it->contexts[events[i].event] = context_of(it, time_ns);
    }
    hr__free(events);
    return 0;
}

/* ---- categories of blocks ---- */

/* Finds the categories of all blocks that the trace allocates. A place's `mark` means that its
 * block was allocated here, by event number `bytes`. */
static int find_categories(struct importer *it)
{
    const struct hr__kineto *k = &it->k;
    struct hr__memory_places places = {.table = NULL};
    uint32_t *passes = hr__alloc(HR__TAG_MEMORY, k->memory_count, sizeof *passes), pass = 0;
    int code = passes ? 0 : -ENOMEM, was_backward = 0;
    for (size_t i = 0; i < k->memory_count && !code; i++) {
        const struct hr__kineto_memory *event = &k->memory[i];
        struct context *context = &it->contexts[i];
        int is_backward = context->phase == HR_MEMORY_BACKWARD;
        pass += is_backward && !was_backward;
        /* Between two operators of a pass the phase is unknown: keep the previous one. */
        was_backward = context->phase == HR_MEMORY_OUTSIDE ? was_backward : is_backward;
        passes[i] = pass;
        if (event->is_refused || event->device >= HR__IMPORT_DEVICES_MOST)
            continue;
        struct hr__memory_place *place = hr__places_find(&places, event->device, event->address);
        if (!place) {
            code = -ENOMEM;
        } else if (event->bytes > 0) {
            place->mark = 1;
            place->bytes = i;
            context->category = context->is_loading
                                    ? HR_MEMORY_INPUT
                                    : hr__import_category(context->phase, HR__IMPORT_NEVER, 0);
        } else if (place->mark) {
            struct context *made = &it->contexts[place->bytes];
            place->mark = 0;
            if (!made->is_loading)
                made->category =
                    hr__import_category(made->phase, context->phase, passes[place->bytes] == pass);
        }
    }
    hr__places_clear(&places);
    hr__free(passes);
    return code;
}

/* ---- iterations ---- */

static int compare_marks(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;
    if (x->time_ns != y->time_ns)
        return x->time_ns < y->time_ns ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Iterations begin with the profiler's steps; without these, they end with the optimizer's. */
static int find_marks(struct importer *it)
{
    static const char step[] = "ProfilerStep#", optimizer[] = "Optimizer.step";
    const struct hr__kineto *k = &it->k;
    size_t steps = 0, ends = 0;
    for (size_t i = 0; i < k->range_count; i++) {
        const char *name = k->names[k->ranges[i].name - 1];
        steps += k->ranges[i].kind != HR__KINETO_PYTHON && starts(name, step);
        ends += k->ranges[i].kind != HR__KINETO_PYTHON && starts(name, optimizer);
    }
    it->marks = hr__alloc(HR__TAG_MEMORY, steps + ends + 1, sizeof *it->marks);
    if (!it->marks)
        return -ENOMEM;
    for (size_t i = 0; i < k->range_count; i++) {
        const struct hr__kineto_range *range = &k->ranges[i];
        const char *name = k->names[range->name - 1];
        if (range->kind == HR__KINETO_PYTHON || !starts(name, steps ? step : optimizer))
            continue;
        it->marks[it->mark_count] = (struct mark){
            .time_ns = steps ? range->begin_ns : range->end_ns,
            .number = steps ? strtoull(name + sizeof step - 1, NULL, 10) : it->mark_count + 1,
        };
        it->mark_count++;
    }
    if (it->mark_count)
        qsort(it->marks, it->mark_count, sizeof *it->marks, compare_marks);
    return 0;
}

/* ---- blocks from before the trace, and totals ---- */

static void check_total(struct importer *it, const struct hr__kineto_memory *event)
{
    struct kineto_totals *t = &it->totals[event->device];
    if (!t->is_begun) {
        t->is_begun = 1;
        t->before =
            event->total >= event->bytes && event->total >= 0 ? event->total - event->bytes : 0;
        t->live = t->before;
    }
    if (__builtin_add_overflow(t->live, event->bytes, &t->live))
        t->live = 0;
    if (event->total < 0)
        return;
    t->events++;
    if (t->live != event->total && !t->wrong++) {
        t->wrong_ns = event->time_ns;
        t->wrong_live = t->live;
        t->wrong_total = event->total;
    }
}

static int survey(struct importer *it)
{
    const struct hr__kineto *k = &it->k;
    it->before = hr__alloc(HR__TAG_MEMORY, k->memory_count, sizeof *it->before);
    if (!it->before)
        return -ENOMEM;
    for (size_t i = 0; i < k->memory_count; i++) {
        const struct hr__kineto_memory *event = &k->memory[i];
        if (event->device >= HR__IMPORT_DEVICES_MOST) {
            it->left_out++;
            continue;
        }
        if (event->is_refused)
            continue;
        check_total(it, event);
        struct hr__memory_place *place =
            hr__places_find(&it->places, event->device, event->address);
        if (!place)
            return -ENOMEM;
        if (event->bytes < 0 && !place->is_known) {
            uint64_t bytes = (uint64_t)-event->bytes;
            it->totals[event->device].known_before += bytes;
            it->before[it->before_count++] = (struct hr_memory_event){
                .kind = HR_MEMORY_PRESENT,
                .address = event->address,
                .bytes = bytes,
                .device = event->device,
            };
        }
        place->is_known = 1;
    }
    return 0;
}

/* ---- recording ---- */

static void record_before(struct importer *it)
{
    for (size_t i = 0; i < it->before_count; i++)
        hr__import_record(it->im, it->before[i]);
    uint32_t name = hr__import_name(it->im, "from before the trace");
    for (uint8_t device = 0; device < HR__IMPORT_DEVICES_MOST; device++) {
        const struct kineto_totals *t = &it->totals[device];
        if (t->before <= 0 || (uint64_t)t->before <= t->known_before)
            continue;
        struct hr_memory_event event = {
            .kind = HR_MEMORY_PRESENT,
            .address = UNKNOWN_AT,
            .bytes = (uint64_t)t->before - t->known_before,
            .device = device,
        };
        hr__import_record(it->im, event);
        event.kind = HR_MEMORY_DESCRIBE;
        event.what = name;
        event.bytes = 0;
        hr__import_record(it->im, event);
    }
}

static uint64_t ns_of(const struct importer *it, int64_t time_ns)
{
    int64_t first = it->k.memory[0].time_ns;
    return time_ns > first ? (uint64_t)(time_ns - first) + 1 : 1;
}

static void record_memory(struct importer *it, size_t i)
{
    const struct hr__kineto_memory *memory = &it->k.memory[i];
    const struct context *context = &it->contexts[i];
    int is_alloc = !memory->is_refused && memory->bytes > 0;
    struct hr_memory_event event = {
        .time_ns = ns_of(it, memory->time_ns),
        .address = memory->address,
        .bytes = (uint64_t)(memory->bytes < 0 ? -memory->bytes : memory->bytes),
        .what = memory->bytes > 0 ? context->stack : 0,
        .kind = memory->is_refused ? HR_MEMORY_FAILED
                : is_alloc         ? HR_MEMORY_ALLOC
                                   : HR_MEMORY_FREE,
        .phase = context->phase,
        .device = memory->device,
    };
    if (memory->device >= HR__IMPORT_DEVICES_MOST)
        return;
    hr__import_record(it->im, event);
    if (!is_alloc || (!context->part && !context->category))
        return;
    event.kind = HR_MEMORY_DESCRIBE;
    event.what = 0;
    event.bytes = hr_memory_about(context->category, context->part);
    hr__import_record(it->im, event);
}

static void record_events(struct importer *it)
{
    uint32_t iteration = hr__import_name(it->im, "iteration");
    size_t next = 0;
    record_before(it);
    for (size_t i = 0; i <= it->k.memory_count; i++) {
        for (; next < it->mark_count &&
               (i == it->k.memory_count || it->marks[next].time_ns <= it->k.memory[i].time_ns);
             next++)
            hr__import_record(it->im, (struct hr_memory_event){
                                          .time_ns = ns_of(it, it->marks[next].time_ns),
                                          .what = iteration,
                                          .bytes = it->marks[next].number,
                                          .kind = HR_MEMORY_MARK,
                                      });
        if (i < it->k.memory_count)
            record_memory(it, i);
    }
}

static void record_facts(struct importer *it)
{
    char number[32];
    if (it->k.rank >= 0) {
        snprintf(number, sizeof number, "%" PRId64, it->k.rank);
        hr_memory_fact(it->im->recorder, "rank", number);
    }
    for (size_t i = 0; i < HR__IMPORT_DEVICES_MOST; i++) {
        const struct kineto_totals *t = &it->totals[i];
        char device[HR__DEVICE_NAME_BYTES], fact[48];
        hr__device_name((int)i, device);
        if (t->is_begun && it->k.capacity_bytes[i]) {
            snprintf(fact, sizeof fact, "capacity bytes %s", device);
            snprintf(number, sizeof number, "%" PRIu64, it->k.capacity_bytes[i]);
            hr_memory_fact(it->im->recorder, fact, number);
        }
        if (t->wrong)
            hr__import_note(it->im,
                            "%s: at %" PRIu64 " of %" PRIu64
                            " moments the trace's Total Allocated is not what its events sum to "
                            "(first at %" PRIu64 " ns: %" PRId64 " bytes against %" PRId64
                            "): some are missing.",
                            device, t->wrong, t->events, ns_of(it, t->wrong_ns), t->wrong_total,
                            t->wrong_live);
    }
    hr__import_note(it->im, "What blocks are follows from when they were allocated and freed: by "
                            "the forward pass, the backward pass, the optimizer.");
    if (it->k.unreadable)
        hr__import_note(it->im, "%" PRIu64 " elements of the trace could not be read.",
                        it->k.unreadable);
    if (it->left_out)
        hr__import_note(it->im,
                        "%" PRIu64 " events are of devices beyond the first %d: they "
                        "were left out.",
                        it->left_out, HR__IMPORT_DEVICES_MOST - 1);
}

static int record_all(struct importer *it)
{
    struct hr__kineto *k = &it->k;
    uint64_t start = (uint64_t)k->memory[0].time_ns + (uint64_t)k->base_ns;
    it->meanings =
        hr__alloc(HR__TAG_MEMORY, (size_t)k->name_ids.count * 3 + 1, sizeof *it->meanings);
    it->contexts = hr__alloc(HR__TAG_MEMORY, k->memory_count, sizeof *it->contexts);
    if (!it->meanings || !it->contexts || find_marks(it) || survey(it))
        return hr__import_no_memory(it->im);
    int code = hr__import_begin(it->im, "Kineto trace", start, k->pid);
    if (code)
        return code;
    if (find_contexts(it) || find_categories(it))
        return hr__import_no_memory(it->im);
    record_events(it);
    record_facts(it);
    return 0;
}

int hr__import_kineto(struct hr__import *im)
{
    struct importer *it = hr__alloc(HR__TAG_MEMORY, 1, sizeof *it);
    if (!it)
        return hr__import_no_memory(im);
    it->im = im;
    int code = hr__kineto_read(&it->k, im->in, im->error);
    if (!code && !it->k.memory_count)
        code = hr__fail(im->error, -ENODATA,
                        "%s: the trace has no [memory] events: run the profiler with "
                        "profile_memory=True",
                        im->in->name);
    if (!code)
        code = record_all(it);
    hr__kineto_clear(&it->k);
    hr__places_clear(&it->places);
    hr__free(it->meanings);
    hr__free(it->contexts);
    hr__free(it->marks);
    hr__free(it->before);
    hr__free(it);
    return code;
}
