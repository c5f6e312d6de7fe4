/*
 * Makes a dataset of what a COCO file says (coco.h): a catalog of the images in the order of their
 * ids, and a table of rows, each image's annotations in the order of the file.
 */
#include "dataset/coco.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/versioned.h"
#include "dataset/dataset.h"

#include <headrace/rows.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Highest category id for which the dataset has classes by id. */
#define CLASS_MAX 65535

/* The columns' arrays. */
struct coco_columns {
    uint64_t *offsets; /* images + 1 */
    float *boxes;
    int64_t *labels;
    float *area;
    int64_t *crowd;
    int64_t *image_id;
    float *points;
    size_t *place; /* of each annotation: its row; SIZE_MAX: left out */
    size_t rows;
};

struct coco_making {
    const struct hr__coco *coco;
    const struct hr_coco_options *options;
    const char *folder, *file;
    struct hr_error *error;
    size_t *image_of; /* of each sample: the index of its image */
    size_t samples;
    struct coco_columns columns;
};

void hr_coco_options_init(struct hr_coco_options *options, size_t size)
{
    static const struct hr_coco_options defaults = {0};
    hr__versioned_default(options, size, &defaults, sizeof defaults);
}

static int no_memory(const struct coco_making *m)
{
    return hr__fail(m->error, -ENOMEM, "out of memory for the annotations of %s", m->file);
}

static int64_t label_of(const struct coco_making *m, size_t category)
{
    return m->options->contiguous_labels ? (int64_t)category : m->coco->categories[category].id;
}

/* Returns the number of classes: labels with a name, and those below them. */
static size_t class_count(const struct coco_making *m)
{
    const struct hr__coco *coco = m->coco;
    if (m->options->contiguous_labels || !coco->category_count)
        return coco->category_count;
    int64_t least = coco->categories[0].id, most = coco->categories[coco->category_count - 1].id;
    return least < 0 || most > CLASS_MAX ? 0 : (size_t)most + 1;
}

static int is_kept(const struct coco_making *m, const struct hr__coco_annotation *a)
{
    return !(m->options->skip_crowds && a->crowd);
}

/* Counts each image's rows, chooses the samples, and gives every annotation its row. */
static int place_rows(struct coco_making *m)
{
    const struct hr__coco *coco = m->coco;
    struct coco_columns *c = &m->columns;
    uint64_t *next = hr__alloc(HR__TAG_DATASET, coco->image_count + 1, sizeof *next);
    m->image_of = hr__alloc(HR__TAG_DATASET, coco->image_count + 1, sizeof *m->image_of);
    c->offsets = hr__alloc(HR__TAG_DATASET, coco->image_count + 1, sizeof *c->offsets);
    c->place = hr__alloc(HR__TAG_DATASET, coco->annotation_count + 1, sizeof *c->place);
    if (!next || !m->image_of || !c->offsets || !c->place) {
        hr__free(next);
        return no_memory(m);
    }
    for (size_t i = 0; i < coco->annotation_count; i++)
        next[coco->annotations[i].image] += (uint64_t)is_kept(m, &coco->annotations[i]);
    for (size_t i = 0; i < coco->image_count; i++) {
        uint64_t rows = next[i];
        next[i] = c->rows;
        c->rows += rows;
        if (!rows && m->options->skip_empty)
            continue;
        m->image_of[m->samples++] = i;
        c->offsets[m->samples] = c->rows;
    }
    for (size_t i = 0; i < coco->annotation_count; i++)
        c->place[i] =
            is_kept(m, &coco->annotations[i]) ? next[coco->annotations[i].image]++ : SIZE_MAX;
    hr__free(next);
    if (m->samples)
        return 0;
    return hr__fail(m->error, -ENODATA, "no image of %s has an annotation that is kept", m->file);
}

static int has_points(const struct coco_making *m)
{
    return m->options->keypoints && m->coco->points_each;
}

static int fill_columns(struct coco_making *m)
{
    const struct hr__coco *coco = m->coco;
    struct coco_columns *c = &m->columns;
    size_t each = 3 * coco->points_each;
    c->boxes = hr__alloc(HR__TAG_DATASET, c->rows + 1, 4 * sizeof *c->boxes);
    c->labels = hr__alloc(HR__TAG_DATASET, c->rows + 1, sizeof *c->labels);
    c->area = hr__alloc(HR__TAG_DATASET, c->rows + 1, sizeof *c->area);
    c->crowd = hr__alloc(HR__TAG_DATASET, c->rows + 1, sizeof *c->crowd);
    c->image_id = hr__alloc(HR__TAG_DATASET, m->samples, sizeof *c->image_id);
    if (!c->boxes || !c->labels || !c->area || !c->crowd || !c->image_id)
        return no_memory(m);
    if (has_points(m)) {
        c->points = hr__alloc(HR__TAG_DATASET, c->rows + 1, each * sizeof *c->points);
        if (!c->points)
            return no_memory(m);
    }
    for (size_t i = 0; i < coco->annotation_count; i++) {
        const struct hr__coco_annotation *a = &coco->annotations[i];
        size_t row = c->place[i];
        if (row == SIZE_MAX)
            continue;
        memcpy(c->boxes + 4 * row, a->box, sizeof a->box);
        c->labels[row] = label_of(m, (size_t)a->category);
        c->area[row] = a->area;
        c->crowd[row] = a->crowd;
        if (c->points && a->points != SIZE_MAX)
            memcpy(c->points + each * row, coco->points + a->points, each * sizeof *c->points);
    }
    for (size_t i = 0; i < m->samples; i++)
        c->image_id[i] = coco->images[m->image_of[i]].id;
    return 0;
}

