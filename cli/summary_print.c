/* Prints the summary as text of 80 columns and as JSON. */
#include "summary.h"
#include "text.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BAR_COLUMNS    32
#define NAME_COLUMNS   40
#define CLASSES_AN_END 6  /* classes listed at either end, largest and smallest */
#define BADS_AT_MOST   20 /* unreadable files listed in text */

static const char *plural(uint64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

static const char *noun(const struct summary *s)
{
    return s->is_sound ? "sound" : "image";
}

static const char *nouns(const struct summary *s)
{
    return s->is_sound ? "sounds" : "images";
}

/* Writes a length: "3.21 s", "12 min 34 s", "5 h 12 min". */
static const char *text_length(char out[TEXT_NUMBER], double seconds)
{
    if (seconds < 60)
        snprintf(out, TEXT_NUMBER, "%.2f s", seconds);
    else if (seconds < 3600)
        snprintf(out, TEXT_NUMBER, "%d min %02d s", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(out, TEXT_NUMBER, "%.0f h %02d min", floor(seconds / 3600),
                 (int)fmod(seconds / 60, 60));
    return out;
}

static void print_sounds(const struct summary *s)
{
    const struct summary_sounds *sounds = &s->sounds;
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER], d[TEXT_NUMBER];
    if (!s->surveyed || !sounds->known)
        return;
    printf("\nLength: %s in all, median %s, from %s to %s\n", text_length(a, sounds->total),
           text_length(b, sounds->median), text_length(c, sounds->shortest),
           text_length(d, sounds->longest));
    for (size_t i = 0; i < sounds->kind_count; i++) {
        const struct summary_kind_of_sound *k = &sounds->kinds[i];
        printf("  %-7s %6d Hz  %d %-9s %12s %5.1f %%  %s\n", hr_sound_format_name(k->info.format),
               k->info.rate, k->info.channels,
               plural((uint64_t)k->info.channels, "channel", "channels"), text_count(a, k->samples),
               100.0 * (double)k->samples / (double)s->samples, text_length(b, k->seconds));
    }
}

static void print_head(const struct summary *s)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER], d[TEXT_NUMBER];
    const char *const kinds[] = {s->is_sound ? "a folder of sounds" : "an image folder", "a list",
                                 "a pack", "tar files", "Parquet tables"};
    printf("%s\n", s->path);
    printf("  %s %s of %s, %s", text_count(a, s->samples), plural(s->samples, noun(s), nouns(s)),
           kinds[s->kind], text_count(b, s->class_count));
    printf(" %s, %s", plural(s->class_count, "class", "classes"), text_bytes(c, s->bytes));
    if (s->kind == SUMMARY_FOLDER)
        printf(", %s %s", text_count(d, s->info.directories),
               plural(s->info.directories, "directory", "directories"));
    printf("\n");
    if (s->info.object_requests)
        printf("  %s %s to the store, of them %s for listings, about $%.6f\n",
               text_count(a, s->info.object_requests),
               plural(s->info.object_requests, "request", "requests"),
               text_count(b, s->info.object_lists), s->info.object_cost_usd);
}

static void print_sizes(const struct summary *s)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER], d[TEXT_NUMBER];
    uint64_t most = 0;
    int first = SUMMARY_BUCKETS, last = -1;
    if (!s->known)
        return;
    for (int i = 0; i < SUMMARY_BUCKETS; i++)
        if (s->buckets[i]) {
            first = i < first ? i : first;
            last = i;
            most = s->buckets[i] > most ? s->buckets[i] : most;
        }
    printf("\nBytes of %s: mean %s, median %s, from %s to %s\n",
           s->is_sound ? "a sound" : "an image", text_bytes(a, s->mean), text_bytes(b, s->median),
           text_bytes(c, s->smallest), text_bytes(d, s->largest));
    for (int i = first; i <= last; i++) {
        int empty = 0;
        while (!s->buckets[i + empty]) /* terminates: the last bucket is not empty */
            empty++;
        if (empty > 1) { /* do not print a page of zeros because of one empty file */
            printf("  ...\n");
            i += empty - 1;
            continue;
        }
        /* rounded up, so that even one image is visible */
        int bar = (int)((s->buckets[i] * BAR_COLUMNS + most - 1) / most);
        printf("  from %8s %12s %5.1f %%", text_bytes(a, i ? (uint64_t)1 << i : 0),
               text_count(b, s->buckets[i]), 100.0 * (double)s->buckets[i] / (double)s->known);
        printf("%s%.*s\n", bar ? "  " : "", bar, "################################");
    }
}

/* Returns what classes divide: samples, or rows. */
static uint64_t classed(const struct summary *s)
{
    return s->rows.have_labels ? s->rows.count : s->samples;
}

