/*
 * Reads COCO's JSON; see coco.h. Every annotation is checked once all of its members are known, so
 * that errors can name it; what refers to images and categories is resolved at the end, because
 * they may come last in the file.
 */
#include "dataset/coco.h"

#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 4096
#define KEY_BYTES  32

struct coco_reading {
    struct hr__coco *coco;
    struct hr__json_reader *s;
    const char *name;
    const struct hr_coco_options *options;
    struct hr_error *error;
    char text[TEXT_BYTES];
};

void hr__coco_clear(struct hr__coco *coco)
{
    hr__free(coco->images);
    hr__free(coco->categories);
    hr__free(coco->annotations);
    hr__free(coco->names);
    hr__free(coco->points);
    memset(coco, 0, sizeof *coco);
}

static int no_memory(const struct coco_reading *r)
{
    return hr__fail(r->error, -ENOMEM, "out of memory for the annotations of %s", r->name);
}

/* An id of the file: a whole number, or what it is instead. */
struct coco_id {
    int64_t value;
    enum { COCO_ID_NONE = 0, COCO_ID_VALID, COCO_ID_TEXT, COCO_ID_NOT_WHOLE } is;
};

static void read_id(struct coco_reading *r, struct coco_id *id)
{
    struct hr__json_number number;
    if (hr__json_reader_peek(r->s) == '"') {
        id->is = COCO_ID_TEXT;
        hr__json_reader_skip(r->s);
        return;
    }
    hr__json_reader_number(r->s, &number);
    id->value = number.integer;
    id->is = number.is_integer ? COCO_ID_VALID : COCO_ID_NOT_WHOLE;
}

/* Refuses an id that is no whole number. `of`: "annotation 3 of image 7", for example. */
static int check_id(const struct coco_reading *r, const struct coco_id *id, const char *key,
                    const char *of)
{
    if (id->is == COCO_ID_VALID)
        return 0;
    return hr__fail(r->error, -EINVAL, "%s: %s: its %s %s", r->name, of, key,
                    id->is == COCO_ID_NONE   ? "is missing"
                    : id->is == COCO_ID_TEXT ? "is a text: ids must be whole numbers"
                                             : "is no whole number below 2^53");
}

/* Copies r->text to the names. */
static int keep_text(struct coco_reading *r, size_t *offset)
{
    struct hr__coco *coco = r->coco;
    size_t bytes = strlen(r->text) + 1;
    if (hr__reserve(HR__TAG_DATASET, &coco->names, coco->name_bytes + bytes))
        return no_memory(r);
    memcpy(coco->names + coco->name_bytes, r->text, bytes);
    *offset = coco->name_bytes;
    coco->name_bytes += bytes;
    return 0;
}

/* Reads an object of "images" or "categories": an id, and a text called `text_key`. */
static int read_named(struct coco_reading *r, const char *text_key, size_t index, const char *kind,
                      int64_t *id, size_t *text)
{
    char key[KEY_BYTES], of[80];
    struct coco_id found = {0};
    int has_text = 0;
    hr__json_reader_object(r->s);
    while (hr__json_reader_key(r->s, key, sizeof key)) {
        if (!strcmp(key, "id"))
            read_id(r, &found);
        else if (!strcmp(key, text_key) && hr__json_reader_peek(r->s) == '"')
            has_text = hr__json_reader_text(r->s, r->text, sizeof r->text);
        else
            hr__json_reader_skip(r->s);
    }
    int error = hr__json_reader_error(r->s, r->error);
    if (error)
        return error;
    snprintf(of, sizeof of, "%s %zu of the file", kind, index + 1);
    error = check_id(r, &found, "id", of);
    if (!error && (!has_text || !r->text[0]))
        error = hr__fail(r->error, -EINVAL, "%s: %s %" PRId64 " has no %s", r->name, kind,
                         found.value, text_key);
    *id = found.value;
    return error ? error : keep_text(r, text);
}

static int read_image(struct coco_reading *r)
{
    struct hr__coco *coco = r->coco;
    if (hr__reserve(HR__TAG_DATASET, &coco->images, coco->image_count + 1))
        return no_memory(r);
    struct hr__coco_image *image = &coco->images[coco->image_count];
    int error = read_named(r, "file_name", coco->image_count, "image", &image->id, &image->name);
    coco->image_count += !error;
    return error;
}

static int read_category(struct coco_reading *r)
{
    struct hr__coco *coco = r->coco;
    if (hr__reserve(HR__TAG_DATASET, &coco->categories, coco->category_count + 1))
        return no_memory(r);
    struct hr__coco_category *category = &coco->categories[coco->category_count];
    int error =
        read_named(r, "name", coco->category_count, "category", &category->id, &category->name);
    coco->category_count += !error;
    return error;
}

