/*
 * Writes the data of a memory page's charts; see page_data.h. page.js reads its members.
 *
 * Each name is stored once, in `names`; blocks and accesses are rows of numbers that refer to it.
 * Times of accesses are differences. Characters that could end a script element are escaped at the
 * end.
 */
#include "memory/report/page_data.h"

#include "memory/report/json.h"
#include "report/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ITERATIONS_MOST 1000
#define PARTS_MOST      24
#define OUTLIERS_MOST   64

/* An object that maps names to their numbers, and the list of names in that order. */
struct names {
    json_t *numbers, *list;
};

/* Writes JSON that is safe within a script element; consumes `value`. */
static void put_json(struct hr__draft *d, json_t *value)
{
    static const struct {
        char byte;
        const char *escape;
    } special[] = {{'<', "\\u003c"}, {'>', "\\u003e"}, {'&', "\\u0026"}};
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    d->failed |= !text;
    for (const char *rest = text; rest && *rest;) {
        size_t n = strcspn(rest, "<>&");
        hr__draft_add(d, rest, n);
        rest += n;
        for (size_t i = 0; *rest && i < sizeof special / sizeof *special; i++)
            if (*rest == special[i].byte) {
                hr__draft_put(d, special[i].escape);
                rest++;
                break;
            }
    }
    free(text);
}

static void put_member(struct hr__draft *d, const char *name, json_t *value)
{
    hr__draft_print(d, ",\n\"%s\":", name);
    put_json(d, value);
}

/* Writes the first `most` elements of a list, which it consumes. */
static void put_head(struct hr__draft *d, json_t *list, size_t most)
{
    hr__draft_put(d, "[");
    for (size_t i = 0; i < json_array_size(list) && i < most; i++) {
        hr__draft_put(d, i ? ",\n" : "");
        put_json(d, json_incref(json_array_get(list, i)));
    }
    hr__draft_put(d, "]");
    d->failed |= !list;
    json_decref(list);
}

static void put_number(struct hr__draft *d, double value)
{
    /* Exact for whole numbers up to 2^53: hr__draft_number writes no needless decimals. */
    hr__draft_number(d, value, 0);
}

/* Returns a name's number; 0: none. Consumes `text`, a string or null. */
static size_t number_of(struct names *names, json_t *text)
{
    const char *name = json_string_value(text);
    size_t number = 0;
    if (name) {
        const json_t *known = json_object_get(names->numbers, name);
        number = known ? (size_t)json_integer_value(known) : json_array_size(names->list);
        if (!known) {
            json_object_set_new(names->numbers, name, json_integer((json_int_t)number));
            json_array_append(names->list, text);
        }
    }
    json_decref(text);
    return number;
}

/* ---- the lives of blocks ---- */

static void put_blocks(struct hr__draft *d, const struct hr__memory_view *v, struct names *names)
{
    hr__draft_put(d, "\"blocks\":[");
    for (size_t i = 0; i < v->found->drawn_count; i++) {
        const struct hr__block *b = &v->found->found.blocks[v->found->drawn[i]];
        const double numbers[] = {(double)b->alloc_ns,
                                  b->free_ns == HR__STILL_LIVE ? NAN : (double)b->free_ns,
                                  (double)b->bytes, b->reads, b->writes};
        const uint32_t texts[] = {b->first_op, b->name, b->part};
        char device[HR__DEVICE_NAME_BYTES];
        hr__draft_print(d, "%s[%d", i ? ",\n" : "", b->category);
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            hr__draft_put(d, ",");
            put_number(d, numbers[k]);
        }
        hr__draft_print(d, ",%zu",
                        number_of(names, hr__memory_json_text(hr__device_name(b->device, device))));
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            hr__draft_print(d, ",%zu", number_of(names, hr__memory_json_name(v->record, texts[k])));
        hr__draft_put(d, "]");
    }
    hr__draft_put(d, "]");
}