static void print_class(const struct summary *s, const struct summary_class *c)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER];
    uint64_t all = classed(s);
    printf("  ");
    text_print_cell(c->name, NAME_COLUMNS);
    printf(" %12s %5.1f %%", text_count(a, c->samples),
           all ? 100.0 * (double)c->samples / (double)all : 0.0);
    if (!s->rows.have_labels)
        printf(" %10s", text_bytes(b, c->bytes));
    printf("\n");
}

static void print_rows(const struct summary *s)
{
    const struct summary_rows *rows = &s->rows;
    char a[TEXT_NUMBER], b[TEXT_NUMBER], c[TEXT_NUMBER];
    if (!rows->column_count)
        return;
    printf("\nRows of %s: %s in all, mean %.1f, at most %s; %s %s without any\n",
           s->is_sound ? "a sound" : "an image", text_count(a, rows->count),
           s->samples ? (double)rows->count / (double)s->samples : 0.0, text_count(b, rows->most),
           text_count(c, rows->empty), plural(rows->empty, noun(s), nouns(s)));
    for (size_t i = 0; i < rows->column_count; i++)
        printf("%s%s", i ? ", " : "  ", rows->columns[i]);
    printf("\n");
}

/* Sorts by number of images, descending; equal ones by label. */
static int compare_samples(const void *a, const void *b)
{
    const struct summary_class *x = *(struct summary_class *const *)a;
    const struct summary_class *y = *(struct summary_class *const *)b;
    if (x->samples != y->samples)
        return x->samples > y->samples ? -1 : 1;
    return x->label < y->label ? -1 : x->label > y->label;
}

static void print_ends(const struct summary *s)
{
    char a[TEXT_NUMBER];
    const struct summary_class **order = calloc(s->class_count, sizeof *order);
    if (!order)
        return;
    for (size_t i = 0; i < s->class_count; i++)
        order[i] = &s->classes[i];
    qsort(order, s->class_count, sizeof *order, compare_samples);
    for (size_t i = 0; i < CLASSES_AN_END; i++)
        print_class(s, order[i]);
    printf("  ... %s more; --classes lists all\n",
           text_count(a, s->class_count - 2 * CLASSES_AN_END));
    for (size_t i = s->class_count - CLASSES_AN_END; i < s->class_count; i++)
        print_class(s, order[i]);
    free(order);
}

static void print_classes(const struct summary *s, int all)
{
    uint64_t least = UINT64_MAX, most = 0;
    char a[TEXT_NUMBER], b[TEXT_NUMBER];
    for (size_t i = 0; i < s->class_count; i++) {
        uint64_t n = s->classes[i].samples;
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    printf("\n%s of a class: mean %.1f, from %s to %s\n",
           s->rows.have_labels ? "Rows"
           : s->is_sound       ? "Sounds"
                               : "Images",
           (double)classed(s) / (double)s->class_count, text_count(a, least), text_count(b, most));
    if (!all && s->class_count > 2 * CLASSES_AN_END + 1) {
        print_ends(s);
        return;
    }
    for (size_t i = 0; i < s->class_count; i++)
        print_class(s, &s->classes[i]);
}

void summary_bads_print(const struct summary_bads *bads, size_t at_most)
{
    char a[TEXT_NUMBER];
    for (size_t i = 0; i < bads->count && i < at_most; i++)
        printf("  %s: %s\n", bads->items[i].path, bads->items[i].reason);
    if (bads->count > at_most)
        printf("  ... %s more; --json lists all\n", text_count(a, bads->count - at_most));
}

static void print_problems(const struct summary *s)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER];
    if (s->empty_classes) {
        printf("\n%s %s without %s:\n", text_count(a, s->empty_classes),
               plural(s->empty_classes, "class", "classes"), s->is_sound ? "a sound" : "an image");
        for (size_t i = 0; i < s->class_count; i++)
            if (!s->classes[i].samples)
                printf("  %s\n", s->classes[i].name);
    }
    if (s->unreadable.count) {
        printf("\n%s %s cannot be used:\n", text_count(a, s->unreadable.count),
               plural(s->unreadable.count, "file", "files"));
        summary_bads_print(&s->unreadable, BADS_AT_MOST);
    }
    if (!s->verified)
        return;
    if (!s->bad.count) {
        printf("\nEvery %s was read and decoded: none is bad.\n", noun(s));
        return;
    }
    printf("\n%s of %s %s %s bad:\n", text_count(a, s->bad.count), text_count(b, s->samples),
           nouns(s), plural(s->bad.count, "is", "are"));
    summary_bads_print(&s->bad, s->bad.count);
}

void summary_print(const struct summary *summary, int all_classes)
{
    print_head(summary);
    print_sounds(summary);
    print_sizes(summary);
    print_rows(summary);
    if (summary->class_count)
        print_classes(summary, all_classes);
    print_problems(summary);
}

json_t *summary_bads_json(const struct summary_bads *bads)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < bads->count; i++) {
        const struct summary_bad *b = &bads->items[i];
        json_array_append_new(list, json_pack("{s:I, s:s, s:s}", "index", (json_int_t)b->index,
                                              "path", b->path, "reason", b->reason));
    }
    return list;
}