/* The members of an annotation as they stand in the file. */
struct coco_members {
    struct coco_id id, image, category;
    double box[4]; /* x, y, width, height */
    int boxes;     /* numbers of it; more than 4: too many; -1: there is no bbox */
    struct hr__json_number area;
    int has_area, crowd;
    size_t points, point_numbers;
};

static void read_box(struct coco_reading *r, struct coco_members *a)
{
    struct hr__json_number number;
    if (hr__json_reader_peek(r->s) != '[') {
        hr__json_reader_skip(r->s); /* null, for example */
        return;
    }
    a->boxes = 0;
    hr__json_reader_array(r->s);
    while (hr__json_reader_more(r->s) && hr__json_reader_number(r->s, &number)) {
        if (a->boxes < 4)
            a->box[a->boxes] = number.real;
        a->boxes += a->boxes <= 4;
    }
}

static int read_points(struct coco_reading *r, struct coco_members *a)
{
    struct hr__coco *coco = r->coco;
    struct hr__json_number number;
    if (!r->options->keypoints || hr__json_reader_peek(r->s) != '[') {
        hr__json_reader_skip(r->s);
        return 0;
    }
    coco->point_numbers -= a->point_numbers; /* the member is given twice */
    a->points = coco->point_numbers;
    a->point_numbers = 0;
    hr__json_reader_array(r->s);
    while (hr__json_reader_more(r->s) && hr__json_reader_number(r->s, &number)) {
        if (a->point_numbers > 3 * HR__COCO_POINTS_MAX)
            continue;
        if (hr__reserve(HR__TAG_DATASET, &coco->points, coco->point_numbers + 1))
            return no_memory(r);
        coco->points[coco->point_numbers++] = (float)number.real;
        a->point_numbers++;
    }
    return 0;
}

static int read_member(struct coco_reading *r, const char *key, struct coco_members *a)
{
    if (!strcmp(key, "id"))
        read_id(r, &a->id);
    else if (!strcmp(key, "image_id"))
        read_id(r, &a->image);
    else if (!strcmp(key, "category_id"))
        read_id(r, &a->category);
    else if (!strcmp(key, "bbox"))
        read_box(r, a);
    else if (!strcmp(key, "area") && hr__json_reader_peek(r->s) != 'n')
        a->has_area = hr__json_reader_number(r->s, &a->area);
    else if (!strcmp(key, "iscrowd"))
        hr__json_reader_flag(r->s, &a->crowd);
    else if (!strcmp(key, "keypoints"))
        return read_points(r, a);
    else
        hr__json_reader_skip(r->s);
    return 0;
}

/* Computes the box as torchvision does: in float32, after the conversion. */
static int check_box(const struct coco_reading *r, const struct coco_members *a, const char *of,
                     float box[4])
{
    if (a->boxes < 0)
        return hr__fail(r->error, -EINVAL,
                        "%s: %s has no bbox: the file must be one of boxes (instances_*.json), not "
                        "of captions",
                        r->name, of);
    if (a->boxes != 4)
        return hr__fail(r->error, -EINVAL, "%s: %s: its bbox must have 4 numbers", r->name, of);
    box[0] = (float)a->box[0];
    box[1] = (float)a->box[1];
    box[2] = box[0] + (float)a->box[2];
    box[3] = box[1] + (float)a->box[3];
    for (int i = 0; i < 4; i++)
        if (!isfinite(a->box[i]) || !isfinite(box[i]))
            return hr__fail(r->error, -EINVAL,
                            "%s: %s: its bbox (%g, %g, %g, %g) is not finite in float32", r->name,
                            of, a->box[0], a->box[1], a->box[2], a->box[3]);
    if (a->box[2] < 0 || a->box[3] < 0)
        return hr__fail(r->error, -EINVAL,
                        "%s: %s: its bbox (%g, %g, %g, %g) is inverted: width and height must not "
                        "be negative",
                        r->name, of, a->box[0], a->box[1], a->box[2], a->box[3]);
    return 0;
}