/* Writes block, time since the previous access, 1 for a write, and operator, one after another. */
static void put_accesses(struct hr__draft *d, const struct hr__memory_view *v, struct names *names)
{
    uint64_t last = v->found->drawn_begin_ns;
    hr__draft_put(d, ",\n\"accesses\":[");
    for (size_t i = 0; i < v->found->access_count; i++) {
        const struct hr__drawn_access *a = &v->found->accesses[i];
        hr__draft_print(d, "%s%" PRIu32 ",%" PRId64 ",%d,%zu", i ? "," : "", a->drawn,
                        (int64_t)(a->time_ns - last), a->kind == HR_MEMORY_WRITE,
                        number_of(names, hr__memory_json_name(v->record, a->op)));
        last = a->time_ns;
    }
    hr__draft_put(d, "]");
}

static void put_lives(struct hr__draft *d, const struct hr__memory_view *v)
{
    const struct hr__memory *m = v->found;
    struct names names = {json_object(), json_array()};
    d->failed |= !names.numbers || !names.list;
    json_array_append_new(names.list, json_string(""));
    hr__draft_put(d, ",\n\"lives\":{");
    put_blocks(d, v, &names);
    put_accesses(d, v, &names);
    put_member(d, "begin_ns", hr__memory_json_integer(m->drawn_begin_ns));
    put_member(d, "end_ns", hr__memory_json_integer(m->drawn_end_ns));
    put_member(d, "iterations", hr__memory_json_drawn_iterations(m));
    put_member(d, "cut", json_boolean(m->access_count == HR__MARKS_MOST));
    put_member(d, "names", names.list);
    hr__draft_put(d, "}");
    json_decref(names.numbers);
}

/* ---- the rest of the first record ---- */

/* Writes begin, length, peak bytes, and 1 if regular. */
static void put_iterations(struct hr__draft *d, const struct hr__memory_view *v)
{
    const struct hr__period *p = &v->found->period;
    hr__draft_put(d, ",\n\"iterations\":[");
    for (size_t i = 0; i < p->count && i < ITERATIONS_MOST; i++) {
        const struct hr__iteration *one = &p->iterations[i];
        hr__draft_print(d, "%s[", i ? "," : "");
        put_number(d, (double)one->begin_ns);
        hr__draft_put(d, ",");
        put_number(d, (double)(one->end_ns - one->begin_ns));
        hr__draft_put(d, ",");
        put_number(d, (double)one->peak_bytes);
        hr__draft_print(d, ",%d]", one->is_same);
    }
    hr__draft_put(d, "]");
}

static void put_intervals(struct hr__draft *d, const struct hr__memory_view *v)
{
    const struct hr__intervals *i = &v->found->intervals;
    hr__draft_put(d, ",\n\"intervals\":{\"outliers\":");
    put_head(d, hr__memory_json_outliers(v->found, v->record), OUTLIERS_MOST);
    put_member(d, "h2d_bytes_per_s", hr__memory_json_real(i->h2d_bytes_per_s));
    put_member(d, "d2h_bytes_per_s", hr__memory_json_real(i->d2h_bytes_per_s));
    put_member(d, "of", hr__memory_json_behaviours(i));
    put_member(d, "scatter", hr__memory_json_scatter(i));
    hr__draft_put(d, "}");
}

static json_t *device_name(const struct hr__device_memory *device)
{
    char name[HR__DEVICE_NAME_BYTES];
    return json_string(hr__device_name(device->device, name));
}

static void put_device(struct hr__draft *d, const struct hr__memory_view *v)
{
    const struct hr__device_memory *device = v->device;
    hr__draft_put(d, ",\n\"device\":{\"parts\":");
    put_head(d, hr__memory_json_parts(device, v->record), PARTS_MOST);
    put_member(d, "device", device_name(device));
    put_member(d, "peak_bytes", hr__memory_json_integer(device->timeline.peak_bytes));
    put_member(d, "peak_ns", hr__memory_json_integer(device->timeline.peak.time_ns));
    put_member(d, "peak", hr__memory_json_categories(device->timeline.peak.bytes));
    put_member(d, "fragmentation", hr__memory_json_fragmentation(&device->segments));
    hr__draft_put(d, "}");
}

