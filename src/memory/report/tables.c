/* The tables of a report on memory; see tables.h. Nothing is computed here but shares. */
#include "memory/report/tables.h"

#include "memory/report/words.h"
#include "report/format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define BRIEF_ROWS  12
#define BRIEF_FEW   6
#define PAGE_ROWS   20
#define GROUPS_MOST 64

struct filler {
    const struct hr__memory_view *view;
    bool brief;
};

/* ---- cells ---- */

void hr__memory_cell_bytes(struct hr__table *t, double bytes)
{
    char text[HR__FORMAT_BYTES];
    hr__table_cell(t, hr__format_bytes(text, bytes));
}

void hr__memory_cell_ns(struct hr__table *t, double ns)
{
    char text[HR__FORMAT_BYTES];
    hr__table_cell(t, hr__format_time(text, ns * 1e-9));
}

void hr__memory_cell_count(struct hr__table *t, double count)
{
    char text[HR__FORMAT_BYTES];
    hr__table_cell(t, hr__format_fixed(text, count, 0, true));
}

static void cell_share(struct hr__table *t, double share)
{
    char text[HR__FORMAT_BYTES];
    hr__table_cell(t, hr__format_share(text, share));
}

/* A draft as a cell, which it leaves empty. */
static void cell_draft(struct hr__table *t, struct hr__draft *d)
{
    t->failed |= d->failed;
    hr__table_cell(t, d->text);
    hr__draft_clear(d);
}

/* A line without the folders of its file, but for the last `kept`. */
static const char *without_folders(const char *line, int kept)
{
    const char *name = line + strcspn(line, " ");
    while (name > line && (name[-1] != '/' || kept-- > 0))
        name--;
    return name;
}

void hr__memory_cell_block(struct hr__table *t, const char *begin, const json_t *object, bool brief)
{
    struct hr__draft d = {.text = NULL};
    const char *line = hr__view_line(object);
    hr__draft_put(&d, begin);
    hr__view_describe(object, &d);
    if (*line) {
        hr__draft_put(&d, ", ");
        hr__draft_put(&d, without_folders(line, brief ? 0 : 2));
    }
    cell_draft(t, &d);
}

/* "N more" below a list that was cut. */
static void cell_more(struct hr__table *t, size_t more)
{
    hr__table_cell_print(t, "... %zu more", more);
}

static const char *s_of(double count)
{
    return count == 1 ? "" : "s";
}

/* ---- the peak ---- */

static void fill_peak(struct hr__table *t, const struct filler *f)
{
    const json_t *peak = json_object_get(f->view->device, "peak");
    double total = hr__view_number(f->view->device, "peak_bytes");
    bool said[HR__VIEW_CATEGORIES] = {false};
    for (int n = 0; n < HR__VIEW_CATEGORIES; n++) {
        int most = -1;
        double bytes = 0;
        for (int c = 0; c < HR__VIEW_CATEGORIES; c++) {
            double mine = hr__view_number(peak, hr__view_categories[c]);
            if (!said[c] && mine > bytes) {
                most = c;
                bytes = mine;
            }
        }
        if (most < 0)
            return;
        said[most] = true;
        hr__table_cell(t, hr__memory_plural(most));
        hr__memory_cell_bytes(t, bytes);
        cell_share(t, bytes / total);
        hr__table_bar(t, bytes / total);
    }
}

/* A row of groups that read the same: they differ further up their stacks only. */
struct group_row {
    const json_t *group; /* the first of them */
    double blocks, bytes;
};

static bool reads_same(const json_t *a, const json_t *b)
{
    static const char *const same[] = {"category", "what", "operator"};
    bool alike = !strcmp(hr__view_line(a), hr__view_line(b));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        alike &= json_equal(json_object_get(a, same[i]), json_object_get(b, same[i]));
    return alike;
}

/* How many rows. */
static size_t merge_groups(struct group_row rows[GROUPS_MOST], const json_t *groups)
{
    size_t count = 0, i;
    const json_t *g;
    json_array_foreach(groups, i, g)
    {
        size_t at = 0;
        while (at < count && !reads_same(rows[at].group, g))
            at++;
        if (at == GROUPS_MOST)
            break;
        if (at == count)
            rows[count++] = (struct group_row){.group = g};
        rows[at].blocks += hr__view_number(g, "blocks");
        rows[at].bytes += hr__view_number(g, "bytes");
    }
    /* Stable: an insertion sort, of what is nearly in order. */
    for (size_t k = 1; k < count; k++) {
        struct group_row one = rows[k];
        size_t at = k;
        for (; at && rows[at - 1].bytes < one.bytes; at--)
            rows[at] = rows[at - 1];
        rows[at] = one;
    }
    return count;
}

