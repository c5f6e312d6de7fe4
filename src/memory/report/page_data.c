/*
 * The data of a memory page's charts; see page_data.h. Its members are read by
 * page.js.
 *
 * Names stand once, in `names`; blocks and accesses are rows of numbers that point there. Times
 * of accesses are differences. What comes from the analysis' JSON as it is was escaped by the
 * JSON library; what could end a script element is escaped at the end.
 */
#include "memory/report/page_data.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITERATIONS_MOST 1000
#define PARTS_MOST      24
#define OUTLIERS_MOST   64

/* Names that were given a number, in an object; the list of them is made in step. */
struct names {
    json_t *numbers, *list;
};

static void put_null(struct hr__draft *d)
{
    hr__draft_put(d, "null");
}

/* JSON of what is in the tree, within a script element. */
static void put_json(struct hr__draft *d, const json_t *value)
{
    static const struct {
        char byte;
        const char *escape;
    } special[] = {{'<', "\\u003c"}, {'>', "\\u003e"}, {'&', "\\u0026"}};
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (!value) {
        put_null(d);
        return;
    }
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

static void put_member(struct hr__draft *d, const char *name, const json_t *object)
{
    hr__draft_print(d, ",\n\"%s\":", name);
    put_json(d, json_object_get(object, name));
}

static void put_number(struct hr__draft *d, double value)
{
    /* Whole numbers of up to 2^53, exactly: hr__draft_number gives no more than it must. */
    hr__draft_number(d, value, 0);
}

static long long whole(double value)
{
    return fabs(value) < 9e15 ? (long long)value : 0; /* 0 of what is no number */
}

/* 0: none. */
static size_t number_of(struct names *names, const json_t *text)
{
    const char *name = json_string_value(text);
    if (!name)
        return 0;
    const json_t *known = json_object_get(names->numbers, name);
    if (known)
        return (size_t)json_integer_value(known);
    json_array_append_new(names->list, json_string(name));
    size_t number = json_array_size(names->list) - 1;
    json_object_set_new(names->numbers, name, json_integer((json_int_t)number));
    return number;
}

static int category_of(const json_t *object)
{
    const char *name = hr__view_text(object, "category");
    for (int c = 0; c < HR__VIEW_CATEGORIES; c++)
        if (!strcmp(hr__view_categories[c], name))
            return c;
    return 0;
}

/* ---- the lives of blocks ---- */

static void put_blocks(struct hr__draft *d, const json_t *blocks, struct names *names)
{
    static const char *const numbers[] = {"alloc_ns", "free_ns", "bytes", "reads", "writes"};
    static const char *const texts[] = {"device", "operator", "what", "part"};
    const json_t *b;
    size_t i;
    hr__draft_put(d, "\"blocks\":[");
    json_array_foreach(blocks, i, b)
    {
        hr__draft_print(d, "%s[%d", i ? ",\n" : "", category_of(b));
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            hr__draft_put(d, ",");
            put_number(d, hr__view_number(b, numbers[k]));
        }
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            hr__draft_print(d, ",%zu", number_of(names, json_object_get(b, texts[k])));
        hr__draft_put(d, "]");
    }
    hr__draft_put(d, "]");
}

/* block, time since the access before, 1: write, operator; one after another. */
static void put_accesses(struct hr__draft *d, const json_t *accesses, double begin_ns,
                         struct names *names)
{
    const json_t *a;
    double last = begin_ns;
    size_t i;
    hr__draft_put(d, ",\n\"accesses\":[");
    json_array_foreach(accesses, i, a)
    {
        double at = hr__view_at(a, 1);
        hr__draft_print(d, "%s%lld,%lld,%d,%zu", i ? "," : "", whole(hr__view_at(a, 0)),
                        whole(at - last), hr__view_at(a, 2) > 0,
                        number_of(names, json_array_get(a, 3)));
        last = at;
    }
    hr__draft_put(d, "]");
}

static void put_lives(struct hr__draft *d, const json_t *root)
{
    const json_t *lives = json_object_get(root, "lifetimes");
    struct names names = {json_object(), json_array()};
    d->failed |= !names.numbers || !names.list;
    json_array_append_new(names.list, json_string(""));
    hr__draft_put(d, ",\n\"lives\":{");
    put_blocks(d, json_object_get(lives, "blocks"), &names);
    put_accesses(d, json_object_get(lives, "accesses"), hr__view_number(lives, "begin_ns"), &names);
    put_member(d, "begin_ns", lives);
    put_member(d, "end_ns", lives);
    put_member(d, "iterations", lives);
    put_member(d, "cut", lives);
    hr__draft_put(d, ",\n\"names\":");
    put_json(d, names.list);
    hr__draft_put(d, "}");
    json_decref(names.numbers);
    json_decref(names.list);
}

