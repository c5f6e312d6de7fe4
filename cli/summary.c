/* Computes the summary of a dataset: counts by class, by size, and unreadable samples. */
#include "summary.h"

#include "text.h"

#include <headrace/pack.h>
#include <headrace/prepare.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

int summary_bads_add(struct summary_bads *bads, uint64_t index, const char *path,
                     const char *reason)
{
    /* the capacity doubles when the count is 0 or a power of two */
    if (!(bads->count & (bads->count - 1))) {
        size_t capacity = bads->count ? bads->count * 2 : 1;
        struct summary_bad *more = realloc(bads->items, capacity * sizeof *more);
        if (!more)
            return -ENOMEM;
        bads->items = more;
    }
    struct summary_bad bad = {index, text_escape(path), text_escape(reason)};
    if (!bad.path || !bad.reason) {
        free(bad.path);
        free(bad.reason);
        return -ENOMEM;
    }
    bads->items[bads->count++] = bad;
    return 0;
}

void summary_bads_clear(struct summary_bads *bads)
{
    for (size_t i = 0; i < bads->count; i++) {
        free(bads->items[i].path);
        free(bads->items[i].reason);
    }
    free(bads->items);
    memset(bads, 0, sizeof *bads);
}

static char *path_of(const struct hr_dataset *dataset, size_t index)
{
    size_t length = hr_dataset_path(dataset, index, NULL, 0);
    char *path = malloc(length + 1);
    if (path)
        hr_dataset_path(dataset, index, path, length + 1);
    return path;
}

/* Looks at the file of a sample whose size the dataset does not know: sets *bytes, or adds the
 * sample to the unreadable ones. */
static int look_at_file(struct summary *s, const struct hr_dataset *dataset, size_t index,
                        int64_t *bytes)
{
    struct stat st;
    char *path = path_of(dataset, index);
    if (!path)
        return -ENOMEM;
    const char *reason = NULL;
    if (stat(path, &st))
        reason = strerror(errno);
    else if (S_ISDIR(st.st_mode))
        reason = "it is a directory";
    else if (!S_ISREG(st.st_mode))
        reason = "it is no regular file";
    else
        *bytes = (int64_t)st.st_size;
    int r = reason ? summary_bads_add(&s->unreadable, index, path, reason) : 0;
    free(path);
    return r;
}

/* Returns why a file with an image's name cannot be a sample; NULL: it may be one. Files with the
 * usual extensions of decoded formats are not opened here; --verify checks those. */
static const char *cannot_be_a_sample(const char *path, int64_t bytes, struct hr_preparer *preparer,
                                      struct hr_error *why)
{
    static const char *const decoded[] = {".jpg", ".jpeg", ".png", ".webp"};
    const char *extension = strrchr(path, '.');
    unsigned char start[64];
    struct hr_image_info info;
    if (!bytes)
        return "the file is empty (0 bytes); restore or remove it";
    for (size_t i = 0; i < sizeof decoded / sizeof *decoded; i++)
        if (!extension || !strcasecmp(extension, decoded[i]))
            return NULL;
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL; /* in a container, or removed meanwhile */
    size_t length = fread(start, 1, sizeof start, file);
    fclose(file);
    return hr_preparer_info(preparer, start, length, &info, why) == -ENOTSUP ? why->message : NULL;
}

static int add_impossible(struct summary *s, const struct hr_dataset *dataset, size_t index,
                          struct hr_preparer *preparer, int64_t bytes)
{
    struct hr_error why = {0};
    char *path = path_of(dataset, index);
    if (!path)
        return -ENOMEM;
    const char *reason = cannot_be_a_sample(path, bytes, preparer, &why);
    int r = reason ? summary_bads_add(&s->unreadable, index, path, reason) : 0;
    free(path);
    return r;
}

static int compare_int64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int compare_class(const void *key, const void *item)
{
    int64_t label = *(const int64_t *)key, other = ((const struct summary_class *)item)->label;
    return label < other ? -1 : label > other;
}

/* Makes the classes: labels 0, 1, ... of a folder, or the labels that occur in a list. */
static int make_classes(struct summary *s, const struct hr_dataset *dataset)
{
    size_t count = hr_dataset_class_count(dataset);
    int64_t *labels = calloc(count + s->samples + 1, sizeof *labels);
    if (!labels)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        labels[i] = (int64_t)i;
    if (!s->named) {
        for (size_t i = 0; i < s->samples; i++)
            labels[count++] = hr_dataset_label(dataset, i);
        qsort(labels, count, sizeof *labels, compare_int64);
        size_t kept = 0;
        for (size_t i = 0; i < count; i++)
            if (!kept || labels[kept - 1] != labels[i])
                labels[kept++] = labels[i];
        count = kept;
    }
    s->classes = calloc(count + 1, sizeof *s->classes);
    for (size_t i = 0; s->classes && i < count; i++) {
        char digits[TEXT_NUMBER];
        snprintf(digits, sizeof digits, "%" PRId64, labels[i]);
        s->classes[i].label = labels[i];
        s->classes[i].name = text_escape(s->named ? hr_dataset_class_name(dataset, i) : digits);
        if (!s->classes[i].name)
            break;
        s->class_count++;
    }
    free(labels);
    return s->class_count == count && s->classes ? 0 : -ENOMEM;
}