static void fill_groups(struct hr__table *t, const struct filler *f)
{
    double total = hr__view_number(f->view->device, "peak_bytes"), told = 0;
    struct group_row rows[GROUPS_MOST];
    size_t count = merge_groups(rows, json_object_get(f->view->device, "peak_blocks"));
    size_t most = f->brief ? BRIEF_ROWS : PAGE_ROWS;
    for (size_t i = 0; i < count && i < most; i++) {
        hr__memory_cell_block(t, "", rows[i].group, f->brief);
        hr__table_cell(t, hr__view_text(rows[i].group, "category"));
        hr__memory_cell_count(t, rows[i].blocks);
        hr__memory_cell_bytes(t, rows[i].bytes);
        cell_share(t, rows[i].bytes / total);
        told += rows[i].bytes;
    }
    if (total > told) {
        hr__table_cell(t, "all else");
        hr__table_cell(t, "");
        hr__table_cell(t, "");
        hr__memory_cell_bytes(t, total - told);
        cell_share(t, (total - told) / total);
    }
}

static void fill_parts(struct hr__table *t, const struct filler *f)
{
    /* of the columns; else: "else" */
    static const int shown_categories[] = {HR_MEMORY_ACTIVATION, HR_MEMORY_PARAMETER,
                                           HR_MEMORY_GRADIENT, HR_MEMORY_OPTIMIZER_STATE};
    const json_t *parts = json_object_get(f->view->device, "parts");
    size_t count = json_array_size(parts), shown = count;
    const int told_categories = f->brief ? 1 : 4;
    if (count == 1 && !*hr__view_text(json_array_get(parts, 0), "part"))
        return; /* nothing is known of parts */
    if (f->brief && shown > BRIEF_ROWS)
        shown = BRIEF_ROWS;
    for (size_t i = 0; i < shown; i++) {
        const json_t *p = json_array_get(parts, i), *by = json_object_get(p, "bytes");
        const char *name = hr__view_text(p, "part");
        double all = 0, told = 0, bytes[4];
        for (int c = 0; c < HR__VIEW_CATEGORIES; c++)
            all += fmax(hr__view_number(by, hr__view_categories[c]), 0);
        for (int c = 0; c < told_categories; c++) {
            bytes[c] = fmax(hr__view_number(by, hr__view_categories[shown_categories[c]]), 0);
            told += bytes[c];
        }
        hr__table_cell(t, *name ? name : "no part of the model");
        hr__memory_cell_bytes(t, all);
        for (int c = 0; c < told_categories; c++)
            hr__memory_cell_bytes(t, bytes[c]);
        hr__memory_cell_bytes(t, all - told);
    }
    if (shown < count) {
        cell_more(t, count - shown);
        for (int c = 1; c < t->column_count; c++)
            hr__table_cell(t, "");
    }
}

static void fill_devices(struct hr__table *t, const struct filler *f)
{
    const json_t *devices = json_object_get(f->view->root, "devices");
    json_t *d;
    size_t i;
    if (json_array_size(devices) < 2)
        return;
    json_array_foreach(devices, i, d)
    {
        hr__table_cell(t, hr__memory_device(hr__view_text(d, "device")));
        hr__memory_cell_bytes(t, hr__view_number(d, "peak_bytes"));
        hr__memory_cell_ns(t, hr__view_number(d, "peak_ns"));
        hr__memory_cell_bytes(t, hr__view_number(d, "end_bytes"));
        hr__memory_cell_count(t, hr__view_number(d, "blocks"));
    }
}

/* ---- advice ---- */

