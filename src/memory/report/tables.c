/* Fills the tables of a report on memory; see tables.h. Computes nothing but shares. */
#include "memory/report/tables.h"

#include "base/error.h"
#include "memory/report/lines.h"
#include "memory/report/words.h"
#include "report/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define BRIEF_ROWS     12
#define BRIEF_FEW      6
#define PAGE_ROWS      20
#define OUTLIERS_SHOWN 40

struct filler {
    const struct hr__memory_view *view;
    bool brief;
};

/* Adds "... N more" below a list that was cut. */
static void row_more(struct hr__table *t, size_t more)
{
    if (!more)
        return;
    hr__table_cell_print(t, "... %zu more", more);
    for (int c = 1; c < t->column_count; c++)
        hr__table_cell(t, "");
}

static const char *s_of(double count)
{
    return count == 1 ? "" : "s";
}

/* ---- the peak ---- */

static void fill_peak(struct hr__table *t, const struct filler *f)
{
    double total = hr__view_peak(f->view);
    bool is_listed[HR__CATEGORIES] = {false};
    for (int n = 0; n < HR__CATEGORIES; n++) {
        int most = -1;
        double bytes = 0;
        for (int c = 0; c < HR__CATEGORIES; c++) {
            double mine = hr__view_peak_of(f->view, c);
            if (!is_listed[c] && mine > bytes) {
                most = c;
                bytes = mine;
            }
        }
        if (most < 0)
            return;
        is_listed[most] = true;
        hr__table_cell(t, hr__category_plural(most));
        hr__memory_cell_bytes(t, bytes);
        hr__memory_cell_share(t, bytes / total);
        hr__table_bar(t, bytes / total);
    }
}

/* A row of groups with the same description: they differ only further up their stacks. */
struct group_row {
    struct hr__view_block block;
    uint64_t blocks, bytes;
};

/* Returns the number of rows. */
static size_t merge_groups(struct group_row rows[HR__GROUPS_MOST], const struct hr__memory_view *v)
{
    size_t count = 0;
    for (size_t i = 0; v->device && i < v->device->group_count; i++) {
        const struct hr__peak_group *g = &v->device->groups[i];
        struct hr__view_block block = hr__view_group(v, g);
        size_t at = 0;
        while (at < count && !hr__view_same_block(&rows[at].block, &block))
            at++;
        if (at == count)
            rows[count++] = (struct group_row){.block = block};
        rows[at].blocks += g->blocks;
        rows[at].bytes += g->bytes;
    }
    /* Insertion sort: stable, and the rows are nearly in order. */
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
    double total = hr__view_peak(f->view), shown = 0;
    struct group_row rows[HR__GROUPS_MOST];
    size_t count = merge_groups(rows, f->view), most = f->brief ? BRIEF_ROWS : PAGE_ROWS;
    for (size_t i = 0; i < count && i < most; i++) {
        double bytes = (double)rows[i].bytes;
        hr__memory_cell_block(t, "", &rows[i].block, f->brief);
        hr__table_cell(t, hr__category_name(rows[i].block.category));
        hr__memory_cell_count(t, (double)rows[i].blocks);
        hr__memory_cell_bytes(t, bytes);
        hr__memory_cell_share(t, bytes / total);
        shown += bytes;
    }
    if (total > shown) {
        hr__table_cell(t, "all else");
        hr__table_cell(t, "");
        hr__table_cell(t, "");
        hr__memory_cell_bytes(t, total - shown);
        hr__memory_cell_share(t, (total - shown) / total);
    }
}

static void fill_parts(struct hr__table *t, const struct filler *f)
{
    /* the columns; other categories go under "else" */
    static const int listed_categories[] = {HR_MEMORY_ACTIVATION, HR_MEMORY_PARAMETER,
                                            HR_MEMORY_GRADIENT, HR_MEMORY_OPTIMIZER_STATE};
    const struct hr__device_memory *d = f->view->device;
    size_t count = d ? d->part_count : 0;
    const size_t shown = f->brief && count > BRIEF_ROWS ? BRIEF_ROWS : count;
    const int category_count = f->brief ? 1 : 4;
    if (count == 1 && !d->parts[0].part)
        return; /* parts are unknown */
    for (size_t i = 0; i < shown; i++) {
        const struct hr__part_memory *p = &d->parts[i];
        uint64_t rest = hr__view_part_bytes(p);
        hr__table_cell(t, p->part ? hr__view_name(f->view, p->part) : "no part of the model");
        hr__memory_cell_bytes(t, (double)rest);
        for (int c = 0; c < category_count; c++) {
            hr__memory_cell_bytes(t, (double)p->bytes[listed_categories[c]]);
            rest -= p->bytes[listed_categories[c]];
        }
        hr__memory_cell_bytes(t, (double)rest);
    }
    row_more(t, count - shown);
}