static json_t *json_classes(const struct summary *s)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < s->class_count; i++) {
        const struct summary_class *c = &s->classes[i];
        json_array_append_new(list,
                              s->rows.have_labels
                                  ? json_pack("{s:I, s:s, s:I}", "label", (json_int_t)c->label,
                                              "name", c->name, "rows", (json_int_t)c->samples)
                                  : json_pack("{s:I, s:s, s:I, s:I}", "label", (json_int_t)c->label,
                                              "name", c->name, "samples", (json_int_t)c->samples,
                                              "bytes", (json_int_t)c->bytes));
    }
    return list;
}

static json_t *json_histogram(const struct summary *s)
{
    json_t *list = json_array();
    for (int i = 0; list && i < SUMMARY_BUCKETS; i++)
        if (s->buckets[i])
            json_array_append_new(
                list, json_pack("{s:I, s:I, s:I}", "from", i ? (json_int_t)1 << i : (json_int_t)0,
                                "to", (json_int_t)(((uint64_t)1 << (i + 1)) - (i == 62)), "samples",
                                (json_int_t)s->buckets[i]));
    return list;
}

static json_t *json_size(const struct summary *s)
{
    if (!s->known)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I}", "mean", (json_int_t)s->mean, "median",
                     (json_int_t)s->median, "smallest", (json_int_t)s->smallest, "largest",
                     (json_int_t)s->largest);
}

static json_t *json_verify(const struct summary *s)
{
    if (!s->verified)
        return json_null();
    return json_pack("{s:I, s:o}", "checked", (json_int_t)s->samples, "bad",
                     summary_bads_json(&s->bad));
}

/* What the sounds are; null of images. */
static json_t *json_sounds(const struct summary *s)
{
    const struct summary_sounds *sounds = &s->sounds;
    json_t *kinds = s->surveyed ? json_array() : NULL;
    if (!s->surveyed)
        return json_null();
    for (size_t i = 0; kinds && i < sounds->kind_count; i++) {
        const struct summary_kind_of_sound *k = &sounds->kinds[i];
        json_array_append_new(kinds,
                              json_pack("{s:s, s:i, s:i, s:I, s:f}", "format",
                                        hr_sound_format_name(k->info.format), "rate", k->info.rate,
                                        "channels", k->info.channels, "samples",
                                        (json_int_t)k->samples, "seconds", k->seconds));
    }
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:o}", "known", (json_int_t)sounds->known,
                     "seconds", sounds->total, "shortest", sounds->shortest, "median",
                     sounds->median, "longest", sounds->longest, "kinds", kinds);
}

/* What rows samples have; null if they have none. */
static json_t *json_rows(const struct summary *s)
{
    const struct summary_rows *rows = &s->rows;
    json_t *columns = rows->column_count ? json_array() : NULL;
    if (!rows->column_count)
        return json_null();
    for (size_t i = 0; columns && i < rows->column_count; i++)
        json_array_append_new(columns, json_string(rows->columns[i]));
    return json_pack("{s:o, s:I, s:I, s:I}", "columns", columns, "count", (json_int_t)rows->count,
                     "most", (json_int_t)rows->most, "empty", (json_int_t)rows->empty);
}

/* Describes the index file, if there is one. It is complete: closing the dataset waited for it. */
static json_t *json_index(const struct summary *s)
{
    if (!*s->info.index_path)
        return json_null();
    int exists = !access(s->info.index_path, F_OK);
    char *path = exists ? text_escape(s->info.index_path) : NULL;
    json_t *index =
        exists && !path ? NULL : json_pack("{s:s?, s:b}", "path", path, "used", s->info.from_index);
    free(path);
    return index;
}

/* The requests for objects. */
static json_t *json_requests(const struct summary *s)
{
    if (!s->info.object_requests)
        return json_null();
    return json_pack("{s:I, s:I, s:f}", "count", (json_int_t)s->info.object_requests, "lists",
                     (json_int_t)s->info.object_lists, "cost_usd", s->info.object_cost_usd);
}

json_t *summary_json(const struct summary *summary)
{
    const struct summary *s = summary;
    static const char *const kinds[] = {"folder", "list", "pack", "tar", "parquet"};
    return json_pack(
        "{s:i, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}",
        "layout", 1, "path", s->path, "kind", kinds[s->kind], "samples", (json_int_t)s->samples,
        "bytes", (json_int_t)s->bytes, "directories", (json_int_t)s->info.directories, "classes",
        json_classes(s), "size", json_size(s), "histogram", json_histogram(s), "unreadable",
        summary_bads_json(&s->unreadable), "verify", json_verify(s), "index", json_index(s),
        "sounds", json_sounds(s), "rows", json_rows(s), "requests", json_requests(s), "ok",
        !summary_has_problem(s));
}