/* ---- the rest of the first record ---- */

/* begin, length, the most bytes, 1: as the others. */
static void put_iterations(struct hr__draft *d, const struct hr__memory_view *v)
{
    hr__draft_put(d, ",\n\"iterations\":[");
    for (size_t i = 0; i < v->iteration_count && i < ITERATIONS_MOST; i++) {
        const struct hr__view_iteration *one = &v->iterations[i];
        hr__draft_print(d, "%s[", i ? "," : "");
        put_number(d, (double)one->begin_ns);
        hr__draft_put(d, ",");
        put_number(d, (double)(one->end_ns - one->begin_ns));
        hr__draft_put(d, ",");
        put_number(d, one->most_bytes);
        hr__draft_print(d, ",%d]", one->is_same);
    }
    hr__draft_put(d, "]");
}

static void put_head(struct hr__draft *d, const json_t *list, size_t most)
{
    hr__draft_put(d, "[");
    for (size_t i = 0; i < json_array_size(list) && i < most; i++) {
        hr__draft_put(d, i ? ",\n" : "");
        put_json(d, json_array_get(list, i));
    }
    hr__draft_put(d, "]");
}

static void put_intervals(struct hr__draft *d, const json_t *intervals)
{
    static const char *const as_they_are[] = {"h2d_bytes_per_s", "d2h_bytes_per_s", "of",
                                              "scatter"};
    hr__draft_put(d, ",\n\"intervals\":{\"outliers\":");
    put_head(d, json_object_get(intervals, "outliers"), OUTLIERS_MOST);
    for (size_t i = 0; i < sizeof as_they_are / sizeof *as_they_are; i++)
        put_member(d, as_they_are[i], intervals);
    hr__draft_put(d, "}");
}

static void put_device(struct hr__draft *d, const struct hr__memory_view *v)
{
    static const char *const as_they_are[] = {"device", "peak_bytes", "peak_ns", "peak",
                                              "fragmentation"};
    hr__draft_put(d, ",\n\"device\":{\"parts\":");
    put_head(d, json_object_get(v->device, "parts"), PARTS_MOST);
    for (size_t i = 0; i < sizeof as_they_are / sizeof *as_they_are; i++)
        put_member(d, as_they_are[i], v->device);
    hr__draft_put(d, "}");
}

/* Bytes over time of all devices of the first record. */
static void put_devices(struct hr__draft *d, const struct hr__memory_view *v)
{
    static const char *const as_they_are[] = {"peak_bytes", "peak_ns", "timeline"};
    const json_t *devices = json_object_get(v->root, "devices"), *one;
    size_t i;
    hr__draft_put(d, ",\n\"devices\":[");
    json_array_foreach(devices, i, one)
    {
        hr__draft_put(d, i ? ",\n{\"device\":" : "{\"device\":");
        put_json(d, json_object_get(one, "device"));
        for (size_t k = 0; k < sizeof as_they_are / sizeof *as_they_are; k++)
            put_member(d, as_they_are[k], one);
        hr__draft_put(d, "}");
    }
    hr__draft_put(d, "]");
}

/* What is drawn beside the first record. */
static void put_sides(struct hr__draft *d, const struct hr__memory_view *views, size_t count)
{
    hr__draft_put(d, ",\n\"sides\":[");
    for (size_t i = 0; i < count; i++) {
        const struct hr__memory_view *v = &views[i];
        hr__draft_put(d, i ? ",\n{\"label\":" : "{\"label\":");
        hr__draft_json(d, v->label);
        put_member(d, "peak_bytes", v->device);
        put_member(d, "peak", v->device);
        put_member(d, "batch", v->root);
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
    for (int c = 0; c < HR__VIEW_CATEGORIES; c++) {
        hr__draft_put(draft, c ? "," : "");
        hr__draft_json(draft, hr__view_categories[c]);
    }
    hr__draft_put(draft, "]");
    put_device(draft, &views[0]);
    put_devices(draft, &views[0]);
    put_lives(draft, views[0].root);
    put_intervals(draft, json_object_get(views[0].root, "intervals"));
    put_iterations(draft, &views[0]);
    put_sides(draft, views, count);
    put_fit(draft, views);
    hr__draft_put(draft, "}");
}