static void fill_advice(struct hr__table *t, const struct filler *f)
{
    const json_t *list = json_object_get(f->view->root, "advice");
    size_t count = json_array_size(list), shown = count;
    if (f->brief && shown > BRIEF_ROWS)
        shown = BRIEF_ROWS;
    for (size_t i = 0; i < shown; i++) {
        const json_t *a = json_array_get(list, i);
        const char *remedy = hr__memory_remedy(hr__view_text(a, "kind"));
        char begin[80];
        double cost = hr__view_number(a, "cost_ns");
        snprintf(begin, sizeof begin, "%s: ", remedy ? remedy : "other");
        hr__memory_cell_block(t, begin, a, f->brief);
        hr__memory_cell_bytes(t, hr__view_number(a, "bytes"));
        hr__memory_cell_count(t, hr__view_number(a, "blocks"));
        hr__memory_cell_ns(t, hr__view_number(a, "ns"));
        hr__memory_cell_ns(t, cost > 0 ? cost : NAN);
    }
    if (shown < count) {
        cell_more(t, count - shown);
        for (int c = 1; c < t->column_count; c++)
            hr__table_cell(t, "");
    }
}

static const char *const kinds[] = {"late free", "untouched", "recompute", "swap"};

/* Of the main device; within a kind no block counts twice. */
static void fill_remedies(struct hr__table *t, const struct filler *f)
{
    const json_t *list = json_object_get(f->view->root, "advice"), *one;
    double total = hr__view_number(f->view->device, "peak_bytes");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        double bytes = 0, blocks = 0, cost = 0;
        size_t i;
        json_array_foreach(list, i, one)
        {
            if (strcmp(hr__view_text(one, "kind"), kinds[k]) != 0 ||
                strcmp(hr__view_text(one, "device"), f->view->device_name) != 0)
                continue;
            bytes += hr__view_number(one, "bytes");
            blocks += hr__view_number(one, "blocks");
            cost += fmax(hr__view_number(one, "cost_ns"), 0);
        }
        if (!(bytes > 0))
            continue;
        hr__table_cell(t, hr__memory_remedy(kinds[k]));
        hr__memory_cell_bytes(t, bytes);
        cell_share(t, bytes / total);
        hr__memory_cell_count(t, blocks);
        hr__memory_cell_ns(t, cost > 0 ? cost : NAN);
        hr__table_bar(t, bytes / total);
    }
}

static void fill_caveats(struct hr__table *t, const struct filler *f)
{
    const json_t *list = json_object_get(f->view->root, "advice"), *one;
    size_t i;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        bool given = false;
        json_array_foreach(list, i, one) given |= !strcmp(hr__view_text(one, "kind"), kinds[k]);
        if (given)
            hr__table_cell(t, hr__memory_caveat(kinds[k]));
    }
    if (hr__table_rows(t) && !strcmp(f->view->device_name, "cpu"))
        hr__table_cell(t, "This record is of host memory: swapping is told as if it were an "
                          "accelerator's, behind a link of the bandwidths below.");
    if (json_array_size(list) > 1)
        hr__table_cell(t, "What different means save does not add up: a block may be in several "
                          "rows, and another moment becomes the peak.");
    if (json_is_true(json_object_get(f->view->root, "no_swap_advice")))
        hr__table_cell(t,
                       "No advice on swapping: when the accelerator really touched its blocks is "
                       "not known in this record, only when it was asked to.");
}

/* What the batch size is, and how it is known. */
static void fill_batch_size(struct hr__table *t, const struct hr__memory_view *v)
{
    const char *from =
        hr__view_text(json_object_get(json_object_get(v->root, "run"), "facts"), "batch size from");
    char text[HR__FORMAT_BYTES];
    if (v->fitted > 1) {
        hr__table_cell(t, "a line through");
        hr__table_cell_print(t, "%zu records", v->fitted);
        return;
    }
    hr__table_cell(t, "batch size");
    if (!v->fitted)
        hr__table_cell_print(t, "not known: %s", from);
    else
        hr__table_cell_print(t, *from ? "%s: %s" : "%s",
                             hr__format_fixed(text, v->batch_size, 0, true), from);
}