static void count_size(struct summary *s, int64_t *sizes, int64_t bytes)
{
    sizes[s->known++] = bytes;
    s->bytes += (uint64_t)bytes;
    s->buckets[bytes ? 63 - __builtin_clzll((uint64_t)bytes) : 0]++;
}

/* Counts a sample in its class, unless classes are those of rows. */
static void count_class(struct summary *s, int64_t label, int64_t bytes)
{
    struct summary_class *c =
        s->rows.have_labels ? NULL
                            : bsearch(&label, s->classes, s->class_count, sizeof *c, compare_class);
    if (!c)
        return;
    c->samples++;
    c->bytes += bytes < 0 ? 0 : (uint64_t)bytes;
}

static int count_samples(struct summary *s, const struct hr_dataset *dataset)
{
    int64_t *sizes = calloc(s->samples + 1, sizeof *sizes);
    struct hr_preparer *preparer = NULL;
    int r = sizes ? hr_preparer_create(&preparer, NULL) : -ENOMEM;
    for (size_t i = 0; !r && i < s->samples; i++) {
        int64_t bytes = hr_dataset_sample_bytes(dataset, i);
        if (bytes < 0)
            r = look_at_file(s, dataset, i, &bytes);
        count_class(s, hr_dataset_label(dataset, i), bytes);
        if (r || bytes < 0)
            continue;
        count_size(s, sizes, bytes);
        if (!s->is_sound)
            r = add_impossible(s, dataset, i, preparer, bytes);
    }
    if (!r && s->known) {
        qsort(sizes, s->known, sizeof *sizes, compare_int64);
        s->smallest = (uint64_t)sizes[0];
        s->median = (uint64_t)sizes[(s->known - 1) / 2];
        s->largest = (uint64_t)sizes[s->known - 1];
        s->mean = s->bytes / s->known;
    }
    hr_preparer_destroy(&preparer);
    free(sizes);
    return r;
}

/* Returns the kind of the files that hold the samples, which are then named CONTAINER:KEY;
 * SUMMARY_LIST if samples are files of their own. */
static enum summary_kind kind_of_container(const struct hr_dataset *dataset)
{
    char *path = hr_dataset_count(dataset) ? path_of(dataset, 0) : NULL, first[4] = "";
    size_t key = path ? hr_dataset_key(dataset, 0, NULL, 0) : 0, length = path ? strlen(path) : 0;
    enum summary_kind kind = SUMMARY_LIST;
    if (length > key && path[length - key - 1] == ':') {
        struct hr_pack_result pack = {.size = sizeof pack};
        path[length - key - 1] = 0;
        FILE *file = fopen(path, "rbe");
        int parquet = file && fread(first, 1, 4, file) == 4 && !memcmp(first, "PAR1", 4);
        if (file)
            fclose(file);
        kind = parquet                               ? SUMMARY_PARQUET
               : !hr_pack_inspect(path, &pack, NULL) ? SUMMARY_PACK
                                                     : SUMMARY_TAR;
    }
    free(path);
    return kind;
}

int summary_make(struct summary *summary, const char *path, const struct hr_dataset *dataset)
{
    summary->path = text_escape(path);
    if (!summary->path)
        return -ENOMEM;
    summary->samples = hr_dataset_count(dataset);
    summary->is_sound = hr_dataset_media(dataset) == HR_MEDIA_SOUNDS;
    summary->kind = *hr_dataset_root(dataset) ? SUMMARY_FOLDER : kind_of_container(dataset);
    summary->named = summary->kind == SUMMARY_FOLDER || hr_dataset_class_count(dataset);
    summary->info.size = sizeof summary->info;
    hr_dataset_get_info(dataset, &summary->info);
    int r = summary_add_rows(summary, dataset);
    if (!r && !summary->rows.have_labels)
        r = make_classes(summary, dataset);
    if (!r)
        r = count_samples(summary, dataset);
    for (size_t i = 0; i < summary->class_count && !summary->rows.have_labels; i++)
        summary->empty_classes += !summary->classes[i].samples;
    return r;
}

int summary_bads_take(struct summary_bads *bads, const struct hr_verify_report *report)
{
    for (size_t i = 0; i < hr_verify_report_count(report); i++) {
        struct hr_bad_sample bad;
        hr_verify_report_get(report, i, &bad);
        if (summary_bads_add(bads, bad.index, bad.path, bad.reason))
            return -ENOMEM;
    }
    return 0;
}

int summary_add_report(struct summary *summary, const struct hr_verify_report *report)
{
    summary->verified = 1;
    return summary_bads_take(&summary->bad, report);
}

int summary_has_problem(const struct summary *summary)
{
    return summary->empty_classes || summary->unreadable.count || summary->bad.count;
}

void summary_clear(struct summary *summary)
{
    for (size_t i = 0; i < summary->class_count; i++)
        free(summary->classes[i].name);
    free(summary->classes);
    free(summary->path);
    summary_bads_clear(&summary->unreadable);
    summary_bads_clear(&summary->bad);
    free(summary->sounds.kinds);
    for (size_t i = 0; i < summary->rows.column_count; i++)
        free(summary->rows.columns[i]);
    free(summary->rows.columns);
    memset(summary, 0, sizeof *summary);
}
