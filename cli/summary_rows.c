/*
 * What rows a dataset has (boxes and labels of images with objects), and how many of each class.
 * Its classes are then those of the rows' labels.
 */
#include "summary.h"
#include "text.h"

#include <headrace/rows.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_int64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Returns the column of labels, whole numbers with one for each row; `count`: there is none. */
static size_t find_labels(const struct hr_dataset *dataset, size_t count)
{
    struct hr_column column;
    for (size_t c = 0; c < count; c++) {
        hr_dataset_column(dataset, c, &column);
        if (!strcmp(column.name, "labels") && column.role == HR_COLUMN_VALUE &&
            column.dtype == HR_INT64 && !column.dims)
            return c;
    }
    return count;
}

/* Counts rows, and finds the names of columns. */
static int count_rows(struct summary *s, const struct hr_dataset *dataset, size_t columns)
{
    struct summary_rows *rows = &s->rows;
    size_t with_rows = columns, count = 0;
    rows->columns = calloc(columns, sizeof *rows->columns);
    if (!rows->columns)
        return -ENOMEM;
    for (size_t c = 0; c < columns; c++) {
        struct hr_column column;
        hr_dataset_column(dataset, c, &column);
        rows->columns[c] = text_escape(column.name);
        if (!rows->columns[c])
            return -ENOMEM;
        rows->column_count++;
        if (column.role != HR_COLUMN_SAMPLE)
            with_rows = c;
    }
    for (size_t i = 0; i < s->samples && with_rows < columns; i++) {
        (void)hr_dataset_rows(dataset, i, with_rows, &count);
        rows->count += count;
        rows->empty += !count;
        rows->most = count > rows->most ? count : rows->most;
    }
    return 0;
}

/* Gathers the labels of all rows, sorted, each class that has a name once more. */
static int64_t *gather_labels(const struct summary *s, const struct hr_dataset *dataset,
                              size_t column, size_t *total)
{
    size_t named = hr_dataset_class_count(dataset), count, at = 0;
    int64_t *labels = calloc(named + s->rows.count + 1, sizeof *labels);
    for (size_t i = 0; labels && i < named; i++)
        if (*hr_dataset_class_name(dataset, i))
            labels[at++] = (int64_t)i;
    for (size_t i = 0; labels && i < s->samples; i++) {
        const void *values = hr_dataset_rows(dataset, i, column, &count);
        if (count)
            memcpy(labels + at, values, count * sizeof *labels);
        at += count;
    }
    if (labels)
        qsort(labels, at, sizeof *labels, compare_int64);
    *total = at;
    return labels;
}

static int is_named(const struct hr_dataset *dataset, int64_t label)
{
    return label >= 0 && (uint64_t)label < hr_dataset_class_count(dataset) &&
           *hr_dataset_class_name(dataset, (size_t)label);
}

static int add_class(struct summary *s, const struct hr_dataset *dataset, int64_t label, size_t run)
{
    struct summary_class *c = &s->classes[s->class_count];
    char digits[TEXT_NUMBER];
    int named = is_named(dataset, label);
    snprintf(digits, sizeof digits, "%" PRId64, label);
    *c = (struct summary_class){.label = label, .samples = run - (size_t)named};
    c->name = text_escape(named ? hr_dataset_class_name(dataset, (size_t)label) : digits);
    s->class_count += c->name != NULL;
    return c->name ? 0 : -ENOMEM;
}

int summary_add_rows(struct summary *s, const struct hr_dataset *dataset)
{
    size_t columns = hr_dataset_column_count(dataset), labels = find_labels(dataset, columns);
    size_t total = 0, classes = 0;
    int r = columns ? count_rows(s, dataset, columns) : 0;
    if (r || labels == columns)
        return r;
    int64_t *all = gather_labels(s, dataset, labels, &total);
    for (size_t i = 0; all && i < total; i++)
        classes += !i || all[i] != all[i - 1];
    s->classes = calloc(classes + 1, sizeof *s->classes);
    s->rows.have_labels = 1;
    if (!all || !s->classes)
        r = -ENOMEM;
    for (size_t i = 0, end; !r && i < total; i = end) {
        for (end = i; end < total && all[end] == all[i];)
            end++;
        r = add_class(s, dataset, all[i], end - i);
    }
    free(all);
    return r;
}