static void fill_batch(struct hr__table *t, const struct filler *f)
{
    const struct hr__memory_view *v = f->view;
    const json_t *facts = json_object_get(json_object_get(v->root, "run"), "facts");
    char text[HR__FORMAT_BYTES];
    if (!v->fitted && !*hr__view_text(facts, "batch size from"))
        return;
    fill_batch_size(t, v);
    if (!v->fitted)
        return;
    hr__table_cell(t, "whatever its size");
    hr__memory_cell_bytes(t, v->fit.fixed_bytes);
    hr__table_cell(t, "for each sample");
    hr__memory_cell_bytes(t, v->fit.bytes_per_sample);
    if (v->fitted == 1) {
        hr__table_cell(t, "assumed");
        hr__table_cell(t, "all but parameters, gradients, optimizer state and what was there "
                          "before grows with the batch; records of other batch sizes beside this "
                          "one would tell");
    }
    if (v->capacity_bytes > 0) {
        hr__table_cell(t, "memory there is");
        hr__memory_cell_bytes(t, v->capacity_bytes);
    }
    if (v->fit.batch_that_fits >= 0) {
        hr__table_cell(t, "batch that would fit");
        hr__table_cell(t, hr__format_fixed(text, v->fit.batch_that_fits, 0, true));
    }
}

/* ---- intervals ---- */

static const char *const brief_quantiles[] = {"p50", "p90", "p99", NULL};
static const char *const all_quantiles[] = {"p10", "p25", "p50", "p75", "p90", "p99", NULL};

static void interval_row(struct hr__table *t, const struct filler *f, const char *name,
                         const json_t *of, double longest)
{
    const char *const *q = f->brief ? brief_quantiles : all_quantiles;
    hr__table_cell(t, name);
    hr__memory_cell_count(t, hr__view_number(of, "count"));
    for (; *q; q++)
        /* Quantiles are ends of bins, which may lie beyond. */
        hr__memory_cell_ns(t,
                           fmin(hr__view_number(json_object_get(of, "quantiles_ns"), *q), longest));
    hr__memory_cell_ns(t, longest);
}

static void fill_intervals(struct hr__table *t, const struct filler *f)
{
    static const char *const behaviours[][2] = {
        {"write-read", "write, then read"},
        {"read-read", "read, then read"},
        {"read-write", "read, then write"},
        {"write-write", "write, then write"},
    };
    const json_t *i = json_object_get(f->view->root, "intervals"), *of = json_object_get(i, "of");
    double longest = NAN;
    for (size_t k = 0; k < 4; k++) {
        const json_t *one = json_object_get(of, behaviours[k][0]);
        if (!(hr__view_number(one, "count") > 0))
            continue;
        interval_row(t, f, behaviours[k][1], one, hr__view_number(one, "longest_ns"));
        longest = fmax(longest, hr__view_number(one, "longest_ns"));
    }
    if (hr__table_rows(t) > 1)
        interval_row(t, f, "all", i, longest);
}

/* "[512, 512] float32, until aten::add_": an interval's operator is the one that ends it. */
static void cell_interval(struct hr__table *t, const json_t *interval)
{
    const char *what = hr__view_text(interval, "what"), *op = hr__view_text(interval, "operator");
    struct hr__draft d = {.text = NULL};
    hr__draft_put(&d, *what ? what : hr__view_text(interval, "category"));
    hr__draft_put(&d, *op ? ", until " : "");
    hr__draft_put(&d, op);
    cell_draft(t, &d);
}

/* Of blocks that are alike the one that stands first is enough. */
static bool is_alike(const json_t *a, const json_t *b)
{
    static const char *const same[] = {"what", "operator", "behaviour", "category", "bytes"};
    bool alike = true;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        alike &= json_equal(json_object_get(a, same[i]), json_object_get(b, same[i]));
    return alike;
}

static void fill_outliers(struct hr__table *t, const struct filler *f)
{
    const json_t *i = json_object_get(f->view->root, "intervals");
    const json_t *list = json_object_get(i, "outliers");
    double in = hr__view_number(i, "h2d_bytes_per_s"), out = hr__view_number(i, "d2h_bytes_per_s");
    size_t count = json_array_size(list), most = f->brief ? BRIEF_FEW : 40;
    for (size_t k = 0; k < count && hr__table_rows(t) < most && !t->failed; k++) {
        const json_t *o = json_array_get(list, k);
        double ns = hr__view_number(o, "ns");
        bool shown = false;
        for (size_t before = 0; before < k; before++)
            shown |= is_alike(o, json_array_get(list, before));
        if (shown)
            continue;
        cell_interval(t, o);
        hr__table_cell(t, hr__view_text(o, "behaviour"));
        hr__memory_cell_bytes(t, hr__view_number(o, "bytes"));
        hr__memory_cell_ns(t, ns);
        hr__memory_cell_bytes(t, ns * 1e-9 / (1 / in + 1 / out));
    }
}

