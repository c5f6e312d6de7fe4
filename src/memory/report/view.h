/*
 * An analysis of memory as reports use it: its structs, and a few figures about the peak and the
 * iterations.
 */
#ifndef HR_MEMORY_REPORT_VIEW_H
#define HR_MEMORY_REPORT_VIEW_H

#include "base/draft.h"
#include "memory/analysis/analysis.h"

#include <stdbool.h>

#define HR__VIEW_LABEL_BYTES 512

struct hr__memory_view {
    const char *name; /* of the file */
    const struct hr__record *record;
    const struct hr__memory *found;
    const struct hr__device_memory *device; /* the report's device: the accelerator that holds most,
                                               else the host; NULL: none */
    unsigned phase;                         /* enum hr_memory_phase of the peak */
    uint32_t iteration;                     /* of the peak; 0: before the first, or unknown */
    double median_ns;                       /* of regular iterations; NaN: none */
    double batch_size;                      /* NaN: unknown */
    struct hr__fit fit;                     /* of the first view: over the batch sizes of all */
    size_t fitted;                          /* number of records; 0: no batch size is known */
    double capacity_bytes;                  /* of the first view's device; NaN: unknown */
    char label[HR__VIEW_LABEL_BYTES];       /* "batch 64", or the file's name: printable */
};

/* Opens views of all memories, with labels that tell them apart. The caller frees *out; the
 * memories must outlive it. Errors: -ENOMEM. */
int hr__memory_views_open(struct hr__memory_view **out, const struct hr_memory *const *memories,
                          size_t count, struct hr_error *error);
void hr__memory_views_close(struct hr__memory_view **views);

/* Returns "" for id 0. */
const char *hr__view_name(const struct hr__memory_view *view, uint32_t id);
/* Returns a fact of the run; "": not recorded. */
const char *hr__view_fact(const struct hr__memory_view *view, const char *name);

/* Return bytes at the device's peak; NaN: no device. */
double hr__view_peak(const struct hr__memory_view *view);
double hr__view_peak_of(const struct hr__memory_view *view, unsigned category);

/* Returns the bytes of a part of the model. */
uint64_t hr__view_part_bytes(const struct hr__part_memory *part);

/* Writes "cpu", "cuda:0", "host memory of libraries"; returns out. */
#define HR__VIEW_DEVICE_BYTES 32
const char *hr__view_device(int device, char out[HR__VIEW_DEVICE_BYTES]);

/* A description shared by similar blocks. */
struct hr__view_block {
    const struct hr__record *record; /* for its names */
    uint8_t category;
    uint32_t what, op;                  /* ids of names; 0: unknown */
    const struct hr_memory_frame *line; /* most informative line of code; NULL: none */
};

struct hr__view_block hr__view_block(const struct hr__memory_view *view, uint32_t block);
struct hr__view_block hr__view_group(const struct hr__memory_view *view,
                                     const struct hr__peak_group *group);
bool hr__view_same_block(const struct hr__view_block *a, const struct hr__view_block *b);

/* Writes the description of a block: "[64, 256] float32 of aten::relu". Unescaped outside text. */
void hr__view_describe(const struct hr__view_block *block, struct hr__draft *draft);

#endif
