/*
 * Reads COCO's annotations of objects (instances_*.json, person_keypoints_*.json) as a stream, in
 * one pass, with the top-level arrays in any order. Segmentations, captions and unknown members are
 * skipped.
 */
#ifndef HR_DATASET_COCO_H
#define HR_DATASET_COCO_H

#include "base/json_reader.h"

#include <headrace/coco.h>

/* Most points of an annotation. */
#define HR__COCO_POINTS_MAX 1024

struct hr__coco_image {
    int64_t id;
    size_t name; /* offset in names */
};

struct hr__coco_category {
    int64_t id;
    size_t name; /* offset in names */
};

struct hr__coco_annotation {
    int64_t id, image, category;
    size_t points; /* index of its first number in `points`; SIZE_MAX: none */
    float box[4];  /* x1, y1, x2, y2 */
    float area;
    int crowd;
};

/* What a file says. Arrays of hr__reserve. */
struct hr__coco {
    struct hr__coco_image *images; /* by id */
    size_t image_count;
    struct hr__coco_category *categories; /* by id */
    size_t category_count;
    struct hr__coco_annotation *annotations; /* in the order of the file; `image` is an index of
                                                images, `category` an index of categories */
    size_t annotation_count;
    char *names; /* 0-terminated texts */
    size_t name_bytes;
    float *points; /* x, y, visibility */
    size_t point_numbers;
    size_t points_each; /* points of each annotation that has any */
};

/* Reads a stream to its end. On failure *out is empty. Errors: -EBADMSG, -EFBIG: of the JSON;
 * -EINVAL names the annotation and its image: no or an inverted or infinite bbox, an id that is no
 * whole number below 2^53, that is given twice or that nothing has; -ECANCELED; -ENOMEM. */
int hr__coco_read(struct hr__coco *out, struct hr__json_reader *stream,
                  const struct hr_coco_options *options, struct hr_error *error);

void hr__coco_clear(struct hr__coco *coco);

/* Makes the dataset of hr_dataset_open_coco of a stream. */
int hr__dataset_of_coco(struct hr_dataset **out, const char *images, struct hr__json_reader *stream,
                        const struct hr_coco_options *options, struct hr_error *error);

#endif