/* ---- what repeats ---- */

static void fill_different(struct hr__table *t, const struct filler *f)
{
    const json_t *list = json_object_get(json_object_get(f->view->root, "pattern"), "different");
    size_t count = json_array_size(list), shown = count;
    char number[HR__FORMAT_BYTES], at[HR__FORMAT_BYTES];
    struct hr__draft d = {.text = NULL};
    if (!count)
        return;
    if (shown > (f->brief ? BRIEF_FEW : BRIEF_ROWS))
        shown = f->brief ? BRIEF_FEW : BRIEF_ROWS;
    for (size_t i = 0; i < shown; i++) {
        const json_t *one = json_array_get(list, i);
        hr__draft_print(&d, "%snumber %s, from its behaviour %s on", i ? "; " : "",
                        hr__format_fixed(number, hr__view_number(one, "iteration") + 1, 0, true),
                        hr__format_fixed(at, hr__view_number(one, "differs_at") + 1, 0, true));
    }
    if (shown < count)
        hr__draft_print(&d, "; and %zu more", count - shown);
    hr__table_cell(t, "different");
    cell_draft(t, &d);
}

/* What marks are of. */
static void fill_steps(struct hr__table *t, const struct filler *f, double marked)
{
    const json_t *facts = json_object_get(json_object_get(f->view->root, "run"), "facts");
    const char *marks = hr__view_text(facts, "marks");
    char text[HR__FORMAT_BYTES];
    bool imported = *hr__view_text(facts, "imported from");
    double steps = imported ? marked : marked - 1; /* a recording begins with one */
    if (!(steps > 0))
        return;
    hr__table_cell(t, "steps");
    hr__table_cell_print(t, "%s of %s", hr__format_fixed(text, steps, 0, true),
                         imported ? "the profiler"
                         : *marks ? marks
                                  : "optimizers");
}

static void fill_pattern(struct hr__table *t, const struct filler *f)
{
    const json_t *p = json_object_get(f->view->root, "pattern");
    double behaviours = hr__view_number(p, "behaviours"), count = hr__view_number(p, "iterations");
    double same = hr__view_number(p, "same"), marked = hr__view_number(p, "marked");
    double median = f->view->median_ns;
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES];
    hr__table_cell(t, "iterations");
    if (!(behaviours > 0) && count > 0) {
        hr__table_cell_print(t, "%s, no two of them the same", hr__format_fixed(b, count, 0, true));
    } else if (!(behaviours > 0)) {
        hr__table_cell(t, "nothing repeats: the record is too short, or no two iterations are the "
                          "same");
    } else {
        hr__format_fixed(a, same, 0, true);
        hr__format_fixed(b, count, 0, true);
        if (same == count)
            hr__table_cell_print(t, "all of %s are the same", b);
        else
            hr__table_cell_print(t, "%s of %s are the same", a, b);
        hr__table_cell(t, "each");
        hr__table_cell_print(t, "%s behaviours (allocations, frees, reads and writes)",
                             hr__format_fixed(a, behaviours, 0, true));
    }
    if (median > 0) {
        hr__table_cell(t, "takes");
        hr__table_cell_print(t, "%s (median)", hr__format_time(a, median * 1e-9));
    }
    fill_steps(t, f, marked);
    fill_different(t, f);
}

static void fill_fragments(struct hr__table *t, const struct filler *f)
{
    const json_t *g = json_object_get(f->view->device, "fragmentation");
    double reserved = hr__view_number(g, "reserved_bytes");
    double allocated = hr__view_number(g, "allocated_bytes");
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES];
    if (!(reserved > 0))
        return;
    hr__table_cell(t, "taken from the device");
    hr__table_cell_print(t, "%s in %s segment%s", hr__format_bytes(a, reserved),
                         hr__format_fixed(b, hr__view_number(g, "segments"), 0, true),
                         s_of(hr__view_number(g, "segments")));
    hr__table_cell(t, "of it in blocks");
    hr__table_cell_print(t, "%s, %s", hr__format_bytes(a, allocated),
                         hr__format_share(b, allocated / reserved));
    hr__table_cell(t, "the largest free piece");
    hr__memory_cell_bytes(t, hr__view_number(g, "largest_free_bytes"));
    hr__table_cell(t, "free, but unusable");
    hr__memory_cell_bytes(t, hr__view_number(g, "unusable_bytes"));
}

