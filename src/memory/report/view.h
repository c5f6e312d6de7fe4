/*
 * An analysis of memory as reports read it: its JSON (docs/memory-format.md), and the few things
 * about the peak and the iterations that they tell beside it. Nothing in the JSON is relied
 * upon: what is not there is not known.
 */
#ifndef HR_MEMORY_REPORT_VIEW_H
#define HR_MEMORY_REPORT_VIEW_H

#include "memory/analysis/fit.h"
#include "report/draft.h"

#include <headrace/memory.h>

#include <jansson.h>

#define HR__VIEW_LABEL_BYTES 512
#define HR__VIEW_CATEGORIES  8

/* An iteration of the pattern, and the most that the main device held in it. */
struct hr__view_iteration {
    uint64_t begin_ns, end_ns;
    double most_bytes; /* NaN: not told */
    bool is_same;
};

struct hr__memory_view {
    const struct hr_memory *memory;
    const char *name; /* of the file */
    json_t *root;
    json_t *device; /* the one that the report is about: the accelerator that holds most, else
                       the host; NULL: there is none */
    const char *device_name;
    unsigned phase;     /* enum hr_memory_phase, in which the peak is reached */
    uint32_t iteration; /* the same; 0: before the first, or not known */
    struct hr__view_iteration *iterations;
    size_t iteration_count;
    double median_ns;                 /* of those that are the same; NaN: there are none */
    double batch_size;                /* NaN: not said */
    struct hr__fit fit;               /* of the first view: over the batch sizes of all */
    size_t fitted;                    /* so many records; 0: none says its batch size */
    double capacity_bytes;            /* of the first view's device; NaN: not said */
    char label[HR__VIEW_LABEL_BYTES]; /* "batch 64", or the file's name: printable */
};

/* Opens views of all; labels tell them apart. *out is the caller's. Errors: -ENOMEM. */
int hr__memory_views_open(struct hr__memory_view **out, const struct hr_memory *const *memories,
                          size_t count, struct hr_error *error);
void hr__memory_views_close(struct hr__memory_view **views, size_t count);

/* Of an object, or NULL: NaN where there is no such number; "" where there is no such text. */
double hr__view_number(const json_t *object, const char *name);
const char *hr__view_text(const json_t *object, const char *name);
/* The same of an element of a list of numbers. */
double hr__view_at(const json_t *list, size_t index);

/* In the order of enum hr_memory_category. */
extern const char *const hr__view_categories[HR__VIEW_CATEGORIES];

/* "[64, 256] float32 of aten::relu": what a block is, from an object with "what", "operator" and
 * "category". Outside text, as it came. */
void hr__view_describe(const json_t *object, struct hr__draft *draft);

/* The line of code that tells most: the first of "stack"; "": none is known. */
const char *hr__view_line(const json_t *object);

#endif
