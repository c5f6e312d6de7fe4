/* The public functions for comparisons: include/headrace/memory.h; docs/memory-format.md describes
 * the JSON. */
#include "base/error.h"
#include "base/memory.h"
#include "memory/report/json.h"
#include "memory/report/lines.h"
#include "memory/report/opened.h"

#include <errno.h>

static json_t *integers(const uint64_t pair[2])
{
    return json_pack("[o, o]", hr__memory_json_integer(pair[0]), hr__memory_json_integer(pair[1]));
}

static json_t *reals(double before, double after)
{
    return json_pack("[o, o]", hr__memory_json_real(before), hr__memory_json_real(after));
}

/* Returns null for "". */
static json_t *name(const struct hr__record *record, uint32_t id)
{
    const char *text = id ? hr__record_name(record, id) : "";
    return *text ? hr__memory_json_text(text) : json_null();
}

static json_t *stack(const struct hr__record *record, uint32_t id)
{
    const struct hr_memory_frame *frames;
    size_t count = hr__record_stack(record, id, &frames);
    char line[HR__LINE_BYTES];
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, hr__memory_json_text(hr__line_text(record, &frames[i], line)));
    return list;
}

static json_t *group(const struct hr__compared_group *g, const struct hr__record *record)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "category", hr__category_name(g->category),
                     "what", name(record, g->what), "operator", name(record, g->op), "stack",
                     stack(record, g->stack), "blocks", integers(g->blocks), "bytes",
                     integers(g->bytes));
}

static json_t *device(const struct hr__compared_device *d, const struct hr__comparison *c)
{
    char device_name[HR__DEVICE_NAME_BYTES];
    json_t *groups = json_array(), *peak = json_object();
    for (size_t i = 0; i < d->group_count; i++)
        json_array_append_new(groups, group(&d->groups[i], c->record[d->groups[i].side]));
    for (unsigned k = 0; k < HR__CATEGORIES; k++)
        if (d->peak[0][k] || d->peak[1][k])
            json_object_set_new(peak, hr__category_name(k),
                                integers((uint64_t[]){d->peak[0][k], d->peak[1][k]}));
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "device",
                     hr__device_name(d->device, device_name), "peak_bytes", integers(d->peak_bytes),
                     "peak", peak, "growth", hr__memory_json_real(d->growth), "groups", groups,
                     "more_groups", hr__memory_json_integer(d->more_groups));
}

static json_t *quantiles(const struct hr__intervals *a, const struct hr__intervals *b)
{
    json_t *object = json_object();
    for (size_t i = 0; i < HR__QUANTILES; i++) {
        double share = hr__quantiles[i].share;
        json_object_set_new(
            object, hr__quantiles[i].name,
            reals(hr__intervals_quantile(a, -1, share), hr__intervals_quantile(b, -1, share)));
    }
    return object;
}

static json_t *whole(const struct hr_memory_comparison *comparison)
{
    const struct hr__comparison *c = &comparison->found;
    const struct hr__memory *a = c->found[0], *b = c->found[1];
    json_t *devices = json_array();
    for (size_t i = 0; i < c->device_count; i++)
        json_array_append_new(devices, device(&c->devices[i], c));
    return json_pack(
        "{s:i, s:o, s:o, s:o, s:{s:o, s:o, s:o}, s:{s:o, s:o}, s:{s:o, s:o}}",
        "headrace_memory_comparison", 1, "before", hr__memory_json_text(comparison->name[0]),
        "after", hr__memory_json_text(comparison->name[1]), "devices", devices, "pattern",
        "behaviours", integers((uint64_t[]){a->period.behaviours, b->period.behaviours}),
        "iteration_ns", reals(hr__compared_iteration_ns(c, 0), hr__compared_iteration_ns(c, 1)),
        "blocks", reals(hr__compared_iteration_blocks(c, 0), hr__compared_iteration_blocks(c, 1)),
        "intervals", "count",
        integers(
            (uint64_t[]){hr__intervals_count(&a->intervals), hr__intervals_count(&b->intervals)}),
        "quantiles_ns", quantiles(&a->intervals, &b->intervals), "batch", "bytes_per_sample",
        reals(a->bytes_per_sample, b->bytes_per_sample), "fixed_bytes",
        reals(a->fixed_bytes, b->fixed_bytes));
}

int hr_memory_compare(struct hr_memory_comparison **out, const struct hr_memory *before,
                      const struct hr_memory *after, struct hr_error *error)
{
    struct hr_memory_comparison *c = hr__alloc(HR__TAG_MEMORY, 1, sizeof *c);
    *out = c;
    if (c) {
        c->name[0] = before->name;
        c->name[1] = after->name;
        c->found.record[0] = before->record;
        c->found.record[1] = after->record;
        c->found.found[0] = before->found;
        c->found.found[1] = after->found;
        if (!hr__memory_compare(&c->found))
            c->json = hr__memory_json_dump(whole(c));
    }
    if (c && c->json)
        return 0;
    hr_memory_comparison_destroy(out);
    return hr__fail(error, -ENOMEM, "out of memory while comparing %s with %s", before->name,
                    after->name);
}

void hr_memory_comparison_destroy(struct hr_memory_comparison **comparison)
{
    struct hr_memory_comparison *c = *comparison;
    if (!c)
        return;
    *comparison = NULL;
    hr__comparison_clear(&c->found);
    hr__free(c->json);
    hr__free(c);
}

double hr_memory_comparison_growth(const struct hr_memory_comparison *comparison)
{
    return comparison->found.growth;
}

const char *hr_memory_comparison_json(const struct hr_memory_comparison *comparison)
{
    return comparison->json;
}