/* ---- the run ---- */

static void cell_date(struct hr__table *t, double unix_ns)
{
    char text[64];
    struct tm date;
    time_t seconds = (time_t)(unix_ns * 1e-9);
    if (!(unix_ns >= 0) || !gmtime_r(&seconds, &date) ||
        !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &date))
        strcpy(text, "-");
    hr__table_cell(t, text);
}

static void fill_facts(struct hr__table *t, const json_t *facts)
{
    static const char *const told[][2] = {
        {"command", "command"},   {"torch", "torch"},
        {"model", "model"},       {"batch size", "batch size"},
        {"recorded", "recorded"}, {"operators", "operators seen by"},
        {"rank", "rank"},         {"imported from", "imported from"}};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        const char *value = hr__view_text(facts, told[i][0]);
        if (!*value)
            continue;
        hr__table_cell(t, told[i][1]);
        hr__table_cell(t, value);
    }
}

static void fill_check(struct hr__table *t, const struct filler *f)
{
    const json_t *check = json_object_get(f->view->root, "check");
    const json_t *back = json_object_get(check, "peak_backward_bytes"), *devices, *d;
    double negative = hr__view_number(check, "live_negative");
    bool same = json_object_size(back) > 0;
    size_t i;
    if (!check)
        return;
    devices = json_object_get(f->view->root, "devices");
    json_array_foreach(devices, i, d) same &=
        hr__view_number(back, hr__view_text(d, "device")) == hr__view_number(d, "peak_bytes");
    hr__table_cell(t, "check");
    if (negative == 0 && same)
        hr__table_cell(t, "live bytes are never negative, and replaying the record from its end "
                          "gives the same peak");
    else
        hr__table_cell_print(t,
                             "FAILED: live bytes are negative at %.0f moments; replayed from its "
                             "end the record gives %s peak",
                             negative, same ? "the same" : "another");
}

static void fill_run(struct hr__table *t, const struct filler *f)
{
    const json_t *run = json_object_get(f->view->root, "run");
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES], c[HR__FORMAT_BYTES], e[HR__FORMAT_BYTES];
    double threads = hr__view_number(run, "threads");
    double ns = hr__view_number(run, "end_ns") - hr__view_number(run, "begin_ns");
    fill_facts(t, json_object_get(run, "facts"));
    hr__table_cell(t, "record");
    hr__table_cell(t, f->view->name);
    /* Imported files may not say when they were made. */
    if (hr__view_number(run, "start_unix_ns") > 0) {
        hr__table_cell(t, "begun");
        cell_date(t, hr__view_number(run, "start_unix_ns"));
    }
    hr__table_cell(t, "holds");
    hr__table_cell_print(t, "%s events, %s of them accesses, in %s of %.0f thread%s, %s",
                         hr__format_fixed(a, hr__view_number(run, "events"), 0, true),
                         hr__format_fixed(b, hr__view_number(run, "accesses"), 0, true),
                         hr__format_time(c, ns * 1e-9), threads, s_of(threads),
                         hr__format_bytes(e, hr__view_number(run, "bytes")));
    if (*hr__view_text(run, "allocations")) {
        hr__table_cell(t, "allocations");
        hr__table_cell_print(t, "told by: %s", hr__view_text(run, "allocations"));
    }
    if (*hr__view_text(run, "clock")) {
        hr__table_cell(t, "times of accesses");
        hr__table_cell(t, strcmp(hr__view_text(run, "clock"), "device")
                              ? "of the host's calls"
                              : "of the accelerator's work");
    }
    fill_check(t, f);
}

static void fill_notes(struct hr__table *t, const struct filler *f)
{
    const json_t *notes = json_object_get(json_object_get(f->view->root, "run"), "notes"), *one;
    size_t i;
    json_array_foreach(notes, i, one) if (json_is_string(one))
        hr__table_cell(t, json_string_value(one));
}

