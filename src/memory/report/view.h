/*
 * An analysis of memory as reports read it: its structs, and the few things about the peak and
 * the iterations that they tell beside it.
 */
#ifndef HR_MEMORY_REPORT_VIEW_H
#define HR_MEMORY_REPORT_VIEW_H

#include "memory/analysis/analysis.h"
#include "report/draft.h"

#include <stdbool.h>

#define HR__VIEW_LABEL_BYTES 512

struct hr__memory_view {
    const char *name; /* of the file */
    const struct hr__record *record;
    const struct hr__memory *found;
    const struct hr__device_memory
        *device;                      /* the one that the report is about: the accelerator
                                         that holds most, else the host; NULL: there is none */
    unsigned phase;                   /* enum hr_memory_phase, in which the peak is reached */
    uint32_t iteration;               /* the same; 0: before the first, or not known */
    double median_ns;                 /* of iterations that are the same; NaN: there are none */
    double batch_size;                /* NaN: not said */
    struct hr__fit fit;               /* of the first view: over the batch sizes of all */
    size_t fitted;                    /* so many records; 0: none says its batch size */
    double capacity_bytes;            /* of the first view's device; NaN: not said */
    char label[HR__VIEW_LABEL_BYTES]; /* "batch 64", or the file's name: printable */
};

/* Opens views of all; labels tell them apart. *out is the caller's; the memories stay. Errors:
 * -ENOMEM. */
int hr__memory_views_open(struct hr__memory_view **out, const struct hr_memory *const *memories,
                          size_t count, struct hr_error *error);
void hr__memory_views_close(struct hr__memory_view **views);

/* "": id 0. */
const char *hr__view_name(const struct hr__memory_view *view, uint32_t id);
/* What the record says of its run; "": nothing. */
const char *hr__view_fact(const struct hr__memory_view *view, const char *name);

/* At the device's peak; NaN: there is no device. */
double hr__view_peak(const struct hr__memory_view *view);
double hr__view_peak_of(const struct hr__memory_view *view, unsigned category);

/* Of a part of the model. */
uint64_t hr__view_part_bytes(const struct hr__part_memory *part);

/* "cpu", "cuda:0", "host memory of libraries". Returns out. */
#define HR__VIEW_DEVICE_BYTES 32
const char *hr__view_device(int device, char out[HR__VIEW_DEVICE_BYTES]);

/* Blocks that read the same. */
struct hr__view_block {
    const struct hr__record *record; /* of its names */
    uint8_t category;
    uint32_t what, op;                  /* names; 0: not known */
    const struct hr_memory_frame *line; /* the line of code that tells most; NULL: none is known */
};

struct hr__view_block hr__view_block(const struct hr__memory_view *view, uint32_t block);
struct hr__view_block hr__view_group(const struct hr__memory_view *view,
                                     const struct hr__peak_group *group);
bool hr__view_same_block(const struct hr__view_block *a, const struct hr__view_block *b);

/* "[64, 256] float32 of aten::relu": what a block is. Outside text, as it came. */
void hr__view_describe(const struct hr__view_block *block, struct hr__draft *draft);

#endif