static void fill_devices(struct hr__table *t, const struct filler *f)
{
    const struct hr__memory *m = f->view->found;
    for (size_t i = 0; m->device_count > 1 && i < m->device_count; i++) {
        const struct hr__device_memory *d = &m->devices[i];
        char name[HR__VIEW_DEVICE_BYTES];
        hr__table_cell(t, hr__view_device(d->device, name));
        hr__memory_cell_bytes(t, (double)d->timeline.peak_bytes);
        hr__memory_cell_ns(t, (double)d->timeline.peak.time_ns);
        hr__memory_cell_bytes(t, (double)d->timeline.end_bytes);
        hr__memory_cell_count(t, (double)d->blocks);
    }
}

/* ---- advice ---- */

static void fill_advice(struct hr__table *t, const struct filler *f)
{
    const struct hr__memory *m = f->view->found;
    size_t count = m->advice_count, shown = f->brief && count > BRIEF_ROWS ? BRIEF_ROWS : count;
    for (size_t i = 0; i < shown; i++) {
        const struct hr__advice *a = &m->advice[i];
        struct hr__view_block block = hr__view_block(f->view, a->block);
        char begin[80];
        snprintf(begin, sizeof begin, "%s: ", hr__memory_remedy(a->kind));
        hr__memory_cell_block(t, begin, &block, f->brief);
        hr__memory_cell_bytes(t, (double)a->bytes);
        hr__memory_cell_count(t, (double)a->blocks);
        hr__memory_cell_ns(t, (double)a->ns);
        hr__memory_cell_ns(t, a->cost_ns > 0 ? a->cost_ns : NAN);
    }
    row_more(t, count - shown);
}

/* Order of the tables: simplest remedy first. */
static const enum hr__advice_kind kinds[HR__ADVICE_KINDS] = {
    HR__ADVICE_LATE_FREE, HR__ADVICE_UNTOUCHED, HR__ADVICE_RECOMPUTE, HR__ADVICE_SWAP};

/* For the main device; within a kind no block counts twice. */
static void fill_remedies(struct hr__table *t, const struct filler *f)
{
    const struct hr__memory *m = f->view->found;
    double total = hr__view_peak(f->view);
    for (size_t k = 0; k < HR__ADVICE_KINDS; k++) {
        double bytes = 0, blocks = 0, cost = 0;
        for (size_t i = 0; i < m->advice_count; i++) {
            const struct hr__advice *a = &m->advice[i];
            if (a->kind != kinds[k] || m->found.blocks[a->block].device != f->view->device->device)
                continue;
            bytes += (double)a->bytes;
            blocks += (double)a->blocks;
            cost += fmax(a->cost_ns, 0);
        }
        if (!(bytes > 0))
            continue;
        hr__table_cell(t, hr__memory_remedy(kinds[k]));
        hr__memory_cell_bytes(t, bytes);
        hr__memory_cell_share(t, bytes / total);
        hr__memory_cell_count(t, blocks);
        hr__memory_cell_ns(t, cost > 0 ? cost : NAN);
        hr__table_bar(t, bytes / total);
    }
}

static void fill_caveats(struct hr__table *t, const struct filler *f)
{
    const struct hr__memory *m = f->view->found;
    for (size_t k = 0; k < HR__ADVICE_KINDS; k++) {
        bool given = false;
        for (size_t i = 0; i < m->advice_count; i++)
            given |= m->advice[i].kind == kinds[k];
        if (given)
            hr__table_cell(t, hr__memory_caveat(kinds[k]));
    }
    if (m->advice_count && !f->view->device->device)
        hr__table_cell(t, "This record is of host memory: swapping is computed as if it were an "
                          "accelerator's, behind a link of the bandwidths below.");
    if (m->advice_count > 1)
        hr__table_cell(t,
                       "Savings of different kinds do not add up: a block may be in several rows, "
                       "and another moment becomes the peak.");
    if (m->no_swap_advice)
        hr__table_cell(t,
                       "No advice on swapping: when the accelerator really touched its blocks is "
                       "not known in this record, only when it was asked to.");
}