static void fill_damage(struct hr__table *t, const struct filler *f)
{
    const json_t *run = json_object_get(f->view->root, "run");
    const json_t *damage = json_object_get(run, "damage");
    const json_t *odd = json_object_get(f->view->root, "odd");
    double frees = hr__view_number(odd, "frees"), over = hr__view_number(odd, "allocations");
    double refused = hr__view_number(odd, "refused"), pieces = hr__view_number(damage, "pieces");
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES];
    if (pieces > 0)
        hr__table_cell_print(t,
                             "The file is damaged from byte %s on (%s): %.0f piece%s, about %s, "
                             "could not be read; all else is told.",
                             hr__format_fixed(a, hr__view_number(damage, "offset"), 0, true),
                             hr__view_text(damage, "what"), pieces, s_of(pieces),
                             hr__format_bytes(b, hr__view_number(damage, "bytes")));
    if (*hr__view_text(run, "problem"))
        hr__table_cell_print(t, "Recording ended early: %s.", hr__view_text(run, "problem"));
    if (refused > 0)
        hr__table_cell_print(t, "%.0f allocation%s, of up to %s, %s refused: out of memory.",
                             refused, s_of(refused),
                             hr__format_bytes(a, hr__view_number(odd, "refused_bytes")),
                             refused == 1 ? "was" : "were");
    if (frees > 0)
        hr__table_cell_print(t, "%.0f free%s of addresses at which nothing was known to live.",
                             frees, s_of(frees));
    if (over > 0)
        hr__table_cell_print(t,
                             "%.0f allocation%s at addresses where a block still lived: it was "
                             "taken as freed then.",
                             over, s_of(over));
}

/* ---- all ---- */

static const struct {
    const char *title;
    const char *columns[HR__TABLE_COLUMNS];
    bool names; /* names and texts */
} heads[HR__MEMORY_TABLES] = {
    [HR__MEMORY_SIDES] = {"At the peak", {NULL}, false},
    [HR__MEMORY_SIDE_PARTS] = {"Part of the model", {NULL}, false},
    [HR__MEMORY_PEAK] = {"At the peak", {">bytes", ">share", NULL}, false},
    [HR__MEMORY_GROUPS] = {"The largest blocks then",
                           {"category", ">blocks", ">bytes", ">share", NULL},
                           false},
    [HR__MEMORY_PARTS] = {"Part of the model, then",
                          {">bytes", ">activations", ">parameters", ">gradients", ">optimizer",
                           ">else", NULL},
                          false},
    [HR__MEMORY_DEVICES] = {"Device", {">peak", ">at", ">at the end", ">blocks", NULL}, false},
    [HR__MEMORY_REMEDIES] = {"What would lower the peak",
                             {">saves", ">of it", ">blocks", ">costs", NULL},
                             false},
    [HR__MEMORY_ADVICE] = {"Block by block",
                           {">saves", ">blocks", ">idle for", ">costs", NULL},
                           false},
    [HR__MEMORY_CAVEATS] = {"What to know before", {NULL}, false},
    [HR__MEMORY_BATCH] = {"Batch size", {"", NULL}, true},
    [HR__MEMORY_INTERVALS] = {"Between two accesses",
                              {">count", ">10 %", ">25 %", ">median", ">75 %", ">90 %", ">99 %",
                               ">longest", NULL},
                              false},
    [HR__MEMORY_OUTLIERS] = {"Left alone longest, for their size",
                             {"behaviour", ">bytes", ">interval", ">S_max", NULL},
                             false},
    [HR__MEMORY_PATTERN] = {"What repeats", {"", NULL}, true},
    [HR__MEMORY_FRAGMENTS] = {"Fragmentation", {"", NULL}, true},
    [HR__MEMORY_RUN] = {"The record", {"", NULL}, true},
    [HR__MEMORY_NOTES] = {"What cannot be seen", {NULL}, false},
    [HR__MEMORY_DAMAGE] = {"What is damaged or odd", {NULL}, false},
    [HR__MEMORY_ITERATIONS] = {"Iteration",
                               {">begins", ">takes", ">holds at most", "pattern", NULL},
                               false},
    [HR__MEMORY_TIMELINE] = {"Moment", {NULL}, false},
    [HR__MEMORY_LIVES] = {"Block",
                          {"category", ">begins", ">ends", ">bytes", ">reads", ">writes", NULL},
                          false},
};