/* Writes the bytes over time of all devices of the first record. */
static void put_devices(struct hr__draft *d, const struct hr__memory_view *v)
{
    hr__draft_put(d, ",\n\"devices\":[");
    for (size_t i = 0; i < v->found->device_count; i++) {
        const struct hr__device_memory *one = &v->found->devices[i];
        hr__draft_put(d, i ? ",\n{\"device\":" : "{\"device\":");
        put_json(d, device_name(one));
        put_member(d, "peak_bytes", hr__memory_json_integer(one->timeline.peak_bytes));
        put_member(d, "peak_ns", hr__memory_json_integer(one->timeline.peak.time_ns));
        put_member(d, "timeline", hr__memory_json_timeline(&one->timeline));
        hr__draft_put(d, "}");
    }
    hr__draft_put(d, "]");
}

/* Writes the drawn data of the other records. */
static void put_sides(struct hr__draft *d, const struct hr__memory_view *views, size_t count)
{
    hr__draft_put(d, ",\n\"sides\":[");
    for (size_t i = 0; i < count; i++) {
        const struct hr__memory_view *v = &views[i];
        hr__draft_put(d, i ? ",\n{\"label\":" : "{\"label\":");
        hr__draft_json(d, v->label);
        put_member(d, "peak_bytes",
                   v->device ? hr__memory_json_integer(v->device->timeline.peak_bytes)
                             : json_null());
        put_member(d, "peak",
                   v->device ? hr__memory_json_categories(v->device->timeline.peak.bytes)
                             : json_null());
        put_member(d, "batch", hr__memory_json_batch(v->found));
        hr__draft_put(d, ",\"iteration_ns\":");
        put_number(d, v->median_ns);
        hr__draft_put(d, "}");
    }
    hr__draft_put(d, "]");
}

static void put_fit(struct hr__draft *d, const struct hr__memory_view *v)
{
    const struct {
        const char *name;
        double value;
    } members[] = {{"fixed_bytes", v->fit.fixed_bytes},
                   {"bytes_per_sample", v->fit.bytes_per_sample},
                   {"that_fits", v->fit.batch_that_fits},
                   {"capacity_bytes", v->capacity_bytes}};
    hr__draft_put(d, ",\n\"fit\":{");
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        hr__draft_print(d, "%s\"%s\":", i ? "," : "", members[i].name);
        put_number(d, members[i].value);
    }
    hr__draft_put(d, "}");
}

void hr__memory_page_data(const struct hr__memory_view *views, size_t count,
                          struct hr__draft *draft)
{
    hr__draft_put(draft, "{\"categories\":[");
    for (int c = 0; c < HR__CATEGORIES; c++) {
        hr__draft_put(draft, c ? "," : "");
        hr__draft_json(draft, hr__category_name(c));
    }
    hr__draft_put(draft, "],\n\"titles\":[");
    for (int c = 0; c < HR__CATEGORIES; c++) {
        hr__draft_put(draft, c ? "," : "");
        hr__draft_json(draft, hr__category_plural(c));
    }
    hr__draft_put(draft, "],\n\"behaviours\":[");
    for (int b = 0; b < HR__BEHAVIOURS; b++) {
        hr__draft_print(draft, "%s{\"name\":", b ? "," : "");
        hr__draft_json(draft, hr__behaviour_name(b));
        hr__draft_put(draft, ",\"title\":");
        hr__draft_json(draft, hr__behaviour_title(b));
        hr__draft_put(draft, "}");
    }
    hr__draft_put(draft, "]");
    put_device(draft, &views[0]);
    put_devices(draft, &views[0]);
    put_lives(draft, &views[0]);
    put_intervals(draft, &views[0]);
    put_iterations(draft, &views[0]);
    put_sides(draft, views, count);
    put_fit(draft, views);
    hr__draft_put(draft, "}");
}