static void name_classes(const struct coco_making *m, struct hr__catalog *catalog)
{
    const struct hr__coco *coco = m->coco;
    uint64_t none = hr__catalog_text(catalog, "", 0);
    for (uint64_t i = 0; i < catalog->header->classes; i++)
        catalog->class_names[i] = none;
    for (size_t i = 0; i < coco->category_count && catalog->header->classes; i++) {
        const char *name = coco->names + coco->categories[i].name;
        catalog->class_names[label_of(m, i)] = hr__catalog_text(catalog, name, strlen(name));
    }
}

/* Makes the catalog of the images' files. A file_name is below the folder unless it is absolute. */
static int make_catalog(const struct coco_making *m, struct hr__catalog **out)
{
    const struct hr__coco *coco = m->coco;
    size_t length = strlen(m->folder);
    int ends = length && m->folder[length - 1] == '/';
    struct hr__catalog_shape shape = {.classes = class_count(m),
                                      .directories = 1,
                                      .samples = m->samples,
                                      .arena_bytes = coco->name_bytes + 2,
                                      .labels = 1,
                                      .changes = 1};
    shape.arena_bytes += (uint64_t)m->samples * (length + 1);
    char path[2 * 4096];
    if (length >= sizeof path / 2)
        return hr__fail(m->error, -ENAMETOOLONG, "the path of the images is too long: %s",
                        m->folder);
    int r = hr__catalog_create(out, &shape);
    if (r)
        return no_memory(m);
    struct hr__catalog *c = *out;
    c->directories[0].path = hr__catalog_text(c, "", 0);
    c->header->root = c->directories[0].path;
    c->directories[0].count = m->samples;
    c->untrusted = 1;
    name_classes(m, c);
    for (size_t i = 0; i < m->samples; i++) {
        const char *name = coco->names + coco->images[m->image_of[i]].name;
        int whole = name[0] == '/' || !length;
        int n = snprintf(path, sizeof path, "%s%s%s", whole ? "" : m->folder,
                         whole || ends ? "" : "/", name);
        c->names[i] = hr__catalog_text(c, path, (size_t)n);
    }
    return 0;
}

static int add_rows(const struct coco_making *m, struct hr_dataset *images, struct hr_dataset **out)
{
    const struct coco_columns *c = &m->columns;
    const struct hr_column columns[] = {
        {.name = "boxes", .dtype = HR_FLOAT32, .role = HR_COLUMN_BOX, .dims = 1, .shape = {4}},
        {.name = "labels", .dtype = HR_INT64},
        {.name = "area", .dtype = HR_FLOAT32},
        {.name = "iscrowd", .dtype = HR_INT64},
        {.name = "image_id", .dtype = HR_INT64, .role = HR_COLUMN_SAMPLE},
        {.name = "keypoints",
         .dtype = HR_FLOAT32,
         .role = HR_COLUMN_POINTS,
         .dims = 2,
         .shape = {(int)m->coco->points_each, 3}}};
    const void *data[] = {c->boxes, c->labels, c->area, c->crowd, c->image_id, c->points};
    size_t count = sizeof columns / sizeof *columns - (size_t)!has_points(m);
    return hr_dataset_with_rows(out, images, columns, count, c->offsets, data, m->error);
}

static int make_dataset(struct coco_making *m, struct hr_dataset **out)
{
    struct hr__catalog *catalog = NULL;
    struct hr_dataset *images = NULL;
    int r = place_rows(m);
    if (!r)
        r = fill_columns(m);
    if (!r)
        r = make_catalog(m, &catalog);
    if (!r)
        r = hr__dataset_create(&images, catalog, "", "", m->error);
    if (r)
        hr__catalog_destroy(&catalog);
    if (!r)
        r = add_rows(m, images, out);
    hr_dataset_unref(&images);
    return r;
}

static void free_making(struct coco_making *m)
{
    struct coco_columns *c = &m->columns;
    hr__free(c->offsets);
    hr__free(c->boxes);
    hr__free(c->labels);
    hr__free(c->area);
    hr__free(c->crowd);
    hr__free(c->image_id);
    hr__free(c->points);
    hr__free(c->place);
    hr__free(m->image_of);
}

int hr__dataset_of_coco(struct hr_dataset **out, const char *images, struct hr__json_reader *stream,
                        const struct hr_coco_options *options, struct hr_error *error)
{
    struct hr__coco coco;
    *out = NULL;
    int r = hr__coco_read(&coco, stream, options, error);
    if (r)
        return r;
    struct coco_making m = {.coco = &coco,
                            .options = options,
                            .folder = images,
                            .file = hr__json_reader_name(stream),
                            .error = error};
    r = make_dataset(&m, out);
    free_making(&m);
    hr__coco_clear(&coco);
    return r;
}

int hr_dataset_open_coco(struct hr_dataset **out, const char *images, const char *annotations,
                         const struct hr_coco_options *options, struct hr_error *error)
{
    struct hr_coco_options taken;
    struct hr__json_reader *stream;
    *out = NULL;
    hr_coco_options_default(&taken);
    int r =
        options ? hr__versioned_take(&taken, sizeof taken, options, "hr_coco_options", error) : 0;
    if (!r)
        r = hr__json_reader_open(&stream, annotations, error);
    if (r)
        return r;
    r = hr__dataset_of_coco(out, images, stream, &taken, error);
    hr__json_reader_close(&stream);
    return r;
}