static int check_points(const struct coco_reading *r, const struct coco_members *a, const char *of)
{
    struct hr__coco *coco = r->coco;
    size_t count = a->point_numbers / 3;
    if (!a->point_numbers)
        return 0;
    if (a->point_numbers % 3 || count > HR__COCO_POINTS_MAX)
        return hr__fail(r->error, -EINVAL,
                        "%s: %s: its keypoints must be x, y and visibility, of at most %d points",
                        r->name, of, HR__COCO_POINTS_MAX);
    if (coco->points_each && coco->points_each != count)
        return hr__fail(r->error, -EINVAL,
                        "%s: %s has %zu keypoints, and those before it %zu: all must have as many",
                        r->name, of, count, coco->points_each);
    for (size_t i = 0; i < a->point_numbers; i++)
        if (!isfinite(coco->points[a->points + i]))
            return hr__fail(r->error, -EINVAL, "%s: %s: a keypoint is not finite", r->name, of);
    coco->points_each = count;
    return 0;
}

/* Checks what was read, and keeps it. */
static int keep_annotation(struct coco_reading *r, const struct coco_members *a)
{
    struct hr__coco *coco = r->coco;
    struct hr__coco_annotation kept = {.id = a->id.value,
                                       .image = a->image.value,
                                       .category = a->category.value,
                                       .points = a->point_numbers ? a->points : SIZE_MAX,
                                       .crowd = a->crowd};
    char of[96];
    snprintf(of, sizeof of, "annotation %zu of the file", coco->annotation_count + 1);
    int error = check_id(r, &a->id, "id", of);
    snprintf(of, sizeof of, "annotation %" PRId64, a->id.value);
    if (!error)
        error = check_id(r, &a->image, "image_id", of);
    snprintf(of, sizeof of, "annotation %" PRId64 " of image %" PRId64, a->id.value,
             a->image.value);
    if (!error)
        error = check_box(r, a, of, kept.box);
    if (!error)
        error = check_id(r, &a->category, "category_id", of);
    if (!error)
        error = check_points(r, a, of);
    if (error)
        return error;
    kept.area = a->has_area ? (float)a->area.real
                            : (kept.box[2] - kept.box[0]) * (kept.box[3] - kept.box[1]);
    if (!isfinite(kept.area))
        return hr__fail(r->error, -EINVAL, "%s: %s: its area is not finite", r->name, of);
    if (hr__reserve(HR__TAG_DATASET, &coco->annotations, coco->annotation_count + 1))
        return no_memory(r);
    coco->annotations[coco->annotation_count++] = kept;
    return 0;
}

static int read_annotation(struct coco_reading *r)
{
    struct coco_members a = {.boxes = -1};
    char key[KEY_BYTES];
    int error = 0;
    hr__json_reader_object(r->s);
    while (!error && hr__json_reader_key(r->s, key, sizeof key))
        error = read_member(r, key, &a);
    if (!error)
        error = hr__json_reader_error(r->s, r->error);
    return error ? error : keep_annotation(r, &a);
}

static int report(const struct coco_reading *r)
{
    uint64_t length, place = hr__json_reader_place(r->s, &length);
    if (r->options->progress &&
        r->options->progress(r->options->progress_arg, place, length, "annotations"))
        return hr__fail(r->error, -ECANCELED, "reading %s was cancelled", r->name);
    return 0;
}

/* Reads one of the arrays at the top. */
static int read_array(struct coco_reading *r, int (*read_one)(struct coco_reading *))
{
    int error = 0;
    hr__json_reader_array(r->s);
    for (size_t n = 0; !error && hr__json_reader_more(r->s); n++) {
        error = read_one(r);
        if (!error && n % 4096 == 0)
            error = report(r);
    }
    return error ? error : hr__json_reader_error(r->s, r->error);
}

static int read_top(struct coco_reading *r)
{
    static const struct {
        const char *key;
        int (*read_one)(struct coco_reading *);
    } arrays[] = {
        {"images", read_image}, {"annotations", read_annotation}, {"categories", read_category}};
    const int count = (int)(sizeof arrays / sizeof *arrays);
    char key[KEY_BYTES];
    int seen[sizeof arrays / sizeof *arrays] = {0}, error = 0;
    hr__json_reader_object(r->s);
    while (!error && hr__json_reader_key(r->s, key, sizeof key)) {
        int which = 0;
        while (which < count && strcmp(key, arrays[which].key))
            which++;
        if (which == count)
            hr__json_reader_skip(r->s);
        else if (seen[which]++)
            error = hr__fail(r->error, -EINVAL, "%s: it has two members \"%s\"", r->name, key);
        else
            error = read_array(r, arrays[which].read_one);
    }
    if (error)
        return error;
    hr__json_reader_end(r->s);
    error = hr__json_reader_error(r->s, r->error);
    for (int i = 0; i < 2 && !error; i++)
        if (!seen[i])
            error = hr__fail(r->error, -EINVAL,
                             "%s: it has no member \"%s\": is it a file of COCO's annotations?",
                             r->name, arrays[i].key);
    return error;
}