static void begin_tables(struct hr__table tables[HR__MEMORY_TABLES],
                         const struct hr__memory_view *views, size_t count, bool brief)
{
    static const char *const brief_intervals[] = {">count", ">median",  ">90 %",
                                                  ">99 %",  ">longest", NULL};
    static const char *const brief_parts[] = {">bytes", ">activations", ">else", NULL};
    const char *labels[HR__TABLE_COLUMNS] = {NULL}, *series[HR__TABLE_COLUMNS] = {">all"};
    for (int i = 0; i < HR__MEMORY_TABLES; i++) {
        hr__table_begin(&tables[i], heads[i].title, heads[i].columns);
        tables[i].flexible = heads[i].names;
    }
    for (size_t i = 0; i < count && i + 1 < HR__TABLE_COLUMNS; i++)
        labels[i] = views[i].label;
    for (int i = HR__MEMORY_SIDES; i <= HR__MEMORY_SIDE_PARTS; i++) {
        hr__table_begin(&tables[i], heads[i].title, labels);
        for (int c = 1; c < tables[i].column_count; c++)
            tables[i].columns[c] = (struct hr__column){views[c - 1].label, true};
    }
    for (int c = 0, at = 1; c < HR__VIEW_CATEGORIES; c++)
        if (hr__memory_series(views, c))
            series[at++] = hr__memory_plural(c);
    hr__table_begin(&tables[HR__MEMORY_TIMELINE], heads[HR__MEMORY_TIMELINE].title, series);
    for (int c = 1; c < tables[HR__MEMORY_TIMELINE].column_count; c++)
        tables[HR__MEMORY_TIMELINE].columns[c].right = true;
    if (!brief)
        return;
    hr__table_begin(&tables[HR__MEMORY_INTERVALS], heads[HR__MEMORY_INTERVALS].title,
                    brief_intervals);
    hr__table_begin(&tables[HR__MEMORY_PARTS], heads[HR__MEMORY_PARTS].title, brief_parts);
}

void hr__memory_tables_make(struct hr__table tables[HR__MEMORY_TABLES],
                            const struct hr__memory_view *views, size_t count, bool brief)
{
    const struct filler f = {.view = views, .brief = brief};
    static void (*const fill[HR__MEMORY_TABLES])(struct hr__table *, const struct filler *) = {
        [HR__MEMORY_PEAK] = fill_peak,
        [HR__MEMORY_GROUPS] = fill_groups,
        [HR__MEMORY_PARTS] = fill_parts,
        [HR__MEMORY_DEVICES] = fill_devices,
        [HR__MEMORY_REMEDIES] = fill_remedies,
        [HR__MEMORY_ADVICE] = fill_advice,
        [HR__MEMORY_CAVEATS] = fill_caveats,
        [HR__MEMORY_BATCH] = fill_batch,
        [HR__MEMORY_INTERVALS] = fill_intervals,
        [HR__MEMORY_OUTLIERS] = fill_outliers,
        [HR__MEMORY_PATTERN] = fill_pattern,
        [HR__MEMORY_FRAGMENTS] = fill_fragments,
        [HR__MEMORY_RUN] = fill_run,
        [HR__MEMORY_NOTES] = fill_notes,
        [HR__MEMORY_DAMAGE] = fill_damage,
    };
    begin_tables(tables, views, count, brief);
    for (int i = 0; i < HR__MEMORY_TABLES; i++)
        if (fill[i])
            fill[i](&tables[i], &f);
    if (count > 1) {
        size_t room = HR__TABLE_COLUMNS - 1;
        count = count < room ? count : room;
        hr__memory_fill_sides(&tables[HR__MEMORY_SIDES], views, count);
        hr__memory_fill_side_parts(&tables[HR__MEMORY_SIDE_PARTS], views, count,
                                   brief ? BRIEF_ROWS : PAGE_ROWS);
    }
    if (!brief) {
        hr__memory_fill_iterations(&tables[HR__MEMORY_ITERATIONS], views);
        hr__memory_fill_timeline(&tables[HR__MEMORY_TIMELINE], views);
        hr__memory_fill_lives(&tables[HR__MEMORY_LIVES], views);
    }
}

void hr__memory_tables_clear(struct hr__table tables[HR__MEMORY_TABLES])
{
    for (int i = 0; i < HR__MEMORY_TABLES; i++)
        hr__table_clear(&tables[i]);
}

bool hr__memory_tables_failed(const struct hr__table tables[HR__MEMORY_TABLES])
{
    bool failed = false;
    for (int i = 0; i < HR__MEMORY_TABLES; i++)
        failed |= tables[i].failed;
    return failed;
}