/* Shows the batch size and how it is known. */
static void fill_batch_size(struct hr__table *t, const struct hr__memory_view *v)
{
    const char *from = hr__view_fact(v, "batch size from");
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
    char text[HR__FORMAT_BYTES];
    if (!v->fitted && !*hr__view_fact(v, "batch size from"))
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

/* Adds the row of a behaviour; < 0: all. */
static void interval_row(struct hr__table *t, const struct filler *f, int behaviour, double longest)
{
    const struct hr__intervals *i = &f->view->found->intervals;
    bool all = behaviour < 0;
    hr__table_cell(t, all ? "all" : hr__behaviour_title(behaviour));
    hr__memory_cell_count(t, (double)(all ? hr__intervals_count(i) : i->of[behaviour].count));
    for (int q = 0; q < HR__QUANTILES; q++) {
        double share = hr__quantiles[q].share;
        /* Quantiles are ends of bins, which may exceed the longest interval. */
        if (!f->brief || share == 0.5 || share >= 0.9)
            hr__memory_cell_ns(t, fmin(hr__intervals_quantile(i, behaviour, share), longest));
    }
    hr__memory_cell_ns(t, longest);
}

static void fill_intervals(struct hr__table *t, const struct filler *f)
{
    static const enum hr__behaviour order[HR__BEHAVIOURS] = {HR__WRITE_READ, HR__READ_READ,
                                                             HR__READ_WRITE, HR__WRITE_WRITE};
    const struct hr__intervals *i = &f->view->found->intervals;
    double longest = NAN;
    for (size_t k = 0; k < HR__BEHAVIOURS; k++) {
        double its_longest = (double)i->of[order[k]].longest_ns;
        if (!i->of[order[k]].count)
            continue;
        interval_row(t, f, order[k], its_longest);
        longest = fmax(longest, its_longest);
    }
    if (hr__table_rows(t) > 1)
        interval_row(t, f, -1, longest);
}

/* Adds "[512, 512] float32, until aten::add_": the operator ends the interval. */
static void cell_interval(struct hr__table *t, const struct hr__memory_view *v,
                          const struct hr__interval_of *o)
{
    const struct hr__block *b = &v->found->found.blocks[o->block];
    const char *what = hr__view_name(v, b->name), *op = hr__view_name(v, o->op);
    struct hr__draft d = {.text = NULL};
    hr__draft_put(&d, *what ? what : hr__category_name(b->category));
    hr__draft_put(&d, *op ? ", until " : "");
    hr__draft_put(&d, op);
    hr__memory_cell_draft(t, &d);
}

/* Returns whether blocks are similar: only the first of them is shown. */
static bool is_alike(const struct hr__memory *m, const struct hr__interval_of *a,
                     const struct hr__interval_of *b)
{
    const struct hr__block *x = &m->found.blocks[a->block], *y = &m->found.blocks[b->block];
    return x->name == y->name && x->category == y->category && a->op == b->op &&
           a->behaviour == b->behaviour && a->bytes == b->bytes;
}

static void fill_outliers(struct hr__table *t, const struct filler *f)
{
    const struct hr__memory *m = f->view->found;
    const struct hr__intervals *i = &m->intervals;
    size_t most = f->brief ? BRIEF_FEW : OUTLIERS_SHOWN;
    for (size_t k = 0; k < i->outlier_count && hr__table_rows(t) < most && !t->failed; k++) {
        const struct hr__interval_of *o = &i->outliers[k];
        bool shown = false;
        for (size_t before = 0; before < k; before++)
            shown |= is_alike(m, o, &i->outliers[before]);
        if (shown)
            continue;
        cell_interval(t, f->view, o);
        hr__table_cell(t, hr__behaviour_name(o->behaviour));
        hr__memory_cell_bytes(t, (double)o->bytes);
        hr__memory_cell_ns(t, (double)o->ns);
        hr__memory_cell_bytes(t, hr__swap_bytes(i, (double)o->ns));
    }
}

/* ---- repetition ---- */

static void fill_different(struct hr__table *t, const struct filler *f)
{
    const struct hr__period *p = &f->view->found->period;
    const size_t most = f->brief ? BRIEF_FEW : BRIEF_ROWS;
    char number[HR__FORMAT_BYTES], at[HR__FORMAT_BYTES];
    struct hr__draft d = {.text = NULL};
    size_t different = 0;
    for (size_t i = 0; p->behaviours && i < p->count; i++) {
        const struct hr__iteration *one = &p->iterations[i];
        if (one->is_same || different++ >= most)
            continue;
        hr__draft_print(&d, "%snumber %s, from its behaviour %s on", different > 1 ? "; " : "",
                        hr__format_fixed(number, (double)i + 1, 0, true),
                        hr__format_fixed(at, (double)(one->differs_at - one->begin) + 1, 0, true));
    }
    if (!different)
        return;
    if (different > most)
        hr__draft_print(&d, "; and %zu more", different - most);
    hr__table_cell(t, "different");
    hr__memory_cell_draft(t, &d);
}

/* Shows what the marks stand for. */
static void fill_steps(struct hr__table *t, const struct filler *f)
{
    const char *marks = hr__view_fact(f->view, "marks");
    uint32_t marked = f->view->found->found.iterations;
    char text[HR__FORMAT_BYTES];
    bool imported = *hr__view_fact(f->view, "imported from");
    double steps = imported ? marked : marked - 1.0; /* a recording begins with a mark */
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
    const struct hr__period *p = &f->view->found->period;
    double median = f->view->median_ns;
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES];
    hr__table_cell(t, "iterations");
    if (!p->behaviours && p->count) {
        hr__table_cell_print(t, "%s, no two of them the same",
                             hr__format_fixed(b, (double)p->count, 0, true));
    } else if (!p->behaviours) {
        hr__table_cell(t, "nothing repeats: the record is too short, or no two iterations are the "
                          "same");
    } else {
        hr__format_fixed(a, (double)p->same, 0, true);
        hr__format_fixed(b, (double)p->count, 0, true);
        if (p->same == p->count)
            hr__table_cell_print(t, "all of %s are the same", b);
        else
            hr__table_cell_print(t, "%s of %s are the same", a, b);
        hr__table_cell(t, "each");
        hr__table_cell_print(t, "%s behaviours (allocations, frees, reads and writes)",
                             hr__format_fixed(a, (double)p->behaviours, 0, true));
    }
    if (median > 0) {
        hr__table_cell(t, "takes");
        hr__table_cell_print(t, "%s (median)", hr__format_time(a, median * 1e-9));
    }
    fill_steps(t, f);
    fill_different(t, f);
}