static int compare(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_images(const void *a, const void *b)
{
    const struct hr__coco_image *x = a, *y = b;
    return compare(x->id, y->id);
}

static int compare_categories(const void *a, const void *b)
{
    const struct hr__coco_category *x = a, *y = b;
    return compare(x->id, y->id);
}

static int compare_ids(const void *a, const void *b)
{
    return compare(*(const int64_t *)a, *(const int64_t *)b);
}

static int check_annotation_ids(const struct coco_reading *r)
{
    const struct hr__coco *coco = r->coco;
    size_t n = coco->annotation_count;
    int sorted = 1;
    for (size_t i = 1; i < n && sorted; i++)
        sorted = coco->annotations[i - 1].id < coco->annotations[i].id;
    if (sorted)
        return 0;
    int64_t *ids = hr__alloc(HR__TAG_DATASET, n, sizeof *ids);
    if (!ids)
        return no_memory(r);
    for (size_t i = 0; i < n; i++)
        ids[i] = coco->annotations[i].id;
    qsort(ids, n, sizeof *ids, compare_ids);
    int error = 0;
    for (size_t i = 1; i < n && !error; i++)
        if (ids[i] == ids[i - 1])
            error = hr__fail(r->error, -EINVAL, "%s: two annotations have the id %" PRId64, r->name,
                             ids[i]);
    hr__free(ids);
    return error;
}

/* Sorts images and categories, and refuses ids that are given twice. */
static int sort(const struct coco_reading *r)
{
    struct hr__coco *coco = r->coco;
    if (!coco->image_count)
        return hr__fail(r->error, -ENODATA, "%s describes no image", r->name);
    qsort(coco->images, coco->image_count, sizeof *coco->images, compare_images);
    if (coco->category_count)
        qsort(coco->categories, coco->category_count, sizeof *coco->categories, compare_categories);
    for (size_t i = 1; i < coco->image_count; i++)
        if (coco->images[i].id == coco->images[i - 1].id)
            return hr__fail(r->error, -EINVAL, "%s: two images have the id %" PRId64 ": %s and %s",
                            r->name, coco->images[i].id, coco->names + coco->images[i - 1].name,
                            coco->names + coco->images[i].name);
    for (size_t i = 1; i < coco->category_count; i++)
        if (coco->categories[i].id == coco->categories[i - 1].id)
            return hr__fail(r->error, -EINVAL, "%s: two categories have the id %" PRId64, r->name,
                            coco->categories[i].id);
    return check_annotation_ids(r);
}

/* Replaces ids of images and categories by their indices. */
static int resolve(const struct coco_reading *r)
{
    struct hr__coco *coco = r->coco;
    for (size_t i = 0; i < coco->annotation_count; i++) {
        struct hr__coco_annotation *a = &coco->annotations[i];
        struct hr__coco_image image = {.id = a->image};
        struct hr__coco_category category = {.id = a->category};
        const struct hr__coco_image *its =
            bsearch(&image, coco->images, coco->image_count, sizeof image, compare_images);
        const struct hr__coco_category *class =
            coco->category_count ? bsearch(&category, coco->categories, coco->category_count,
                                           sizeof category, compare_categories)
                                 : NULL;
        if (!its)
            return hr__fail(r->error, -EINVAL,
                            "%s: annotation %" PRId64 " is of image %" PRId64
                            ", which the file does not describe",
                            r->name, a->id, a->image);
        if (!class)
            return hr__fail(r->error, -EINVAL,
                            "%s: annotation %" PRId64 " of image %" PRId64
                            " has the category %" PRId64 ", which the file does not describe",
                            r->name, a->id, a->image, a->category);
        a->image = its - coco->images;
        a->category = class - coco->categories;
    }
    return 0;
}

int hr__coco_read(struct hr__coco *out, struct hr__json_reader *stream,
                  const struct hr_coco_options *options, struct hr_error *error)
{
    const char *name = hr__json_reader_name(stream);
    memset(out, 0, sizeof *out);
    struct coco_reading *r = hr__alloc(HR__TAG_DATASET, 1, sizeof *r);
    if (!r)
        return hr__fail(error, -ENOMEM, "out of memory for the annotations of %s", name);
    *r = (struct coco_reading){
        .coco = out, .s = stream, .name = name, .options = options, .error = error};
    int result = read_top(r);
    if (!result)
        result = report(r);
    if (!result)
        result = sort(r);
    if (!result)
        result = resolve(r);
    hr__free(r);
    if (result)
        hr__coco_clear(out);
    return result;
}
