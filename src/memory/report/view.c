/* Analyses as reports read them; see view.h. */
#include "memory/report/view.h"

#include "base/error.h"
#include "base/memory.h"
#include "memory/report/opened.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_COLUMNS 22 /* of names in tables and charts */

const char *const hr__view_categories[HR__VIEW_CATEGORIES] = {
    "unknown", "parameter",  "gradient",  "optimizer state",
    "input",   "activation", "temporary", "workspace",
};

double hr__view_number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

double hr__view_at(const json_t *list, size_t index)
{
    const json_t *value = json_array_get(list, index);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *hr__view_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* Of blocks that were there before their first operator, that one is of no interest. */
static bool is_made(const json_t *object)
{
    static const char *const there[] = {"parameter", "optimizer state", "input"};
    const char *category = hr__view_text(object, "category");
    bool made = true;
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        made &= strcmp(category, there[i]) != 0;
    return made;
}

void hr__view_describe(const json_t *object, struct hr__draft *draft)
{
    const char *what = hr__view_text(object, "what");
    const char *op = !*what || is_made(object) ? hr__view_text(object, "operator") : "";
    if (!*what && !*op) {
        hr__draft_put(draft, hr__view_text(object, "category"));
        return;
    }
    hr__draft_put(draft, what);
    if (*op)
        hr__draft_put(draft, *what ? " of " : "of ");
    hr__draft_put(draft, op);
}

const char *hr__view_line(const json_t *object)
{
    const char *line = json_string_value(json_array_get(json_object_get(object, "stack"), 0));
    return line ? line : "";
}

/* A peak is reached when a block begins: that one knows the phase. */
static void find_peak(struct hr__memory_view *v)
{
    const struct hr__memory *m = v->memory->found;
    const struct hr__device_memory *d = &m->devices[m->main_device];
    uint64_t peak_ns = d->timeline.peak.time_ns;
    for (uint32_t i = 0; i < m->found.count && peak_ns; i++) {
        const struct hr__block *b = &m->found.blocks[i];
        if (b->device == d->device && b->alloc_ns == peak_ns) {
            v->phase = b->phase;
            v->iteration = b->iteration;
        }
    }
}

static int find_iterations(struct hr__memory_view *v)
{
    const struct hr__period *p = &v->memory->found->period;
    const json_t *most = json_object_get(json_object_get(v->root, "pattern"), "peak_bytes_each");
    if (!p->count)
        return 0;
    v->iterations = hr__alloc(HR__TAG_REPORT, p->count, sizeof *v->iterations);
    if (!v->iterations)
        return -ENOMEM;
    for (size_t i = 0; i < p->count; i++) {
        const struct hr__iteration *one = &p->iterations[i];
        v->iterations[v->iteration_count++] = (struct hr__view_iteration){
            one->begin_ns, one->end_ns, hr__view_at(most, i), one->is_same != 0};
    }
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int find_median(struct hr__memory_view *v)
{
    double *ns = hr__alloc(HR__TAG_REPORT, v->iteration_count + 1, sizeof *ns);
    size_t count = 0;
    v->median_ns = NAN;
    for (size_t i = 0; ns && i < v->iteration_count; i++)
        if (v->iterations[i].is_same)
            ns[count++] = (double)(v->iterations[i].end_ns - v->iterations[i].begin_ns);
    if (count) {
        qsort(ns, count, sizeof *ns, by_value);
        v->median_ns = (ns[(count - 1) / 2] + ns[count / 2]) / 2;
    }
    bool failed = !ns;
    hr__free(ns);
    return failed ? -ENOMEM : 0;
}

static int open_view(struct hr__memory_view *v, const struct hr_memory *memory,
                     struct hr_error *error)
{
    json_error_t problem;
    v->memory = memory;
    v->name = memory->name;
    v->root = json_loads(hr_memory_json(memory), 0, &problem);
    if (!v->root)
        return hr__fail(error, -ENOMEM, "%s: out of memory for its report", memory->name);
    v->device = json_array_get(json_object_get(v->root, "devices"), memory->found->main_device);
    v->device_name = hr__view_text(v->device, "device");
    v->batch_size = hr__view_number(json_object_get(v->root, "batch"), "size");
    find_peak(v);
    return find_iterations(v) || find_median(v)
               ? hr__fail(error, -ENOMEM, "out of memory for a report")
               : 0;
}

/* What grows with the batch: of one record in proportion, of several of different sizes by a
 * line through them. */
static int fit(struct hr__memory_view *views, size_t count)
{
    struct hr__fit_point *points = hr__alloc(HR__TAG_REPORT, count, sizeof *points);
    double capacity = hr__view_number(json_object_get(views->root, "batch"), "capacity_bytes");
    size_t sized = 0;
    if (!points)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct hr__memory *m = views[i].memory->found;
        if (!m->device_count || strcmp(views[i].device_name, views->device_name) != 0)
            continue;
        points[sized] = m->devices[m->main_device].point;
        sized += points[sized].batch > 0;
    }
    hr__memory_fit(&views->fit, points, sized, capacity);
    views->fitted = sized;
    views->capacity_bytes = capacity;
    hr__free(points);
    return 0;
}

/* A name's end tells ranks and runs apart. */
static void shorten(char *name)
{
    size_t length = strlen(name), columns = hr__text_columns(name, length), at = 0;
    if (columns <= LABEL_COLUMNS)
        return;
    for (size_t left = columns - (LABEL_COLUMNS - 3); left; at++)
        left -= ((unsigned char)name[at + 1] & 0xC0) != 0x80; /* a code point ends here */
    memmove(name + 3, name + at, length - at + 1);
    memcpy(name, "...", 3);
}

/* Batch sizes where they tell the records apart, else the names of the files. */
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
    int code = views ? 0 : hr__fail(error, -ENOMEM, "out of memory for a report");
    *out = NULL;
    for (size_t i = 0; i < count && !code; i++)
        code = open_view(&views[i], memories[i], error);
    if (!code && fit(views, count))
        code = hr__fail(error, -ENOMEM, "out of memory for a report");
    if (code) {
        hr__memory_views_close(&views, count);
        return code;
    }
    label(views, count);
    *out = views;
    return 0;
}

void hr__memory_views_close(struct hr__memory_view **views, size_t count)
{
    for (size_t i = 0; *views && i < count; i++) {
        json_decref((*views)[i].root);
        hr__free((*views)[i].iterations);
    }
    hr__free(*views);
    *views = NULL;
}