static void fill_fragments(struct hr__table *t, const struct filler *f)
{
    const struct hr__segments *s = f->view->device ? &f->view->device->segments : NULL;
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES];
    if (!s || !s->is_known || !s->most.reserved_bytes)
        return;
    double reserved = (double)s->most.reserved_bytes, allocated = (double)s->most.allocated_bytes;
    hr__table_cell(t, "taken from the device");
    hr__table_cell_print(t, "%s in %s segment%s", hr__format_bytes(a, reserved),
                         hr__format_fixed(b, s->count, 0, true), s_of(s->count));
    hr__table_cell(t, "of it in blocks");
    hr__table_cell_print(t, "%s, %s", hr__format_bytes(a, allocated),
                         hr__format_share(b, allocated / reserved));
    hr__table_cell(t, "the largest free piece");
    hr__memory_cell_bytes(t, (double)s->largest_free_bytes);
    hr__table_cell(t, "free, but unusable");
    hr__memory_cell_bytes(t, (double)s->unusable_bytes);
}

/* ---- the run ---- */

static void cell_date(struct hr__table *t, uint64_t unix_ns)
{
    char text[64];
    struct tm date;
    time_t seconds = (time_t)(unix_ns / 1000000000);
    if (!gmtime_r(&seconds, &date) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &date))
        strcpy(text, "-");
    hr__table_cell(t, text);
}

static void fill_facts(struct hr__table *t, const struct hr__memory_view *v)
{
    static const char *const shown[][2] = {
        {"command", "command"},   {"torch", "torch"},
        {"model", "model"},       {"batch size", "batch size"},
        {"recorded", "recorded"}, {"operators", "operators seen by"},
        {"rank", "rank"},         {"imported from", "imported from"}};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const char *value = hr__view_fact(v, shown[i][0]);
        if (!*value)
            continue;
        hr__table_cell(t, shown[i][1]);
        hr__table_cell(t, value);
    }
}

static void fill_check(struct hr__table *t, const struct hr__memory *m)
{
    uint64_t negative = 0;
    bool same = m->device_count > 0;
    for (size_t i = 0; i < m->device_count; i++) {
        const struct hr__device_memory *d = &m->devices[i];
        negative += d->timeline.negative + d->backward.negative;
        same &= d->backward.peak_bytes == d->timeline.peak_bytes;
    }
    hr__table_cell(t, "check");
    if (!negative && same)
        hr__table_cell(t, "live bytes are never negative, and replaying the record from its end "
                          "gives the same peak");
    else
        hr__table_cell_print(t,
                             "FAILED: live bytes are negative at %" PRIu64
                             " moments; replayed from its end the record gives %s peak",
                             negative, same ? "the same" : "another");
}

static void fill_run(struct hr__table *t, const struct filler *f)
{
    const struct hr__memory *m = f->view->found;
    const char *allocations = hr__view_fact(f->view, "allocations");
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES], c[HR__FORMAT_BYTES], e[HR__FORMAT_BYTES];
    double ns = (double)m->found.end_ns - (double)m->found.begin_ns;
    fill_facts(t, f->view);
    hr__table_cell(t, "record");
    hr__table_cell(t, f->view->name);
    /* Imported files may lack their date. */
    if (m->about.start_unix_ns) {
        hr__table_cell(t, "begun");
        cell_date(t, m->about.start_unix_ns);
    }
    hr__table_cell(t, "holds");
    hr__table_cell_print(t, "%s events, %s of them accesses, in %s of %u thread%s, %s",
                         hr__format_fixed(a, (double)m->found.events, 0, true),
                         hr__format_fixed(b, (double)m->found.accesses, 0, true),
                         hr__format_time(c, ns * 1e-9), m->about.threads, s_of(m->about.threads),
                         hr__format_bytes(e, (double)m->about.bytes));
    if (*allocations) {
        hr__table_cell(t, "allocations");
        hr__table_cell_print(t, "source: %s", allocations);
    }
    hr__table_cell(t, "times of accesses");
    hr__table_cell(t, m->is_device_clock ? "of the accelerator's work" : "of the host's calls");
    fill_check(t, m);
}

static void fill_notes(struct hr__table *t, const struct filler *f)
{
    for (size_t i = 0; i < f->view->found->note_count; i++)
        hr__table_cell(t, f->view->found->notes[i]);
}

static void fill_damage(struct hr__table *t, const struct filler *f)
{
    const struct hr__memory *m = f->view->found;
    const struct hr__blocks_found *found = &m->found;
    char a[HR__FORMAT_BYTES], b[HR__FORMAT_BYTES];
    if (m->damage.extents)
        hr__table_cell_print(t,
                             "The file is damaged from byte %s on (%s): %" PRIu64
                             " piece%s, about %s, could not be read; the report covers the rest.",
                             hr__format_fixed(a, (double)m->damage.first_at, 0, true),
                             m->damage.what, m->damage.extents, s_of((double)m->damage.extents),
                             hr__format_bytes(b, (double)m->damage.lost_bytes));
    if (m->about.problem)
        hr__table_cell_print(t, "Recording ended early: %s.", hr__errno_text(m->about.problem));
    if (found->failed)
        hr__table_cell_print(t, "%" PRIu64 " allocation%s, of up to %s, %s refused: out of memory.",
                             found->failed, s_of((double)found->failed),
                             hr__format_bytes(a, (double)found->failed_bytes),
                             found->failed == 1 ? "was" : "were");
    if (found->odd_frees)
        hr__table_cell_print(t,
                             "%" PRIu64 " free%s of addresses at which nothing was known to live.",
                             found->odd_frees, s_of((double)found->odd_frees));
    if (found->odd_allocs)
        hr__table_cell_print(t,
                             "%" PRIu64
                             " allocation%s at addresses where a block still lived: it was "
                             "taken as freed then.",
                             found->odd_allocs, s_of((double)found->odd_allocs));
}

/* ---- all tables ---- */

static const struct {
    const char *title;
    const char *columns[HR__TABLE_COLUMNS];
    bool names; /* a table of names and texts */
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
            tables[i].columns[c] = (struct hr__table_column){views[c - 1].label, true};
    }
    bool any[HR__CATEGORIES];
    hr__memory_series(views, any);
    for (int c = 0, at = 1; c < HR__CATEGORIES; c++)
        if (any[c])
            series[at++] = hr__category_plural(c);
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
